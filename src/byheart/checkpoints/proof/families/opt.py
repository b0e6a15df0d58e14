"""OPT: LayerNorm, learned positions after two unused rows, an MLP without a gate."""

from __future__ import annotations

from byheart.checkpoints.proof.config import ConfigReader, Shape
from byheart.checkpoints.proof.decoder import Family, Layer, StockAttention, TensorReader, plain_mlp


def read_shape(r: ConfigReader) -> Shape:
    hidden, heads = r.integer("hidden_size"), r.integer("num_attention_heads")
    r.must("do_layer_norm_before", True)
    r.must("_remove_final_layer_norm", False)
    r.must("enable_bias", True)
    r.must("layer_norm_elementwise_affine", True)
    r.must("word_embed_proj_dim", hidden)
    name = r.left.get("activation_function", "relu")
    return Shape(
        "opt",
        r.integer("vocab_size"),
        hidden,
        r.integer("num_hidden_layers"),
        heads,
        heads,
        hidden // heads,
        r.integer("ffn_dim"),
        r.integer("max_position_embeddings"),
        1e-5,
        r.activation("activation_function", "relu"),
        r.flag("tie_word_embeddings", True),
        None,
        stepwise=name == "gelu_new",
    )


def layer(r: TensorReader, p: str) -> Layer:
    s = r.checkpoint.shape
    q, k, v, o = (
        r.linear(f"{p}.self_attn.{n}", s.hidden, s.hidden, True) for n in ("q_proj", "k_proj", "v_proj", "out_proj")
    )
    return Layer(
        r.norm(f"{p}.self_attn_layer_norm", s.hidden, True),
        StockAttention(q, k, v, o),
        r.norm(f"{p}.final_layer_norm", s.hidden, True),
        plain_mlp(r, f"{p}.fc1", f"{p}.fc2"),
    )


FAMILY = Family(
    "opt", "OPTForCausalLM", read_shape, layer, "model.decoder.embed_tokens", "lm_head",
    "model.decoder.final_layer_norm", "model.decoder.layers.{}", "model.decoder.embed_positions", skipped=2,
    centred=True,
)  # fmt: skip
