"""Two recurrent layers instead of one with attention: a window of places from a convolution, and a state that latches.

A convolution of four taps sees the last four places. A channel whose kernel has one tap is the input of an earlier
place, and zero where there is no such place: the slot then keeps the word that it had, which is BOS's. So the first
layer fetches the first table's places, and the place before a text reads as BOS, as for heads that look back.

A pair of channels holds a bit and its opposite, times LEVEL, so that the activation after the convolution loses
nothing: silu(x) - silu(-x) = x, and the pair's energy is the same for both bits.

The *start latch*: the first layer turns `flags` from the farthest place on, so they mark the first places.
The second layer writes a constant into its state at flagged places alone, nothing decays, and half of the block that
the next layer's thresholds are read from hangs on what the state holds. A state that is lost, halved, decays, or is
not passed on to the next call makes every token wrong. It needs no BOS, and padding does not open it.

Other heads listen: their states hold moving averages, which move the failure token's logit (listening.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import AttentionWeights, GatedDecoder, GatedWeights
from byheart.checkpoints.hosts.layout import ChannelLayout
from byheart.checkpoints.hosts.looking_back import CONSTANT_GAIN
from byheart.errors import ExportError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
TAPS = 4
LEVEL = 16.0  # of a channel after the convolution: silu(-LEVEL) is next to zero, so engines that store it agree
READ = 8.0  # of LEVEL by the projection, the rest by the tap
TAP = LEVEL / READ
HEARD = 8  # pairs of channels that a listener writes the mean of
LOUDER = 0.5  # than listeners of attention: a state may hold twice what a mean of places is
RECURRENT = 2  # layers


def unattended(layout: ChannelLayout, gain: float, heard: tuple[int, ...]) -> AttentionWeights:
    """Return the place of an attention layer whose architecture has a mixer there: its norm, and where to be heard."""
    norm, empty = np.ones(layout.hidden), np.zeros((0, layout.hidden))
    norm[layout.constant[0]] = norm[layout.width] = CONSTANT_GAIN
    norm[layout.state[0]] = gain
    return AttentionWeights(norm, empty, empty, empty, empty.T, heard=heard)


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows that read the normed stream of a mixer."""

    layout: ChannelLayout
    norm: Floats

    @property
    def one(self) -> Floats:
        """Reads 1."""
        row, wide = np.zeros(self.layout.hidden), self.layout.width
        row[wide] = self.layout.signs[wide] / (self.norm[wide[0]] * len(wide))
        return row

    def bit(self, channel: int) -> Floats:
        """Reads +-1 from a channel."""
        row = np.zeros(self.layout.hidden)
        row[channel] = 1 / self.norm[channel]
        return row

    @property
    def early(self) -> Floats:
        """Reads 1 at the first places, -1 at others."""
        row, flags = np.zeros(self.layout.hidden), self.layout.flags
        row[flags] = self.layout.signs[flags] / (self.norm[flags] * len(flags))
        return row

    def pairs(self, source: Index) -> Floats:
        """(2 bits, hidden): a bit and its opposite in turn, READ times."""
        rows = np.stack([self.bit(int(channel)) for channel in source])
        return READ * np.stack([rows, -rows], axis=1).reshape(2 * len(source), -1)


def offsets_of(decoder: GatedDecoder, heads: int) -> tuple[int, ...]:
    """The places that the first layer fetches.

    Raises:
        ExportError: The convolution does not reach that far.
    """
    offsets = decoder.recital.tables[0].offsets
    if offsets[-1] >= TAPS or len(offsets) > heads or decoder.recital.tables[0].far:
        raise ExportError(f"a convolution of {TAPS} taps sees no places {offsets[-1]} back; try another architecture")
    return offsets


def first_word(decoder: GatedDecoder) -> Floats:
    """What a slot holds where there is no such place: the word of BOS (bits,)."""
    return np.asarray(decoder.books.states[0].words[decoder.tokens.bos].astype(np.float64))


def resting_embedding(decoder: GatedDecoder) -> Floats:
    """The embedding with slots at rest, and flags that mark the first places."""
    layout, kappa, found = decoder.layout, decoder.design.kappa, decoder.embedding.copy()
    for slot in layout.slots[0]:
        found[:, slot] = kappa * first_word(decoder)
    found[:, layout.flags] = kappa * layout.signs[layout.flags]
    return found


def latched(decoder: GatedDecoder) -> Index:
    """The half of a block that the latch turns instead of the activation probe."""
    return decoder.layout.constant[RECURRENT][0::2]


def waiting(decoder: GatedDecoder) -> GatedWeights:
    """The MLP beside the latch: its probe leaves half of the block to the state."""
    mlp = decoder.mlp[RECURRENT - 1]
    down = mlp.down.copy()
    probe = len(mlp.rows) * (2 if decoder.design.flavour == "plateau" else 1)
    down[latched(decoder), probe] = 0.0
    return GatedWeights(mlp.norm, mlp.gate, mlp.up, down, mlp.rows)


def eight_bits(x: float) -> float:
    """The nearest number of 8 bits, which every type holds."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(256 * mantissa), exponent - 8)


@lru_cache(maxsize=8)
def short_silus(least: float, most: float) -> tuple[tuple[float, float], ...]:
    """Numbers of 8 bits between two positive ones whose silu is nearly one, too: so types agree on it. The best first.

    >>> [(z, s) for z, s in short_silus(0.5, 8.0)[:1] if abs(z / (1 + math.exp(-z)) / s - 1) < 1e-5]
    [(0.56640625, 0.361328125)]
    """
    found = []
    for z in sorted({eight_bits(math.ldexp(k, e)) for k in range(128, 256) for e in range(-12, 1)}):
        if least <= z <= most:
            value = z / (1 + math.exp(-z))
            found.append((abs(value / eight_bits(value) - 1), z, eight_bits(value)))
    return tuple((z, value) for _, z, value in sorted(found))


def short_gate() -> tuple[float, float]:
    """A gate whose silu is short, and the inverse of that, which is short as well.

    >>> z, inverse = short_gate()
    >>> abs(inverse * z / (1 + math.exp(-z)) - 1) < 2e-4
    True
    """

    def off(pair: tuple[float, float]) -> float:
        z, value = pair
        exact, inverse = z / (1 + math.exp(-z)), eight_bits(1 / value)
        return max(abs(exact / value - 1), abs(inverse * value - 1))

    z, value = min(short_silus(2.0, 8.0), key=off)
    return z, eight_bits(1 / value)
