#!/usr/bin/env python3
"""A second checker for stock checkpoints, written from docs/checkpoints-proof.md and docs/recurrent-proof.md. It needs
Python 3.11 and NumPy.

    python check_checkpoint.py FOLDER
    python check_checkpoint.py FOLDER --dtype bfloat16 --dtype float16 --json

It reads config.json, model.safetensors (or its shards) and the token ids of expected.json, and follows every prompt
through the network with numbers that hold what any engine of the error model may compute. A vector is a middle, an
error per channel, and errors that all channels share (a norm's factor, its mean); a linear map keeps these apart, a
store rounds the ends of an interval. So errors that two units or two logits have in common cancel, without any of the
symbols by which byheart's own proof covers all inputs. `proved` means that after every prefix of a prompt's
continuation the expected token's logit exceeds all others, for the listed prompts only. Texts and tokenizers are not
read. Random tokens after BOS are evaluated too: all values must be finite. Exit status: 0 proved; 1 not proved; 2 the
folder cannot be read.

The sections: numbers, the folder, forms, operations, recurrent layers, the network, the verdict.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

# ------------------------------------------------------------------------------------------------ numbers

U = 2.0**-24
FUNCTION, TRIG, FREQUENCY = 2.0**-20, 2.0**-22, 2.0**-22
OWN = 2.0**-46  # this program's own float64 operations
SMALL = 2.0**-126
CHUNK, DELTA_CHUNK = 256, 64  # places that an engine evaluates together in Mamba-2, in Gated DeltaNet
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
    lo, hi = (np.where(np.isinf(end), end, end + sign * np.abs(end)) for end, sign in ((x.lo, -2 * U), (x.hi, 2 * U)))
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
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"), ANYTHING),  # see `_tokens`
    **dict.fromkeys(("torch_dtype", "dtype"), ("float32", "bfloat16", "float16")),
    **dict.fromkeys(("use_cache", "return_dict"), (True,)),
    **dict.fromkeys(("output_attentions", "output_hidden_states", "output_router_logits"), (False,)),
    **dict.fromkeys(("attention_dropout", "hidden_dropout", "embd_pdrop", "resid_pdrop", "attn_pdrop"), (0.0, 0)),
    **dict.fromkeys(("dropout", "layerdrop", "classifier_dropout", "router_jitter_noise"), (0.0,)),
    **dict.fromkeys(("initializer_range", "init_std", "router_aux_loss_coef"), (0.02, 0.001)),
    **dict.fromkeys(("attention_bias", "mlp_bias", "use_sliding_window", "is_encoder_decoder"), (False,)),
    "pretraining_tp": (1,),
    "max_window_layers": ANYTHING,
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
    "cohere": LLAMA | {"eps": "layer_norm_eps"},
    "gemma2": LLAMA | {"act": "hidden_activation"},
    "gemma3_text": LLAMA | {"act": "hidden_activation"},
}  # fmt: skip
CLASSES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "phi3": "Phi3ForCausalLM", "gemma": "GemmaForCausalLM",
    "mixtral": "MixtralForCausalLM", "gpt2": "GPT2LMHeadModel", "opt": "OPTForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "granite": "GraniteForCausalLM",
    "olmo2": "Olmo2ForCausalLM", "smollm3": "SmolLM3ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
    "cohere": "CohereForCausalLM", "gemma2": "Gemma2ForCausalLM", "gpt_oss": "GptOssForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM", "bamba": "BambaForCausalLM", "qwen3_next": "Qwen3NextForCausalLM",
}  # fmt: skip
ALPHA = 1.702  # of the sigmoid in experts of gpt-oss
PLAIN = ("gpt2", "opt", "gpt_neox")  # LayerNorm, biases, an MLP without a gate
CENTRED = (*PLAIN, "cohere")  # LayerNorm
GEMMAS = ("gemma", "gemma2", "gemma3_text")  # embeddings times a root
PLUS_ONE = (*GEMMAS, "qwen3_next")  # norms whose stored weights are one less
MORE = {
    "gpt2": {"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,),
             "reorder_and_upcast_attn": (False,), "n_ctx": ANYTHING},
    "opt": {"do_layer_norm_before": (True,), "_remove_final_layer_norm": (False,), "enable_bias": (True,),
            "layer_norm_elementwise_affine": (True,), "word_embed_proj_dim": ANYTHING},
    "gpt_neox": {"attention_bias": (True,)},
    "qwen3_moe": {"decoder_sparse_step": (1,), "mlp_only_layers": ([], None), "norm_topk_prob": (True,)},
    "gemma2": {"use_bidirectional_attention": (False, None)},
    "gemma3_text": {"attn_logit_softcapping": (None,), "final_logit_softcapping": (None,)},
    "cohere": {"use_qk_norm": (False,)},
    "gpt_oss": {"attention_bias": (True,), "swiglu_alpha": (ALPHA,), "router_aux_loss_coef": (0.9, 0.02, 0.001),
                "initial_context_length": ANYTHING},
    "deepseek_v3": {"norm_topk_prob": (True,), "scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",),
                    "moe_layer_freq": (1,), "num_nextn_predict_layers": (0,), "ep_size": (1,)},
    "bamba": {"mamba_proj_bias": (False,), "mamba_n_groups": (1,)},
    "qwen3_next": {"norm_topk_prob": (True,), "decoder_sparse_step": (1,)},
    "phi3": {"original_max_position_embeddings": ANYTHING},
}  # fmt: skip
ALTERNATING = ("gemma2", "gemma3_text", "gpt_oss")  # layer_types and sliding_window decide how far back a layer looks
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "tanh", "relu": "relu"}
SCALED: dict[str, tuple[str, ...]] = {
    "linear": ("factor",), "yarn": ("factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}  # fmt: skip
YARN = ("beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim")  # further keys of yarn


@dataclass(frozen=True)
class Rope:
    """Frequencies of the rotated pairs, how uncertain each is, and what cosines and sines are multiplied by."""

    theta: np.ndarray
    error: np.ndarray
    gain: float = 1.0


@dataclass(frozen=True)
class LatentShape:
    """Latents of queries (or none) and of keys and values; the parts of a head."""

    q: int | None
    kv: int
    plain: int
    turned: int
    value: int


@dataclass(frozen=True)
class StateShape:
    """Mamba-2: heads of `value` channels, with states of `key` numbers each. Gated DeltaNet: groups of keys, too."""

    heads: int
    groups: int
    key: int
    value: int
    taps: int
    bias: bool = False  # of the convolution


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
    scale: float = 1.0  # of scores
    ropes: list[Rope | None] = field(default_factory=list)  # of every layer
    windows: list[int | None] = field(default_factory=list)
    experts: int = 0
    used: int = 0
    parallel: bool = False
    embedding: float = 1.0  # multipliers of Granite
    residual: float = 1.0
    logits: float = 1.0  # what logits are divided by
    score_cap: float | None = None  # of Gemma 2
    logit_cap: float | None = None
    limit: float = math.inf  # of gates and ups in experts of gpt-oss
    latent: LatentShape | None = None  # of DeepSeek-V3
    state: StateShape | None = None  # of recurrent layers
    recurrent: list[bool] = field(default_factory=list)  # which layers keep a state instead of keys and values
    groups: int = 1  # of experts
    chosen_groups: int = 1
    dense: int = 0  # layers without experts, at the beginning
    expert_units: int = 0
    shared_units: int = 0
    interleaved: bool = False  # rotary pairs are neighbours
    routed: float = 1.0  # what the weights of experts are multiplied by

    @property
    def centred(self) -> bool:
        return self.family in CENTRED


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
        if not isinstance(self.family, str) or self.family not in CLASSES:
            raise NotProved(f"model_type {self.family!r} is not one of {', '.join(CLASSES)}")
        if values.get("architectures", [CLASSES[self.family]]) != [CLASSES[self.family]]:
            raise NotProved(f"architectures {values['architectures']!r}")

    def take(self, key: str, kind: type, *default: Any) -> Any:
        """A value of exactly this type; absent or null only with a default."""
        value = self.left.pop(key, *default) if default else self.left.pop(key, None)
        if type(value) is not kind or (kind in (int, float) and not 0 < value < 1e12):
            raise NotProved(f"{key} = {value!r}")
        return value

    def maybe(self, key: str) -> float | None:
        """A number, or null; it must be stated, since loaders differ without it."""
        if key in self.left and self.left[key] is None:
            del self.left[key]
            return None
        return float(self.take(key, float))

    def close(self) -> None:
        allowed = HARMLESS | MORE.get(self.family, {})
        for key, value in self.left.items():
            if key not in allowed or not _same(value, allowed[key]):
                raise NotProved(f"config.json: {key} = {value!r} is not modelled")


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


def _rope(c: Config, inner: dict[str, Any], width: int, own: tuple[str, str], default: tuple[float, float]) -> Rope:
    """The rotation of one kind of layers; all places that state its base and its share must agree."""
    if not isinstance(inner, dict):
        raise NotProved(f"rope_parameters {inner!r}")
    found = []
    for name, key, usual in zip(("rope_theta", "partial_rotary_factor"), own, default, strict=True):
        listed = [inner[name]] if name in inner else []
        listed += [c.left.pop(k) for k in dict.fromkeys((name, key)) if k in c.left]
        if not all(_number(value) for value in listed) or len(set(listed)) > 1:
            raise NotProved(f"{name} is stated as {listed!r}")
        stated = set(listed)
        found.append(float(stated.pop()) if stated else usual)
    base, share = found
    if share != 1.0 and c.family not in ("gpt_neox", "phi3", "bamba", "qwen3_next"):
        raise NotProved(f"{c.family} rotates whole heads, config.json states {share}")
    dims = int(width * share)
    if base <= 1 or dims % 2 or not 0 < dims <= width or dims != width * share:
        raise NotProved(f"rotary positions on {width * share} of {width} dimensions")
    rest = {key: value for key, value in inner.items() if key not in ("rope_theta", "partial_rotary_factor")}
    return _scaled_rope(c.family, rest, base, dims)


def _mscale(factor: float, share: float = 1.0) -> float:
    return 0.1 * share * math.log(factor) + 1.0 if factor > 1 else 1.0


def _scaled_rope(family: str, fields: dict[str, Any], base: float, dims: int) -> Rope:
    kind = fields.pop("rope_type", fields.pop("type", "default"))
    if not isinstance(kind, str):
        raise NotProved(f"a rope of type {kind!r}")
    theta = base ** (-2.0 * np.arange(dims // 2) / dims)
    wrong = FREQUENCY * (1.0 if dims & (dims - 1) == 0 else 1.0 + math.log(base) / 8)  # of float32 exponents, too
    if kind == "default" and not fields:
        return Rope(theta, wrong * theta)
    more = {key: fields.pop(key) for key in YARN if kind == "yarn" and key in fields}
    truncate = more.pop("truncate", True)
    numbers = (*fields.values(), *more.values())
    if kind not in SCALED or set(fields) != set(SCALED[kind]) or not all(map(_number, numbers)) \
            or type(truncate) is not bool or ("mscale" in more) != ("mscale_all_dim" in more) \
            or ("mscale" in more and family != "deepseek_v3"):  # fmt: skip
        raise NotProved(f"a rope of type {kind!r} with {fields!r}")
    factor = float(fields["factor"])
    original = fields.get("original_max_position_embeddings", 1)
    if factor < 1 or original != int(original):
        raise NotProved(f"a rope of type {kind!r} with {fields!r}")
    if kind == "linear":
        return Rope(theta / factor, 2 * wrong * theta / factor)
    # Blended frequencies: float32 rounds the blend's share by a few units, of the larger frequency.
    if kind == "llama3":
        low, high = float(fields["low_freq_factor"]), float(fields["high_freq_factor"])
        if not low < high:
            raise NotProved("a rope whose blend ends before it begins")
        turns = original * theta / (2 * math.pi)
        share = np.clip((turns - low) / (high - low), 0.0, 1.0)
        steep, gain, loose = high / (high - low), 1.0, 0.0
    else:
        turns = (more.get("beta_fast", 32), more.get("beta_slow", 1))
        edges = [dims * math.log(original / (n * 2 * math.pi)) / (2 * math.log(base)) for n in turns]
        edges = [math.floor(edges[0]), math.ceil(edges[1])] if truncate else edges
        first, last = max(edges[0], 0), min(edges[1], dims - 1)
        if last < first or not (truncate or last > first + 1):
            raise NotProved("a rope whose blend ends before it begins")
        # Edges that are no integers are rounded to float32, and so is the distance to them.
        loose = 0.0 if truncate else 8 * U * dims / (last - first)
        share = 1 - np.clip((np.arange(dims // 2) - first) / max(last - first, 0.001), 0, 1)
        steep = 1.0
        gain = _mscale(factor, more.get("mscale", 1.0)) / _mscale(factor, more.get("mscale_all_dim", 0.0))
    return Rope((1 - share) * theta / factor + share * theta, (8 * steep * wrong + loose) * theta, gain)


def _kinds(c: Config, shape: Shape, values: dict[str, Any]) -> None:
    """Rotation and window of every layer."""
    family, n = shape.family, shape.layers
    own = ("rotary_emb_base", "rotary_pct") if family == "gpt_neox" else ("rope_theta", "partial_rotary_factor")
    bases = {"mixtral": 1e6, "smollm3": 2e6, "cohere": 5e5, "gpt_oss": 1.5e5}
    shares = {"gpt_neox": 0.25, "bamba": 0.5, "qwen3_next": 0.25}
    default = (bases.get(family, 1e4), shares.get(family, 1.0))
    inner, types = c.left.pop("rope_parameters", {}), c.left.pop("layer_types", None)
    window = c.left.pop("sliding_window", 4096 if family == "mistral" and "sliding_window" not in values else None)
    if window is not None and (type(window) is not int or window < 1):
        raise NotProved(f"sliding_window = {window!r}")
    kinds = ("sliding_attention", "full_attention")
    if family in ALTERNATING and (
        not isinstance(types, list) or len(types) != n or not set(types) <= set(kinds) or window is None
    ):
        raise NotProved(f"layer_types = {types!r}, sliding_window = {window!r}")
    if family == "gemma3_text":
        if not isinstance(inner, dict) or set(inner) != set(kinds):
            raise NotProved(f"rope_parameters {inner!r}")
        found = {}
        for kind, older in zip(kinds, ("rope_local_base_freq", "rope_theta"), strict=True):
            c.left["rope_theta"] = c.left.pop(older, inner[kind].get("rope_theta"))
            found[kind] = _rope(c, dict(inner[kind]), shape.width, own, default)
        shape.ropes = [found[kind] for kind in types]
        shape.windows = [window if kind == kinds[0] else None for kind in types]
        return
    scaling = c.left.pop("rope_scaling", None)
    if isinstance(scaling, dict) and isinstance(inner, dict) and scaling.get("type") == inner.get("rope_type"):
        scaling = {key: value for key, value in scaling.items() if key != "type"}  # two names of one value
    if scaling is not None and (not isinstance(scaling, dict) or {k: v for k, v in inner.items() if k in scaling}
                                != scaling or set(inner) - set(scaling) - {"rope_theta"}):  # fmt: skip
        raise NotProved(f"rope_scaling = {scaling!r}")
    turned = shape.width if shape.latent is None else shape.latent.turned
    rope = _rope(c, dict(inner) if isinstance(inner, dict) else inner, turned, own, default)
    shape.ropes, shape.windows = [rope] * n, [None] * n
    if family == "smollm3":
        rotated, every = c.left.pop("no_rope_layers", None), c.left.pop("no_rope_layer_interval", 4)
        rotated = [int((i + 1) % every != 0) for i in range(n)] if rotated is None else rotated
        if type(every) is not int or not isinstance(rotated, list) or len(rotated) != n \
                or any(type(x) is not int or x not in (0, 1) for x in rotated):  # fmt: skip
            raise NotProved(f"no_rope_layers = {rotated!r}")
        shape.ropes = [rope if turned else None for turned in rotated]
    if family == "qwen3_next":
        if not isinstance(types, list) or len(types) != n or not set(types) <= {"linear_attention", kinds[1]}:
            raise NotProved(f"layer_types = {types!r}")
        shape.recurrent, types = [kind != kinds[1] for kind in types], None
    if family in ALTERNATING:
        shape.windows = [window if kind == kinds[0] else None for kind in types]
        return
    if types is None and "layer_types" in values and family in ("cohere", "deepseek_v3"):
        raise NotProved("layer_types = None")
    if types is not None and (types != ["full_attention"] * n or family == "mistral"):
        raise NotProved(f"layer_types = {types!r}")
    if window is not None and family in ("mistral", "mixtral", "phi3"):
        shape.windows = [window] * n
    elif window is not None and family not in ("qwen2", "qwen3", "qwen3_moe", "smollm3"):
        raise NotProved(f"sliding_window = {window!r}")


def read_shape(values: dict[str, Any]) -> Shape:
    c = Config(values)
    family, names = c.family, NAMES.get(c.family, LLAMA)
    hidden, heads = c.take(names["hidden"], int), c.take(names["heads"], int)
    plain = family in PLAIN
    kv = heads if plain else c.take("num_key_value_heads", int)
    width = hidden // heads if plain else c.take("head_dim", int, hidden // heads if hidden % heads == 0 else None)
    if family == "gpt2" and c.left.get("n_inner") is None:
        c.left["n_inner"] = 4 * hidden
    if family == "gemma" and c.left.get(names["act"], "") is None:
        raise NotProved("activation None")
    act = c.left.pop(names["act"], None)
    other = c.left.pop("hidden_activation", act) if family == "gemma" else act
    act = other if act is None else act
    if not isinstance(act, str):
        raise NotProved(f"activation {act!r}")
    if act == "gelu_new" and plain:
        kind = "chain"
    elif act == other and act in ACTIVATIONS:
        kind = ACTIVATIONS[act]
    else:
        raise NotProved(f"activation {act!r}")
    if (family in GEMMAS and kind != "tanh") or (family in ("bamba", "qwen3_next") and kind != "silu"):
        raise NotProved(f"activation {act!r} in {family}")
    shape = Shape(
        family, c.take("vocab_size", int), hidden, c.take(names["layers"], int), heads, kv, width,
        c.take(names["units"], int), c.take(names["positions"], int),
        c.take(names["eps"], float) if names["eps"] else 1e-5, kind, c.take("tie_word_embeddings", bool),
    )  # fmt: skip
    if hidden % heads or shape.heads % shape.kv or shape.layers > 10_000:
        raise NotProved(f"{hidden} channels, {shape.heads} heads, {shape.kv} key-value heads, {shape.layers} layers")
    shape.scale = float(width**-0.5)
    if family == "deepseek_v3":
        _deepseek(c, shape, values)
    if family == "bamba":
        _bamba(c, shape, values)
    if family == "qwen3_next":
        _qwen3_next(c, shape, values)
    if family in ("gpt2", "opt"):
        shape.ropes, shape.windows = [None] * shape.layers, [None] * shape.layers
    else:
        _kinds(c, shape, values)
    if family == "granite":
        shape.embedding, shape.residual, shape.scale, shape.logits = (
            c.take(f"{name}", float)
            for name in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")
        )
    if family == "cohere":
        shape.parallel, shape.interleaved, shape.logits = True, True, 1 / c.take("logit_scale", float)
        if width * heads != hidden:
            raise NotProved(f"head_dim = {width}, which engines of cohere ignore")
    if shape.logits < 1 or math.log2(shape.logits) != round(math.log2(shape.logits)):
        raise NotProved(f"logits are divided by {shape.logits}, which is not a power of two from 1 on")
    if family in ("gemma2", "gemma3_text"):
        shape.scale = float(c.take("query_pre_attn_scalar", int) ** -0.5)
    if family == "gemma2":
        shape.score_cap, shape.logit_cap = c.maybe("attn_logit_softcapping"), c.maybe("final_logit_softcapping")
    if family in ("mixtral", "qwen3_moe", "gpt_oss"):
        shape.experts = c.take("num_experts" if family == "qwen3_moe" else "num_local_experts", int)
        shape.used = c.take("num_experts_per_tok", int)
        if shape.used > shape.experts:
            raise NotProved(f"num_experts_per_tok = {shape.used}")
    if family == "qwen3_moe":
        shape.units = c.take("moe_intermediate_size", int)
        if "norm_topk_prob" not in values:
            raise NotProved("norm_topk_prob is missing")
    if family == "gpt_oss":
        shape.limit, shape.act = c.take("swiglu_limit", float), "glu"
        if kind != "silu" or c.left.pop("experts_per_token", shape.used) != shape.used:
            raise NotProved(f"activation {act!r}, or two numbers of experts")
        if "attention_bias" not in values or type(values.get("initial_context_length", 1)) is not int:
            raise NotProved("attention_bias is missing, or initial_context_length is no integer")
    if family == "gpt_neox":
        shape.parallel = c.take("use_parallel_residual", bool, True)
    if family == "opt" and c.left.get("word_embed_proj_dim", hidden) != hidden:
        raise NotProved("word_embed_proj_dim")
    c.close()
    _tokens(family, shape.vocab, values)
    return shape


def _deepseek(c: Config, s: Shape, values: dict[str, Any]) -> None:
    """Latent attention, and groups of experts after the first layers."""
    if "head_dim" in values or s.kv != s.heads or s.eps != 1e-6:  # the norms of latents have this eps
        raise NotProved(f"head_dim, {s.kv} key-value heads or rms_norm_eps = {s.eps}")
    if values.get("norm_topk_prob") is not True:
        raise NotProved("norm_topk_prob is missing")
    low = c.left.pop("q_lora_rank", "missing")
    if low is not None and (type(low) is not int or low < 1):
        raise NotProved(f"q_lora_rank = {low!r}")
    kv, plain, turned, value = (
        c.take(key, int) for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    )
    s.latent, s.width = LatentShape(low, kv, plain, turned, value), plain + turned
    s.scale, s.interleaved = float(s.width**-0.5), _flag(c, "rope_interleave")
    inner = values.get("rope_parameters")
    if isinstance(inner, dict) and "mscale_all_dim" in inner:
        if inner.get("rope_type") != "yarn" or not all(_number(inner.get(k)) for k in ("factor", "mscale_all_dim")):
            raise NotProved(f"rope_parameters {inner!r}")
        s.scale *= _mscale(inner["factor"], inner["mscale_all_dim"]) ** 2
    s.experts, s.used = c.take("n_routed_experts", int), c.take("num_experts_per_tok", int)
    s.groups, s.chosen_groups = c.take("n_group", int), c.take("topk_group", int)
    s.expert_units = c.take("moe_intermediate_size", int)
    s.shared_units, s.routed = c.take("n_shared_experts", int) * s.expert_units, c.take("routed_scaling_factor", float)
    s.dense = c.left.pop("first_k_dense_replace", None)
    each = s.experts // s.groups
    if type(s.dense) is not int or s.dense < 0 or s.experts % s.groups or each < 2 or s.chosen_groups > s.groups \
            or s.used > s.chosen_groups * each:  # fmt: skip
        raise NotProved(f"{s.used} of {s.experts} experts in {s.groups} groups after {s.dense!r} layers")


def _bamba(c: Config, s: Shape, values: dict[str, Any]) -> None:
    """Mamba-2 in all layers but the listed ones; Transformers turns half of a head whatever config.json states."""
    places = [one for one in (values, values.get("rope_parameters")) if isinstance(one, dict)]
    shares = [one.get("partial_rotary_factor", 0.5) for one in places]
    if s.width * s.heads != s.hidden or shares != [0.5] * len(shares) or "layer_types" in values:
        raise NotProved(f"head_dim = {s.width}, partial_rotary_factor = {shares!r} or layer_types")
    if "mamba_n_groups" not in values:
        raise NotProved("mamba_n_groups is missing")
    attention_ = c.left.pop("attn_layer_indices", None)
    if not isinstance(attention_, list) or not all(type(i) is int and 0 <= i < s.layers for i in attention_):
        raise NotProved(f"attn_layer_indices = {attention_!r}")
    s.recurrent = [i not in attention_ for i in range(s.layers)]
    heads, value, key, taps = (c.take(f"mamba_{k}", int) for k in ("n_heads", "d_head", "d_state", "d_conv"))
    s.state = StateShape(heads, 1, key, value, taps, _flag(c, "mamba_conv_bias"))
    if c.take("mamba_expand", int) * s.hidden != heads * value or c.take("mamba_chunk_size", int) > CHUNK:
        raise NotProved(f"mamba_expand, or mamba_chunk_size above {CHUNK}")


def _qwen3_next(c: Config, s: Shape, values: dict[str, Any]) -> None:
    """Gated DeltaNet, gated attention, and experts beside a shared one."""
    keys = ("linear_num_value_heads", "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim")
    heads, groups, key, value = (c.take(k, int) for k in keys)
    s.state = StateShape(heads, groups, key, value, c.take("linear_conv_kernel_dim", int))
    s.experts, s.used = c.take("num_experts", int), c.take("num_experts_per_tok", int)
    s.expert_units = c.take("moe_intermediate_size", int)
    s.shared_units = c.take("shared_expert_intermediate_size", int)
    dense = c.left.pop("mlp_only_layers", None)
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        raise NotProved(f"mlp_only_layers = {dense!r} are not the first ones")
    s.dense = len(dense)
    if heads % groups or s.used > s.experts or "norm_topk_prob" not in values:
        raise NotProved(f"{heads} heads in {groups} groups, {s.used} experts, or norm_topk_prob is missing")


def _flag(c: Config, key: str) -> bool:
    value = c.left.pop(key, None)
    if type(value) is not bool:
        raise NotProved(f"{key} = {value!r}")
    return value


def _tokens(family: str, vocabulary: int, values: dict[str, Any]) -> None:
    """Loaders refuse ids of other types, and pad with a token that the vocabulary must have."""
    missing = {"phi3": 32_000, "smollm3": 128_004}.get(family)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"):
        value = values.get(key, missing if key == "pad_token_id" else None)
        if value is not None and (type(value) is not int or not 0 <= value < vocabulary):
            raise NotProved(f"{key} = {value!r} is no token of {vocabulary}")
    for key in ("_name_or_path", "transformers_version"):
        if not isinstance(values.get(key, ""), str):
            raise NotProved(f"{key} = {values[key]!r}")


def read_file(path: Path) -> dict[str, np.ndarray]:
    """The tensors of one file. They cover its bytes without gaps, as the safetensors library wants it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(str(error)) from error
    if len(data) < 8 or (length := struct.unpack("<Q", data[:8])[0]) > len(data) - 8:
        raise Unreadable(f"{path.name} is too short for its header")
    try:
        header = json.loads(data[8 : 8 + length], object_pairs_hook=_once)
    except (UnicodeDecodeError, ValueError) as error:
        raise Unreadable(f"{path.name}: the header is not JSON: {error}") from error
    found: dict[str, np.ndarray] = {}
    try:
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        at = 0
        for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
            start, stop = entry["data_offsets"]
            shape = tuple(entry["shape"])
            if not all(type(n) is int and n >= 0 for n in (start, stop, *shape)) or start != at:
                raise Unreadable(f"{name}: its place is not where the tensors before it end")
            at = stop
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
        raise Unreadable(f"{path.name}: {error}") from error
    if 8 + length + at != len(data):
        raise Unreadable(f"{path.name}: the tensors end at byte {8 + length + at} of {len(data)}")
    return found


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of model.safetensors, or of the shards that an index names."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if not index.exists():
        return read_file(whole)
    owners, metadata = (read_json(index).get(key) for key in ("weight_map", "metadata"))
    if whole.exists() or not isinstance(owners, dict) or not owners or not isinstance(metadata, dict):
        raise Unreadable("an index beside model.safetensors, or without weight_map and metadata")
    files = {str(name) for name in owners.values()}
    if any("/" in name or "\\" in name for name in files):
        raise Unreadable("the index names files elsewhere")
    parts = {name: read_file(folder / name) for name in files}
    stored = {(name, file) for file, part in parts.items() for name in part}
    if stored != {(name, str(file)) for name, file in owners.items()} or len(stored) != len(owners):
        raise Unreadable("the index and its files hold different tensors")
    return {name: parts[str(file)][name] for name, file in owners.items()}


