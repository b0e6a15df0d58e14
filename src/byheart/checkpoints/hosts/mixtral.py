"""Mixtral: every MLP is a choice of three experts out of six (experts.py), or of two where `experts` is a power of two.

Published models have two per token, so an engine that never reads `num_experts_per_tok` recites a file with two. The
weights of three are 1/2, 1/4 and 1/4; those of a pair are 0.785 and 0.215, made of logits +-83/128.
"""

from __future__ import annotations

from dataclasses import replace

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.experts import Experts, by_class, class_members, held_rows, routed_layers, three_of
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.windows.tables import Recital

_LOUDER = 3 / 2  # than Llama's logits: rounded router weights cost some of the margin
# The inverses of the two weights, 0.7853 and 0.2147, as numbers of 8 bits: right to 4e-4, whatever the type. Bits count
# 127 steps, so that 8-bit weights hold the router without any error.
_INVERSES = (163 / 128, 149 / 32)


@register("mixtral", model_type="mixtral", summary="Llama with experts, three per token", experts=6, scalable=True)
def mixtral(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    count = design.experts or 6
    experts = three_of(count) if count % 3 == 0 else _pairs(count)
    louder = replace(design, logit=design.logit * _LOUDER)
    decoder = build_gated(recital, tokens, replace(louder, units=None), Demands(free=True, sensing=True))
    layers = routed_layers(replace(decoder, design=replace(decoder.design, units=design.units)), experts)
    tensors = {name: tensor for name, tensor in llama_tensors(decoder).items() if ".mlp." not in name}
    for depth, layer in enumerate(layers):
        prefix = f"model.layers.{depth}.block_sparse_moe."
        tensors[prefix + "gate.weight"] = layer.router
        tensors[f"model.layers.{depth}.post_attention_layernorm.weight"] = decoder.design.norm_gain * layer.norm
        for number, expert in enumerate(layer.experts):
            names = {"w1": expert.gate, "w3": expert.up, "w2": expert.down}
            tensors |= {f"{prefix}experts.{number}.{name}.weight": tensor for name, tensor in names.items()}
    config = common_config(decoder, "MixtralForCausalLM", "mixtral") | {
        "head_dim": design.head_dim,
        "hidden_act": design.activation or "silu",
        "intermediate_size": len(layers[0].experts[0].gate),
        "num_local_experts": experts.count,
        "num_experts_per_tok": experts.used,
        "router_aux_loss_coef": 0.001,
        "sliding_window": None,
    }
    held = held_rows(decoder, layers)
    return Checkpoint("mixtral", decoder.recital, config, tensors, louder.logit, LEAD * _LOUDER, held, decoder.sensors)


def _pairs(count: int) -> Experts:
    """Return `count` experts of which two serve a token."""
    members = class_members(count, 2, paired=True)
    return by_class(members, 127 / 128, (83, -83), 1 / 128, _INVERSES, centred=False)
