"""Neurons placed with the contexts in view, and the linear system Y = F V of Theorem 5 that they make.

On a line, the n numbers x_1 < … < x_n get a neuron between any two neighbours, steep enough to distinguish them:
ψ(w_j (x - c_j)), c_j the middle of a gap and w_j = sharpness / half the gap. For a saturating ψ the matrix of
features is nearly the n x n staircase of ones, whose condition number grows like n whatever the gaps are;
a random draw on the line has condition numbers beyond 1/ε already at a few dozen contexts.

    >>> features = steps_between(np.array([0.0, 1.0, 1.5]), Activation.TANH).features(np.array([0.0, 1.0, 1.5]))
    >>> np.sign(features).astype(int).tolist()
    [[1, -1, -1], [1, 1, -1], [1, 1, 1]]

A staircase is solved by differences. Saturated steps give row i (contexts from left to right) the feature `high` for
neurons 0 … i and `low` for the others. Then (high - low)·V_i = Y_i - Y_{i-1}: no factorization, no growth of errors,
n·ω operations. Where the activation only nears its limits (arctan), refinement with the true features does the rest.

    >>> staircase = np.where(np.arange(3) <= np.arange(3)[:, None], 1.0, -1.0)
    >>> solution = solve_staircase(lambda rows: staircase[rows], np.array([[1.0], [5.0], [3.0]]), -1.0, 1.0)
    >>> solution.weights.ravel().tolist(), solution.residual
    ([2.0, 2.0, -1.0], 0.0)

In R^d, d > 1, each neuron looks in the direction of its own context (`own_directions`). In the coordinates in which the
contexts have unit covariance, neuron i measures how far a context lies in direction x_i, and its threshold lies
between context i and the runner-up. In enough dimensions most contexts are extreme points, and the matrix of features
is nearly diagonal; with many contexts it is not, only far better conditioned than on a line. This serves activations
that do not saturate (GELU), for which neurons on a line must cancel large numbers. Its system is solved backward
stably, by LU with partial pivoting and iterative refinement (`solve`).

    >>> points = np.random.default_rng(0).standard_normal((40, 24))
    >>> weight, bias = own_directions(points)
    >>> features = Activation.GELU(points @ weight + bias)
    >>> bool(np.linalg.cond(features) < 100)
    True
    >>> solution = solve(np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([[0.0], [2.0]]))
    >>> solution.weights.tolist(), solution.residual, round(solution.condition, 6)
    ([[1.0], [1.0]], 0.0, 1.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import BuildError, MissingExtraError
from byheart.ir.decoder import Activation

Floats = npt.NDArray[np.float64]

SINGULAR = 1e15  # condition numbers from here on mean that float64 cannot distinguish the features


@dataclass(frozen=True, eq=False)
class SolvedOutputs:
    """V, the largest entry of |F V - Y|, and the 2-norm condition number of F."""

    weights: Floats
    residual: float
    condition: float


def solve(features: Floats, targets: Floats, refinements: int = 2) -> SolvedOutputs:
    """V with features @ V = targets: square features by LU and refinement, others in the least-squares sense."""
    if features.shape[0] != features.shape[1]:
        return _least_squares(features, targets)
    linalg = scipy_linalg("solving for the output matrix")
    try:
        factors = linalg.lu_factor(features, check_finite=True)
    except (ValueError, linalg.LinAlgWarning) as error:
        raise BuildError(f"the features cannot be solved for the output matrix: {error}") from error
    condition = _condition(features, lambda b, t: linalg.lu_solve(factors, b, trans=t))
    if not condition < SINGULAR:
        raise BuildError(
            f"the features have condition number {condition:.3g}; sample others (another seed) or raise the dimension"
        )
    weights = linalg.lu_solve(factors, targets)
    residual = targets - features @ weights
    enough = 64 * np.finfo(float).eps * max(1.0, float(np.abs(targets).max(initial=0.0)))
    for _ in range(refinements):
        if np.abs(residual).max() <= enough:
            break
        better = weights + linalg.lu_solve(factors, residual)
        remaining = targets - features @ better
        if np.abs(remaining).max() >= np.abs(residual).max():
            break
        weights, residual = better, remaining
    return SolvedOutputs(weights, float(np.abs(residual).max()), condition)


def scipy_linalg(feature: str) -> Any:
    try:
        from scipy import linalg
    except ImportError as error:
        raise MissingExtraError(feature, "decoder") from error
    return linalg


def _least_squares(features: Floats, targets: Floats) -> SolvedOutputs:
    weights, _, _, singular = np.linalg.lstsq(features, targets, rcond=None)
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else float("inf")
    return SolvedOutputs(
        np.asarray(weights, dtype=np.float64), float(np.abs(features @ weights - targets).max()), condition
    )


def _condition(features: Floats, solver: Any) -> float:
    """Exact for small matrices; else largest and smallest singular value by 15 steps of (inverse) power iteration."""
    if len(features) <= 512:
        return float(np.linalg.cond(features))
    rng = np.random.default_rng(0)
    large, small = rng.standard_normal((2, len(features)))
    for _ in range(15):
        large /= np.linalg.norm(large)
        large = features.T @ (features @ large)
        small /= np.linalg.norm(small)
        small = solver(solver(small, 1), 0)
        if not np.isfinite(small).all():
            return float("inf")
    return float(np.sqrt(np.linalg.norm(large) * np.linalg.norm(small)))


Ints = npt.NDArray[np.int64]

# |argument| at the two neighbours of a gap. Saturating activations: within 2^-53 of their limit there (arctan: 2^-30).
STEEP = {Activation.TANH: 20.0, Activation.SIGMOID: 40.0, Activation.ARCTAN: 2.0**30, Activation.GELU: 6.0}
# Sharpness of neurons whose steps are not steep. Tuned by hand.
GENTLE = {Activation.TANH: 3.0, Activation.SIGMOID: 6.0, Activation.ARCTAN: 16.0, Activation.GELU: 3.0}


@dataclass(frozen=True, eq=False)
class Neurons:
    """m neurons on the line: x -> activation(weight·x + bias)."""

    weight: Floats  # (m,)
    bias: Floats  # (m,)
    activation: Activation

    def features(self, numbers: Floats) -> Floats:
        """(n, m)"""
        return self.activation(np.multiply.outer(numbers, self.weight) + self.bias)


def steps_between(
    ordered: Floats, activation: Activation, places: Ints | None = None, sharpness: float | None = None
) -> Neurons:
    """One neuron that is on for all numbers, and one before `ordered[k]` for each k in `places` (default: 1..n-1).

    Notation: ordered = x (ascending), places = the k whose gap (x_{k-1}, x_k) gets a neuron.
    """
    if len(ordered) > 1 and not (np.diff(ordered) > 0).all():
        raise BuildError("two contexts have the same number; sample other token and position weights")
    places = np.arange(1, len(ordered)) if places is None else places
    sharp = (STEEP[activation] if activation.saturates else GENTLE[activation]) if sharpness is None else sharpness
    spread = float(ordered[-1] - ordered[0]) if len(ordered) > 1 else 1.0
    first = spread / len(ordered)
    half = np.concatenate([[first], (ordered[places] - ordered[places - 1]) / 2])
    centre = np.concatenate([[ordered[0] - first], (ordered[places] + ordered[places - 1]) / 2])
    weight = sharp / half
    return Neurons(weight, -weight * centre, activation)


Rows = Callable[[slice], Floats]  # rows of the features, from left to right on the line

# Contexts at a time.
CHUNK = 512
# Steps of iterative refinement; they end where the residual stops falling.
REFINEMENTS = 4
SMALL = 512  # up to here the condition number is that of the features, beyond that of the staircase
# Power iterations for the condition number, which is only shown.
ITERATIONS = 300


def solve_staircase(rows: Rows, targets: Floats, low: float, high: float) -> SolvedOutputs:
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
    return SolvedOutputs(weights, error, _staircase_condition(rows, len(targets), low, high))


def _by_differences(targets: Floats, low: float, high: float) -> Floats:
    """The staircase's solution: differences of neighbours, and in the first row the common part of all rows."""
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


