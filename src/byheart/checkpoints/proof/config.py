"""What a config.json says about the mathematics, read strictly.

Every key is one of three: it is read into `Shape`; it must have the one value under which the proof's formulas are the
architecture's; or it is known to change nothing that is computed. Any other key is refused by name: an engine may
give it a meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from byheart.errors import ByheartError


class Undecided(ByheartError):
    """The proof cannot be carried through; the message says where and why."""


@dataclass(frozen=True)
class Rotary:
    theta: float
    dims: int  # rotated dimensions of each head


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


DTYPES = ("float32", "bfloat16", "float16")


def _fraction(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _words(value: Any) -> bool:
    return isinstance(value, str)


def _switch(value: Any) -> bool:
    return isinstance(value, bool)


def _token_number(value: Any) -> bool:
    return value is None or _count(value)


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
    "eos_token_id": lambda value: True,  # `open_checkpoint` reads it
    "pad_token_id": _token_number,
    "unk_token_id": _token_number,
    "initializer_range": lambda value: isinstance(value, float),
    "init_std": lambda value: isinstance(value, float),
    "attention_dropout": _fraction,
    "hidden_dropout": _fraction,
    "embd_pdrop": _fraction,
    "resid_pdrop": _fraction,
    "attn_pdrop": _fraction,
    "dropout": _fraction,
    "layerdrop": _fraction,
    "classifier_dropout": lambda value: value is None or _fraction(value),
    "output_attentions": lambda value: value is False,
    "output_hidden_states": lambda value: value is False,
    "return_dict": lambda value: value is True,
    "router_aux_loss_coef": lambda value: isinstance(value, float),
    "output_router_logits": lambda value: value is False,
    "router_jitter_noise": lambda value: isinstance(value, float) and value == 0,
    "id2label": lambda value: isinstance(value, dict),
    "label2id": lambda value: isinstance(value, dict),
    # Chooses a loss, never the logits; other names stop the loader.
    "problem_type": lambda value: value in (None, "single_label_classification"),
    "n_ctx": _count,
    "max_window_layers": _count,
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

# `gelu_fast` is left out: Transformers evaluates it as a chain of stored tensors that the proof does not model.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# Every spelling of the base of the angles, and of the share of dimensions that is rotated. Families read some of them.
THETAS = ("rope_theta", "rotary_emb_base")
PARTS = ("partial_rotary_factor", "rotary_pct")
ROTARY_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "mixtral")
# Defaults of the reference implementation, where a config.json may leave the key out.
DEFAULT_THETA = {"mixtral": 1e6}
DEFAULT_EPS = {"mixtral": 1e-5, "phi3": 1e-5}
DEFAULT_KV_HEADS = {"mistral": 8, "mixtral": 8, "qwen2": 32, "qwen3": 32, "gemma": 16}
DEFAULT_WINDOW = {"mistral": 4096}
CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "opt": "OPTForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
}


class _Reader:
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
        """A positive integer: Transformers refuses 64.0 for 64."""
        value = self.left.pop(key, default)
        if not _count(value) or value < 1:
            raise Undecided(f"config.json: {key} = {value!r} is not a positive integer")
        return int(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.left.pop(key, default)
        if not isinstance(value, bool):
            raise Undecided(f"config.json: {key} = {value!r} is not true or false")
        return value

    def must(self, key: str, *allowed: Any) -> None:
        value = self.left.pop(key, allowed[0])
        if not any(value == a and type(value) is type(a) for a in allowed):
            raise Undecided(f"config.json: {key} = {value!r} changes the mathematics; the proof knows {allowed[0]!r}")

    def activation(self, key: str, default: str) -> str:
        name = self.left.pop(key, default)
        if name not in ACTIVATIONS:
            raise Undecided(f"config.json: {key} = {name!r}; the proof knows {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[name]

    def rotary(self, family: str, head_dim: int, default_theta: float, default_part: float = 1.0) -> Rotary:
        """Rotary positions as this family's configuration class reads them: `rope_parameters` first, then the
        family's own keys. Other spellings are obeyed by other engines, so they must agree."""
        inner = self.left.pop("rope_parameters", {})
        if not isinstance(inner, dict):
            raise Undecided("config.json: rope_parameters is not an object")
        unknown = set(inner) - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
        kind = inner.get("rope_type", inner.get("type", "default"))
        if unknown or kind != "default" or inner.get("type", "default") != "default":
            raise Undecided(
                f"config.json: rope_parameters {sorted(unknown)} of type {kind!r}; the proof knows plain ones"
            )
        own = ("rotary_emb_base", "rotary_pct") if family == "gpt_neox" else ("rope_theta", "partial_rotary_factor")
        theta = self._agreed(inner, "rope_theta", own[0], THETAS, default_theta)
        # Llama and its relatives rotate all dimensions whatever the factor is.
        whole = family not in ("phi3", "gpt_neox")
        part = self._agreed(inner, "partial_rotary_factor", own[1], PARTS, default_part, 1.0 if whole else None)
        dims = int(head_dim * part)
        if theta <= 1 or dims != head_dim * part or dims % 2 or not 0 < dims <= head_dim:
            raise Undecided(
                f"config.json: rotary positions with theta {theta} on {head_dim * part} of {head_dim} dimensions"
            )
        return Rotary(theta, dims)

    def _agreed(
        self, inner: Mapping[str, Any], name: str, own: str, names: tuple[str, ...], default: float,
        fixed: float | None = None,
    ) -> float:  # fmt: skip
        """The value that this family reads; every other place that states it must state the same."""
        stated = {key: self.left.pop(key) for key in names if key in self.left and key in (own, name)}
        stated |= {f"rope_parameters.{name}": inner[name]} if name in inner else {}
        for key, value in stated.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
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
            raise Undecided(f"config.json: the proof does not know {', '.join(sorted(self.left))}")


