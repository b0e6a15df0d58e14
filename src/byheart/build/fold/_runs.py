"""Compiled search for an order of the ids in which equal labels stand together."""

from __future__ import annotations

from typing import Any

import numpy as np

from byheart.build.fold._kernel import kernel


@kernel
def count_runs(values: Any, labels: Any) -> int:  # pragma: no cover - compiled
    """How often the label changes along ascending values, plus one."""
    order = np.argsort(values)
    runs = 1
    for k in range(1, len(order)):
        if labels[order[k]] != labels[order[k - 1]]:
            runs += 1
    return runs


@kernel
def projected(points: Any, weights: Any) -> Any:  # pragma: no cover - compiled
    """points @ weights, by hand: the same sums on every machine, and no library to link."""
    out = np.zeros(points.shape[0])
    for row in range(points.shape[0]):
        for column in range(points.shape[1]):
            out[row] += points[row, column] * weights[column]
    return out


@kernel
def anneal(
    own: Any, total: Any, labels: Any, weights: Any, factor: float, steps: int, seed: int
) -> tuple[Any, float, int]:  # pragma: no cover - compiled
    """Weights A and factor b with few runs of own·A + b·total·A, by simulated annealing from the given start.

    A step moves one weight, all of them, or b, by an amount whose size is drawn from a wide range.
    """
    np.random.seed(seed)
    d = len(weights)
    here, b_here = weights.copy(), factor
    first, second = projected(own, here), projected(total, here)
    cost = count_runs(first + b_here * second, labels)
    best, b_best, least = here.copy(), b_here, cost
    for step in range(steps):
        size = np.exp(np.random.uniform(-5.0, 0.5))
        kind = np.random.randint(3)
        if d == 1:
            kind = 2  # a single weight changes nothing but the scale
        there, b_there = here.copy(), b_here
        if kind == 0:
            there[np.random.randint(d)] += size * np.random.normal()
        elif kind == 1:
            for k in range(d):
                there[k] += size * np.random.normal()
        else:
            b_there = b_here * np.exp(size * np.random.normal())
            if np.random.randint(8) == 0:
                b_there = -b_there
        if kind < 2:
            first_there, second_there = projected(own, there), projected(total, there)
        else:
            first_there, second_there = first, second
        found = count_runs(first_there + b_there * second_there, labels)
        heat = 1.0 - step / steps
        if found <= cost or np.random.random() < np.exp((cost - found) / (heat + 1e-9)):
            here, b_here, cost = there, b_there, found
            first, second = first_there, second_there
            if cost < least:
                best, b_best, least = here.copy(), b_here, cost
    return best, b_best, least
