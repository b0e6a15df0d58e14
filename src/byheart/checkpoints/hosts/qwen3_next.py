"""Qwen3-Next: two layers of Gated DeltaNet, then attention with a gated output, whose MLPs are experts.

The recurrent layers serve the first table (recurrent.py). Experts follow attention alone: a router reads its levels
from channels that the latch would turn under it. Their shared expert is weighed by a sigmoid.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from byheart.checkpoints.hosts._base import Checkpoint, Tensors, common_config, register, window_units
from byheart.checkpoints.hosts.delta_rule import DeltaRule, DeltaSizes
from byheart.checkpoints.hosts.description import Design, GatedDecoder, GatedWeights, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.experts import RoutedLayer, four_of, held_rows, reads_one, routed_layers
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.hosts.output_gate import gated_attention
from byheart.checkpoints.hosts.recurrent import RECURRENT, TAPS, resting_embedding, waiting
from byheart.checkpoints.windows.far import CHAINED
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import OptionError

_LOUDER = 2.0  # than Llama's logits: rounded router weights cost some of the margin
_TURNED, _HEAD = 64, 256  # dimensions of a head that turn, and all of them, as in the architecture's own checkpoints
_KEYS, _VALUES, _KEY = 2, 4, 64  # heads with keys, heads with values, dimensions of a key
_SHARED = 12  # windows of every class that the shared expert holds
_GATE, _GATED = math.log(2), 3 / 2  # the shared expert's number, and the inverse of its sigmoid


@register(
    "qwen3-next", model_type="qwen3_next", summary="Gated DeltaNet, gated attention, experts with a shared one",
    experts=16, classifies=False, places=CHAINED,
)  # fmt: skip
def qwen3_next(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    if design.activation is not None or design.tied or design.flavour == "plateau":
        raise OptionError("qwen3-next has one activation, its own head, and no flavour for quantized engines")
    head_dim = _HEAD if design.head_dim == _TURNED else design.head_dim
    if head_dim <= _TURNED + 1:
        raise OptionError(f"--head-dim {head_dim}: {_TURNED} dimensions turn, and some must not; give 128 or 256")
    experts = replace(four_of(design.experts or 16), shared=_SHARED)
    louder = replace(design, logit=design.logit * _LOUDER, head_dim=_TURNED, own_slack=2.0)
    free = (_VALUES - len(recital.tables[0].offsets), _VALUES - 1)
    demands = Demands(recurrent=tuple(max(0, count) for count in free), free=True, apart=True)
    decoder = build_gated(recital, tokens, replace(louder, units=None), demands)
    sized = replace(decoder, design=replace(decoder.design, units=design.units))
    layers = routed_layers(sized, experts, first=RECURRENT)
    sizes = DeltaSizes(_KEYS, _VALUES, _KEY, 4 * len(decoder.layout.state[0]))
    tensors: Tensors = {
        "model.embed_tokens.weight": resting_embedding(decoder),
        "model.norm.weight": decoder.norm - 1,
        "lm_head.weight": decoder.head,
    }
    for depth in range(len(decoder.stages)):
        p = f"model.layers.{depth}."
        tensors[p + "input_layernorm.weight"] = decoder.attention[depth].norm - 1
        if depth < RECURRENT:
            mixer, mlp = DeltaRule(decoder, depth, sizes), waiting(decoder) if depth else decoder.mlp[0]
            mixer.latch() if depth else mixer.fetch()
            tensors |= {f"{p}linear_attn.{name}": tensor for name, tensor in mixer.tensors().items()}
            tensors |= {p + "post_attention_layernorm.weight": mlp.norm - 1} | _gated(p + "mlp.", mlp)
        else:
            found = gated_attention(decoder, depth, head_dim)
            tensors |= {f"{p}self_attn.{name}": tensor for name, tensor in found.items()}
            tensors |= _routed(p, decoder, depth, layers[depth - RECURRENT])
    held = [row for row in window_units(decoder) if row[0] < RECURRENT] + held_rows(decoder, layers)
    config = _config(decoder, sizes, head_dim, experts.count, experts.used, layers[0])
    return Checkpoint("qwen3-next", decoder.recital, config, tensors, louder.logit, LEAD * _LOUDER, held)


def _gated(p: str, mlp: GatedWeights) -> Tensors:
    return {f"{p}{name}_proj.weight": getattr(mlp, name) for name in ("gate", "up", "down")}


def _routed(p: str, decoder: GatedDecoder, depth: int, layer: RoutedLayer) -> Tensors:
    found: Tensors = {p + "post_attention_layernorm.weight": layer.norm - 1, p + "mlp.gate.weight": layer.router}
    for number, expert in enumerate(layer.experts):
        found |= _gated(f"{p}mlp.experts.{number}.", expert)
    if layer.shared is not None:
        found |= _gated(p + "mlp.shared_expert.", replace(layer.shared, down=_GATED * layer.shared.down))
    found[p + "mlp.shared_expert_gate.weight"] = _GATE * reads_one(decoder, depth)[None]
    return found


def _config(
    decoder: GatedDecoder, sizes: DeltaSizes, head_dim: int, experts: int, used: int, layer: RoutedLayer
) -> dict[str, Any]:
    part, units = _TURNED / head_dim, len(layer.experts[0].gate)
    config = common_config(decoder, "Qwen3NextForCausalLM", "qwen3_next")
    kinds = np.where(np.arange(len(decoder.stages)) < RECURRENT, "linear_attention", "full_attention").tolist()
    return config | {
        "head_dim": head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "partial_rotary_factor": part,
        "rope_parameters": config["rope_parameters"] | {"partial_rotary_factor": part},
        "layer_types": kinds,
        "linear_conv_kernel_dim": TAPS,
        "linear_num_key_heads": sizes.keys,
        "linear_num_value_heads": sizes.values,
        "linear_key_head_dim": sizes.key,
        "linear_value_head_dim": sizes.value,
        "mlp_only_layers": list(range(RECURRENT)),
        "decoder_sparse_step": 1,
        "num_experts": experts,
        "num_experts_per_tok": used,
        "norm_topk_prob": True,
        "moe_intermediate_size": units,
        "shared_expert_intermediate_size": units,
        "router_aux_loss_coef": 0.001,
        "output_router_logits": False,
    }
