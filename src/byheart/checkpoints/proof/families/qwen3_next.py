"""Qwen3-Next: layers of Gated DeltaNet, attention with gated outputs, experts with a shared one that is weighed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byheart.checkpoints.proof.config import ConfigReader, MixerShape, Shape, Undecided, count
from byheart.checkpoints.proof.decoder import (
    Convolution,
    DeltaNet,
    Family,
    Layer,
    Linear,
    Mlp,
    TensorReader,
    no_attention,
)
from byheart.checkpoints.proof.families import llama
from byheart.checkpoints.proof.families.deepseek_v3 import expert
from byheart.checkpoints.proof.storage import Array

LINEAR, FULL = "linear_attention", "full_attention"


def _shape(r: ConfigReader) -> Shape:
    kinds = r.left.pop("layer_types", None)
    inner = r.left.get("rope_parameters")
    if not isinstance(inner, dict) or "partial_rotary_factor" not in inner:
        raise Undecided("config.json: rope_parameters of qwen3_next states partial_rotary_factor")
    if not r.flag("norm_topk_prob", True):
        raise Undecided("config.json: norm_topk_prob is false; the proof needs weights that are divided by their sum")
    r.must("decoder_sparse_step", 1)
    sizes = {
        key: r.integer(f"linear_{key}", default)
        for key, default in (
            ("conv_kernel_dim", 4), ("num_key_heads", 16), ("num_value_heads", 32), ("key_head_dim", 128),
            ("value_head_dim", 128),
        )
    }  # fmt: skip
    experts, used, units, shared = (
        r.integer(key, default)
        for key, default in (
            ("num_experts", 512), ("num_experts_per_tok", 10), ("moe_intermediate_size", 512),
            ("shared_expert_intermediate_size", 512),
        )
    )  # fmt: skip
    dense = r.left.pop("mlp_only_layers", None) or []
    shape = llama.read_shape(r, "qwen3_next", kv_heads=2, head_dim=256, whole=False)
    if not isinstance(kinds, list) or len(kinds) != shape.layers or not all(kind in (LINEAR, FULL) for kind in kinds):
        raise Undecided(f"config.json: layer_types = {kinds!r}; the proof supports a list of {LINEAR} and {FULL}")
    if not isinstance(dense, list) or not all(count(x) for x in dense) or dense != list(range(len(dense))):
        raise Undecided(f"config.json: mlp_only_layers = {dense!r}; the proof supports the first layers, in order")
    if sizes["num_value_heads"] % sizes["num_key_heads"]:
        raise Undecided("config.json: linear_num_value_heads is not a multiple of linear_num_key_heads")
    mixer = MixerShape(
        tuple(kind == LINEAR for kind in kinds), sizes["conv_kernel_dim"], sizes["num_value_heads"],
        sizes["value_head_dim"], sizes["num_key_heads"], sizes["key_head_dim"],
    )  # fmt: skip
    return replace(
        shape, mixer=mixer, experts=experts, experts_used=used, expert_units=units, shared_units=shared,
        dense_layers=min(len(dense), shape.layers),
    )  # fmt: skip


def _layer(r: TensorReader, p: str) -> Layer:
    s, depth = r.checkpoint.shape, int(p.rsplit(".", 1)[1])
    assert s.mixer is not None
    before, between = (r.norm(f"{p}.{name}_layernorm", s.hidden, plus=1.0) for name in ("input", "post_attention"))
    mlp = llama.glu(r, f"{p}.mlp") if depth < s.dense_layers else _experts(r, f"{p}.mlp")
    if s.mixer.layers[depth]:
        return Layer(before, no_attention(s.hidden), between, mlp, mixer=_delta_net(r, f"{p}.linear_attn"))
    size = s.heads * s.head_dim
    both = r.linear(f"{p}.self_attn.q_proj", 2 * size, s.hidden)
    if both.adapter is not None:
        raise Undecided(f"{both.name}: an adapter of a fused matrix")
    query, gate = both.weight.reshape(s.heads, 2, s.head_dim, s.hidden).swapaxes(0, 1).reshape(2, size, s.hidden)
    attention = replace(
        llama.attention(r, f"{p}", normed=True, plus=1.0, query=Linear(both.name, query, None)),
        gate=Linear(f"{both.name} (gate)", gate, None),
    )
    return Layer(before, attention, between, mlp)


def _delta_net(r: TensorReader, p: str) -> DeltaNet:
    """Queries, keys, values and gates come key head by key head in one matrix."""
    s = r.checkpoint.shape
    m = s.mixer
    assert m is not None
    per, values = m.heads // m.groups, m.heads * m.dim
    sizes = np.cumsum([m.state, m.state, per * m.dim])
    every = r.tensor(f"{p}.in_proj_qkvz.weight", 2 * m.groups * m.state + 2 * values, s.hidden, matrix=True)
    q, k, v, z = _by_group(every, m.groups, sizes)
    b, a = _by_group(r.tensor(f"{p}.in_proj_ba.weight", 2 * m.heads, s.hidden, matrix=True), m.groups, np.array([per]))
    kernel = r.tensor(f"{p}.conv1d.weight", m.channels, 1, m.taps)[:, 0]
    names = ("q", "k", "v", "z", "b", "a")
    q, k, v, z, b, a = (Linear(f"{p} ({name})", x, None) for name, x in zip(names, (q, k, v, z, b, a), strict=True))
    return DeltaNet(
        q, k, v, z, b, a, Convolution(f"{p}.conv1d", kernel, None), r.tensor(f"{p}.A_log", m.heads),
        r.tensor(f"{p}.dt_bias", m.heads), r.norm(f"{p}.norm", m.dim), r.linear(f"{p}.out_proj", s.hidden, values),
        m.groups, m.heads,
    )  # fmt: skip


def _by_group(weight: Array, groups: int, ends: Array) -> list[Array]:
    """The blocks of rows that every group has, each from all groups together."""
    parts = np.split(weight.reshape(groups, -1, weight.shape[1]), ends, axis=1)
    return [np.ascontiguousarray(part.reshape(-1, weight.shape[1])) for part in parts]


def _experts(r: TensorReader, p: str) -> Mlp:
    s = r.checkpoint.shape
    return Mlp(
        tuple(expert(r, f"{p}.experts.{e}", s.expert_units) for e in range(s.experts)),
        r.linear(f"{p}.gate", s.experts, s.hidden),
        shared=expert(r, f"{p}.shared_expert", s.shared_units),
        shared_gate=r.linear(f"{p}.shared_expert_gate", 1, s.hidden),
    )


FAMILY = Family("qwen3_next", "Qwen3NextForCausalLM", _shape, _layer, plus=1.0, wide=("A_log", "dt_bias"))
