"""The two memories of KS25's networks: labels for a few tokens, and labels for the contexts that averaging makes.

The words of a memory are divided by the paper's formula, or so that the network has the fewest parameters: the user
chooses (`BuildStyle`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np

from byheart.build._base import Option
from byheart.build.ks25.memorizer import Fields, Group, KeyTable, lookup_plan, scan_plan
from byheart.build.ks25.residual_memorizer import (
    SHORTEST,
    TRAJECTORIES,
    blocks,
    cleared,
    lookup_blocks,
    scan_blocks,
    start_shift,
)
from byheart.build.ks25.sequence_ids import Index, TokenCode, separate_multisets
from byheart.build.shared.projection import Constants, KeyLine, project
from byheart.build.shared.wires import WireBlock, assemble, wires
from byheart.data.dataset.dataset import Dataset
from byheart.errors import BuildError
from byheart.exact import Number
from byheart.exact.number import Values
from byheart.ir.layers import Affine, Kind, Residual
from byheart.theory.guarantees.ks25 import Part
from byheart.theory.upper import Lanes, explicit_memory, groups


class LayerForm(StrEnum):
    """How the feed-forward parts are written."""

    PLAIN = "plain"  # layers of arbitrary depth, as in the proofs
    RESIDUAL = "residual"  # the blocks of eq. (3), with skip connections


@dataclass(frozen=True)
class BuildStyle:
    """The user's choices."""

    form: LayerForm
    constants: Constants
    seed: int
    lanes: int = 1  # memories beside each other, where the depth is bounded

    @staticmethod
    def of(form: str, constants: str, seed: int) -> BuildStyle:
        return BuildStyle(LayerForm(form), Constants(constants), seed)

    @property
    def plain(self) -> bool:
        return self.form is LayerForm.PLAIN

    @property
    def as_in_the_paper(self) -> bool:
        return self.constants is Constants.PAPER


FORM = Option(
    "form",
    str,
    LayerForm.RESIDUAL.value,
    "plain: feed-forward layers of any depth, as in the proof; residual: blocks with skip connections (eq. 3)",
    tuple(form.value for form in LayerForm),
)
CONSTANTS = Option(
    "constants",
    str,
    Constants.MEASURED.value,
    "paper: ranges and group sizes as the theorem states them; measured: as the data requires, fewest parameters",
    tuple(constants.value for constants in Constants),
)
ATTENTION = Option(
    "attention",
    str,
    Kind.UNIFORM.value,
    "the averaging layer as uniform attention (eq. 39), or as softmax (eq. 2) or hardmax (eq. 12) with zero keys",
    tuple(kind.value for kind in Kind),
)
DEPTH = Option(
    "depth",
    int,
    None,
    "no deeper than this: memories beside each other, Õ(N/L) weights; with constants=measured, and in ks25 with "
    "shape=fitted and an input map",
    optional=True,
)
SHARED = (FORM, CONSTANTS)


def paper_fields(keys: Sequence[int], entries: int, key_bits: int, label_bits: int) -> Fields:
    """K = ⌈N / ⌈√(N log2 N)⌉⌉ entries of the theorem's R and C, whatever the data would need."""
    if max(keys, default=0) >= 1 << key_bits:
        raise BuildError(f"a key of {max(keys).bit_length()} bits, where the theorem has {key_bits}; try another seed")
    return Fields(groups(entries)[1], key_bits, label_bits)