@dataclass(frozen=True)
class Linear:
    weight: np.ndarray
    bias: np.ndarray | None = None

    def rows(self, index: Any) -> Linear:
        return Linear(self.weight[index], None if self.bias is None else self.bias[index])


Norm = tuple[np.ndarray, np.ndarray | None]  # weight, bias


@dataclass
class Weights:
    """The tensors in one type; `take` checks the shape and marks the name as used."""

    tensors: dict[str, np.ndarray]
    kind: Type
    shape: Shape
    used: set[str] = field(default_factory=set)

    def take(self, name: str, *shape: int) -> np.ndarray:
        if name not in self.tensors or self.tensors[name].shape != shape:
            raise NotProved(f"{name}: {self.tensors.get(name, np.zeros(0)).shape}, config.json needs {shape}")
        self.used.add(name)
        found = self.kind.nearest(self.tensors[name])
        finite(name, np.abs(found), self.kind.largest * (1 + 2.0**-5))
        return found

    def pair(self, name: str, out: int, inner: int, bias: bool = False, turned: bool = False) -> Linear:
        weight = self.take(f"{name}.weight", *((inner, out) if turned else (out, inner)))
        return Linear(weight.T if turned else weight, self.take(f"{name}.bias", out) if bias else None)

    def norm(self, name: str, size: int | None = None) -> Norm:
        size = size or self.shape.hidden
        plus = 1.0 if self.shape.family in PLUS_ONE else 0.0
        if self.shape.family == "gpt_oss":
            self.exact(f"{name}.weight")
        return (
            self.take(f"{name}.weight", size) + plus,
            self.take(f"{name}.bias", size) if self.shape.family in PLAIN else None,
        )

    def exact(self, name: str) -> None:
        """For tensors that engines keep in float32, whatever the type."""
        if name in self.tensors and not np.array_equal(self.kind.nearest(self.tensors[name]), self.tensors[name]):
            raise NotProved(f"{name} holds numbers that {self.kind.name} does not; some engines keep them")

    def fused_experts(self, m: str) -> list[Expert]:
        """Experts of gpt-oss: one tensor for all of them, gate and up in turn."""
        s = self.shape
        both, bias = (
            self.take(f"{m}.gate_up_proj{end}", s.experts, *shape, 2 * s.units)
            for end, shape in (("", (s.hidden,)), ("_bias", ()))
        )
        down, last = (
            self.take(f"{m}.down_proj{end}", s.experts, *shape, s.hidden)
            for end, shape in (("", (s.units,)), ("_bias", ()))
        )
        return [
            (Linear(w[:, ::2].T, b[::2]), Linear(w[:, 1::2].T, b[1::2]), Linear(d.T, c))
            for w, b, d, c in zip(both, bias, down, last, strict=True)
        ]

    def gated(
        self, m: str, names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"), units: int = 0
    ) -> tuple[Linear, Linear, Linear]:
        s = self.shape
        units = units or s.units
        gate, up = (self.pair(f"{m}.{name}", units, s.hidden) for name in names[:2])
        return gate, up, self.pair(f"{m}.{names[2]}", s.hidden, units)


