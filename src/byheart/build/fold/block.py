"""Residual blocks on a stream of one number, as plain integers: what the label memory is made of.

>>> fold = Block(((1, -8, -2),))          # h <- h - 2 relu(h - 8): reflects what lies above 8
>>> [fold(h) for h in (3, 8, 11)]
[3, 8, 5]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from byheart.exact import Number, bit_length
from byheart.ir.layers import Matrix, Residual

Unit = tuple[Number, Number, Number]  # (w, b, out)


@dataclass(frozen=True)
class Block:
    """h <- h + sum of out·relu(w·h + b) over its units + shift."""

    units: tuple[Unit, ...]
    shift: Number = 0

    def __call__(self, h: Number) -> Number:
        total = h + self.shift
        for w, b, out in self.units:
            active = w * h + b
            if active > 0:
                total = total + out * active
        return total

    @property
    def parameters(self) -> int:
        return 3 * len(self.units) + 1

    @property
    def total_bits(self) -> int:
        return sum(bit_length(v) for unit in self.units for v in unit) + bit_length(self.shift)

    def layer(self) -> Residual:
        """The same block as a layer of a network."""
        return Residual(
            weight1=Matrix.of([{0: w} for w, _, _ in self.units], columns=1),
            bias1=tuple(b for _, b, _ in self.units),
            weight2=Matrix.of([{j: out for j, (_, _, out) in enumerate(self.units)}], columns=len(self.units)),
            bias2=(self.shift,),
        )


def run_blocks(blocks: Iterable[Block], h: Number) -> Number:
    """The blocks one after the other, in exact arithmetic: the slow, obvious evaluation."""
    for block in blocks:
        h = block(h)
    return h
