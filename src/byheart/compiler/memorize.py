"""memorize(): from rows to a certified memory, straight down."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from byheart.certify import certify
from byheart.compiler.memory import Memory
from byheart.data.dataset import Dataset, load
from byheart.progress import SILENT, Progress, console_progress


def memorize(
    sequences: Sequence[Any],
    labels: Sequence[Any],
    *,
    task: str = "next-token",
    construction: str = "compact",
    positions: bool = True,
    seed: int = 0,
    progress: bool | Progress = True,
    **options: Any,
) -> Memory:
    """A Transformer that gives every sequence its label, with the certificate that it does.

    Notation: N sequences of n tokens with C classes. `options` are the construction's own, see
    `byheart.constructions()`. The verdict is `memory.certificate.verdict`; nothing is rounded anywhere.

    >>> memory = memorize(["cat", "act", "dog"], [3, 1, 4], construction="ks25", progress=False)
    >>> memory.certificate.verdict.value, memory.predict(["act"])
    ('proved', [1])
    """
    dataset = load(sequences, labels, task=task, positions=positions)
    return memorize_dataset(dataset, construction=construction, seed=seed, progress=progress, **options)


def memorize_dataset(
    dataset: Dataset, *, construction: str = "compact", seed: int = 0, progress: bool | Progress = True, **options: Any
) -> Memory:
    """`memorize` for a data set that is already loaded."""
    from byheart.constructions import recipe  # builders and their compiled code are loaded only to build

    reporter = progress if not isinstance(progress, bool) else console_progress() if progress else SILENT
    chosen = recipe(construction)
    started = time.perf_counter()
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
