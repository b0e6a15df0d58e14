"""The fast engine for eq. (165) with m = 2: compiled loops on one core, no library call per layer.

Three things make it fast, none of which changes the mathematics:
- F1 and E_in look at one token at a time, so a word that occurs a hundred times is computed once;
- only the token that is read leaves the attention layer, so F2 sees N tokens and not N·n;
- the blocks run in `byheart.lab.engines.kernel`, tile by tile in the first-level cache, and whole epochs in
  `byheart.lab.engines.kernel`, so small problems do not wait for Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.lab.config import Training, Uniform
from byheart.lab.engines.kernel import LANES, run_epochs
from byheart.lab.engines.weights import Flat, initial_uniform
from byheart.lab.problem import CROSS_ENTROPY, Sequences

Curve = npt.NDArray[np.float64]  # (epochs, 2): loss and accuracy


class KernelEngine:
    """One training run; `epochs(k)` takes k steps and gives (loss, accuracy) before each."""

    def __init__(
        self, problem: Sequences, model: Uniform, training: Training, dtype: npt.DTypeLike = np.float32
    ) -> None:
        self.training, self.step = training, 0
        start = initial_uniform(model, problem, training.seed)
        self.weights, self.gradient = Flat(start, dtype), Flat(start, dtype)
        moments = np.zeros_like(self.weights.vector), np.zeros_like(self.weights.vector)
        self.vectors = (self.weights.vector, self.gradient.vector, *moments)
        index, labels = problem.index.astype(np.int32), problem.labels.astype(np.int64)
        squared = problem.loss != CROSS_ENTROPY
        self.data = (_tiles(problem.points, dtype), index, problem.read, labels, squared)
        self.streams = (
            *_streams(problem.tokens, model.blocks, dtype),
            *_streams(problem.N, model.blocks, dtype),
            np.zeros((problem.N, 2), dtype),
        )

    def epochs(self, count: int) -> Curve:
        plan = self.training
        curve = np.empty((count, 2))
        rates = np.array([plan.rate_at(self.step + i) for i in range(count)])
        constants = (plan.beta1, plan.beta2, plan.epsilon, plan.decay, plan.clip)
        views = _views(self.weights), _views(self.gradient)
        run_epochs(self.data, *views, self.streams, self.vectors, self.step, rates, constants, curve)
        self.step += count
        return curve


def _views(flat: Flat) -> tuple[Any, ...]:
    stacks = {name: tuple(flat[f"{name}.{part}"] for part in ("W1", "b1", "W2", "b2")) for name in ("F1", "F2")}
    return flat["E_in"], stacks["F1"], flat["WV"], flat["WO"], stacks["F2"], flat["E_out"]


def _streams(tokens: int, blocks: int, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """A tape (tiles, blocks + 1, 2, LANES) and the slopes of its last row. Lanes beyond the data stay without slope."""
    tiles = -(-tokens // LANES)
    return np.zeros((tiles, blocks + 1, 2, LANES), dtype), np.zeros((tiles, 2, LANES), dtype)


def _tiles(points: npt.NDArray[np.float64] | None, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Vectors (V, d) as (tiles, d, LANES), zeros beyond the last; (1, 0, 0) for unit vectors."""
    if points is None:
        return np.zeros((1, 0, 0), dtype)
    tiles = -(-len(points) // LANES)
    wide = np.zeros((tiles * LANES, points.shape[1]), dtype)
    wide[: len(points)] = points
    return np.ascontiguousarray(wide.reshape(tiles, LANES, -1).transpose(0, 2, 1))
