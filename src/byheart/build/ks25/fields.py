"""How the words of a memory are divided: by the paper's formula, or so that the network has the fewest parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byheart.build.ks25.memorizer.group_lookup import lookup_plan
from byheart.build.ks25.memorizer.key_groups import Fields, Group
from byheart.build.ks25.memorizer.residual_memorizer import (
    SHORTEST,
    TRAJECTORIES,
    blocks,
    cleared,
    lookup_blocks,
    scan_blocks,
    start_shift,
)
from byheart.build.ks25.memorizer.scan import scan_plan
from byheart.build.ks25.options import Form, Style
from byheart.build.shared.wires import Block, assemble, wires
from byheart.errors import BuildError
from byheart.ir.layers import Affine, Residual
from byheart.theory.promises.ks25 import Part
from byheart.theory.upper import explicit_memory, groups


def paper_fields(keys: Sequence[int], entries: int, key_bits: int, label_bits: int) -> Fields:
    """K = ⌈N / ⌈√(N log2 N)⌉⌉ entries of the theorem's R and C, whatever the data would need."""
    if max(keys, default=0) >= 1 << key_bits:
        raise BuildError(f"a key of {max(keys).bit_length()} bits, where the theorem has {key_bits}; try another seed")
    return Fields(groups(entries)[1], key_bits, label_bits)


@dataclass(frozen=True)
class Room:
    """What was promised for a memory: its part, the width of its layers, and the entries that one scan serves."""

    part: Part
    width: int
    piece: int | None = None

    def holds(self, form: str, fields: Fields, count: int) -> bool:
        """Whether words divided like this keep depth, parameters and bits of the promise."""
        projection = 2 if self.piece is None else 0
        most = self.part.promise(form, self.width, projection, self.piece)
        K, rho, c = fields.entries, fields.key_bits, fields.label_bits
        found = explicit_memory(-(-count // K), K, rho, c, form=form, width=self.width, projection=projection)
        return found.depth <= most.depth and found.parameters <= most.parameters and found.max_bits <= most.max_bits


def measured_fields(
    style: Style, keys: Sequence[int], labels: Sequence[int], hidden: int, room: Room, most: int | None = None
) -> Fields:
    """Bits for the largest labelled key and label, and the number of entries (at most `most`) that costs least.

    Only numbers of entries with which the promise is kept are considered; `room.piece` is how many keys one scan
    serves, all of them by default.
    """
    used = [(key, label) for key, label in zip(keys, labels, strict=True) if label]
    key_bits = max((key.bit_length() for key, _ in used), default=2)
    label_bits = max((label.bit_length() for _, label in used), default=1)
    if style.form is Form.RESIDUAL and max(key_bits, label_bits) < SHORTEST:
        key_bits = SHORTEST
    count = max(1, min(len(used), room.piece or len(used)))
    cheap_first = entries_by_cost(style.form, key_bits, label_bits, hidden, count)
    for entries in cheap_first:
        fields = Fields(min(entries, most or entries), key_bits, label_bits)
        if room.holds(style.form, fields, count):
            return fields
    raise BuildError(
        f"{count} keys of {key_bits} bits and labels of {label_bits} bits do not fit the promised {room.part}; "
        "try another seed, or constants=paper"
    )


def entries_by_cost(form: Form, key_bits: int, label_bits: int, hidden: int, count: int) -> list[int]:
    """All K worth considering, smallest m·(cost of a group) + K·(cost of an entry) first, m = ⌈count / K⌉.

    >>> entries_by_cost(Form.RESIDUAL, 30, 4, 14, 2000)[0]
    5
    """
    one, two, three = (_cost(form, Fields(entries, key_bits, label_bits), 2, hidden) for entries in (1, 2, 3))
    group = _cost(form, Fields(1, key_bits, label_bits), 3, hidden) - one
    costs = {1: one + (count - 2) * group}
    for entries in range(2, min(count, 4 + int(4 * count**0.5)) + 1):
        costs[entries] = two + (entries - 2) * (three - two) + (-(-count // entries) - 2) * group
    return sorted(costs, key=costs.__getitem__)


def _cost(form: Form, fields: Fields, group_count: int, hidden: int) -> int:
    """Dense parameters of one memory with that many groups."""
    made = [Group(2, 3, 1, 1)] * group_count
    layers: tuple[Affine | Residual, ...]
    if form is Form.RESIDUAL:
        start = Block(cleared(*TRAJECTORIES), start_shift(fields))
        layers = blocks([start, *lookup_blocks(made, fields), *scan_blocks(fields, hidden)])
    else:
        plan, state = lookup_plan(made, wires(("x",)))
        layers = assemble(("x",), [*plan, *scan_plan(fields, state)[0]])
    return sum(layer.parameters for layer in layers)
