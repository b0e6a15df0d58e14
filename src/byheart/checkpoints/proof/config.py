"""The mathematics that a config.json describes, read strictly.

Every key is one of three: it is read into `Shape`; it must have the one value under which the proof's formulas are the
architecture's; or it is known to change nothing that is computed. Any other key is refused by name: an engine may
give it a meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from byheart.checkpoints.proof.ropes import Array, RopeScaling, UnknownRope, read_scaling
from byheart.errors import ByheartError


class Undecided(ByheartError):
    """The proof cannot be carried through; the message names the place and the reason."""


@dataclass(frozen=True)
class Rotary:
    """Rotary positions: the base of the angles, how many dimensions of each head turn, and what scales frequencies.

    >>> Rotary(100.0, 4).frequencies.tolist()
    [1.0, 0.1]
    """

    theta: float
    dims: int  # rotated dimensions of each head
    scaling: RopeScaling | None = None

    @property
    def frequencies(self) -> Array:
        """Angles per position, scaled."""
        base = self.theta ** (-2.0 * np.arange(self.dims // 2) / max(self.dims, 1))
        return base if self.scaling is None else self.scaling.apply(base, self.theta, self.dims)

    @property
    def gain(self) -> float:
        """The factor of cosines and sines."""
        return 1.0 if self.scaling is None else self.scaling.gain

    @property
    def uncertainties(self) -> Array:
        """How many times the error of a plain frequency each one has."""
        base = self.theta ** (-2.0 * np.arange(self.dims // 2) / self.dims)
        scaled = 1.0 if self.scaling is None else self.scaling.uncertainties(base, self.theta, self.dims)
        return self._exponents * scaled * np.ones(len(base))

    @property
    def uncertainty(self) -> float:
        """How many times the error of a plain frequency these have."""
        return self._exponents * (1.0 if self.scaling is None else self.scaling.uncertainty)

    @property
    def _exponents(self) -> float:
        """What float32 exponents -2 i / dims add: they err by up to 2^-25, unless dims is a power of two, and each
        power by its exponent's error times the logarithm of theta."""
        return 1.0 if self.dims & (self.dims - 1) == 0 else 1.0 + math.log(self.theta) / 8


@dataclass(frozen=True)
class LayerKind:
    """The attention of one layer, where layers differ."""

    rotary: Rotary | None  # None: queries and keys are not rotated
    window: int | None


@dataclass(frozen=True)
class RouterRule:
    """How a router's logits become a choice of experts and their weights.

    `softmax`: the best logits win; softmax runs over all of them and the chosen weights are divided by their sum, or it
    runs over the chosen ones, which is the same. `sigmoid`: scores are sigmoids; a correction is added to them for the
    choice alone. Experts form `groups`, of which those `groups_used` with the largest sum of two best win first.
    Weights are divided by their sum and multiplied by `factor`.
    """

    scoring: str = "softmax"
    groups: int = 1
    groups_used: int = 1
    factor: float = 1.0


@dataclass(frozen=True)
class LatentShape:
    """Latent attention: how long the vectors are from which queries (None: from the stream), keys and values are read.

    `interleaved`: neighbouring dimensions of the rotated part turn together. The readers of tensors put them into two
    halves, before the dimensions that are not rotated.
    """

    q_rank: int | None
    rank: int
    interleaved: bool


@dataclass(frozen=True)
class MixerShape:
    """Recurrent layers: which ones these are, and the sizes of their heads and states."""

    layers: tuple[bool, ...]
    taps: int  # of the convolution
    heads: int  # with values
    dim: int  # of a value
    groups: int  # of heads that share keys and queries
    state: int  # dimensions of a key

    @property
    def channels(self) -> int:
        """Of the convolution: values, keys and queries."""
        return self.heads * self.dim + 2 * self.groups * self.state


@dataclass(frozen=True)
class Shape:
    """The mathematics of one decoder, apart from its tensors."""

    family: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    units: int
    positions: int
    eps: float
    activation: str  # "silu" | "gelu" | "gelu_tanh" | "relu"
    tied: bool
    rotary: Rotary | None
    window: int | None = None
    parallel: bool = False
    experts: int = 0
    experts_used: int = 0
    stepwise: bool = False  # the activation is a chain of elementwise operations in the reference implementation
    labels: int | None = None  # a classifier's: its head gives these instead of tokens
    root_scaled: bool = False  # embeddings are multiplied by the root of the hidden size
    kinds: tuple[LayerKind, ...] = ()  # of every layer; empty: all have `rotary` and `window`
    score_scale: float | None = None  # what scores are multiplied by; None: head_dim^-1/2
    embedding_scale: float = 1.0  # what token vectors are multiplied by
    residual_scale: float = 1.0  # what a branch is multiplied by before it is added
    logit_scale: float = 1.0  # what logits are divided by: a power of two
    routing: RouterRule = RouterRule()
    expert_units: int = 0  # of an expert, where layers without a router have `units`
    shared_units: int = 0  # of the expert that serves every token
    dense_layers: int = 0  # so many layers come first that have no router
    latent: LatentShape | None = None
    value_dim: int | None = None  # dimensions of a head's value; None: those of its query
    mixer: MixerShape | None = None
    score_cap: float | None = None  # scores are cap * tanh(score / cap)
    logit_cap: float | None = None
    clamp: float | None = None  # gates are at most this, up lies between minus and plus this, and then 1 is added

    @property
    def value_size(self) -> int:
        """Dimensions of a head's value."""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        return float(self.head_dim**-0.5) if self.score_scale is None else self.score_scale

    def at(self, layer: int) -> Shape:
        """The shape with the rotation and the window of one layer."""
        if not self.kinds:
            return self
        return replace(self, rotary=self.kinds[layer].rotary, window=self.kinds[layer].window, kinds=())


