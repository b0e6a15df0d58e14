"""The search for an order of the ids in which equal labels stand together: simulated annealing, a batch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BATCH = 16  # proposals that are counted together
PATIENCE = 1  # proposals per step that is asked for


def count_runs(values: Floats, labels: Ints) -> Any:
    """How often the label changes along ascending values, plus one; for every column of `values`.

    >>> int(count_runs(np.array([3.0, 1.0, 2.0]), np.array([1, 0, 1])))
    2
    """
    ordered = labels[np.argsort(values, axis=0, kind="stable")]
    return 1 + np.count_nonzero(ordered[1:] != ordered[:-1], axis=0)


def anneal(
    own: Floats, total: Floats, labels: Ints, weights: Floats, factor: float, steps: int, seed: int
) -> tuple[Floats, float, int]:
    """Weights A and factor b with few runs of own·A + b·total·A, from the given start.

    A proposal moves one weight, all of them, or b, by an amount whose size is drawn from a wide range. The best of a
    batch, with noise that cools down, is where the next batch starts.
    """
    rng = np.random.default_rng(seed)
    d = len(weights)
    here, b_here = weights.copy(), float(factor)
    best, b_best = here.copy(), b_here
    least = int(count_runs(own @ here + b_here * (total @ here), labels))
    batches = max(1, PATIENCE * steps // BATCH) if steps else 0
    cost = least
    for step in range(batches):
        size = np.exp(rng.uniform(-5.0, 0.5, BATCH))
        kind = rng.integers(0, 3, BATCH) if d > 1 else np.full(BATCH, 2)  # one weight changes nothing but the scale
        moves = rng.standard_normal((d, BATCH)) * size
        moves *= (kind == 1) | ((kind == 0) & (np.arange(d)[:, None] == rng.integers(0, d, BATCH)))
        there = here[:, None] + moves
        turned = np.where(rng.integers(0, 8, BATCH) == 0, -1.0, 1.0)
        b_there = np.where(kind == 2, b_here * np.exp(size * rng.standard_normal(BATCH)) * turned, b_here)
        found = count_runs(own @ there + b_there * (total @ there), labels)
        heat = 1.0 - step / batches
        k = int(np.argmin(found - heat * np.log(1 / rng.uniform(1e-12, 1, BATCH))))
        if found[k] <= cost or rng.uniform() < np.exp((cost - found[k]) / (heat + 1e-9)):
            here, b_here, cost = there[:, k].copy(), float(b_there[k]), int(found[k])
            if cost < least:
                best, b_best, least = here.copy(), b_here, cost
    return best, b_best, least
