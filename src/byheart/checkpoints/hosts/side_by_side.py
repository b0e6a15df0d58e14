"""Layers whose attention and gated MLP run side by side, after one norm that both read (Cohere).

A stage takes two layers. In the first, attention fills the slots, and the MLP beside it must see them still empty: one
unit recognises the slots at rest and turns `order`, which the thresholds of the second layer are read from. In the
second layer the windows are recognised, and the attention beside them hears every place and turns one half of what the
activation probe turns in other architectures. An engine that runs one branch after the other recites nothing. All its
heads listen as well (listening.py), loudly beside the last table.

*Mean.* All channels are larger by SHIFT, which LayerNorm takes away. A unit in every MLP reads the sum of the constant
channels: without the mean it is zero, with it the unit fires and turns back what the probe has turned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts import listening
from byheart.checkpoints.hosts.description import AttentionWeights, GatedDecoder, GatedWeights, fill_idle
from byheart.checkpoints.hosts.recognising import PROBE_UNITS, half_width
from byheart.checkpoints.hosts.rotary import frequencies

Floats = npt.NDArray[np.float64]
SHIFT = 0.25  # of kappa, by which all channels are larger
UNITS = 1  # of every MLP, which sees the mean
_SHARP = 16.0
_QUIET = 1 / 8
_STEEP = 128.0  # of the unit that sees the mean: it fires with 15, and is off at -16


@dataclass(frozen=True, eq=False)
class ParallelLayer:
    """One layer: both branches read the stream after `norm`."""

    norm: Floats
    attention: AttentionWeights
    mlp: GatedWeights


def parallel_layers(decoder: GatedDecoder) -> list[ParallelLayer]:
    """Return two layers for every stage of a decoder that was built with `Demands(parallel=True, balanced=True)`."""
    found = []
    for depth in range(len(decoder.stages)):
        attention, mlp = decoder.attention[depth], decoder.mlp[depth]
        found.append(ParallelLayer(attention.norm, attention, _watching(decoder, depth)))
        found.append(ParallelLayer(mlp.norm, _helping(decoder, depth), _helped(decoder, depth)))
    return found


def shifted(decoder: GatedDecoder) -> Floats:
    """The embedding with a mean."""
    return np.asarray(decoder.embedding + SHIFT * decoder.design.kappa)


def last_norm(decoder: GatedDecoder) -> Floats:
    """The last norm's weights, where the head is the embedding with its mean: that would move all logits together, by
    as much as the weights of the normed stream at rest add up to. The constant channels take this away."""
    layout, norm = decoder.layout, decoder.norm.copy()
    if decoder.design.tied:
        others = np.setdiff1d(np.arange(decoder.hidden), layout.constant[0])
        constant = layout.constant[0]
        norm[constant] = -layout.signs[constant] * (norm[others] @ layout.signs[others]) / len(constant)
    return norm


def _watching(decoder: GatedDecoder, depth: int) -> GatedWeights:
    """The MLP beside the attention that fills the slots: it sees them at rest, and turns `order`."""
    layout, norm, stage = decoder.layout, decoder.attention[depth].norm, decoder.stages[depth]
    gate, up, down = (np.zeros((decoder.units, decoder.hidden)) for _ in range(3))
    slots = np.concatenate([layout.slots[stage.table][place] for place in stage.places])
    whole, m = float(len(slots)), half_width(len(slots) // 2)
    block = layout.order[depth]
    one = _one(decoder, norm)
    rest = np.zeros(decoder.hidden)
    rest[slots] = layout.signs[slots] / norm[slots]
    gate[0] = _SHARP / m * (rest - (whole - m) * one)
    up[0] = ((whole + m) * one - rest) / (_SHARP * m)
    down[0, block] = 2 * decoder.design.kappa * layout.signs[block]
    _see_mean(decoder, norm, gate, up, down, 1, block)
    return _filled(decoder, norm, gate, up, np.ascontiguousarray(down.T))


def _helped(decoder: GatedDecoder, depth: int) -> GatedWeights:
    """The MLP of the windows: half of the probe's channels are left to the attention beside it."""
    mlp, block = decoder.mlp[depth], decoder.layout.constant[depth + 1]
    gate, up, down = mlp.gate.copy(), mlp.up.copy(), mlp.down.T.copy()
    probe = len(mlp.rows)
    down[probe, block[1::2]] = 0.0
    unit = probe + PROBE_UNITS - 1
    gate[unit] = up[unit] = down[unit] = 0.0
    _see_mean(decoder, mlp.norm, gate, up, down, unit, block)
    return replace(_filled(decoder, mlp.norm, gate, up, np.ascontiguousarray(down.T)), rows=mlp.rows)