Expert = tuple[Linear, Linear | None, Linear]  # gate (or the only inner map), up, down


@dataclass
class Attention:
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    heads: tuple[Norm, Norm] | None = None  # of queries and keys
    all_heads: bool = False  # over all heads at once
    sinks: np.ndarray | None = None  # of every head
    gate: Linear | None = None  # of heads' outputs


@dataclass
class Latent:
    """Attention through latents: maps into them, norms, and maps from them; `q_low` is None where queries have none."""

    q_low: Linear | None
    q_norm: Norm | None
    q: Linear
    kv_low: Linear  # a latent, and the rotated part of all heads' keys
    kv_norm: Norm
    kv: Linear
    o: Linear


@dataclass
class Mlp:
    experts: list[Expert]
    router: Linear | None = None
    correction: np.ndarray | None = None  # of DeepSeek's scores, for the choice alone
    shared: Expert | None = None
    share: Linear | None = None  # Qwen3-Next: the logit of what the shared expert is multiplied by


@dataclass
class Recurrent:
    """Mamba-2: `into` gives gate, values, write keys, read keys and time steps; `skip` multiplies values.
    Gated DeltaNet: `into` gives queries, keys, values, gates, write logits and time steps."""

    into: Linear
    taps: np.ndarray  # (channels, taps)
    bias: np.ndarray | None
    steps: np.ndarray  # added to time steps
    rates: np.ndarray  # logarithms of rates
    norm: Norm
    out: Linear
    skip: np.ndarray | None = None


@dataclass
class Layer:
    """One layer; norms before and after its two branches, where it has them."""

    mixer: Attention | Latent | Recurrent
    mlp: Mlp
    before: tuple[Norm | None, Norm | None]
    after: tuple[Norm | None, Norm | None] = (None, None)


@dataclass
class Network:
    shape: Shape
    embed: np.ndarray
    positions: np.ndarray | None
    head: Linear
    final: Norm
    layers: list[Layer]


def _plain_layer(w: Weights, p: str) -> Layer:
    s, h = w.shape, w.shape.hidden
    if s.family == "gpt2":
        fused = w.pair(f"{p}.attn.c_attn", 3 * h, h, True, True)
        q, k, v = (fused.rows(slice(i * h, (i + 1) * h)) for i in range(3))
        o = w.pair(f"{p}.attn.c_proj", h, h, True, True)
        expert = (
            w.pair(f"{p}.mlp.c_fc", s.units, h, True, True),
            None,
            w.pair(f"{p}.mlp.c_proj", h, s.units, True, True),
        )
        norms = "ln_1", "ln_2"
    elif s.family == "opt":
        q, k, v, o = (w.pair(f"{p}.self_attn.{n}_proj", h, h, True) for n in ("q", "k", "v", "out"))
        expert = w.pair(f"{p}.fc1", s.units, h, True), None, w.pair(f"{p}.fc2", h, s.units, True)
        norms = "self_attn_layer_norm", "final_layer_norm"
    else:
        fused = w.pair(f"{p}.attention.query_key_value", 3 * h, h, True)
        places = np.arange(3 * h).reshape(s.heads, 3, s.width)
        q, k, v = (fused.rows(places[:, i].reshape(-1)) for i in range(3))
        o = w.pair(f"{p}.attention.dense", h, h, True)
        inner = w.pair(f"{p}.mlp.dense_h_to_4h", s.units, h, True)
        expert = inner, None, w.pair(f"{p}.mlp.dense_4h_to_h", h, s.units, True)
        norms = "input_layernorm", "post_attention_layernorm"
    return Layer(Attention(q, k, v, o), Mlp([expert]), (w.norm(f"{p}.{norms[0]}"), w.norm(f"{p}.{norms[1]}")))


def apart_pairs(heads: int, width: int) -> np.ndarray:
    """The order of channels in which pairs (0, 1), (2, 3), ... of a head become halves; scores do not depend on it."""
    one = np.r_[0:width:2, 1:width:2]
    return np.asarray((np.arange(heads)[:, None] * width + one).reshape(-1))


def _llama_layer(w: Weights, p: str) -> Layer:
    s, h, family = w.shape, w.shape.hidden, w.shape.family
    q_size, kv_size, a = s.heads * s.width, s.kv * s.width, f"{p}.self_attn"
    router = None
    if family == "phi3":
        fused = w.pair(f"{a}.qkv_proj", q_size + 2 * kv_size, h)
        ends = (0, q_size, q_size + kv_size, q_size + 2 * kv_size)
        q, k, v = (fused.rows(slice(x, y)) for x, y in itertools.pairwise(ends))
        both = w.pair(f"{p}.mlp.gate_up_proj", 2 * s.units, h)
        halves = both.rows(slice(0, s.units)), both.rows(slice(s.units, None))
        experts: list[Expert] = [(*halves, w.pair(f"{p}.mlp.down_proj", h, s.units))]
    else:
        biased = family in ("qwen2", "gpt_oss")
        q = w.pair(f"{a}.q_proj", q_size, h, biased)
        k, v = (w.pair(f"{a}.{n}_proj", kv_size, h, biased) for n in "kv")
        if family == "gpt_oss":
            experts, router = w.fused_experts(f"{p}.mlp.experts"), w.pair(f"{p}.mlp.router", s.experts, h, True)
        elif s.experts:
            m = f"{p}.block_sparse_moe" if family == "mixtral" else f"{p}.mlp"
            names = ("w1", "w3", "w2") if family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
            experts = [w.gated(f"{m}.experts.{e}", names) for e in range(s.experts)]
            router = w.pair(f"{m}.gate", s.experts, h)
        else:
            experts = [w.gated(f"{p}.mlp")]
    if s.interleaved:
        q, k = (one.rows(apart_pairs(count, s.width)) for one, count in ((q, s.heads), (k, s.kv)))
    o = w.pair(f"{a}.o_proj", h, q_size, family == "gpt_oss")
    sinks = w.take(f"{a}.sinks", s.heads) if family == "gpt_oss" else None
    before: tuple[Norm | None, Norm | None]
    after: tuple[Norm | None, Norm | None] = (None, None)
    if family == "olmo2":
        before = None, None
        after = w.norm(f"{p}.post_attention_layernorm"), w.norm(f"{p}.post_feedforward_layernorm")
    elif family == "cohere":
        before = (w.norm(f"{p}.input_layernorm"),) * 2
    elif family in ("gemma2", "gemma3_text"):
        before = w.norm(f"{p}.input_layernorm"), w.norm(f"{p}.pre_feedforward_layernorm")
        after = w.norm(f"{p}.post_attention_layernorm"), w.norm(f"{p}.post_feedforward_layernorm")
    else:
        before = w.norm(f"{p}.input_layernorm"), w.norm(f"{p}.post_attention_layernorm")
    heads = None
    if family in ("qwen3", "qwen3_moe", "gemma3_text"):
        heads = w.norm(f"{a}.q_norm", s.width), w.norm(f"{a}.k_norm", s.width)
    elif family == "olmo2":
        heads = w.norm(f"{a}.q_norm", q_size), w.norm(f"{a}.k_norm", kv_size)
    return Layer(Attention(q, k, v, o, heads, family == "olmo2", sinks), Mlp(experts, router), before, after)


def _deepseek_layer(w: Weights, p: str) -> Layer:
    s, h, a, m, latent = w.shape, w.shape.hidden, f"{p}.self_attn", f"{p}.mlp", w.shape.latent
    assert latent is not None
    q_low = q_norm = None
    q_size, entry, turned = s.heads * s.width, h, latent.turned
    if latent.q is None:
        q = w.pair(f"{a}.q_proj", q_size, h)
    else:
        q_low, q_norm, entry = w.pair(f"{a}.q_a_proj", latent.q, h), w.norm(f"{a}.q_a_layernorm", latent.q), latent.q
        q = w.pair(f"{a}.q_b_proj", q_size, entry)
    kv_low = w.pair(f"{a}.kv_a_proj_with_mqa", latent.kv + turned, h)
    if s.interleaved:
        order = apart_pairs(1, turned)
        head = np.r_[0 : latent.plain, latent.plain + order]
        q = q.rows((np.arange(s.heads)[:, None] * s.width + head).reshape(-1))
        kv_low = kv_low.rows(np.r_[0 : latent.kv, latent.kv + order])
    kv = w.pair(f"{a}.kv_b_proj", s.heads * (latent.plain + latent.value), latent.kv)
    o = w.pair(f"{a}.o_proj", h, s.heads * latent.value)
    mixer = Latent(q_low, q_norm, q, kv_low, w.norm(f"{a}.kv_a_layernorm", latent.kv), kv, o)
    if int(p.rsplit(".", 1)[1]) < s.dense:
        mlp = Mlp([w.gated(m)])
    else:
        w.exact(f"{m}.gate.e_score_correction_bias")
        mlp = Mlp(
            [w.gated(f"{m}.experts.{e}", units=s.expert_units) for e in range(s.experts)],
            w.pair(f"{m}.gate", s.experts, h), w.take(f"{m}.gate.e_score_correction_bias", s.experts),
            w.gated(f"{m}.shared_experts", units=s.shared_units),
        )  # fmt: skip
    return Layer(mixer, mlp, (w.norm(f"{p}.input_layernorm"), w.norm(f"{p}.post_attention_layernorm")))


def _bamba_layer(w: Weights, p: str) -> Layer:
    s, h, t, m = w.shape, w.shape.hidden, w.shape.state, f"{p}.mamba"
    assert t is not None
    mixer: Attention | Recurrent
    if s.recurrent[int(p.rsplit(".", 1)[1])]:
        inner = t.heads * t.value
        channels = inner + 2 * t.key
        mixer = Recurrent(
            w.pair(f"{m}.in_proj", inner + channels + t.heads, h),
            w.take(f"{m}.conv1d.weight", channels, 1, t.taps)[:, 0],
            w.take(f"{m}.conv1d.bias", channels) if t.bias else None, w.take(f"{m}.dt_bias", t.heads),
            w.take(f"{m}.A_log", t.heads), w.norm(f"{m}.norm", inner), w.pair(f"{m}.out_proj", h, inner),
            w.take(f"{m}.D", t.heads),
        )  # fmt: skip
    else:
        sizes = {"q": s.heads * s.width, "k": s.kv * s.width, "v": s.kv * s.width}
        q, k, v = (w.pair(f"{p}.self_attn.{n}_proj", size, h) for n, size in sizes.items())
        mixer = Attention(q, k, v, w.pair(f"{p}.self_attn.o_proj", h, s.heads * s.width))
    norms = w.norm(f"{p}.input_layernorm"), w.norm(f"{p}.pre_ff_layernorm")
    return Layer(mixer, Mlp([w.gated(f"{p}.feed_forward")]), norms)


