"""Ten stock architectures -> `Decoder`. A setting that would change the mathematics and is not known is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from byheart.errors import FileFormatError, OptionError
from byheart.export.stock.decoder import (
    Activation,
    Attention,
    Decoder,
    Experts,
    Gated,
    Layer,
    Linear,
    Mlp,
    Norm,
    Plain,
    Rotary,
    frequencies,
)
from byheart.export.stock.folder import Array, Checkpoint, read_checkpoint

_ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
}


def read_decoder(source: Checkpoint | str | Path) -> Decoder:
    """What the checkpoint in a folder computes."""
    checkpoint = source if isinstance(source, Checkpoint) else read_checkpoint(source)
    reader = ARCHITECTURES.get(checkpoint.architecture)
    if reader is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise OptionError(f"{checkpoint.folder} is a {checkpoint.architecture} model; byheart knows {known}")
    return reader(checkpoint)


def _number(config: Mapping[str, Any], name: str, default: Any = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise FileFormatError(f"config.json has {name}={value!r}; a positive whole number is needed")
    return value


def _activation(config: Mapping[str, Any], *names: str) -> Activation:
    name = next((str(config[n]) for n in names if config.get(n)), "missing")
    if name not in _ACTIVATIONS:
        raise OptionError(f"config.json asks for the activation {name!r}; byheart knows {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _rotary(config: Mapping[str, Any], head_dim: int) -> Rotary:
    """rope_parameters (since Transformers 5) or rope_theta and rope_scaling (before)."""
    given = dict(config.get("rope_parameters") or {})
    scaling = config.get("rope_scaling") or {}
    kind = given.get("rope_type", scaling.get("rope_type", scaling.get("type", "default")))
    if kind != "default":
        raise OptionError(f"config.json asks for rotary positions of the kind {kind!r}; byheart knows 'default' only")
    theta = given.get("rope_theta", config.get("rope_theta", config.get("rotary_emb_base", 10000.0)))
    share = given.get("partial_rotary_factor", config.get("partial_rotary_factor", config.get("rotary_pct", 1.0)))
    return Rotary(frequencies(int(head_dim * float(share)), float(theta)))


def _linear(checkpoint: Checkpoint, name: str, rows: int, columns: int) -> Linear:
    weight = checkpoint.tensor(name + ".weight", rows, columns)
    bias = checkpoint.get(name + ".bias")
    return Linear(weight, None if bias is None else checkpoint.tensor(name + ".bias", rows))


def _head(checkpoint: Checkpoint, name: str, embedding: Array) -> tuple[Linear, bool]:
    """The output matrix; the embedding where config.json ties them."""
    if checkpoint.config.get("tie_word_embeddings", checkpoint.architecture in ("gemma", "gpt2", "opt")):
        return Linear(embedding), True
    return Linear(checkpoint.tensor(name, *embedding.shape)), False


def _window(config: Mapping[str, Any], depth: int) -> int | None:
    """Mistral, Mixtral and Phi-3 have one window; Qwen uses it where `layer_types` says so."""
    size = config.get("sliding_window")
    kinds = config.get("layer_types")
    if size is None or config.get("use_sliding_window") is False:
        return None
    if kinds is not None and kinds[depth] != "sliding_attention":
        return None
    return int(size)


def _llama_like(checkpoint: Checkpoint, *, gemma: bool = False) -> Decoder:
    """Llama, Mistral, Mixtral, Qwen2, Qwen3, Phi-3 and Gemma: RMSNorm, rotary positions, gated MLP."""
    config = checkpoint.config
    hidden, vocabulary = _number(config, "hidden_size"), _number(config, "vocab_size")
    eps = float(config.get("rms_norm_eps", 1e-6))

    def norm(name: str, size: int = hidden) -> Norm:
        weight = checkpoint.tensor(name + ".weight", size)
        return Norm(weight + np.float32(1) if gemma else weight, None, eps, centred=False)

    embedding = checkpoint.tensor("model.embed_tokens.weight", vocabulary, hidden)
    layers = []
    for depth in range(_number(config, "num_hidden_layers")):
        base = f"model.layers.{depth}."
        layers.append(
            Layer(
                norm(base + "input_layernorm"),
                _rotary_attention(checkpoint, base + "self_attn.", depth, norm),
                norm(base + "post_attention_layernorm"),
                _gated(checkpoint, base),
            )
        )
    head, tied = _head(checkpoint, "lm_head.weight", embedding)
    scale = float(np.float32(math.sqrt(hidden))) if gemma else 1.0
    reach = _number(config, "max_position_embeddings")
    final = norm("model.norm")
    return Decoder(checkpoint.architecture, embedding, scale, None, tuple(layers), final, head, tied, reach)


def _rotary_attention(checkpoint: Checkpoint, base: str, depth: int, norm: Callable[..., Norm]) -> Attention:
    config = checkpoint.config
    hidden, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    groups = _number(config, "num_key_value_heads", heads)
    head_dim = _number(config, "head_dim", hidden // heads)
    wide, narrow = heads * head_dim, groups * head_dim
    if checkpoint.get(base + "qkv_proj.weight") is not None:
        fused = checkpoint.tensor(base + "qkv_proj.weight", wide + 2 * narrow, hidden)
        q, k, v = (Linear(part) for part in np.split(fused, [wide, wide + narrow]))
    else:
        q, k, v = (
            _linear(checkpoint, base + f"{name}_proj", rows, hidden)
            for name, rows in (("q", wide), ("k", narrow), ("v", narrow))
        )
    normed = checkpoint.get(base + "q_norm.weight") is not None
    return Attention(
        q,
        k,
        v,
        _linear(checkpoint, base + "o_proj", hidden, wide),
        heads,
        groups,
        head_dim,
        _rotary(config, head_dim),
        _window(config, depth),
        norm(base + "q_norm", head_dim) if normed else None,
        norm(base + "k_norm", head_dim) if normed else None,
    )


def _gated(checkpoint: Checkpoint, base: str) -> Mlp:
    config = checkpoint.config
    hidden, units = _number(config, "hidden_size"), _number(config, "intermediate_size")
    activation = _activation(config, "hidden_activation", "hidden_act")
    if checkpoint.architecture == "mixtral":
        base, count = base + "block_sparse_moe.", _number(config, "num_local_experts")
        experts = tuple(
            Gated(
                _linear(checkpoint, f"{base}experts.{e}.w1", units, hidden),
                _linear(checkpoint, f"{base}experts.{e}.w3", units, hidden),
                _linear(checkpoint, f"{base}experts.{e}.w2", hidden, units),
                activation,
            )
            for e in range(count)
        )
        return Experts(
            _linear(checkpoint, base + "gate", count, hidden), experts, _number(config, "num_experts_per_tok")
        )
    if checkpoint.get(base + "mlp.gate_up_proj.weight") is not None:
        gate, up = np.split(checkpoint.tensor(base + "mlp.gate_up_proj.weight", 2 * units, hidden), 2)
        return Gated(Linear(gate), Linear(up), _linear(checkpoint, base + "mlp.down_proj", hidden, units), activation)
    first, second = (_linear(checkpoint, base + f"mlp.{name}_proj", units, hidden) for name in ("gate", "up"))
    return Gated(first, second, _linear(checkpoint, base + "mlp.down_proj", hidden, units), activation)


def _layer_norm(checkpoint: Checkpoint, name: str, eps: float) -> Norm:
    return Norm(checkpoint.tensor(name + ".weight"), checkpoint.tensor(name + ".bias"), eps, centred=True)


def _gpt2(checkpoint: Checkpoint) -> Decoder:
    """Learned positions, LayerNorm, matrices stored as (in, out), q, k and v in one."""
    config = checkpoint.config
    for name, needed in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if config.get(name, needed) is not needed:
            raise OptionError(f"config.json has {name}={config[name]}; byheart knows {needed} only")
    hidden, heads, eps = _number(config, "n_embd"), _number(config, "n_head"), float(config["layer_norm_epsilon"])
    units = _number(config, "n_inner", 4 * hidden)
    embedding = checkpoint.tensor("transformer.wte.weight", _number(config, "vocab_size"), hidden)
    reach = _number(config, "n_positions")
    layers = []

    def turned(name: str, rows: int, columns: int) -> Linear:
        weight = np.ascontiguousarray(checkpoint.tensor(name + ".weight", columns, rows).T)
        return Linear(weight, checkpoint.tensor(name + ".bias", rows))

    for depth in range(_number(config, "n_layer")):
        base = f"transformer.h.{depth}."
        q, k, v = _thirds(turned(base + "attn.c_attn", 3 * hidden, hidden))
        o = turned(base + "attn.c_proj", hidden, hidden)
        layers.append(
            Layer(
                _layer_norm(checkpoint, base + "ln_1", eps),
                Attention(q, k, v, o, heads, heads, hidden // heads, None),
                _layer_norm(checkpoint, base + "ln_2", eps),
                Plain(
                    turned(base + "mlp.c_fc", units, hidden),
                    turned(base + "mlp.c_proj", hidden, units),
                    _activation(config, "activation_function"),
                ),
            )
        )
    head, tied = _head(checkpoint, "lm_head.weight", embedding)
    positions = checkpoint.tensor("transformer.wpe.weight", reach, hidden)
    final = _layer_norm(checkpoint, "transformer.ln_f", eps)
    return Decoder("gpt2", embedding, 1.0, positions, tuple(layers), final, head, tied, reach)


def _thirds(fused: Linear) -> tuple[Linear, Linear, Linear]:
    weights = np.split(fused.weight, 3)
    biases = [None] * 3 if fused.bias is None else np.split(fused.bias, 3)
    q, k, v = (Linear(w, b) for w, b in zip(weights, biases, strict=True))
    return q, k, v


OPT_SHIFT = 2  # rows at the head of OPT's position table that no token uses


def _opt(checkpoint: Checkpoint) -> Decoder:
    """Learned positions behind two idle rows, LayerNorm, ReLU, biases everywhere."""
    config = checkpoint.config
    hidden, heads, units = (_number(config, n) for n in ("hidden_size", "num_attention_heads", "ffn_dim"))
    if not config.get("do_layer_norm_before", True) or config.get("word_embed_proj_dim", hidden) != hidden:
        raise OptionError("byheart knows OPT with do_layer_norm_before and without word_embed_proj_dim only")
    eps, reach, root = 1e-5, _number(config, "max_position_embeddings"), "model.decoder."
    embedding = checkpoint.tensor(root + "embed_tokens.weight", _number(config, "vocab_size"), hidden)
    layers = []
    for depth in range(_number(config, "num_hidden_layers")):
        base = f"{root}layers.{depth}."
        q, k, v, o = (_linear(checkpoint, base + f"self_attn.{n}_proj", hidden, hidden) for n in ("q", "k", "v", "out"))
        layers.append(
            Layer(
                _layer_norm(checkpoint, base + "self_attn_layer_norm", eps),
                Attention(q, k, v, o, heads, heads, hidden // heads, None),
                _layer_norm(checkpoint, base + "final_layer_norm", eps),
                Plain(
                    _linear(checkpoint, base + "fc1", units, hidden),
                    _linear(checkpoint, base + "fc2", hidden, units),
                    _activation(config, "activation_function"),
                ),
            )
        )
    head, tied = _head(checkpoint, "lm_head.weight", embedding)
    positions = checkpoint.tensor(root + "embed_positions.weight", reach + OPT_SHIFT, hidden)[OPT_SHIFT:]
    final = _layer_norm(checkpoint, root + "final_layer_norm", eps)
    return Decoder("opt", embedding, 1.0, positions, tuple(layers), final, head, tied, reach)


def _gpt_neox(checkpoint: Checkpoint) -> Decoder:
    """Partial rotary positions, LayerNorm, q, k and v fused head by head, residuals in parallel."""
    config = checkpoint.config
    hidden, heads, units = (_number(config, n) for n in ("hidden_size", "num_attention_heads", "intermediate_size"))
    head_dim, eps = hidden // heads, float(config.get("layer_norm_eps", 1e-5))
    embedding = checkpoint.tensor("gpt_neox.embed_in.weight", _number(config, "vocab_size"), hidden)
    layers = []
    for depth in range(_number(config, "num_hidden_layers")):
        base = f"gpt_neox.layers.{depth}."
        fused = _linear(checkpoint, base + "attention.query_key_value", 3 * hidden, hidden)
        weights = fused.weight.reshape(heads, 3, head_dim, hidden)
        bias = np.zeros(3 * hidden, np.float32) if fused.bias is None else fused.bias
        biases = bias.reshape(heads, 3, head_dim)
        q, k, v = (Linear(weights[:, i].reshape(hidden, hidden), biases[:, i].reshape(hidden)) for i in range(3))
        o = _linear(checkpoint, base + "attention.dense", hidden, hidden)
        layers.append(
            Layer(
                _layer_norm(checkpoint, base + "input_layernorm", eps),
                Attention(q, k, v, o, heads, heads, head_dim, _rotary(config, head_dim)),
                _layer_norm(checkpoint, base + "post_attention_layernorm", eps),
                Plain(
                    _linear(checkpoint, base + "mlp.dense_h_to_4h", units, hidden),
                    _linear(checkpoint, base + "mlp.dense_4h_to_h", hidden, units),
                    _activation(config, "hidden_act"),
                ),
                parallel=bool(config.get("use_parallel_residual", True)),
            )
        )
    head, tied = _head(checkpoint, "embed_out.weight", embedding)
    final = _layer_norm(checkpoint, "gpt_neox.final_layer_norm", eps)
    reach = _number(config, "max_position_embeddings")
    return Decoder("gpt_neox", embedding, 1.0, None, tuple(layers), final, head, tied, reach)


def _gemma(checkpoint: Checkpoint) -> Decoder:
    return _llama_like(checkpoint, gemma=True)


ARCHITECTURES: dict[str, Callable[[Checkpoint], Decoder]] = {
    "llama": _llama_like,
    "mistral": _llama_like,
    "mixtral": _llama_like,
    "qwen2": _llama_like,
    "qwen3": _llama_like,
    "phi3": _llama_like,
    "gemma": _gemma,
    "gpt2": _gpt2,
    "opt": _opt,
    "gpt_neox": _gpt_neox,
}
