"""Low-rank logits: distributions of many contexts from few numbers each, by alternating Newton steps.

Softmax(h_i B) with h_i in R^r and B (r, ω) shared stands for distribution i. For a fixed B the problem is convex in
every h_i alone; for fixed h it is convex in B, and the bound diag(p) - p pᵀ ≤ diag(p) of softmax's curvature decouples
the columns of B. So both steps are batches of r x r systems. A ridge on h that fades from sweep to sweep keeps the many
contexts with one continuation from running to infinity before the others have found their place; without it the columns
freeze.

    >>> weights = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    >>> factors = factor_distributions(weights, rank=2, tolerance=1e-3, seed=0)
    >>> factors.gap < 1e-3
    True
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]

FIRST_RIDGE, LAST_RIDGE = 0.1, 1e-7
HOPELESS_RIDGE, HOPELESS_GAP = 5e-4, 40.0  # a gap of 40 times the tolerance at this ridge was never made good


@dataclass(frozen=True, eq=False)
class Factors:
    """Softmax(coordinates @ columns) approximates the distributions; `gap` is the loss above the entropy, in nats."""

    coordinates: Floats  # (R, r)
    columns: Floats  # (r, ω)
    gap: float
    sweeps: int


def factor_distributions(
    weights: Floats, rank: int, tolerance: float, seed: int, sweeps: int = 150, progress: Progress = SILENT
) -> Factors:
    """Factors of rank `rank`, improved until the gap is at most `tolerance` nats, or hopeless, or `sweeps` are done.

    `weights` (R, ω) holds each row's distribution times how often it occurs. More sweeps let the ridge fade more
    slowly, which finds better factors where few sweeps just miss the tolerance.
    """
    rng = np.random.default_rng(seed)
    total = weights.sum(axis=1)
    columns = rng.standard_normal((rank, weights.shape[1]))
    columns /= np.linalg.norm(columns, axis=0)
    state = _State(weights, total, 8.0 * (weights / total[:, None]) @ columns.T, columns)
    fade = (LAST_RIDGE / FIRST_RIDGE) ** (1 / sweeps)
    done = 0
    with progress.stage(f"factoring {len(weights)} distributions with rank {rank}", total=sweeps) as stage:
        while done < sweeps and state.gap > tolerance:
            ridge = FIRST_RIDGE * fade**done
            if ridge < HOPELESS_RIDGE and state.gap > HOPELESS_GAP * tolerance:
                break
            state.improve_rows(ridge)
            state.improve_columns()
            done += 1
            stage.advance()
    return Factors(state.coordinates, state.columns, state.gap, done)


class _State:
    """The running estimate: rows h (R, r), columns B (r, ω), their softmax and the loss of every row."""

    def __init__(self, weights: Floats, total: Floats, coordinates: Floats, columns: Floats) -> None:
        self.weights, self.total = weights, total
        self.coordinates, self.columns = coordinates, columns
        shares = weights[weights > 0] / np.broadcast_to(total[:, None], weights.shape)[weights > 0]
        self.entropy = -float(weights[weights > 0] @ np.log(shares))
        self.damping = 0.1  # of the columns' step
        self.softmax, self.loss = self._evaluate(coordinates, columns)

    @property
    def gap(self) -> float:
        return float(self.loss.sum()) - self.entropy

    def _evaluate(self, coordinates: Floats, columns: Floats) -> tuple[Floats, Floats]:
        """(softmax (R, ω), loss of each row)."""
        logits = coordinates @ columns
        own = np.einsum("rw,rw->r", self.weights, logits)
        top = logits.max(axis=1, keepdims=True)
        logits -= top
        np.exp(logits, out=logits)
        mass = logits.sum(axis=1, keepdims=True)
        logits /= mass
        return logits, self.total * (top + np.log(mass))[:, 0] - own

    def improve_rows(self, ridge: float) -> None:
        """One Newton step for every h_i on loss/weight + ridge/2·|h_i|², of bounded length; kept where it helps."""
        rank, omega = self.columns.shape
        h = self.coordinates
        gradient = (self.softmax - self.weights / self.total[:, None]) @ self.columns.T + ridge * h
        mean = self.softmax @ self.columns.T
        products = (self.columns[:, None, :] * self.columns[None, :, :]).reshape(rank * rank, omega)
        curvature = (self.softmax @ products.T).reshape(-1, rank, rank) - mean[:, :, None] * mean[:, None, :]
        step = np.linalg.solve(curvature + ridge * np.eye(rank), gradient[:, :, None])[:, :, 0]
        longest = 2 + 0.5 * np.linalg.norm(h, axis=1)
        step *= np.minimum(1, longest / np.maximum(np.linalg.norm(step, axis=1), 1e-300))[:, None]
        softmax, loss = self._evaluate(h - step, self.columns)
        before = self.loss / self.total + ridge / 2 * (h * h).sum(axis=1)
        after = loss / self.total + ridge / 2 * ((h - step) ** 2).sum(axis=1)
        better = after <= before
        self.coordinates = np.where(better[:, None], h - step, h)
        self.softmax = np.where(better[:, None], softmax, self.softmax)
        self.loss = np.where(better, loss, self.loss)

    def improve_columns(self) -> None:
        """One damped step for all columns of B, undone if the loss grows."""
        rank, omega = self.columns.shape
        expected = self.softmax * self.total[:, None]
        gradient = self.coordinates.T @ (expected - self.weights)  # (r, ω)
        products = (self.coordinates[:, :, None] * self.coordinates[:, None, :]).reshape(-1, rank * rank)
        curvature = (products.T @ expected).T.reshape(omega, rank, rank) + self.damping * np.eye(rank)
        step = np.linalg.solve(curvature, gradient.T[:, :, None])[:, :, 0].T
        softmax, loss = self._evaluate(self.coordinates, self.columns - step)
        if loss.sum() <= self.loss.sum():
            self.columns, self.softmax, self.loss = self.columns - step, softmax, loss
            self.damping = max(self.damping / 3, 1e-6)
        else:
            self.damping = min(self.damping * 4, 1e9)
