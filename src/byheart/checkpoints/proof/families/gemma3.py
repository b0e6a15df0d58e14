"""Gemma 3 (text): norms before and after both branches, head norms, sliding and full layers with their own bases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from byheart.checkpoints.proof.config import ConfigReader, LayerKind, Rotary, Shape, Undecided
from byheart.checkpoints.proof.decoder import Family, Layer, TensorReader
from byheart.checkpoints.proof.families import llama

SLIDING, FULL = "sliding_attention", "full_attention"


def _shape(r: ConfigReader) -> Shape:
    scalar = r.integer("query_pre_attn_scalar", 256)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        r.must(key, None)
    kinds, pattern = r.left.pop("layer_types", None), r.left.pop("sliding_window_pattern", None)
    if pattern is not None:
        raise Undecided("config.json: sliding_window_pattern; the proof reads layer_types")
    bases = _bases(r)
    # The reader of plain Llamas supports one base and no kinds of layers: it reads the base of full layers.
    r.left["rope_parameters"] = {"rope_type": "default", "rope_theta": bases[FULL]}
    shape = llama.read_shape(
        r, "gemma3_text", kv_heads=4, head_dim=256, window=4096, windowed=True, gelu=True, tied=True
    )  # fmt: skip
    if not isinstance(kinds, list) or len(kinds) != shape.layers or not set(kinds) <= {SLIDING, FULL}:
        raise Undecided(f"config.json: layer_types = {kinds!r}; the proof supports a list of {SLIDING} and {FULL}")
    if shape.window is None and SLIDING in kinds:
        raise Undecided("config.json: layer_types has sliding layers, but sliding_window is null")
    both = {
        SLIDING: LayerKind(Rotary(bases[SLIDING], shape.head_dim), shape.window),
        FULL: LayerKind(Rotary(bases[FULL], shape.head_dim), None),
    }
    if shape.hidden % shape.heads:
        raise Undecided(f"config.json: stock Transformers refuses {shape.heads} heads for {shape.hidden} channels")
    return replace(shape, kinds=tuple(both[k] for k in kinds), score_scale=float(scalar**-0.5), root_scaled=True)


def _bases(r: ConfigReader) -> dict[str, float]:
    """The rotary bases of both kinds of layers: `rope_parameters` states them; older keys must agree."""
    found, inner = {}, r.left.pop("rope_parameters", None)
    if not isinstance(inner, Mapping) or set(inner) != {SLIDING, FULL}:
        raise Undecided(f"config.json: rope_parameters of gemma3_text states {SLIDING} and {FULL}")
    for kind, other in ((SLIDING, "rope_local_base_freq"), (FULL, "rope_theta")):
        own: Any = inner[kind]
        if not isinstance(own, Mapping) or set(own) != {"rope_type", "rope_theta"} or own["rope_type"] != "default":
            raise Undecided(f"config.json: rope_parameters.{kind} = {own!r}; the proof supports plain ones")
        base = own["rope_theta"]
        if isinstance(base, bool) or not isinstance(base, int | float) or not base > 1:
            raise Undecided(f"config.json: rope_parameters.{kind}.rope_theta = {base!r}")
        stated = r.left.pop(other, base)
        if stated != base:
            raise Undecided(f"config.json: {other} = {stated!r}, but this architecture computes with {base!r}")
        found[kind] = float(base)
    return found


def layer(r: TensorReader, p: str, normed: bool = True) -> Layer:
    """The tensors of one layer; `normed`: with norms of queries and keys."""
    s = r.checkpoint.shape
    names = ("input", "pre_feedforward", "post_attention", "post_feedforward")
    before, between, after, last = (r.norm(f"{p}.{name}_layernorm", s.hidden, plus=1.0) for name in names)
    attention = llama.attention(r, p, normed=normed, plus=1.0)
    return Layer(before, attention, between, llama.glu(r, f"{p}.mlp"), after, last)


FAMILY = Family("gemma3_text", "Gemma3ForCausalLM", _shape, layer, plus=1.0)
