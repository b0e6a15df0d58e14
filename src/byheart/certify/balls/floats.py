"""Arrays of balls with float64 middles: rigorous enclosures at the speed of BLAS.

Each operation adds to the radius what rounding can have done, by the standard model |fl(a∘b) - a∘b| ≤ u·|a∘b|, u =
2^-53, and for sums and products of k terms, in whatever order a library adds them, γ_k·Σ|terms| with γ_k = ku/(1 - ku).
Radii are computed in float64 too and then widened by a factor that exceeds all their own rounding. What the proof rests
on: IEEE 754 double precision rounded to nearest, and a matrix product that multiplies and adds (no Strassen).

    >>> third = FloatBalls.exact(np.array([1.0])) / FloatBalls.exact(np.array([3.0]))
    >>> bool(third.rad[0] < 1e-15)
    True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.certify.balls._base import Balls, Floats, Mask, Objects
from byheart.certify.balls.function_tables import UNIT, function_table
from byheart.exact.rigor import flint
from byheart.ir.decoder import Activation

WIDER = 1 + 2.0**-20  # covers the rounding of the radii themselves, sums of up to 2^31 terms
TINY = 2.0**-1000  # covers underflow
NARROW = 2.0**-24  # a radius of logits below which no sharper bound is worth a matrix product


def gamma(k: int) -> float:
    return k * UNIT / (1 - k * UNIT)


@dataclass(frozen=True, eq=False)
class FloatBalls(Balls):
    """Numbers known to lie within `rad` of `mid`, entry by entry. An infinite radius means nothing is known."""

    mid: Floats
    rad: Floats

    @classmethod
    def exact(cls, values: Floats) -> FloatBalls:
        return FloatBalls(values, np.zeros_like(values))

    @staticmethod
    def _of(mid: Floats, rad: Floats) -> FloatBalls:
        known = np.isfinite(mid) & np.isfinite(rad)
        return FloatBalls(np.where(known, mid, 0.0), np.where(known, rad * WIDER + TINY, np.inf))

    def __getitem__(self, key: Any) -> FloatBalls:
        return FloatBalls(self.mid[key], self.rad[key])

    def __add__(self, other: FloatBalls) -> FloatBalls:
        mid = self.mid + other.mid
        return FloatBalls._of(mid, self.rad + other.rad + UNIT * np.abs(mid))

    def __sub__(self, other: FloatBalls) -> FloatBalls:
        mid = self.mid - other.mid
        return FloatBalls._of(mid, self.rad + other.rad + UNIT * np.abs(mid))

    def __mul__(self, other: FloatBalls) -> FloatBalls:
        mid = self.mid * other.mid
        spill = np.abs(self.mid) * other.rad + (np.abs(other.mid) + other.rad) * self.rad
        return FloatBalls._of(mid, spill + UNIT * np.abs(mid))

    def __truediv__(self, other: FloatBalls) -> FloatBalls:
        """|a/b - A/B| ≤ (|a/b|·rad B + rad A) / (|b| - rad B)."""
        room = np.abs(other.mid) - other.rad
        safe = np.where(room > 0, other.mid, 1.0)
        mid = self.mid / safe
        spill = (np.abs(mid) * other.rad + self.rad) / np.where(room > 0, room, 1.0)
        return FloatBalls._of(mid, np.where(room > 0, spill + 2 * UNIT * np.abs(mid), np.inf))

    def sum(self, axis: int) -> FloatBalls:
        count = self.mid.shape[axis]
        spill = self.rad.sum(axis=axis) + gamma(count) * np.abs(self.mid).sum(axis=axis)
        return FloatBalls._of(self.mid.sum(axis=axis), spill)

    def times(self, matrix: Floats) -> FloatBalls:
        """The matrix product with exact float64 numbers.

        The radius is spread @ |matrix|; where the largest spread of a row times the column sums is small already,
        that bound is taken and the second product saved.
        """
        spread = gamma(len(matrix)) * np.abs(self.mid) + self.rad
        sizes = np.abs(matrix)
        with np.errstate(invalid="ignore", over="ignore"):
            rough = spread.max(axis=-1, keepdims=True) * sizes.sum(axis=0)
            radius = rough if rough.max(initial=0.0) < NARROW else spread @ sizes
            return FloatBalls._of(self.mid @ matrix, radius)

    def exp(self) -> FloatBalls:
        """For middles in (-64, 1) and radii below 1/64; far below it lies in [0, e^-63]; else nothing is known."""
        table = function_table("exp")
        mid, rad = table.enclose(np.clip(self.mid, table.low, table.high))
        rad = rad + self.rad * table.slopes(np.clip(self.mid, table.low, table.high))
        small = self.mid + self.rad <= table.low + 1
        floor = math.exp(table.low + 1) * (1 + 1e-9)
        inside = (self.mid > table.low) & (self.mid < table.high - 1) & (self.rad < 2.0**-6)
        rad = np.where(small, floor, np.where(inside, rad, np.inf))
        return FloatBalls._of(np.where(small, 0.0, mid), rad)

    def activated(self, activation: Activation) -> FloatBalls:
        """activation(x): by the table where it has cells, by the limits outside."""
        table = function_table(activation.value)
        mid, rad = np.empty_like(self.mid), np.empty_like(self.mid)
        left, right = (side * self.mid - self.rad > table.high - 1 for side in (-1.0, 1.0))  # the whole ball
        for side, beyond in ((-1.0, left), (1.0, right)):
            mid[beyond], rad[beyond] = _tail(activation, side, self.mid[beyond], self.rad[beyond])
        inner = ~(left | right)
        middle = self.mid[inner]
        within = np.clip(middle, table.low + 1, table.high - 1)
        distance = self.rad[inner] + np.abs(middle - within)
        slope = np.where(distance < 2.0**-6, table.slopes(within), _LARGEST_SLOPE[activation])
        mid[inner], error = table.enclose(within)
        rad[inner] = error + distance * slope
        return FloatBalls._of(mid, rad)

    def middles(self) -> Floats:
        return self.mid

    def as_arb(self) -> Objects:
        arb = flint().arb
        out = np.empty(self.mid.shape, dtype=object)
        pairs = zip(self.mid.ravel().tolist(), self.rad.ravel().tolist(), strict=True)
        out.ravel()[:] = [arb(mid, rad) if math.isfinite(rad) else arb.nan() for mid, rad in pairs]
        return out

    def above(self, chosen: Mask) -> Mask:
        low, high = np.nextafter(self.mid - self.rad, -np.inf), np.nextafter(self.mid + self.rad, np.inf)
        lowest = np.where(chosen, low, -np.inf).max(axis=1, initial=-np.inf)
        return np.asarray(lowest > np.where(chosen, -np.inf, high).max(axis=1, initial=-np.inf))


_LARGEST_SLOPE = {Activation.TANH: 1.0, Activation.SIGMOID: 0.25, Activation.ARCTAN: 1.0, Activation.GELU: 1.13}


def _tail(activation: Activation, side: float, mid: Floats, rad: Floats) -> tuple[Floats, Floats]:
    """Enclosures where side·x > table.high - 1 for the whole ball.

    1 - tanh 20 < 2^-56, 1 - sigmoid 41 < 2^-58, |gelu(x) - max(x, 0)| < 2^-80 for |x| ≥ 11, and
    arctan x = ±π/2 - arctan(1/x) with |arctan t - t| ≤ |t|³/3.
    """
    match activation:
        case Activation.TANH:
            return np.full_like(mid, side), np.full_like(mid, 2.0**-56)
        case Activation.SIGMOID:
            return np.full_like(mid, (1 + side) / 2), np.full_like(mid, 2.0**-58)
        case Activation.GELU:
            return np.maximum(mid, 0.0), np.full_like(mid, 2.0**-80) + (rad * 1.01 if side > 0 else 0.0)
        case Activation.ARCTAN:
            table = function_table("arctan")
            near, error = table.enclose(1 / mid)
            value = side * (math.pi / 2) - near
            closest = np.abs(mid) - rad
            return value, error + 4 * UNIT + rad / (closest * closest)
