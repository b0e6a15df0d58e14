"""DeepSeek-V3: latent attention, yarn whose factor multiplies scores, a dense layer, then experts in groups.

Engines differ in the epsilon of the latents' norms unless it is 1e-6. `suite.features.mtp` adds the layer of
multi-token prediction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from byheart.checkpoints.hosts._base import Checkpoint, Tensors, common_config, register, window_units
from byheart.checkpoints.hosts.description import Design, GatedDecoder, GatedWeights, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.experts import (
    FACTOR,
    GROUPS,
    GROUPS_USED,
    Experts,
    RoutedLayer,
    grouped_three_of,
    held_rows,
    routed_layers,
)
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.hosts.latents import LatentSizes, latent_attention
from byheart.checkpoints.hosts.scaling import built_in_yarn
from byheart.checkpoints.windows.far import YARN
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import OptionError

_LOUDER = 3 / 2  # than Llama's logits: rounded router weights cost some of the margin
EPSILON = 1e-6
_TURNED, _PLAIN = 64, 32  # dimensions of a head
_DENSE = 1  # layers without a router


@register(
    "deepseek-v3", model_type="deepseek_v3", summary="latent attention, experts chosen in groups, a shared one",
    experts=16, epsilon=EPSILON, places=YARN,
)  # fmt: skip
def deepseek_v3(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    if design.epsilon != EPSILON:
        raise OptionError(
            f"--norm-eps {design.epsilon}: engines agree on the norms of latents only where it is {EPSILON}"
        )
    if design.layers is not None and design.layers <= _DENSE:
        raise OptionError(f"--layers {design.layers}: the first layer of deepseek-v3 has no experts; give 2 or more")
    if design.tied or design.kv_heads not in (None, design.heads):
        raise OptionError("deepseek-v3 has its own head, and as many key-value heads as heads")
    sizes = LatentSizes.of(_TURNED + _PLAIN if design.head_dim == _TURNED else design.head_dim, _TURNED)
    experts = grouped_three_of(design.experts or 16)
    scaling = built_in_yarn(design.reach, design.theta, _TURNED, balanced=True)
    louder = replace(
        design, logit=design.logit * _LOUDER, scaling=scaling, kv_heads=1, head_dim=_TURNED, units=None
    )  # fmt: skip
    demands = Demands(free=True, apart=True, bit_gains=(2.0, 0.25), least_layers=_DENSE + 1)
    decoder = build_gated(recital, tokens, louder, demands)
    sized = replace(decoder, design=replace(decoder.design, units=design.units))
    layers = routed_layers(sized, experts, first=_DENSE)
    tensors: Tensors = {
        "model.embed_tokens.weight": decoder.embedding,
        "model.norm.weight": decoder.norm,
        "lm_head.weight": decoder.head,
    }
    for depth in range(len(decoder.stages)):
        p, routed = f"model.layers.{depth}.", layers[depth - _DENSE] if depth >= _DENSE else None
        tensors[p + "input_layernorm.weight"] = decoder.attention[depth].norm
        for name, tensor in latent_attention(decoder, depth, sizes).items():
            tensors[f"{p}self_attn.{name}.weight"] = tensor
        tensors[p + "post_attention_layernorm.weight"] = decoder.mlp[depth].norm if routed is None else routed.norm
        tensors |= _gated(p + "mlp.", decoder.mlp[depth]) if routed is None else _routed(p + "mlp.", routed, experts)
    held = [row for row in window_units(decoder) if row[0] < _DENSE] + held_rows(decoder, layers)
    config = _config(decoder, experts, sizes, len(layers[0].experts[0].gate) if layers else decoder.units)
    return Checkpoint("deepseek-v3", decoder.recital, config, tensors, louder.logit, LEAD * _LOUDER, held)


def _gated(p: str, mlp: GatedWeights) -> Tensors:
    return {f"{p}{name}_proj.weight": getattr(mlp, name) for name in ("gate", "up", "down")}


def _routed(p: str, layer: RoutedLayer, experts: Experts) -> Tensors:
    found: Tensors = {p + "gate.weight": layer.router}
    if experts.bias is not None:
        found[p + "gate.e_score_correction_bias"] = experts.bias
    for number, expert in enumerate(layer.experts):
        found |= _gated(f"{p}experts.{number}.", expert)
    return found if layer.shared is None else found | _gated(p + "shared_experts.", layer.shared)


def _config(decoder: GatedDecoder, experts: Experts, sizes: LatentSizes, units: int) -> dict[str, Any]:
    return common_config(decoder, "DeepseekV3ForCausalLM", "deepseek_v3") | {
        "num_key_value_heads": decoder.heads,
        "hidden_act": decoder.design.activation or "silu",
        "attention_bias": False,
        "q_lora_rank": sizes.q_rank,
        "kv_lora_rank": sizes.rank,
        "qk_rope_head_dim": sizes.turned,
        "qk_nope_head_dim": sizes.plain,
        "v_head_dim": sizes.value,
        "rope_interleave": True,
        "moe_intermediate_size": units,
        "n_routed_experts": experts.count,
        "n_shared_experts": 1,
        "num_experts_per_tok": experts.used,
        "n_group": GROUPS,
        "topk_group": GROUPS_USED,
        "norm_topk_prob": True,
        "routed_scaling_factor": FACTOR,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "first_k_dense_replace": min(_DENSE, len(decoder.stages)),
        "moe_layer_freq": 1,
        "num_nextn_predict_layers": 0,
        "ep_size": 1,
        "pretraining_tp": 1,
    }
