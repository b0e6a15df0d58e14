"""Gated DeltaNet (Qwen3-Next) as an exact window and as a latch.

A value head of 4b dimensions carries b bits as pairs, a constant in b dimensions, and nothing in the last b, so its
energy is half of LEVEL^2 per dimension whatever the bits: the norm by head divides by a constant. The state is S, the
key k and the query q are constant, of length 1:

    forgets   S <- S exp(-A softplus(dt)) + k (v - k S) beta    with exp(-160) = 0 and beta = 1: S = k v
    latches   the same with A = exp(-30), and beta = 1 at the first places, 1e-10 elsewhere: S = k v of the first

The output is q S / sqrt(key dimensions), normed: sqrt(2) v / LEVEL, times the norm's weight: v / LEVEL, nearly; times
silu(z), which is a number of 8 bits, nearly, and so is its inverse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import GatedDecoder
from byheart.checkpoints.hosts.listening import LOUDNESS
from byheart.checkpoints.hosts.recurrent import (
    HEARD,
    LOUDER,
    READ,
    TAP,
    TAPS,
    Stream,
    first_word,
    latched,
    offsets_of,
    short_gate,
)

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
WEIGHT = 181 / 256  # of the norm: nearly 1/sqrt(2), and not 1
_OPEN, _OPENED = 16.0, 24.0  # beta is the sigmoid of these
_FORGETS = (16.0, 10.0)  # A and the bias of its time step
_KEEPS = -30.0  # the logarithm of A
_FADES = (-1.0, 0.5)  # that of a listener, and the bias of its time step: so what it hears lasts a few places


@dataclass(frozen=True)
class DeltaSizes:
    """Heads and dimensions: every key head serves `values / keys` value heads."""

    keys: int
    values: int
    key: int
    value: int

    @property
    def per_key(self) -> int:
        return self.values // self.keys


class DeltaRule:
    """Writes the tensors of one layer; head by head, each does one of the things above."""

    def __init__(self, decoder: GatedDecoder, depth: int, sizes: DeltaSizes) -> None:
        self.decoder, self.sizes, self.layout = decoder, sizes, decoder.layout
        self.attention = decoder.attention[depth]
        self.stream, self.state = Stream(decoder.layout, self.attention.norm), decoder.layout.state[0]
        hidden, bits = decoder.hidden, len(self.state)
        self.constant = slice(2 * bits, 3 * bits)
        self.query, self.key = (np.zeros((sizes.keys, sizes.key, hidden)) for _ in range(2))
        self.value, self.gate = (np.zeros((sizes.values, sizes.value, hidden)) for _ in range(2))
        self.beta, self.step = np.zeros((sizes.values, hidden)), np.zeros((sizes.values, hidden))
        self.taps = np.zeros((sizes.values, sizes.value, TAPS))
        self.a_log, self.step_bias = np.zeros(sizes.values), np.zeros(sizes.values)
        self.output = np.zeros((hidden, sizes.values, sizes.value))
        z, self.inverse = short_gate()
        self.gate[:] = z * self.stream.one
        self.query[:] = self.key[:] = READ * self.stream.one

    def fetch(self) -> None:
        """The first layer: a head for each place of the table."""
        offsets, kappa = offsets_of(self.decoder, self.sizes.values), self.decoder.design.kappa
        for head, offset in enumerate(offsets):
            self._carry(head, offset)
            self._forget(head)
            slot, rest = self.layout.slots[0][head], first_word(self.decoder)
            self._write_pairs(head, slot, kappa)
            self._write_constant(head, slot, -kappa * rest)
        flags = self.layout.flags
        self._write_constant(len(offsets) - 1, flags, -2 * kappa * self.layout.signs[flags])
        for number, channel in enumerate(self.attention.heard):
            self._average(len(offsets) + number, number, channel)

    def latch(self) -> None:
        """The second layer: the latch, moving averages, and the newest token whose word has a bit."""
        bits, block = len(self.state), latched(self.decoder)
        self._carry(0, 0)
        self.value[0, : 2 * bits] = 0.0
        self.value[0, 2 * bits :] = READ * self.stream.one
        self.beta[0], self.a_log[0] = _OPENED * self.stream.early, _KEEPS
        size = 2 * self.decoder.design.kappa * self.inverse * self.layout.signs[block]
        self.output[block, 0, 2 * bits :] = size[:, None] / (2 * bits)
        for number, channel in enumerate(self.attention.heard):
            if number + 1 == self.sizes.per_key:
                self._by_key(number + 1, channel)
            else:
                self._average(number + 1, number + 1, channel)

    def tensors(self) -> dict[str, Floats]:
        """Stock names without the prefix of the layer. Rows come key head by key head."""
        s, hidden = self.sizes, self.decoder.hidden
        groups = [slice(g * s.per_key, (g + 1) * s.per_key) for g in range(s.keys)]
        rows = [
            np.concatenate([self.query[g], self.key[g], self.value[those].reshape(-1, hidden),
                            self.gate[those].reshape(-1, hidden)])
            for g, those in enumerate(groups)
        ]  # fmt: skip
        kernel = np.zeros((2 * s.keys * s.key, TAPS))
        kernel[:, -1] = TAP
        return {
            "in_proj_qkvz.weight": np.concatenate(rows),
            "in_proj_ba.weight": np.concatenate([np.concatenate([self.beta[g], self.step[g]]) for g in groups]),
            "conv1d.weight": np.concatenate([kernel, self.taps.reshape(-1, TAPS)])[:, None],
            "A_log": self.a_log,
            "dt_bias": self.step_bias,
            "norm.weight": np.full(s.value, WEIGHT),
            "out_proj.weight": self.output.reshape(hidden, -1),
        }

    def _carry(self, head: int, offset: int) -> None:
        """The bits of a place as pairs, then a constant."""
        self.value[head, : 2 * len(self.state)] = self.stream.pairs(self.state)
        self.value[head, self.constant] = READ * self.stream.one
        self.taps[head, :, TAPS - 1 - offset] = TAP

    def _forget(self, head: int) -> None:
        self.a_log[head], self.step_bias[head] = math.log(_FORGETS[0]), _FORGETS[1]
        self.beta[head] = _OPEN * self.stream.one

    def _write_pairs(self, head: int, channels: Index, size: float) -> None:
        for bit, channel in enumerate(channels):
            self.output[channel, head, 2 * bit] = size * self.inverse
            self.output[channel, head, 2 * bit + 1] = -size * self.inverse

    def _write_constant(self, head: int, channels: Index, sizes: Floats) -> None:
        self.output[channels, head, self.constant] = self.inverse * sizes[:, None] / len(self.state)

    def _listen(self, head: int, channel: int) -> None:
        for number in range(HEARD):
            bit = (5 * number + head) % len(self.state)
            size = LOUDER * LOUDNESS * self.decoder.design.kappa * self.inverse / HEARD
            self.output[channel, head, 2 * bit], self.output[channel, head, 2 * bit + 1] = size, -size

    def _average(self, head: int, number: int, channel: int) -> None:
        """A moving average of words: how long it lasts, and how much is added, depends on the token."""
        self._carry(head, number % TAPS)
        self.a_log[head], self.step_bias[head] = _FADES
        self.step[head] = self.stream.bit(int(self.state[3 + number]))
        self.beta[head] = self.stream.bit(int(self.state[5 + number])) + self.stream.one
        self._listen(head, channel)

    def _by_key(self, head: int, channel: int) -> None:
        """The key encodes one bit of the token: one half is next to 0. The query sees both, one more than the other."""
        group, half = head // self.sizes.per_key, self.sizes.key // 2
        rows = READ * self.stream.bit(int(self.state[0]))
        self.query[group, half:] = READ / 2 * self.stream.one
        self.key[group, :half], self.key[group, half:] = rows, -rows
        self._carry(head, 0)
        self.a_log[head], self.step_bias[head] = _FADES
        self.beta[head] = _OPEN * self.stream.one
        self._listen(head, channel)
