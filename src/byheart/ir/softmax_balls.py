"""Softmax attention by arb's balls: for each token an enclosure of z + sum over heads of W_O W_V Z · softmax."""

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
    """The streams of the masked tokens behind the layer, on a grid of 2^-bits or finer, and radii of the channels."""
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
        weights = []
        for other in others:
            if (own, other) not in shares:
                shares[own, other] = _score(queries, keys, own, other).exp()
            weights.append(shares[own, other])
        total = sum(weights[1:], weights[0])
        for c in range(len(channels)):
            mean = sum((w * values.ball(other, c) for w, other in zip(weights, others, strict=True)), 0) / total
            mid, rad = _on_grid(mean, grid)
            mids[place, c] = mid
            rads[c] = max(rads[c], rad)
        if len(shares) > 200_000:
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
        if key not in self.cache:
            self.cache[key] = _ball(Fraction(self.mids[point, row], self.denominator), self.radii[row])
        return self.cache[key]


def _score(queries: _Balls, keys: _Balls, own: int, other: int) -> Any:
    """The ball of (W_Q z_own)·(W_K z_other); its radius bounds the change of a product of two balls."""
    q, k = queries.mids[own], keys.mids[other]
    middle = Fraction(int(q.dot(k)), queries.denominator * keys.denominator)
    spread = Fraction(0)
    for i, (rq, rk) in enumerate(zip(queries.radii, keys.radii, strict=True)):
        if rq or rk:
            spread += rq * abs(Fraction(int(k[i]), keys.denominator)) + rk * abs(
                Fraction(int(q[i]), queries.denominator)
            )
            spread += rq * rk
    return _ball(middle, spread)


def _ball(middle: Fraction, radius: Fraction) -> Any:
    module = flint()
    if middle.denominator & (middle.denominator - 1):
        ball = module.arb(module.fmpq(middle.numerator, middle.denominator))
    else:
        ball = module.arb((middle.numerator, 1 - middle.denominator.bit_length()))
    if radius:
        ball += module.arb(0, module.arb(module.fmpq(radius.numerator, radius.denominator)).abs_upper())
    return ball


def _on_grid(ball: Any, grid: int) -> tuple[int, Fraction]:
    """The multiple of 1/grid nearest to the ball's midpoint, as an integer, and a radius that covers the ball."""
    if not ball.is_finite():
        raise TooWideError
    mid, rad = _fraction(ball.mid()), _fraction(ball.rad())
    numerator = round(mid * grid)
    return numerator, rad + abs(mid - Fraction(numerator, grid))


def _fraction(value: Any) -> Fraction:
    mantissa, exponent = (int(part) for part in value.man_exp())
    return Fraction(mantissa) * Fraction(2) ** exponent
