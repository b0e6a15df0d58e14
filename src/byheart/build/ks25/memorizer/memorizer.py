"""A feed-forward network that knows labels by heart and is zero on other known points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byheart.build.ks25.memorizer.group_lookup import lookup_plan
from byheart.build.ks25.memorizer.key_groups import Fields, Group, pack
from byheart.build.ks25.memorizer.scan import scan_plan
from byheart.build.shared.wires import ZERO, Units
from byheart.errors import BuildError
from byheart.paper import Ref, implements


@dataclass(frozen=True)
class Table:
    """What is to be known: keys (floors of points on the line, at least 2, ascending, 2 apart) and labels >= 1."""

    keys: tuple[int, ...]
    labels: tuple[int, ...]
    fields: Fields

    @staticmethod
    def of(keys: Sequence[int], labels: Sequence[int], fields: Fields) -> Table:
        """The labelled keys in ascending order; label 0 means none.

        >>> Table.of([8, 2, 5], [2, 1, 0], Fields(entries=1, key_bits=4, label_bits=2)).keys
        (2, 8)
        """
        pairs = sorted((key, label) for key, label in zip(keys, labels, strict=True) if label)
        return Table(tuple(key for key, _ in pairs), tuple(label for _, label in pairs), fields)

    @property
    def groups(self) -> tuple[Group, ...]:
        return pack(self.keys, self.labels, self.fields)

    @property
    def group_count(self) -> int:
        return -(-len(self.keys) // self.fields.entries)

    def pieces(self, size: int) -> tuple[Table, ...]:
        """The same table in pieces of at most `size` keys."""
        if size < 1:
            raise BuildError(f"a piece needs at least one key, not {size}")
        starts = range(0, len(self.keys), size)
        return tuple(Table(self.keys[s : s + size], self.labels[s : s + size], self.fields) for s in starts)


@implements(
    Ref("KS25", "Lemma C.1"),
    statement="N labelled points and any further points: a network of width 12 and depth O(sqrt(N log N) + "
    "sqrt(N / log N)·log max(R, C)) gives the N labels, and 0 on the further points.",
    test="tests/build/ks25/memorizer/test_memorizer.py",
)
def memorizer_plan(pieces: Sequence[Table], state: Units) -> tuple[list[Units], Units]:
    """x -> label of the key ⌊x⌋, or 0 for any x >= 2 at a distance of at least 2 from all keys: stages II and III.

    Pieces work one after the other on a shared x and a shared sum y. Stage I is the projection to the line. Notation:
    m = piece.group_count, K = fields.entries, rho = fields.key_bits, c = fields.label_bits (the paper's text swaps rho
    and c). What the lemma promises is `byheart.theory.upper.explicit_memory`.
    """
    plan: list[Units] = []
    for piece in pieces:
        layers, state = lookup_plan(piece.groups, state)
        plan += layers
        layers, state = scan_plan(piece.fields, state)
        plan += layers
    return plan, {"y": ZERO, **state}
