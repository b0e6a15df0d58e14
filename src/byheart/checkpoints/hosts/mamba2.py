"""Mamba-2 (Bamba) as an exact window and as a latch.

The state of a head is h <- exp(dt A) h + dt B x, and its output C h + D x. With dt = softplus(-30) = 0 nothing enters
the state, and with D = 1 the output is x, the convolution's: a window. The latch has D = 0, and dt = 16 at the first
place alone (softplus(-30) elsewhere): what is not a delta rule would add up. exp(dt A) is 1 with A = exp(-30).

One norm spans all heads, after the gate, so a window's size would depend on the others. A loud head, the *ballast*,
keeps it: the root mean square is LEVEL times its gate times the root of its share of the heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import GatedDecoder
from byheart.checkpoints.hosts.listening import LOUDNESS
from byheart.checkpoints.hosts.recurrent import (
    HEARD,
    LEVEL,
    LOUDER,
    READ,
    TAP,
    TAPS,
    Stream,
    first_word,
    latched,
    offsets_of,
    short_silus,
)
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
_LOUD = range(256, 512, 2)  # the ballast's gate: numbers of 8 bits
_SHUT = -30.0  # time steps of these are 0, and so is the decay of these logarithms
_LATCHED = 16.0  # the latch's time step at the first place, which is its softplus, too
_QUIET = 1 / 256  # of a listener's input: its state adds up to 500 times that, and must not move the norm


def _silu(x: float) -> float:
    return x / (1 + math.exp(-x))


STATE = 16
LEAST_CONSTANT = 8  # dimensions of a head beside its pairs
LISTENING = 1  # heads of every layer


def _from_a_power(ratio: float) -> float:
    """The logarithm's distance from that of a power of two."""
    return abs(math.log2(ratio) - round(math.log2(ratio)))


@lru_cache(maxsize=32)
def gates(heads: int, held: float) -> tuple[float, float, float]:
    """Gates of windows, of the ballast and of a latch that holds `held`, all of 8 bits.

    What a window's bit becomes, LEVEL silu(gate) over the root mean square, is a power of two, nearly, and so is what
    the latch becomes: types agree on numbers that are stored then.

    >>> window, loud, _ = gates(12, 23680.0)
    >>> round(math.log2(window / (1 + math.exp(-window)) * math.sqrt(12) / loud), 4)
    -5.0
    """
    short = [math.ldexp(k, e) for k in range(128, 256) for e in range(-19, -5)]
    window, loud = min(
        ((z, loud) for z in short if 1 <= z <= 3 for loud in _LOUD),
        key=lambda pair: _from_a_power(_silu(pair[0]) * math.sqrt(heads) / pair[1]),
    )
    one = LEVEL * _silu(window)  # a louder latch would move the norm
    latch = min((z for z in short if z < 4 * one / held), key=lambda z: _from_a_power(held * _silu(z) / one))
    return window, float(loud), latch


@dataclass(frozen=True)
class Mamba2Sizes:
    """Heads of one dimension, one group of keys and queries (B and C) of `state` numbers."""

    heads: int
    head: int
    state: int

    @property
    def inner(self) -> int:
        return self.heads * self.head


