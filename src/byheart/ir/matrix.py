"""Exact matrices, stored by rows without their zeros.

>>> m = Matrix.of([{0: 1, 2: -3}, {}], columns=3)
>>> m.dense()
[[1, 0, -3], [0, 0, 0]]
>>> m.entries, m.nonzero
(6, 2)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from byheart.errors import NetworkError
from byheart.exact import Number, check_number

Row = tuple[tuple[int, Number], ...]


@dataclass(frozen=True)
class Matrix:
    """A matrix of exact numbers; `rows[i]` holds the (column, weight) pairs of row i, columns ascending."""

    rows: tuple[Row, ...]
    columns: int

    @staticmethod
    def of(rows: Sequence[Mapping[int, Number]], columns: int) -> Matrix:
        """From one {column: weight} mapping per row; zeros are dropped, places and types are checked."""
        packed: list[Row] = []
        for index, row in enumerate(rows):
            cells = tuple(sorted((j, check_number(w)) for j, w in row.items() if w != 0))
            if cells and not 0 <= cells[0][0] <= cells[-1][0] < columns:
                raise NetworkError(f"row {index} has a weight outside its {columns} columns")
            packed.append(cells)
        return Matrix(tuple(packed), columns)

    @staticmethod
    def of_dense(rows: Sequence[Sequence[Number]]) -> Matrix:
        """From a rectangular list of lists."""
        columns = len(rows[0]) if rows else 0
        if any(len(row) != columns for row in rows):
            raise NetworkError("the rows of a dense matrix must have one length")
        return Matrix.of([dict(enumerate(row)) for row in rows], columns)

    @staticmethod
    def zero(rows: int, columns: int) -> Matrix:
        return Matrix(((),) * rows, columns)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.columns

    @property
    def entries(self) -> int:
        return len(self.rows) * self.columns

    @cached_property
    def nonzero(self) -> int:
        return sum(len(row) for row in self.rows)

    def weights(self) -> Iterator[Number]:
        """The weights that are not zero."""
        for row in self.rows:
            for _, weight in row:
                yield weight

    def dense(self) -> list[list[Number]]:
        out: list[list[Number]] = [[0] * self.columns for _ in self.rows]
        for i, row in enumerate(self.rows):
            for j, weight in row:
                out[i][j] = weight
        return out

    def transpose(self) -> Matrix:
        columns: list[list[tuple[int, Number]]] = [[] for _ in range(self.columns)]
        for i, row in enumerate(self.rows):
            for j, weight in row:
                columns[j].append((i, weight))
        return Matrix(tuple(tuple(column) for column in columns), len(self.rows))


Vector = tuple[Number, ...]


def vector(values: Sequence[Number]) -> Vector:
    """A checked tuple of exact numbers."""
    return tuple(check_number(v) for v in values)
