"""The engines in PyTorch. Both compute everything distinct once.

`StackedEngine` trains eq. (165) with stacked weights, features × tokens: for widths other than two, and for GPUs.

    blocks: (L, q, m) @ (m, tokens); the same savings as the kernel: every distinct token once, F2 on what is read.

Slower than `byheart.lab.engines.kernel` on a CPU, where each of these products is too small for its own overhead.

`DecoderEngine` trains Madden et al.'s decoder: every distinct context once, and only its last token's query. A document
of T tokens has T prefixes, and stories begin alike, so the distinct contexts are a fraction of the positions. A
context's loss is that of its empirical next-token distribution, which is the same number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from byheart.lab.config import Decoder, Training, Uniform
from byheart.lab.engines.readable import Descent, sinusoids
from byheart.lab.engines.weights import initial_decoder, initial_uniform
from byheart.lab.problem import CROSS_ENTROPY, PADDING, Documents, Sequences


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
        self.squared = problem.loss != CROSS_ENTROPY
        place = {"dtype": dtype, "device": device}
        start = initial_uniform(model, problem, training.seed, identity=training.identity)
        self.weights = {name: torch.tensor(w, **place, requires_grad=True) for name, w in start.items()}
        self.points = None if problem.points is None else torch.tensor(problem.points.T, **place)  # (d, V)
        self.index = torch.tensor(problem.index, device=device)
        self.read = self.index[:, problem.read].contiguous()
        labels = torch.tensor(problem.labels, device=device)
        self.labels = labels.to(dtype) if self.squared else labels
        self.descent = Descent(self.weights, training, model.size, fused=True)
        self.measure = torch.compile(self._measure) if compiled else self._measure

    def epochs(self, count: int) -> npt.NDArray[np.float64]:
        return np.array([self.descent.step(self.measure) for _ in range(count)])

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


class DecoderEngine:
    """One training run; `epochs(k)` takes k steps and gives (loss, accuracy) before each."""

    def __init__(
        self, problem: Documents, model: Decoder, training: Training, dtype: torch.dtype = torch.float32
    ) -> None:
        start = initial_decoder(model, problem, training.seed)
        self.weights = {name: torch.tensor(w, dtype=dtype, requires_grad=True) for name, w in start.items()}
        contexts = torch.from_numpy(problem.contexts)  # (n, T)
        self.absent = contexts == PADDING
        self.contexts = contexts.clamp(min=0)
        last = (~self.absent).sum(dim=1) - 1
        self.last = last[:, None, None].expand(-1, 1, model.d)
        self.positions = sinusoids(problem.length, model.d).to(dtype)
        # Dense: a product with zeros is faster than picking and scattering single entries.
        shares = np.zeros((len(contexts), problem.vocabulary))
        shares[problem.pairs[:, 0], problem.pairs[:, 1]] = problem.weights
        self.shares = torch.from_numpy(shares).to(dtype)  # (n, ω)
        self.descent = Descent(self.weights, training, model.size, fused=True)

    def epochs(self, count: int) -> npt.NDArray[np.float64]:
        return np.array([self.descent.step(self._measure) for _ in range(count)])

    def _measure(self) -> tuple[Tensor, Tensor]:
        logits = self._logits().log_softmax(dim=1)  # (n, ω)
        likeliest = logits.detach().argmax(dim=1, keepdim=True)
        return -(self.shares * logits).sum(), self.shares.gather(1, likeliest).sum()

    def _logits(self) -> torch.Tensor:
        w = self.weights
        x = torch.nn.functional.embedding(self.contexts, w["embedding"]) + self.positions  # (n, T, d)
        query = x.gather(1, self.last)[:, 0] @ w["query"]  # (n, d)
        scores = torch.einsum("ntd,nd->nt", x @ w["key"], query) / x.shape[2] ** 0.5
        attention = scores.masked_fill(self.absent, float("-inf")).softmax(dim=1)
        mixed = torch.einsum("nt,ntd->nd", attention, x @ w["value"]) @ w["project"]
        hidden = torch.nn.functional.gelu(torch.addmm(w["hidden_bias"], mixed, w["hidden"]))
        return torch.addmm(w["output_bias"], hidden, w["output"])
