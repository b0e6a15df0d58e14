"""The decoders of Madden et al. 2024 as rows: contexts are rows of the data (or prefixes), next tokens are labels."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from byheart.compile.compare.rows import CompareRow
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task

if TYPE_CHECKING:
    from byheart.build import Neighbour

TASKS = (Task.NEXT_TOKEN, Task.CAUSAL)


def applies(dataset: Dataset) -> bool:
    """Decoders read tokens of a finite vocabulary, in order; different vectors are different tokens."""
    return dataset.encoder.task in TASKS


def decoder_row(dataset: Dataset, entry: Neighbour, seed: int) -> CompareRow:
    """Built in closed form from symbols; proved where balls show that every label has the highest logit."""
    from byheart.build.madden24.construction import closed_form
    from byheart.build.madden24.fit import MixerKind, Shape
    from byheart.certify.next_token import certify_decoder
    from byheart.data.dataset.targets import Distributions

    sequences, labels, size = _contexts(dataset)
    started = time.perf_counter()
    contexts = Distributions.given(sequences, [{label: 1.0} for label in labels], size)
    mixer = MixerKind.ATTENTION if entry.name == "madden24" else MixerKind.AVERAGE
    answers = len(set(labels))
    factored = contexts.count * answers + answers * size < contexts.count * size
    words = tuple(map(str, range(size)))
    decoder = closed_form(contexts, words, Shape(mixer=mixer), factored=factored, seed=seed).decoder
    built = time.perf_counter()
    certificate = certify_decoder(decoder, contexts)
    nonzero = sum(int(np.count_nonzero(matrix)) for matrix in decoder.matrices)
    sentence = f"{certificate.labels_proved} of {contexts.count} contexts provably have their label as highest logit"
    return CompareRow(
        entry.name,
        certificate.label_verdict.value,
        sentence,
        str(entry.ref),
        entry.summary,
        parameters=decoder.parameters,
        nonzero=nonzero,
        max_bits=64,
        total_bits=64 * nonzero,
        width=decoder.neurons,
        depth=2,
        blocks=1,
        attention_layers=1,
        build_seconds=round(built - started, 3),
        certify_seconds=round(time.perf_counter() - built, 3),
        arithmetic=f"rigorous enclosures ({certificate.arithmetic})",
        notes=_notes(size, answers if factored else None),
    )


def _notes(size: int, answers: int | None) -> tuple[str, ...]:
    notes = [f"a vocabulary of {size} tokens, float64 weights; stores whole distributions, here one token each"]
    if answers is not None:
        notes.append(f"V is stored as two factors: neurons to the {answers} tokens that follow, these to all tokens")
    return tuple(notes)


def _contexts(dataset: Dataset) -> tuple[list[list[int]], list[int], int]:
    """Distinct rows or prefixes as token numbers, their classes, and the size of a vocabulary for both."""
    codes = np.unique(dataset.inputs.points.numerators[:, 0].astype(np.int64), return_inverse=True)[1]
    table: dict[tuple[int, ...], int] = {}
    for row, own in zip(dataset.inputs.index.tolist(), dataset.labels.tolist(), strict=True):
        tokens = [int(codes[point]) for point in row if point >= 0]
        if dataset.encoder.task is Task.CAUSAL:
            for stop, label in enumerate(own[: len(tokens)], start=1):
                table.setdefault(tuple(tokens[:stop]), label)
        else:
            table.setdefault(tuple(tokens), own)
    size = max(int(codes.max()) + 1, dataset.C, 2)
    return [list(context) for context in table], list(table.values()), size