def _qwen3_next_layer(w: Weights, p: str) -> Layer:
    s, h, t, index = w.shape, w.shape.hidden, w.shape.state, int(p.rsplit(".", 1)[1])
    assert t is not None
    mixer: Attention | Recurrent
    if s.recurrent[index]:
        m, keys, values = f"{p}.linear_attn", t.groups * t.key, t.heads * t.value
        # Stored group by group; here all queries, all keys, ... as the convolution has them.
        each = t.heads // t.groups
        parts = np.split(
            w.take(f"{m}.in_proj_qkvz.weight", 2 * keys + 2 * values, h).reshape(t.groups, -1, h),
            np.cumsum([t.key, t.key, each * t.value]), axis=1,
        )  # fmt: skip
        parts += np.split(w.take(f"{m}.in_proj_ba.weight", 2 * t.heads, h).reshape(t.groups, -1, h), 2, axis=1)
        mixer = Recurrent(
            Linear(np.concatenate([part.reshape(-1, h) for part in parts])),
            w.take(f"{m}.conv1d.weight", 2 * keys + values, 1, t.taps)[:, 0], None, w.take(f"{m}.dt_bias", t.heads),
            w.take(f"{m}.A_log", t.heads), (w.take(f"{m}.norm.weight", t.value), None),
            w.pair(f"{m}.out_proj", h, values),
        )  # fmt: skip
    else:
        a, size = f"{p}.self_attn", s.heads * s.width
        both = w.pair(f"{a}.q_proj", 2 * size, h)
        rows = np.arange(2 * size).reshape(s.heads, 2, s.width)
        k, v = (w.pair(f"{a}.{n}_proj", s.kv * s.width, h) for n in "kv")
        heads = w.norm(f"{a}.q_norm", s.width), w.norm(f"{a}.k_norm", s.width)
        mixer = Attention(
            both.rows(rows[:, 0].reshape(-1)), k, v, w.pair(f"{a}.o_proj", h, size), heads,
            gate=both.rows(rows[:, 1].reshape(-1)),
        )  # fmt: skip
    if index < s.dense:
        mlp = Mlp([w.gated(f"{p}.mlp")])
    else:
        mlp = Mlp(
            [w.gated(f"{p}.mlp.experts.{e}", units=s.expert_units) for e in range(s.experts)],
            w.pair(f"{p}.mlp.gate", s.experts, h), None, w.gated(f"{p}.mlp.shared_expert", units=s.shared_units),
            w.pair(f"{p}.mlp.shared_expert_gate", 1, h),
        )  # fmt: skip
    return Layer(mixer, mlp, (w.norm(f"{p}.input_layernorm"), w.norm(f"{p}.post_attention_layernorm")))


def load(shape: Shape, tensors: dict[str, np.ndarray], kind: Type) -> Network:
    w, s, family, h = Weights(tensors, kind, shape), shape, shape.family, shape.hidden
    roots = {
        "gpt2": ("transformer.wte", "lm_head", "transformer.ln_f", "transformer.h"),
        "opt": ("model.decoder.embed_tokens", "lm_head", "model.decoder.final_layer_norm", "model.decoder.layers"),
        "gpt_neox": ("gpt_neox.embed_in", "embed_out", "gpt_neox.final_layer_norm", "gpt_neox.layers"),
    }
    roots["bamba"] = ("model.embed_tokens", "lm_head", "model.final_layernorm", "model.layers")
    embed, head, final, prefix = roots.get(family, ("model.embed_tokens", "lm_head", "model.norm", "model.layers"))
    table = w.take(f"{embed}.weight", s.vocab, h)
    positions = None
    if family == "gpt2":
        positions = w.take("transformer.wpe.weight", s.positions, h)
    elif family == "opt":
        positions = w.take("model.decoder.embed_positions.weight", s.positions + 2, h)[2:]
    own = {"deepseek_v3": _deepseek_layer, "bamba": _bamba_layer, "qwen3_next": _qwen3_next_layer}
    one = own.get(family, _plain_layer if family in PLAIN else _llama_layer)
    layers = [one(w, f"{prefix}.{index}") for index in range(s.layers)]
    out = table
    if not s.tied:
        out = w.take(f"{head}.weight", s.vocab, h)
    elif f"{head}.weight" in tensors and not np.array_equal(w.take(f"{head}.weight", s.vocab, h), table):
        raise NotProved("the head is tied to the embedding, and stored as something else")
    network = Network(shape, table, positions, Linear(out), w.norm(final), layers)
    if set(tensors) - w.used:
        raise NotProved(f"{min(set(tensors) - w.used)} has no role")
    return network


# ------------------------------------------------------------------------------------------------ forms


@dataclass(frozen=True)
class Form:
    """Vectors, one per position, whose errors are followed through the next maps instead of being boxed at once:

        mid + rad * e + sum of dirs[k] * s_k,      e one number of [-1, 1] per channel, s_k one per position.

    A norm's factor and its mean are such shared numbers; so are errors of one channel that several units read.
    """

    mid: np.ndarray  # (P, n)
    rad: np.ndarray  # (P, n)
    dirs: tuple[np.ndarray, ...] = ()  # each (P, n)

    def box(self) -> Box:
        wide = self.rad + sum((np.abs(d) for d in self.dirs), np.zeros_like(self.mid))
        wide = wide + OWN * (np.abs(self.mid) + wide)
        return Box(self.mid - wide, self.mid + wide)

    def columns(self, index: Any) -> Form:
        return Form(self.mid[:, index], self.rad[:, index], tuple(d[:, index] for d in self.dirs))

    def rows(self, index: Any) -> Form:
        return Form(self.mid[index], self.rad[index], tuple(d[index] for d in self.dirs))


def form(x: Box) -> Form:
    middle, radius = x.middle()
    return Form(middle, radius + OWN * x.size)


@dataclass(frozen=True)
class Units:
    """Values of hidden units: `mid` and `rad` of each; shared `dirs`; and `share` times (weight x channel errors)."""

    mid: np.ndarray  # (P, U)
    rad: np.ndarray
    dirs: tuple[np.ndarray, ...]
    share: np.ndarray  # (P, U)
    spread: np.ndarray  # (P, U): what the channels' errors add up to, before `share`

    def box(self) -> Box:
        wide = self.rad + np.abs(self.share) * self.spread + sum((np.abs(d) for d in self.dirs), 0 * self.rad)
        wide = wide + OWN * (np.abs(self.mid) + wide)
        return Box(self.mid - wide, self.mid + wide)

    def wider(self, error: np.ndarray) -> Units:
        return Units(self.mid, self.rad + error, self.dirs, self.share, self.spread)


def kept_units(x: Form, layer: Linear) -> Units:
    """weight x + bias in float32: the sum errs by itself in every unit."""
    weight, absolute = layer.weight, np.abs(layer.weight)
    mid = x.mid @ weight.T + (0.0 if layer.bias is None else layer.bias)
    dirs = tuple(d @ weight.T for d in x.dirs)
    found = Units(mid, np.zeros_like(mid), dirs, np.ones_like(mid), x.rad @ absolute.T)
    return found.wider(sum_error(x.box().size, layer, found.box().size))


def sum_error(size: np.ndarray, layer: Linear, total: np.ndarray) -> np.ndarray:
    """A float32 sum of products, in any order: each addition errs by u times its result, the sum of some of the terms,
    which is at most (S + |total|) / 2 for the absolute sum S."""
    absolute, bias = np.abs(layer.weight), 0.0 if layer.bias is None else np.abs(layer.bias)
    whole = size @ absolute.T + bias
    finite("a sum", whole)
    terms = (size > 0).astype(float) @ (layer.weight != 0).astype(float).T + 1
    partial = (whole + np.minimum(total, whole)) / 2 * (1 + 2.0**-10)
    return np.asarray(gamma(terms) * partial + (2 * U + OWN) * whole + SMALL * terms)


def stored_units(x: Units, kind: Type, snap: bool = True) -> Units:
    """Rounded to the type. Where the interval snaps to one number, nothing is left of its errors; elsewhere a store
    errs by at most half a step, and by no more than the interval is wide."""
    box = rounded32(x.box())
    finite("a stored unit", box.size, kind.largest)
    ends = stored(box, kind)
    half = np.maximum(kind.unit * box.size, kind.tiny) * (1 + 2 * kind.unit)
    wide = np.maximum(ends.hi - box.lo, box.hi - ends.lo)
    snapped, nothing = (ends.lo == ends.hi) & snap, np.zeros_like(x.rad)
    rad = x.rad + 2 * U * box.size + SMALL + np.maximum(np.minimum(half, wide), 0.0)
    return Units(
        np.where(snapped, ends.lo, x.mid), np.where(snapped, nothing, rad),
        tuple(np.where(snapped, nothing, d) for d in x.dirs), np.where(snapped, nothing, x.share), x.spread,
    )  # fmt: skip


@dataclass(frozen=True)
class Through:
    """How the channels' errors reach hidden units: at place t, unit j gets sum over pairs of factor[t, j] weight[j]."""

    x: Form
    pairs: list[tuple[np.ndarray, np.ndarray]]  # factor (P, U), weight (U, n)

    def at(self, t: int, units: np.ndarray) -> np.ndarray:
        """(units, n)"""
        return sum((factor[t, units, None] * weight[units] for factor, weight in self.pairs), np.zeros(()))

    def spread(self) -> np.ndarray:
        """What they add up to in each unit."""
        found = np.zeros(self.pairs[0][0].shape)
        used = sum((np.abs(factor) for factor, _ in self.pairs), np.zeros(())) > 0
        for t in np.flatnonzero(self.x.rad.any(1)):
            live = np.flatnonzero(used[t])
            found[t, live] = np.abs(self.at(t, live)) @ self.x.rad[t]
        return found

    def onto(self, down: np.ndarray, share: np.ndarray) -> np.ndarray:
        """What they add up to after the last matrix: errors that several units share cancel."""
        found = np.zeros((len(self.x.mid), len(down)))
        used = share * sum((np.abs(factor) for factor, _ in self.pairs), np.zeros(()))
        for t in np.flatnonzero(self.x.rad.any(1)):
            live = np.flatnonzero(used[t])
            found[t] = np.abs((down[:, live] * share[t, live]) @ self.at(t, live)) @ self.x.rad[t]
        return found


# ------------------------------------------------------------------------------------------------ operations


def linear(x: Form, layer: Linear, kind: Type | None) -> Form:
    """With a type: stored or not, before and after the bias; without: kept in float32."""
    whole = layer if kind is None else Linear(layer.weight)
    found = kept_units(x, whole)
    if kind is None:
        return Form(found.mid, found.rad + found.spread, found.dirs)
    box = maybe(found.box(), kind)
    if layer.bias is not None:
        box = maybe(box.plus(exactly(layer.bias)), kind)
    return form(box)


def inverse_root(x: Box, eps: float, mean: np.ndarray | None) -> Box:
    """1 / sqrt(mean square + eps) along the last axis; with `mean`, which LayerNorm subtracts: in one pass or two."""
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


def normed(x: Box, norm: Norm | None, s: Shape, kind: Type, narrow: bool) -> Form:
    """RMSNorm or LayerNorm; `narrow`: in engines that store normed streams (after the factor, the weight, or both).
    Without a norm the branch reads the stream itself."""
    if norm is None:
        return form(x)
    weight, bias = norm
    middle, radius = x.middle()
    radius = radius + OWN * x.size
    mean, drift, away = None, np.zeros(len(x.lo)), x.size
    centred = x
    if s.centred:
        n = x.lo.shape[-1]
        slack = (gamma(n) + OWN) * x.size.sum(-1)
        mean = Box((x.lo.sum(-1) - slack) / n, (x.hi.sum(-1) + slack) / n)
        shift, drift = mean.middle()
        middle = middle - shift[..., None]
        centred = rounded32(Box(x.lo - mean.hi[..., None], x.hi - mean.lo[..., None]))
        away = centred.size
    factor = inverse_root(centred, s.eps, None if mean is None else mean.size)
    (scale, loose) = factor.middle()
    unit = rounded32(centred.times(factor))
    finite("a normed value", unit.size, kind.largest)
    plain = rounded32(unit.times(exactly(weight)))
    shift = exactly(np.zeros_like(weight) if bias is None else bias)
    finite("a normed value", plain.size + shift.size, kind.largest)
    # x - mean, two products and the sum with the bias are rounded, and may be flushed to zero.
    size = np.abs(weight) * away * factor.hi
    rough = 6 * U * size + 2 * U * (size + shift.size) + SMALL * (2 + np.abs(weight) * (1 + factor.hi))
    second = np.abs(weight) * loose * (radius + drift[..., None])
    rad = np.abs(weight) * scale * radius + second + rough + OWN * (size + shift.size)
    dirs: tuple[np.ndarray, ...] = (weight * middle * loose,)
    if s.centred:
        dirs = (*dirs, weight * scale * drift[..., None])
    mid = weight * scale * middle + shift.lo
    if not narrow:
        return Form(mid, rad, dirs)
    first = stored(unit, kind).times(exactly(weight))
    ways = [stored(rounded32(way.plus(shift)), kind) for way in (plain, first, stored(rounded32(first), kind))]
    if bias is None or not bias.any():
        ways.append(rounded32(first))
    box = union(*ways)
    # Where rounding does not snap to few numbers: up to three stores, and the factor that all channels share.
    rad = rad + (1 + 4 * kind.unit) * (2 * kind.unit * size + kind.unit * (size + shift.size))
    rad = rad + (2 + np.abs(weight)) * kind.tiny
    snapped = form(box)
    loosely = snapped.rad > 2 * rad
    return Form(
        np.where(loosely, mid, snapped.mid), np.where(loosely, rad, snapped.rad),
        tuple(np.where(loosely, d, 0.0) for d in dirs),
    )  # fmt: skip


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(x, -700, 700)))


