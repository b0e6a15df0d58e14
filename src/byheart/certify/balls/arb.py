"""Arrays of arb balls: the same operations as `FloatBalls` at any precision, slower and with nothing to trust but arb.

>>> with precision(200):
...     third = ArbBalls.exact(np.array([1.0])) / ArbBalls.exact(np.array([3.0]))
>>> bool(third.radii()[0] < 1e-55)
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.certify.balls._base import Balls, Floats, Mask, Objects
from byheart.exact.rigor import flint, precision, upper_float
from byheart.ir.decoder import Activation

__all__ = ["ArbBalls", "precision"]


@dataclass(frozen=True, eq=False)
class ArbBalls(Balls):
    """An object array of arb balls; operations round outwards to the precision in force."""

    entries: Objects

    @classmethod
    def exact(cls, values: npt.ArrayLike) -> ArbBalls:
        """Balls of radius 0 around floats or ints."""
        arb = flint().arb
        source = np.asarray(values)
        entries = np.empty(source.shape, dtype=object)
        entries.ravel()[:] = [arb(value) for value in source.ravel().tolist()]
        return ArbBalls(entries)

    def __getitem__(self, key: Any) -> ArbBalls:
        return ArbBalls(np.asarray(self.entries[key]))

    def __add__(self, other: ArbBalls) -> ArbBalls:
        return ArbBalls(self.entries + other.entries)

    def __sub__(self, other: ArbBalls) -> ArbBalls:
        return ArbBalls(self.entries - other.entries)

    def __mul__(self, other: ArbBalls) -> ArbBalls:
        return ArbBalls(self.entries * other.entries)

    def __truediv__(self, other: ArbBalls) -> ArbBalls:
        return ArbBalls(self.entries / other.entries)

    def sum(self, axis: int) -> ArbBalls:
        return ArbBalls(np.asarray(self.entries.sum(axis=axis)))

    def times(self, matrix: Floats) -> ArbBalls:
        """The matrix product with exact float64 numbers, by arb's own matrices."""
        rows, inner = self.entries.reshape(-1, self.entries.shape[-1]).shape
        left = flint().arb_mat(rows, inner, self.entries.ravel().tolist())
        right = flint().arb_mat(*matrix.shape, matrix.ravel().tolist())
        product = np.empty(rows * matrix.shape[1], dtype=object)
        product[:] = (left * right).entries()
        return ArbBalls(product.reshape(*self.entries.shape[:-1], matrix.shape[1]))

    def exp(self) -> ArbBalls:
        return ArbBalls(_each(self.entries, lambda x: x.exp()))

    def activated(self, activation: Activation) -> ArbBalls:
        return ArbBalls(_each(self.entries, activation.ball))

    def middles(self) -> Floats:
        return np.asarray(_each(self.entries, lambda x: float(x.mid())), dtype=np.float64)

    def as_arb(self) -> Objects:
        return self.entries

    def above(self, chosen: Mask) -> Mask:
        """Compared by arb itself: ends that are rounded to float64 could not tell what more bits can."""
        return np.array([_above(row[mask], row[~mask]) for row, mask in zip(self.entries, chosen, strict=True)])

    def radii(self) -> Floats:
        return np.asarray(_each(self.entries, lambda x: upper_float(x.rad())), dtype=np.float64)


def _above(ours: Objects, others: Objects) -> bool:
    return any(all(x > y for y in others) for x in ours)


def _each(entries: Objects, function: Callable[[Any], Any]) -> Objects:
    out = np.empty(entries.shape, dtype=object)
    out.ravel()[:] = [function(entry) for entry in entries.ravel()]
    return out
