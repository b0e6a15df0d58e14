"""Phi-3: queries, keys and values in one matrix, gate and up in another.

Three quarters of a head turn, as in Phi-4-mini. With longrope, as there, each frequency has its own divisor, and texts
longer than the original positions divide by other numbers. Recitals are designed for the original positions: an
engine that takes the numbers for long texts recites nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.windows.tables import Recital

_TURNING = 3 / 4  # of a head, in fixtures and with longrope


@register("phi3", model_type="phi3", summary="Llama with fused projections", scalings=("longrope",))
def phi3(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    share, original = (_TURNING if design.away or design.scaling is not None else 1.0), design.reach
    if share < 1:
        design = replace(design, rotary=int(share * design.head_dim))
    if design.scaling is not None:
        design = replace(design, scaling=replace(design.scaling, original=original))
    decoder = build_gated(recital, tokens, design, Demands(sensing=True))
    config = common_config(decoder, "Phi3ForCausalLM", "phi3") | {
        "hidden_act": design.activation or "silu",
        "original_max_position_embeddings": original,
        "partial_rotary_factor": share,
        "sliding_window": None,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }
    if share < 1:
        config["rope_parameters"] |= {"partial_rotary_factor": share}
    if design.scaling is None:
        config["rope_scaling"] = None
    else:
        config["max_position_embeddings"] = round(design.scaling.factor * original)
    tensors = llama_tensors(decoder)
    for i in range(len(decoder.stages)):
        attention, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        parts = [tensors.pop(f"{attention}{name}_proj.weight") for name in "qkv"]
        tensors[f"{attention}qkv_proj.weight"] = np.concatenate(parts)
        halves = [tensors.pop(f"{mlp}{name}_proj.weight") for name in ("gate", "up")]
        tensors[f"{mlp}gate_up_proj.weight"] = np.concatenate(halves)
    return Checkpoint(
        "phi3", decoder.recital, config, tensors, design.logit, LEAD, window_units(decoder), decoder.sensors
    )
