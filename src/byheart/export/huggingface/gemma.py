"""Gemma: gelu in the gate, norm weights that are stored minus 1, embeddings times sqrt(hidden), and a tied head.

The hidden size is a square, so that the root is a whole number and every engine's product is exact.
"""

from __future__ import annotations

import math

from byheart.export.huggingface.description import Design, Tokens
from byheart.export.huggingface.ends import LEAD
from byheart.export.huggingface.gated import Demands, build_gated
from byheart.export.huggingface.host import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.export.huggingface.recognising import GELU_PROBE
from byheart.ir.recital import Recital


@register("gemma", model_type="gemma", summary="gelu, norms stored minus 1, scaled embeddings, tied head", ties=True)
def gemma(recital: Recital, tokens: Tokens, design: Design) -> Checkpoint:
    decoder = build_gated(recital, tokens, design, Demands(square=True, activation_probe=GELU_PROBE))
    config = common_config(decoder, "GemmaForCausalLM", "gemma") | {
        "head_dim": design.head_dim,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
    }
    tensors = {name: t - 1 if "norm" in name else t for name, t in llama_tensors(decoder).items()}
    tensors["model.embed_tokens.weight"] = decoder.embedding / math.isqrt(decoder.hidden)
    return Checkpoint("gemma", decoder.recital, config, tensors, design.logit, LEAD, window_units(decoder))
