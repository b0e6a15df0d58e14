"""How the words of a memory are divided: by the paper's formula, or so that the network has the fewest parameters."""

from __future__ import annotations

from collections.abc import Sequence

from byheart.build.ks25.memorizer.group_lookup import lookup_plan
from byheart.build.ks25.memorizer.key_groups import Fields, Group
from byheart.build.ks25.memorizer.residual_lookup import lookup_blocks, start_shift
from byheart.build.ks25.memorizer.residual_scan import SHORTEST, scan_blocks
from byheart.build.ks25.memorizer.residual_stream import TRAJECTORIES, blocks, cleared
from byheart.build.ks25.memorizer.scan import scan_plan
from byheart.build.ks25.options import Form, Style
from byheart.build.shared.wires import Block, assemble, wires
from byheart.errors import BuildError
from byheart.ir.layers import Affine, Residual
from byheart.theory.upper import groups


def paper_fields(keys: Sequence[int], entries: int, key_bits: int, label_bits: int) -> Fields:
    """K = ⌈N / ⌈√(N log2 N)⌉⌉ entries of the theorem's R and C, whatever the data would need."""
    if max(keys, default=0) >= 1 << key_bits:
        raise BuildError(f"a key of {max(keys).bit_length()} bits, where the theorem has {key_bits}; try another seed")
    return Fields(groups(entries)[1], key_bits, label_bits)


def measured_fields(
    style: Style,
    keys: Sequence[int],
    labels: Sequence[int],
    hidden: int,
    most: int | None = None,
    piece: int | None = None,
) -> Fields:
    """Bits for the largest labelled key and label, and the number of entries (at most `most`) that costs least.

    `piece` is the number of keys that one scan serves, all of them by default.
    """
    used = [(key, label) for key, label in zip(keys, labels, strict=True) if label]
    key_bits = max((key.bit_length() for key, _ in used), default=2)
    label_bits = max((label.bit_length() for _, label in used), default=1)
    if style.form is Form.RESIDUAL and max(key_bits, label_bits) < SHORTEST:
        key_bits = SHORTEST
    count = min(len(used), piece or len(used))
    entries = cheapest_entries(style.form, key_bits, label_bits, hidden, max(1, count))
    return Fields(min(entries, most or entries), key_bits, label_bits)


def cheapest_entries(form: Form, key_bits: int, label_bits: int, hidden: int, count: int) -> int:
    """K with the smallest m·(cost of a group) + K·(cost of an entry), m = ⌈count / K⌉.

    >>> cheapest_entries(Form.RESIDUAL, 30, 4, 14, 2000)
    5
    """
    one, two, three = (_cost(form, Fields(entries, key_bits, label_bits), 2, hidden) for entries in (1, 2, 3))
    group = _cost(form, Fields(1, key_bits, label_bits), 3, hidden) - one
    costs = {1: one + (count - 2) * group}
    for entries in range(2, min(count, 4 + int(4 * count**0.5)) + 1):
        costs[entries] = two + (entries - 2) * (three - two) + (-(-count // entries) - 2) * group
    return min(costs, key=costs.__getitem__)


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
