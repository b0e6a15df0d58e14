"""GPT-2: LayerNorm, learned positions, transposed matrices, an MLP without a gate."""

from __future__ import annotations

from byheart.checkpoints.proof.config import ConfigReader, Shape
from byheart.checkpoints.proof.decoder import Family, Layer, StockAttention, TensorReader, plain_mlp, split


def read_shape(r: ConfigReader) -> Shape:
    hidden, heads = r.integer("n_embd"), r.integer("n_head")
    r.must("scale_attn_weights", True)
    r.must("scale_attn_by_inverse_layer_idx", False)
    r.must("reorder_and_upcast_attn", False, True)
    name = r.left.get("activation_function", "gelu_new")
    if r.left.get("n_inner", 0) is None:
        r.left["n_inner"] = 4 * hidden
    return Shape(
        "gpt2",
        r.integer("vocab_size"),
        hidden,
        r.integer("n_layer"),
        heads,
        heads,
        hidden // heads,
        r.integer("n_inner", 4 * hidden),
        r.integer("n_positions"),
        r.number("layer_norm_epsilon", 1e-5),
        r.activation("activation_function", "gelu_new"),
        r.flag("tie_word_embeddings", True),
        None,
        stepwise=name == "gelu_new",
    )


def layer(r: TensorReader, p: str) -> Layer:
    s = r.checkpoint.shape
    q, k, v = split(r.linear(f"{p}.attn.c_attn", 3 * s.hidden, s.hidden, True, transposed=True), (s.hidden,) * 3)
    return Layer(
        r.norm(f"{p}.ln_1", s.hidden, True),
        StockAttention(q, k, v, r.linear(f"{p}.attn.c_proj", s.hidden, s.hidden, True, transposed=True)),
        r.norm(f"{p}.ln_2", s.hidden, True),
        plain_mlp(r, f"{p}.mlp.c_fc", f"{p}.mlp.c_proj", transposed=True),
    )


FAMILY = Family(
    "gpt2", "GPT2LMHeadModel", read_shape, layer, "transformer.wte", "lm_head", "transformer.ln_f", "transformer.h.{}",
    "transformer.wpe", centred=True,
)  # fmt: skip
