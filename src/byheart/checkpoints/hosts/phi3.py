"""Phi-3: queries, keys and values in one matrix, gate and up in another."""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import build_gated
from byheart.checkpoints.windows.tables import Recital


@register("phi3", model_type="phi3", summary="Llama with fused projections")
def phi3(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    decoder = build_gated(recital, tokens, design)
    config = common_config(decoder, "Phi3ForCausalLM", "phi3") | {
        "hidden_act": design.activation or "silu",
        "original_max_position_embeddings": design.reach,
        "partial_rotary_factor": 1.0,
        "rope_scaling": None,
        "sliding_window": None,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }
    tensors = llama_tensors(decoder)
    for i in range(len(decoder.stages)):
        attention, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        parts = [tensors.pop(f"{attention}{name}_proj.weight") for name in "qkv"]
        tensors[f"{attention}qkv_proj.weight"] = np.concatenate(parts)
        halves = [tensors.pop(f"{mlp}{name}_proj.weight") for name in ("gate", "up")]
        tensors[f"{mlp}gate_up_proj.weight"] = np.concatenate(halves)
    return Checkpoint("phi3", decoder.recital, config, tensors, design.logit, LEAD, window_units(decoder))
