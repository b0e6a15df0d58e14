"""gpt-oss: sinks in the softmax, windows in every other layer, biases, yarn, and experts with a clamped gate.

Gate and up share one tensor, row by row in turn. Yarn's factor is the reach divided by the original positions, which
are so few that most frequencies are slowed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Checkpoint, Tensors, common_config, register
from byheart.checkpoints.hosts.clamped import LIMIT, clamped_weights
from byheart.checkpoints.hosts.description import Design, GatedDecoder, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.experts import Experts, RoutedLayer, biased_four_of, held_rows, routed_layers
from byheart.checkpoints.hosts.gated import AttentionKind, Demands, build_gated
from byheart.checkpoints.hosts.scaling import built_in_yarn
from byheart.checkpoints.hosts.sinks import with_sinks
from byheart.checkpoints.windows.far import YARN
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import OptionError

_LOUDER = 3 / 2  # than Llama's logits: rounded router weights cost some of the margin


@register(
    "gpt-oss", model_type="gpt_oss", summary="sinks, windows in turn, biases, experts with a clamped gate", experts=16,
    places=YARN,
)  # fmt: skip
def gpt_oss(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    if design.activation is not None or design.tied:
        raise OptionError("gpt-oss has one activation, and its own head")
    experts = biased_four_of(design.experts or 16)
    scaling = built_in_yarn(design.reach, design.theta, design.head_dim, truncated=False)
    louder = replace(design, logit=design.logit * _LOUDER, scaling=scaling, own_slack=2.0)
    demands = Demands(kinds=(AttentionKind(sliding=True), AttentionKind()), free=True, apart=True, least_layers=2)
    decoder = build_gated(recital, tokens, replace(louder, units=None), demands)
    sized = replace(decoder, design=replace(decoder.design, units=design.units))
    layers = routed_layers(sized, experts, write=clamped_weights)
    tensors = {
        "model.embed_tokens.weight": decoder.embedding,
        "model.norm.weight": decoder.norm,
        "lm_head.weight": decoder.head,
    }
    for depth, layer in enumerate(layers):
        tensors |= _layer_tensors(decoder, depth, layer, experts)
    held = held_rows(decoder, layers)
    config = _config(decoder, experts, len(layers[0].experts[0].gate))
    return Checkpoint("gpt-oss", decoder.recital, config, tensors, louder.logit, LEAD * _LOUDER, held)


def _layer_tensors(decoder: GatedDecoder, depth: int, layer: RoutedLayer, experts: Experts) -> Tensors:
    p, attention = f"model.layers.{depth}.", with_sinks(decoder, depth)
    found: Tensors = {
        p + "input_layernorm.weight": decoder.attention[depth].norm,
        p + "post_attention_layernorm.weight": layer.norm,
        p + "self_attn.sinks": attention.sinks,
        p + "mlp.router.weight": layer.router,
    }
    if experts.bias is not None:
        found[p + "mlp.router.bias"] = experts.bias
    for role, matrix in attention.weights.items():
        found[f"{p}self_attn.{role[0]}_proj.weight"] = matrix
        found[f"{p}self_attn.{role[0]}_proj.bias"] = attention.biases[role]
    gate, up, down = (np.stack([getattr(e, name) for e in layer.experts]) for name in ("gate", "up", "down"))
    shifts = [np.stack([e.biases[k] for e in layer.experts if e.biases is not None]) for k in range(3)]
    p += "mlp.experts."
    return found | {
        p + "gate_up_proj": np.ascontiguousarray(_in_turn(gate, up).swapaxes(1, 2)),
        p + "gate_up_proj_bias": _in_turn(shifts[0], shifts[1]),
        p + "down_proj": np.ascontiguousarray(down.swapaxes(1, 2)),
        p + "down_proj_bias": shifts[2],
    }


def _in_turn(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Rows of both, in turn: (experts, 2 units, ...)."""
    return np.stack([first, second], axis=2).reshape(len(first), -1, *first.shape[2:])


def _config(decoder: GatedDecoder, experts: Experts, units: int) -> dict[str, Any]:
    sliding = [design.window is not None for design in decoder.designs]
    window = next(design.window for design in decoder.designs if design.window is not None)
    scaling = decoder.design.scaling
    return common_config(decoder, "GptOssForCausalLM", "gpt_oss") | {
        "head_dim": decoder.design.head_dim,
        "hidden_act": "silu",
        "attention_bias": True,
        "intermediate_size": units,
        "num_local_experts": experts.count,
        "num_experts_per_tok": experts.used,
        "experts_per_token": experts.used,
        "swiglu_limit": LIMIT,
        "sliding_window": window,
        "layer_types": ["sliding_attention" if slides else "full_attention" for slides in sliding],
        "initial_context_length": scaling.original if scaling is not None else decoder.design.reach,
        "router_aux_loss_coef": 0.9,
        "output_router_logits": False,
    }
