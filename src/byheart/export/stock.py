"""What a stock checkpoint computes, as a value: one description for ten architectures, read from a folder.

Everything that architectures spell differently is settled: norm weights are factors (Gemma's 1 is added), matrices are
(out, in) (GPT-2's are turned), fused projections are apart, positions are one table or one rotation.

    h_0     = scale * embedding[token] (+ positions[t])
    h_{l+1} = h_l + attention(norm h_l), then + mlp(norm of that)      or, in parallel, of h_l
    logits  = head(norm h_last)

Names, shapes and settings are read by the checker's own reader (`certify.checkpoint`), so what is converted is what is
proved: a setting that would change the mathematics and that the proof does not know is refused here too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from byheart.certify.checkpoint import decoder as stored
from byheart.certify.checkpoint.config import Shape, Undecided
from byheart.certify.checkpoint.storage import STORAGES
from byheart.errors import FileFormatError, OptionError

Array = npt.NDArray[np.float32]


class Activation(StrEnum):
    """Names as in Hugging Face's configurations; `gelu_new` and `gelu_pytorch_tanh` are one function."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    RELU = "relu"


@dataclass(frozen=True, eq=False)
class Linear:
    """x -> weight x + bias."""

    weight: Array  # (out, in)
    bias: Array | None = None


@dataclass(frozen=True, eq=False)
class Norm:
    """RMSNorm, or LayerNorm where `centred`."""

    weight: Array
    bias: Array | None
    eps: float
    centred: bool


@dataclass(frozen=True, eq=False)
class Rotary:
    """Rotation of a head's first 2 n dimensions by n frequencies: dimension i turns with dimension i + n."""

    frequencies: Array

    @property
    def dims(self) -> int:
        return 2 * len(self.frequencies)


@dataclass(frozen=True, eq=False)
class Attention:
    """Grouped-query attention; query head h reads key-value head h // (heads // groups)."""

    q: Linear
    k: Linear
    v: Linear
    o: Linear
    heads: int
    groups: int
    head_dim: int
    rotary: Rotary | None
    window: int | None = None  # a query sees distances 0 to window - 1
    q_norm: Norm | None = None  # per head, before the rotation
    k_norm: Norm | None = None

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)


@dataclass(frozen=True, eq=False)
class Gated:
    """down(activation(gate x) * up x)."""

    gate: Linear
    up: Linear
    down: Linear
    activation: Activation


@dataclass(frozen=True, eq=False)
class Plain:
    """down(activation(up x))."""

    up: Linear
    down: Linear
    activation: Activation


@dataclass(frozen=True, eq=False)
class Experts:
    """The `top` experts with the largest router logits, weighted by the softmax over these alone."""

    router: Linear
    experts: tuple[Gated, ...]
    top: int


Mlp = Gated | Plain | Experts


@dataclass(frozen=True, eq=False)
class Layer:
    attention_norm: Norm
    attention: Attention
    mlp_norm: Norm
    mlp: Mlp
    parallel: bool = False  # the MLP reads what the attention reads, not what it wrote


@dataclass(frozen=True, eq=False)
class Decoder:
    """A whole network."""

    architecture: str
    embedding: Array  # (vocabulary, hidden)
    embedding_scale: float
    positions: Array | None  # (reach, hidden), already shifted: row t belongs to position t
    layers: tuple[Layer, ...]
    final_norm: Norm
    head: Linear
    tied: bool
    reach: int

    @property
    def vocabulary(self) -> int:
        return int(self.embedding.shape[0])

    @property
    def hidden(self) -> int:
        return int(self.embedding.shape[1])


def read_decoder(folder: str | Path) -> Decoder:
    """What the checkpoint in a folder computes; its numbers are widened to float32, which loses nothing."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileFormatError(f"{folder} is not a folder; a checkpoint is a folder with config.json and tensors")
    try:
        checkpoint = stored.open_checkpoint(folder)
        return _decoder(checkpoint.shape, checkpoint.reader(STORAGES["float32"]))
    except Undecided as error:
        raise OptionError(f"{folder}: {error}") from error


def _decoder(shape: Shape, reader: stored.TensorReader) -> Decoder:
    embedding, positions = reader.embedding()
    vectors = _floats(embedding)
    return Decoder(
        shape.family,
        vectors,
        float(np.float32(math.sqrt(shape.hidden))) if shape.family == "gemma" else 1.0,
        None if positions is None else _floats(positions),
        tuple(_layer(shape, reader.layer(index)) for index in range(shape.layers)),
        _norm(reader.final_norm()),
        Linear(vectors) if shape.tied else _linear(reader.head()),
        shape.tied,
        shape.positions,
    )


def _layer(shape: Shape, layer: stored.Layer) -> Layer:
    a, turning = layer.attention, shape.rotary
    attention = Attention(
        _linear(a.q),
        _linear(a.k),
        _linear(a.v),
        _linear(a.o),
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        None if turning is None else Rotary(frequencies(turning.dims, turning.theta)),
        shape.window,
        None if a.q_norm is None else _norm(a.q_norm),
        None if a.k_norm is None else _norm(a.k_norm),
    )
    return Layer(_norm(layer.attention_norm), attention, _norm(layer.mlp_norm), _mlp(shape, layer.mlp), shape.parallel)


def _mlp(shape: Shape, mlp: stored.Mlp) -> Mlp:
    activation = Activation(shape.activation)
    if mlp.router is not None:
        experts = tuple(_gated(expert, activation) for expert in mlp.experts)
        return Experts(_linear(mlp.router), experts, shape.experts_used)
    (only,) = mlp.experts
    return Plain(_linear(only.gate), _linear(only.down), activation) if only.up is None else _gated(only, activation)


def _gated(expert: stored.Expert, activation: Activation) -> Gated:
    assert expert.up is not None
    return Gated(_linear(expert.gate), _linear(expert.up), _linear(expert.down), activation)


def _linear(linear: stored.Linear) -> Linear:
    return Linear(_floats(linear.weight), None if linear.bias is None else _floats(linear.bias))


def _norm(norm: stored.Norm) -> Norm:
    return Norm(_floats(norm.weight), None if norm.bias is None else _floats(norm.bias), norm.eps, norm.centred)


def _floats(values: npt.NDArray[np.float64]) -> Array:
    return np.ascontiguousarray(values, np.float32)


def frequencies(dims: int, theta: float) -> Array:
    """theta^(-2 i / dims), computed as the engines do, in float32.

    >>> frequencies(4, 100.0)
    array([1. , 0.1], dtype=float32)
    """
    return (1.0 / (np.float32(theta) ** (np.arange(0, dims, 2, dtype=np.float32) / np.float32(dims)))).astype(
        np.float32
    )
