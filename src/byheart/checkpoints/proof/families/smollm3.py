"""SmolLM3: Llama with layers whose queries and keys are not rotated."""

from __future__ import annotations

from dataclasses import replace

from byheart.checkpoints.proof.config import ConfigReader, LayerKind, Shape, Undecided, count
from byheart.checkpoints.proof.decoder import Family
from byheart.checkpoints.proof.families import llama


def _shape(r: ConfigReader) -> Shape:
    rotated = r.left.pop("no_rope_layers", None)
    every = r.left.pop("no_rope_layer_interval", 4)  # read only where the list is missing
    if not count(every):
        raise Undecided(f"config.json: no_rope_layer_interval = {every!r} is not an integer")
    shape = llama.read_shape(r, "smollm3", kv_heads=4, theta=2e6, tied=True)
    if rotated is None and every:
        rotated = [int((index + 1) % every != 0) for index in range(shape.layers)]
    if not isinstance(rotated, list) or len(rotated) != shape.layers or not all(count(x) and x < 2 for x in rotated):
        raise Undecided(f"config.json: no_rope_layers = {rotated!r} is not a list of {shape.layers} zeros and ones")
    kinds = tuple(LayerKind(shape.rotary if turned else None, shape.window) for turned in rotated)
    return replace(shape, kinds=kinds)


FAMILY = Family("smollm3", "SmolLM3ForCausalLM", _shape, llama.layer)
