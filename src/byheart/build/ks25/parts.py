"""The two memories of KS25's networks: labels for a few tokens, and labels for the contexts that averaging makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from byheart.build.ks25.memorizer.key_groups import Fields
from byheart.build.ks25.memorizer.memorizer import Table
from byheart.build.ks25.options import Style
from byheart.build.ks25.sequence_ids.multiset_separation import TokenCode, separate_multisets
from byheart.build.ks25.sequence_ids.multisets import Index
from byheart.build.shared.projection import Line, project
from byheart.data.dataset.dataset import Dataset
from byheart.exact import Number
from byheart.exact.number import Values

ONE = Fraction(1)
Choice = Callable[[Sequence[int], Sequence[int]], Fields]  # (keys, labels) -> how to divide the words


@dataclass(frozen=True)
class Lookup:
    """One memory: its table, and the pieces in which it is built (one piece unless bits are limited)."""

    fields: Fields
    pieces: tuple[Table, ...]
    range_bits: int  # of the largest key of any point, stored or not

    @staticmethod
    def of(keys: Sequence[int], labels: Sequence[int], choice: Choice, piece: int | None = None) -> Lookup:
        fields = choice(keys, labels)
        table = Table.of(keys, labels, fields)
        return Lookup(fields, table.pieces(piece or max(1, len(table.keys))), max(keys).bit_length())


@dataclass(frozen=True)
class ContextKeys:
    """weights · (phi, x, id) + bias is the key of a context; `keys` are their floors, context by context."""

    weights: Mapping[str, Number]
    bias: int
    keys: tuple[int, ...]


def multiset_index(dataset: Dataset) -> Index:
    """The points of each distinct multiset, in the order in which the contexts number them.  # (multisets, n)"""
    contexts = dataset.contexts
    first = np.unique(contexts.multiset, return_index=True)[1]
    return dataset.inputs.index[contexts.row[first]]


def code_tokens(dataset: Dataset, style: Style) -> TokenCode:
    """Lemma B.3 on the data's points."""
    separation = dataset.separation.delta_squared or ONE
    return separate_multisets(dataset.inputs.points, separation, multiset_index(dataset), style.constants, style.seed)


def context_keys(phi: Sequence[int], x: Line, sums: Index, dataset: Dataset, style: Style) -> ContextKeys:
    """A line for the contexts (phi, x, id): Lemma C.2 in three dimensions, or what the data needs.

    MEASURED: the ids alone if they tell the contexts apart, else the shortest of many combinations of x and id.
    """
    contexts = dataset.contexts
    at = contexts.point.tolist()
    ids = sums[contexts.multiset].tolist()
    columns = {
        "phi": [phi[p] * x.denominator for p in at],
        "x": [x.numerators[p] for p in at],
        "id": [s * x.denominator for s in ids],
    }
    names = list(columns) if style.as_in_the_paper else ["id"] if len(set(ids)) == len(ids) else ["x", "id"]
    points = Values.of(list(zip(*(columns[name] for name in names), strict=True)), x.denominator)
    line = project(points, ONE, style.constants, style.seed)
    return ContextKeys(dict(zip(names, line.weight, strict=True)), line.bias, line.floors)


def set_keys(sums: Index, style: Style) -> ContextKeys:
    """The same for deep sets: the sum of phi is all there is."""
    line = project(Values.of([[s] for s in sums.tolist()]), ONE, style.constants, style.seed)
    return ContextKeys({"phi": line.weight[0]}, line.bias, line.floors)


def class_labels(dataset: Dataset) -> tuple[int, ...]:
    """Labels 1, 2, … of the contexts: 0 means none."""
    return tuple(int(label) + 1 for label in dataset.contexts.label)
