"""How well the points of a data set are separated, exactly.

KS25 calls tokens (r, δ)-separated when every norm is at most r and every two distinct ones are at least δ apart.

    >>> separation(Values.of([[0, 0], [3, 4], [3, 3]], denominator=2))
    Separation(r_squared=Fraction(25, 4), delta_squared=Fraction(1, 4))
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from byheart.data.separation.closest import closest_squared
from byheart.errors import DataError
from byheart.exact.values import Values

_CHUNK = 1 << 12


@dataclass(frozen=True)
class Separation:
    """r²: the largest squared norm of a point; δ²: the smallest squared distance of two, None when there is one."""

    r_squared: Fraction
    delta_squared: Fraction | None


def separation(points: Values) -> Separation:
    """r² and δ² of distinct points."""
    if not points.count:
        raise DataError("there are no points; give at least one")
    scale = points.denominator**2
    parts = (points.numerators[start : start + _CHUNK] for start in range(0, points.count, _CHUNK))
    norm = max(int((part * part).sum(axis=1).max()) for part in parts)
    delta = Fraction(closest_squared(points.numerators), scale) if points.count > 1 else None
    return Separation(Fraction(norm, scale), delta)