def _staircase_condition(rows: Rows, count: int, low: float, high: float) -> float:
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


_SHARP = 3.0  # |argument| of neuron i at context i and at its runner-up
_INSIDE = 0.8  # threshold, in lengths of x_i, for a context that is not an extreme point


def own_directions(points: Floats, rows: npt.NDArray[np.int64] | None = None) -> tuple[Floats, Floats]:
    """(weight (d, m), bias (m,)) of one neuron for each context in `rows` (default: all of them)."""
    rows = np.arange(len(points)) if rows is None else rows
    mean = points.mean(axis=0)
    whitening = _whitening(points - mean)  # (d, k)
    white = (points - mean) @ whitening
    length = np.linalg.norm(white[rows], axis=1)
    central = length < 1e-9  # the mean itself has no direction (a single context): its neuron is a constant
    length = np.where(central, 1.0, length)
    direction = (white[rows] / length[:, None]).T  # (k, m)
    reach = white @ direction  # (n, m)
    reach[rows, np.arange(len(rows))] = -np.inf
    runner_up = reach.max(axis=0) if len(points) > 1 else np.zeros(len(rows))
    margin = length - runner_up
    extreme = margin > 0.01 * length
    threshold = np.where(extreme, (length + runner_up) / 2, _INSIDE * length)
    steepness = _SHARP / np.where(extreme, margin / 2, (1 - _INSIDE) * length)
    weight = (whitening @ direction) * np.where(central, 0.0, steepness)
    return weight, np.where(central, _SHARP, -steepness * threshold - mean @ weight)


def _whitening(centred: Floats) -> Floats:
    """A matrix M for which centred @ M has unit covariance on the directions that the points span."""
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    kept = singular > 1e-10 * max(singular.max(initial=0.0), np.finfo(float).tiny)
    if not kept.any():
        return np.eye(centred.shape[1])
    return np.asarray(directions[kept].T * (np.sqrt(len(centred)) / singular[kept]))
