"""Stock architectures as one: the tensors of a checkpoint, by role instead of by name.

Every tensor of the file must have a role, every role its tensor with the right shape; anything else is refused by name.
`storing` is how the weights are kept: converted to the type, or first rounded to symmetric 8- or 4-bit integers per
row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from byheart.checkpoints.proof.config import ConfigReader, Shape, Undecided
from byheart.checkpoints.proof.low_rank import AdapterFile, LowRank, adapted
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
    adapter: LowRank | None = None  # the parts of `weight` where an adapter is not merged


@dataclass(frozen=True)
class Norm:
    name: str
    weight: Array
    bias: Array | None
    eps: float
    centred: bool  # LayerNorm; otherwise RMSNorm


@dataclass(frozen=True)
class Latents:
    """Short normed vectors, from which latent attention reads queries, keys and values."""

    q_down: Linear | None  # None: queries read the stream
    q_norm: Norm | None
    down: Linear  # (rank, hidden)
    norm: Norm
    k_turned: Linear  # (rotated dimensions, hidden): the rotated part of the key, which all heads share


@dataclass(frozen=True)
class StockAttention:
    """One layer's attention; with `latents`, `k` gives the part of every head's key that is not rotated."""

    q: Linear
    k: Linear
    v: Linear
    o: Linear
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    all_heads: bool = False  # these norms run over all heads at once, not over each
    sinks: Array | None = None  # (heads,): the score of a place without a value that every query also sees
    latents: Latents | None = None
    gate: Linear | None = None  # the heads' outputs are multiplied by its sigmoid


def no_attention(hidden: int) -> StockAttention:
    """Attention without heads: of a layer that mixes places by its recurrent mixer alone."""
    none = Linear("no attention", np.zeros((0, hidden)), None)
    return StockAttention(none, none, none, Linear("no attention", np.zeros((hidden, 0)), None))


@dataclass(frozen=True)
class Convolution:
    """y_c[t] = silu(sum over j of weight[c, j] x_c[t - taps + 1 + j] + bias_c): the last tap meets the newest place."""

    name: str
    weight: Array  # (channels, taps)
    bias: Array | None


@dataclass(frozen=True)
class DeltaNet:
    """Gated DeltaNet. With q, k of length 1 in every head, after the convolution, and a state S (key, value) per head:

    S[t] = d S[t-1] + beta k (v - k (d S[t-1])),   d = exp(-exp(decay) softplus(a + step)),   beta = sigmoid(b)
    out  = o (norm(q S[t] / sqrt(key)) silu(z)),   the norm runs over each head
    """

    q: Linear  # (key heads * key, hidden)
    k: Linear
    v: Linear  # (heads * value, hidden)
    z: Linear
    b: Linear  # (heads, hidden)
    a: Linear
    convolution: Convolution  # of q, k and v in this order
    decay: Array  # (heads,)
    step: Array
    norm: Norm  # (value,)
    o: Linear
    key_heads: int
    heads: int  # of values, state and output; key head g serves heads / key_heads of them in a row


@dataclass(frozen=True)
class Mamba2:
    """Mamba-2. With x, b, c after the convolution, and one state h (dim, state) per head:

    h[t] = exp(A dt) h[t-1] + dt x b,   A = -exp(decay),   dt = softplus(dt + step)
    y    = h[t] c + skip x
    out  = o norm(y silu(z)),           over all heads, or over each of `norm_groups` parts of them
    """

    z: Linear  # (heads * dim, hidden)
    x: Linear
    b: Linear  # (groups * state, hidden); group g serves heads / groups of them in a row
    c: Linear
    dt: Linear  # (heads, hidden)
    convolution: Convolution  # of x, b and c in this order
    decay: Array  # (heads,)
    step: Array
    skip: Array
    norm: Norm | None  # (heads * dim,)
    o: Linear
    heads: int
    groups: int
    norm_groups: int = 1


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
    correction: Array | None = None  # (experts,): added to a sigmoid router's scores, for the choice alone
    shared: Expert | None = None  # serves every token beside the chosen ones
    shared_gate: Linear | None = None  # (1, hidden): the shared expert counts the sigmoid of this


@dataclass(frozen=True)
class Layer:
    """One layer; a branch without a norm before it reads the stream itself."""

    attention_norm: Norm | None
    attention: StockAttention
    mlp_norm: Norm | None
    mlp: Mlp
    after_attention: Norm | None = None  # a norm of what the branch adds
    after_mlp: Norm | None = None
    mixer: DeltaNet | Mamba2 | None = None  # beside attention: the sum of both is the branch


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
    biased: bool = True  # where norms are LayerNorms: they add a bias
    plus: float = 0.0  # Gemma stores gamma - 1
    # Parts of the names of tensors that some engines keep in float32 and others convert: both must hold the same.
    wide: tuple[str, ...] = ()

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
    adapter: AdapterFile | None = None  # that an engine applies without merging it

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
        wanted = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
        if stored != wanted:
            raise Undecided(f"{name} has the shape {stored}; config.json asks for {wanted}")
        values = self.checkpoint.files.read(name).astype(np.float64)
        values = values.swapaxes(-1, -2) if transposed else values
        if matrix and self.levels:
            values = _integers_per_row(values, self.levels)
        exact, values = values, np.ascontiguousarray(self.store.nearest(values))
        if not np.isfinite(values).all():
            raise Undecided(f"{name} leaves the range of {self.store.name}")
        if any(part in name for part in self.checkpoint.family.wide) and (values != exact).any():
            raise Undecided(f"{name} has numbers that {self.store.name} does not hold; engines keep them in float32")
        return values

    def linear(self, name: str, out: int, inner: int, bias: bool = False, transposed: bool = False) -> Linear:
        weight = self.tensor(f"{name}.weight", out, inner, matrix=True, transposed=transposed)
        found = Linear(name, weight, self.tensor(f"{name}.bias", out) if bias else None)
        file = self.checkpoint.adapter
        parts = None if file is None else file.parts(name, weight, self.store)
        if parts is None:
            return found
        if transposed or self.levels:
            raise Undecided(f"{name}: the proof supports adapters of matrices that are stored as they are used")
        return replace(found, weight=parts.merged, adapter=parts)

    def norm(self, name: str, size: int, centred: bool = False, plus: float = 0.0) -> Norm:
        biased = centred and self.checkpoint.family.biased
        bias = self.tensor(f"{name}.bias", size) if biased else None
        return Norm(name, self.tensor(f"{name}.weight", size) + plus, bias, self.checkpoint.shape.eps, centred)

    def embedding(self) -> tuple[Array, Array | None]:
        """Token vectors as they enter the stream before Gemma's factor, and position vectors."""
        s, names = self.checkpoint.shape, self.checkpoint.family
        tokens = self.tensor(f"{names.embed}.weight", s.vocabulary, s.hidden, matrix=True)
        if self.checkpoint.adapter is not None:
            parts = self.checkpoint.adapter.parts(names.embed, tokens.T, self.store, embedding=True)
            tokens = tokens if parts is None else _adapted_tokens(parts, s)
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
        found = names.layer(self, names.layers.format(index))
        known = {id(x) for x in (found.attention.q, found.attention.k, found.attention.v, found.attention.o)}
        if found.attention.latents is None and found.mlp.router is None and found.mlp.shared is None:
            (only,) = found.mlp.experts
            known |= {id(x) for x in (only.gate, only.up, only.down)}
        odd = next((x.name for x in adapted(found) if id(x) not in known), None)
        if odd is not None:
            raise Undecided(f"{odd} has an adapter; the proof supports those of attention and of MLPs without experts")
        return found


def _adapted_tokens(parts: LowRank, shape: Shape) -> Array:
    """The embedding with an adapter, where no part of it is ever rounded: one product per number."""
    if shape.tied:
        raise Undecided("an adapter of an embedding that is also the head")
    single = ((parts.b != 0).astype(int) @ (parts.a != 0).astype(int)).max(initial=0) <= 1
    products = parts.b @ parts.a
    steps = [parts.base, products, parts.scale * parts.a, parts.scale * products, parts.merged]
    if not single or any((parts.store.nearest(x) != x).any() for x in steps):
        raise Undecided(f"{parts.name}: an adapter of the embedding that {parts.store.name} rounds")
    return np.ascontiguousarray(parts.merged.T)


def _integers_per_row(values: Array, levels: int) -> Array:
    """Symmetric, absmax: the row's largest weight is `levels` steps."""
    step = np.abs(values).max(-1, keepdims=True) / levels
    return np.rint(np.divide(values, step, out=np.zeros_like(values), where=step > 0)) * step


def split(fused: Linear, sizes: tuple[int, ...]) -> list[Linear]:
    """The blocks of rows of a fused matrix, as separate matrices."""
    if fused.adapter is not None:
        raise Undecided(f"{fused.name}: an adapter of a fused matrix")
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
