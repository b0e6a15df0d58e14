"""memorize(): from rows to a certified memory, straight down."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from byheart.certify import certify
from byheart.compile.first_use import first_use
from byheart.compile.memory import Memory
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.settle import Settled, settle, settle_table
from byheart.data.read.selection import Selection
from byheart.data.read.table import Table
from byheart.data.tokens.tokenizer import PLAIN
from byheart.errors import DataError
from byheart.progress import SILENT, Progress, console_progress


def memorize(
    sequences: Sequence[Any] | Table,
    labels: Sequence[Any] | None = None,
    *,
    task: str | None = None,
    construction: str = "compact",
    positions: bool = True,
    conflicts: str = "error",
    seed: int = 0,
    progress: bool | Progress = True,
    **options: Any,
) -> Memory:
    """A Transformer that gives every sequence its label, with the certificate that it does.

    Notation: N sequences of n tokens with C classes. The task is next-token unless it is given; a table of
    `byheart.read` brings its labels and its task. `conflicts` says what to do with equal inputs of different labels:
    `error`, or leave rows out by `first`, `majority` or `drop`. `options` are the construction's own, see
    `byheart.constructions()`. The verdict is `memory.certificate.verdict`; nothing is rounded anywhere.

    >>> memory = memorize(["cat", "act", "dog"], [3, 1, 4], construction="ks25", progress=False)
    >>> memory.certificate.verdict.value, memory.predict(["act"])
    ('proved', [1])
    """
    table = sequences if isinstance(sequences, Table) else None
    if isinstance(sequences, Table):
        if labels is not None:
            raise DataError("a table brings its own labels; leave `labels` out, or give table.sequences")
        settled = settle_table(sequences, task=task, positions=positions, policy=conflicts)
    elif labels is None:
        raise DataError("labels are missing: memorize(sequences, labels), or memorize(byheart.read(FILE))")
    else:
        settled = settle(sequences, labels, task=task or "next-token", positions=positions, policy=conflicts)
    memory = memorize_dataset(settled.dataset, construction=construction, seed=seed, progress=progress, **options)
    return with_origin(memory, settled, table)


def with_origin(memory: Memory, settled: Settled, table: Table | None = None) -> Memory:
    """The memory, told how its rows were read and what was left out."""
    notes = (*memory.notes, settled.note) if settled.note else memory.notes
    selection = replace(table.selection if table else Selection(), conflicts=settled.policy)
    return replace(memory, notes=notes, selection=selection, tokens=table.tokens if table else PLAIN)


def memorize_dataset(
    dataset: Dataset, *, construction: str = "compact", seed: int = 0, progress: bool | Progress = True, **options: Any
) -> Memory:
    """`memorize` for a data set that is already loaded."""
    from byheart.build import recipe  # builders and their compiled code are loaded only to build

    reporter = progress if not isinstance(progress, bool) else console_progress() if progress else SILENT
    chosen = recipe(construction)
    started = time.perf_counter()
    with first_use(construction, reporter):
        built = chosen.build(dataset, seed=seed, progress=reporter, options=options)
    finished = time.perf_counter()
    certificate = certify(built.network, dataset, built.claim, reporter)
    return Memory(
        construction=construction,
        options=dict(built.options) or chosen.resolve(options),
        seed=seed,
        network=built.network,
        encoder=dataset.encoder,
        classes=dataset.classes,
        claim=built.claim,
        certificate=certificate,
        notes=built.notes,
        dataset=dataset,
        seconds={"build": finished - started, "certify": time.perf_counter() - finished},
    )
