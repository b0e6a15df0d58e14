"""Whole rows as points of R^(n·d), the input of the feed-forward constructions.

A feed-forward network has no attention, so it must see all tokens of a row at once; that costs n·d columns in its first
layer, which attention avoids.

Where a theorem wants vectors, every symbol gets a random one (`generic_embedding`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from byheart.build.shared.projection import Constants, KeyLine, project
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.distinct import Index
from byheart.exact import Number
from byheart.exact.number import Values
from byheart.ir.layers import Embedding, Flatten, Layer, Matrix
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.theory.upper import PointSet

ONE = Fraction(1)
Stage = tuple[str, tuple[Layer, ...]]


@dataclass(frozen=True, eq=False)
class FlatRows:
    """The distinct rows of a data set: `points` (V, n·d), the class of each, and a row of the data that it is."""

    points: Values
    labels: tuple[int, ...]
    row: Index
    tokens: int
    width: int

    @property
    def count(self) -> int:
        return self.points.count

    @property
    def dimension(self) -> int:
        return self.points.width

    @property
    def layer(self) -> Flatten:
        return Flatten(self.tokens, self.width)


def flat_rows(dataset: Dataset, points: Values | None = None) -> FlatRows:
    """The rows as points; `points` are the tokens' vectors where they are not the data's own (an embedding)."""
    vectors = dataset.inputs.points if points is None else points
    index, first = np.unique(dataset.inputs.index, axis=0, return_index=True)
    table = vectors.numerators[index].reshape(len(index), -1)
    labels = tuple(int(label) for label in dataset.labels[first])
    return FlatRows(Values(table, vectors.denominator), labels, first, dataset.n, vectors.width)


def flat_cloud(dataset: Dataset, rows: FlatRows) -> PointSet:
    """Norms and distances of the rows, from those of the tokens: ‖row‖² <= n·r², and different rows are δ apart."""
    found = dataset.separation
    return PointSet(rows.count, rows.dimension, dataset.n * found.r_squared, found.delta_squared or ONE)


def row_line(dataset: Dataset, rows: FlatRows, constants: Constants, seed: int) -> KeyLine:
    """The projection of the rows to a line; coordinates that are the same in all rows (positions) get weight 0."""
    varies = np.flatnonzero((rows.points.numerators != rows.points.numerators[0]).any(axis=0))
    if not varies.size:
        varies = np.arange(1)
    part = Values(rows.points.numerators[:, varies], rows.points.denominator)
    line = project(part, dataset.separation.delta_squared or ONE, constants, seed)
    weight: list[Number] = [0] * rows.dimension
    for place, value in zip(varies.tolist(), line.weight, strict=True):
        weight[place] = value
    return KeyLine(tuple(weight), line.bias, line.numerators, line.denominator)


def feed_forward_network(stages: Sequence[Stage], classes: int, offset: int = 0, logits: bool = False) -> Network:
    """The network of these stages, the first of which flattens the row."""
    kept = [(name, layers) for name, layers in stages if layers]
    decode = Decode.ARGMAX if logits else Decode.VALUE
    return Network(
        tuple(layer for _, layers in kept for layer in layers),
        Read.POOLED,
        Readout(decode, classes, offset),
        tuple((name, len(layers)) for name, layers in kept),
    )


BITS = 12  # at least; more where there are many symbols and few dimensions


def generic_embedding(dataset: Dataset, dimension: int, *, placed: bool, seed: int) -> tuple[Embedding, Values]:
    """The table, and the vectors that it gives the data set's points; only for symbols.

    With `placed`, every pair of symbol and position that occurs has a separate vector (others have zeros); else the
    position, if there is one, is ignored. Entries are odd integers, so that no vector is zero.

    >>> from byheart.data.dataset.dataset import load
    >>> table, points = generic_embedding(load(["ab", "ba"], [0, 1]), 3, placed=False, seed=0)
    >>> table.table.shape, points.numerators.shape
    ((3, 3), (4, 3))
    """
    encoder = dataset.encoder
    codes = len(encoder.symbols or ()) + 1
    places = encoder.length if placed and encoder.positions else 1
    strides = (1, codes if places > 1 else 0) if encoder.positions else (1,)
    ids = [
        sum(stride * int(number) for stride, number in zip(strides, point, strict=True))
        for point in dataset.inputs.points.numerators
    ]
    used = sorted(set(ids) | set(range(codes) if places == 1 else ()))
    half = 1 << max(BITS, len(used).bit_length() + 4) - 2
    rng = random.Random(f"{seed} {dimension}")
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < len(used):
        drawn[tuple(2 * rng.randrange(-half, half) + 1 for _ in range(dimension))] = None
    vectors = dict(zip(used, drawn, strict=True))
    rows = [dict(enumerate(vectors.get(k, ()))) for k in range(codes * places)]
    return Embedding(Matrix.of(rows, dimension), strides), Values.of([vectors[k] for k in ids])


def embedding_note(table: Embedding) -> str:
    """Notes for the user."""
    return f"symbols have a generic embedding of dimension {table.width_out}: {table.parameters} further parameters"