def read_shape(config: Mapping[str, Any], *, classifier: bool = False) -> Shape:
    """The mathematics that a config.json describes; `Undecided` names the key that stands in the way.

    `classifier`: of the same network with a head of labels, which is read at the last token.
    """
    family = config.get("model_type")
    if family not in CLASSES:
        raise Undecided(f"config.json: model_type {family!r}; the proof knows {', '.join(CLASSES)}")
    named = config.get("architectures")
    wanted = _classifier_name(CLASSES[family]) if classifier else CLASSES[family]
    if named is not None and not isinstance(named, list):
        raise Undecided(f"config.json: architectures {named!r} is not a list")
    if named != [wanted] and (classifier or named is not None):
        raise Undecided(f"config.json: architectures {named!r}; the proof knows {[wanted]!r} for {family}")
    reader = _Reader(config)
    if family in ROTARY_FAMILIES:
        shape = _rotary_shape(family, reader)
    else:
        shape = {"gpt2": _gpt2_shape, "opt": _opt_shape, "gpt_neox": _neox_shape}[family](reader)
    reader.close()
    _check_tokens(config, shape.vocabulary)
    if shape.heads % shape.kv_heads:
        raise Undecided(f"config.json: {shape.heads} heads cannot share {shape.kv_heads} key-value heads")
    return replace(shape, labels=_label_count(config)) if classifier else shape


def _check_tokens(config: Mapping[str, Any], vocabulary: int) -> None:
    """Ids outside the vocabulary stop the loader (padding), or name no row of the embedding."""
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"):
        value = config.get(key)
        if isinstance(value, int) and value >= vocabulary:
            raise Undecided(f"config.json: {key} = {value!r} is outside the {vocabulary} tokens of the vocabulary")


def _classifier_name(causal: str) -> str:
    return causal.replace("LMHeadModel", "").removesuffix("ForCausalLM") + "ForSequenceClassification"


def _label_count(config: Mapping[str, Any]) -> int:
    """As many labels as `id2label` has, numbered from 0 on."""
    names = config.get("id2label")
    if not isinstance(names, dict) or set(names) != {str(k) for k in range(len(names))} or len(names) < 2:
        raise Undecided("config.json: id2label does not number two or more labels from 0 on")
    return len(names)