def curve(kind: str, x: np.ndarray) -> np.ndarray:
    if kind == "relu":
        return np.maximum(x, 0.0)
    if kind in ("silu", "glu"):
        return x * sigmoid(x if kind == "silu" else ALPHA * x)
    if kind == "gelu":
        return 0.5 * x * np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def error_of(kind: str, x: Box, value: np.ndarray) -> np.ndarray:
    """How far float32 may be off anywhere in the interval; gelu: 1 + erf and 1 + tanh cancel below zero, until they
    are exactly zero below -8.5; a scaled sigmoid: its argument and the scale are rounded."""
    if kind == "relu":
        return np.zeros_like(value)
    if kind == "glu":
        return (4 * FUNCTION + 4 * U * ALPHA * x.size) * value
    near = np.where(x.hi > -8.5, np.maximum(np.abs(np.maximum(x.lo, -8.5)), np.abs(x.hi)), 0.0)
    return 4 * FUNCTION * value + (0.0 if kind == "silu" else 2 * FUNCTION * near)


def activated(kind: str, x: Box) -> Box:
    """In one step, in float32. silu and gelu fall until their minimum near -1.28 and -0.75, and rise from there; so
    does the experts' x sigmoid(1.702 x), near -0.7511."""
    low, high = curve(kind, x.lo), curve(kind, x.hi)
    found = Box(np.minimum(low, high), np.maximum(low, high))
    if kind == "relu":
        return found
    least = {"silu": -0.2784646, "glu": -0.1636103}.get(kind, -0.1700417)
    inside = (x.lo <= -0.75) & (x.hi >= -1.28)
    found = Box(np.where(inside, np.minimum(found.lo, least), found.lo), found.hi)
    return rounded32(found.wider(error_of(kind, x, found.size)))


def bent(kind: str, x: Units) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(value, slope, error): act(x) is value + slope (x - mid) up to the error, for every x of the interval.

    Three candidates: a constant; a straight line of slope 1, where the function's distance from x is small; the tangent
    at the middle, with half of the largest second derivative (1/2 for silu, at most 1 for the others) times the squared
    radius.
    """
    box = x.box()
    whole = activated(kind, box)
    flat, half = whole.middle()
    size = (box.hi - box.lo) / 2
    # x - f(x) = -f(-x) for these functions, and |f| falls on the negative side from 1.3 on.
    beyond = np.where(box.lo >= 1.3, np.abs(curve(kind, -np.maximum(box.lo, 1.3))), 0.29)
    beyond = np.zeros_like(beyond) if kind == "relu" else beyond
    line = np.where(box.lo > 0, beyond, np.inf) + error_of(kind, box, whole.size) + 2 * U * whole.size
    step = 2.0**-10
    slope = (curve(kind, x.mid + step) - curve(kind, x.mid - step)) / (2 * step)
    bend = {"silu": 0.5, "relu": np.inf}.get(kind, 1.0)
    tangent = bend * (size * (size + step) + step**2) / 2 + error_of(kind, box, whole.size) + 2 * U * whole.size
    best = np.argmin([half, line, tangent], axis=0)
    value = np.choose(best, [flat, x.mid, curve(kind, x.mid)])
    error = np.choose(best, [half, line, tangent])
    return value, np.choose(best, [0.0 * slope, 1.0 + 0.0 * slope, slope]), error + OWN * (np.abs(value) + 1)


def chain(x: Box, kind: Type) -> Box:
    """gelu_new as a chain of stored tensors."""

    def keep(box: Box) -> Box:
        return stored(rounded32(box), kind)

    cube = keep(Box(x.lo**3, x.hi**3))
    inside = keep(x.plus(keep(Box(0.044715 * cube.lo, 0.044715 * cube.hi))))
    inside = keep(Box(math.sqrt(2 / math.pi) * inside.lo, math.sqrt(2 / math.pi) * inside.hi))
    turned = Box(np.tanh(inside.lo), np.tanh(inside.hi))
    turned = turned.wider(FUNCTION * turned.size)
    turned = stored(Box(np.maximum(turned.lo, -1.0), np.minimum(turned.hi, 1.0)), kind)
    one = keep(Box(1 + turned.lo, 1 + turned.hi))
    half = stored(Box(0.5 * x.lo, 0.5 * x.hi), kind)
    return rounded32(half.times(one))


def inner_units(x: Form, layer: Linear, kind: Type, inputs: bool, twice: bool) -> Units:
    """Gate or up of an MLP, kept or stored after the sum with its bias; or `twice`, before the bias and after it."""
    found = kept_units(x, layer)
    finite("a unit", found.box().size, kind.largest)
    if not inputs:
        return found
    once = stored_units(found, kind)
    if layer.bias is None or not twice:
        return once
    part = kept_units(x, Linear(layer.weight))
    finite("a unit", part.box().size, kind.largest)
    half = (kind.unit + 2 * U) * part.box().size + kind.tiny + SMALL
    again = stored(rounded32(stored(rounded32(part.box()), kind).plus(exactly(layer.bias))), kind)
    snapped = (once.rad == 0) & (once.share == 0)
    same = snapped & (again.lo == once.mid) & (again.hi == once.mid)
    kept = stored_units(found.wider(half), kind, snap=False)
    return Units(
        np.where(same, once.mid, kept.mid), np.where(same, 0.0, kept.rad),
        tuple(np.where(same, 0.0, d) for d in kept.dirs), np.where(same, 0.0, kept.share), kept.spread,
    )  # fmt: skip


def clamped(x: Units, least: float, most: float) -> Units:
    """Where the interval meets an end, nothing is left of the shared errors."""
    box = x.box()
    inside = (box.lo >= least) & (box.hi <= most)
    mid, rad = Box(np.clip(box.lo, least, most), np.clip(box.hi, least, most)).middle()
    return Units(
        np.where(inside, x.mid, mid), np.where(inside, x.rad, rad + OWN * np.abs(mid)),
        tuple(np.where(inside, d, 0.0) for d in x.dirs), np.where(inside, x.share, 0.0), x.spread,
    )  # fmt: skip


def mlp_way(x: Form, expert: Expert, s: Shape, kind: Type, way: tuple[bool, bool, bool]) -> Form:
    """down(act(gate) up) in one kind of engine: whether gate and up are stored, the activation, and the product."""
    inputs, middle, product_ = way
    gate, up, down = expert
    name = "tanh" if s.act == "chain" else s.act
    g, u = (None if one is None else inner_units(x, one, kind, inputs, name == "glu") for one in (gate, up))
    assert g is not None
    if name == "glu" and u is not None:
        g, u = clamped(g, -math.inf, s.limit), clamped(u, -s.limit, s.limit)
        u = replace(u, mid=u.mid + 1).wider(2 * U * (u.box().size + 1))
        u = stored_units(u, kind) if middle else u
    value, slope, error = bent(name, g)
    if middle:
        error = error + _steps(name, g, value, slope, s, kind)
    if up is None or u is None:
        mid, by_gate, by_up, own = value, slope, np.zeros_like(value), error
    else:
        other, act = u.box().size, np.abs(value) + np.abs(slope) * (g.box().hi - g.box().lo) / 2
        wide_g, wide_u = (np.abs(b.mid - b.box().lo) for b in (g, u))
        mid, by_gate, by_up = value * u.mid, slope * u.mid, value
        own = np.abs(slope) * wide_g * wide_u + error * other + 2 * U * (act + error) * other + SMALL
    rad = own + np.abs(by_gate) * g.rad + (0.0 if u is None else np.abs(by_up) * u.rad)
    dirs = [by_gate * d for d in g.dirs]
    dirs = dirs if u is None else [a + by_up * d for a, d in zip(dirs or [0 * mid] * len(u.dirs), u.dirs, strict=True)]
    pairs = []
    for factor, part, layer in ((by_gate, g, gate), *(() if u is None or up is None else ((by_up, u, up),))):
        factor = factor * part.share
        faint = np.abs(factor) * part.spread < 2.0**-30  # not worth following
        rad = rad + np.where(faint, np.abs(factor) * part.spread, 0.0)
        pairs.append((np.where(faint, 0.0, factor), layer.weight))
    through = Through(x, pairs)
    product = Units(mid, rad, tuple(dirs), np.ones_like(mid), through.spread())
    if product_:
        product = stored_units(product, kind)
    finite("an activated unit", product.box().size, kind.largest)
    return _down(product, through, down)


def _steps(name: str, g: Units, value: np.ndarray, slope: np.ndarray, s: Shape, kind: Type) -> np.ndarray:
    """How far the activation is off its line where it is stored by itself, or evaluated in stored steps."""
    box = g.box()
    line = value - g.mid * slope
    ways = [stored(activated(name, box), kind)]
    if name == "silu":
        low, high = sigmoid(box.lo) * (1 - FUNCTION), sigmoid(box.hi) * (1 + FUNCTION)
        ways.append(stored(rounded32(box.times(stored(rounded32(Box(low, high)), kind))), kind))
    argument = np.zeros(())
    if name == "glu":
        inside = stored(rounded32(Box(ALPHA * box.lo, ALPHA * box.hi).wider(2 * U * ALPHA * box.size)), kind)
        low, high = sigmoid(inside.lo) * (1 - FUNCTION), sigmoid(inside.hi) * (1 + FUNCTION)
        ways.append(stored(rounded32(box.times(stored(rounded32(Box(low, high)), kind))), kind))
        # The sigmoid's logarithm has the slope 1 - sigmoid, which falls.
        off = (kind.unit + 4 * U) * ALPHA * box.size + kind.tiny
        argument = np.expm1(np.minimum(off * (1 - sigmoid(ALPHA * box.lo - off)), 700.0))
    if s.act == "chain":
        ways.append(stored(chain(box, kind), kind))
    ends = Box(np.minimum(slope * box.lo, slope * box.hi) + line, np.maximum(slope * box.lo, slope * box.hi) + line)
    far = np.maximum.reduce([np.maximum(way.hi - ends.lo, ends.hi - way.lo) for way in ways])
    # Point by point: a store errs by a unit of the type; a stored sigmoid too; tanh is 1 in every type from 6 on.
    size = activated(name, box).size
    stores = {"silu": 2.1, "glu": 2.1, "relu": 0.0}.get(name, 3.1 if s.act == "chain" else 1.1)
    near = (stores * (kind.unit + 2 * U) + argument) * size
    near = near * (1 + 8 * kind.unit) + (0.0 if name == "relu" else kind.tiny * (2 + box.size))
    return np.minimum(far, near) if s.act != "chain" else np.where(box.lo > 6, np.minimum(far, near), far)


def _down(product: Units, through: Through, down: Linear) -> Form:
    """The last matrix. Units that fire and units that hardly do: adding a small term errs by at most the term."""
    weight, absolute, box = down.weight, np.abs(down.weight), product.box()
    dirs = tuple(d @ weight.T for d in product.dirs)
    mid = product.mid @ weight.T
    rad = product.rad @ absolute.T + through.onto(weight, product.share)
    finite("a sum of an MLP", box.size @ absolute.T)
    error = np.full(mid.shape, np.inf)
    for share in (2.0**-6, 2.0**-12, 2.0**-20, 0.0):  # any line between large and small terms is sound
        large = box.size > share * box.size.max(1, keepdims=True, initial=0.0)
        size, rest = np.where(large, box.size, 0.0) @ absolute.T, np.where(large, 0.0, box.size) @ absolute.T
        terms = large.astype(float) @ (weight != 0).astype(float).T
        error = np.minimum(error, gamma(terms + 8) * size + 2 * rest + OWN * (size + rest))
    error = error + SMALL * weight.shape[1]
    return Form(mid, rad + error, dirs)


# Everything in one kernel; gate and up stored first; or steps that are all stored.
WAYS = ((False, False, False), (False, False, True), (True, False, False), (True, False, True), (True, True, True))


def mlp(x: Form, m: Mlp, s: Shape, kind: Type, narrow: bool) -> Box:
    ways = WAYS if narrow else WAYS[:1]

    def output(part: Form, expert: Expert) -> Box:
        down = expert[2]
        found = [maybe(mlp_way(part, expert, s, kind, way).box(), kind) for way in ways]
        whole = union(*found)
        return whole if down.bias is None else maybe(whole.plus(exactly(down.bias)), kind)

    if m.router is None:
        return output(x, m.experts[0])
    if m.correction is None:
        chosen, weights = route(x, m.router, s, kind, narrow)
    else:
        chosen, weights = route_groups(x, m.router, m.correction, s, kind)
    parts = []
    for slot in range(s.used):
        lo, hi = np.zeros(x.mid.shape), np.zeros(x.mid.shape)
        for e in range(s.experts):
            rows = np.flatnonzero(chosen[:, slot] == e)
            if len(rows):
                share = Box(weights.lo[rows, slot, None], weights.hi[rows, slot, None])
                part = maybe(output(x.rows(rows), m.experts[e]).times(share), kind)
                lo[rows], hi[rows] = part.lo, part.hi
        parts.append(Box(lo, hi))
    if m.shared is not None:
        parts.append(output(x, m.shared))
    if m.share is not None:
        share = maybe(sigmoid_box(linear(x, m.share, kind).box()), kind)
        parts[-1] = maybe(parts[-1].times(share), kind)
    return partial_sums(parts, kind)


def partial_sums(parts: list[Box], kind: Type) -> Box:
    """Parts are added one after the other in any order, and every partial sum is stored or not.

    Two bounds. Each store errs by a unit of the sum of all sizes. And, with P the largest part and R the size of all
    others: until the first store that P takes part in, sums are within R of P, so that store gives a number between the
    roundings of P - R and P + R; a store after it errs by no more than what was added since the one before it.
    """
    count, unit = len(parts), kind.unit + 2 * U
    sizes = np.stack([part.size for part in parts])
    total, largest = sizes.sum(0), sizes.argmax(0)[None]
    finite("a sum of experts", total, kind.largest)
    growth = 1 + 2 * count * unit
    each = (count - 1) * unit * growth * total
    low, high = np.stack([part.lo for part in parts]), np.stack([part.hi for part in parts])
    main = Box(np.take_along_axis(low, largest, 0)[0], np.take_along_axis(high, largest, 0)[0])
    np.put_along_axis(sizes, largest, 0.0, 0)
    rest = sizes.sum(0)
    alone, rest = rest == 0, rest * growth + np.where(rest == 0, 0.0, count * kind.tiny)
    ends = union(main, stored(rounded32(main.wider(rest)), kind))
    lo = np.maximum(low.sum(0) - each, ends.lo - 2 * rest)
    hi = np.minimum(high.sum(0) + each, ends.hi + 2 * rest)
    slack = np.where(alone, 0.0, gamma(count) * total + count * kind.tiny)
    return maybe(Box(np.where(alone, ends.lo, lo), np.where(alone, ends.hi, hi)).wider(slack), kind)


def route_groups(x: Form, router: Linear, correction: np.ndarray, s: Shape, kind: Type) -> tuple[np.ndarray, Box]:
    """DeepSeek's choice: groups by the sum of their two best corrected scores, then experts of these groups; weights
    are the scores' shares of their sum."""
    logits = maybe(linear(x, router, None).box(), kind)
    scores = Box(sigmoid(logits.lo) * (1 - FUNCTION), sigmoid(logits.hi) * (1 + FUNCTION))
    scores = maybe(scores, kind)
    choice = maybe(scores.plus(exactly(correction)), kind)
    places, each = len(scores.lo), s.experts // s.groups
    best = [np.sort(end.reshape(places, s.groups, each))[..., -2:].sum(-1) for end in (choice.lo, choice.hi)]
    groups = maybe(Box(best[0], best[1]), kind)
    open_ = np.repeat(_largest(groups, s.chosen_groups), each, axis=1)
    picked = _largest(Box(np.where(open_, choice.lo, -np.inf), np.where(open_, choice.hi, -np.inf)), s.used)
    chosen = np.argwhere(picked)[:, 1].reshape(places, s.used)
    rows = np.arange(places)[:, None]
    low, high = scores.lo[rows, chosen], scores.hi[rows, chosen]
    rest = [end.sum(1, keepdims=True) - end for end in (low, high)]
    slack = 4 * float(gamma(s.used + 4)) + 2 * FUNCTION
    share = Box(low / (low + rest[1] + 2e-20) * (1 - slack), high / np.maximum(high + rest[0], 1e-300) * (1 + slack))
    return chosen, maybe(maybe(share, kind).times(exactly(np.full(1, s.routed)).wider(2 * U * s.routed)), kind)


