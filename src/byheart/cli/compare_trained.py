"""A trained network beside the built ones: the laboratory looks for the smallest that memorizes, in limited time."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from byheart.compile.compare.rows import CompareRow, Comparison
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import MissingExtraError, OptionError

BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)
EPOCHS, RATE = 2000, 0.01


def with_trained(comparison: Comparison, dataset: Dataset, seconds: float, seed: int) -> Comparison:
    """The comparison with one more row, before the baselines."""
    rows = list(comparison.rows)
    place = next((k for k, row in enumerate(rows) if row.verdict == "baseline"), len(rows))
    rows.insert(place, trained_row(dataset, seconds, seed))
    return replace(comparison, rows=tuple(rows))


def trained_row(dataset: Dataset, seconds: float, seed: int) -> CompareRow:
    """KS25's trained network with more and more blocks until one knows every row, or the time is up."""
    if dataset.encoder.task is not Task.NEXT_TOKEN:
        raise OptionError(f"--trained trains for one label per row, not for {dataset.encoder.task}")
    try:
        from byheart.lab.config import Training, Uniform
        from byheart.lab.engines.training import Goal, train
        from byheart.lab.problem import Sequences
    except ImportError as error:
        raise MissingExtraError("training a network", "lab") from error
    points = dataset.inputs.points
    vectors = np.array([[x / points.denominator for x in row] for row in points.numerators], dtype=np.float64)
    vectors = (vectors - vectors.mean(axis=0)) / np.where(vectors.std(axis=0) > 0, vectors.std(axis=0), 1.0)
    table = None if dataset.encoder.symbols is not None else vectors
    problem = Sequences("compare", table, dataset.inputs.index, dataset.labels, max(2, dataset.C), read=dataset.n - 1)
    started, best = time.perf_counter(), 0.0
    for blocks in BLOCKS:
        model = Uniform(blocks=blocks, m=4, q=16)
        plan = Training(epochs=EPOCHS, rate=RATE, warmup=0.05, clip=1.0, seed=seed)
        outcome = train(problem, model, plan, Goal(accuracy=True))
        best = max(best, outcome.accuracy)
        spent = time.perf_counter() - started
        if outcome.memorized or outcome.accuracy == 1.0:
            size = model.parameters(problem)
            sentence = f"memorized after {outcome.epochs} epochs with {blocks} blocks on either side; checked in floats"
            return CompareRow(
                "trained", "trained", sentence, "KS25, Equation (165)", "found by gradient descent",
                parameters=size, nonzero=size, max_bits=32, total_bits=32 * size, width=model.q, depth=2 * blocks + 1,
                attention_layers=1, build_seconds=round(spent, 3),
            )  # fmt: skip
        if spent > seconds:
            break
    sentence = (
        f"no network up to {blocks} blocks knew every row within {seconds:g} seconds; the best had {best:.1%} right"
    )
    return CompareRow("trained", "not found", sentence, "KS25, Equation (165)", "looked for by gradient descent")
