"""Training as one would write it first: the readable model, torch.optim.AdamW, a loop. Oracle and baseline."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from byheart.lab.config import Decoder, Model, Training, Uniform
from byheart.lab.engines.models import DecoderTransformer, UniformTransformer, tokens_of
from byheart.lab.engines.weights import initial_decoder, initial_uniform
from byheart.lab.problem import CROSS_ENTROPY, PADDING, Documents, Problem, Sequences


class ReadableEngine:
    """One training run of a readable model; `epochs(k)` takes k steps and gives (loss, accuracy) before each."""

    def __init__(self, problem: Problem, model: Model, training: Training, dtype: torch.dtype = torch.float32) -> None:
        self.training, self.step = training, 0
        if isinstance(model, Uniform) and isinstance(problem, Sequences):
            network: UniformTransformer | DecoderTransformer = UniformTransformer(model, problem).to(dtype)
            network.start(initial_uniform(model, problem, training.seed))
            self.measure = _sequences(problem, dtype)
        elif isinstance(model, Decoder) and isinstance(problem, Documents):
            network = DecoderTransformer(model, problem).to(dtype)
            network.start(initial_decoder(model, problem, training.seed))
            self.measure = _documents(problem)
        else:
            raise TypeError(f"a {model.kind} model does not fit {type(problem).__name__.lower()}")
        self.network = network
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=training.rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
            weight_decay=training.decay,
        )

    def epochs(self, count: int) -> npt.NDArray[np.float64]:
        return np.array([self._epoch() for _ in range(count)])

    def _epoch(self) -> tuple[float, float]:
        self.optimizer.param_groups[0]["lr"] = self.training.rate_at(self.step)
        self.step += 1
        self.optimizer.zero_grad()
        loss, accuracy = self.measure(self.network)
        loss.backward()
        if self.training.clip:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.training.clip)
        self.optimizer.step()
        return loss.item(), accuracy.item()


def _sequences(problem: Sequences, dtype: torch.dtype):  # type: ignore[no-untyped-def]
    """The loss of a `UniformTransformer` on the token that is read."""
    tokens, labels = tokens_of(problem, dtype), torch.from_numpy(problem.labels)

    def measure(network: nn.Module) -> tuple[Tensor, Tensor]:
        answer = network(tokens)[:, problem.read]  # (N, C)
        if problem.loss == CROSS_ENTROPY:
            right = answer.argmax(dim=1) == labels
            return nn.functional.cross_entropy(answer, labels), right.to(dtype).mean()
        right = (answer[:, 0] > 0) == (labels > 0)
        return nn.functional.mse_loss(answer[:, 0], labels.to(dtype)), right.to(dtype).mean()

    return measure


def _documents(problem: Documents):  # type: ignore[no-untyped-def]
    """The loss of a `DecoderTransformer` over every prediction of every document; accuracy: the likeliest token."""
    tokens = torch.from_numpy(problem.tokens)
    before, after = tokens[:, :-1].clamp(min=0), tokens[:, 1:]

    def measure(network: nn.Module) -> tuple[Tensor, Tensor]:
        logits = network(before)  # (D, T, ω)
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), after, ignore_index=PADDING)
        seen = after != PADDING
        return loss, (logits.argmax(dim=2) == after)[seen].float().mean()

    return measure