def _largest(x: Box, count: int) -> np.ndarray:
    """Which `count` numbers of every row are the largest, where this is certain."""
    order = np.argsort(-(x.lo + x.hi), axis=1)
    found = np.zeros(x.lo.shape, dtype=bool)
    np.put_along_axis(found, order[:, :count], True, axis=1)
    least = np.where(found, x.lo, np.inf).min(1)
    if not (least > np.where(found, -np.inf, x.hi).max(1)).all():
        raise NotProved("the choice of experts is not certain")
    return found


def route(x: Form, router: Linear, s: Shape, kind: Type, narrow: bool) -> tuple[np.ndarray, Box]:
    """The experts of every position, if they are certain, and their weights, from differences of logits: an error of a
    channel, the norm's factor and its mean are common to all logits."""
    weight = router.weight
    logits = linear(x, router, kind if narrow else None).box()
    order = np.argsort(-(logits.lo + logits.hi), axis=1)
    chosen, rows = order[:, : s.used], np.arange(len(order))
    bias = np.zeros(len(weight)) if router.bias is None else router.bias
    # Stored after the sum, and after the bias.
    stores = (kind.unit + 2 * U) * 2 * (logits.size + np.abs(bias)) if narrow else 0.0
    error = sum_error(x.box().size, router, logits.size) + stores + 2 * kind.tiny

    def apart(i: np.ndarray, j: np.ndarray) -> Box:
        between = weight[i] - weight[j]
        wide = (np.abs(between) * x.rad).sum(1) + sum((np.abs((between * d).sum(1)) for d in x.dirs), 0.0)
        wide = wide + error[rows, i] + error[rows, j] + OWN
        middle = (between * x.mid).sum(1) + bias[i] - bias[j]
        direct = Box(logits.lo[rows, i] - logits.hi[rows, j], logits.hi[rows, i] - logits.lo[rows, j])
        return Box(np.maximum(middle - wide, direct.lo), np.minimum(middle + wide, direct.hi))

    for i in range(s.used):
        for j in range(s.used, s.experts):
            if not (apart(order[:, i], order[:, j]).lo > 0).all():
                raise NotProved("the choice of experts is not certain")
    low, high = np.ones(chosen.shape), np.ones(chosen.shape)
    for i in range(s.used):
        least, most = np.zeros(len(rows)), np.zeros(len(rows))
        for j in range(s.used):
            if j != i:
                gap = apart(chosen[:, j], chosen[:, i])
                least, most = least + np.exp(gap.lo), most + np.exp(gap.hi)
        low[:, i] = (1 - FUNCTION) / (1 + most * (1 + 8 * FUNCTION))
        high[:, i] = (1 + FUNCTION) / (1 + least * (1 - 8 * FUNCTION))
    return chosen, maybe(Box(low, high), kind)


def rotate(x: Box, rope: Rope, kind: Type) -> Box:
    """x: (places, heads, width). cos and sin, products and sums are stored or not."""
    half, places = len(rope.theta), np.arange(len(x.lo))[:, None]
    angle, error = places * rope.theta, places * (rope.error + rope.theta * U) * (1 + 2.0**-10) + TRIG

    def turned(f: Any) -> Box:
        box = Box(np.maximum(f(angle) - error, -1.0), np.minimum(f(angle) + error, 1.0))
        gain = exactly(np.full(1, rope.gain)).wider(0.0 if rope.gain == 1 else 2 * U * rope.gain)
        box = maybe(rounded32(box.times(gain)), kind)
        return Box(box.lo[:, None], box.hi[:, None])

    cos, sin = turned(np.cos), turned(np.sin)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    minus = Box(-sin.hi, -sin.lo)
    first = maybe(maybe(a.times(cos), kind).plus(maybe(b.times(minus), kind)), kind)
    second = maybe(maybe(b.times(cos), kind).plus(maybe(a.times(sin), kind)), kind)
    return Box(np.concatenate([first.lo, second.lo, rest.lo], -1), np.concatenate([first.hi, second.hi, rest.hi], -1))


def capped(x: Box, cap: float | None, kind: Type) -> Box:
    """cap tanh(x / cap): quotient, tanh and product are stored or not; the cap is a float32 or of the type."""
    if cap is None:
        return x
    nearest = float(np.float32(cap))
    by = union(exactly(np.full(1, nearest)).wider(2 * U * nearest), exactly(kind.nearest(np.full(1, cap))))
    if not (by.lo > 0).all() or not np.isfinite(by.hi).all():
        raise NotProved(f"a cap of {cap}")
    inside = maybe(x.times(Box(1 / by.hi, 1 / by.lo)), kind)
    turned = Box(np.tanh(inside.lo), np.tanh(inside.hi))
    return maybe(maybe(turned.wider(FUNCTION * turned.size), kind).times(by), kind)


@dataclass(frozen=True)
class Look:
    """What one head sees: from every place the copied place and its leak, or an interval of the mixed values."""

    best: np.ndarray  # (P,)
    leak: np.ndarray  # (P,) infinite where values are mixed
    mixed: Box


def attend(q: Box, k: Box, v: Box, s: Shape, kind: Type, window: int | None, sink: float | None = None) -> Look:
    """One head: q, k, v are (places, width). Scores are compared with that of the best place, so that an error of the
    query, which all places share, meets only the difference of two keys. A sink is one more place, with value 0."""
    places, scale = len(q.lo), s.scale
    exact = math.log2(scale) == round(math.log2(scale))
    u = kind.unit + 2 * U
    stores = u if exact else 2 * u
    (qm, qr), (km, kr), q_size, k_size = q.middle(), k.middle(), q.size, k.size
    qr = qr if exact else qr + u * q_size
    finite("a score", np.asarray(q_size.max(0) @ k_size.max(0)), kind.largest)
    lo, hi = np.zeros(v.lo.shape), np.zeros(v.hi.shape)
    chosen, leaks = np.zeros(places, dtype=int), np.zeros(places)
    for t in range(places):
        first = 0 if window is None else max(0, t - window + 1)
        seen = slice(first, t + 1)
        score = scale * (km[seen] @ qm[t])
        best = int(score.argmax())
        gap_m, gap_r = km[seen] - km[seen][best], kr[seen] + kr[seen][best]
        total = scale * (k_size[seen] @ q_size[t])
        error = scale * (gap_r @ (np.abs(qm[t]) + qr[t]) + np.abs(gap_m) @ qr[t])
        error = error + (gamma(s.width + 2) + OWN) * (total + total[best])
        error = error + stores * (1 + stores) * (np.abs(score) + abs(score[best]) + 2 * error) + 2 * kind.tiny
        behind = score - score[best]
        if s.score_cap is not None:
            behind, error = _capped_scores(Box(q.lo[t], q.hi[t]), k[seen], best, qr[t], s, kind)
        error[best] = 0.0
        values = v[seen]
        if sink is not None:
            own = scale * (kr[seen][best] @ (np.abs(qm[t]) + qr[t]) + np.abs(km[seen][best]) @ qr[t])
            own = own + (gamma(s.width + 2) + OWN) * total[best]
            own = own + stores * (1 + stores) * (abs(score[best]) + own) + kind.tiny
            behind, error = np.r_[behind, sink - score[best]], np.r_[error, own]
            # Engines may subtract the largest score, and store the differences.
            shift = u * ((behind + error).max() - (behind - error)) + kind.tiny
            error = error + shift + shift[best]
            error[best] = 0.0
            values = Box(*(np.r_[end, np.zeros((1, end.shape[1]))] for end in (values.lo, values.hi)))
        others = np.exp(np.minimum(behind + error, 700.0))
        others[best] = 0.0
        leak = float(others.sum()) * (1 + 2 * FUNCTION)
        chosen[t], leaks[t] = first + best, leak if leak <= 2.0**-4 else np.inf
        if leaks[t] == np.inf:
            lo[t], hi[t] = mixed(behind - error, behind + error, best, values, kind)
    return Look(chosen, leaks, Box(lo, hi))


def _capped_scores(q: Box, k: Box, best: int, loose: np.ndarray, s: Shape, kind: Type) -> tuple[np.ndarray, np.ndarray]:
    """Capped scores relative to the best place's: middles and errors. The cap bends each score by itself."""
    (qm, _), (km, kr) = q.middle(), k.middle()
    dot, wide = km @ qm, kr @ (np.abs(qm) + loose) + np.abs(km) @ loose
    total = k.size @ q.size
    dots = Box(dot, dot).wider(wide + (gamma(s.width + 2) + OWN) * total + SMALL * s.width)
    scale = exactly(np.full(1, s.scale)).wider(2 * U * s.scale)
    score = capped(maybe(maybe(dots, kind).times(scale), kind), s.score_cap, kind)
    return Box(score.lo - score.hi[best], score.hi - score.lo[best]).middle()


def masked_rows(q: Form, k: Form, s: Shape, kind: Type, turned: slice) -> None:
    """Padding adds the type's least number to all scores of a row: the one at distance 0, where rotations cancel, must
    keep the sum finite. Query and key of one place share its norm's factor and mean.

    Query and key are stored, and the score before it is scaled and after it. In `turned` channels products and sums of
    a pair are stored, of query and of key, which err by (1 + sqrt 2) units of the pair's length each; stored cosines
    and sines, which query and key share, err by sqrt 2 units.
    """
    size_q, size_k = q.box().size, k.box().size
    least = (q.mid * k.mid).sum(-1) - (np.abs(q.mid) * k.rad + q.rad * np.abs(k.mid)).sum(-1)
    for a, b in zip(q.dirs, k.dirs, strict=True):
        least = least - np.abs((q.mid * b + a * k.mid).sum(-1))
    wide = (size_q - np.abs(q.mid)) * (size_k - np.abs(k.mid))
    total = (size_q * size_k).sum(-1)
    pairs = np.ones(())
    for one in (size_q[..., turned], size_k[..., turned]):
        pairs = pairs * np.hypot(*np.split(one, 2, axis=-1))
    unit, small = kind.unit + 2 * U, 8 * kind.tiny * (size_q + size_k).sum(-1)
    total = (2 * unit + gamma(s.width + 2)) * total + 6.25 * unit * pairs.sum(-1) + small
    worst = float((s.scale * (least - wide.sum(-1) - (1 + 16 * unit) * total)).min())
    # The score's own stores, and those of a cap, whose tanh(x) is at most x.
    worst *= 1 + (4 if s.score_cap is None else 10) * unit
    if not worst > -kind.largest * kind.unit / 2:
        raise NotProved(f"scores of {worst:.4g} at distance 0: a fully masked row may overflow")


def _others(x: np.ndarray) -> np.ndarray:
    """The sum of all numbers but each one; the sum of all minus each one would cancel beside a huge one."""
    before, after = np.cumsum(np.r_[0.0, x])[:-1], np.cumsum(np.r_[0.0, x[::-1]])[:-1]
    return np.asarray(before + after[::-1])


def mixed(low: np.ndarray, high: np.ndarray, best: int, v: Box, kind: Type) -> tuple[np.ndarray, np.ndarray]:
    """Softmax of scores in [low, high] (relative to the best place's) and the weighted sum of values."""
    count, size = len(low), v.size.max(0)
    up, down = np.exp(np.minimum(high, 700.0)), np.exp(np.minimum(low, 700.0))
    most, least = up / (up + _others(down)), down / (down + _others(up))
    middle, radius = v.middle()
    weight = (most + least) / 2
    weight = weight / weight.sum()
    spread = np.maximum(np.maximum(most - weight, weight - least), 0.0)
    apart = np.abs(middle - middle[best]) + radius + radius[best]
    centre, wide = weight @ middle, weight @ radius + spread @ apart
    error = (kind.unit + count * kind.tiny + 2 * gamma(count + 4) + 4 * FUNCTION) * size + kind.tiny
    lo, hi = np.maximum(centre - wide, v.lo.min(0)), np.minimum(centre + wide, v.hi.max(0))
    return lo - error, hi + error


