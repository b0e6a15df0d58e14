"""GPT-2: LayerNorm, learned positions, gelu, a tied head; matrices are stored transposed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byheart.checkpoints.hosts._base import Checkpoint, Tensors, register
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.plain import GELU_TANH, PlainDecoder, build_plain
from byheart.checkpoints.hosts.plain_attention import PlainDemands, WeightAndBias
from byheart.checkpoints.windows.tables import Recital


@register("gpt2", model_type="gpt2", summary="LayerNorm, learned positions, gelu, tied head", ties=True, learned=True)
def gpt2(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    decoder = build_plain(recital, tokens, design, PlainDemands(GELU_TANH, absolute=True))
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": recital.vocabulary,
        "n_positions": design.reach,
        "n_ctx": design.reach,
        "n_embd": decoder.hidden,
        "n_layer": len(decoder.stages),
        "n_head": decoder.heads,
        "n_inner": decoder.units,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": design.epsilon,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "tie_word_embeddings": decoder.design.tied,
        "bos_token_id": tokens.bos,
        "eos_token_id": tokens.eos,
        "pad_token_id": tokens.pad,
    }
    tensors = {"transformer.wte.weight": decoder.embedding, "transformer.wpe.weight": decoder.positions}
    if not decoder.design.tied:
        tensors["lm_head.weight"] = decoder.head
    _put(tensors, "transformer.ln_f", decoder.norm)
    for i, (attention, mlp) in enumerate(zip(decoder.attention, decoder.mlp, strict=True)):
        prefix = f"transformer.h.{i}."
        _put(tensors, prefix + "ln_1", attention.norm)
        _put(tensors, prefix + "ln_2", mlp.norm)
        three = (attention.query, attention.key, attention.value)
        joined = WeightAndBias(
            np.concatenate([part.weight for part in three]), np.concatenate([part.bias for part in three])
        )
        for name, part in (("attn.c_attn", joined), ("attn.c_proj", attention.output)):
            _put(tensors, prefix + name, WeightAndBias(part.weight.T, part.bias))
        for name, part in (("mlp.c_fc", mlp.first), ("mlp.c_proj", mlp.second)):
            _put(tensors, prefix + name, WeightAndBias(part.weight.T, part.bias))
    return Checkpoint(
        "gpt2", decoder.recital, config, tensors, decoder.design.logit, decoder.margin, plain_units(decoder)
    )


def _put(tensors: Tensors, name: str, part: WeightAndBias) -> None:
    tensors[f"{name}.weight"], tensors[f"{name}.bias"] = part.weight, part.bias


def plain_units(decoder: PlainDecoder, layers: Sequence[int] | None = None) -> list[tuple[int, int, int, int]]:
    """(layer, unit, table, row) of every unit that holds a window; `layers` are those of the stages' windows."""
    return [
        (layers[k] if layers else k, unit, stage.table, int(row))
        for k, (stage, mlp) in enumerate(zip(decoder.stages, decoder.mlp, strict=True))
        for unit, row in enumerate(mlp.rows.tolist())
    ]
