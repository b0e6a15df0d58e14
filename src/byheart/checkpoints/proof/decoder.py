"""Ten architectures as one: the tensors of a checkpoint, by role instead of by name.

Every tensor of the file must have a role, every role its tensor with the right shape; anything else is refused by name.
`storing` says how the weights are kept: converted to the type, or first rounded to symmetric 8- or 4-bit integers per
row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byheart.checkpoints.proof.config import Shape, Undecided, read_shape
from byheart.checkpoints.proof.storage import Array, Storage
from byheart.checkpoints.proof.tensors import TensorFile, open_tensors, read_json
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
    attention_norm: Norm
    attention: StockAttention
    mlp_norm: Norm
    mlp: Mlp


@dataclass(frozen=True)
class StoredCheckpoint:
    """A folder's config and the places of its tensors; `decoder` reads them in one type."""

    shape: Shape
    files: TensorFile
    bos: int | None
    eos: int | None

    def reader(self, store: Storage, weights: str = "type") -> TensorReader:
        if weights not in WEIGHTS:
            raise OptionError(f"unknown weights {weights!r}; known: {', '.join(WEIGHTS)}")
        return TensorReader(self, store, WEIGHTS[weights])


def open_checkpoint(folder: Path, *, classifier: bool = False) -> StoredCheckpoint:
    config = read_json(folder / "config.json")
    shape = read_shape(config, classifier=classifier)
    if not classifier and "eos_token_id" not in config:
        raise Undecided("config.json has no eos_token_id: engines stop at a token of their own choice")
    path = folder / "model.safetensors"
    if not path.exists():
        raise Undecided(f"{folder} has no model.safetensors; a checkpoint in several files is not read")
    checkpoint = StoredCheckpoint(
        shape, open_tensors(path), _token(config, "bos_token_id"), _token(config, "eos_token_id")
    )
    _every_name(checkpoint)
    _one_head(checkpoint)
    return checkpoint


def _one_head(checkpoint: StoredCheckpoint) -> None:
    """A tied head that is stored all the same must be the embedding: engines differ in which one they read."""
    names, files = NAMES[checkpoint.shape.family], checkpoint.files
    head, embed = f"{names.head}.weight", f"{names.embed}.weight"
    both = checkpoint.shape.tied and head in files.entries
    if both and (embed not in files.entries or not np.array_equal(files.read(head), files.read(embed))):
        raise Undecided(f"config.json ties the head to the embedding, but {head} is something else")


def _token(config: dict[str, object], key: str) -> int | None:
    value = config.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise Undecided(f"config.json: {key} = {value!r}; the proof knows one token")
    return value


@dataclass
class TensorReader:
    """Hands out tensors in the engine's type, one layer at a time, and remembers which names were asked for."""

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
        s, names = self.checkpoint.shape, NAMES[self.checkpoint.shape.family]
        tokens = self.tensor(f"{names.embed}.weight", s.vocabulary, s.hidden, matrix=True)
        if names.positions is None:
            return tokens, None
        rows = s.positions + names.skipped
        return tokens, self.tensor(f"{names.positions}.weight", rows, s.hidden)[names.skipped :]

    def head(self) -> Linear:
        s, names = self.checkpoint.shape, NAMES[self.checkpoint.shape.family]
        if s.labels is not None:
            return self.linear("score", s.labels, s.hidden)
        return self.linear(names.embed if s.tied else names.head, s.vocabulary, s.hidden)

    def final_norm(self) -> Norm:
        names = NAMES[self.checkpoint.shape.family]
        return self.norm(names.final, self.checkpoint.shape.hidden, names.centred, names.plus)

    def layer(self, index: int) -> Layer:
        names = NAMES[self.checkpoint.shape.family]
        return names.layer(self, names.layers.format(index))


@dataclass(frozen=True)
class Names:
    embed: str
    head: str
    final: str
    layers: str
    layer: Callable[[TensorReader, str], Layer]
    positions: str | None = None
    skipped: int = 0  # rows of the position table before position 0
    centred: bool = False
    plus: float = 0.0  # Gemma stores gamma - 1


