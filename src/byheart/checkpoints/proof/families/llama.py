"""Llama and its relatives: RMSNorm, rotary positions, gated MLPs; biases, head norms, fused tensors, experts differ."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from byheart.checkpoints.proof.config import ConfigReader, Shape, Undecided, count
from byheart.checkpoints.proof.decoder import Expert, Family, Layer, Linear, Mlp, StockAttention, TensorReader, split


def read_shape(
    r: ConfigReader, family: str, *, kv_heads: int | None = None, head_dim: int | None = None, theta: float = 1e4,
    eps: float = 1e-6, window: int | None = None, windowed: bool = False, gelu: bool = False, tied: bool = False,
    whole: bool = True, experts: bool = False, eps_key: str = "rms_norm_eps",
) -> Shape:  # fmt: skip
    """The shape of one member of the family.

    Args:
        r: The config.json.
        family: Its model_type.
        kv_heads, head_dim, theta, eps, window, tied: Defaults of its configuration class.
        windowed: Whether `sliding_window` has a meaning (in Qwen, only with `use_sliding_window`, which must be false).
        gelu: Whether the activation is Gemma's.
        whole: Whether all dimensions are rotated, whatever `partial_rotary_factor` is.
        experts: Whether the MLP has a router.
        eps_key: What its config.json calls the epsilon of norms.
    """
    hidden, heads, layers = r.integer("hidden_size"), r.integer("num_attention_heads"), r.integer("num_hidden_layers")
    kv_heads = r.integer("num_key_value_heads", kv_heads or heads)
    head_dim = r.integer("head_dim", head_dim or -(-hidden // heads))
    activation = _gemma_activation(r, family) if gelu else one_step(r, "hidden_act", "silu")
    window = r.left.pop("sliding_window", window)
    if family == "mistral" and "layer_types" in r.left:
        raise Undecided("config.json: layer_types: stock Transformers reads a mistral with it as a ministral")
    kinds = r.left.pop("layer_types", None)
    if kinds is not None and kinds != ["full_attention"] * layers:
        raise Undecided("config.json: layer_types other than full_attention")
    if window is not None and (not count(window) or window < 1):
        raise Undecided(f"config.json: sliding_window = {window!r}")
    if family in ("qwen2", "qwen3", "qwen3_moe", "smollm3"):
        window = None
    if window is not None and not windowed:
        raise Undecided(f"config.json: sliding_window = {window!r} has no meaning in {family}")
    rotary = r.rotary(head_dim, theta, whole=whole)
    return Shape(
        family,
        r.integer("vocab_size"),
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        r.integer("intermediate_size"),
        r.integer("max_position_embeddings"),
        r.number(eps_key, eps),
        activation,
        r.flag("tie_word_embeddings", tied),
        rotary,
        window,
        experts=r.integer("num_local_experts", 8) if experts else 0,
        experts_used=r.integer("num_experts_per_tok", 2) if experts else 0,
        root_scaled=family == "gemma",
    )


def one_step(r: ConfigReader, key: str, default: str) -> str:
    """The activation of a gated MLP. `gelu_new` is a chain of stored tensors, modelled only without a gate."""
    if r.left.get(key) == "gelu_new":
        raise Undecided(f"config.json: {key} = 'gelu_new' is a chain of stored tensors, which the proof does not gate")
    return r.activation(key, default)


def _gemma_activation(r: ConfigReader, family: str) -> str:
    """Versions of the reference implementation differ in which of two keys they read: both must name the same.
    Gemma's `hidden_activation` may be null; that of Gemma 3 may not."""
    named = r.left.get("hidden_activation", "gelu_pytorch_tanh")
    if (not isinstance(named, str) and (named is not None or family != "gemma")) or named == "":
        raise Undecided(f"config.json: hidden_activation = {named!r}: stock Transformers does not run this value")
    read = r.left.pop("hidden_act", "gelu_pytorch_tanh"), r.left.pop("hidden_activation", None) or "gelu_pytorch_tanh"
    # `gelu_new` is the same function, but a chain of stored tensors.
    if any(name != "gelu_pytorch_tanh" for name in read):
        raise Undecided("config.json: hidden_act and hidden_activation must both be gelu_pytorch_tanh in gemma")
    return "gelu_tanh"


