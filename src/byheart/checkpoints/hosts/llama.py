"""Llama: RMSNorm, rotary positions, grouped queries, SwiGLU; the others are described by how they differ from it."""

from __future__ import annotations

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.description import Design, GatedDecoder, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.windows.tables import Recital


@register("llama", model_type="llama", summary="RMSNorm, rotary positions, grouped queries, SwiGLU", scalable=True)
def llama(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    return llama_checkpoint(build_gated(recital, tokens, design, Demands(free=True, sensing=True)))


def llama_checkpoint(decoder: GatedDecoder) -> Checkpoint:
    """Return a decoder under Llama's names, which other architectures contain."""
    design = decoder.design
    config = common_config(decoder, "LlamaForCausalLM", "llama") | {
        "head_dim": design.head_dim,
        "hidden_act": design.activation or "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "pretraining_tp": 1,
    }
    return Checkpoint(
        "llama",
        decoder.recital,
        config,
        llama_tensors(decoder),
        design.logit,
        LEAD,
        window_units(decoder),
        decoder.sensors,
    )