DTYPES = ("float32", "bfloat16", "float16")


def _fraction(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _words(value: Any) -> bool:
    return isinstance(value, str)


def _switch(value: Any) -> bool:
    return isinstance(value, bool)


def _token_number(value: Any) -> bool:
    return value is None or count(value)


# Keys without any meaning for the logits of a prompt, each with the values under which stock Transformers loads and
# runs the folder: a value of another type stops the loader, so nothing would be proved about it.
HARMLESS: dict[str, Callable[[Any], bool]] = {
    "architectures": lambda value: True,  # `read_shape` compares it
    "model_type": _words,
    "_name_or_path": _words,
    "transformers_version": _words,
    "torch_dtype": lambda value: value in DTYPES,
    "dtype": lambda value: value in DTYPES,
    "use_cache": _switch,
    "bos_token_id": _token_number,
    "eos_token_id": _token_number,
    "pad_token_id": _token_number,
    "unk_token_id": _token_number,
    "initializer_range": lambda value: isinstance(value, float) and _fraction(value),
    "init_std": lambda value: isinstance(value, float),
    "attention_dropout": _fraction,
    "hidden_dropout": _fraction,
    "embd_pdrop": _fraction,
    "resid_pdrop": _fraction,
    "attn_pdrop": _fraction,
    "dropout": _fraction,
    "layerdrop": _fraction,
    "classifier_dropout": _fraction,
    "output_attentions": lambda value: value is False,
    "output_hidden_states": lambda value: value is False,
    "return_dict": lambda value: value is True,
    "router_aux_loss_coef": lambda value: isinstance(value, float),
    "output_router_logits": lambda value: value is False,
    "router_jitter_noise": lambda value: isinstance(value, float) and value == 0,
    "id2label": lambda value: isinstance(value, dict) and all(key.isdecimal() for key in value),
    "label2id": lambda value: isinstance(value, dict),
    # Chooses a loss, never the logits; other names stop the loader.
    "problem_type": lambda value: value in (None, "single_label_classification"),
    "n_ctx": count,
    "max_window_layers": count,
}
# Keys that must have one of these values (absent counts as the first).
FIXED: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "pretraining_tp": (1,),
    "rope_scaling": (None,),
    "use_sliding_window": (False,),
    "use_bidirectional_attention": (None, False),
    "is_decoder": (False, True),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "quantization_config": (None,),
    "rope_interleaved": (False,),
    "tie_encoder_decoder": (False,),
    "pruned_heads": (None, {}),
    "chunk_size_feed_forward": (0,),
    "cross_attention_hidden_size": (None,),
    "num_labels": (2,),
    "task_specific_params": (None,),
    "summary_activation": (None,),
    "summary_first_dropout": (0.1,),
    "summary_proj_to_labels": (True,),
    "summary_type": ("cls_index",),
    "summary_use_proj": (True,),
}

# `gelu_fast` is not read: Transformers evaluates it as a chain of stored tensors that the proof does not model.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# The spelling of the base of the angles, and of the share of dimensions that is rotated. GPT-NeoX has others.
ROTARY_KEYS = ("rope_theta", "partial_rotary_factor")


