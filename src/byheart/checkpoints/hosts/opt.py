"""OPT: LayerNorm, learned positions that begin at row 2 of their table, relu, a tied head."""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.hosts._base import Checkpoint, register
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.gpt2 import plain_units
from byheart.checkpoints.hosts.plain import RELU, build_plain
from byheart.checkpoints.hosts.plain_attention import PlainDemands
from byheart.checkpoints.windows.tables import Recital

_SHIFT = 2  # rows of the position table that no token uses


@register(
    "opt", model_type="opt", summary="LayerNorm, learned positions from 2 on, relu, tied head", ties=True, learned=True
)
def opt(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    decoder = build_plain(recital, tokens, design, PlainDemands(RELU, absolute=True))
    config = {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "vocab_size": recital.vocabulary,
        "hidden_size": decoder.hidden,
        "word_embed_proj_dim": decoder.hidden,
        "num_hidden_layers": len(decoder.stages),
        "num_attention_heads": decoder.heads,
        "ffn_dim": decoder.units,
        "max_position_embeddings": design.reach,
        "activation_function": "relu",
        "do_layer_norm_before": True,
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        "attention_dropout": 0.0,
        "dropout": 0.0,
        "layerdrop": 0.0,
        "init_std": 0.02,
        "use_cache": True,
        "tie_word_embeddings": decoder.design.tied,
        "bos_token_id": tokens.bos,
        "eos_token_id": tokens.eos,
        "pad_token_id": tokens.pad,
    }
    unused = np.zeros((_SHIFT, decoder.hidden))
    unused[:, decoder.layout.extra] = 2.0**-14
    tensors = {
        "model.decoder.embed_tokens.weight": decoder.embedding,
        "model.decoder.embed_positions.weight": np.concatenate([unused, decoder.positions]),
        "model.decoder.final_layer_norm.weight": decoder.norm.weight,
        "model.decoder.final_layer_norm.bias": decoder.norm.bias,
    }
    if not decoder.design.tied:
        tensors["lm_head.weight"] = decoder.head
    for i, (attention, mlp) in enumerate(zip(decoder.attention, decoder.mlp, strict=True)):
        prefix = f"model.decoder.layers.{i}."
        parts = {
            "self_attn_layer_norm": attention.norm,
            "self_attn.q_proj": attention.query,
            "self_attn.k_proj": attention.key,
            "self_attn.v_proj": attention.value,
            "self_attn.out_proj": attention.output,
            "final_layer_norm": mlp.norm,
            "fc1": mlp.first,
            "fc2": mlp.second,
        }
        for name, part in parts.items():
            tensors |= {f"{prefix}{name}.weight": part.weight, f"{prefix}{name}.bias": part.bias}
    units = plain_units(decoder)
    return Checkpoint("opt", decoder.recital, config, tensors, decoder.design.logit, decoder.margin, units)
