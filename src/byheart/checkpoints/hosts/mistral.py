"""Mistral: Llama with a sliding window, which is just wide enough for the farthest offset.

The head that looks there would rather see the first place outside, so a window that is one too long shows as well as
one that is too short.
"""

from __future__ import annotations

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import AttentionKind, Demands, build_gated
from byheart.checkpoints.windows.tables import Recital


@register("mistral", model_type="mistral", summary="Llama with a sliding window", scalable=True)
def mistral(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    decoder = build_gated(
        recital, tokens, design, Demands(kinds=(AttentionKind(sliding=True),), free=True, sensing=True)
    )
    config = common_config(decoder, "MistralForCausalLM", "mistral") | {
        "head_dim": design.head_dim,
        "hidden_act": design.activation or "silu",
        "sliding_window": decoder.design.window,
    }
    tensors = llama_tensors(decoder)
    return Checkpoint(
        "mistral", decoder.recital, config, tensors, design.logit, LEAD, window_units(decoder), decoder.sensors
    )