def _rotary_shape(family: str, r: _Reader) -> Shape:
    hidden, heads, layers = r.integer("hidden_size"), r.integer("num_attention_heads"), r.integer("num_hidden_layers")
    kv_heads = r.integer("num_key_value_heads", DEFAULT_KV_HEADS.get(family, heads))
    head_dim = r.integer("head_dim", 256 if family == "gemma" else 128 if family == "qwen3" else -(-hidden // heads))
    if family == "gemma":
        # Versions of the reference implementation differ in which of the two they read.
        read = {
            r.activation(key, "gelu_pytorch_tanh") for key in ("hidden_act", "hidden_activation") if r.left.get(key)
        }
        r.left.pop("hidden_activation", None)
        if read - {"gelu_tanh"}:
            raise Undecided("config.json: hidden_act and hidden_activation must both be gelu_pytorch_tanh in gemma")
        activation = "gelu_tanh"
    else:
        activation = _one_step(r, "hidden_act", "silu")
    window = r.left.pop("sliding_window", DEFAULT_WINDOW.get(family))
    if family in ("qwen2", "qwen3"):
        window = None  # used only with use_sliding_window, which must be false
    kinds = r.left.pop("layer_types", None)
    if kinds is not None and kinds != ["full_attention"] * layers:
        raise Undecided("config.json: layer_types other than full_attention")
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise Undecided(f"config.json: sliding_window = {window!r}")
    if window is not None and family not in ("mistral", "mixtral", "phi3"):
        raise Undecided(f"config.json: sliding_window = {window!r} has no meaning in {family}")
    if family == "phi3" and not _count(r.left.pop("original_max_position_embeddings", 4096)):
        raise Undecided("config.json: original_max_position_embeddings is not an integer")
    experts = used = 0
    if family == "mixtral":
        experts, used = r.integer("num_local_experts", 8), r.integer("num_experts_per_tok", 2)
    return Shape(
        family,
        r.integer("vocab_size"),
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        r.integer("intermediate_size"),
        r.integer("max_position_embeddings"),
        r.number("rms_norm_eps", DEFAULT_EPS.get(family, 1e-6)),
        activation,
        r.flag("tie_word_embeddings", family == "gemma"),
        r.rotary(family, head_dim, DEFAULT_THETA.get(family, 1e4)),
        window,
        experts=experts,
        experts_used=used,
    )


def _one_step(r: _Reader, key: str, default: str) -> str:
    """The activation of a gated MLP. `gelu_new` is a chain of stored tensors, modelled only without a gate."""
    if r.left.get(key) == "gelu_new":
        raise Undecided(f"config.json: {key} = 'gelu_new' is a chain of stored tensors, which the proof does not gate")
    return r.activation(key, default)


def _gpt2_shape(r: _Reader) -> Shape:
    hidden, heads = r.integer("n_embd"), r.integer("n_head")
    r.must("scale_attn_weights", True)
    r.must("scale_attn_by_inverse_layer_idx", False)
    r.must("reorder_and_upcast_attn", False, True)
    name = r.left.get("activation_function", "gelu_new")
    return Shape(
        "gpt2",
        r.integer("vocab_size"),
        hidden,
        r.integer("n_layer"),
        heads,
        heads,
        hidden // heads,
        4 * hidden
        if r.left.get("n_inner", 0) is None and r.left.pop("n_inner") is None
        else r.integer("n_inner", 4 * hidden),
        r.integer("n_positions"),
        r.number("layer_norm_epsilon", 1e-5),
        r.activation("activation_function", "gelu_new"),
        r.flag("tie_word_embeddings", True),
        None,
        stepwise=name == "gelu_new",
    )


def _opt_shape(r: _Reader) -> Shape:
    hidden, heads = r.integer("hidden_size"), r.integer("num_attention_heads")
    r.must("do_layer_norm_before", True)
    r.must("_remove_final_layer_norm", False)
    r.must("enable_bias", True)
    r.must("layer_norm_elementwise_affine", True)
    r.must("word_embed_proj_dim", hidden)
    name = r.left.get("activation_function", "relu")
    return Shape(
        "opt",
        r.integer("vocab_size"),
        hidden,
        r.integer("num_hidden_layers"),
        heads,
        heads,
        hidden // heads,
        r.integer("ffn_dim"),
        r.integer("max_position_embeddings"),
        1e-5,
        r.activation("activation_function", "relu"),
        r.flag("tie_word_embeddings", True),
        None,
        stepwise=name == "gelu_new",
    )


def _neox_shape(r: _Reader) -> Shape:
    hidden, heads = r.integer("hidden_size"), r.integer("num_attention_heads")
    r.must("attention_bias", True)
    name = r.left.get("hidden_act", "gelu")
    return Shape(
        "gpt_neox",
        r.integer("vocab_size"),
        hidden,
        r.integer("num_hidden_layers"),
        heads,
        heads,
        hidden // heads,
        r.integer("intermediate_size"),
        r.integer("max_position_embeddings"),
        r.number("layer_norm_eps", 1e-5),
        r.activation("hidden_act", "gelu"),
        r.flag("tie_word_embeddings", False),
        r.rotary("gpt_neox", hidden // heads, 1e4, 0.25),
        parallel=r.flag("use_parallel_residual", True),
        stepwise=name == "gelu_new",
    )
