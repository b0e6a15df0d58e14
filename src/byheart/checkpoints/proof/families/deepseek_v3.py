"""DeepSeek-V3: latent attention, dense layers first, then experts chosen by sigmoids in groups, and a shared one."""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.proof.config import ConfigReader, LatentShape, RouterRule, Shape, Undecided, count
from byheart.checkpoints.proof.decoder import (
    Expert,
    Family,
    Latents,
    Layer,
    Linear,
    Mlp,
    StockAttention,
    TensorReader,
)
from byheart.checkpoints.proof.families import llama
from byheart.checkpoints.proof.ropes import MSCALES, TURNS
from byheart.checkpoints.proof.storage import Array

EPS = 1e-6  # of latents in Transformers, whatever config.json contains; other engines use rms_norm_eps


def read_shape(r: ConfigReader) -> Shape:
    heads, layers = r.integer("num_attention_heads", 128), r.integer("num_hidden_layers", 61)
    turned, plain = r.integer("qk_rope_head_dim", 64), r.integer("qk_nope_head_dim", 128)
    if r.integer("num_key_value_heads", 128) != heads:
        raise Undecided(f"config.json: num_key_value_heads is not num_attention_heads, {heads}")
    r.must("scoring_func", "sigmoid")
    r.must("topk_method", "noaux_tc")
    r.must("moe_layer_freq", 1)
    r.must("ep_size", 1)
    r.must("num_nextn_predict_layers", 0)
    r.must("norm_topk_prob", True)
    rotary = r.rotary(turned, yarn=(*TURNS, *MSCALES))
    gain = 1.0 if rotary.scaling is None else rotary.scaling.score_gain
    experts, used = r.integer("n_routed_experts", 256), r.integer("num_experts_per_tok", 8)
    rule = RouterRule(
        "sigmoid", r.integer("n_group", 8), r.integer("topk_group", 4), r.number("routed_scaling_factor", 2.5)
    )
    each = experts // rule.groups
    if experts != each * rule.groups or each < 2 or rule.groups_used > rule.groups or used > each * rule.groups_used:
        raise Undecided(
            f"config.json: {used} of {experts} experts from {rule.groups_used} of {rule.groups} groups: a group has "
            "two experts or more, and those that win have enough of them"
        )
    units, eps = r.integer("moe_intermediate_size", 2048), r.number("rms_norm_eps", EPS)
    if eps != EPS:
        raise Undecided(
            f"config.json: rms_norm_eps = {eps!r}: engines differ in the epsilon of latents unless it is {EPS}"
        )
    return Shape(
        "deepseek_v3",
        r.integer("vocab_size", 129_280),
        r.integer("hidden_size", 7168),
        layers,
        heads,
        heads,
        turned + plain,
        r.integer("intermediate_size", 18_432),
        r.integer("max_position_embeddings", 4096),
        eps,
        llama.one_step(r, "hidden_act", "silu"),
        r.flag("tie_word_embeddings", False),
        rotary,
        experts=experts,
        experts_used=used,
        score_scale=float((turned + plain) ** -0.5 * gain * gain),
        routing=rule,
        expert_units=units,
        shared_units=units * r.integer("n_shared_experts", 1),
        dense_layers=min(_dense_layers(r), layers),
        latent=LatentShape(_query_rank(r), r.integer("kv_lora_rank", 512), r.flag("rope_interleave", True)),
        value_dim=r.integer("v_head_dim", 128),
    )


def _dense_layers(r: ConfigReader) -> int:
    value = r.left.pop("first_k_dense_replace", 3)
    if not count(value):
        raise Undecided(f"config.json: first_k_dense_replace = {value!r} is not a number of layers")
    return int(value)


def _query_rank(r: ConfigReader) -> int | None:
    """null: queries are read from the stream."""
    if r.left.get("q_lora_rank", 1536) is None:
        return r.left.pop("q_lora_rank")  # type: ignore[no-any-return]
    return r.integer("q_lora_rank", 1536)


def _layer(r: TensorReader, p: str) -> Layer:
    s = r.checkpoint.shape
    depth = int(p.rsplit(".", 1)[1])
    before, between = (r.norm(f"{p}.{name}_layernorm", s.hidden) for name in ("input", "post_attention"))
    mlp = llama.glu(r, f"{p}.mlp") if depth < s.dense_layers else _experts(r, f"{p}.mlp")
    return Layer(before, _attention(r, f"{p}.self_attn"), between, mlp)


def _attention(r: TensorReader, p: str) -> StockAttention:
    s = r.checkpoint.shape
    assert s.latent is not None and s.rotary is not None
    turned, plain = s.rotary.dims, s.head_dim - s.rotary.dims
    order = rotated_order(turned, s.latent.interleaved)
    if s.latent.q_rank is None:
        q_down, q_norm, q = None, None, r.linear(f"{p}.q_proj", s.heads * s.head_dim, s.hidden)
    else:
        q_down = r.linear(f"{p}.q_a_proj", s.latent.q_rank, s.hidden)
        q_norm = r.norm(f"{p}.q_a_layernorm", s.latent.q_rank)
        q = r.linear(f"{p}.q_b_proj", s.heads * s.head_dim, s.latent.q_rank)
    both = r.linear(f"{p}.kv_a_proj_with_mqa", s.latent.rank + turned, s.hidden)
    up = r.linear(f"{p}.kv_b_proj", s.heads * (plain + s.value_size), s.latent.rank)
    latents = Latents(
        q_down, q_norm, _rows(both, np.arange(s.latent.rank)), r.norm(f"{p}.kv_a_layernorm", s.latent.rank),
        _rows(both, s.latent.rank + order),
    )  # fmt: skip
    return StockAttention(
        _rows(q, _by_head(s.heads, s.head_dim, np.r_[plain + order, np.arange(plain)])),
        _rows(up, _by_head(s.heads, plain + s.value_size, np.arange(plain))),
        _rows(up, _by_head(s.heads, plain + s.value_size, plain + np.arange(s.value_size))),
        r.linear(f"{p}.o_proj", s.hidden, s.heads * s.value_size),
        latents=latents,
    )


def rotated_order(dims: int, interleaved: bool) -> Array:
    """The order of the stored dimensions in which those that turn together are i and i + dims / 2.

    >>> rotated_order(6, True).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    return np.arange(dims).reshape(-1, 2).T.reshape(-1) if interleaved else np.arange(dims)


def _by_head(heads: int, size: int, index: Array) -> Array:
    return (np.arange(heads)[:, None] * size + index[None, :]).reshape(-1)


def _rows(linear: Linear, index: Array) -> Linear:
    return Linear(linear.name, np.ascontiguousarray(linear.weight[index]), None)


def _experts(r: TensorReader, p: str) -> Mlp:
    s = r.checkpoint.shape
    correction = r.tensor(f"{p}.gate.e_score_correction_bias", s.experts)
    experts = tuple(expert(r, f"{p}.experts.{e}", s.expert_units) for e in range(s.experts))
    shared = expert(r, f"{p}.shared_experts", s.shared_units)
    return Mlp(experts, r.linear(f"{p}.gate", s.experts, s.hidden), correction, shared)


def expert(r: TensorReader, p: str, units: int) -> Expert:
    """The tensors of one expert."""
    hidden = r.checkpoint.shape.hidden
    gate, up = (r.linear(f"{p}.{name}_proj", units, hidden) for name in ("gate", "up"))
    return Expert(gate, up, r.linear(f"{p}.down_proj", hidden, units))


FAMILY = Family("deepseek_v3", "DeepseekV3ForCausalLM", read_shape, _layer, wide=("e_score_correction_bias",))
