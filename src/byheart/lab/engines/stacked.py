"""Stacked weights in PyTorch, features × tokens: for widths other than two, for GPUs, and for what one may compile.

    blocks: (L, q, m) @ (m, tokens); the same savings as the kernel: every distinct token once, F2 on what is read.

Slower than `byheart.lab.engines.compiled` on a CPU, where each of these products is too small for its own overhead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from byheart.lab.config import Training, Uniform
from byheart.lab.engines.weights import initial_uniform
from byheart.lab.problem import CROSS_ENTROPY, Sequences


class StackedEngine:
    """One training run; `epochs(k)` takes k steps and gives (loss, accuracy) before each.

    compiled: let torch.compile fuse the step. It takes half a minute to compile, so it pays for long runs only.
    """

    def __init__(
        self,
        problem: Sequences,
        model: Uniform,
        training: Training,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        compiled: bool = False,
    ) -> None:
        self.training, self.step, self.squared = training, 0, problem.loss != CROSS_ENTROPY
        place = {"dtype": dtype, "device": device}
        start = initial_uniform(model, problem, training.seed)
        self.weights = {name: torch.tensor(w, **place, requires_grad=True) for name, w in start.items()}
        self.points = None if problem.points is None else torch.tensor(problem.points.T, **place)  # (d, V)
        self.index = torch.tensor(problem.index, device=device)
        self.read = self.index[:, problem.read].contiguous()
        labels = torch.tensor(problem.labels, device=device)
        self.labels = labels.to(dtype) if self.squared else labels
        self.optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=training.rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
            weight_decay=training.decay,
            fused=True,
        )
        self.measure = torch.compile(self._measure) if compiled else self._measure

    def epochs(self, count: int) -> npt.NDArray[np.float64]:
        return np.array([self._epoch() for _ in range(count)])

    def _epoch(self) -> tuple[float, float]:
        self.optimizer.param_groups[0]["lr"] = self.training.rate_at(self.step)
        self.step += 1
        self.optimizer.zero_grad(set_to_none=True)
        loss, accuracy = self.measure()
        loss.backward()
        if self.training.clip:
            torch.nn.utils.clip_grad_norm_(self.weights.values(), self.training.clip)
        self.optimizer.step()
        return loss.item(), accuracy.item()

    def _measure(self) -> tuple[Tensor, Tensor]:
        w = self.weights
        x = w["E_in"] if self.points is None else w["E_in"] @ self.points  # (m, V)
        x = self._blocks("F1", x)
        mean = torch.nn.functional.embedding_bag(self.index, x.T.contiguous(), mode="mean").T  # (m, N)
        x = x[:, self.read] + w["WO"] @ (w["WV"] @ mean)
        answer = w["E_out"] @ self._blocks("F2", x)  # (C, N)
        if self.squared:
            right = (answer[0] > 0) == (self.labels > 0)
            return (answer[0] - self.labels).square().mean(), right.to(answer.dtype).mean()
        right = answer.argmax(dim=0) == self.labels
        return torch.nn.functional.cross_entropy(answer.T, self.labels), right.to(answer.dtype).mean()

    def _blocks(self, stack: str, x: Tensor) -> Tensor:
        W1, b1, W2, b2 = (self.weights[f"{stack}.{part}"] for part in ("W1", "b1", "W2", "b2"))
        for i in range(W1.shape[0]):
            hidden = torch.relu(torch.addmm(b1[i][:, None], W1[i], x))  # (q, tokens)
            x = x + torch.addmm(b2[i][:, None], W2[i], hidden)
        return x
