"""The networks of the papers as one would write them on a blackboard. The fast engines are tested against these.

>>> import numpy as np, torch
>>> from byheart.lab.config import Uniform
>>> from byheart.lab.problem import Sequences
>>> problem = Sequences("tiny", np.eye(3), np.array([[0, 1], [2, 1]]), np.array([0, 1]), classes=2, read=0)
>>> UniformTransformer(Uniform(blocks=2), problem)(tokens_of(problem)).shape        # (N, n, C)
torch.Size([2, 2, 2])

`ReadableEngine` trains them as one would write it first: torch.optim.AdamW and a loop. Oracle and baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from byheart.lab.config import DecoderModel, Model, Training, Uniform
from byheart.lab.engines.weights import Weights, initial_decoder, initial_uniform
from byheart.lab.problem import CROSS_ENTROPY, PADDING, Documents, Problem, Sequences


class FeedForward(nn.Module):
    """A residual feed-forward block, eq. (3): x + W₂·relu(W₁x + b₁) + b₂, token by token."""

    def __init__(self, m: int, q: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(m, q), nn.Linear(q, m)

    def forward(self, x: Tensor) -> Tensor:  # (N, n, m) -> (N, n, m)
        return x + self.second(torch.relu(self.first(x)))


class UniformAttention(nn.Module):
    """Attention that averages, eq. (39): Z + W_O·W_V·(mean of the tokens)."""

    def __init__(self, m: int, s: int) -> None:
        super().__init__()
        self.value, self.project = nn.Linear(m, s, bias=False), nn.Linear(s, m, bias=False)

    def forward(self, z: Tensor) -> Tensor:  # (N, n, m) -> (N, n, m)
        return z + self.project(self.value(z.mean(dim=1, keepdim=True)))


class AttentionModule(nn.Module):
    """Attention of KS25's eq. (2): Z + W_O·W_V·Z·softmax((W_K·Z)ᵀ·W_Q·Z), the softmax over a query's keys.

    hard: of the weights only the largest count, equally (eq. (2) with hardmax); gradients are those of the softmax.
    """

    def __init__(self, m: int, s: int, hard: bool) -> None:
        super().__init__()
        self.value, self.project = nn.Linear(m, s, bias=False), nn.Linear(s, m, bias=False)
        self.key, self.query = nn.Linear(m, s, bias=False), nn.Linear(m, s, bias=False)
        self.hard = hard

    def forward(self, z: Tensor) -> Tensor:  # (N, n, m) -> (N, n, m)
        scores = self.query(z) @ self.key(z).transpose(1, 2)  # (N, n queries, n keys)
        return z + self.project(weigh(scores, self.hard) @ self.value(z))


def weigh(scores: Tensor, hard: bool) -> Tensor:
    """Softmax over the last axis; hard: the share of the largest, with the softmax's gradient.

    >>> [round(share, 6) for share in weigh(torch.tensor([1.0, 3.0, 3.0]), hard=True).tolist()]
    [0.0, 0.5, 0.5]
    """
    soft = scores.softmax(dim=-1)
    if not hard:
        return soft
    largest = (scores == scores.amax(dim=-1, keepdim=True)).to(scores.dtype)
    return soft + (largest / largest.sum(dim=-1, keepdim=True) - soft).detach()


class UniformTransformer(nn.Module):
    """KS25 eq. (165). Tokens are vectors (N, n, d), or numbers (N, n) when E_in is a table of words."""

    def __init__(self, model: Uniform, problem: Sequences) -> None:
        super().__init__()
        table = problem.points is None
        self.E_in = nn.Embedding(problem.d, model.m) if table else nn.Linear(problem.d, model.m, bias=False)
        self.F1 = nn.Sequential(*(FeedForward(model.m, model.q) for _ in range(model.blocks)))
        self.attention: UniformAttention | AttentionModule = (
            UniformAttention(model.m, model.s)
            if model.attention == "uniform"
            else AttentionModule(model.m, model.s, model.attention == "hardmax")
        )
        self.F2 = nn.Sequential(*(FeedForward(model.m, model.q) for _ in range(model.blocks)))
        self.E_out = nn.Linear(model.m, problem.outputs, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:  # -> (N, n, C)
        return self.E_out(self.F2(self.attention(self.F1(self.E_in(tokens)))))

    def start(self, weights: Weights) -> None:
        """Load stacked weights, as `byheart.lab.engines.weights` samples them."""
        with torch.no_grad():
            table = isinstance(self.E_in, nn.Embedding)
            self.E_in.weight.copy_(_tensor(weights["E_in"].T if table else weights["E_in"]))
            for name, stack in (("F1", self.F1), ("F2", self.F2)):
                for i, block in enumerate(stack):
                    for part, layer in (("1", block.first), ("2", block.second)):
                        layer.weight.copy_(_tensor(weights[f"{name}.W{part}"][i]))
                        layer.bias.copy_(_tensor(weights[f"{name}.b{part}"][i]))
            self.attention.value.weight.copy_(_tensor(weights["WV"]))
            self.attention.project.weight.copy_(_tensor(weights["WO"]))
            if isinstance(self.attention, AttentionModule):
                self.attention.key.weight.copy_(_tensor(weights["WK"]))
                self.attention.query.weight.copy_(_tensor(weights["WQ"]))
            self.E_out.weight.copy_(_tensor(weights["E_out"]))


class DecoderTransformer(nn.Module):
    """The decoder of Madden et al., Section 7: every position sees itself and those before it."""

    def __init__(self, model: DecoderModel, problem: Documents) -> None:
        super().__init__()
        d = model.d
        self.embedding = nn.Embedding(problem.vocabulary, d)
        self.register_buffer("positions", sinusoids(problem.length, d))
        self.query, self.key, self.value, self.project = (nn.Linear(d, d) for _ in range(4))
        self.hidden, self.output = nn.Linear(d, model.neurons), nn.Linear(model.neurons, problem.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:  # (D, T) -> (D, T, ω)
        T = tokens.shape[1]
        x = self.embedding(tokens) + self.positions[:T]  # (D, T, d)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[2] ** 0.5  # (D, T, T)
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        mixed = self.project(scores.masked_fill(future, float("-inf")).softmax(dim=2) @ self.value(x))
        return self.output(nn.functional.gelu(self.hidden(mixed)))

    def start(self, weights: Weights) -> None:
        """Load weights, as `byheart.lab.engines.weights` samples them (row vectors, so matrices are transposed)."""
        with torch.no_grad():
            self.embedding.weight.copy_(_tensor(weights["embedding"]))
            for name in ("query", "key", "value", "project", "hidden", "output"):
                getattr(self, name).weight.copy_(_tensor(weights[name].T))
                getattr(self, name).bias.copy_(_tensor(weights[f"{name}_bias"]))


def sinusoids(length: int, d: int) -> Tensor:
    """Positions as sines and cosines of growing wave length (Vaswani et al. 2017): (length, d).

    >>> sinusoids(3, 4)[0].tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    place = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d, 2, dtype=torch.float64) * (-log(10000.0) / d))
    waves = torch.stack([torch.sin(place * frequency), torch.cos(place * frequency)], dim=2)  # (length, d/2, 2)
    return waves.reshape(length, d).to(torch.get_default_dtype())