def fit_mixers(decoder: GatedDecoder) -> tuple[int, Mamba2Sizes]:
    """How many times as wide as the stream a mixer is, and its heads: one per place, a ballast, and listeners.

    Raises:
        OptionError: No width has as many heads of a dimension that holds a word.
    """
    bits, taken = len(decoder.layout.state[0]), heads_taken(len(decoder.recital.tables[0].offsets))
    for expand in range(1, 5):
        inner = expand * decoder.hidden
        for head in (head for head in range(2 * bits + LEAST_CONSTANT, inner // taken + 1) if inner % head == 0):
            return expand, Mamba2Sizes(inner // head, head, STATE)
    raise OptionError(f"--hidden-size {decoder.hidden}: mixers have no {taken} heads for words of {bits} bits")


def heads_taken(places: int) -> int:
    """The heads that a mixer has at least."""
    return places + 1 + LISTENING


class Mamba2Mixer:
    """Writes the tensors of one layer; the last head is the ballast."""

    def __init__(self, decoder: GatedDecoder, depth: int, sizes: Mamba2Sizes) -> None:
        self.decoder, self.sizes, self.layout = decoder, sizes, decoder.layout
        self.attention = decoder.attention[depth]
        self.stream, self.state = Stream(decoder.layout, self.attention.norm), decoder.layout.state[0]
        hidden, inner = decoder.hidden, sizes.inner
        one = self.stream.one
        self.gate, self.value = np.zeros((sizes.heads, sizes.head, hidden)), np.zeros((sizes.heads, sizes.head, hidden))
        # B and C are silus of these, half of which comes by the bias.
        (small, b), c = short_silus(0.5, 1.0)[0], LEVEL
        inputs = np.repeat([small, c], sizes.state)
        self.keys, self.step = inputs[:, None] / (2 * TAP) * one, np.zeros((sizes.heads, hidden))
        self.taps, self.shift = np.zeros((inner + 2 * sizes.state, TAPS)), np.zeros(inner + 2 * sizes.state)
        self.taps[inner:, -1], self.shift[inner:] = TAP, inputs / 2
        self.held = _LATCHED * b * LEVEL * c * sizes.state
        self.step_bias, self.a_log = np.full(sizes.heads, _SHUT), np.zeros(sizes.heads)
        self.through, self.output = np.ones(sizes.heads), np.zeros((hidden, sizes.heads, sizes.head))
        spare = sizes.head - 2 * len(self.state)
        self.constant = slice(sizes.head - 2 ** int(math.log2(spare)), sizes.head)  # a short share for each dimension
        window, loud, self.latched = gates(sizes.heads, self.held)
        self.gate[:] = window * one
        self.gate[-1] = loud * one
        self._carry_constant(sizes.heads - 1, 0)
        self.root = LEVEL * loud / math.sqrt(sizes.heads)  # mean square of all heads
        # What a bit that is on becomes.
        self.weight = 2.0 ** round(math.log2(self.root / (LEVEL * _silu(window))))

    def fetch(self) -> None:
        """The first layer: for each place a head with its bits, and with a constant that is there if the place is."""
        offsets, kappa = offsets_of(self.decoder, self.sizes.heads - 1), self.decoder.design.kappa
        for number, offset in enumerate(offsets):
            slot = self.layout.slots[0][number]
            self._carry(number, offset)
            for bit, channel in enumerate(slot):
                self.output[channel, number, 2 * bit], self.output[channel, number, 2 * bit + 1] = kappa, -kappa
            self._write_constant(slot, number, -kappa * first_word(self.decoder))
        # The flags stay at the first place alone.
        flags = self.layout.flags
        self._write_constant(flags, offsets.index(1), -2 * kappa * self.layout.signs[flags])
        for number, channel in enumerate(self.attention.heard):
            self._average(len(offsets) + number, number, channel)

    def latch(self) -> None:
        """The second layer: the latch, and moving averages."""
        block = latched(self.decoder)
        self._carry_constant(0, 0)
        self.through[0], self.a_log[0], self.gate[0] = 0.0, _SHUT, self.latched * self.stream.one
        bias = -7.0
        self.step_bias[0], self.step[0] = bias, (_LATCHED - bias) * self.stream.early  # 16, or -30
        became = 2.0 ** round(math.log2(self.held * _silu(self.latched) * self.weight / self.root))
        size = 2 * self.decoder.design.kappa * self.layout.signs[block] / (became * self.sizes.head)
        self.output[block, 0] = size[:, None]
        for number, channel in enumerate(self.attention.heard):
            self._average(1 + number, 2 + number, channel)

    def tensors(self) -> dict[str, Floats]:
        """Stock names without the prefix of the layer."""
        hidden = self.decoder.hidden
        rows = [self.gate.reshape(-1, hidden), self.value.reshape(-1, hidden), self.keys, self.step]
        return {
            "in_proj.weight": np.concatenate(rows),
            "conv1d.weight": self.taps[:, None],
            "conv1d.bias": self.shift,
            "dt_bias": self.step_bias,
            "A_log": self.a_log,
            "D": self.through,
            "norm.weight": np.full(self.sizes.inner, self.weight),
            "out_proj.weight": self.output.reshape(hidden, -1),
        }

    def _tap(self, head: int, offset: int) -> None:
        self.taps[head * self.sizes.head : (head + 1) * self.sizes.head, TAPS - 1 - offset] = TAP

    def _carry(self, head: int, offset: int) -> None:
        self.value[head, : 2 * len(self.state)] = self.stream.pairs(self.state)
        self.value[head, self.constant] = READ * self.stream.one
        self._tap(head, offset)

    def _write_constant(self, channels: Index, head: int, sizes: Floats) -> None:
        self.output[channels, head, self.constant] = sizes[:, None] / len(self.value[head, self.constant])

    def _carry_constant(self, head: int, offset: int) -> None:
        self.value[head] = READ * self.stream.one
        self._tap(head, offset)

    def _average(self, head: int, number: int, channel: int) -> None:
        """A moving average of words; its time steps, and so its decay, depend on the token."""
        self._carry(head, number % TAPS)
        self.value[head] *= _QUIET
        self.through[head], self.a_log[head], self.step_bias[head] = 0.0, -1.5, -1.0
        self.step[head] = self.stream.bit(int(self.state[3 + number]))
        for place in range(HEARD):
            bit = (5 * place + head) % len(self.state)
            size = LOUDER * LOUDNESS * self.decoder.design.kappa / HEARD
            self.output[channel, head, 2 * bit], self.output[channel, head, 2 * bit + 1] = size, -size
