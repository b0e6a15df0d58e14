"""What a GGUF file states about the network besides its tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from byheart.checkpoints.formats.gguf.tensors import window_period
from byheart.checkpoints.proof.config import Rotary, Shape
from byheart.checkpoints.proof.ropes import RopeScaling
from byheart.errors import ExportError, MissingExtraError

YARN_TURNS = (32.0, 1.0)  # in the code of llama.cpp
NEARLY = 1 / 16  # by which frequencies may be off where llama.cpp rounds the ends of yarn's ramp


def gguf_library() -> Any:
    """Return the package that writes GGUF."""
    try:
        import gguf
    except ImportError:
        raise MissingExtraError("export to GGUF", "gguf") from None
    return gguf


def describe(writer: Any, shape: Shape, centred: bool) -> None:
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.units)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads if shape.latent is None else 1)
    writer.add_vocab_size(shape.vocabulary)
    if centred:
        writer.add_layer_norm_eps(shape.eps)
    else:
        _describe_heads(writer, shape)
        writer.add_layer_norm_rms_eps(shape.eps)
    if shape.rotary is not None:
        writer.add_rope_dimension_count(shape.rotary.dims)
        writer.add_rope_freq_base(shape.rotary.theta)
        _describe_scaling(writer, shape.rotary)
    if shape.family == "gpt_neox":
        writer.add_parallel_residual(shape.parallel)
    if shape.family == "phi3":
        writer.add_sliding_window(0)
        writer.add_rope_scaling_orig_ctx_len(shape.positions)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
    if shape.expert_units:
        writer.add_expert_feed_forward_length(shape.expert_units)
    if any(kind.window is not None for kind in shape.kinds):
        _describe_windows(writer, shape)
    if shape.routing.scoring == "sigmoid":
        _describe_router(writer, shape)
    if shape.family == "granite":
        writer.add_embedding_scale(shape.embedding_scale)
        writer.add_residual_scale(shape.residual_scale)
        writer.add_attention_scale(shape.scale)
        writer.add_logit_scale(shape.logit_scale)
    if shape.family == "cohere":  # here logits are multiplied
        writer.add_logit_scale(1 / shape.logit_scale)


def _describe_heads(writer: Any, shape: Shape) -> None:
    """Latents make one key-value head for all; the sizes of expanded heads have their own names."""
    if shape.latent is None:
        writer.add_key_length(shape.head_dim)
        writer.add_value_length(shape.value_size)
        return
    turned = 0 if shape.rotary is None else shape.rotary.dims
    writer.add_key_length(shape.latent.rank + turned)
    writer.add_value_length(shape.latent.rank)
    writer.add_key_length_mla(shape.head_dim)
    writer.add_value_length_mla(shape.value_size)
    writer.add_kv_lora_rank(shape.latent.rank)
    if shape.latent.q_rank is not None:
        writer.add_q_lora_rank(shape.latent.q_rank)


def _describe_windows(writer: Any, shape: Shape) -> None:
    """llama.cpp's gpt-oss has its period in the code; gemma3 reads it, and a rotary base for layers with a window."""
    sliding = next(kind for kind in shape.kinds if kind.window is not None)
    writer.add_sliding_window(sliding.window)
    if shape.family == "gemma3_text" and sliding.rotary is not None:
        writer.add_sliding_window_pattern(window_period(shape))
        writer.add_rope_freq_base_swa(sliding.rotary.theta)


def _describe_router(writer: Any, shape: Shape) -> None:
    rule = shape.routing
    writer.add_leading_dense_block_count(shape.dense_layers)
    writer.add_expert_gating_func(gguf_library().ExpertGatingFuncType.SIGMOID)
    writer.add_expert_shared_count(shape.shared_units // shape.expert_units)
    writer.add_expert_weights_norm(True)
    writer.add_expert_weights_scale(rule.factor)
    writer.add_expert_group_count(rule.groups)
    writer.add_expert_group_used_count(rule.groups_used)


def _describe_scaling(writer: Any, rotary: Rotary) -> None:
    """Linear scaling and yarn are settings; Llama 3's and longrope are tensors of factors."""
    if rotary.scaling is not None and rotary.scaling.kind == "longrope":
        writer.add_rope_scaling_attn_factors(rotary.gain)
    if rotary.scaling is None or rotary.scaling.kind in ("llama3", "longrope"):
        return
    writer.add_rope_scaling_type(gguf_library().RopeScalingType(rotary.scaling.kind))
    writer.add_rope_scaling_factor(rotary.scaling.factor)
    if rotary.scaling.kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rotary.scaling.original)
        _check_yarn(rotary, rotary.scaling)
        if rotary.scaling.mscales is not None:  # its loader divides by 0.1 again
            writer.add_rope_scaling_yarn_log_mul(0.1 * rotary.scaling.mscales[1])


def _check_yarn(rotary: Rotary, scaling: RopeScaling) -> None:
    """llama.cpp has the ramp's turns in its code, and rounds its ends to whole numbers."""
    if scaling.turns != YARN_TURNS or len(set(scaling.mscales or (1.0,))) > 1:
        raise ExportError(
            f"llama.cpp's yarn has a ramp between {YARN_TURNS} turns and one mscale, not {scaling.turns} and "
            f"{scaling.mscales}"
        )
    rounded = replace(rotary, scaling=replace(scaling, truncated=True)).frequencies
    if np.abs(rounded / rotary.frequencies - 1).max() > NEARLY:
        raise ExportError("llama.cpp rounds the ends of yarn's ramp, which changes frequencies of this model too much")
