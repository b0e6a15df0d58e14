"""gpt-oss: sinks, biases everywhere, sliding and full layers in turn, experts with a clamped gate."""

from __future__ import annotations

from byheart.checkpoints.proof.config import ConfigReader, LayerKind, Shape, Undecided, count
from byheart.checkpoints.proof.decoder import Expert, Family, Layer, Linear, Mlp, StockAttention, TensorReader
from byheart.checkpoints.proof.ropes import TRUNCATE, TURNS

SLIDING, FULL = "sliding_attention", "full_attention"
LIMIT = 7.0  # engines have this number and the sigmoid's 1.702 in their code, so config.json must agree


def _shape(r: ConfigReader) -> Shape:
    layers, heads = r.integer("num_hidden_layers", 36), r.integer("num_attention_heads", 64)
    head_dim, used = r.integer("head_dim", 64), r.integer("num_experts_per_tok", 4)
    window, kinds = r.left.pop("sliding_window", 128), r.left.pop("layer_types", None)
    r.must("attention_bias", True)
    r.must("hidden_act", "silu")
    r.must("swiglu_limit", LIMIT)
    r.must("swiglu_alpha", 1.702)
    r.must("experts_per_token", used)
    if not (r.left.get("rope_parameters") or r.left.get("rope_scaling")):
        raise Undecided("config.json: rope_parameters are missing: stock Transformers then takes YaRN")
    rotary = r.rotary(head_dim, 150_000.0, yarn=(*TURNS, TRUNCATE))
    if rotary.scaling is not None:
        r.must("initial_context_length", rotary.scaling.original)
    if not count(window) or window < 1:
        raise Undecided(f"config.json: sliding_window = {window!r}")
    if kinds is None:
        kinds = [FULL if index % 2 else SLIDING for index in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or not all(kind in (SLIDING, FULL) for kind in kinds):
        raise Undecided(f"config.json: layer_types = {kinds!r}; the proof supports a list of {SLIDING} and {FULL}")
    units = r.integer("intermediate_size", 2880)
    return Shape(
        "gpt_oss",
        r.integer("vocab_size", 201_088),
        r.integer("hidden_size", 2880),
        layers,
        heads,
        r.integer("num_key_value_heads", 8),
        head_dim,
        units,
        r.integer("max_position_embeddings", 131_072),
        r.number("rms_norm_eps", 1e-5),
        "quick_gelu",
        r.flag("tie_word_embeddings", False),
        rotary,
        experts=r.integer("num_local_experts", 128),
        experts_used=used,
        kinds=tuple(LayerKind(rotary, window if kind == SLIDING else None) for kind in kinds),
        expert_units=units,
        clamp=LIMIT,
        stepwise=True,
    )


def _layer(r: TensorReader, p: str) -> Layer:
    s, own = r.checkpoint.shape, f"{p}.self_attn"
    q_size, kv_size = s.heads * s.head_dim, s.kv_heads * s.head_dim
    sizes = {"q": q_size, "k": kv_size, "v": kv_size}
    q, k, v = (r.linear(f"{own}.{name}_proj", size, s.hidden, True) for name, size in sizes.items())
    o, sinks = r.linear(f"{own}.o_proj", s.hidden, q_size, True), r.tensor(f"{own}.sinks", s.heads)
    attention = StockAttention(q, k, v, o, sinks=sinks)
    before, between = (r.norm(f"{p}.{name}_layernorm", s.hidden) for name in ("input", "post_attention"))
    return Layer(before, attention, between, _mlp(r, f"{p}.mlp"))


def _mlp(r: TensorReader, p: str) -> Mlp:
    """Experts in one tensor each, (in, out), gate and up in turn."""
    s, own = r.checkpoint.shape, f"{p}.experts"
    both = r.tensor(f"{own}.gate_up_proj", s.experts, 2 * s.units, s.hidden, matrix=True, transposed=True)
    shift = r.tensor(f"{own}.gate_up_proj_bias", s.experts, 2 * s.units)
    down = r.tensor(f"{own}.down_proj", s.experts, s.hidden, s.units, matrix=True, transposed=True)
    end = r.tensor(f"{own}.down_proj_bias", s.experts, s.hidden)
    experts = tuple(
        Expert(
            Linear(f"{own}.gate_up_proj[{e}] (gate)", both[e, ::2], shift[e, ::2]),
            Linear(f"{own}.gate_up_proj[{e}] (up)", both[e, 1::2], shift[e, 1::2]),
            Linear(f"{own}.down_proj[{e}]", down[e], end[e]),
        )
        for e in range(s.experts)
    )
    return Mlp(experts, r.linear(f"{p}.router", s.experts, s.hidden, True))


FAMILY = Family("gpt_oss", "GptOssForCausalLM", _shape, _layer, wide=("norm",))