@dataclass(frozen=True)
class PartLimit:
    """The guarantee of a memory: its part, the width of its layers, and the entries that one scan serves."""

    part: Part
    width: int
    piece: int | None = None

    def holds(self, form: str, fields: Fields, count: int) -> bool:
        """Whether words divided like this keep depth, parameters and bits of the guarantee."""
        projection = 2 if self.piece is None else 0
        most = self.part.guarantee(form, self.width, projection, self.piece)
        K, rho, c = fields.entries, fields.key_bits, fields.label_bits
        found = explicit_memory(-(-count // K), K, rho, c, form=form, width=self.width, projection=projection)
        return found.depth <= most.depth and found.parameters <= most.parameters and found.max_bits <= most.max_bits


def measured_fields(
    style: BuildStyle,
    keys: Sequence[int],
    labels: Sequence[int],
    hidden: int,
    limit: PartLimit,
    most: int | None = None,
) -> Fields:
    """Bits for the largest labelled key and label, and the number of entries (at most `most`) that costs least.

    Only numbers of entries with which the guarantee is kept are considered; `limit.piece` is how many keys one scan
    serves, all of them by default.
    """
    stored, key_bits, label_bits = needed(style, keys, labels)
    count = min(stored, limit.piece or stored)
    cheap_first = entries_by_cost(style.form, key_bits, label_bits, hidden, count)
    for entries in cheap_first:
        fields = Fields(min(entries, most or entries), key_bits, label_bits)
        if limit.holds(style.form, fields, count):
            return fields
    raise BuildError(
        f"{count} keys of {key_bits} bits and labels of {label_bits} bits do not fit the guaranteed {limit.part}; "
        "try another seed, or constants=paper"
    )


def needed(style: BuildStyle, keys: Sequence[int], labels: Sequence[int]) -> tuple[int, int, int]:
    """How many keys have labels, and the bits of the largest of these keys and labels."""
    used = [(key, label) for key, label in zip(keys, labels, strict=True) if label]
    key_bits = max((key.bit_length() for key, _ in used), default=2)
    label_bits = max((label.bit_length() for _, label in used), default=1)
    if style.form is LayerForm.RESIDUAL and max(key_bits, label_bits) < SHORTEST:
        key_bits = SHORTEST
    return max(1, len(used)), key_bits, label_bits


def entries_by_cost(form: LayerForm, key_bits: int, label_bits: int, hidden: int, count: int) -> list[int]:
    """All K worth considering, smallest m·(cost of a group) + K·(cost of an entry) first, m = ⌈count / K⌉.

    >>> entries_by_cost(LayerForm.RESIDUAL, 30, 4, 14, 2000)[0]
    5
    """
    one, two, three = (_cost(form, Fields(entries, key_bits, label_bits), 2, hidden) for entries in (1, 2, 3))
    group = _cost(form, Fields(1, key_bits, label_bits), 3, hidden) - one
    costs = {1: one + (count - 2) * group}
    for entries in range(2, min(count, 4 + int(4 * count**0.5)) + 1):
        costs[entries] = two + (entries - 2) * (three - two) + (-(-count // entries) - 2) * group
    return sorted(costs, key=costs.__getitem__)


def _cost(form: LayerForm, fields: Fields, group_count: int, hidden: int) -> int:
    """Dense parameters of one memory with that many groups."""
    made = [Group(2, 3, 1, 1)] * group_count
    layers: tuple[Affine | Residual, ...]
    if form is LayerForm.RESIDUAL:
        start = WireBlock(cleared(*TRAJECTORIES), start_shift(fields))
        layers = blocks([start, *lookup_blocks(made, fields), *scan_blocks(fields, hidden)])
    else:
        plan, state = lookup_plan(made, wires(("x",)))
        layers = assemble(("x",), [*plan, *scan_plan(fields, state)[0]])
    return sum(layer.parameters for layer in layers)


ONE = Fraction(1)
Choice = Callable[[Sequence[int], Sequence[int]], Fields]  # (keys, labels) -> how to divide the words


@dataclass(frozen=True)
class KeyLookup:
    """One memory: its table, and the pieces in which it is built (one piece unless bits are limited)."""

    fields: Fields
    pieces: tuple[KeyTable, ...]
    range_bits: int  # of the largest key of any point, stored or not

    @staticmethod
    def in_lanes(style: BuildStyle, keys: Sequence[int], labels: Sequence[int], lanes: Lanes) -> KeyLookup:
        """Split into lanes: memories that work side by side."""
        _, key_bits, label_bits = needed(style, keys, labels)
        return KeyLookup.of(keys, labels, lambda *_: Fields(lanes.entries, key_bits, label_bits), lanes.piece)

    @staticmethod
    def of(keys: Sequence[int], labels: Sequence[int], choice: Choice, piece: int | None = None) -> KeyLookup:
        fields = choice(keys, labels)
        table = KeyTable.of(keys, labels, fields)
        return KeyLookup(fields, table.pieces(piece or max(1, len(table.keys))), max(keys).bit_length())


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


def code_tokens(dataset: Dataset, style: BuildStyle) -> TokenCode:
    """Lemma B.3 on the data's points."""
    separation = dataset.separation.delta_squared or ONE
    return separate_multisets(dataset.inputs.points, separation, multiset_index(dataset), style.constants, style.seed)


def context_keys(phi: Sequence[int], x: KeyLine, sums: Index, dataset: Dataset, style: BuildStyle) -> ContextKeys:
    """A line for the contexts (phi, x, id): Lemma C.2 in three dimensions, or as the data requires.

    MEASURED: the ids alone if they distinguish the contexts, else the shortest of many combinations of x and id.
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


def set_keys(sums: Index, style: BuildStyle) -> ContextKeys:
    """The same for deep sets: the sum of phi is all there is."""
    line = project(Values.of([[s] for s in sums.tolist()]), ONE, style.constants, style.seed)
    return ContextKeys({"phi": line.weight[0]}, line.bias, line.floors)


def class_labels(dataset: Dataset) -> tuple[int, ...]:
    """Labels 1, 2, … of the contexts: 0 means none."""
    return tuple(int(label) + 1 for label in dataset.contexts.label)
