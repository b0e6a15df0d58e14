"""Qwen3: queries and keys pass their own RMSNorm in every head (head_norms.py)."""

from __future__ import annotations

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.hosts.head_norms import add_head_norms
from byheart.checkpoints.windows.tables import Recital


@register("qwen3", model_type="qwen3", summary="Llama with norms of queries and keys", scalable=True)
def qwen3(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    decoder = build_gated(recital, tokens, design, Demands(free=True, apart=True, sensing=True, equal_keys=True))
    config = common_config(decoder, "Qwen3ForCausalLM", "qwen3") | {
        "head_dim": design.head_dim,
        "hidden_act": design.activation or "silu",
        "attention_bias": False,
        "use_sliding_window": False,
        "max_window_layers": len(decoder.stages),
        "sliding_window": None,
    }
    tensors = llama_tensors(decoder)
    add_head_norms(decoder, tensors)
    return Checkpoint(
        "qwen3", decoder.recital, config, tensors, design.logit, LEAD, window_units(decoder), decoder.sensors
    )
