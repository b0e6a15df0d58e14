"""The MLP of one layer: a unit for every window, which fires when the slots hold that window.

With code words of +-1 in the slots, x = <window, slots> is `total` for the unit's own window and at most
total - 2 distance for any other one. With m = 2/3 distance and the gates

    gate = (g/m) (x - (total - m)),   up = (total + m - x) / (g m)

silu(gate) * up is 1 - ((x - total)/m)^2 at the match: flat there, so errors of x count quadratically (`parabola`); the
gates of all other units are at most -2g. A `plateau` has two units per window, silu(gate) - silu(gate - 8) with a
constant `up`: errors of x up to 0.4 m leave no trace, which coarse quantizers need. Its rows also have an `anchor` in
every 32 weights, of twice the size, on inputs that are always zero: grids that hold +s and -s unequally hold s/2, 0 and
-s/2, and integer kernels that add two products in 16 bits do not saturate.

Thresholds are read from constant channels. A quarter of them comes from `constant[l]`, which the activation probe of
the layer before has turned: one unit near the minimum of the activation function, so that relu, gelu, silu and their
kin give different numbers. If the probe fails, no window is recognised any more.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.codes import CodeBook
from byheart.checkpoints.hosts.description import Design, GatedWeights, anchored, fill_idle
from byheart.checkpoints.hosts.layout import METER, ChannelLayout, LayerStage
from byheart.checkpoints.hosts.sensors import SENSE
from byheart.checkpoints.windows.tables import ANY, WindowTable

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

# (gate, up) of the activation probe: the product is 1 up to 2e-4, and 1 after rounding in any usual order of evaluation
SILU_PROBE = (-199 / 128, -59 / 16)
GELU_PROBE = (-55 / 32, -217 / 16)  # gelu's cheap cousin x sigmoid(1.702 x) is a fifth larger here

_TOLERANCE = 0.08  # of the weight of BOS, beyond which the scale probe speaks up
_SHARPNESS = 1024.0
_STEPS = 64.0  # of a threshold, in the weight of a bit
PROBE_UNITS = 4  # the activation probe, two units of the scale probe, and at least one idle unit


def half_width(distance: int) -> float:
    """m: the largest power of two up to 2/3 of the distance, so that thresholds are short numbers.

    >>> [half_width(d) for d in (1, 6, 8, 12, 24)]
    [1.0, 4.0, 4.0, 8.0, 16.0]
    """
    return 2.0 ** max(0, math.floor(math.log2(2 * distance / 3)))


def probe_share(level: float) -> float:
    """How much of a threshold is read from the constants that the layer before has turned: a quarter, since these err
    more than those that never change; a half where three quarters of the level is not a number of 8 bits.

    >>> probe_share(92.0), probe_share(171.0)
    (0.25, 0.5)
    """
    mantissa, _ = math.frexp(0.75 * level)
    return 0.25 if mantissa * 256 == round(mantissa * 256) else 0.5


class Recognising:
    """Writes the matrices of one gated MLP."""

    def __init__(
        self, layout: ChannelLayout, stage: LayerStage, depth: int, table: WindowTable, book: CodeBook,
        design: Design, gain: float, activation_probe: tuple[float, float], flat: bool = False,
    ) -> None:  # fmt: skip
        self.layout, self.stage, self.depth, self.design, self.gain = layout, stage, depth, design, gain
        self.table, self.book, self.activation_probe = table, book, activation_probe
        self.m, self.flat = half_width(book.distance), flat or design.flavour == "plateau"
        self.sharp = 16.0 if not self.flat and book.distance > 1 else 32.0
        windows = table.windows[stage.rows]
        closed = windows != ANY
        words = book.words[np.where(closed, windows, 0)].astype(np.float64) * closed[:, :, None]
        self.patterns = words.reshape(len(windows), words.shape[1] * words.shape[2])  # (units, places * bits)
        self.totals = closed.sum(axis=1) * float(book.bits)
        # What the constants are made to hold: the threshold itself where all windows share it, else a power of two,
        # so that the shares of the others are short numbers.
        whole = float(len(table.offsets) * book.bits)
        self.level = whole - self.m if closed.all() else 2.0 ** math.ceil(math.log2(whole))
        # Where windows leave places open, thresholds are whole multiples of 1/64 of a bit's weight, and a weight of 127
        # of these on a channel that the norm makes 0 keeps them exact in rows of 8-bit integers.
        steps = (self.totals - self.m) / self.m
        self.anchored = (
            bool(len(layout.anchor)) and not closed.all() and bool((steps % 1 == 0).all() & (steps < 128).all())
        )
        if self.anchored and not self.flat:
            self.level = _STEPS * self.m
        self.slots = np.concatenate(layout.slots[stage.table])
        self.shares = self._shares()

    @property
    def window_units(self) -> int:
        return len(self.patterns) * (2 if self.flat else 1)

    def _shares(self) -> list[tuple[Index, float]]:
        """The constant channels that hold the level, and how much of it each block holds: those that were turned before
        may fail. Beside constants that never change these are what the layer before has turned, and, where attention
        and MLP are parallel, what the MLP beside this table's attention has."""
        layout, turned = self.layout, probe_share(self.level)
        if not layout.order:
            if not self.depth:
                return [(layout.constant[0], 1.0)]
            return [(layout.constant[0], 1 - turned), (layout.constant[self.depth], turned)]
        if not self.depth:
            return [(layout.constant[0], 1 - turned), (layout.order[0], turned)]
        return [(layout.constant[0], 0.5), (layout.constant[self.depth], 0.25), (layout.order[self.depth], 0.25)]

    def write(
        self, units: int, writes: Floats, *, probe_far: int | None = None,
        extra: tuple[Floats, Floats, Floats] | None = None,
    ) -> GatedWeights:  # fmt: skip
        """`writes` (hidden, rows) is what the unit of each row adds; `probe_far` switches the scale probe on.
        `extra` are rows of gate, up and down of further units (sensors.py)."""
        gate, up, down = (np.zeros((units, self.layout.hidden)) for _ in range(3))
        window = self._plateau if self.flat else self._parabola
        count = window(gate, up, down, writes.T)
        self._activation(gate[count], up[count], down[count])
        if (
            probe_far is not None and self.design.flavour != "plateau"
        ):  # its rows need 8 bits; the logit shows the scale
            self._scale(gate[count + 1 : count + 3], up[count + 1 : count + 3], down[count + 1 : count + 3])
        if extra is not None:
            places = slice(count + 3, count + 3 + len(extra[0]))
            gate[places], up[places], down[places] = extra
        column = int(self.layout.constant[0][0])
        rows = np.tile(self.stage.rows, 2 if self.flat else 1)
        filled = fill_idle(np.ascontiguousarray(down.T), units - 1)
        parts = fill_idle(gate, column), fill_idle(up, column), filled
        if self.design.flavour == "plateau":
            ballast = self.layout.anchor
            parts = anchored(parts[0], ballast), anchored(parts[1], ballast), anchored(filled, np.array([units - 1]))
        return GatedWeights(self.norm(), *parts, rows)

    def norm(self) -> Floats:
        """Norm weights that make the weights of a threshold as large as those of the bits: rows have one size."""
        layout, norm = self.layout, np.ones(self.layout.hidden)
        norm[self.slots] = self.gain
        norm[layout.width] = self.gain * 2 * self.m / len(layout.width)
        for block, share in self.shares:
            norm[block] = self.gain * self.level * share / len(block)
        norm[layout.meter] = norm[layout.flags] = 1.0
        norm[layout.sense] = 1 / SENSE  # so that no weight of the matrix is too large
        norm[layout.anchor] = 0.0
        return norm

    def _constants(self) -> Floats:
        """A row that reads `level` times a bit from the constant channels (hidden,)."""
        row = np.zeros(self.layout.hidden)
        for block, _ in self.shares:
            row[block] = self.layout.signs[block]
        return row

    def one(self) -> Floats:
        """A row that reads 1 from the `width` channels."""
        row = np.zeros(self.layout.hidden)
        row[self.layout.width] = self.layout.signs[self.layout.width] / (self.gain * 2 * self.m)
        return row

    def gates(self, size: float) -> Floats:
        """size (x - (total - m)) for every row (rows, hidden)."""
        rows = np.zeros((len(self.patterns), self.layout.hidden))
        rows[:, self.slots] = size / self.gain * self.patterns
        shares = (self.totals - self.m) / self.level
        rows -= size / self.gain * np.outer(shares, self._constants())
        if self.anchored and not self.flat:
            rows[:, self.layout.anchor[0]] = size / self.gain * 127 / _STEPS
        return rows

    def _parabola(self, gate: Floats, up: Floats, down: Floats, writes: Floats) -> int:
        count = len(self.patterns)
        gate[:count] = self.gates(self.sharp / self.m)
        up[:count] = -self.gates(1 / (self.sharp * self.m)) + self.one() * (2 / self.sharp)
        down[:count] = writes
        return count

    def _plateau(self, gate: Floats, up: Floats, down: Floats, writes: Floats) -> int:
        count = len(self.patterns)
        gate[:count] = gate[count : 2 * count] = self.gates(self.sharp / self.m)
        # The step is one weight as large as those of the bits: coarse grids hold it as they hold them.
        width = int(self.layout.width[0])
        gate[count : 2 * count, width] -= self.sharp / (self.m * self.gain) * self.layout.signs[width]
        up[: 2 * count] = self.one() * (len(self.layout.width) / (2 * self.sharp))
        down[:count], down[count : 2 * count] = writes, -writes
        return 2 * count

    def _activation(self, gate: Floats, up: Floats, down: Floats) -> None:
        gate += self.activation_probe[0] * self.one()
        up += self.activation_probe[1] * self.one()
        turned = self.layout.constant[self.depth + 1]
        down[turned] = 2 * self.design.kappa * self.layout.signs[turned]

    def _scale(self, gate: Floats, up: Floats, down: Floats) -> None:
        """Two units that fire where the weight of BOS is not 3/4 (too large, too small) at the one position where
        BOS is seen at the farthest place but not at the one before; they turn constant[l+1] back."""
        layout, half = self.layout, len(self.layout.meter) // 2
        signs = layout.signs[layout.meter] * np.where(np.arange(2 * half) < half, 1.0, -1.0)
        far, near = np.split(layout.flags, 2)
        # Whole multiples of one step, the largest 127 of them: blocks of 8-bit weights hold the row without any error.
        step = _SHARPNESS / (32 * half)
        slope = 127 * step * half * 2 * METER  # of p
        for unit, side in enumerate((1.0, -1.0)):
            gate[unit, layout.meter] = side * 127 * step * signs  # the weight of BOS, p
            gate[unit, far] = _SHARPNESS / len(far) * layout.signs[far]
            gate[unit, near] = -_SHARPNESS / len(near) * layout.signs[near]
            gate[unit] -= self._steps(side * 0.75 * slope + (_TOLERANCE + 2.0) * _SHARPNESS, step)
            up[unit] = self.one()
            turned = layout.constant[self.depth + 1]
            down[unit, turned] = -2 * self.design.kappa / 8 * layout.signs[turned]

    def _steps(self, value: float, step: float) -> Floats:
        """A row that reads `value` from the `width` channels with weights that are whole multiples of `step`."""
        width, row = self.layout.width, np.zeros(self.layout.hidden)
        each = self.gain * 2 * self.m / len(width)  # what a channel holds, normed
        count = round(value / (each * step))
        shares = np.full(len(width), count // len(width)) + (np.arange(len(width)) < count % len(width))
        row[width] = step * shares * self.layout.signs[width]
        return row
