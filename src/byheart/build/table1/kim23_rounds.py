"""One round of Kim et al. 2023: find the largest token that is left, count it, add both to the number, strike it out.

The stream is that of the residual memorizer, whose coordinates are free until the label memory starts: `active` is the
token while it is in the race, `top` the largest active one, `hit` 1 where a token is that one, `count` how many are,
`one` the constant that queries need, `number` the context's number so far.
"""

from __future__ import annotations

import math
from fractions import Fraction

from byheart.build.ks25.memorizer.residual_stream import KEY, LABEL, STREAM, U1, U2, W1, W2, X, blocks, cleared
from byheart.build.shared.projection import Line
from byheart.build.shared.wires import Block, Effect, wire
from byheart.exact import Number, as_fraction, from_fraction
from byheart.ir.layers import Attention, Head, Kind, Layer, Pattern
from byheart.ir.matrix import Matrix

ACTIVE, TOP, HIT, COUNT, ONE, NUMBER = U1, U2, W1, W2, KEY, LABEL
ROUND_UNITS = (2, 4)  # hidden units of the two blocks of a round


SEPARATION = Fraction(1)  # values are 0 or at least 2 apart, counts at least 1: contexts differ by this (squared)


def whole(line: Line) -> Line:
    """The same line, stretched so that everything on it is a whole number."""
    stretched = tuple(from_fraction(as_fraction(w) * line.denominator) for w in line.weight)
    return Line(stretched, line.bias * line.denominator, line.numerators, 1)


def sharpness(n: int, context: Line, key_bits: int) -> int:
    """A factor for softmax's scores with which it misses the largest token by too little to matter.

    Tokens are at least 2 apart, so the others have less than n·exp(-2·beta) of the weight. What is missing is
    multiplied by at most 2^key_bits when tokens are struck out, and by the context's weights when they are added.
    """
    reach = sum(abs(as_fraction(w)) for w in context.weight) + 1
    return math.ceil((math.log(float(reach)) + math.log(n) + (2 * key_bits + 12) * math.log(2)) / 2)


def start_block(bias: int, context: Line, centre: Number) -> Block:
    """x in place, active = x, one = 1, number = its share of x; `centre` puts it in the middle of its key's cell."""
    x = wire(X) + bias
    shift = {X: bias, ONE: 1, NUMBER: context.bias + centre}
    return Block((Effect(x, {ACTIVE: 1, NUMBER: context.weight[0]}),), shift)


def round_layers(n: int, context: Line, key_bits: int, softmax: int | None = None) -> tuple[Layer, ...]:
    """n rounds: 2n attention layers and 2n blocks; hardmax finds the largest token, or softmax with that factor."""
    kind = Kind.HARDMAX if softmax is None else Kind.SOFTMAX
    find = _head(kind, value=(ACTIVE, 1), target=TOP, key=(ACTIVE, 1), query=(ONE, softmax or 1))
    count = _head(Kind.UNIFORM, value=(HIT, n), target=COUNT)
    active, top, hit = wire(ACTIVE), wire(TOP), wire(HIT)
    # 1 where the token is the largest; nowhere when none is left, which is when top = 0
    compare = Block((Effect(active - top + 1, {HIT: 1}), Effect(1 - top, {HIT: -1})))
    limit = 1 << key_bits
    layers: list[Layer] = []
    for place in range(n):
        of_value, of_count = context.weight[1 + 2 * place], context.weight[2 + 2 * place]
        settle = Block(
            (
                Effect(top, {NUMBER: of_value, TOP: -1}),
                Effect(wire(COUNT), {NUMBER: of_count, COUNT: -1}),
                Effect(active + limit * hit - limit, {ACTIVE: -1}),  # strikes out the tokens that were counted
                *cleared(HIT),
            )
        )
        layers += [find, *blocks([compare]), count, *blocks([settle])]
    return tuple(layers)


def _head(
    kind: Kind,
    *,
    value: tuple[str, int],
    target: str,
    key: tuple[str, int] | None = None,
    query: tuple[str, int] | None = None,
) -> Attention:
    """One head of size 1 that brings a multiple of one coordinate to another."""

    def row(name: str, weight: int) -> Matrix:
        return Matrix.of([{STREAM.index(name): weight}], len(STREAM))

    output = Matrix.of([{0: 1} if name == target else {} for name in STREAM], 1)
    keys = None if key is None else row(*key)
    queries = None if query is None else row(*query)
    return Attention(kind, Pattern.FULL, (Head(row(*value), output, keys, queries),))
