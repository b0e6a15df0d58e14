"""Gemma: gelu in the gate, norm weights that are stored minus 1, embeddings times sqrt(hidden), and a tied head.

The size of the stream is chosen so that every engine's product with the root is that size: see `rooted_kappa`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import OptionError

_LOUDER = 2.0  # than Llama's logits: the product with the root cost some of the margin


@register("gemma", model_type="gemma", summary="gelu, norms stored minus 1, scaled embeddings, tied head", ties=True)
def gemma(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    if design.activation not in (None, "gelu_pytorch_tanh"):
        raise OptionError(f"activation {design.activation!r}: gemma has gelu_pytorch_tanh")
    louder = 1.0 if recital.mixed else _LOUDER  # log-probabilities want smaller logits
    design = replace(design, logit=design.logit * louder)
    decoder = build_gated(
        recital,
        tokens,
        design,
        Demands(rooted=True, free=True, apart=True, sensing=True, activation="gelu_pytorch_tanh"),
    )
    config = common_config(decoder, "GemmaForCausalLM", "gemma") | {
        "head_dim": design.head_dim,
        "hidden_act": "gelu_pytorch_tanh",
        "attention_bias": False,
    }
    tensors = {name: t - 1 if "norm" in name else t for name, t in llama_tensors(decoder).items()}
    tensors["model.embed_tokens.weight"] = decoder.embedding / math.sqrt(decoder.hidden)
    return Checkpoint(
        "gemma", decoder.recital, config, tensors, design.logit, LEAD * louder, window_units(decoder), decoder.sensors
    )