def tokens_of(problem: Sequences, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the readable model's input: every token of every sequence, (N, n, d) vectors or (N, n) word numbers."""
    index = torch.from_numpy(problem.index)
    return index if problem.points is None else _tensor(problem.points).to(dtype)[index]


def _tensor(array: object) -> Tensor:
    return torch.as_tensor(array).contiguous()


class Descent:
    """Full-batch AdamW with the settings of a `Training`: its rates, its clipping."""

    def __init__(
        self, weights: Mapping[str, Tensor], training: Training, size: int, asked: int, fused: bool = False
    ) -> None:
        self.weights, self.training, self.steps = list(weights.values()), training, 0
        groups: dict[float, list[Tensor]] = {}
        for name, weight in weights.items():
            groups.setdefault(training.pace(name, size), []).append(weight)
        self.paces = list(groups)
        self.optimizer = torch.optim.AdamW(
            [{"params": group} for group in groups.values()],
            lr=training.rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon / (asked if training.summed else 1),
            weight_decay=training.decay,
            fused=fused,
        )

    def step(self, measure: Callable[[], tuple[Tensor, Tensor]]) -> tuple[float, float]:
        """One step down the loss that `measure` gives; loss and accuracy before it."""
        rate = self.training.rate_at(self.steps)
        for group, pace in zip(self.optimizer.param_groups, self.paces, strict=True):
            group["lr"] = rate * pace
        self.steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        loss, accuracy = measure()
        loss.backward()
        if self.training.clip:
            torch.nn.utils.clip_grad_norm_(self.weights, self.training.clip)
        self.optimizer.step()
        return loss.item(), accuracy.item()


class ReadableEngine:
    """One training run of a readable model; `epochs(k)` runs k steps and returns (loss, accuracy) before each."""

    def __init__(self, problem: Problem, model: Model, training: Training, dtype: torch.dtype = torch.float32) -> None:
        if isinstance(model, Uniform) and isinstance(problem, Sequences):
            network: UniformTransformer | DecoderTransformer = UniformTransformer(model, problem).to(dtype)
            network.start(initial_uniform(model, problem, training.seed, identity=training.identity))
            self.measure = _sequences(problem, dtype)
        elif isinstance(model, DecoderModel) and isinstance(problem, Documents):
            network = DecoderTransformer(model, problem).to(dtype)
            network.start(initial_decoder(model, problem, training.seed))
            self.measure = _documents(problem)
        else:
            raise TypeError(f"a {model.kind} model does not fit {type(problem).__name__.lower()}")
        self.network = network
        self.descent = Descent(dict(network.named_parameters()), training, model.size, problem.asked)

    def epochs(self, count: int) -> npt.NDArray[np.float64]:
        return np.array([self.descent.step(lambda: self.measure(self.network)) for _ in range(count)])


def _sequences(problem: Sequences, dtype: torch.dtype):  # type: ignore[no-untyped-def]
    """The loss of a `UniformTransformer` on the token that is read, or on every token when all have labels."""
    tokens, labels = tokens_of(problem, dtype), torch.from_numpy(problem.labels.reshape(-1))

    def measure(network: nn.Module) -> tuple[Tensor, Tensor]:
        answers = network(tokens)  # (N, n, C)
        answer = answers[:, problem.read] if problem.labels.ndim == 1 else answers.flatten(0, 1)
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