def attention(
    r: TensorReader, p: str, *, biased: bool = False, normed: bool = False, fused: bool = False, plus: float = 0.0,
    query: Linear | None = None,
) -> StockAttention:  # fmt: skip
    """The tensors of one layer's attention: `biased` q, k, v; `normed` heads; `fused` q, k, v; a separate `query`."""
    s = r.checkpoint.shape
    q_size, kv_size = s.heads * s.head_dim, s.kv_heads * s.head_dim
    if fused:
        q, k, v = split(r.linear(f"{p}.self_attn.qkv_proj", q_size + 2 * kv_size, s.hidden), (q_size, kv_size, kv_size))
    else:
        q = r.linear(f"{p}.self_attn.q_proj", q_size, s.hidden, biased) if query is None else query
        k, v = (r.linear(f"{p}.self_attn.{name}_proj", kv_size, s.hidden, biased) for name in "kv")
    return StockAttention(
        q,
        k,
        v,
        r.linear(f"{p}.self_attn.o_proj", s.hidden, q_size),
        r.norm(f"{p}.self_attn.q_norm", s.head_dim, plus=plus) if normed else None,
        r.norm(f"{p}.self_attn.k_norm", s.head_dim, plus=plus) if normed else None,
    )


def layer(
    r: TensorReader, p: str, *, biased: bool = False, normed: bool = False, fused: bool = False, plus: float = 0.0,
    mlp: Callable[[TensorReader, str], Mlp] | None = None,
) -> Layer:  # fmt: skip
    """The tensors of one layer: `biased` q, k, v; `normed` heads; `fused` q, k, v and gate, up; `mlp` reads an MLP that
    is not a plain gated one."""
    s = r.checkpoint.shape
    return Layer(
        r.norm(f"{p}.input_layernorm", s.hidden, plus=plus),
        attention(r, p, biased=biased, normed=normed, fused=fused),
        r.norm(f"{p}.post_attention_layernorm", s.hidden, plus=plus),
        glu(r, f"{p}.mlp", fused) if mlp is None else mlp(r, p),
    )


def glu(r: TensorReader, m: str, fused: bool = False) -> Mlp:
    """The tensors of a gated MLP."""
    s = r.checkpoint.shape
    if fused:
        gate, up = split(r.linear(f"{m}.gate_up_proj", 2 * s.units, s.hidden), (s.units, s.units))
    else:
        gate, up = r.linear(f"{m}.gate_proj", s.units, s.hidden), r.linear(f"{m}.up_proj", s.units, s.hidden)
    return Mlp((Expert(gate, up, r.linear(f"{m}.down_proj", s.hidden, s.units)),))


def experts(r: TensorReader, m: str, gate: str, up: str, down: str) -> Mlp:
    """The tensors of a router and its experts, by their names below each expert."""
    s = r.checkpoint.shape
    found = tuple(
        Expert(
            r.linear(f"{m}.experts.{e}.{gate}", s.units, s.hidden),
            r.linear(f"{m}.experts.{e}.{up}", s.units, s.hidden),
            r.linear(f"{m}.experts.{e}.{down}", s.hidden, s.units),
        )
        for e in range(s.experts)
    )
    return Mlp(found, r.linear(f"{m}.gate", s.experts, s.hidden))


def _mixtral_mlp(r: TensorReader, p: str) -> Mlp:
    return experts(r, f"{p}.block_sparse_moe", "w1", "w3", "w2")


FAMILIES = (
    Family("llama", "LlamaForCausalLM", partial(read_shape, family="llama"), layer),
    Family(
        "mistral", "MistralForCausalLM", partial(read_shape, family="mistral", kv_heads=8, window=4096, windowed=True),
        layer,
    ),
    Family("qwen2", "Qwen2ForCausalLM", partial(read_shape, family="qwen2", kv_heads=32), partial(layer, biased=True)),
    Family(
        "qwen3", "Qwen3ForCausalLM", partial(read_shape, family="qwen3", kv_heads=32, head_dim=128),
        partial(layer, normed=True),
    ),
    Family(
        "gemma", "GemmaForCausalLM",
        partial(read_shape, family="gemma", kv_heads=16, head_dim=256, gelu=True, tied=True),
        partial(layer, plus=1.0), plus=1.0,
    ),
    Family(
        "mixtral", "MixtralForCausalLM",
        partial(read_shape, family="mixtral", kv_heads=8, theta=1e6, eps=1e-5, windowed=True, experts=True),
        partial(layer, mlp=_mixtral_mlp),
    ),
)  # fmt: skip