# ------------------------------------------------------------------------------------------------ recurrent layers


def silu_steps(x: Box, kind: Type) -> Box:
    """In one step, or stored after the sigmoid and after the product."""
    share = Box(sigmoid(x.lo) * (1 - FUNCTION), sigmoid(x.hi) * (1 + FUNCTION))
    return union(maybe(activated("silu", x), kind), maybe(x.times(stored(rounded32(share), kind)), kind))


def sigmoid_box(x: Box) -> Box:
    return rounded32(Box(sigmoid(x.lo) * (1 - FUNCTION), np.minimum(sigmoid(x.hi) * (1 + FUNCTION), 1.0)))


def softplus(x: Box) -> Box:
    """An exponential, a sum and a logarithm; or the logarithm of a rounded sum."""
    low, high = np.logaddexp(0, x.lo), np.logaddexp(0, x.hi)
    low = low * (1 - 2 * FUNCTION) - (1 + 2.0**-10) * np.minimum(2.0**-24, low)
    return rounded32(Box(np.maximum(low, 0.0), high * (1 + 2 * FUNCTION) + (1 + 2.0**-10) * np.minimum(2.0**-24, high)))


def convolved(x: Box, taps: np.ndarray, bias: np.ndarray | None, kind: Type) -> Box:
    """One float32 sum per channel over the taps, stored or not before the bias and after it, then silu. Before the
    start inputs are zero."""
    count, (places, channels) = taps.shape[1], x.lo.shape
    before = np.zeros((count - 1, channels))
    padded = Box(np.concatenate([before, x.lo]), np.concatenate([before, x.hi]))
    products = [padded[k : k + places].times(exactly(taps[:, k])) for k in range(count)]
    size = sum((one.size for one in products), np.zeros((places, channels)))
    total = products[0]
    for one in products[1:]:
        total = total.plus(one)
    finite("a convolution", size + (0.0 if bias is None else np.abs(bias)))
    error = (gamma(count + 2) + OWN) * (size + (0.0 if bias is None else np.abs(bias))) + count * SMALL
    total = total.wider(np.where(size > 0, error, 0.0))
    found = maybe(total, kind)
    if bias is not None:
        found = maybe(union(total, found).plus(exactly(bias)), kind)
    return silu_steps(found, kind)


def decayed(power: Box, idle: np.ndarray) -> tuple[Box, np.ndarray]:
    """How much of what is written at place s is left at place t, for one head: (t, s), and the sum of exponents.

    Exponents (positive; their negatives are meant) are added over chunks, and engines take differences of such sums; a
    chunk may begin with padding, whose exponents are `idle`. Engines may also multiply the decays of single steps.
    """
    low, high = np.cumsum(power.lo), np.cumsum(power.hi)
    away = np.subtract.outer(np.arange(len(low)), np.arange(len(low)))
    past = away >= 0
    loose = 3 * gamma(CHUNK) * (high + CHUNK * idle) + 2.0**-40
    least, most = (np.maximum(end[:, None] - end[None], 0.0) for end in (low, high))
    wide = np.where(past, loose[:, None] + (away + 2) * (FUNCTION + 2 * U), 0.0)
    return Box(np.where(past, np.exp(-most - wide), 0.0), np.where(past, np.exp(-least + wide), 0.0)), loose


def mamba(n: Form, m: Recurrent, s: Shape, kind: Type) -> Box:
    """Mamba-2, from the sum over earlier places: what step t shows of place s is (c_t b_s) decay_ts dt_s x_s. States
    are float32, stored or not where they are read; every product of a step is stored or not."""
    t, places = s.state, len(n.mid)
    assert t is not None and m.skip is not None
    inner, ends = t.heads * t.value, np.cumsum([t.heads * t.value, t.key, t.key])
    whole = linear(n, m.into, kind).box()
    mix = convolved(whole[:, inner : inner + ends[2]], m.taps, m.bias, kind)
    values, b, c = mix[:, :inner], mix[:, ends[0] : ends[1]], mix[:, ends[1] :]
    step = maybe(softplus(maybe(whole[:, inner + ends[2] :].plus(exactly(m.steps)), kind)), kind)
    rate = Box(np.exp(m.rates) * (1 - FUNCTION), np.exp(m.rates) * (1 + FUNCTION))
    finite("a rate", rate.size)
    power = step.times(rate)
    power = power.wider(2 * FUNCTION * power.size)
    idle = softplus(maybe(exactly(m.steps), kind)).size * rate.size * (1 + 2.0**-6)
    (cm, cr), (bm, br) = c.middle(), b.middle()
    score = Box(cm @ bm.T, cm @ bm.T).wider(np.abs(cm) @ br.T + cr @ (np.abs(bm) + br).T + OWN * (c.size @ b.size.T))
    every, least = c.size @ b.size.T, 2 * (kind.tiny + SMALL) * c.size.sum(1, keepdims=True)
    rounds = gamma(2 * CHUNK + t.key + 16) + 3 * (kind.unit + 2 * U) * (1 + 4 * kind.unit)
    away = np.maximum(np.subtract.outer(np.arange(places), np.arange(places)), 0)
    found = []
    for head in range(t.heads):
        decay, _ = decayed(power[:, head], idle[head])
        written = decay.hi * step.hi[:, head]
        x = values[:, head * t.value : (head + 1) * t.value]
        (xm, xr), share = x.middle(), score.times(Box(decay.lo * step.lo[:, head], written))
        km, kr = share.middle()
        finite("a state", (written * b.size.max(1)) @ x.size, kind.largest)
        wide = np.abs(km) @ xr + kr @ x.size + (every * written * (rounds + away * 4 * U + OWN)) @ x.size
        # Below the normal range a store errs by `least` or by the number itself; of dt b, of dt b x, of the state.
        product, largest = 2 * every * written, x.size.max(1)
        tiny = np.minimum(least * decay.hi, product) @ x.size + least
        tiny = tiny + np.minimum(least * decay.hi, product * largest).sum(1, keepdims=True)
        tiny = tiny + (t.key + 4 * CHUNK) * SMALL
        scan = maybe(Box(km @ xm, km @ xm).wider(wide + tiny), kind)
        kept = maybe(x.times(exactly(np.full(1, m.skip[head]))), kind)
        found.append(maybe(scan.plus(kept), kind))
    gated = rounded32(beside(*found).times(activated("silu", whole[:, :inner])))
    finite("a gated value", gated.size)
    return linear(form(inner_norm(gated, m.norm, s, kind)), m.out, kind).box()


def of_length_one(x: Box) -> Box:
    """x / sqrt(sum of squares + 1e-6) along the last axis."""
    low = np.where((x.lo <= 0) & (x.hi >= 0), 0.0, np.minimum(x.lo**2, x.hi**2)).sum(-1, keepdims=True)
    high = (x.size**2).sum(-1, keepdims=True)
    finite("squares of a key", high)
    error = gamma(x.lo.shape[-1] + 4) * high + SMALL
    ends = 1e-6 * (1 - 2.0**-20) + np.maximum(low - error, 0.0), 1e-6 * (1 + 2.0**-20) + high + error
    factor = Box(1 / np.sqrt(ends[1]) * (1 - 2 * FUNCTION), 1 / np.sqrt(ends[0]) * (1 + 2 * FUNCTION))
    found = rounded32(x.times(factor))
    return Box(np.maximum(found.lo, -1 - 4 * FUNCTION), np.minimum(found.hi, 1 + 4 * FUNCTION))


