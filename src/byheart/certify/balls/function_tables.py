"""Activations and exp with proved errors at the speed of NumPy: Taylor tables with coefficients and remainders by arb.

The libraries' tanh, exp and erf promise nothing, so they cannot carry a proof. Here the line is cut into cells of width
2^-6; in each, arb gives the Taylor coefficients at the centre, and (from the series over the whole cell as one ball) a
bound of the next coefficient, which is Lagrange's remainder. NumPy only adds and multiplies.

    >>> table = function_table("exp")
    >>> mid, rad = table.enclose(np.array([-0.5]))
    >>> bool(abs(mid[0] - np.exp(-0.5)) < 1e-15 and rad[0] < 1e-14)
    True
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.exact.rigor import flint, magnitude, precision

Floats = npt.NDArray[np.float64]

CELLS = 64  # per unit
DEGREE = 7
UNIT = 2.0**-53
# Horner's rule of degree 7 (14 operations on |t| ≤ 2^-7) and the rounded argument t: below γ_24.
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
    """The table of exp, tanh, sigmoid, arctan or gelu; made once, in well under a second."""
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
                rounded = (
                    np.array([magnitude(c - arb(float(f))) for c, f in zip(exact, coefficients[:, k], strict=True)])
                    @ powers[:-1]
                )
                remainder = magnitude(whole[DEGREE + 1]) * powers[-1]
                error[k] = (remainder + rounded + HORNER * size) * (1 + 1e-9) + 1e-300
                slope[k] = magnitude(whole[1])
    finally:
        context.cap = cap
    padded = np.pad(slope, 1, mode="edge")
    return FunctionTable(low, high, coefficients, error, np.maximum(np.maximum(padded[:-2], padded[2:]), slope))


def _coefficients(series: Any, count: int) -> list[Any]:
    found = series.coeffs()[:count]
    return list(found) + [flint().arb(0)] * (count - len(found))
