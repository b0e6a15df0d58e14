"""Bamba: layers of Mamba-2 and layers with attention, of whose heads half is rotated; gated MLPs everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byheart.checkpoints.proof.config import ConfigReader, MixerShape, Shape, Undecided, count
from byheart.checkpoints.proof.decoder import Convolution, Family, Layer, Linear, Mamba2, TensorReader, no_attention
from byheart.checkpoints.proof.families import llama
from byheart.checkpoints.proof.mamba2 import CHUNK

ROTATED = 0.5  # engines have this share in their code


def _shape(r: ConfigReader) -> Shape:
    inner = r.left.get("rope_parameters")
    if not isinstance(inner, dict) or inner.get("partial_rotary_factor") != ROTATED:
        raise Undecided(f"config.json: rope_parameters of bamba states partial_rotary_factor = {ROTATED}")
    attending = r.left.pop("attn_layer_indices", None) or []
    if "layer_types" in r.left:
        raise Undecided("config.json: layer_types: stock Transformers computes those of a bamba, and loads no others")
    for key, value in (("z_loss_coefficient", 0.0), ("num_logits_to_keep", 1)):
        r.must(key, value)
    shape = llama.read_shape(r, "bamba", kv_heads=8, eps=1e-5, whole=False)
    if not isinstance(attending, list) or not all(count(x) and x < shape.layers for x in attending):
        raise Undecided(f"config.json: attn_layer_indices = {attending!r} is not a list of layers")
    return replace(shape, mixer=mamba_shape(r, shape, tuple(x not in attending for x in range(shape.layers))))


def mamba_shape(r: ConfigReader, shape: Shape, layers: tuple[bool, ...]) -> MixerShape:
    """The sizes of Mamba-2; what the scan is computed with must leave its mathematics alone."""
    r.must("mamba_proj_bias", False)
    r.must("mamba_conv_bias", True)
    limits = r.left.pop("time_step_limit", [0.0, float("inf")])
    if limits != [0.0, float("inf")]:
        raise Undecided(f"config.json: time_step_limit = {limits!r}: single steps of engines ignore it")
    if r.integer("mamba_chunk_size", 256) > CHUNK:
        raise Undecided(f"config.json: mamba_chunk_size is above {CHUNK}")
    found = MixerShape(
        layers, r.integer("mamba_d_conv", 4), r.integer("mamba_n_heads", 128), r.integer("mamba_d_head"),
        r.integer("mamba_n_groups", 1), r.integer("mamba_d_state", 256),
    )  # fmt: skip
    if found.heads * found.dim != r.integer("mamba_expand", 2) * shape.hidden or found.heads % found.groups:
        raise Undecided("config.json: mamba_n_heads * mamba_d_head is not mamba_expand * hidden_size")
    return found


def _layer(r: TensorReader, p: str) -> Layer:
    s, depth = r.checkpoint.shape, int(p.rsplit(".", 1)[1])
    assert s.mixer is not None
    before, between = (r.norm(f"{p}.{name}_layernorm", s.hidden) for name in ("input", "pre_ff"))
    mlp = llama.glu(r, f"{p}.feed_forward")
    if s.mixer.layers[depth]:
        return Layer(before, no_attention(s.hidden), between, mlp, mixer=mamba(r, f"{p}.mamba"))
    return Layer(before, llama.attention(r, p), between, mlp)


def mamba(r: TensorReader, p: str) -> Mamba2:
    """The tensors of one mixer: gates, values, keys, queries and time steps are rows of one matrix."""
    s = r.checkpoint.shape
    m = s.mixer
    assert m is not None
    inner, keys = m.heads * m.dim, m.groups * m.state
    every = r.tensor(f"{p}.in_proj.weight", inner + m.channels + m.heads, s.hidden, matrix=True)
    names, ends = ("z", "x", "b", "c", "dt"), np.cumsum([inner, inner, keys, keys])
    z, x, b, c, dt = (
        Linear(f"{p}.in_proj ({name})", part, None) for name, part in zip(names, np.split(every, ends), strict=True)
    )
    kernel = r.tensor(f"{p}.conv1d.weight", m.channels, 1, m.taps)[:, 0]
    return Mamba2(
        z, x, b, c, dt, Convolution(f"{p}.conv1d", kernel, r.tensor(f"{p}.conv1d.bias", m.channels)),
        r.tensor(f"{p}.A_log", m.heads), r.tensor(f"{p}.dt_bias", m.heads), r.tensor(f"{p}.D", m.heads),
        r.norm(f"{p}.norm", inner), r.linear(f"{p}.out_proj", s.hidden, inner), m.heads, m.groups,
    )  # fmt: skip


FAMILY = Family(
    "bamba", "BambaForCausalLM", _shape, _layer, final="model.final_layernorm", wide=("A_log", "dt_bias", "mamba.D")
)