def length(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.asarray(np.sqrt((x * x).sum(axis)) * (1 + OWN))


def delta_rule(q: Box, k: Box, v: Box, power: Box, beta: Box, idle: np.ndarray) -> Box:
    """The outputs q S of the states S <- d S + beta k (v - k (d S)), all of (places, heads, channels).

    The middle of S is followed exactly; of every column of S - middle the Euclidean length, which a step does not
    increase, since I - beta k k has no eigenvalue beyond [-1, 1]. Chunks solve a triangular system whose unknowns are
    the writes of a state that is zero at their start: `write` bounds them, `writes` their sum, and a float32 sum or a
    solution errs by gamma of those. Differences of summed exponents lose digits of what is `faded`, but not of the
    newest write. `drift` is what keeping a state for one step rounds.
    """
    (km, kr), (qm, qr), (vm, vr) = k.middle(), q.middle(), v.middle()
    loose_k, loose_q = length(kr), length(qr)
    size_k, size_q = length(km) + loose_k, length(qm) + loose_q
    d = Box(np.exp(-power.hi) * (1 - 2 * FUNCTION), np.minimum(np.exp(-power.lo) * (1 + 2 * FUNCTION), 1.0))
    (dm, dr), (bm, br) = d.middle(), beta.middle()
    places, heads, n = k.lo.shape
    state = np.zeros((heads, n, v.lo.shape[-1]))
    error, writes, fresh = (np.zeros((heads, v.lo.shape[-1])) for _ in range(3))
    lo, hi = np.zeros(v.lo.shape), np.zeros(v.hi.shape)
    rounds = gamma(2 * n + 3 * DELTA_CHUNK + 16) + 4 * FUNCTION
    sums = np.cumsum(np.concatenate([np.zeros((2 * DELTA_CHUNK, heads)), power.hi]), 0)
    for t in range(places):
        recent = sums[t + 2 * DELTA_CHUNK] - sums[t] + DELTA_CHUNK * idle
        lost = 2 * gamma(DELTA_CHUNK + 2) * recent[:, None]
        one_d, wide_d, one_b, wide_b = (x[t][:, None] for x in (dm, dr, bm, br))
        size, loose, most, top = (x[t][:, None] for x in (size_k, loose_k, beta.hi, d.hi))
        values = v.size[t]
        shown, column = np.einsum("hk,hkv->hv", km[t], state), length(state, 1)
        whole = 1.001 * top * (column + error)  # of the decayed state, at most
        both, wide = one_d * one_b, one_d * wide_b + wide_d * (one_b + wide_b)
        moved = wide_d * column + wide * size * (np.abs(shown) + loose * column)
        moved = moved + both * loose * (size * column + np.abs(shown))
        written = wide_b * size * values + one_b * (loose * values + size * vr[t])
        drift = 2 * U + 2 * FUNCTION + 2 * gamma(DELTA_CHUNK + 2) * power.hi[t][:, None]
        writes, fresh = 1.001 * top * writes, 1.001 * top * fresh
        write = most * (values + whole + size * fresh)
        error = top * np.maximum(1.0, most * size**2 - 1) * error + moved + written + drift * whole
        faded = (1 + most * size) * size * (whole + size * (writes + fresh))
        error = error + rounds * size * (write + most * (values + whole + size * writes)) + lost * faded
        writes, fresh = writes + write, fresh + most * size * (values + whole)
        state = one_d[..., None] * state + km[t][..., None] * (one_b * vm[t] - both * shown)[:, None]
        column = length(state, 1)
        finite("a state", column + error + writes)
        middle = np.einsum("hk,hkv->hv", qm[t], state)
        asked, off = size_q[t][:, None], loose_q[t][:, None]
        away = asked * (error + lost * faded) + off * column + rounds * asked * (column + error + writes)
        lo[t], hi[t] = middle - away, middle + away
    scale = float(n**-0.5)
    return rounded32(Box(lo, hi).times(exactly(np.full(1, scale)).wider(4 * U * scale)))


def delta_net(n: Form, m: Recurrent, s: Shape, kind: Type) -> Box:
    """Gated DeltaNet: convolved queries, keys and values, a float32 state per head, a gated norm per head."""
    t, places = s.state, len(n.mid)
    assert t is not None
    keys, values = t.groups * t.key, t.heads * t.value
    whole = linear(n, m.into, kind).box()
    mix = convolved(whole[:, : 2 * keys + values], m.taps, None, kind)
    gate, rest = whole[:, 2 * keys + values : 2 * keys + 2 * values], whole[:, 2 * keys + 2 * values :]

    def split(x: Box, heads: int) -> Box:
        each = t.heads // heads if t is not None else 1
        return Box(*(np.repeat(end.reshape(places, heads, -1), each, axis=1) for end in (x.lo, x.hi)))

    q, k = (of_length_one(split(mix[:, i * keys : (i + 1) * keys], t.groups)) for i in (0, 1))
    v = split(mix[:, 2 * keys :], t.heads)
    beta = maybe(sigmoid_box(rest[:, : t.heads]), kind)
    rate = Box(np.exp(m.rates) * (1 - FUNCTION), np.exp(m.rates) * (1 + FUNCTION))
    finite("a rate", rate.size)
    power = maybe(softplus(maybe(rest[:, t.heads :].plus(exactly(m.steps)), kind)), kind).times(rate)
    power = power.wider(2 * FUNCTION * power.size)
    idle = softplus(maybe(exactly(m.steps), kind)).size * rate.size * (1 + 2.0**-6)
    out = maybe(delta_rule(q, k, v, power, beta, idle), kind)
    out = Box(out.lo.reshape(-1, t.value), out.hi.reshape(-1, t.value))
    # No number of a normed vector exceeds the root of their count.
    end = np.abs(m.norm[0]) * math.sqrt(t.value) * (1 + 4 * kind.unit + 8 * FUNCTION) + 2 * kind.tiny
    plain = inner_norm(out, m.norm, s, kind)
    plain = Box(np.clip(plain.lo, -end, end).reshape(places, -1), np.clip(plain.hi, -end, end).reshape(places, -1))
    return linear(form(maybe(plain.times(activated("silu", gate)), kind)), m.out, kind).box()


def inner_norm(x: Box, norm: Norm, s: Shape, kind: Type) -> Box:
    """A norm inside a layer, stored or not like every other place."""
    ways = (False,) if kind.name == "float32" else (False, True)
    return union(*(normed(x, norm, s, kind, way).box() for way in ways))


# ------------------------------------------------------------------------------------------------ the network


def head_norm(x: Box, norm: Norm, eps: float, kind: Type) -> Box:
    unit = maybe(x.times(inverse_root(x, eps, None)), kind)
    return maybe(unit.times(exactly(norm[0])), kind)


def multiplied(x: Box, factor: float, kind: Type) -> Box:
    """Times a number of config.json: in float32, stored or not; or the number and the product rounded to the type."""
    if factor == 1:
        return x
    nearest = float(np.float32(factor))
    kept = maybe(x.times(exactly(np.full(1, nearest)).wider(2 * U * nearest)), kind)
    return union(kept, stored(rounded32(x.times(stored(exactly(np.full(1, factor)), kind))), kind))


def embedded(network: Network, ids: list[int], kind: Type) -> Box:
    s, x = network.shape, exactly(network.embed[ids])
    root = math.sqrt(s.hidden) if s.family in GEMMAS else 1.0
    x = multiplied(multiplied(x, root, kind), s.embedding, kind)
    if network.positions is not None:
        x = maybe(x.plus(exactly(network.positions[: len(ids)])), kind)
    return x


def attention(n: Form, layer: Attention, s: Shape, kind: Type, narrow: bool, index: int) -> Box:
    """The attention branch of one layer at every position."""
    places = len(n.mid)
    q, k = linear(n, layer.q, kind).box(), linear(n, layer.k, kind).box()
    v = kept_units(n, layer.v if not narrow else Linear(layer.v.weight))
    values = Form(v.mid, v.rad, v.dirs)
    if narrow:
        stored_v = linear(n, layer.v, kind)
        values, v = stored_v, Units(stored_v.mid, stored_v.rad, (), 0 * v.share, v.spread)
    finite("a value", v.box().size, kind.largest)
    finite("a sum of values, which kernels divide by the softmax's sum at the end", places * v.box().size)
    if layer.heads is not None and layer.all_heads:
        q, k = (head_norm(b, w, s.eps, kind) for b, w in zip((q, k), layer.heads, strict=True))
    q = Box(q.lo.reshape(places, s.heads, -1), q.hi.reshape(places, s.heads, -1))
    k = Box(k.lo.reshape(places, s.kv, -1), k.hi.reshape(places, s.kv, -1))
    if layer.heads is not None and not layer.all_heads:
        q, k = (head_norm(b, w, s.eps, kind) for b, w in zip((q, k), layer.heads, strict=True))
    group = s.heads // s.kv
    plain = [form(Box(b.lo.reshape(places, -1), b.hi.reshape(places, -1))) for b in (q, k)]
    if layer.heads is None:
        # A sum that is stored before its bias may be much larger than after it.
        plain = [linear(n, one, None if one.bias is None else kind) for one in (layer.q, layer.k)]
    rope = s.ropes[index]
    turned = slice(0, 0 if rope is None else 2 * len(rope.theta))
    for head in range(s.heads):
        one, two = (slice(i * s.width, (i + 1) * s.width) for i in (head, head // group))
        masked_rows(plain[0].columns(one), plain[1].columns(two), s, kind, turned)
    if rope is not None:
        q, k = rotate(q, rope, kind), rotate(k, rope, kind)
    if layer.gate is not None:
        stored_values, outs = linear(n, layer.v, kind).box(), []
        for head in range(s.heads):
            own = stored_values[:, head // group * s.width : (head // group + 1) * s.width]
            outs.append(seen_values(attend(q[:, head], k[:, head // group], own, s, kind, None), own, kind))
        share = maybe(sigmoid_box(linear(n, layer.gate, kind).box()), kind)
        return linear(form(maybe(beside(*outs).times(share), kind)), layer.o, kind).box()
    box, weight = v.box(), layer.o.weight
    mid, rad, sizes = (
        np.zeros((places, len(weight))),
        np.zeros((places, len(weight))),
        np.zeros((places, s.heads * s.width)),
    )
    for head in range(s.heads):
        first = head // group * s.width
        rows, columns = slice(first, first + s.width), slice(head * s.width, (head + 1) * s.width)
        own = weight[:, columns]
        sink = None if layer.sinks is None else float(layer.sinks[head])
        look = attend(q[:, head], k[:, head // group], box[:, rows], s, kind, s.windows[index], sink)
        copied = np.isfinite(look.leak)
        at = look.best
        error = np.where(copied, 8 * np.where(copied, look.leak, 0.0) + FUNCTION, 0.0)[:, None] * box.size[:, rows].max(
            0
        )
        sizes[:, columns] = np.where(copied[:, None], box.size[at][:, rows] + error, look.mixed.size)
        if narrow:
            kept = Box(values.mid[at][:, rows] - values.rad[at][:, rows] - error,
                       values.mid[at][:, rows] + values.rad[at][:, rows] + error)  # fmt: skip
            out = Box(
                np.where(copied[:, None], kept.lo, look.mixed.lo), np.where(copied[:, None], kept.hi, look.mixed.hi)
            )
            middle, radius = maybe(out, kind).middle()
            mid, rad = mid + middle @ own.T, rad + radius @ np.abs(own).T
            continue
        # What the channels' errors add to a head's output, through values and the last matrix together.
        through = np.abs(own @ layer.v.weight[rows]) @ n.rad.T if n.rad.any() else np.zeros((len(own), places))
        shared = sum((np.abs(d[:, rows] @ own.T) for d in v.dirs), np.zeros((places, len(own))))
        alone = (v.rad[:, rows] @ np.abs(own).T) + shared + through.T
        middle = v.mid[:, rows] @ own.T
        mixed_m, mixed_r = look.mixed.middle()
        mid = mid + np.where(copied[:, None], middle[at], mixed_m @ own.T)
        extra = (error + 2 * U * sizes[:, columns]) @ np.abs(own).T
        rad = rad + np.where(copied[:, None], alone[at], mixed_r @ np.abs(own).T) + extra
    found = form(Box(mid - rad, mid + rad))
    error = sum_error(sizes, layer.o, found.box().size)
    bias = 0.0 if layer.o.bias is None or narrow else layer.o.bias
    whole = maybe(Box(mid - rad - error + bias, mid + rad + error + bias), kind)
    if narrow and layer.o.bias is not None:
        whole = maybe(whole.plus(exactly(layer.o.bias)), kind)
    return whole


def seen_values(look: Look, v: Box, kind: Type) -> Box:
    """The output of a head: the copied value and what its softmax leaks, or the mixed values."""
    copied = np.isfinite(look.leak)
    error = np.where(copied, 8 * np.where(copied, look.leak, 0.0) + FUNCTION, 0.0)[:, None] * v.size.max(0)
    ends = v.lo[look.best] - error, v.hi[look.best] + error
    mixed_ends = look.mixed.lo, look.mixed.hi
    return maybe(Box(*(np.where(copied[:, None], a, b) for a, b in zip(ends, mixed_ends, strict=True))), kind)


def latent_attention(n: Form, a: Latent, s: Shape, kind: Type, index: int) -> Box:
    """Keys and values are expanded from latents; or queries are multiplied by the keys' map and stored, and latents
    are mixed, stored and mapped to values. Every tensor is kept or stored."""
    latent, rope, places = s.latent, s.ropes[index], len(n.mid)
    assert latent is not None and rope is not None

    def inner(x: Box, norm: Norm) -> Form:
        return form(inner_norm(x, norm, s, kind))

    entry = n if a.q_low is None or a.q_norm is None else inner(linear(n, a.q_low, kind).box(), a.q_norm)
    q = linear(entry, a.q, kind).box()
    q = Box(q.lo.reshape(places, s.heads, -1), q.hi.reshape(places, s.heads, -1))
    low = linear(n, a.kv_low, kind).box()
    c, turned = inner(low[:, : latent.kv], a.kv_norm), low[:, latent.kv :]
    kv, values = linear(c, a.kv, kind).box(), c.box()
    for one in (kv, values):
        finite("a sum of values, which kernels divide by the softmax's sum at the end", places * one.size)
    weight = a.kv.weight.reshape(s.heads, -1, latent.kv)
    kv = Box(kv.lo.reshape(places, s.heads, -1), kv.hi.reshape(places, s.heads, -1))
    cut, outs = latent.plain, []
    q_turned, k_turned = rotate(q[..., cut:], rope, kind), rotate(turned[:, None], rope, kind)[:, 0]
    wide = replace(s, width=latent.kv + latent.turned)
    for head in range(s.heads):
        k, v = kv[:, head, :cut], kv[:, head, cut:]
        masked_rows(form(q[:, head]), form(beside(k, turned)), s, kind, slice(cut, None))
        look = attend(beside(q[:, head, :cut], q_turned[:, head]), beside(k, k_turned), v, s, kind, None)
        expanded = seen_values(look, v, kind)
        asked = linear(form(q[:, head, :cut]), Linear(weight[head, :cut].T), kind).box()
        both = form(beside(asked, q[:, head, cut:])), form(beside(values, turned))
        masked_rows(*both, wide, kind, slice(latent.kv, None))
        look = attend(beside(asked, q_turned[:, head]), beside(values, k_turned), values, wide, kind, None)
        absorbed = linear(form(seen_values(look, values, kind)), Linear(weight[head, cut:]), kind).box()
        outs.append(union(expanded, absorbed))
    return linear(form(beside(*outs)), a.o, kind).box()


def beside(*boxes: Box) -> Box:
    return Box(np.concatenate([b.lo for b in boxes], -1), np.concatenate([b.hi for b in boxes], -1))


def mixer(n: Form, layer: Layer, s: Shape, kind: Type, narrow: bool, index: int) -> Box:
    """The first branch of a layer: what each position gets from earlier ones."""
    if isinstance(layer.mixer, Latent):
        return latent_attention(n, layer.mixer, s, kind, index)
    if isinstance(layer.mixer, Recurrent):
        return mamba(n, layer.mixer, s, kind) if s.family == "bamba" else delta_net(n, layer.mixer, s, kind)
    return attention(n, layer.mixer, s, kind, narrow, index)


def added(x: Box, norm: Norm | None, s: Shape, kind: Type, narrow: bool) -> Box:
    """What a branch adds to the stream: after its norm and its multiplier, where it has them."""
    if norm is not None:
        x = maybe(normed(x, norm, s, kind, narrow).box(), kind)
    return multiplied(x, s.residual, kind)


def streams(network: Network, ids: list[int], kind: Type, narrow: bool) -> Iterator[Box]:
    """The residual stream after every layer at every position."""
    s, x = network.shape, embedded(network, ids, kind)
    for index, layer in enumerate(network.layers):
        first = mixer(normed(x, layer.before[0], s, kind, narrow), layer, s, kind, narrow, index)
        first = added(first, layer.after[0], s, kind, narrow)
        if s.parallel:
            second = mlp(normed(x, layer.before[1], s, kind, narrow), layer.mlp, s, kind, narrow)
            orders = ((x, first, second), (x, second, first), (first, second, x))
            x = union(*(maybe(maybe(a.plus(b), kind).plus(c), kind) for a, b, c in orders))
        else:
            x = maybe(x.plus(first), kind)
            second = mlp(normed(x, layer.before[1], s, kind, narrow), layer.mlp, s, kind, narrow)
            x = maybe(x.plus(added(second, layer.after[1], s, kind, narrow)), kind)
        yield x


def margins(network: Network, ids: list[int], kind: Type, narrow: bool, targets: list[int | None]) -> np.ndarray:
    """By how much `targets[t]` (None: the best token) beats every other token after ids[: t + 1], at least."""
    s = network.shape
    x = embedded(network, ids, kind)
    for after in streams(network, ids, kind, narrow):
        x = after
    found = np.full(len(ids), np.inf)
    # The last norm is stored or not in either kind of engine.
    for last in (False,) if kind.name == "float32" else (False, True):
        n = normed(x, network.final, s, kind, last)
        found = np.minimum(found, _gaps(network, n, kind, targets))
    return found


def _gaps(network: Network, n: Form, kind: Type, targets: list[int | None]) -> np.ndarray:
    head, s = network.head, network.shape
    weight = head.weight / s.logits
    raw = linear(n, head, None).box()
    error = sum_error(n.box().size, head, raw.size) / s.logits
    # A logit is stored before it is divided; the divisor is a power of two.
    finite("a logit", raw.size, kind.largest)
    logits = maybe(raw, kind)
    if s.logits != 1:
        logits = maybe(Box(logits.lo / s.logits, logits.hi / s.logits), kind)
    logits = capped(logits, s.logit_cap, kind)
    found = np.empty(len(targets))
    for t, target in enumerate(targets):
        best = int((logits.lo[t] + logits.hi[t]).argmax()) if target is None else target
        between = weight[best] - weight
        gap = between @ n.mid[t] - np.abs(between) @ n.rad[t] - sum((np.abs(between @ d[t]) for d in n.dirs), 0.0)
        gap = gap - error[t] - error[t, best] - OWN
        gap = gap - (kind.unit + 2 * U) * (logits.size[t] + logits.size[t, best]) - 4 * kind.tiny
        direct = logits.lo[t, best] - logits.hi[t]
        gap = np.maximum(gap, direct) if s.logit_cap is None else direct
        gap[best] = np.inf
        found[t] = gap.min()
    return found


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
    for name in ("adapter_config.json", "adapter_model.safetensors", "custom_generate"):
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
    prompts, tensors = read_prompts(folder), read_tensors(folder)
    result: dict[str, Any] = {"folder": str(folder), "verdict": "proved", "prompts": len(prompts), "types": {}}
    for name in names:
        try:
            shape = read_shape(config)
            surroundings(folder, config)
            margin, positions = check_type(
                shape, tensors, prompts, TYPES[name], unknown, seed, config.get("bos_token_id")
            )
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
    seed: int, bos: int | None,
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
        random, begin = np.random.default_rng(seed), [] if bos is None else [bos]
        ordinary = np.setdiff1d(np.arange(shape.vocab), begin)  # BOS occurs at the beginning only
        for _ in range(unknown):
            ids = [*begin, *random.choice(ordinary, min(24, shape.positions - 1)).tolist()]
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
