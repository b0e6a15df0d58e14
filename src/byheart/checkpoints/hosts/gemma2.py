"""Gemma 2: norms before and after each branch, windows in every other layer, scores and logits capped by tanh.

Near heads look two places back at most, far ones farther (capped.py). Logits are shifted so that the correct one and
all others have the same distance from 0, where the last cap bends least. Listeners have scores where the cap bends:
without it they are much sharper.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.ballast import UNITS, post_norm, weighted_mlp, weighted_output
from byheart.checkpoints.hosts.capped import LONGEST
from byheart.checkpoints.hosts.description import Design, GatedDecoder, SpecialTokens
from byheart.checkpoints.hosts.gated import AttentionKind, Demands, build_gated
from byheart.checkpoints.windows.far import CAPPED
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import ExportError, OptionError

CAP, FINAL = 50.0, 30.0  # of scores and of logits, as in all released checkpoints
_LOGIT = 48.0  # between the correct token and those that share half of its word
_LOWERED = 5 / 8  # of that, by all logits
_LEAD = 32.0  # after the cap
_SCALAR = 144  # no engine's default, and its root is exact


@register(
    "gemma2", model_type="gemma2", summary="Gemma with norms around branches and capped scores", ties=True,
    lookback=LONGEST, places=CAPPED,
)  # fmt: skip
def gemma2(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    if design.activation not in (None, "gelu_pytorch_tanh"):
        raise OptionError(f"activation {design.activation!r}: gemma2 has gelu_pytorch_tanh")
    if recital.mixed:
        raise ExportError("gemma2 caps its logits, so windows with several continuations have no exact shares there")
    if design.flavour == "plateau":
        raise OptionError("gemma2 has no flavour for quantized engines")
    kinds = (AttentionKind(sliding=True), AttentionKind())
    demands = Demands(
        rooted=True, kinds=kinds, units=UNITS, free=True, roomy=True, bit_gains=(2.0, 0.25),
        activation="gelu_pytorch_tanh",
    )  # fmt: skip
    decoder = build_gated(recital, tokens, replace(design, logit=_LOGIT, cap=CAP), demands)
    mlp = tuple(weighted_mlp(decoder, part) for part in decoder.mlp)
    tensors = llama_tensors(replace(decoder, mlp=mlp))
    stored, wide = decoder.embedding / math.sqrt(decoder.hidden), decoder.layout.width
    norm = decoder.norm.copy()
    norm[wide] = -_LOWERED * _LOGIT / (float(abs(stored[0]).max()) * len(wide))
    tensors["model.norm.weight"] = norm
    for i, attention in enumerate(decoder.attention):
        prefix = f"model.layers.{i}."
        tensors[prefix + "self_attn.q_proj.weight"] = attention.query * math.sqrt(_SCALAR / design.head_dim)
        tensors[prefix + "self_attn.o_proj.weight"] = weighted_output(decoder, attention)
        tensors[prefix + "pre_feedforward_layernorm.weight"] = decoder.mlp[i].norm
        for name in ("post_attention_layernorm", "post_feedforward_layernorm"):
            tensors[f"{prefix}{name}.weight"] = post_norm(decoder)
    tensors = {name: tensor - 1 if "norm" in name else tensor for name, tensor in tensors.items()}
    tensors["model.embed_tokens.weight"] = stored
    return Checkpoint("gemma2", decoder.recital, _config(decoder), tensors, _LOGIT, _LEAD, window_units(decoder))


def _config(decoder: GatedDecoder) -> dict[str, Any]:
    sliding = [design.window is not None for design in decoder.designs]
    window = next(design.window for design in decoder.designs if design.window is not None)
    return common_config(decoder, "Gemma2ForCausalLM", "gemma2") | {
        "head_dim": decoder.design.head_dim,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": _SCALAR,
        "sliding_window": window,
        "layer_types": ["sliding_attention" if slides else "full_attention" for slides in sliding],
        "attn_logit_softcapping": CAP,
        "final_logit_softcapping": FINAL,
    }
