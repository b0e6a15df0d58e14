"""Anchors: what makes formats with 4 or 5 bits hold both signs.

These formats scale every 32 weights of a row by the largest: Q4_0 holds that one in eighths, but the other sign only up
to 7/8 of it, and Q4_1 holds no 0 between equal weights of both signs. A weight of twice the size at an input that is
always 0, an *anchor*, mends both. The flavour `quantized` has such inputs in the stream; for matrices that read units,
a silent unit is added to every 31 of the MLP. Embedding and head have none, so they are stored in Q8_0 there
(llama.cpp's own quantizer keeps its head finer than the rest, too).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.decoder import Expert, Layer, Linear, Norm
from byheart.checkpoints.proof.storage import Array

# How much larger than a block's other weights s an anchor is: s, 0 and -s are then multiples of a step, or nearly
ANCHORS = {"Q5_0": 2.0, "Q5_1": 31 / 17, "Q4_0": 2.0, "Q4_1": 1.5}
BLOCK = 32  # weights that share a scale


def with_anchors(decoder: StockDecoder, anchor: float) -> StockDecoder:
    """The same function with a weight of `anchor` times the size of every block's largest, at an input that is always
    0: one that a norm takes to 0, or a silent unit that is added to every 31 others."""

    def steady(linear: Linear, norm: Norm | None) -> Linear:
        if norm is None:
            return linear
        idle = norm.weight == 0 if norm.bias is None else (norm.weight == 0) & (norm.bias == 0)
        weight = np.where(idle, np.float32(0), linear.weight)
        for at in np.unique(np.flatnonzero(idle) // BLOCK):
            block = weight[:, BLOCK * at : BLOCK * (at + 1)]
            block[:, np.flatnonzero(idle[BLOCK * at : BLOCK * (at + 1)])[-1]] = anchor * np.abs(block).max(1)
        return replace(linear, weight=weight)

    def layer(old: Layer) -> Layer:
        norm, heads = old.attention_norm, old.attention
        heads = replace(heads, q=steady(heads.q, norm), k=steady(heads.k, norm), v=steady(heads.v, norm))

        def units(expert: Expert) -> Expert:
            up = None if expert.up is None else steady(expert.up, old.mlp_norm)
            return _widened(replace(expert, gate=steady(expert.gate, old.mlp_norm), up=up), anchor)

        return replace(old, attention=heads, mlp=replace(old.mlp, experts=tuple(map(units, old.mlp.experts))))

    layers = tuple(map(layer, decoder.layers))
    shape = replace(decoder.shape, units=len(layers[0].mlp.experts[0].gate.weight))
    return replace(decoder, shape=shape, layers=layers)


def _widened(expert: Expert, anchor: float) -> Expert:
    """An MLP with a silent unit at the end of every block of units."""
    places = np.arange(len(expert.gate.weight))
    places += places // (BLOCK - 1)
    units = -(-(int(places[-1]) + 1) // BLOCK) * BLOCK

    def apart(values: Array) -> Array:
        found = np.zeros((units, *values.shape[1:]), dtype=np.float32)
        found[places] = values
        return found

    def reading(linear: Linear) -> Linear:
        bias = None if linear.bias is None else apart(linear.bias)
        return replace(linear, weight=apart(linear.weight), bias=bias)

    blocks = np.zeros((units, len(expert.down.weight)), dtype=np.float32)
    blocks[places] = expert.down.weight.T
    blocks[BLOCK - 1 :: BLOCK] = anchor * np.abs(blocks.reshape(-1, BLOCK, len(expert.down.weight))).max(1)
    down = replace(expert.down, weight=np.ascontiguousarray(blocks.T))
    up = None if expert.up is None else reading(expert.up)
    return replace(expert, gate=reading(expert.gate), up=up, down=down)
