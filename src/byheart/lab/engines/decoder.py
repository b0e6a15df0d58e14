"""The fast engine for Madden et al.'s decoder: every distinct context once, and only its last token's query.

A document of T tokens has T prefixes, and stories begin alike, so the distinct contexts are a fraction of the
positions. A context's loss is that of its empirical next-token distribution, which is the same number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from byheart.lab.config import Decoder, Training
from byheart.lab.engines.models import sinusoids
from byheart.lab.engines.weights import initial_decoder
from byheart.lab.problem import PADDING, Documents


class DecoderEngine:
    """One training run; `epochs(k)` takes k steps and gives (loss, accuracy) before each."""

    def __init__(
        self, problem: Documents, model: Decoder, training: Training, dtype: torch.dtype = torch.float32
    ) -> None:
        self.training, self.step = training, 0
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
        self.optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=training.rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
            weight_decay=training.decay,
            fused=True,
        )

    def epochs(self, count: int) -> npt.NDArray[np.float64]:
        return np.array([self._epoch() for _ in range(count)])

    def _epoch(self) -> tuple[float, float]:
        self.optimizer.param_groups[0]["lr"] = self.training.rate_at(self.step)
        self.step += 1
        self.optimizer.zero_grad(set_to_none=True)
        logits = self._logits().log_softmax(dim=1)  # (n, ω)
        loss = -(self.shares * logits).sum()
        loss.backward()
        if self.training.clip:
            torch.nn.utils.clip_grad_norm_(self.weights.values(), self.training.clip)
        self.optimizer.step()
        likeliest = logits.detach().argmax(dim=1, keepdim=True)
        return loss.item(), self.shares.gather(1, likeliest).sum().item()

    def _logits(self) -> torch.Tensor:
        w = self.weights
        x = torch.nn.functional.embedding(self.contexts, w["embedding"]) + self.positions  # (n, T, d)
        query = x.gather(1, self.last)[:, 0] @ w["query"]  # (n, d)
        scores = torch.einsum("ntd,nd->nt", x @ w["key"], query) / x.shape[2] ** 0.5
        attention = scores.masked_fill(self.absent, float("-inf")).softmax(dim=1)
        mixed = torch.einsum("nt,ntd->nd", attention, x @ w["value"]) @ w["project"]
        hidden = torch.nn.functional.gelu(torch.addmm(w["hidden_bias"], mixed, w["hidden"]))
        return torch.addmm(w["output_bias"], hidden, w["output"])
