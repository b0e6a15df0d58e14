"""Gemma 2: Gemma 3's layers without norms of queries and keys, one rotary base, capped scores and logits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from byheart.checkpoints.proof.config import ConfigReader, LayerKind, Shape, Undecided
from byheart.checkpoints.proof.decoder import Family
from byheart.checkpoints.proof.families import llama
from byheart.checkpoints.proof.families.gemma3 import FULL, SLIDING, layer


def _shape(r: ConfigReader) -> Shape:
    scalar, caps = r.integer("query_pre_attn_scalar", 256), []
    for key, default in (("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0)):
        value = r.left.pop(key, default)
        if value is not None and (not isinstance(value, float) or not 1.0 <= value <= 1e4):
            raise Undecided(f"config.json: {key} = {value!r}; the proof supports null and numbers from 1.0 to 1e4")
        caps.append(value)
    kinds = r.left.pop("layer_types", None)
    shape = llama.read_shape(
        r, "gemma2", kv_heads=4, head_dim=256, window=4096, windowed=True, gelu=True, tied=True
    )  # fmt: skip
    if not isinstance(kinds, list) or len(kinds) != shape.layers or not all(kind in (SLIDING, FULL) for kind in kinds):
        raise Undecided(f"config.json: layer_types = {kinds!r}; the proof supports a list of {SLIDING} and {FULL}")
    if shape.window is None and SLIDING in kinds:
        raise Undecided("config.json: layer_types has sliding layers, but sliding_window is null")
    if shape.hidden % shape.heads:
        raise Undecided(f"config.json: stock Transformers refuses {shape.heads} heads for {shape.hidden} channels")
    both = {SLIDING: LayerKind(shape.rotary, shape.window), FULL: LayerKind(shape.rotary, None)}
    return replace(
        shape, kinds=tuple(both[k] for k in kinds), score_scale=float(scalar**-0.5), root_scaled=True,
        score_cap=caps[0], logit_cap=caps[1],
    )  # fmt: skip


FAMILY = Family("gemma2", "Gemma2ForCausalLM", _shape, partial(layer, normed=False), plus=1.0)
