"""How well the points of a data set are separated, exactly (KS25, Definition of token-wise (r, δ)-separation)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from byheart.exact.values import Values


@dataclass(frozen=True)
class Separation:
    """r²: the largest squared norm of a point; δ²: the smallest squared distance of two, None when there is one."""

    r_squared: Fraction
    delta_squared: Fraction | None


def separation(points: Values) -> Separation:
    scale = points.denominator**2
    r = max(int((row * row).sum()) for row in points.numerators)
    if points.count < 2:
        return Separation(Fraction(r, scale), None)
    best: int | None = None
    for i in range(1, points.count):
        differences = points.numerators[:i] - points.numerators[i]
        smallest = int((differences * differences).sum(axis=1).min())
        best = smallest if best is None else min(best, smallest)
    return Separation(Fraction(r, scale), Fraction(best or 0, scale))
