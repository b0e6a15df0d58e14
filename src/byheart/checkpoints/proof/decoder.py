"""Stock architectures as one: the tensors of a checkpoint, by role instead of by name.

Every tensor of the file must have a role, every role its tensor with the right shape; anything else is refused by name.
`storing` says how the weights are kept: converted to the type, or first rounded to symmetric 8- or 4-bit integers per
row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof.config import ConfigReader, Shape, Undecided
from byheart.checkpoints.proof.storage import Array, Storage
from byheart.checkpoints.proof.tensors import TensorFile
from byheart.errors import OptionError

WEIGHTS = {"type": None, "int8": 127, "int4": 7}


@dataclass(frozen=True)
class Linear:
    """y = weight x + bias; `name` is what messages call it."""

    name: str
    weight: Array  # (out, in) float64
    bias: Array | None


@dataclass(frozen=True)
class Norm:
    name: str
    weight: Array
    bias: Array | None
    eps: float
    centred: bool  # LayerNorm; otherwise RMSNorm


@dataclass(frozen=True)
class StockAttention:
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    all_heads: bool = False  # these norms run over all heads at once, not over each


@dataclass(frozen=True)
class Expert:
    """gate and up (or only gate, when nothing is multiplied), then down."""

    gate: Linear
    up: Linear | None
    down: Linear


@dataclass(frozen=True)
class Mlp:
    experts: tuple[Expert, ...]
    router: Linear | None = None


@dataclass(frozen=True)
class Layer:
    """One layer; a branch without a norm before it reads the stream itself."""

    attention_norm: Norm | None
    attention: StockAttention
    mlp_norm: Norm | None
    mlp: Mlp
    after_attention: Norm | None = None  # a norm of what the branch adds
    after_mlp: Norm | None = None


@dataclass(frozen=True)
class Family:
    """One stock architecture: how its config.json is read, and what its tensors are called.

    To add one: write a file in `families/` that defines `Family` values, and list them in `families/__init__.py`.
    """

    model_type: str
    causal: str  # the class of its language model in Transformers
    shape: Callable[[ConfigReader], Shape]
    layer: Callable[[TensorReader, str], Layer]  # the tensors below one prefix
    embed: str = "model.embed_tokens"
    head: str = "lm_head"
    final: str = "model.norm"
    layers: str = "model.layers.{}"
    positions: str | None = None
    skipped: int = 0  # rows of the position table before position 0
    centred: bool = False  # LayerNorm; otherwise RMSNorm
    plus: float = 0.0  # Gemma stores gamma - 1

    @property
    def classifier(self) -> str:
        """The class of its sequence classifier."""
        return self.causal.replace("LMHeadModel", "").removesuffix("ForCausalLM") + "ForSequenceClassification"


@dataclass(frozen=True)
class StoredCheckpoint:
    """A folder's config and the places of its tensors; `reader` reads them in one type."""

    shape: Shape
    family: Family
    files: TensorFile
    bos: int | None
    eos: int | None

    def reader(self, store: Storage, weights: str = "type") -> TensorReader:
        if weights not in WEIGHTS:
            raise OptionError(f"unknown weights {weights!r}; known: {', '.join(WEIGHTS)}")
        return TensorReader(self, store, WEIGHTS[weights])


@dataclass
class TensorReader:
    """Reads tensors in the engine's type, one layer at a time."""

    checkpoint: StoredCheckpoint
    store: Storage
    levels: int | None

    def tensor(self, name: str, *shape: int, matrix: bool = False, transposed: bool = False) -> Array:
        entries = self.checkpoint.files.entries
        if name not in entries:
            raise Undecided(f"model.safetensors has no {name}")
        stored = entries[name][1]
        wanted = shape[::-1] if transposed else shape
        if stored != wanted:
            raise Undecided(f"{name} has the shape {stored}; config.json asks for {wanted}")
        values = self.checkpoint.files.read(name).astype(np.float64)
        values = values.T if transposed else values
        if matrix and self.levels:
            values = _integers_per_row(values, self.levels)
        values = np.ascontiguousarray(self.store.nearest(values))
        if not np.isfinite(values).all():
            raise Undecided(f"{name} leaves the range of {self.store.name}")
        return values

    def linear(self, name: str, out: int, inner: int, bias: bool = False, transposed: bool = False) -> Linear:
        weight = self.tensor(f"{name}.weight", out, inner, matrix=True, transposed=transposed)
        return Linear(name, weight, self.tensor(f"{name}.bias", out) if bias else None)

    def norm(self, name: str, size: int, centred: bool = False, plus: float = 0.0) -> Norm:
        bias = self.tensor(f"{name}.bias", size) if centred else None
        return Norm(name, self.tensor(f"{name}.weight", size) + plus, bias, self.checkpoint.shape.eps, centred)

    def embedding(self) -> tuple[Array, Array | None]:
        """Token vectors as they enter the stream before Gemma's factor, and position vectors."""
        s, names = self.checkpoint.shape, self.checkpoint.family
        tokens = self.tensor(f"{names.embed}.weight", s.vocabulary, s.hidden, matrix=True)
        if names.positions is None:
            return tokens, None
        rows = s.positions + names.skipped
        return tokens, self.tensor(f"{names.positions}.weight", rows, s.hidden)[names.skipped :]

    def head(self) -> Linear:
        s, names = self.checkpoint.shape, self.checkpoint.family
        if s.labels is not None:
            return self.linear("score", s.labels, s.hidden)
        return self.linear(names.embed if s.tied else names.head, s.vocabulary, s.hidden)

    def final_norm(self) -> Norm:
        names = self.checkpoint.family
        return self.norm(names.final, self.checkpoint.shape.hidden, names.centred, names.plus)

    def layer(self, index: int) -> Layer:
        names = self.checkpoint.family
        return names.layer(self, names.layers.format(index))


def _integers_per_row(values: Array, levels: int) -> Array:
    """Symmetric, absmax: the row's largest weight is `levels` steps."""
    step = np.abs(values).max(1, keepdims=True) / levels
    return np.rint(np.divide(values, step, out=np.zeros_like(values), where=step > 0)) * step


def split(fused: Linear, sizes: tuple[int, ...]) -> list[Linear]:
    """The blocks of rows of a fused matrix, as matrices of their own."""
    ends = np.cumsum(sizes)
    return [
        Linear(
            f"{fused.name} rows {e - n}:{e}",
            fused.weight[e - n : e],
            None if fused.bias is None else fused.bias[e - n : e],
        )
        for n, e in zip(sizes, ends, strict=True)
    ]


def plain_mlp(r: TensorReader, first: str, second: str, transposed: bool = False) -> Mlp:
    """An MLP without a gate: two matrices with biases."""
    s = r.checkpoint.shape
    inner = r.linear(first, s.units, s.hidden, True, transposed)
    return Mlp((Expert(inner, None, r.linear(second, s.hidden, s.units, True, transposed)),))
