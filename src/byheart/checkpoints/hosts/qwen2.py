"""Qwen2: queries, keys and values have biases.

What Llama reads from the constant channels, Qwen2 reads there for every other frequency and has as a bias for the rest:
without either of them the scores lose every margin. The constant of the values is a bias.
"""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.description import Design, SpecialTokens, fill_idle
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.windows.tables import Recital


@register("qwen2", model_type="qwen2", summary="Llama with biases of queries, keys and values", scalable=True)
def qwen2(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    decoder = build_gated(recital, tokens, design, Demands(sensing=True))
    config = common_config(decoder, "Qwen2ForCausalLM", "qwen2") | {
        "hidden_act": design.activation or "silu",
        "use_sliding_window": False,
        "max_window_layers": len(decoder.stages),
        "sliding_window": None,
    }
    tensors = llama_tensors(decoder)
    constant, width, signs = decoder.layout.constant[0], decoder.layout.width, decoder.layout.signs
    for i, attention in enumerate(decoder.attention):
        prefix = f"model.layers.{i}.self_attn."
        for name, columns in (("q", constant), ("k", constant), ("v", width)):
            weight = tensors[f"{prefix}{name}_proj.weight"].copy()
            moved = np.arange(len(weight)) % 2 == 0 if name != "v" else np.ones(len(weight), dtype=bool)
            read = weight[:, columns] @ (attention.norm[columns] * signs[columns])
            weight[np.ix_(moved, columns)] = 0.0
            tensors[f"{prefix}{name}_proj.weight"] = fill_idle(weight, int(constant[0]))
            tensors[f"{prefix}{name}_proj.bias"] = np.where(moved, read, 0.0)
    return Checkpoint(
        "qwen2", decoder.recital, config, tensors, design.logit, LEAD, window_units(decoder), decoder.sensors
    )
