"""Theorem 5's last step, solve Y = F V for V, backward stably: LU with partial pivoting and iterative refinement.

>>> features = np.array([[1.0, -1.0], [1.0, 1.0]])
>>> solution = solve(features, np.array([[0.0], [2.0]]))
>>> solution.weights.tolist(), solution.residual, round(solution.condition, 6)
([[1.0], [1.0]], 0.0, 1.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import BuildError, MissingExtraError

Floats = npt.NDArray[np.float64]

SINGULAR = 1e15  # condition numbers from here on mean that float64 cannot tell the features apart


@dataclass(frozen=True, eq=False)
class Solution:
    """V, the largest entry of |F V - Y|, and the 2-norm condition number of F."""

    weights: Floats
    residual: float
    condition: float


def solve(features: Floats, targets: Floats, refinements: int = 2) -> Solution:
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
            f"the features have condition number {condition:.3g}; draw others (another seed) or raise the dimension"
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
    return Solution(weights, float(np.abs(residual).max()), condition)


def scipy_linalg(feature: str) -> Any:
    try:
        from scipy import linalg
    except ImportError as error:
        raise MissingExtraError(feature, "decoder") from error
    return linalg


def _least_squares(features: Floats, targets: Floats) -> Solution:
    weights, _, _, singular = np.linalg.lstsq(features, targets, rcond=None)
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else float("inf")
    return Solution(np.asarray(weights, dtype=np.float64), float(np.abs(features @ weights - targets).max()), condition)


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
