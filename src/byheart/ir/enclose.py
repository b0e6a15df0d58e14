"""Evaluation of networks that are not rational (softmax of unequal scores), by rigorous enclosures.

Every number is a midpoint, which is exact and goes through the same engine as everything else, and a radius, one per
channel for all tokens. Softmax is enclosed by arb's balls; a layer after it moves midpoints exactly and multiplies
radii by its absolute weights (ReLU moves no two numbers further apart). A class is given only where no number inside
the radii could give another one; more bits make the radii smaller.

Softmax attention encloses z + sum over heads of W_O W_V Z · softmax for each token. The streams after such a layer are
irrational, so each is kept as a midpoint, which is exact and on a grid of 2^-bits, with one radius per channel that is
valid for all tokens. The invariant: the true stream of every token lies within the radii of its midpoint. Radii never
shrink: those of the inputs go into the balls of scores and values, arb carries them through exp, products and the
division, and rounding the result to the grid adds one step. One radius per channel instead of one per number keeps the
layers after it as fast as ever: midpoints go through the exact engine, radii go through the absolute weights once per
layer (`enclose`).

Cost: one exponential per distinct pair (own point, point attended to), and one product per channel and pair. Tokens
with the same own point and the same multiset of neighbours are enclosed once, whatever the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import NotRationalError
from byheart.exact import as_fraction, bit_length
from byheart.exact.budget import limbs, meter
from byheart.exact.number import Integers, Values
from byheart.exact.rigor import flint, precision
from byheart.ir import evaluate
from byheart.ir.attend import Index, allowed, linear_image, scores_matter
from byheart.ir.evaluate import ExactWalk, State
from byheart.ir.layers import (
    Affine,
    Attention,
    Embedding,
    Flatten,
    Head,
    Kind,
    Matrix,
    Pattern,
    Pool,
    Residual,
    Threshold,
)
from byheart.ir.network import ABSENT, Decode, Inputs, Network, Read
from byheart.progress import SILENT, Progress

# Instead of a class index.
UNDECIDED = -2
# Beyond the longest weight. Tuned by hand: most networks need no second attempt.
SPARE_BITS = 96
# Of the precision.
DOUBLINGS = 4

Radii = tuple[Fraction, ...]  # one per channel


@dataclass(frozen=True, eq=False)
class Enclosed:
    """A state whose points are midpoints; every true number is within `radii` of its own."""

    state: State
    radii: Radii

    @property
    def exact(self) -> bool:
        return not any(self.radii)


class BallWalk(ExactWalk):
    """The domain of balls: exact midpoints as in `ExactWalk`, and a radius per channel beside them."""

    def __init__(self, network: Network, inputs: Inputs, bits: int, progress: Progress = SILENT) -> None:
        index = inputs.index
        state = State(inputs.points, index, (index >= 0).sum(axis=1))
        super().__init__(state, network.read, progress)
        self.bits = bits
        self.radii: Radii = (Fraction(0),) * inputs.points.width

    @property
    def exact(self) -> bool:
        """Whether no number was rounded so far."""
        return not any(self.radii)

    def grow(self, radii: Iterable[Fraction]) -> None:
        """Replace the radii by slightly larger ones."""
        self.radii = tuple(map(_coarser, radii))

    def embedding(self, layer: Embedding) -> None:
        super().embedding(layer)
        self.radii = (Fraction(0),) * layer.width_out

    def affine(self, layer: Affine) -> None:
        super().affine(layer)
        self.grow(_spread(layer.weight, self.radii))

    def residual(self, layer: Residual) -> None:
        super().residual(layer)
        added = _spread(layer.weight2, _spread(layer.weight1, self.radii))
        self.grow(a + b for a, b in zip(self.radii, added, strict=True))

    def threshold(self, layer: Threshold) -> None:
        if not self.exact:
            raise NotRationalError("Threshold after softmax has no enclosures")
        super().threshold(layer)
        self.radii = (Fraction(0),) * layer.width_out

    def pool(self, layer: Pool) -> None:
        self.radii = tuple(int(self.state.lengths.max()) * r for r in self.radii)
        super().pool(layer)

    def flatten(self, layer: Flatten) -> None:
        super().flatten(layer)
        self.radii *= layer.tokens

    def attention(self, layer: Attention) -> None:
        unequal = any(scores_matter(head) for head in layer.heads)
        if layer.kind is Kind.HARDMAX and unequal and not self.exact:
            raise NotRationalError("hardmax after softmax has no enclosures: its largest scores may be equal")
        if layer.kind is not Kind.SOFTMAX or not unequal:
            super().attention(layer)
            self.radii = _mean_radii(layer, self.radii)
            return
        self.settle()
        state, wanted = self.state, self.wanted()
        mask = state.index >= 0 if wanted is None else wanted
        found, grown = attended_balls(layer, state.points, state.index, mask, self.radii, self.bits)
        index = np.full_like(state.index, ABSENT)
        index[mask] = found.of_token
        self.state = State(found.points, index, state.lengths, state.hub)
        self.grow(grown)


def enclosed_answers(network: Network, inputs: Inputs, progress: Progress = SILENT) -> tuple[Index, int]:
    """Class indices as `evaluate.answers` gives them, -2 where the enclosures cannot decide, and the bits they took.

    The bits start at the longest weight's and are doubled a few times while something is undecided.
    """
    bits = max((bit_length(w) for layer in network.layers for w in layer.weights()), default=0) + SPARE_BITS
    found = None
    limit = meter()
    for doubling in range(DOUBLINGS + 1):
        used = bits << doubling
        if limit is not None:
            limit.spend(_work(network, inputs, used))
        with suppress(TooWideError):
            found = _answers(network, enclosed_outputs(network, inputs, used, progress))
            if not (found == UNDECIDED).any():
                break
    if found is None:
        raise NotRationalError(f"enclosures of {used} bits are still too wide to decide anything")
    return found, used


def _work(network: Network, inputs: Inputs, bits: int) -> int:
    """Estimated in units of the budget: products with the weights, and exponentials for the pairs of tokens that meet.

    An exponential is charged by its time (measured from 10^3 to 10^6 bits), so that the usual budget is some minutes.
    """
    length, weights = limbs(bits), sum(1 for layer in network.layers for _ in layer.weights())
    rows = np.unique(inputs.index, axis=0)
    pairs = int(((rows >= 0).sum(axis=1) ** 2).sum())
    heads = sum(len(layer.heads) for layer in network.attention_layers if layer.kind is Kind.SOFTMAX)
    return length**2 * inputs.points.count * weights + heads * pairs * (4 * length**2 + (1 << 13) * length)


def decided_answers(network: Network, inputs: Inputs, progress: Progress = SILENT) -> Index:
    """Class indices of any network: exactly where that is possible, else by enclosures; -1 where there is no class."""
    try:
        return evaluate.answers(network, inputs, progress)
    except NotRationalError:
        found, _ = enclosed_answers(network, inputs, progress)
        return np.where(found == UNDECIDED, ABSENT, found)


def enclosed_outputs(network: Network, inputs: Inputs, bits: int, progress: Progress = SILENT) -> Enclosed:
    """Return midpoints and radii of the outputs, with balls of this many bits."""
    walk = BallWalk(network, inputs, bits, progress)
    with precision(bits):
        return Enclosed(walk.run(network.layers), walk.radii)


def _answers(network: Network, enclosed: Enclosed) -> Index:
    state, readout = enclosed.state, network.readout
    if readout.decode is Decode.VALUE:
        classes = evaluate.decode(readout, state.points)
        if not enclosed.exact:  # one number that must be whole cannot be distinguished from its neighbours
            classes = np.full_like(classes, UNDECIDED)
    else:
        classes = np.array([_largest(row, enclosed) for row in state.points.numerators], dtype=np.int64)
    found = np.append(classes, ABSENT)[state.index]
    return found if network.read is Read.EACH else found[:, 0]


def _largest(logits: Sequence[int], enclosed: Enclosed) -> int:
    """Return the index of the logit that is largest for all numbers in the balls, or undecided."""
    one = enclosed.state.points.denominator
    best = max(range(len(logits)), key=logits.__getitem__)
    for other, value in enumerate(logits):
        if other != best and logits[best] - value <= (enclosed.radii[best] + enclosed.radii[other]) * one:
            return ABSENT if enclosed.exact else UNDECIDED
    return best


def _spread(matrix: Matrix, radii: Radii) -> Radii:
    """|W| r."""
    if not any(radii):
        return (Fraction(0),) * len(matrix.rows)
    return tuple(sum((abs(as_fraction(w)) * radii[j] for j, w in row), Fraction(0)) for row in matrix.rows)


def _coarser(radius: Fraction) -> Fraction:
    """A slightly larger radius with a short numerator, so that radii stay cheap."""
    extra = radius.numerator.bit_length() - radius.denominator.bit_length() - 40
    if radius == 0:
        return radius
    unit = Fraction(2) ** extra
    return (radius // unit + 1) * unit


def _mean_radii(layer: Attention, radii: Radii) -> Radii:
    """A mean of vectors is no further off than the vectors."""
    total: list[Any] = list(radii)
    for head in layer.heads:
        for channel, extra in enumerate(_spread(head.output, _spread(head.value, radii))):
            total[channel] += extra
    return tuple(total)


MOST_SHARES = 200_000  # exponentials that are kept for pairs of tokens that may meet again


class TooWideError(ArithmeticError):
    """Return a ball that contains every number: more bits are needed."""


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

    Exponents in a ball are unbounded: numbers far below 1/grid are never written out.
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
    # The nearest integer to mantissa · 2^exponent · grid: half is added, then the fraction is dropped.
    numerator = (2 * mantissa * grid + (1 << -exponent)) >> 1 - exponent
    return numerator, radius + step  # the nearest multiple is half a step away at most


def _fraction(value: Any, least: Fraction) -> Fraction:
    """A positive number exactly, or `least` instead of anything smaller."""
    mantissa, exponent = (int(part) for part in value.man_exp())
    if mantissa.bit_length() + exponent < -least.denominator.bit_length():
        return least if mantissa else Fraction(0)
    return Fraction(mantissa << exponent) if exponent >= 0 else Fraction(mantissa, 1 << -exponent)
