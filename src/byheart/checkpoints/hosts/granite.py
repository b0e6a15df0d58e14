"""Granite: four multipliers, of embeddings, of what branches add, of scores, and of logits.

The size of the stream is the embedding's multiplier times a number of 8 bits; what branches write, twice that size
divided by the residual multiplier, is a number of 8 bits too, so all weights are exact in every type.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byheart.checkpoints.dtypes import rounded
from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.windows.tables import Recital

EMBEDDING, RESIDUAL, ATTENTION, LOGITS = 12.0, 0.22, 0.03125, 16.0


@register(
    "granite",
    model_type="granite",
    summary="Llama with multipliers of embeddings, branches, scores and logits",
    scalable=True,
    classifies=False,
)
def granite(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    decoder = build_gated(recital, tokens, replace(design, kappa=stream_size()), Demands(sensing=True, alarm=2048.0))
    config = common_config(decoder, "GraniteForCausalLM", "granite") | {
        "hidden_act": design.activation or "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "embedding_multiplier": EMBEDDING,
        "residual_multiplier": RESIDUAL,
        "attention_multiplier": ATTENTION,
        "logits_scaling": LOGITS,
    }
    tensors = llama_tensors(decoder)
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = tensor / RESIDUAL
        elif name.endswith("q_proj.weight"):
            tensors[name] = tensor * (design.head_dim**-0.5 / ATTENTION)
    tensors["model.embed_tokens.weight"] = decoder.embedding / EMBEDDING
    if not decoder.design.tied:
        tensors["lm_head.weight"] = decoder.head * LOGITS
    return Checkpoint(
        "granite", decoder.recital, config, tensors, design.logit, LEAD, window_units(decoder), decoder.sensors
    )


def stream_size() -> float:
    """Return kappa: EMBEDDING times a number of 8 bits, such that 2 kappa / RESIDUAL is nearly one too.

    >>> stream_size()
    0.38671875
    """
    stored = np.array([n * 2.0**e for n in range(128, 256) for e in (-13, -12, -11)])
    sizes = EMBEDDING * stored
    sizes = sizes[(sizes >= 0.25) & (sizes <= 0.75) & (rounded(sizes, "bfloat16") == sizes)]
    wanted = 2 * sizes / RESIDUAL
    return float(sizes[np.abs(rounded(wanted, "bfloat16") / wanted - 1).argmin()])
