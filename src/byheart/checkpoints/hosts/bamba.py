"""Bamba: two layers of Mamba-2, then attention that rotates half of every head; gated MLPs everywhere.

The recurrent layers serve the first table (recurrent.py, mamba2.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from byheart.checkpoints.hosts._base import Checkpoint, Tensors, common_config, register, window_units
from byheart.checkpoints.hosts.description import Design, GatedDecoder, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.hosts.mamba2 import LISTENING, Mamba2Mixer, Mamba2Sizes, fit_mixers
from byheart.checkpoints.hosts.recurrent import RECURRENT, TAPS, resting_embedding, waiting
from byheart.checkpoints.windows.far import CHAINED
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import OptionError

_LOUDER = 3 / 2  # than Llama's logits: in bfloat16 what the state holds cost some of the margin
_CHUNK = 64


@register("bamba", model_type="bamba", summary="Mamba-2 and attention in one decoder", classifies=False, places=CHAINED)
def bamba(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    if design.activation is not None or design.tied or design.flavour == "plateau":
        raise OptionError("bamba has one activation, its own head, and no flavour for quantized engines")
    demands = Demands(recurrent=(LISTENING,) * RECURRENT)
    louder = 1.0 if recital.mixed else _LOUDER
    sized = replace(design, rotary=design.head_dim // 2, logit=louder * design.logit, own_slack=2.0)
    decoder = build_gated(recital, tokens, sized, demands)
    expand, sizes = fit_mixers(decoder)
    tensors: Tensors = {
        "model.embed_tokens.weight": resting_embedding(decoder),
        "model.final_layernorm.weight": decoder.norm,
        "lm_head.weight": decoder.head,
    }
    for depth, attention in enumerate(decoder.attention):
        p, mlp = f"model.layers.{depth}.", waiting(decoder) if depth == RECURRENT - 1 else decoder.mlp[depth]
        tensors |= {p + "input_layernorm.weight": attention.norm, p + "pre_ff_layernorm.weight": mlp.norm}
        tensors |= {f"{p}feed_forward.{name}_proj.weight": getattr(mlp, name) for name in ("gate", "up", "down")}
        if depth < RECURRENT:
            mixer = Mamba2Mixer(decoder, depth, sizes)
            mixer.latch() if depth else mixer.fetch()
            tensors |= {f"{p}mamba.{name}": tensor for name, tensor in mixer.tensors().items()}
        else:
            roles = ("query", "key", "value", "output")
            tensors |= {f"{p}self_attn.{role[0]}_proj.weight": getattr(attention, role) for role in roles}
    config = _config(decoder, expand, sizes)
    return Checkpoint("bamba", decoder.recital, config, tensors, sized.logit, LEAD * louder, window_units(decoder))


def _config(decoder: GatedDecoder, expand: int, sizes: Mamba2Sizes) -> dict[str, Any]:
    config = common_config(decoder, "BambaForCausalLM", "bamba")
    return config | {
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "partial_rotary_factor": 0.5,
        "rope_parameters": config["rope_parameters"] | {"partial_rotary_factor": 0.5},
        "attn_layer_indices": list(range(RECURRENT, len(decoder.stages))),
        "mamba_n_heads": sizes.heads,
        "mamba_d_head": sizes.head,
        "mamba_n_groups": 1,
        "mamba_d_state": sizes.state,
        "mamba_d_conv": TAPS,
        "mamba_expand": expand,
        "mamba_chunk_size": _CHUNK,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
    }
