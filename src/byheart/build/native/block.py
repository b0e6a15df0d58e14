"""Residual blocks written unit by unit.

>>> block = residual(2, [Unit({0: 1}, -3, {1: 2})], {0: 5})
>>> block.weight1.dense(), block.bias1, block.weight2.dense(), block.bias2
([[1, 0]], (-3,), [[0], [2]], (5, 0))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byheart.exact import Number
from byheart.ir.layers import Matrix, Residual


@dataclass(frozen=True)
class Unit:
    """One hidden unit: relu(sum reads·stream + bias), added to the stream with the weights `writes`."""

    reads: Mapping[int, Number]
    bias: Number
    writes: Mapping[int, Number]


def residual(width: int, units: Sequence[Unit], bias: Mapping[int, Number] | None = None) -> Residual:
    """The block of these units on a stream of `width` numbers; `bias` is its b2 where not zero."""
    columns: list[dict[int, Number]] = [{} for _ in range(width)]
    for place, unit in enumerate(units):
        for channel, weight in unit.writes.items():
            columns[channel][place] = weight
    return Residual(
        weight1=Matrix.of([unit.reads for unit in units], width),
        bias1=tuple(unit.bias for unit in units),
        weight2=Matrix.of(columns, len(units)),
        bias2=tuple((bias or {}).get(channel, 0) for channel in range(width)),
    )


def dense_parameters(width: int, hidden: int) -> int:
    """Entries of W1, b1, W2, b2 of a block."""
    return 2 * width * hidden + hidden + width
