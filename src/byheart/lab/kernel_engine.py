"""The fast engine for eq. (165) with m = 2: compiled loops on one core, no library call per layer.

Three things make it fast, none of which changes the mathematics:
- F1 and E_in look at one token at a time, so a word that occurs a hundred times is computed once;
- only the token that is read leaves the attention layer, so F2 sees N tokens and not N·n;
- the blocks run in `byheart.lab.kernel`, tile by tile in the first-level cache.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.lab.config import Training, Uniform
from byheart.lab.kernel import LANES, blocks_backward, blocks_forward
from byheart.lab.kernel_ends import adamw, attend_backward, attend_forward, cross_entropy, mean_square
from byheart.lab.problem import CROSS_ENTROPY, Sequences
from byheart.lab.weights import Flat, initial_uniform

_STACK = ("W1", "b1", "W2", "b2")


class KernelEngine:
    """One training run; `epoch()` takes a step and gives (loss, accuracy) before it."""

    def __init__(
        self, problem: Sequences, model: Uniform, training: Training, dtype: npt.DTypeLike = np.float32
    ) -> None:
        self.problem, self.model, self.training, self.step = problem, model, training, 0
        weights = initial_uniform(model, problem, training.seed)
        self.weights, self.gradient = Flat(weights, dtype), Flat(weights, dtype)
        self.first, self.second = np.zeros_like(self.weights.vector), np.zeros_like(self.weights.vector)
        width = -(-problem.tokens // LANES) * LANES
        self.points = None if problem.points is None else _padded(problem.points.T, width, dtype)  # (d, V′)
        self.index = problem.index.astype(np.int32)
        self.labels = problem.labels.astype(np.int64 if problem.loss == CROSS_ENTROPY else np.float64)
        self.tape1, self.slope1 = _streams(width, model.blocks, dtype)
        self.tape2, self.slope2 = _streams(-(-problem.N // LANES) * LANES, model.blocks, dtype)
        self.mean = np.zeros((problem.N, 2), dtype)

    def epoch(self) -> tuple[float, float]:
        loss, accuracy = self.loss_and_gradient()
        plan = self.training
        rate = plan.rate_at(self.step)
        self.step += 1
        adamw(self.weights.vector, self.gradient.vector, self.first, self.second,
              self.step, rate, plan.beta1, plan.beta2, plan.epsilon, plan.decay)  # fmt: skip
        return loss, accuracy

    def loss_and_gradient(self) -> tuple[float, float]:
        """(loss, accuracy) of the present weights; the gradient is left in `gradient`."""
        w, g = self.weights, self.gradient
        g.vector[:] = 0
        self._embed()
        blocks_forward(self.tape1, *(w[f"F1.{part}"] for part in _STACK))
        top = self.tape1[:, -1]
        attend_forward(top, self.index, self.problem.read, w["WV"], w["WO"], self.mean, self.tape2[:, 0])
        blocks_forward(self.tape2, *(w[f"F2.{part}"] for part in _STACK))
        judge = cross_entropy if self.problem.loss == CROSS_ENTROPY else mean_square
        loss, accuracy = judge(self.tape2[:, -1], w["E_out"], self.labels, self.slope2, g["E_out"])
        self._back("F2", self.tape2, self.slope2)
        attend_backward(
            self.slope2, self.index, self.problem.read, w["WV"], w["WO"], self.mean, self.slope1, g["WV"], g["WO"]
        )
        self._back("F1", self.tape1, self.slope1)
        self._embed_back()
        return float(loss), float(accuracy)

    def _embed(self) -> None:
        """tape1[:, 0] ← E_in·points, cut into tiles."""
        table = self.weights["E_in"] if self.points is None else self.weights["E_in"] @ self.points
        start = self.tape1[:, 0]
        full, rest = divmod(table.shape[1], LANES)
        start[:full] = table[:, : full * LANES].reshape(2, full, LANES).transpose(1, 0, 2)
        if rest:
            start[full, :, :rest] = table[:, full * LANES :]

    def _embed_back(self) -> None:
        slope = self.slope1.transpose(1, 0, 2).reshape(2, -1)  # (2, V′)
        gradient = self.gradient["E_in"]
        gradient[:] = slope[:, : gradient.shape[1]] if self.points is None else slope @ self.points.T

    def _back(self, stack: str, tape: npt.NDArray[np.floating], slope: npt.NDArray[np.floating]) -> None:
        w, g = self.weights, self.gradient
        weights = (w[f"{stack}.W1"], w[f"{stack}.b1"], w[f"{stack}.W2"])
        blocks_backward(tape, slope, *weights, *(g[f"{stack}.{part}"] for part in _STACK))


def _streams(width: int, blocks: int, dtype: npt.DTypeLike) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
    """A tape (tiles, blocks + 1, 2, LANES) and the slopes of its last row. Lanes beyond the data stay without slope."""
    return np.zeros((width // LANES, blocks + 1, 2, LANES), dtype), np.zeros((width // LANES, 2, LANES), dtype)


def _padded(columns: npt.NDArray[np.float64], width: int, dtype: npt.DTypeLike) -> npt.NDArray[np.floating]:
    wide = np.zeros((columns.shape[0], width), dtype)
    wide[:, : columns.shape[1]] = columns
    return wide
