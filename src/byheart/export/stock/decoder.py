"""What a decoder-only Transformer computes, as a value: one description for ten stock architectures.

Everything that architectures spell differently is settled here: norm weights are factors (Gemma's 1 is added), matrices
are (out, in) (GPT-2's are turned), fused projections are apart, positions are one table or one rotation.

    h_0     = scale * embedding[token] (+ positions[t + shift])
    h_{l+1} = h_l + attention(norm h_l), then + mlp(norm of that)      or, in parallel, of h_l
    logits  = head(norm h_last)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from byheart.export.stock.folder import Array


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


def frequencies(dims: int, theta: float) -> Array:
    """theta^(-2 i / dims), computed as the engines do, in float32.

    >>> frequencies(4, 100.0)
    array([1. , 0.1], dtype=float32)
    """
    return (1.0 / (np.float32(theta) ** (np.arange(0, dims, 2, dtype=np.float32) / np.float32(dims)))).astype(
        np.float32
    )