class ConfigReader:
    """Takes keys out of a config; what remains at the end is refused."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        for key, value in config.items():
            if key in HARMLESS and not HARMLESS[key](value):
                raise Undecided(f"config.json: {key} = {value!r}: stock Transformers does not run this value")
        self.left = {key: value for key, value in config.items() if key not in HARMLESS}

    def number(self, key: str, default: float | None = None) -> float:
        """A positive float: Transformers checks types, so 1 is not 1.0 here, and null is not the default."""
        value = self.left.pop(key, default)
        if not isinstance(value, float) or not 0 < value < float("inf"):
            raise Undecided(f"config.json: {key} = {value!r} is not a positive floating-point number")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive integer that a tensor may have as its length: Transformers refuses 64.0 for 64."""
        value = self.left.pop(key, default)
        if not count(value) or not 1 <= value < 1 << 31:
            raise Undecided(f"config.json: {key} = {value!r} is not a positive integer below 2^31")
        return int(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.left.pop(key, default)
        if not isinstance(value, bool):
            raise Undecided(f"config.json: {key} = {value!r} is not true or false")
        return value

    def must(self, key: str, *allowed: Any) -> None:
        value = self.left.pop(key, allowed[0])
        if not any(value == a and type(value) is type(a) for a in allowed):
            raise Undecided(f"config.json: {key} = {value!r} changes the mathematics; the proof needs {allowed[0]!r}")

    def activation(self, key: str, default: str) -> str:
        name = self.left.pop(key, default)
        if not isinstance(name, str) or name not in ACTIVATIONS:
            raise Undecided(f"config.json: {key} = {name!r}; the proof supports {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[name]

    def rotary(
        self, head_dim: int, theta: float = 1e4, part: float = 1.0, own: tuple[str, str] = ROTARY_KEYS,
        whole: bool = True, yarn: Collection[str] = (),
    ) -> Rotary:  # fmt: skip
        """Rotary positions as a family's configuration class reads them: `rope_parameters` first, then the family's
        `own` keys. Other spellings are read by other engines, so they must agree. `whole`: the family rotates all
        dimensions whatever the factor is. `yarn`: fields of this scaling that the family reads beside the usual."""
        inner = self.left.pop("rope_parameters", {})
        if not isinstance(inner, dict):
            raise Undecided("config.json: rope_parameters is not an object")
        overruled = self.left.get("rope_scaling") is not None
        scaling = self._scaling({key: value for key, value in inner.items() if key not in ROTARY_KEYS}, yarn)
        if overruled:
            self._outside(inner, own, (theta, part))
        base = self._agreed(inner, ROTARY_KEYS[0], own[0], theta)
        share = self._agreed(inner, ROTARY_KEYS[1], own[1], part, 1.0 if whole else None)
        dims = int(head_dim * share)
        if base <= 1 or dims != head_dim * share or dims % 2 or not 0 < dims <= head_dim:
            raise Undecided(
                f"config.json: rotary positions with theta {base} on {head_dim * share} of {head_dim} dimensions"
            )
        found = Rotary(base, dims, scaling)
        try:
            found.frequencies  # noqa: B018 - a blend that engines compute differently is refused here
        except UnknownRope as reason:
            raise Undecided(f"config.json: {reason}") from reason
        return found

    def _outside(self, inner: Mapping[str, Any], own: tuple[str, str], defaults: tuple[float, float]) -> None:
        """Transformers drops `rope_parameters` for `rope_scaling`, which states neither the base nor the share: what
        `rope_parameters` state must be outside too, or be the default."""
        for name, key, default in zip(ROTARY_KEYS, own, defaults, strict=True):
            if name in inner and key not in self.left and inner[name] != default:
                raise Undecided(
                    f"config.json: rope_parameters.{name} = {inner[name]!r}: rope_scaling overrules it, {key} missing"
                )

    def _scaling(self, fields: Mapping[str, Any], yarn: Collection[str]) -> RopeScaling | None:
        """The scaling of `rope_parameters`; engines that read `rope_scaling` must read the same."""
        try:
            found = read_scaling(fields, yarn)
            stated = self.left.pop("rope_scaling", None)
            if stated is not None and not isinstance(stated, dict):
                raise UnknownRope(f"rope_scaling = {stated!r} is not an object")
            other = read_scaling(stated or {}, yarn)
        except UnknownRope as reason:
            raise Undecided(f"config.json: {reason}") from reason
        if other != found:
            raise Undecided("config.json: rope_scaling contradicts rope_parameters; engines read one of them")
        return found

    def _agreed(
        self, inner: Mapping[str, Any], name: str, own: str, default: float, fixed: float | None = None
    ) -> float:
        """The value that this family reads; every other place that states it must state the same."""
        stated = {key: self.left.pop(key) for key in dict.fromkeys((own, name)) if key in self.left}
        stated |= {f"rope_parameters.{name}": inner[name]} if name in inner else {}
        for key, value in stated.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
                raise Undecided(f"config.json: {key} = {value!r} is not a number")
        value = fixed if fixed is not None else stated.get(f"rope_parameters.{name}", stated.get(own, default))
        for key, other in stated.items():
            if float(other) != float(value):
                raise Undecided(f"config.json: {key} = {other!r}, but this architecture computes with {value!r}")
        return float(value)

    def close(self) -> None:
        for key in list(self.left):
            if key in FIXED:
                self.must(key, *FIXED[key])
        if self.left:
            raise Undecided(f"config.json: the proof does not support {', '.join(sorted(self.left))}")