def _see_mean(
    decoder: GatedDecoder,
    norm: Floats,
    gate: Floats,
    up: Floats,
    down: Floats,
    unit: int,
    turned: npt.NDArray[np.int64],
) -> None:
    """A unit that fires where the normed stream has a mean, and turns `turned` back."""
    block, one = decoder.layout.constant[0], _one(decoder, norm)
    gate[unit, block] = _STEEP / (len(block) * norm[block])
    gate[unit] -= _STEEP * SHIFT / 2 * one
    up[unit] = one / 8
    down[unit, turned] = -decoder.design.kappa * decoder.layout.signs[turned]


def _helping(decoder: GatedDecoder, depth: int) -> AttentionWeights:
    """The attention beside the windows: every head hears all places, by distance, and carries a constant."""
    layout, norm, stage = decoder.layout, decoder.mlp[depth].norm, decoder.stages[depth]
    d, hidden = decoder.design.head_dim, decoder.hidden
    heads, groups = decoder.heads, decoder.kv_heads
    query, key = np.zeros((heads * d, hidden)), np.zeros((groups * d, hidden))
    value, output = np.zeros((groups * d, hidden)), np.zeros((hidden, heads * d))
    every = frequencies(d, decoder.design.theta, decoder.design.scaling)
    one, slot = _one(decoder, norm), layout.slots[stage.table][stage.places[0]]
    bits, channels = np.arange(min(len(slot), d - 2)), layout.listening[:-1]
    # What listeners write moves the norm, so they are loud only where the last table has been read.
    loudness = listening.LOUDNESS * (1.0 if depth + 1 == len(decoder.stages) else _QUIET)
    sharing = -(-heads // max(len(channels), 1))  # heads that write to one channel
    for group in range(groups):
        rows = group * d
        key[rows : rows + d // 2] = one
        value[rows + bits, slot[np.roll(bits, group)]] = 1 / norm[slot[np.roll(bits, group)]]
        value[rows + len(bits)] = one
    for head in range(heads):
        wave = listening.wave(every, every > 0, None, head + heads * (depth + 1))
        query[head * d : (head + 1) * d] = np.outer(np.concatenate([wave.cosine, -wave.sine]) * math.sqrt(d), one)
        if len(channels):
            heard = head * d + listening.spread(head, len(bits))
            size = loudness * decoder.design.kappa / (listening.BITS * sharing)
            output[channels[head % len(channels)], heard] = size
    for number, channel in enumerate(layout.constant[depth + 1][1::2]):
        constant = number % heads * d + len(bits)
        output[channel, constant] = 2 * decoder.design.kappa * layout.signs[channel]
    column = int(layout.constant[0][0])
    query, key, value = (fill_idle(matrix, column) for matrix in (query, key, value))
    return AttentionWeights(norm, query, key, value, fill_idle(output, d - 1), tuple(range(heads)))


def _one(decoder: GatedDecoder, norm: Floats) -> Floats:
    """A row that reads 1 from the constant channels."""
    block, row = decoder.layout.constant[0], np.zeros(decoder.hidden)
    row[block] = decoder.layout.signs[block] / (len(block) * norm[block])
    return row


def _filled(decoder: GatedDecoder, norm: Floats, gate: Floats, up: Floats, down: Floats) -> GatedWeights:
    column = int(decoder.layout.constant[0][0])
    rows = np.zeros(0, dtype=np.int64)
    return GatedWeights(norm, fill_idle(gate, column), fill_idle(up, column), fill_idle(down, decoder.units - 1), rows)
