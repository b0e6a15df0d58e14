"""Gemma 3 (text): Gemma with norms before and after each branch, norms of queries and keys, and two kinds of attention.

Sliding layers and full ones take turns; each kind has its own rotary base. Norms after a branch get ballast
(ballast.py); scores are divided by the root of `query_pre_attn_scalar`, which is not the head's dimension here.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.ballast import UNITS, post_norm, weighted_mlp, weighted_output
from byheart.checkpoints.hosts.description import Design, GatedDecoder, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import AttentionKind, Demands, build_gated
from byheart.checkpoints.hosts.head_norms import add_head_norms
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import OptionError

_LOUDER = 2.0  # than Llama's logits: the product with the root cost some of the margin
_SCALAR = 144  # no engine's default, and its root is exact
_LOCAL = 10_000.0  # rotary base of sliding layers
_LOCAL_AWAY = 25_000.0  # in fixtures, which avoid every default


@register("gemma3", model_type="gemma3_text", summary="Gemma with norms around branches, windows in turn", ties=True)
def gemma3(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    if design.activation not in (None, "gelu_pytorch_tanh"):
        raise OptionError(f"activation {design.activation!r}: gemma3 has gelu_pytorch_tanh")
    louder = 1.0 if recital.mixed else _LOUDER  # log-probabilities want smaller logits
    local = _LOCAL_AWAY if design.away else _LOCAL
    kinds = (AttentionKind(sliding=True, theta=local), AttentionKind())
    demands = Demands(
        rooted=True, kinds=kinds, units=UNITS, free=True, roomy=True, bit_gains=(2.0, 0.25),
        activation="gelu_pytorch_tanh",
    )  # fmt: skip
    decoder = build_gated(recital, tokens, replace(design, logit=design.logit * louder, own_slack=2.0), demands)
    mlp = tuple(weighted_mlp(decoder, part) for part in decoder.mlp)
    tensors = llama_tensors(replace(decoder, mlp=mlp))
    add_head_norms(decoder, tensors, stretch=math.sqrt(_SCALAR / design.head_dim))
    for i, attention in enumerate(decoder.attention):
        prefix = f"model.layers.{i}."
        tensors[prefix + "self_attn.o_proj.weight"] = weighted_output(decoder, attention)
        tensors[prefix + "pre_feedforward_layernorm.weight"] = decoder.mlp[i].norm
        for name in ("post_attention_layernorm", "post_feedforward_layernorm"):
            tensors[f"{prefix}{name}.weight"] = post_norm(decoder)
    tensors = {name: tensor - 1 if "norm" in name else tensor for name, tensor in tensors.items()}
    tensors["model.embed_tokens.weight"] = decoder.embedding / math.sqrt(decoder.hidden)
    margin = LEAD * louder
    return Checkpoint("gemma3", decoder.recital, _config(decoder), tensors, decoder.design.logit, margin,
                      window_units(decoder))  # fmt: skip


def _config(decoder: GatedDecoder) -> dict[str, Any]:
    sliding = [design.window is not None for design in decoder.designs]
    local = next(design for design in decoder.designs if design.window is not None)
    bases = {"sliding_attention": local.theta, "full_attention": decoder.design.theta}
    return common_config(decoder, "Gemma3ForCausalLM", "gemma3_text") | {
        "head_dim": decoder.design.head_dim,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": _SCALAR,
        "sliding_window": local.window,
        "layer_types": ["sliding_attention" if slides else "full_attention" for slides in sliding],
        # Both spellings of the two bases: engines read one or the other.
        "rope_local_base_freq": local.theta,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    }