def _integers_per_row(values: Array, levels: int) -> Array:
    """Symmetric, absmax: the row's largest weight is `levels` steps."""
    step = np.abs(values).max(1, keepdims=True) / levels
    return np.rint(np.divide(values, step, out=np.zeros_like(values), where=step > 0)) * step


def _llama_layer(r: TensorReader, p: str) -> Layer:
    s = r.checkpoint.shape
    q_size, kv_size, biased, plus = (
        s.heads * s.head_dim,
        s.kv_heads * s.head_dim,
        s.family == "qwen2",
        float(s.family == "gemma"),
    )
    if s.family == "phi3":
        fused = r.linear(f"{p}.self_attn.qkv_proj", q_size + 2 * kv_size, s.hidden)
        q, k, v = _split(fused, (q_size, kv_size, kv_size))
    else:
        q = r.linear(f"{p}.self_attn.q_proj", q_size, s.hidden, biased)
        k = r.linear(f"{p}.self_attn.k_proj", kv_size, s.hidden, biased)
        v = r.linear(f"{p}.self_attn.v_proj", kv_size, s.hidden, biased)
    normed = s.family == "qwen3"
    attention = StockAttention(
        q,
        k,
        v,
        r.linear(f"{p}.self_attn.o_proj", s.hidden, q_size),
        r.norm(f"{p}.self_attn.q_norm", s.head_dim) if normed else None,
        r.norm(f"{p}.self_attn.k_norm", s.head_dim) if normed else None,
    )
    return Layer(
        r.norm(f"{p}.input_layernorm", s.hidden, plus=plus),
        attention,
        r.norm(f"{p}.post_attention_layernorm", s.hidden, plus=plus),
        _glu(r, p),
    )


def _glu(r: TensorReader, p: str) -> Mlp:
    s = r.checkpoint.shape
    if s.family == "mixtral":
        m = f"{p}.block_sparse_moe"
        experts = tuple(
            Expert(
                r.linear(f"{m}.experts.{e}.w1", s.units, s.hidden),
                r.linear(f"{m}.experts.{e}.w3", s.units, s.hidden),
                r.linear(f"{m}.experts.{e}.w2", s.hidden, s.units),
            )
            for e in range(s.experts)
        )
        return Mlp(experts, r.linear(f"{m}.gate", s.experts, s.hidden))
    if s.family == "phi3":
        gate, up = _split(r.linear(f"{p}.mlp.gate_up_proj", 2 * s.units, s.hidden), (s.units, s.units))
    else:
        gate, up = r.linear(f"{p}.mlp.gate_proj", s.units, s.hidden), r.linear(f"{p}.mlp.up_proj", s.units, s.hidden)
    return Mlp((Expert(gate, up, r.linear(f"{p}.mlp.down_proj", s.hidden, s.units)),))


def _split(fused: Linear, sizes: tuple[int, ...]) -> list[Linear]:
    ends = np.cumsum(sizes)
    return [
        Linear(
            f"{fused.name} rows {e - n}:{e}",
            fused.weight[e - n : e],
            None if fused.bias is None else fused.bias[e - n : e],
        )
        for n, e in zip(sizes, ends, strict=True)
    ]


def _gpt2_layer(r: TensorReader, p: str) -> Layer:
    s = r.checkpoint.shape
    q, k, v = _split(r.linear(f"{p}.attn.c_attn", 3 * s.hidden, s.hidden, True, transposed=True), (s.hidden,) * 3)
    return Layer(
        r.norm(f"{p}.ln_1", s.hidden, True),
        StockAttention(q, k, v, r.linear(f"{p}.attn.c_proj", s.hidden, s.hidden, True, transposed=True)),
        r.norm(f"{p}.ln_2", s.hidden, True),
        _plain(r, f"{p}.mlp.c_fc", f"{p}.mlp.c_proj", transposed=True),
    )


