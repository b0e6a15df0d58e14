"""Whole rows as points of R^(n·d): what the feed-forward constructions memorize.

A feed-forward network has no attention, so it must see all tokens of a row at once; that costs n·d columns in its first
layer, which attention avoids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from byheart.build.shared.projection import Constants, Line, project
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.distinct import Index
from byheart.exact import Number
from byheart.exact.number import Values
from byheart.ir.layers import Flatten, Layer
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.theory.upper import Cloud

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


def flat_cloud(dataset: Dataset, rows: FlatRows) -> Cloud:
    """Norms and distances of the rows, from those of the tokens: ‖row‖² <= n·r², and different rows are δ apart."""
    found = dataset.separation
    return Cloud(rows.count, rows.dimension, dataset.n * found.r_squared, found.delta_squared or ONE)


def row_line(dataset: Dataset, rows: FlatRows, constants: Constants, seed: int) -> Line:
    """The projection of the rows to a line; coordinates that are the same in all rows (positions) get weight 0."""
    varies = np.flatnonzero((rows.points.numerators != rows.points.numerators[0]).any(axis=0))
    if not varies.size:
        varies = np.arange(1)
    part = Values(rows.points.numerators[:, varies], rows.points.denominator)
    line = project(part, dataset.separation.delta_squared or ONE, constants, seed)
    weight: list[Number] = [0] * rows.dimension
    for place, value in zip(varies.tolist(), line.weight, strict=True):
        weight[place] = value
    return Line(tuple(weight), line.bias, line.numerators, line.denominator)


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
