"""Steps on a line make a staircase, and a staircase is solved by differences.

Saturated steps give row i (contexts from left to right) the feature `high` for neurons 0 … i and `low` for the others.
Then (high - low)·V_i = Y_i - Y_{i-1}: no factorization, no growth of errors, n·ω operations. Where the activation only
nears its limits (arctan), refinement with the true features does the rest.

    >>> staircase = np.where(np.arange(3) <= np.arange(3)[:, None], 1.0, -1.0)
    >>> solution = solve_staircase(lambda rows: staircase[rows], np.array([[1.0], [5.0], [3.0]]), -1.0, 1.0)
    >>> solution.weights.ravel().tolist(), solution.residual
    ([2.0, 2.0, -1.0], 0.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from byheart.build.madden24.solve import Solution
from byheart.errors import BuildError

Floats = npt.NDArray[np.float64]
Rows = Callable[[slice], Floats]  # rows of the features, from left to right on the line

CHUNK = 512
REFINEMENTS = 4
SMALL = 512  # up to here the condition number is that of the features, beyond that of the staircase
ITERATIONS = 300


def solve_staircase(rows: Rows, targets: Floats, low: float, high: float) -> Solution:
    """V with features @ V = targets, for features near the staircase; a BuildError if they are not near it."""
    enough = 64 * np.finfo(float).eps * max(1.0, float(np.abs(targets).max(initial=0.0)))
    weights = _by_differences(targets, low, high)
    residual = targets - _product(rows, weights, low, high)
    for _ in range(REFINEMENTS):
        if np.abs(residual).max() <= enough:
            break
        better = weights + _by_differences(residual, low, high)
        remaining = targets - _product(rows, better, low, high)
        if np.abs(remaining).max() >= np.abs(residual).max():
            break
        weights, residual = better, remaining
    error = float(np.abs(residual).max())
    if not error < 1e-3:
        raise BuildError(f"the steps do not reach the target logits (off by {error:.3g}); try another seed")
    return Solution(weights, error, _condition(rows, len(targets), low, high))


def _by_differences(targets: Floats, low: float, high: float) -> Floats:
    """The staircase's solution: differences of neighbours, and in the first row what all rows have in common."""
    weights = np.empty_like(targets)
    weights[1:] = (targets[1:] - targets[:-1]) / (high - low)
    weights[0] = targets[-1] / high - (targets[-1] - targets[0]) / (high - low)
    return weights


def _times(weights: Floats, low: float, high: float) -> Floats:
    """The staircase times V."""
    return np.asarray(low * weights.sum(axis=0) + (high - low) * np.cumsum(weights, axis=0))


def _product(rows: Rows, weights: Floats, low: float, high: float) -> Floats:
    """The features times V; by running sums where the features are exactly the staircase."""
    product = _times(weights, low, high)
    for start in range(0, len(weights), CHUNK):
        part = slice(start, min(start + CHUNK, len(weights)))
        features = rows(part)
        exact = np.where(np.arange(len(weights)) <= np.arange(part.start, part.stop)[:, None], high, low)
        if not np.array_equal(features, exact):
            product[part] = features @ weights
    return product


def _condition(rows: Rows, count: int, low: float, high: float) -> float:
    """Exact for few contexts; else of the staircase, by power iterations with its matrix and its inverse."""
    if count <= SMALL:
        return float(np.linalg.cond(rows(slice(0, count))))
    rng = np.random.default_rng(0)
    large, small = rng.standard_normal((2, count, 1))
    for _ in range(ITERATIONS):
        large /= np.linalg.norm(large)
        large = _transposed(_times(large, low, high), low, high)
        small /= np.linalg.norm(small)
        small = _by_differences(_transposed_by_differences(small, low, high), low, high)
    return math.sqrt(float(np.linalg.norm(large) * np.linalg.norm(small)))


def _transposed(values: Floats, low: float, high: float) -> Floats:
    """The staircase's transpose times a column: entry j adds `high` from row j on and `low` before it."""
    return _times(values[::-1], low, high)[::-1]


def _transposed_by_differences(values: Floats, low: float, high: float) -> Floats:
    return _by_differences(values[::-1], low, high)[::-1]
