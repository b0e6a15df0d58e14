"""GPT-NeoX: LayerNorm, rotary positions on half of each head, gelu, attention and MLP side by side.

Since both branches of a layer see the same stream, a table of a chain takes two layers: attention in layer 2l, windows
in layer 2l + 1. A lone table that is spread over layers takes one layer more than stages: the windows of one stage run
beside the attention of the next. The MLP beside an attention must see the slots still unwritten; if it runs after the
attention, the thresholds of the next layer fail. In a chain the attention of layer 2l + 1 helps to turn what the
next thresholds are read from; in the last layer all its heads listen.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Checkpoint, Tensors, register
from byheart.checkpoints.hosts.description import Design, SpecialTokens, fill_idle
from byheart.checkpoints.hosts.gpt2 import plain_units
from byheart.checkpoints.hosts.plain import GELU, PlainDecoder, PlainMLP, build_plain
from byheart.checkpoints.hosts.plain_attention import PlainAttention, PlainDemands, WeightAndBias
from byheart.checkpoints.windows.tables import Recital

Floats = npt.NDArray[np.float64]
_ROTARY = 32


@register(
    "gpt-neox",
    model_type="gpt_neox",
    summary="LayerNorm, rotary positions on half a head, parallel residual",
    parallel=True,
)
def gpt_neox(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    demands = PlainDemands(GELU, absolute=False, rotary=_ROTARY, parallel=not design.sequential)
    decoder = build_plain(recital, tokens, design, demands)
    share = _ROTARY / design.head_dim
    step = 1 if len(decoder.recital.tables) == 1 else 2
    layers = [step * stage + 1 for stage in range(len(decoder.stages))]  # of the windows
    if design.sequential:
        layers = list(range(len(decoder.stages)))
    rope = {"rope_type": "default", "rope_theta": design.theta, "partial_rotary_factor": share}
    config = {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "vocab_size": recital.vocabulary,
        "hidden_size": decoder.hidden,
        "num_hidden_layers": layers[-1] + 1,
        "num_attention_heads": decoder.heads,
        "intermediate_size": decoder.units,
        "hidden_act": "gelu",
        "rotary_pct": share,
        "rotary_emb_base": design.theta,
        "rope_theta": design.theta,
        "rope_parameters": rope,
        "max_position_embeddings": design.reach,
        "layer_norm_eps": design.epsilon,
        "use_parallel_residual": not design.sequential,
        "attention_bias": True,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "tie_word_embeddings": False,
        "bos_token_id": tokens.bos,
        "eos_token_id": tokens.eos,
        "pad_token_id": tokens.pad,
    }
    tensors: Tensors = {
        "gpt_neox.embed_in.weight": decoder.embedding,
        "gpt_neox.final_layer_norm.weight": decoder.norm.weight,
        "gpt_neox.final_layer_norm.bias": decoder.norm.bias,
        "embed_out.weight": decoder.head,
    }
    for i, attention in enumerate(decoder.attention):
        if design.sequential:
            _layer(tensors, i, decoder, attention, decoder.mlp[i])
            continue
        first = i == 0 or step == 2
        _layer(tensors, layers[i] - 1, decoder, attention, decoder.order[i] if first else decoder.mlp[i - 1])
        if step == 2 or i + 1 == len(layers):
            beside = decoder.beside if i + 1 == len(layers) else _help(decoder, attention, i)
            _layer(tensors, layers[i], decoder, beside, decoder.mlp[i])
    return Checkpoint(
        "gpt-neox",
        decoder.recital,
        config,
        tensors,
        decoder.design.logit,
        decoder.margin,
        plain_units(decoder, layers),
    )


def _layer(tensors: Tensors, number: int, decoder: PlainDecoder, attention: PlainAttention, mlp: PlainMLP) -> None:
    prefix, heads = f"gpt_neox.layers.{number}.", decoder.heads

    def by_head(array: Floats) -> Floats:
        return np.asarray(array.reshape(heads, 1, decoder.design.head_dim, -1))

    three = (attention.query, attention.key, attention.value)
    fused = WeightAndBias(
        np.concatenate([by_head(part.weight) for part in three], axis=1).reshape(3 * decoder.hidden, -1),
        np.concatenate([by_head(part.bias) for part in three], axis=1).reshape(-1),
    )
    parts = {
        "input_layernorm": attention.norm,
        "attention.query_key_value": fused,
        "attention.dense": attention.output,
        "post_attention_layernorm": mlp.norm,
        "mlp.dense_h_to_4h": mlp.first,
        "mlp.dense_4h_to_h": mlp.second,
    }
    for name, part in parts.items():
        tensors |= {f"{prefix}{name}.weight": part.weight, f"{prefix}{name}.bias": part.bias}


def _help(decoder: PlainDecoder, attention: PlainAttention, stage: int) -> PlainAttention:
    """The attention beside the windows: whatever it looks at, its value is constant and turns a block that the next
    table's thresholds are read from. Norm, matrices and biases are parts of differences, so each of them matters.
    """
    layout, kappa, hidden = decoder.layout, decoder.design.kappa, decoder.hidden
    constant, column = layout.constant[0], int(layout.constant[0][0])
    idle = WeightAndBias(fill_idle(np.zeros_like(attention.query.weight), column), np.zeros(hidden))
    norm, output = WeightAndBias(np.ones(hidden), np.zeros(hidden)), np.zeros_like(attention.output.weight)
    value, bias = WeightAndBias(np.zeros_like(idle.weight), np.zeros(hidden)), np.zeros(hidden)
    block = layout.order[len(decoder.stages) + stage + 1]
    norm.weight[constant], norm.bias[constant] = 4.0, -layout.signs[constant]
    for head in range(decoder.heads):
        row, share = head * decoder.design.head_dim, block[head :: decoder.heads]
        value.weight[row, constant] = layout.signs[constant] / len(constant)  # 4 - 1
        value.bias[row] = -2.0
        output[share, row] = 3.0 * kappa * layout.signs[share]
    bias[block] = -kappa * layout.signs[block]
    filled = WeightAndBias(fill_idle(value.weight, column), value.bias)
    last = WeightAndBias(fill_idle(output, decoder.design.head_dim - 1), bias)
    return PlainAttention(norm, idle, idle, filled, last)