def _opt_layer(r: TensorReader, p: str) -> Layer:
    s = r.checkpoint.shape
    q, k, v, o = (
        r.linear(f"{p}.self_attn.{n}", s.hidden, s.hidden, True) for n in ("q_proj", "k_proj", "v_proj", "out_proj")
    )
    return Layer(
        r.norm(f"{p}.self_attn_layer_norm", s.hidden, True),
        StockAttention(q, k, v, o),
        r.norm(f"{p}.final_layer_norm", s.hidden, True),
        _plain(r, f"{p}.fc1", f"{p}.fc2"),
    )


def _neox_layer(r: TensorReader, p: str) -> Layer:
    s = r.checkpoint.shape
    fused = r.linear(f"{p}.attention.query_key_value", 3 * s.hidden, s.hidden, True)
    by_head = np.arange(3 * s.hidden).reshape(s.heads, 3, s.head_dim)
    assert fused.bias is not None
    q, k, v = (
        Linear(f"{fused.name} ({n})", fused.weight[rows], fused.bias[rows])
        for n, rows in zip("qkv", (by_head[:, i].reshape(-1) for i in range(3)), strict=True)
    )
    return Layer(
        r.norm(f"{p}.input_layernorm", s.hidden, True),
        StockAttention(q, k, v, r.linear(f"{p}.attention.dense", s.hidden, s.hidden, True)),
        r.norm(f"{p}.post_attention_layernorm", s.hidden, True),
        _plain(r, f"{p}.mlp.dense_h_to_4h", f"{p}.mlp.dense_4h_to_h"),
    )


def _plain(r: TensorReader, first: str, second: str, transposed: bool = False) -> Mlp:
    s = r.checkpoint.shape
    return Mlp(
        (
            Expert(
                r.linear(first, s.units, s.hidden, True, transposed),
                None,
                r.linear(second, s.hidden, s.units, True, transposed),
            ),
        )
    )


_LLAMA = Names("model.embed_tokens", "lm_head", "model.norm", "model.layers.{}", _llama_layer)
NAMES = {family: _LLAMA for family in ("llama", "mistral", "qwen2", "qwen3", "phi3", "mixtral")} | {
    "gemma": Names("model.embed_tokens", "lm_head", "model.norm", "model.layers.{}", _llama_layer, plus=1.0),
    "gpt2": Names(
        "transformer.wte",
        "lm_head",
        "transformer.ln_f",
        "transformer.h.{}",
        _gpt2_layer,
        "transformer.wpe",
        centred=True,
    ),
    "opt": Names(
        "model.decoder.embed_tokens",
        "lm_head",
        "model.decoder.final_layer_norm",
        "model.decoder.layers.{}",
        _opt_layer,
        "model.decoder.embed_positions",
        skipped=2,
        centred=True,
    ),
    "gpt_neox": Names(
        "gpt_neox.embed_in", "embed_out", "gpt_neox.final_layer_norm", "gpt_neox.layers.{}", _neox_layer, centred=True
    ),
}


def _every_name(checkpoint: StoredCheckpoint) -> None:
    """Refuses tensors without a role: an engine may load them and compute something else."""
    known = _roles(checkpoint.shape)
    strange = sorted(set(checkpoint.files.entries) - known)
    if strange:
        raise Undecided(f"model.safetensors has {strange[0]}, which has no role in {checkpoint.shape.family}")


def _roles(shape: Shape) -> set[str]:
    """The names of all tensors of an architecture, found by reading a checkpoint of the shape without any numbers."""
    asked: set[str] = set()

    class Listing(TensorReader):
        def tensor(self, name: str, *size: int, matrix: bool = False, transposed: bool = False) -> Array:
            asked.add(name)
            return np.broadcast_to(np.float64(0.0), size)

    listing = Listing(StoredCheckpoint(shape, TensorFile(Path(), {}), None, None), None, None)  # type: ignore[arg-type]
    listing.embedding(), listing.head(), listing.final_norm()
    for index in range(shape.layers):
        listing.layer(index)
    if shape.tied:
        asked.add(f"{NAMES[shape.family].head}.weight")  # may be stored too: see `_one_head`
    return asked
