"""The scan with skip connections: one block per bit, comparing and gating while the next entry is read.

A block folds the four trajectories (z + relu(z) - relu(4z - 2) is the triangle function) and emits the bit that the
block before made visible. When an entry is read, its distance to x is taken and its label put aside; one block later
the label goes through the gate. `lead` says in which block of the following entry that happens: 2 in the dense schedule
(one block per bit, 14 hidden units), 1 in the relaxed one (one more block per entry, 12 hidden units).
"""

from __future__ import annotations

from collections.abc import Iterator

from byheart.build.ks25.memorizer.key_groups import Fields
from byheart.build.ks25.memorizer.residual_stream import (
    KEY,
    LABEL,
    MISS,
    PENDING,
    STREAM,
    U1,
    U2,
    W1,
    W2,
    X,
    Y,
    blocks,
    cleared,
)
from byheart.build.shared.promise import Gadget, Promise
from byheart.build.shared.wires import Block, Effect, wire
from byheart.errors import BuildError
from byheart.exact import Number
from byheart.paper import Ref, implements

SHORTEST = 3  # bits per entry that comparing and gating need
DENSE, RELAXED = 14, 12


def scan_blocks(fields: Fields, hidden: int = DENSE) -> list[Block]:
    """All blocks of the scan; afterwards key, label, miss and pending are zero again."""
    if fields.steps < SHORTEST or hidden not in (DENSE, RELAXED):
        raise BuildError(f"the scan needs fields of {SHORTEST} bits and 12 or 14 hidden units, not {fields}, {hidden}")
    relaxed = hidden == RELAXED
    period = fields.steps + relaxed
    steps = []
    for entry in range(fields.entries + 1):
        for t in range(1, (period if entry < fields.entries else SHORTEST) + 1):
            effects = list(_reading(fields, entry, t, relaxed))
            if entry > 0:
                effects += _deciding(fields, t, relaxed)
            steps.append(Block(tuple(effects)))
    return steps


def _reading(fields: Fields, entry: int, t: int, relaxed: bool) -> Iterator[Effect]:
    """Fold the trajectories for bit t of the entry, and emit the bit before."""
    for first, second, target, bits in ((U1, U2, KEY, fields.key_bits), (W1, W2, LABEL, fields.label_bits)):
        length = fields.entries * bits
        read, left = entry * bits + t - 1, bits - t + 1  # bits read so far, and where this one belongs
        if t == 1:  # the last bit of the entry before, unless a shorter field or a spare block had it emitted
            seen = entry > 0 and bits == fields.steps and not relaxed
            left = 0
        else:
            seen = entry < fields.entries and t - 1 <= bits
        if seen:
            scale: Number = 1 << length + 2 - read
            yield Effect(scale * (wire(second) - wire(first)), {target: 1 << left})
        if entry < fields.entries and t <= bits:
            for z in (first, second):
                yield Effect(wire(z), {z: 1})
                yield Effect(4 * wire(z) - 2, {z: -1})


def _deciding(fields: Fields, t: int, relaxed: bool) -> tuple[Effect, ...]:
    """For the entry before: compare its key, then let its label through the gate, then tidy up."""
    compare = 1 if relaxed else 2
    x, key = wire(X), wire(KEY)
    gate = (Effect(wire(PENDING) - (1 << fields.label_bits + 1) * wire(MISS), {Y: 1}),)
    if t == compare:
        put_aside = Effect(wire(LABEL), {LABEL: -1, PENDING: 1})
        return Effect(key - x, {MISS: 1}), Effect(x - key - 1, {MISS: 1}), *cleared(KEY), put_aside
    if t == compare + 1:
        return gate if relaxed else (*gate, *cleared(PENDING, MISS))
    return cleared(PENDING, MISS) if relaxed and t == compare + 2 else ()


def scan_depth(fields: Fields, hidden: int = DENSE) -> int:
    """Blocks of the scan: K·max(rho, c) + 3, and K more in the relaxed schedule."""
    return fields.entries * (fields.steps + (hidden == RELAXED)) + SHORTEST


@implements(
    Ref("KS25", "Lemma G.6"),
    statement="With skip connections: K·max(rho, c) + 3 blocks of at most 14 hidden units on a stream of 10.",
    test="tests/build/ks25/memorizer/test_residual_memorizer.py",
)
def residual_scan(fields: Fields, hidden: int = DENSE) -> Gadget:
    """Adds to y the label of the entry whose key is ⌊x⌋, from trajectories that stand at the group's words.

    Notation: K = fields.entries, rho = fields.key_bits, c = fields.label_bits; max(rho, c) must be at least 3.
    Cost: stream 10, `hidden` units, K·max(rho, c) + 3 blocks (K more for hidden = 12), K·max(rho, c) + 2 bits.

    >>> residual_scan(Fields(entries=2, key_bits=4, label_bits=2)).promise
    Promise(width=14, depth=11, bits=10)
    """
    promise = Promise(width=hidden, depth=scan_depth(fields, hidden), bits=fields.entries * fields.steps + 2)
    return Gadget(blocks(scan_blocks(fields, hidden)), STREAM, STREAM, promise)
