"""The networks of the papers as one would write them on a blackboard. The fast engines are tested against these.

>>> import numpy as np, torch
>>> from byheart.lab.config import Uniform
>>> from byheart.lab.problem import Sequences
>>> problem = Sequences("tiny", np.eye(3), np.array([[0, 1], [2, 1]]), np.array([0, 1]), classes=2, read=0)
>>> UniformTransformer(Uniform(blocks=2), problem)(tokens_of(problem)).shape        # (N, n, C)
torch.Size([2, 2, 2])
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor, nn

from byheart.lab.config import Decoder, Uniform
from byheart.lab.engines.weights import Weights
from byheart.lab.problem import Documents, Sequences


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


class UniformTransformer(nn.Module):
    """KS25 eq. (165). Tokens are vectors (N, n, d), or numbers (N, n) when E_in is a table of words."""

    def __init__(self, model: Uniform, problem: Sequences) -> None:
        super().__init__()
        table = problem.points is None
        self.E_in = nn.Embedding(problem.d, model.m) if table else nn.Linear(problem.d, model.m, bias=False)
        self.F1 = nn.Sequential(*(FeedForward(model.m, model.q) for _ in range(model.blocks)))
        self.attention = UniformAttention(model.m, model.s)
        self.F2 = nn.Sequential(*(FeedForward(model.m, model.q) for _ in range(model.blocks)))
        self.E_out = nn.Linear(model.m, problem.outputs, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:  # -> (N, n, C)
        return self.E_out(self.F2(self.attention(self.F1(self.E_in(tokens)))))

    def start(self, weights: Weights) -> None:
        """Takes stacked weights, as `byheart.lab.engines.weights` draws them."""
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
            self.E_out.weight.copy_(_tensor(weights["E_out"]))


class DecoderTransformer(nn.Module):
    """The decoder of Madden et al., Section 7: every position sees itself and what comes before it."""

    def __init__(self, model: Decoder, problem: Documents) -> None:
        super().__init__()
        d = model.d
        self.embedding = nn.Embedding(problem.vocabulary, d)
        self.register_buffer("positions", sinusoids(problem.length, d))
        self.query, self.key, self.value, self.project = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.hidden, self.output = nn.Linear(d, model.neurons), nn.Linear(model.neurons, problem.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:  # (D, T) -> (D, T, ω)
        T = tokens.shape[1]
        x = self.embedding(tokens) + self.positions[:T]  # (D, T, d)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[2] ** 0.5  # (D, T, T)
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        mixed = self.project(scores.masked_fill(future, float("-inf")).softmax(dim=2) @ self.value(x))
        return self.output(nn.functional.gelu(self.hidden(mixed)))

    def start(self, weights: Weights) -> None:
        """Takes weights, as `byheart.lab.engines.weights` draws them (row vectors, so matrices are transposed)."""
        with torch.no_grad():
            self.embedding.weight.copy_(_tensor(weights["embedding"]))
            for name in ("query", "key", "value", "project", "hidden", "output"):
                getattr(self, name).weight.copy_(_tensor(weights[name].T))
            self.hidden.bias.copy_(_tensor(weights["hidden_bias"]))
            self.output.bias.copy_(_tensor(weights["output_bias"]))


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
    """What the readable model is fed: every token of every sequence, (N, n, d) vectors or (N, n) word numbers."""
    index = torch.from_numpy(problem.index)
    return index if problem.points is None else _tensor(problem.points).to(dtype)[index]


def _tensor(array: object) -> Tensor:
    return torch.as_tensor(array).contiguous()
