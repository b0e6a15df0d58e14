"""Token-wise steps as plain data: what the engines of this room evaluate.

Weights are stored by rows without zeros: row i holds (column, weight) pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from byheart.exact.number import Number

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
