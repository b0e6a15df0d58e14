"""GPT-NeoX: LayerNorm, rotary positions on part of each head, q, k and v interleaved by head, parallel residual."""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.proof.config import ConfigReader, Shape
from byheart.checkpoints.proof.decoder import Family, Layer, Linear, StockAttention, TensorReader, plain_mlp


def read_shape(r: ConfigReader) -> Shape:
    hidden, heads = r.integer("hidden_size"), r.integer("num_attention_heads")
    r.must("attention_bias", True)
    name = r.left.get("hidden_act", "gelu")
    return Shape(
        "gpt_neox",
        r.integer("vocab_size"),
        hidden,
        r.integer("num_hidden_layers"),
        heads,
        heads,
        hidden // heads,
        r.integer("intermediate_size"),
        r.integer("max_position_embeddings"),
        r.number("layer_norm_eps", 1e-5),
        r.activation("hidden_act", "gelu"),
        r.flag("tie_word_embeddings", False),
        r.rotary(hidden // heads, 1e4, 0.25, ("rotary_emb_base", "rotary_pct"), whole=False),
        parallel=r.flag("use_parallel_residual", True),
        stepwise=name == "gelu_new",
    )


def layer(r: TensorReader, p: str) -> Layer:
    s = r.checkpoint.shape
    fused = r.linear(f"{p}.attention.query_key_value", 3 * s.hidden, s.hidden, True)
    by_head = np.arange(3 * s.hidden).reshape(s.heads, 3, s.head_dim)
    assert fused.bias is not None
    q, k, v = (
        Linear(f"{fused.name} ({n})", fused.weight[rows], fused.bias[rows])
        for n, rows in zip("qkv", (by_head[:, i].reshape(-1) for i in range(3)), strict=True)
    )
    return Layer(
        r.norm(f"{p}.input_layernorm", s.hidden, True),
        StockAttention(q, k, v, r.linear(f"{p}.attention.dense", s.hidden, s.hidden, True)),
        r.norm(f"{p}.post_attention_layernorm", s.hidden, True),
        plain_mlp(r, f"{p}.mlp.dense_h_to_4h", f"{p}.mlp.dense_4h_to_h"),
    )


FAMILY = Family(
    "gpt_neox", "GPTNeoXForCausalLM", read_shape, layer, "gpt_neox.embed_in", "embed_out", "gpt_neox.final_layer_norm",
    "gpt_neox.layers.{}", centred=True,
)  # fmt: skip
