"""Phi-3 and Phi-4-mini: fused tensors, a part of each head rotated, longrope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from byheart.checkpoints.proof.config import ConfigReader, Shape, Undecided, count
from byheart.checkpoints.proof.decoder import Family
from byheart.checkpoints.proof.families import llama

ORIGINAL = "original_max_position_embeddings"


def _shape(r: ConfigReader) -> Shape:
    original = r.left.pop(ORIGINAL, 4096)
    if not count(original):
        raise Undecided(f"config.json: {ORIGINAL} = {original!r} is not an integer")
    for name in ("rope_parameters", "rope_scaling"):
        fields = r.left.get(name)
        if isinstance(fields, Mapping) and fields.get("rope_type", fields.get("type")) == "longrope":
            if fields.get(ORIGINAL, original) != original:
                raise Undecided(f"config.json: {name}.{ORIGINAL} = {fields[ORIGINAL]!r}, but phi3 reads {original!r}")
            r.left[name] = {**fields, ORIGINAL: original}
    shape = llama.read_shape(r, "phi3", eps=1e-5, windowed=True, whole=False)
    rotary = shape.rotary
    if rotary is None or rotary.scaling is None:
        return shape
    if rotary.scaling.kind != "longrope":
        raise Undecided(f"config.json: rope_type {rotary.scaling.kind!r}; phi3 has longrope alone")
    scaling = replace(rotary.scaling, factor=shape.positions / original)
    # Longer texts divide the frequencies by other numbers.
    return replace(shape, rotary=replace(rotary, scaling=scaling), positions=min(shape.positions, original))


FAMILY = Family("phi3", "Phi3ForCausalLM", _shape, partial(llama.layer, fused=True))
