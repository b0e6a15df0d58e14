"""Starting weights: one draw per seed, the same for every engine and library version.

They follow PyTorch's defaults (nn.Linear: uniform in ±1/√fan-in, nn.Embedding: normal) but come from NumPy's generator,
so that the fast engine, which never loads PyTorch, starts where the readable model starts. One departure: the output of
a block adds to the stream is divided by √blocks, because the sum of fifty unscaled blocks starts far out and learns
badly (KS25 does not state its initialization). With `identity` blocks add nothing at first, as in normalization-free
networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.lab.config import DecoderModel, Uniform
from byheart.lab.problem import Documents, Sequences

Weights = dict[str, npt.NDArray[np.floating]]


def initial_uniform(model: Uniform, problem: Sequences, seed: int, *, identity: bool = False) -> Weights:
    """Stacked weights of eq. (165): F1 and F2 have one array of W₁, b₁, W₂, b₂ each, the blocks along axis 0.

    >>> tiny = Sequences("tiny", None, np.array([[0, 1]]), np.array([0]), classes=2, read=0)
    >>> {name: w.shape for name, w in initial_uniform(Uniform(blocks=3), tiny, seed=0).items() if name[:2] != "F2"}
    {'E_in': (2, 2), 'F1.W1': (3, 8, 2), 'F1.b1': (3, 8), 'F1.W2': (3, 2, 8), 'F1.b2': (3, 2), 'WV': (2, 2), 'WO': (2, 2), 'E_out': (2, 2)}
    """  # noqa: E501
    draw = _Draw(seed)
    L, m, q, s = model.blocks, model.m, model.q, model.s
    one_hot = problem.points is None
    share = 0.0 if identity else 1 / np.sqrt(L)
    weights: Weights = {"E_in": draw.normal(m, problem.d) if one_hot else draw.linear(problem.d, m, problem.d)}
    for stack in ("F1", "F2"):
        weights |= {
            f"{stack}.W1": draw.linear(m, L, q, m),
            f"{stack}.b1": draw.linear(m, L, q),
            f"{stack}.W2": draw.linear(q, L, m, q) * share,
            f"{stack}.b2": draw.linear(q, L, m) * share,
        }
        if stack == "F1":
            weights |= {"WV": draw.linear(m, s, m), "WO": draw.linear(s, m, s)}
    weights["E_out"] = draw.linear(m, problem.outputs, m)
    if model.attention != "uniform":
        weights |= {"WK": draw.linear(m, s, m), "WQ": draw.linear(m, s, m)}
    return weights


def grown(small: Weights, model: Uniform, problem: Sequences, seed: int) -> Weights:
    """Return weights of a larger model that computes the same function.

    The smaller model's blocks come first in both stacks, then new ones that do nothing yet.

    >>> tiny = Sequences("tiny", None, np.array([[0, 1]]), np.array([0]), classes=2, read=0)
    >>> small = initial_uniform(Uniform(blocks=1), tiny, seed=0)
    >>> large = grown(small, Uniform(blocks=3), tiny, seed=1)
    >>> large["F1.W2"].shape, bool((large["F1.W2"][0] == small["F1.W2"][0]).all()), bool(large["F1.W2"][1:].any())
    ((3, 2, 8), True, False)
    """
    start = initial_uniform(model, problem, seed, identity=True)
    for name, weight in small.items():
        if name[:3] in ("F1.", "F2."):
            start[name][: len(weight)] = weight
        else:
            start[name] = weight
    return start


def initial_decoder(model: DecoderModel, problem: Documents, seed: int) -> Weights:
    """Weights of Madden et al.'s decoder, row vectors: x·W."""
    draw = _Draw(seed)
    d, m, omega = model.d, model.neurons, problem.vocabulary
    return {
        "embedding": draw.normal(omega, d),
        "query": draw.linear(d, d, d),
        "key": draw.linear(d, d, d),
        "value": draw.linear(d, d, d),
        "project": draw.linear(d, d, d),
        "hidden": draw.linear(d, d, m),
        "hidden_bias": draw.linear(d, m),
        "output": draw.linear(m, m, omega),
        "output_bias": draw.linear(m, omega),
        **{f"{name}_bias": draw.linear(d, d) for name in ("query", "key", "value", "project")},
    }


class _Draw:
    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def linear(self, fan_in: int, *shape: int) -> npt.NDArray[np.float64]:
        return np.asarray(self.generator.uniform(-1, 1, shape) / np.sqrt(fan_in), dtype=np.float64)

    def normal(self, *shape: int) -> npt.NDArray[np.float64]:
        return self.generator.standard_normal(shape)


class Flat:
    """Named arrays that are views of one vector, so that an optimizer sees a single vector."""

    def __init__(self, weights: Weights, dtype: npt.DTypeLike) -> None:
        self.vector = np.concatenate([w.ravel() for w in weights.values()]).astype(dtype)
        self.parts: dict[str, npt.NDArray[np.floating]] = {}
        start = 0
        for name, w in weights.items():
            self.parts[name] = self.vector[start : start + w.size].reshape(w.shape)
            start += w.size

    def copy(self, vector: npt.NDArray[Any] | None = None) -> Weights:
        """The arrays as they are now, or as another vector of their length has them."""
        ends = np.cumsum([part.size for part in self.parts.values()])[:-1]
        pieces = np.split((self.vector if vector is None else vector).copy(), ends)
        return {name: piece.reshape(self.parts[name].shape) for name, piece in zip(self.parts, pieces, strict=True)}

    def __getitem__(self, name: str) -> npt.NDArray[np.floating]:
        return self.parts[name]
