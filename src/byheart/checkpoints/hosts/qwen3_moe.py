"""Qwen3-MoE: Qwen3's attention, and many small experts of which four serve a token (experts.py).

Softmax runs over all experts; the weights of the best four are then divided by their sum (`norm_topk_prob`). They are
1/2, 1/4, 1/8 and 1/8.
"""

from __future__ import annotations

from dataclasses import replace

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.experts import four_of, held_rows, routed_layers
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.hosts.head_norms import add_head_norms
from byheart.checkpoints.windows.tables import Recital

_LOUDER = 3 / 2  # than Llama's logits: rounded router weights cost some of the margin


@register(
    "qwen3-moe", model_type="qwen3_moe", summary="Qwen3 with small experts, four per token", experts=16, scalable=True
)
def qwen3_moe(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    experts = four_of(design.experts or 16)
    louder = replace(design, logit=design.logit * _LOUDER, own_slack=2.0)
    decoder = build_gated(
        recital, tokens, replace(louder, units=None), Demands(free=True, apart=True, sensing=True, equal_keys=True)
    )
    layers = routed_layers(replace(decoder, design=replace(decoder.design, units=design.units)), experts)
    tensors = {name: tensor for name, tensor in llama_tensors(decoder).items() if ".mlp." not in name}
    add_head_norms(decoder, tensors)
    for depth, layer in enumerate(layers):
        prefix = f"model.layers.{depth}.mlp."
        tensors[prefix + "gate.weight"] = layer.router
        tensors[f"model.layers.{depth}.post_attention_layernorm.weight"] = decoder.design.norm_gain * layer.norm
        for number, expert in enumerate(layer.experts):
            names = {"gate_proj": expert.gate, "up_proj": expert.up, "down_proj": expert.down}
            tensors |= {f"{prefix}experts.{number}.{name}.weight": tensor for name, tensor in names.items()}
    units = len(layers[0].experts[0].gate)
    config = common_config(decoder, "Qwen3MoeForCausalLM", "qwen3_moe") | {
        "head_dim": design.head_dim,
        "hidden_act": design.activation or "silu",
        "attention_bias": False,
        "use_sliding_window": False,
        "max_window_layers": len(decoder.stages),
        "sliding_window": None,
        "intermediate_size": units * experts.count,
        "moe_intermediate_size": units,
        "num_experts": experts.count,
        "num_experts_per_tok": experts.used,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "router_aux_loss_coef": 0.001,
        "output_router_logits": False,
    }
    held = held_rows(decoder, layers)
    return Checkpoint(
        "qwen3-moe", decoder.recital, config, tensors, louder.logit, LEAD * _LOUDER, held, decoder.sensors
    )
