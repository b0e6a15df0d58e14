"""A feed-forward network that knows labels by heart and is zero on other known points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byheart.build.ks25.memorizer.group_lookup import lookup_plan
from byheart.build.ks25.memorizer.key_groups import Fields, Group, pack
from byheart.build.ks25.memorizer.scan import scan_plan
from byheart.build.shared.promise import Gadget, Promise
from byheart.build.shared.wires import ZERO, Units, assemble, wires
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


def memorizer_plan(pieces: Sequence[Table], state: Units) -> tuple[list[Units], Units]:
    """Stages II and III for each piece in turn, on a shared x and a shared sum y."""
    plan: list[Units] = []
    for piece in pieces:
        layers, state = lookup_plan(piece.groups, state)
        plan += layers
        layers, state = scan_plan(piece.fields, state)
        plan += layers
    return plan, {"y": ZERO, **state}


def depth_promised(groups: int, fields: Fields) -> int:
    """Depth of stages II and III by eq. (110): (3m + 2) + (3K·max(rho, c) + 2K + 2)."""
    return 3 * groups + 2 + 3 * fields.entries * fields.steps + 2 * fields.entries + 2


def bits_promised(fields: Fields) -> int:
    """Bit complexity of stages II and III by eq. (111): K·max(rho, c) + max(rho, 2)."""
    return fields.entries * fields.steps + max(2, fields.key_bits)


@implements(
    Ref("KS25", "Lemma C.1"),
    statement="N labelled points and any further points: a network of width 12 and depth O(sqrt(N log N) + "
    "sqrt(N / log N)·log max(R, C)) gives the N labels, and 0 on the further points.",
    test="tests/build/ks25/memorizer/test_memorizer.py",
)
def memorizer(table: Table) -> Gadget:
    """x -> label of the key ⌊x⌋, or 0 for any x >= 2 that is at least 2 away from all keys (stages II and III).

    Stage I, the projection to the line, is its own gadget. Notation: m = table.group_count, K = fields.entries,
    rho = fields.key_bits, c = fields.label_bits (the paper's text swaps rho and c). Cost: width 12,
    depth (3m + 2) + (3K·max(rho, c) + 2K + 2), K·max(rho, c) + rho bits.

    >>> memorizer(Table((2, 5, 8), (1, 3, 2), Fields(entries=2, key_bits=4, label_bits=2))).promise
    Promise(width=12, depth=38, bits=12)
    """
    plan, state = memorizer_plan([table], wires(("x",)))
    plan.append({"y": state["y"]})
    promise = Promise(12, depth_promised(table.group_count, table.fields), bits_promised(table.fields))
    return Gadget(assemble(("x",), plan), ("x",), ("y",), promise)
