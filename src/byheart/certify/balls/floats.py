"""Arrays of balls with float64 middles: rigorous enclosures at the speed of BLAS.

Each operation adds a bound on rounding to the radius, by the standard model |fl(a∘b) - a∘b| ≤ u·|a∘b|, u =
2^-53, and for sums and products of k terms, in whatever order a library adds them, γ_k·Σ|terms| with γ_k = ku/(1 - ku).
Radii are computed in float64 too and then widened by a factor that exceeds all their own rounding. The proof
assumes IEEE 754 double precision rounded to nearest, and a matrix product that multiplies and adds (no Strassen).

    >>> third = FloatBalls.exact(np.array([1.0])) / FloatBalls.exact(np.array([3.0]))
    >>> bool(third.rad[0] < 1e-15)
    True

Activations and exp have proved errors at the speed of NumPy, by Taylor tables with coefficients and remainders by arb.
The libraries' tanh, exp and erf guarantee nothing, so they cannot carry a proof. Here the line is split into cells of
width 2^-6; in each, arb gives the Taylor coefficients at the centre, and (from the series over the whole cell as one
ball) a bound of the next coefficient, which is Lagrange's remainder. NumPy only adds and multiplies.

    >>> table = function_table("exp")
    >>> mid, rad = table.enclose(np.array([-0.5]))
    >>> bool(abs(mid[0] - np.exp(-0.5)) < 1e-15 and rad[0] < 1e-14)
    True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.certify.balls.arb import Balls, Floats, Mask, Objects
from byheart.exact.rigor import flint, magnitude, precision
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


CELLS = 64  # per unit
# Of the Taylor polynomials. Tuned by hand, together with the width of the cells.
DEGREE = 7
# Half a unit in the last place of 1.
UNIT = 2.0**-53
# Horner's rule of degree 7 (14 operations on |t| ≤ 2^-7), rounded coefficients and the rounded argument t: below γ_24.
HORNER = 24 * UNIT / (1 - 24 * UNIT)


@dataclass(frozen=True, eq=False)
class FunctionTable:
    """f on [low, high]: coefficients (DEGREE + 1, cells) at the centres, an error and a slope bound for each cell."""

    low: float
    high: float
    coefficients: Floats
    error: Floats
    slope: Floats  # |f'| over the cell and its two neighbours

    def enclose(self, x: Floats) -> tuple[Floats, Floats]:
        """(value, radius): |f(x) - value| ≤ radius for float64 x in [low, high] taken as exact numbers."""
        cell = self._cell(x)
        t = x - (self.low + (cell + 0.5) / CELLS)
        value = self.coefficients[DEGREE][cell]
        for k in range(DEGREE - 1, -1, -1):
            value = value * t + self.coefficients[k][cell]
        return value, self.error[cell]

    def slopes(self, x: Floats) -> Floats:
        """A bound of |f'| within one cell's width of x."""
        return self.slope[self._cell(x)]

    def _cell(self, x: Floats) -> npt.NDArray[np.int64]:
        last = self.coefficients.shape[1] - 1
        return np.clip(((x - self.low) * CELLS).astype(np.int64), 0, last)


def _series(name: str, x: Any) -> Any:
    """The power series of the function around the ball (or number) x."""
    arb_series, arb = flint().arb_series, flint().arb
    line = arb_series([x, 1])
    match name:
        case "exp":
            return line.exp()
        case "tanh":
            return 1 - 2 / ((2 * line).exp() + 1)
        case "sigmoid":
            return 1 / (1 + (-line).exp())
        case "arctan":
            return line.atan()
        case "gelu":
            return line * (1 + (line / arb(2).sqrt()).erf()) / 2
    raise KeyError(name)


RANGES: dict[str, tuple[float, float]] = {
    "exp": (-64.0, 2.0),
    "tanh": (-21.0, 21.0),
    "sigmoid": (-42.0, 42.0),
    "arctan": (-16.0, 16.0),
    "gelu": (-12.0, 12.0),
}


@cache
def function_table(name: str) -> FunctionTable:
    """Return the table of exp, tanh, sigmoid, arctan or gelu; computed once, in well under a second."""
    low, high = RANGES[name]
    cells = round((high - low) * CELLS)
    coefficients, error, slope = np.empty((DEGREE + 1, cells)), np.empty(cells), np.empty(cells)
    arb, context = flint().arb, flint().ctx
    half = 0.5 / CELLS * (1 + 2.0**-30)  # x on an edge may be counted to either cell
    cap, context.cap = context.cap, DEGREE + 2
    try:
        with precision(160):
            for k in range(cells):
                centre = low + (k + 0.5) / CELLS
                exact = _coefficients(_series(name, arb(centre)), DEGREE + 1)
                whole = _coefficients(_series(name, arb(centre, half)), DEGREE + 2)
                coefficients[:, k] = [float(c.mid()) for c in exact]
                powers = half ** np.arange(DEGREE + 2)
                size = np.array([magnitude(c) for c in exact]) @ powers[:-1]
                remainder = magnitude(whole[DEGREE + 1]) * powers[-1]
                error[k] = (remainder + HORNER * size) * (1 + 1e-9) + 1e-300
                slope[k] = magnitude(whole[1])
    finally:
        context.cap = cap
    padded = np.pad(slope, 1, mode="edge")
    return FunctionTable(low, high, coefficients, error, np.maximum(np.maximum(padded[:-2], padded[2:]), slope))


def _coefficients(series: Any, count: int) -> list[Any]:
    found = series.coeffs()[:count]
    return list(found) + [flint().arb(0)] * (count - len(found))
