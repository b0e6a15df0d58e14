#!/usr/bin/env python3
"""A second checker for stock checkpoints, written from docs/checkpoints-proof.md. It needs Python 3.11 and NumPy.

    python check_checkpoint.py FOLDER
    python check_checkpoint.py FOLDER --dtype bfloat16 --dtype float16 --json

It reads config.json, model.safetensors and the token ids of expected.json, and evaluates every prompt with intervals
that hold what any engine of the error model may compute: each operation rounds its ends outwards. `proved` means that
after every prefix of a prompt's continuation the expected token's logit exceeds all others, for the listed prompts only
(byheart's own proof covers every input). Texts and tokenizers are not read. Random inputs are evaluated too: all values
must be finite. Exit status: 0 proved; 1 not proved; 2 the folder cannot be read.

The sections: numbers, the folder, operations, the network, the verdict.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# ------------------------------------------------------------------------------------------------ numbers

U = 2.0**-24
FUNCTION, TRIG, FREQUENCY = 2.0**-20, 2.0**-22, 2.0**-22
OWN = 2.0**-46  # this program's own float64 operations
SMALL = 2.0**-126
LARGEST32 = (2 - 2.0**-23) * 2.0**127


class NotProved(Exception):
    """The folder may be fine; this program cannot show it."""


class Unreadable(Exception):
    """The folder is damaged."""


@dataclass(frozen=True)
class Type:
    name: str
    digits: int  # of the significand
    least: int  # exponent of the smallest normal number
    largest: float

    @property
    def unit(self) -> float:
        return 2.0**-self.digits

    @property
    def tiny(self) -> float:
        return 2.0 ** (self.least - self.digits)

    def nearest(self, x: np.ndarray) -> np.ndarray:
        """To nearest, ties to even; infinite beyond the range."""
        _, exponent = np.frexp(x)
        step = np.ldexp(1.0, np.maximum(exponent, self.least + 1) - self.digits)
        found = np.rint(x / step) * step
        return np.where(np.abs(found) > self.largest, np.copysign(np.inf, found), found)


TYPES = {
    "float32": Type("float32", 24, -126, LARGEST32),
    "bfloat16": Type("bfloat16", 8, -126, 255 * 2.0**120),
    "float16": Type("float16", 11, -14, 65504.0),
}


@dataclass(frozen=True)
class Box:
    """Every number of a tensor lies between `lo` and `hi`."""

    lo: np.ndarray
    hi: np.ndarray

    @property
    def size(self) -> np.ndarray:
        return np.maximum(np.abs(self.lo), np.abs(self.hi))

    def __getitem__(self, index: Any) -> Box:
        return Box(self.lo[index], self.hi[index])

    def wider(self, error: np.ndarray | float) -> Box:
        return Box(self.lo - error, self.hi + error)

    def middle(self) -> tuple[np.ndarray, np.ndarray]:
        return (self.lo + self.hi) / 2, (self.hi - self.lo) / 2

    def plus(self, other: Box) -> Box:
        return Box(self.lo + other.lo, self.hi + other.hi)

    def times(self, other: Box) -> Box:
        ends = self.lo * other.lo, self.lo * other.hi, self.hi * other.lo, self.hi * other.hi
        return Box(np.minimum.reduce(ends), np.maximum.reduce(ends))


def exactly(x: np.ndarray) -> Box:
    return Box(x, x)


def union(*boxes: Box) -> Box:
    return Box(np.minimum.reduce([b.lo for b in boxes]), np.maximum.reduce([b.hi for b in boxes]))


def gamma(n: np.ndarray | float) -> np.ndarray:
    share = (np.asarray(n, float) + 2) * U
    return share / (1 - np.minimum(share, 0.5))


def finite(place: str, size: np.ndarray, largest: float = LARGEST32) -> None:
    worst = float(np.max(size, initial=0.0))
    if not worst <= largest * (1 - 2.0**-6):
        raise NotProved(f"{place} may reach {worst:.4g}; the type ends at {largest:.4g}")


def rounded32(x: Box) -> Box:
    """One rounding in float32; results below the normal range may become zero."""
    lo, hi = x.lo - 2 * U * np.abs(x.lo), x.hi + 2 * U * np.abs(x.hi)
    lo = np.where(np.abs(lo) < SMALL, np.minimum(lo - 2.0**-149, 0.0), lo)
    hi = np.where(np.abs(hi) < SMALL, np.maximum(hi + 2.0**-149, 0.0), hi)
    # A zero that is exact stays exact.
    return Box(np.where(x.lo == 0, np.minimum(0.0, x.lo), lo), np.where(x.hi == 0, np.maximum(0.0, x.hi), hi))


def stored(x: Box, kind: Type) -> Box:
    return Box(kind.nearest(x.lo), kind.nearest(x.hi))


def maybe(x: Box, kind: Type, place: str = "a stored value") -> Box:
    """Kept in float32, or rounded to the type."""
    finite(place, x.size, kind.largest)
    kept = rounded32(x)
    return union(kept, stored(kept, kind))


# ------------------------------------------------------------------------------------------------ the folder

ANYTHING = object()
# Keys that change no logit of a prompt, with the types of values that loaders accept.
HARMLESS: dict[str, Any] = {
    **dict.fromkeys(("architectures", "model_type", "_name_or_path", "transformers_version"), ANYTHING),
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"), ANYTHING),
    **dict.fromkeys(("torch_dtype", "dtype"), ("float32", "bfloat16", "float16")),
    **dict.fromkeys(("use_cache", "return_dict"), (True,)),
    **dict.fromkeys(("output_attentions", "output_hidden_states", "output_router_logits"), (False,)),
    **dict.fromkeys(("attention_dropout", "hidden_dropout", "embd_pdrop", "resid_pdrop", "attn_pdrop"), (0.0, 0)),
    **dict.fromkeys(("dropout", "layerdrop", "classifier_dropout", "router_jitter_noise"), (0.0, 0, None)),
    **dict.fromkeys(("initializer_range", "init_std", "router_aux_loss_coef"), (0.02, 0.001)),
    **dict.fromkeys(("attention_bias", "mlp_bias", "use_sliding_window", "is_encoder_decoder"), (False,)),
    "pretraining_tp": (1,),
    "rope_scaling": (None,),
    "max_window_layers": ANYTHING,
    "original_max_position_embeddings": ANYTHING,
}
LLAMA = {
    "hidden": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads",
    "units": "intermediate_size", "positions": "max_position_embeddings", "act": "hidden_act", "eps": "rms_norm_eps",
}  # fmt: skip
NAMES = {
    "gpt2": LLAMA | {"hidden": "n_embd", "layers": "n_layer", "heads": "n_head", "units": "n_inner",
                     "positions": "n_positions", "act": "activation_function", "eps": "layer_norm_epsilon"},
    "opt": LLAMA | {"units": "ffn_dim", "act": "activation_function", "eps": ""},
    "gpt_neox": LLAMA | {"eps": "layer_norm_eps"},
}  # fmt: skip
CLASSES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "phi3": "Phi3ForCausalLM", "gemma": "GemmaForCausalLM",
    "mixtral": "MixtralForCausalLM", "gpt2": "GPT2LMHeadModel", "opt": "OPTForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
}  # fmt: skip
MORE = {
    "gpt2": {"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,),
             "reorder_and_upcast_attn": (False,), "n_ctx": ANYTHING},
    "opt": {"do_layer_norm_before": (True,), "_remove_final_layer_norm": (False,), "enable_bias": (True,),
            "layer_norm_elementwise_affine": (True,), "word_embed_proj_dim": ANYTHING},
    "gpt_neox": {"attention_bias": (True,)},
}  # fmt: skip
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "tanh", "relu": "relu"}


@dataclass
class Shape:
    family: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv: int
    width: int
    units: int
    positions: int
    eps: float
    act: str
    tied: bool
    theta: float = 0.0
    turned: int = 0
    window: int | None = None
    experts: int = 0
    used: int = 0
    parallel: bool = False

    @property
    def centred(self) -> bool:
        return self.family in ("gpt2", "opt", "gpt_neox")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise Unreadable("a key occurs twice in one object")
    return dict(pairs)


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise Unreadable(f"{path.name}: {error}") from error
    if not isinstance(found, dict):
        raise Unreadable(f"{path.name} is not an object")
    return found


def _same(value: Any, allowed: Any) -> bool:
    return allowed is ANYTHING or any(type(value) is type(a) and value == a for a in allowed)


class Config:
    def __init__(self, values: dict[str, Any]) -> None:
        self.left = dict(values)
        self.family = values.get("model_type")
        if self.family not in CLASSES:
            raise NotProved(f"model_type {self.family!r} is not one of {', '.join(CLASSES)}")
        if values.get("architectures", [CLASSES[self.family]]) != [CLASSES[self.family]]:
            raise NotProved(f"architectures {values['architectures']!r}")

    def take(self, key: str, kind: type, *default: Any) -> Any:
        """A value of exactly this type; absent or null only with a default."""
        value = self.left.pop(key, *default) if default else self.left.pop(key, None)
        if type(value) is not kind or (kind in (int, float) and not 0 < value < 1e12):
            raise NotProved(f"{key} = {value!r}")
        return value

    def close(self) -> None:
        allowed = HARMLESS | MORE.get(self.family, {})
        for key, value in self.left.items():
            if key not in allowed or not _same(value, allowed[key]):
                raise NotProved(f"config.json: {key} = {value!r} is not modelled")


def _rope(c: Config, own: tuple[str, str], default: tuple[float, float]) -> tuple[float, float]:
    """The base of the angles and the rotated share of a head; all places that state them must agree."""
    inner = c.left.pop("rope_parameters", {})
    if not isinstance(inner, dict) or inner.get("rope_type", "default") != "default":
        raise NotProved(f"rope_parameters {inner!r}")
    if set(inner) - {"rope_type", "rope_theta", "partial_rotary_factor"}:
        raise NotProved(f"rope_parameters {inner!r}")
    found = []
    for name, key, usual in zip(("rope_theta", "partial_rotary_factor"), own, default, strict=True):
        stated = {inner[name]} if name in inner else set()
        stated |= {c.left.pop(k) for k in dict.fromkeys((name, key)) if k in c.left}
        if len(stated) > 1 or not all(type(value) in (int, float) for value in stated):
            raise NotProved(f"{name} is stated as {stated!r}")
        found.append(float(stated.pop()) if stated else usual)
    return found[0], found[1]


def read_shape(values: dict[str, Any]) -> Shape:
    c = Config(values)
    family, names = c.family, NAMES.get(c.family, LLAMA)
    hidden, heads = c.take(names["hidden"], int), c.take(names["heads"], int)
    plain = family in ("gpt2", "opt", "gpt_neox")
    kv = heads if plain else c.take("num_key_value_heads", int)
    width = hidden // heads if plain else c.take("head_dim", int, hidden // heads if hidden % heads == 0 else None)
    if family == "gpt2" and c.left.get("n_inner") is None:
        c.left["n_inner"] = 4 * hidden
    act = c.left.pop(names["act"], None)
    other = c.left.pop("hidden_activation", act) if family == "gemma" else act
    act = other if act is None else act
    if act == "gelu_new" and plain:
        kind = "chain"
    elif act == other and act in ACTIVATIONS:
        kind = ACTIVATIONS[act]
    else:
        raise NotProved(f"activation {act!r}")
    if family == "gemma" and kind != "tanh":
        raise NotProved(f"activation {act!r} in gemma")
    shape = Shape(
        family, c.take("vocab_size", int), hidden, c.take(names["layers"], int), heads, kv, width,
        c.take(names["units"], int), c.take(names["positions"], int),
        c.take(names["eps"], float) if names["eps"] else 1e-5, kind, c.take("tie_word_embeddings", bool),
    )  # fmt: skip
    if family not in ("gpt2", "opt"):
        neox = family == "gpt_neox"
        own = ("rotary_emb_base", "rotary_pct") if neox else ("rope_theta", "partial_rotary_factor")
        shape.theta, share = _rope(c, own, (1e6 if family == "mixtral" else 1e4, 0.25 if neox else 1.0))
        if share != 1.0 and family not in ("gpt_neox", "phi3"):
            raise NotProved(f"{family} rotates whole heads, config.json states {share}")
        shape.turned = int(width * share)
        if shape.theta <= 1 or shape.turned % 2 or not 0 < shape.turned <= width or shape.turned != width * share:
            raise NotProved(f"rotary positions on {width * share} of {width} dimensions")
    window = c.left.pop("sliding_window", None)
    if window is not None and family not in ("qwen2", "qwen3"):
        if family not in ("mistral", "mixtral", "phi3") or type(window) is not int or window < 1:
            raise NotProved(f"sliding_window = {window!r}")
        shape.window = window
    if family == "mistral" and "sliding_window" not in values:
        shape.window = 4096
    if c.left.pop("layer_types", ["full_attention"] * shape.layers) != ["full_attention"] * shape.layers:
        raise NotProved("layer_types")
    if family == "mixtral":
        shape.experts, shape.used = c.take("num_local_experts", int), c.take("num_experts_per_tok", int)
        if shape.used not in (1, 2) or shape.used > shape.experts:
            raise NotProved(f"num_experts_per_tok = {shape.used}")
    if family == "gpt_neox":
        shape.parallel = c.take("use_parallel_residual", bool, True)
    if family == "opt" and c.left.get("word_embed_proj_dim", hidden) != hidden:
        raise NotProved("word_embed_proj_dim")
    c.close()
    if shape.heads % shape.kv or shape.layers > 10_000:
        raise NotProved(f"{shape.heads} heads, {shape.kv} key-value heads, {shape.layers} layers")
    return shape


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(str(error)) from error
    if len(data) < 8 or (length := struct.unpack("<Q", data[:8])[0]) > len(data) - 8:
        raise Unreadable("model.safetensors is too short for its header")
    try:
        header = json.loads(data[8 : 8 + length], object_pairs_hook=_once)
    except (UnicodeDecodeError, ValueError) as error:
        raise Unreadable(f"model.safetensors: the header is not JSON: {error}") from error
    found: dict[str, np.ndarray] = {}
    try:
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, stop = entry["data_offsets"]
            shape = tuple(entry["shape"])
            if not all(type(n) is int and n >= 0 for n in (start, stop, *shape)) or 8 + length + stop > len(data):
                raise Unreadable(f"{name}: its place is not in the file")
            raw = data[8 + length + start : 8 + length + stop]
            if entry["dtype"] == "BF16":
                values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
            elif entry["dtype"] in ("F32", "F16"):
                values = np.frombuffer(raw, "<f4" if entry["dtype"] == "F32" else "<f2")
            else:
                raise Unreadable(f"{name} has the type {entry['dtype']}")
            found[name] = values.astype(np.float64).reshape(shape)
            if not np.isfinite(found[name]).all():
                raise Unreadable(f"{name} holds numbers that are not finite")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"model.safetensors: {error}") from error
    return found


@dataclass
class Weights:
    """The tensors in one type; `take` checks the shape and marks the name as used."""

    tensors: dict[str, np.ndarray]
    kind: Type
    used: set[str] = field(default_factory=set)

    def take(self, name: str, *shape: int) -> np.ndarray:
        if name not in self.tensors or self.tensors[name].shape != shape:
            raise NotProved(f"{name}: {self.tensors.get(name, np.zeros(0)).shape}, config.json needs {shape}")
        self.used.add(name)
        found = self.kind.nearest(self.tensors[name])
        finite(name, np.abs(found), self.kind.largest * (1 + 2.0**-5))
        return found

    def pair(self, name: str, out: int, inner: int, bias: bool, turned: bool = False) -> Linear:
        weight = self.take(f"{name}.weight", *((inner, out) if turned else (out, inner)))
        return Linear(weight.T if turned else weight, self.take(f"{name}.bias", out) if bias else None)


@dataclass(frozen=True)
class Linear:
    weight: np.ndarray
    bias: np.ndarray | None

    def rows(self, index: Any) -> Linear:
        return Linear(self.weight[index], None if self.bias is None else self.bias[index])


@dataclass
class Network:
    shape: Shape
    embed: np.ndarray
    positions: np.ndarray | None
    head: np.ndarray
    final: tuple[np.ndarray, np.ndarray | None]
    layers: list[dict[str, Any]]


def load(shape: Shape, tensors: dict[str, np.ndarray], kind: Type) -> Network:
    w, s, family = Weights(tensors, kind), shape, shape.family
    h, q_size, kv_size = s.hidden, s.heads * s.width, s.kv * s.width
    plus = 1.0 if family == "gemma" else 0.0

    def norm(name: str, size: int = h) -> tuple[np.ndarray, np.ndarray | None]:
        return w.take(f"{name}.weight", size) + plus, w.take(f"{name}.bias", size) if s.centred else None

    roots = {
        "gpt2": ("transformer.wte", "lm_head", "transformer.ln_f", "transformer.h"),
        "opt": ("model.decoder.embed_tokens", "lm_head", "model.decoder.final_layer_norm", "model.decoder.layers"),
        "gpt_neox": ("gpt_neox.embed_in", "embed_out", "gpt_neox.final_layer_norm", "gpt_neox.layers"),
    }
    embed, head, final, prefix = roots.get(family, ("model.embed_tokens", "lm_head", "model.norm", "model.layers"))
    table = w.take(f"{embed}.weight", s.vocab, h)
    positions = None
    if family == "gpt2":
        positions = w.take("transformer.wpe.weight", s.positions, h)
    elif family == "opt":
        positions = w.take("model.decoder.embed_positions.weight", s.positions + 2, h)[2:]
    layers = []
    for index in range(s.layers):
        p = f"{prefix}.{index}"
        if family == "gpt2":
            fused = w.pair(f"{p}.attn.c_attn", 3 * h, h, True, True)
            q, k, v = (fused.rows(slice(i * h, (i + 1) * h)) for i in range(3))
            o = w.pair(f"{p}.attn.c_proj", h, h, True, True)
            experts = [(w.pair(f"{p}.mlp.c_fc", s.units, h, True, True), None,
                        w.pair(f"{p}.mlp.c_proj", h, s.units, True, True))]  # fmt: skip
            first, second = f"{p}.ln_1", f"{p}.ln_2"
        elif family == "opt":
            q, k, v, o = (w.pair(f"{p}.self_attn.{n}_proj", h, h, True) for n in ("q", "k", "v", "out"))
            experts = [(w.pair(f"{p}.fc1", s.units, h, True), None, w.pair(f"{p}.fc2", h, s.units, True))]
            first, second = f"{p}.self_attn_layer_norm", f"{p}.final_layer_norm"
        elif family == "gpt_neox":
            fused = w.pair(f"{p}.attention.query_key_value", 3 * h, h, True)
            places = np.arange(3 * h).reshape(s.heads, 3, s.width)
            q, k, v = (fused.rows(places[:, i].reshape(-1)) for i in range(3))
            o = w.pair(f"{p}.attention.dense", h, h, True)
            experts = [(w.pair(f"{p}.mlp.dense_h_to_4h", s.units, h, True), None,
                        w.pair(f"{p}.mlp.dense_4h_to_h", h, s.units, True))]  # fmt: skip
            first, second = f"{p}.input_layernorm", f"{p}.post_attention_layernorm"
        else:
            biased = family == "qwen2"
            if family == "phi3":
                fused = w.pair(f"{p}.self_attn.qkv_proj", q_size + 2 * kv_size, h, False)
                q = fused.rows(slice(0, q_size))
                k = fused.rows(slice(q_size, q_size + kv_size))
                v = fused.rows(slice(q_size + kv_size, None))
                both = w.pair(f"{p}.mlp.gate_up_proj", 2 * s.units, h, False)
                experts = [(both.rows(slice(0, s.units)), both.rows(slice(s.units, None)),
                            w.pair(f"{p}.mlp.down_proj", h, s.units, False))]  # fmt: skip
            else:
                q = w.pair(f"{p}.self_attn.q_proj", q_size, h, biased)
                k, v = (w.pair(f"{p}.self_attn.{n}_proj", kv_size, h, biased) for n in "kv")
                if family == "mixtral":
                    m = f"{p}.block_sparse_moe"
                    experts = [(w.pair(f"{m}.experts.{e}.w1", s.units, h, False),
                                w.pair(f"{m}.experts.{e}.w3", s.units, h, False),
                                w.pair(f"{m}.experts.{e}.w2", h, s.units, False))
                               for e in range(s.experts)]  # fmt: skip
                else:
                    experts = [(w.pair(f"{p}.mlp.gate_proj", s.units, h, False),
                                w.pair(f"{p}.mlp.up_proj", s.units, h, False),
                                w.pair(f"{p}.mlp.down_proj", h, s.units, False))]  # fmt: skip
            o = w.pair(f"{p}.self_attn.o_proj", h, q_size, False)
            first, second = f"{p}.input_layernorm", f"{p}.post_attention_layernorm"
        layers.append({
            "first": norm(first), "second": norm(second), "q": q, "k": k, "v": v, "o": o, "experts": experts,
            "router": w.take(f"{p}.block_sparse_moe.gate.weight", s.experts, h) if s.experts else None,
            "heads": tuple(w.take(f"{p}.self_attn.{n}_norm.weight", s.width) for n in "qk")
            if family == "qwen3" else None,
        })  # fmt: skip
    out = table
    if not s.tied:
        out = w.take(f"{head}.weight", s.vocab, h)
    elif f"{head}.weight" in tensors and not np.array_equal(w.take(f"{head}.weight", s.vocab, h), table):
        raise NotProved("the head is tied to the embedding, and stored as something else")
    network = Network(shape, table, positions, out, norm(final), layers)
    if set(tensors) - w.used:
        raise NotProved(f"{min(set(tensors) - w.used)} has no role")
    return network


# ------------------------------------------------------------------------------------------------ operations


@dataclass(frozen=True)
class Kept:
    """A normed stream that is kept in float32: `whole`, channel by channel; and factor * (base - mean * slope) + bias
    with one factor and one mean (up to `drift`) per position, which sums over channels share."""

    whole: Box
    base: Box
    factor: Box
    drift: np.ndarray
    slope: np.ndarray
    bias: np.ndarray | None


def product(x: Box | Kept, weight: np.ndarray) -> Box:
    """weight x, a float32 sum of products in any order.

    Each addition errs by u times its result, a sum of some terms, at most (S + |total|) / 2 for the absolute sum S.
    """
    whole = x.whole if isinstance(x, Kept) else x
    middle, radius = (x.base if isinstance(x, Kept) else x).middle()
    exact = exactly(middle @ weight.T).wider(radius @ np.abs(weight).T)
    if isinstance(x, Kept):
        exact = exact.wider(x.drift[..., None] * np.abs(weight @ x.slope)).times(x.factor)
        exact = exact if x.bias is None else exact.plus(exactly(weight @ x.bias))
    total = whole.size @ np.abs(weight).T
    finite("a sum", total)
    terms = (whole.size > 0).astype(float) @ (weight != 0).astype(float).T
    partial = (total + np.minimum(exact.size, total)) / 2 * (1 + 2.0**-10)
    return exact.wider(gamma(terms) * partial + (8 * U + OWN) * total + SMALL * terms)


def linear(x: Box | Kept, layer: Linear, kind: Type | None) -> Box:
    """With a type: stored or not before and after the bias; without: kept in float32."""
    found = product(x, layer.weight)
    found = rounded32(found) if kind is None else maybe(found, kind)
    if layer.bias is not None:
        found = found.plus(exactly(layer.bias))
        found = rounded32(found) if kind is None else maybe(found, kind)
    return found


def inverse_root(x: Box, eps: float, mean: np.ndarray | None) -> Box:
    """1 / sqrt(mean square + eps) along the last axis."""
    n = x.lo.shape[-1]
    low = np.where((x.lo <= 0) & (x.hi >= 0), 0.0, np.minimum(x.lo**2, x.hi**2)).sum(-1) / n * (1 - OWN)
    high = (x.size**2).sum(-1) / n * (1 + OWN)
    finite("squares inside a norm", high * n)
    error = gamma(n + 4) * high + SMALL
    if mean is not None:
        error = error + gamma(n + 4) * (high + 4 * mean**2)
    if not (np.maximum(low - error, 0.0) + eps > 2.0**-100).all():
        raise NotProved("a norm may divide by zero")
    low = np.maximum(low - error, 0.0) + eps * (1 - 2.0**-22)
    high = high + error + eps * (1 + 2.0**-22)
    return Box(1 / np.sqrt(high) * (1 - FUNCTION), 1 / np.sqrt(low) * (1 + FUNCTION))[..., None]


def normed(x: Box, norm: tuple[np.ndarray, np.ndarray | None], s: Shape, kind: Type, narrow: bool) -> Box | Kept:
    """RMSNorm or LayerNorm; `narrow`: in engines that store normed streams (after the factor, the weight, or both)."""
    weight, bias = norm
    mean, base, drift = None, x, np.zeros(len(x.lo))
    if s.centred:
        n = x.lo.shape[-1]
        slack = gamma(n) * x.size.sum(-1)
        mean = Box((x.lo.sum(-1) - slack) / n, (x.hi.sum(-1) + slack) / n)
        middle, drift = mean.middle()
        base = Box(x.lo - middle[..., None], x.hi - middle[..., None]).wider(OWN * (x.size + mean.size[..., None]))
        x = rounded32(Box(x.lo - mean.hi[..., None], x.hi - mean.lo[..., None]))
    factor = inverse_root(x, s.eps, None if mean is None else mean.size)
    unit = rounded32(x.times(factor))
    finite("a normed value", unit.size, kind.largest)
    plain = rounded32(unit.times(exactly(weight)))
    shift = exactly(np.zeros_like(weight) if bias is None else bias)
    finite("a normed value", plain.size + shift.size, kind.largest)
    if not narrow:
        whole = plain if bias is None else rounded32(plain.plus(shift))
        return Kept(whole, base.times(exactly(weight)), factor, drift, weight, bias)
    first = stored(unit, kind).times(exactly(weight))
    ways = [stored(rounded32(way.plus(shift)), kind) for way in (plain, first, stored(rounded32(first), kind))]
    if bias is None or not bias.any():
        ways.append(rounded32(first))
    return union(*ways)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(x, -700, 700)))


def curve(kind: str, x: np.ndarray) -> np.ndarray:
    if kind == "relu":
        return np.maximum(x, 0.0)
    if kind == "silu":
        return x * sigmoid(x)
    if kind == "gelu":
        return 0.5 * x * np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def activated(kind: str, x: Box) -> Box:
    """In one step, in float32. silu and gelu fall until their minimum near -1.28 and -0.75, and rise from there."""
    if kind == "relu":
        return Box(np.maximum(x.lo, 0.0), np.maximum(x.hi, 0.0))
    low, high = curve(kind, x.lo), curve(kind, x.hi)
    found = Box(np.minimum(low, high), np.maximum(low, high))
    least = -0.2784646 if kind == "silu" else -0.1700417
    inside = (x.lo <= -0.75) & (x.hi >= -1.28)
    found = Box(np.where(inside, np.minimum(found.lo, least), found.lo), found.hi)
    # gelu: 1 + erf and 1 + tanh cancel below zero, until they are exactly zero below -8.5.
    near = np.where(x.hi > -8.5, np.maximum(np.abs(np.maximum(x.lo, -8.5)), np.abs(x.hi)), 0.0)
    error = 4 * FUNCTION * found.size + (0.0 if kind == "silu" else 2 * FUNCTION * near)
    return rounded32(found.wider(error))


def chain(x: Box, kind: Type) -> Box:
    """gelu_new as a chain of stored tensors."""

    def keep(box: Box) -> Box:
        return stored(rounded32(box), kind)

    cube = keep(Box(x.lo**3, x.hi**3))
    inner = keep(x.plus(keep(Box(0.044715 * cube.lo, 0.044715 * cube.hi))))
    inner = keep(Box(math.sqrt(2 / math.pi) * inner.lo, math.sqrt(2 / math.pi) * inner.hi))
    bent = Box(np.tanh(inner.lo), np.tanh(inner.hi))
    bent = Box(
        np.clip(bent.lo - FUNCTION * np.abs(bent.lo), -1, 1), np.clip(bent.hi + FUNCTION * np.abs(bent.hi), -1, 1)
    )
    one = keep(Box(1 + stored(bent, kind).lo, 1 + stored(bent, kind).hi))
    half = stored(Box(0.5 * x.lo, 0.5 * x.hi), kind)
    return rounded32(half.times(one))


def unit_products(
    n: Box | Kept, expert: tuple[Linear, Linear | None, Linear], s: Shape, kind: Type, narrow: bool
) -> Box:
    """act(gate) up, or act(gate), in every way of the error model."""
    gate, up, _ = expert
    name = "tanh" if s.act == "chain" else s.act
    g = linear(n, gate, None)
    u = None if up is None else linear(n, up, None)
    for box in (g, *(() if u is None else (u,))):
        finite("a unit", box.size, kind.largest)

    def joined(act: Box, other: Box | None) -> Box:
        return act if other is None else rounded32(act.times(other))

    fused = joined(activated(name, g), u)
    if not narrow:
        return fused
    ways = [maybe(fused, kind)]
    g, u = (None if box is None else stored(maybe(box, kind), kind) for box in (g, u))
    assert g is not None
    ways.append(maybe(joined(activated(name, g), u), kind))
    steps = [activated(name, g)]
    if name == "silu":
        wide = Box(sigmoid(g.lo) * (1 - FUNCTION), sigmoid(g.hi) * (1 + FUNCTION))
        steps.append(rounded32(g.times(stored(rounded32(wide), kind))))
    if s.act == "chain":
        steps.append(chain(g, kind))
    ways += [stored(joined(stored(step, kind), u), kind) for step in steps]
    return union(*ways)


def mlp(n: Box | Kept, layer: dict[str, Any], s: Shape, kind: Type, narrow: bool) -> Box:
    if not s.experts:
        products = unit_products(n, layer["experts"][0], s, kind, narrow)
        return linear(products, layer["experts"][0][2], kind)
    chosen, weights = route(n, layer["router"], s, kind, narrow)
    shape = (n.whole if isinstance(n, Kept) else n).lo.shape
    out = exactly(np.zeros(shape))
    for slot in range(s.used):
        lo, hi = np.zeros(shape), np.zeros(shape)
        for e in range(s.experts):
            rows = np.flatnonzero(chosen[:, slot] == e)
            if len(rows):
                products = unit_products(_rows(n, rows), layer["experts"][e], s, kind, narrow)
                part = linear(products, layer["experts"][e][2], kind)
                share = Box(weights.lo[rows, slot, None], weights.hi[rows, slot, None])
                part = maybe(part.times(share), kind)
                lo[rows], hi[rows] = part.lo, part.hi
        out = maybe(out.plus(Box(lo, hi)), kind)
    return out


def _rows(n: Box | Kept, rows: np.ndarray) -> Box | Kept:
    if isinstance(n, Box):
        return n[rows]
    return Kept(n.whole[rows], n.base[rows], n.factor[rows], n.drift[rows], n.slope, n.bias)


def route(n: Box | Kept, router: np.ndarray, s: Shape, kind: Type, narrow: bool) -> tuple[np.ndarray, Box]:
    """The experts of every position, if they are certain, and their weights."""
    logits = linear(n, Linear(router, None), kind if narrow else None)
    order = np.argsort(-(logits.lo + logits.hi), axis=1)
    chosen = order[:, : s.used]
    rows = np.arange(len(order))[:, None]
    rest = logits.hi[rows, order[:, s.used :]].max(1, initial=-np.inf)
    if not (logits.lo[rows, chosen].min(1) > rest).all():
        raise NotProved("the choice of experts is not certain")
    lo, hi = logits.lo[rows, chosen], logits.hi[rows, chosen]
    low, high = np.ones_like(lo), np.ones_like(lo)
    for i in range(s.used):
        others = [j for j in range(s.used) if j != i]
        most = sum((np.exp(hi[:, j] - lo[:, i]) for j in others), np.zeros(len(lo))) * (1 + 8 * FUNCTION)
        least = sum((np.exp(lo[:, j] - hi[:, i]) for j in others), np.zeros(len(lo))) * (1 - 8 * FUNCTION)
        low[:, i], high[:, i] = (1 - FUNCTION) / (1 + most), (1 + FUNCTION) / (1 + least)
    return chosen, maybe(Box(low, high), kind)


def rotate(x: Box, s: Shape, kind: Type) -> Box:
    """x: (places, heads, width). cos and sin, products and sums are stored or not."""
    half, places = s.turned // 2, len(x.lo)
    theta = s.theta ** (-2 * np.arange(half) / s.turned)
    angle = np.outer(np.arange(places), theta)[:, None, :]
    error = angle * (U + FREQUENCY) * (1 + 2.0**-10) + TRIG
    cos, sin = (
        maybe(Box(np.maximum(f(angle) - error, -1), np.minimum(f(angle) + error, 1)), kind) for f in (np.cos, np.sin)
    )
    a, b, rest = x[..., :half], x[..., half : s.turned], x[..., s.turned :]
    minus = Box(-sin.hi, -sin.lo)
    first = maybe(maybe(a.times(cos), kind).plus(maybe(b.times(minus), kind)), kind)
    second = maybe(maybe(b.times(cos), kind).plus(maybe(a.times(sin), kind)), kind)
    return Box(np.concatenate([first.lo, second.lo, rest.lo], -1), np.concatenate([first.hi, second.hi, rest.hi], -1))


def attend(q: Box, k: Box, v: Box, s: Shape, kind: Type) -> Box:
    """One head: q, k, v are (places, width). Scores are compared with that of the best place, so that an error of the
    query, which all places share, meets only the difference of two keys."""
    places, scale = len(q.lo), s.width**-0.5
    exact = math.log2(scale) == round(math.log2(scale))
    u = kind.unit + 2 * U
    stores = u if exact else 2 * u
    (qm, qr), (km, kr) = q.middle(), k.middle()
    qr = qr if exact else qr + u * q.size
    finite("a score", np.asarray(q.size.max(0) @ k.size.max(0)), kind.largest)
    lo, hi = np.empty(v.lo.shape), np.empty(v.hi.shape)
    for t in range(places):
        first = 0 if s.window is None else max(0, t - s.window + 1)
        seen = slice(first, t + 1)
        score = scale * (km[seen] @ qm[t])
        best = int(score.argmax())
        gap_m, gap_r = km[seen] - km[seen][best], kr[seen] + kr[seen][best]
        total = scale * (k.size[seen] @ q.size[t])
        error = scale * (gap_r @ (np.abs(qm[t]) + qr[t]) + np.abs(gap_m) @ qr[t])
        error = error + (gamma(s.width + 2) + OWN) * (total + total[best])
        error = error + stores * (1 + stores) * (np.abs(score) + abs(score[best]) + 2 * error) + 2 * kind.tiny
        behind = score - score[best]
        error[best] = 0.0
        lo[t], hi[t] = mixed(behind - error, behind + error, best, v[seen], kind)
        if (
            not scale * (qm[t] @ km[t]) - scale * (qr[t] @ k.size[t] + q.size[t] @ kr[t]) - 9 * u * total[-1]
            > -kind.largest * kind.unit / 2
        ):
            raise NotProved("a fully masked row may overflow")
    return Box(lo, hi)


def mixed(low: np.ndarray, high: np.ndarray, best: int, v: Box, kind: Type) -> tuple[np.ndarray, np.ndarray]:
    """Softmax of scores in [low, high] (relative to the best place's) and the weighted sum of values."""
    count, size = len(low), v.size.max(0)
    others = np.exp(np.minimum(high, 700.0))
    others[best] = 0.0
    leak = float(others.sum()) * (1 + 2 * FUNCTION)
    if leak <= 2.0**-4:
        error = (8 * leak + FUNCTION) * size
        return v.lo[best] - error, v.hi[best] + error
    up, down = np.exp(np.minimum(high, 700.0)), np.exp(np.minimum(low, 700.0))
    most, least = up / (up + (down.sum() - down)), down / (down + (up.sum() - up))
    middle, radius = v.middle()
    weight = (most + least) / 2
    weight = weight / weight.sum()
    spread = np.maximum(np.maximum(most - weight, weight - least), 0.0)
    apart = np.abs(middle - middle[best]) + radius + radius[best]
    centre, wide = weight @ middle, weight @ radius + spread @ apart
    error = (kind.unit + count * kind.tiny + 2 * gamma(count + 4) + 4 * FUNCTION) * size + kind.tiny
    lo, hi = np.maximum(centre - wide, v.lo.min(0)), np.minimum(centre + wide, v.hi.max(0))
    return lo - error, hi + error


# ------------------------------------------------------------------------------------------------ the network


def head_norm(x: Box, weight: np.ndarray, eps: float, kind: Type) -> Box:
    unit = maybe(x.times(inverse_root(x, eps, None)), kind)
    return maybe(unit.times(exactly(weight)), kind)


def embedded(network: Network, ids: list[int], kind: Type) -> Box:
    s, x = network.shape, exactly(network.embed[ids])
    if s.family == "gemma":
        root = np.full(1, math.sqrt(s.hidden))
        kept = maybe(x.times(rounded32(exactly(root))), kind)
        x = union(kept, stored(rounded32(x.times(stored(exactly(root), kind))), kind))
    if network.positions is not None:
        x = maybe(x.plus(exactly(network.positions[: len(ids)])), kind)
    return x


def stream(network: Network, ids: list[int], kind: Type, narrow: bool) -> Box:
    """The residual stream after the last layer at every position."""
    s, x = network.shape, embedded(network, ids, kind)
    for layer in network.layers:
        n = normed(x, layer["first"], s, kind, narrow)
        inner = kind if narrow else None
        q, k = linear(n, layer["q"], kind), linear(n, layer["k"], kind)
        v = linear(n, layer["v"], inner)
        finite("a value", v.size, kind.largest)
        q = Box(q.lo.reshape(len(ids), s.heads, -1), q.hi.reshape(len(ids), s.heads, -1))
        k, v = (Box(b.lo.reshape(len(ids), s.kv, -1), b.hi.reshape(len(ids), s.kv, -1)) for b in (k, v))
        if layer["heads"] is not None:
            q, k = (head_norm(b, w, s.eps, kind) for b, w in zip((q, k), layer["heads"], strict=True))
        if s.turned:
            q, k = rotate(q, s, kind), rotate(k, s, kind)
        group = s.heads // s.kv
        outs = [attend(q[:, i], k[:, i // group], v[:, i // group], s, kind) for i in range(s.heads)]
        heads = Box(np.concatenate([b.lo for b in outs], 1), np.concatenate([b.hi for b in outs], 1))
        heads = rounded32(heads) if inner is None else maybe(heads, kind)
        attended = linear(heads, layer["o"], kind)
        if s.parallel:
            moved = mlp(normed(x, layer["second"], s, kind, narrow), layer, s, kind, narrow)
            orders = ((x, attended, moved), (x, moved, attended), (attended, moved, x))
            x = union(*(maybe(maybe(a.plus(b), kind).plus(c), kind) for a, b, c in orders))
        else:
            x = maybe(x.plus(attended), kind)
            x = maybe(x.plus(mlp(normed(x, layer["second"], s, kind, narrow), layer, s, kind, narrow)), kind)
    return x


def margins(network: Network, ids: list[int], kind: Type, narrow: bool, targets: list[int | None]) -> np.ndarray:
    """By how much `targets[t]` (None: the best token) beats every other token after ids[: t + 1], at least."""
    s = network.shape
    x = stream(network, ids, kind, narrow)
    found = np.full(len(ids), np.inf)
    # The last norm is stored or not in either kind of engine.
    for last in (False,) if kind.name == "float32" else (False, True):
        n = normed(x, network.final, s, kind, last)
        found = np.minimum(found, _gaps(network, n, kind, targets))
    return found


def _gaps(network: Network, n: Box | Kept, kind: Type, targets: list[int | None]) -> np.ndarray:
    weight = network.head
    logits = maybe(product(n, weight), kind, "a logit")
    error = _sum_error(n, weight)
    found = np.empty(len(targets))
    for t, target in enumerate(targets):
        best = int((logits.lo[t] + logits.hi[t]).argmax()) if target is None else target
        gap = _form(n, t, weight[best] - weight) - error[t] - error[t, best]
        gap = gap - (kind.unit + 2 * U) * (logits.size[t] + logits.size[t, best]) - 2 * kind.tiny
        gap = np.maximum(gap, logits.lo[t, best] - logits.hi[t])
        gap[best] = np.inf
        found[t] = gap.min()
    return found


def _sum_error(n: Box | Kept, weight: np.ndarray) -> np.ndarray:
    size = (n.whole if isinstance(n, Kept) else n).size
    return (gamma((weight != 0).sum(1)) + 8 * U + OWN) * (size @ np.abs(weight).T) + SMALL * weight.shape[1]


def _form(n: Box | Kept, t: int, weight: np.ndarray) -> np.ndarray:
    """The least value of weight n[t], before errors of sums."""
    middle, radius = (n.base if isinstance(n, Kept) else n)[t].middle()
    found = exactly(weight @ middle).wider(np.abs(weight) @ radius)
    if not isinstance(n, Kept):
        return found.lo
    found = found.wider(n.drift[t] * np.abs(weight @ n.slope)).times(n.factor[t])
    return found.lo if n.bias is None else found.lo + weight @ n.bias


# ------------------------------------------------------------------------------------------------ the verdict


def read_prompts(folder: Path) -> list[tuple[list[int], list[int]]]:
    prompts = read_json(folder / "expected.json").get("prompts")
    if not isinstance(prompts, list) or not prompts:
        raise Unreadable("expected.json lists no prompts")
    found = []
    for prompt in prompts:
        ids, more = (prompt.get(k) if isinstance(prompt, dict) else None for k in ("ids", "continuation_ids"))
        if not all(isinstance(x, list) and all(type(i) is int and i >= 0 for i in x) for x in (ids, more)) or not ids:
            raise Unreadable("a prompt of expected.json has no ids or continuation_ids")
        found.append((ids, more))
    return found


def surroundings(folder: Path, config: dict[str, Any]) -> None:
    """Files by which an engine would compute or stop otherwise."""
    for name in ("adapter_config.json", "adapter_model.safetensors", "custom_generate", "model.safetensors.index.json"):
        if (folder / name).exists():
            raise NotProved(f"the folder has {name}")
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = config.get(key)
        if value is not None and (type(value) is not int or not 0 <= value < config.get("vocab_size", 0)):
            raise NotProved(f"{key} = {value!r}")
    path = folder / "generation_config.json"
    generation = read_json(path) if path.exists() else {}
    numbers = {f"{role}_token_id" for role in ("bos", "eos", "pad")}
    for key, value in generation.items():
        length = type(value) is int and value > 0
        fine = {"do_sample": value is False, "num_beams": value == 1, "use_cache": value is True,
                "transformers_version": isinstance(value, str), "_from_model_config": isinstance(value, bool),
                "max_new_tokens": length, "max_length": length}  # fmt: skip
        if not (fine.get(key, False) or (key in numbers and value == config.get(key))):
            raise NotProved(f"generation_config.json: {key} = {value!r}")


def check(folder: Path, names: list[str], unknown: int, seed: int = 0) -> dict[str, Any]:
    """The verdict per type: least margin over all prompts, and whether random inputs stay finite."""
    config = read_json(folder / "config.json")
    prompts, tensors = read_prompts(folder), read_tensors(folder / "model.safetensors")
    result: dict[str, Any] = {"folder": str(folder), "verdict": "proved", "prompts": len(prompts), "types": {}}
    for name in names:
        try:
            shape = read_shape(config)
            surroundings(folder, config)
            margin, positions = check_type(shape, tensors, prompts, TYPES[name], unknown, seed)
            found = {"verdict": "proved" if margin > 0 else "not proved", "margin": margin, "positions": positions}
            if not margin > 0:
                found["reason"] = "a margin is not shown to be positive"
        except NotProved as reason:
            found = {"verdict": "not proved", "reason": str(reason)}
        except (TypeError, ValueError, KeyError, IndexError, ArithmeticError, MemoryError) as error:
            # A value of an unexpected type must not stop the program; what it cannot compute it has not proved.
            found = {"verdict": "not proved", "reason": f"{type(error).__name__}: {error}"}
        result["types"][name] = found
        if found["verdict"] != "proved":
            result["verdict"] = "not proved"
    return result


def check_type(
    shape: Shape, tensors: dict[str, np.ndarray], prompts: list[tuple[list[int], list[int]]], kind: Type, unknown: int,
    seed: int,
) -> tuple[float, int]:  # fmt: skip
    network = load(shape, tensors, kind)
    least, asked = math.inf, 0
    # A prompt that continues another one shows the same prefixes.
    whole = {tuple(ids + more): len(ids) for ids, more in sorted(prompts, key=lambda p: -len(p[0]))}
    with np.errstate(all="ignore"):
        for sequence, start in whole.items():
            if len(sequence) > shape.positions or max(sequence) >= shape.vocab:
                raise NotProved("a prompt leaves the positions or the vocabulary of config.json")
            for narrow in (False,) if kind.name == "float32" else (False, True):
                targets: list[int | None] = list(sequence[1:])
                found = margins(network, list(sequence[:-1]), kind, narrow, targets)[start - 1 :]
                least = min(least, float(np.nan_to_num(found, nan=-np.inf).min(initial=np.inf)))
            asked += len(sequence) - start
        random = np.random.default_rng(seed)
        for _ in range(unknown):
            ids = random.integers(0, shape.vocab, min(24, shape.positions)).tolist()
            margins(network, ids, kind, kind.name != "float32", [None] * len(ids))
    return least, asked


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Prove the prompts of a fixture folder with outward-rounded intervals."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", action="append", choices=sorted(TYPES), help="default: all three")
    parser.add_argument("--unknown", type=int, default=1, help="random inputs that must stay finite")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        found = check(options.folder, options.dtype or list(TYPES), options.unknown)
    except Unreadable as error:
        found = {"folder": str(options.folder), "verdict": "unreadable", "reason": str(error)}
    if options.json:
        print(json.dumps(found, allow_nan=False))
    else:
        print(found["verdict"], found.get("reason", ""))
        for name, part in found.get("types", {}).items():
            margin = f"margin >= {part['margin']:.2f} nats at {part['positions']} positions" if "margin" in part else ""
            print(f"  {name}: {part['verdict']} {margin} {part.get('reason', '')}".rstrip())
    return {"proved": 0, "not proved": 1}.get(found["verdict"], 2)


if __name__ == "__main__":
    sys.exit(main())
