"""What is known about a network's inputs before any data: how many tokens, and what a token's numbers can be.

>>> code = channel(Fraction(0), Fraction(9), Fraction(1))
>>> InputFacts(4, False, (code,)).with_absent() == InputFacts(4, False, (code,))
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from byheart.certify.any_order.lattice import Channel, channel, join
from byheart.data.dataset.encoder import Encoder
from byheart.data.task import Task
from byheart.errors import DataError
from byheart.exact import as_fraction
from byheart.ir.network import Inputs


@dataclass(frozen=True)
class InputFacts:
    """Rows of `length` tokens (of 1 … length if `ragged`); coordinate i of a token lies in `coordinates[i]`.

    `positions`: the last coordinate is the token's place, 0 … length − 1. `absent`: what exported models are given at
    places after the end of a row. Attention multiplies it by 0, so it must stay finite.
    """

    length: int
    ragged: bool
    coordinates: tuple[Channel, ...]
    positions: bool = False
    absent: tuple[Channel, ...] | None = None

    def with_absent(self) -> InputFacts:
        """Places after the end count as tokens too."""
        if self.absent is None:
            return self
        wider = tuple(join([a, b]) for a, b in zip(self.coordinates, self.absent, strict=True))
        return replace(self, coordinates=wider, absent=None)

    def allow(self, inputs: Inputs) -> bool:
        """Whether every row is one that the facts speak of: its length, its numbers, its places.

        >>> from byheart.exact.number import Values
        >>> code = channel(Fraction(0), Fraction(9), Fraction(1))
        >>> [InputFacts(1, False, (code,)).allow(Inputs(Values.of([[x]]), np.array([[0]]))) for x in (9, 10)]
        [True, False]
        """
        lengths, points = inputs.lengths, inputs.points
        if len(lengths) and not (1 if self.ragged else self.length) <= lengths.min() <= lengths.max() <= self.length:
            return False
        if points.width != len(self.coordinates):
            return False
        for c, column in zip(self.coordinates, points.numerators.T, strict=True):
            for x in map(int, set(column.tolist())):
                value = Fraction(x, points.denominator)
                if not c.low <= value <= c.high or (value != 0 and (not c.unit or (value / c.unit).denominator != 1)):
                    return False
        if not self.positions:
            return True
        places = [int(x) // points.denominator for x in points.numerators[:, -1]]  # at most self.length, see above
        where = np.array([*places, 0], dtype=np.int64)[inputs.index]
        return bool(((where == np.arange(inputs.index.shape[1])) | (inputs.index < 0)).all())

    def at(self, place: int) -> tuple[Channel, ...]:
        """The coordinates of a token at this place of its row."""
        if not self.positions:
            return self.coordinates
        here = Fraction(place)
        return (*self.coordinates[:-1], channel(here, here, here))


def facts_of(encoder: Encoder, inputs: Inputs | None) -> InputFacts:
    """For symbols: any symbol of the table, the padding too. For vectors: the box and the lattice of the given ones."""
    coordinates: list[Channel]
    if encoder.symbols is not None:
        coordinates = [channel(Fraction(0), Fraction(len(encoder.symbols)), Fraction(1))]
    elif inputs is None:
        raise DataError("which vectors occur is known only from the data; give the inputs")
    else:
        coordinates = [_coordinate(encoder, inputs, i) for i in range(encoder.dimension)]
    if encoder.positions:
        coordinates.append(channel(Fraction(0), Fraction(encoder.length - 1), Fraction(1)))
    ragged = encoder.task in (Task.SET, Task.CAUSAL)
    absent = None
    if ragged:
        code = Fraction(0 if encoder.symbols is None else -1)  # a vector of zeros, or the code -1
        nothing = channel(code, code, abs(code))
        absent = (*(nothing for _ in coordinates[: len(coordinates) - encoder.positions]),)
        absent += tuple(coordinates[len(absent) :])
    return InputFacts(encoder.length, ragged, tuple(coordinates), encoder.positions, absent)


def _coordinate(encoder: Encoder, inputs: Inputs, place: int) -> Channel:
    denominator = inputs.points.denominator
    numbers = [int(x) for x in inputs.points.numerators[:, place]]
    low, high = Fraction(min(numbers), denominator), Fraction(max(numbers), denominator)
    unit = Fraction(math.gcd(*numbers), denominator)
    if encoder.pad_vector is None:
        return channel(low, high, unit)
    pad = as_fraction(encoder.pad_vector[place])
    return join([Channel(low, high, unit), Channel(pad, pad, abs(pad))])
