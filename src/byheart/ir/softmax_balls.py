"""Softmax attention by arb's balls: for each token an enclosure of z + sum over heads of W_O W_V Z · softmax.

The streams after such a layer are irrational, so each is kept as a midpoint, which is exact and on a grid of 2^-bits,
with one radius per channel that is valid for all tokens. The invariant: the true stream of every token lies within the
radii of its midpoint. Radii never shrink: those of the inputs go into the balls of scores and values, arb carries them
through exp, products and the division, and rounding the result to the grid adds one step. One radius per channel
instead of one per number keeps the layers after it as fast as ever: midpoints go through the exact engine, radii go
through the absolute weights once per layer (`enclose`).

Cost: one exponential per distinct pair (own point, point attended to), and one product per channel and pair. Tokens
with the same own point and the same multiset of neighbours are enclosed once, whatever the number of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.exact import as_fraction
from byheart.exact.rigor import flint
from byheart.exact.values import Integers, Values
from byheart.ir.attend import allowed, linear_image
from byheart.ir.layers import Attention, Head, Pattern
from byheart.ir.matrix import Matrix

Index = npt.NDArray[np.int64]
MOST_SHARES = 200_000  # exponentials that are kept for pairs of tokens that may meet again


class TooWideError(ArithmeticError):
    """A ball that holds every number: more bits are needed."""


@dataclass(frozen=True, eq=False)
class Attended:
    """Midpoints of the new streams, and which of them each wanted token has."""

    points: Values
    of_token: Index


def attended_balls(
    layer: Attention, points: Values, index: Index, mask: npt.NDArray[np.bool_], radii: tuple[Fraction, ...], bits: int
) -> tuple[Attended, list[Fraction]]:
    """The streams of the masked tokens after the layer, on a grid of 2^-bits or finer, and radii of the channels."""
    contexts, of_token = _contexts(layer.pattern, index, mask)
    own = np.array([context[0] for context in contexts], dtype=np.int64)
    grown = list(radii)
    grid = math.lcm(1 << bits, points.denominator)  # holds the own stream exactly
    rounded = points.numerators[own] * (grid // points.denominator)
    for head in layer.heads:
        channels = [c for c, row in enumerate(head.output.rows) if row]
        mids, rads = _head(head, points, contexts, channels, radii, grid)
        for place, channel in enumerate(channels):
            rounded[:, channel] += mids[:, place]
            grown[channel] += rads[place]
    return Attended(Values(rounded, grid), of_token), grown


def _contexts(
    pattern: Pattern, index: Index, mask: npt.NDArray[np.bool_]
) -> tuple[list[tuple[int, tuple[int, ...]]], Index]:
    """(own point, points attended to in sorted order) of the masked tokens: equal ones are enclosed once."""
    table: dict[tuple[int, tuple[int, ...]], int] = {}
    places = []
    lengths = (index >= 0).sum(axis=1)
    for row, column in np.argwhere(mask).tolist():
        n = int(lengths[row])
        others = index[row, :n] if pattern is Pattern.FULL else index[row, :n][allowed(pattern, n)[column]]
        key = (int(index[row, column]), tuple(sorted(others.tolist())))
        places.append(table.setdefault(key, len(table)))
    return list(table), np.array(places, dtype=np.int64)


def _head(
    head: Head,
    points: Values,
    contexts: list[tuple[int, tuple[int, ...]]],
    channels: list[int],
    radii: tuple[Fraction, ...],
    grid: int,
) -> tuple[Integers, list[Fraction]]:
    """Midpoints (contexts, channels), times the grid, and one radius per channel."""
    keys, queries = _Balls.of(head.key, points, radii), _Balls.of(head.query, points, radii)
    values = _Balls.of_product(head.output, head.value, channels, points, radii)
    mids = np.zeros((len(contexts), len(channels)), dtype=object)
    rads = [Fraction(0)] * len(channels)
    shares: dict[tuple[int, int], Any] = {}
    for place, (own, others) in enumerate(contexts):
        new = [other for other in dict.fromkeys(others) if (own, other) not in shares]
        for other, score in zip(new, _scores(queries, keys, own, new), strict=True):
            shares[own, other] = score.exp()
        weights = [shares[own, other] for other in others]
        total = sum(weights[1:], weights[0])
        for c in range(len(channels)):
            mean = sum((w * values.ball(other, c) for w, other in zip(weights, others, strict=True)), 0) / total
            mids[place, c], rad = _on_grid(mean, grid)
            if rad > rads[c]:
                rads[c] = rad
        if len(shares) > MOST_SHARES:
            shares.clear()
    return mids, rads


@dataclass(frozen=True, eq=False)
class _Balls:
    """Linear images of the points: midpoints over one denominator, and a radius per row."""

    mids: Integers
    denominator: int
    radii: tuple[Fraction, ...]
    cache: dict[tuple[int, int], Any]

    @staticmethod
    def of(matrix: Matrix | None, points: Values, radii: tuple[Fraction, ...]) -> _Balls:
        matrix = matrix or Matrix.zero(0, points.width)
        found = linear_image(matrix, points)
        spread = tuple(sum((abs(as_fraction(w)) * radii[j] for j, w in row), Fraction(0)) for row in matrix.rows)
        return _Balls(found.numerators, found.denominator, spread, {})

    @staticmethod
    def of_product(
        left: Matrix, right: Matrix, channels: list[int], points: Values, radii: tuple[Fraction, ...]
    ) -> _Balls:
        """(left · right) z, for the rows in `channels` of left."""
        inner = _Balls.of(right, points, radii)
        chosen = Matrix(tuple(left.rows[c] for c in channels), left.columns)
        return _Balls.of(chosen, Values(inner.mids, inner.denominator), inner.radii)

    def ball(self, point: int, row: int) -> Any:
        key = (point, row)
        found = self.cache.get(key)
        if found is None:
            found = self.cache[key] = _ball(self.mids[point, row], self.denominator, self.radii[row])
        return found


def _scores(queries: _Balls, keys: _Balls, own: int, others: list[int]) -> list[Any]:
    """Balls of (W_Q z_own)·(W_K z_other); their radii bound the change of a product of two balls."""
    if not others:
        return []
    q = queries.mids[own]
    middles = keys.mids[others] @ q
    whole = queries.denominator * keys.denominator
    if not any(queries.radii) and not any(keys.radii):
        return [_ball(middle, whole, _NONE) for middle in middles]
    return [
        _ball(middle, whole, _spread_of(queries, keys, q, keys.mids[other]))
        for middle, other in zip(middles, others, strict=True)
    ]


def _spread_of(queries: _Balls, keys: _Balls, q: Integers, k: Integers) -> Fraction:
    spread = Fraction(0)
    for i, (rq, rk) in enumerate(zip(queries.radii, keys.radii, strict=True)):
        if rq or rk:
            spread += rq * Fraction(abs(int(k[i])), keys.denominator) + rq * rk
            spread += rk * Fraction(abs(int(q[i])), queries.denominator)
    return spread


_NONE = Fraction(0)


def _ball(numerator: int, denominator: int, radius: Fraction) -> Any:
    module = flint()
    if denominator & (denominator - 1):
        ball = module.arb(module.fmpq(numerator, denominator))
    else:
        ball = module.arb((int(numerator), 1 - denominator.bit_length()))
    if radius:
        ball += module.arb(0, module.arb(module.fmpq(radius.numerator, radius.denominator)).abs_upper())
    return ball


def _on_grid(ball: Any, grid: int) -> tuple[int, Fraction]:
    """The multiple of 1/grid nearest to the ball's midpoint, as an integer, and a radius that covers the ball.

    Exponents in a ball are unbounded: what lies far below 1/grid is never written out.
    """
    if not ball.is_finite():
        raise TooWideError
    mantissa, exponent = (int(part) for part in ball.mid().man_exp())
    step = Fraction(1, grid)
    radius = _fraction(ball.rad(), step)
    if exponent >= 0:
        return (mantissa << exponent) * grid, radius
    if mantissa.bit_length() + exponent < -grid.bit_length():  # closer to 0 than a step
        return 0, radius + step
    # The nearest integer to mantissa · 2^exponent · grid: half is added, then the fraction is cut off.
    numerator = (2 * mantissa * grid + (1 << -exponent)) >> 1 - exponent
    return numerator, radius + step  # the nearest multiple is half a step away at most


def _fraction(value: Any, least: Fraction) -> Fraction:
    """A positive number exactly, or `least` in place of anything smaller."""
    mantissa, exponent = (int(part) for part in value.man_exp())
    if mantissa.bit_length() + exponent < -least.denominator.bit_length():
        return least if mantissa else Fraction(0)
    return Fraction(mantissa << exponent) if exponent >= 0 else Fraction(mantissa, 1 << -exponent)
