"""Attention of a layer without positions: its heads cannot look by distance, so all of them listen by content.

A query is constant, a key holds bits of the token's word, so a score depends on the token alone: about a nat in all.
Every head writes LOUDNESS times the mean of a few bits to a channel that only the last norm's head reads, as
listeners do (listening.py). A rotation of such a layer, or a wrong scale, changes these weights and so a logit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import AttentionWeights, Design, fill_idle
from byheart.checkpoints.hosts.layout import ChannelLayout
from byheart.checkpoints.hosts.listening import LOUDNESS
from byheart.checkpoints.hosts.looking_back import CONSTANT_GAIN, Heads

Floats = npt.NDArray[np.float64]
STEEP = 0.5  # of a query's dimension: with 64 of them a score has a standard deviation of half a nat
HEARD = 8  # bits that a head writes the mean of


def listen_by_content(
    layout: ChannelLayout, heads: Heads, design: Design, gain: float, channels: tuple[int, ...]
) -> AttentionWeights:
    """Return the attention of a layer without positions.

    Args:
        layout: The residual channels.
        heads: How many heads and key-value heads there are, and their dimension.
        design: The network's design.
        gain: The norm's weight of the token's bits.
        channels: The channels that heads write to in turn; without any, heads write nothing.

    Returns:
        The matrices; every head is a listener.
    """
    d, hidden, bits, constant = heads.dimension, layout.hidden, layout.state[0], layout.constant[0]
    ones = layout.signs[constant] / (CONSTANT_GAIN * len(constant))  # reads 1
    query, key = np.zeros((heads.count * d, hidden)), np.zeros((heads.groups * d, hidden))
    value, output = np.zeros((heads.groups * d, hidden)), np.zeros((hidden, heads.count * d))
    places = np.arange(d)
    for group in range(heads.groups):
        key[group * d + places, bits[(places + group) % len(bits)]] = 1 / gain
        # The last dimension carries nothing: rows of the output that write nothing have their tiny weight there.
        value[group * d + places[:-1], bits[(3 * places[:-1] + group) % len(bits)]] = 1 / gain
    for head in range(heads.count):
        signs = np.random.default_rng((design.seed, head)).choice([-STEEP, STEEP], d)
        query[head * d : (head + 1) * d, constant] = np.outer(signs, ones)
        if channels:
            heard = head * d + 2 * np.arange(HEARD)
            output[channels[head % len(channels)], heard] = LOUDNESS * design.kappa / HEARD
    norm = np.ones(hidden)
    norm[constant] = norm[layout.width] = CONSTANT_GAIN
    norm[bits] = gain
    norm[layout.anchor] = 0.0
    value = fill_idle(value, int(constant[0]))
    return AttentionWeights(norm, query, key, value, fill_idle(output, d - 1), tuple(range(heads.count)))
