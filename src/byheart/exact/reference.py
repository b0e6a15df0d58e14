"""The reference engine: plain Python numbers, one input at a time, to be checked by eye.

>>> from byheart.exact.reference import Map, Block
>>> from byheart.exact.number import Values
>>> double_or_zero = Map(rows=(((0, 2),),), bias=(-2,), relu=True)
>>> run([double_or_zero], Values.of([[5], [-5]])).row(0)
(Fraction(8, 1),)

A `Step` is plain data; every engine of this package evaluates it. Weights are stored by rows without zeros: row i holds
(column, weight) pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from byheart.exact.budget import AT_ONCE, Meter, limbs, meter
from byheart.exact.number import Number, Values, bit_length, dyadic

Row = tuple[tuple[int, Number], ...]


@dataclass(frozen=True)
class Map:
    """x -> W x + b, then ReLU if `relu`."""

    rows: tuple[Row, ...]
    bias: tuple[Number, ...]
    relu: bool

    @property
    def width_out(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Block:
    """x -> x + W2 relu(W1 x + b1) + b2; `rows2` are the rows of W2."""

    rows1: tuple[Row, ...]
    bias1: tuple[Number, ...]
    rows2: tuple[Row, ...]
    bias2: tuple[Number, ...]

    @property
    def width_out(self) -> int:
        return len(self.rows2)

    @property
    def reflects(self) -> bool:
        """Whether it is one whole-number unit on one channel that leaves a value alone or reflects it: o·w = -2."""
        if len(self.rows1) != 1 or len(self.rows2) != 1 or len(self.rows1[0]) != 1 or len(self.rows2[0]) != 1:
            return False
        (column, w), (_, o) = self.rows1[0][0], self.rows2[0][0]
        whole = (
            isinstance(w, int) and isinstance(o, int) and all(isinstance(b, int) for b in (*self.bias1, *self.bias2))
        )
        return whole and column == 0 and w * o == -2


Step: TypeAlias = Map | Block


def run(steps: Sequence[Step], values: Values) -> Values:
    """Every row of `values` through `steps`, exactly.

    The denominator is 2^k·q with q odd: powers of two live in the numbers, and q is taken out by scaling every bias
    with it (an affine map followed by ReLU commutes with a positive factor).
    """
    q, k = odd_part(values.denominator)
    rows = [_evaluate(steps, [dyadic(x, -k) for x in row], q) for row in values.numerators]
    result = Values.of_numbers(rows)
    return Values(result.numerators, result.denominator * q)


def _evaluate(steps: Sequence[Step], x: list[Number], q: int) -> list[Number]:
    limit = meter()
    for step in steps:
        if limit is not None:
            _check(step, x, limit)
        if isinstance(step, Map):
            x = [_affine(row, b, x, q) for row, b in zip(step.rows, step.bias, strict=True)]
            if step.relu:
                x = [v if v > 0 else 0 for v in x]
        elif isinstance(step, Block):
            sums = [_affine(row, b, x, q) for row, b in zip(step.rows1, step.bias1, strict=True)]
            hidden = [v if v > 0 else 0 for v in sums]
            x = [v + _affine(row, b, hidden, q) for v, row, b in zip(x, step.rows2, step.bias2, strict=True)]
    return x


def _check(step: Step, x: list[Number], limit: Meter) -> None:
    """Estimate the cost of one step on numbers as long as these."""
    long = limbs(max((bit_length(v) for v in x), default=1))
    parts = (step.rows,) if isinstance(step, Map) else (step.rows1, step.rows2)
    weights = [limbs(bit_length(w)) for rows in parts for row in rows for _, w in row]
    limit.spend(long * sum(weights) + long)
    limit.hold(8 * AT_ONCE * (long + max(weights, default=0)))


def _affine(row: Row, bias: Number, x: list[Number], q: int) -> Number:
    total = bias * q
    for column, weight in row:
        total = total + weight * x[column]
    return total


def odd_part(denominator: int) -> tuple[int, int]:
    """(q, k) with denominator = q · 2^k and q odd."""
    k = (denominator & -denominator).bit_length() - 1
    return denominator >> k, k
