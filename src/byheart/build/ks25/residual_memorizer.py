"""The memorizer, whole or in pieces, as blocks with skip connections on a stream of ten numbers.

The group lookup needs one block of two units per group. The scan needs one block per bit, comparing and gating while
the next entry is read: a block folds the four trajectories (z + relu(z) - relu(4z - 2) is the triangle function) and
emits the bit that the previous block exposed. When an entry is read, its distance to x is computed and its label put
aside; one block later the label goes through the gate: in the second block of the following entry in the dense schedule
(one block per bit, 14 hidden units), in the first in the relaxed one (one more block per entry, 12 hidden units).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from byheart.build.ks25.memorizer import Fields, Group, KeyTable
from byheart.build.shared.wires import Effect, Form, WireBlock, residual, wire
from byheart.errors import BuildError
from byheart.exact import Number, dyadic
from byheart.ir.layers import Residual
from byheart.paper import Ref, implements
from byheart.theory.upper import DENSE, RELAXED

X, U1, U2, W1, W2, KEY, LABEL, MISS, Y, PENDING = STREAM = (
    "x",  # the token's position on the line
    "u1",  # the two trajectories of the key word
    "u2",
    "w1",  # and those of the label word
    "w2",
    "key",  # the bits read of the current entry's key
    "label",  # and of its label
    "miss",  # how far x is from the entry's key
    "y",  # the sum of labels that went through
    "pending",  # the label that waits for the gate
)
TRAJECTORIES = (U1, U2, W1, W2)


def cleared(*names: str) -> tuple[Effect, ...]:
    """Units that set non-negative wires to zero: z - relu(z)."""
    return tuple(Effect(wire(name), {name: -1}) for name in names)


def blocks(steps: Sequence[WireBlock], lanes: int = 1) -> tuple[Residual, ...]:
    return tuple(residual(lane_stream(lanes), step) for step in steps)


def lane_stream(lanes: int) -> tuple[str, ...]:
    """The stream of so many memories beside each other: x and y are shared, the other eight numbers are not."""
    own = tuple(name for name in STREAM if name not in (X, Y))
    return (*STREAM, *(name + _suffix(lane) for lane in range(1, lanes) for name in own))


def _suffix(lane: int) -> str:
    return f"#{lane}" if lane else ""


def _in_lane(block: WireBlock, lane: int) -> WireBlock:
    """The block on the numbers of that lane; the first lane has the plain names."""

    def new(name: str) -> str:
        return name if name in (X, Y) else name + _suffix(lane)

    effects = (
        Effect(
            Form({new(name): w for name, w in e.form.terms.items()}, e.form.constant),
            {new(name): w for name, w in e.adds.items()},
        )
        for e in block.effects
    )
    return WireBlock(tuple(effects), {new(name): value for name, value in block.shift.items()})


def start_shift(fields: Fields) -> dict[str, Number]:
    """Where the trajectories of a zero word begin: half and a quarter of a cell above zero."""
    t, s = fields.key_word, fields.label_word
    return {U1: dyadic(1, -t - 1), U2: dyadic(1, -t - 2), W1: dyadic(1, -s - 1), W2: dyadic(1, -s - 2)}


@implements(
    Ref("KS25", "Lemma G.3"),
    statement="With skip connections: one block of two hidden units per group fetches its words.",
    test="tests/build/ks25/test_residual_memorizer.py",
)
def lookup_blocks(groups: Sequence[Group], fields: Fields) -> list[WireBlock]:
    """Each block adds the difference to the previous group's words once x has reached the group's first key."""
    steps = []
    key_word = label_word = 0
    for group in groups:
        key_step = dyadic(group.key_word - key_word, -fields.key_word)
        label_step = dyadic(group.label_word - label_word, -fields.label_word)
        adds: Mapping[str, Number] = {U1: key_step, U2: key_step, W1: label_step, W2: label_step}
        reached = 2 * wire(X) - 2 * group.first  # relu(reached + 1) - relu(reached) steps from 0 to 1 before the key
        takes = {name: -weight for name, weight in adds.items()}
        steps.append(WireBlock((Effect(reached + 1, adds), Effect(reached, takes))))
        key_word, label_word = group.key_word, group.label_word
    return steps


SHORTEST = 3  # bits per entry that comparing and gating need


@implements(
    Ref("KS25", "Lemma G.6"),
    statement="With skip connections: K·max(rho, c) + 3 blocks of at most 14 hidden units on a stream of 10.",
    test="tests/build/ks25/test_residual_memorizer.py",
)
def scan_blocks(fields: Fields, hidden: int = DENSE) -> list[WireBlock]:
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
            steps.append(WireBlock(tuple(effects)))
    return steps


def _reading(fields: Fields, entry: int, t: int, relaxed: bool) -> Iterator[Effect]:
    """Fold the trajectories for bit t of the entry, and emit the bit before."""
    for first, second, target, bits in ((U1, U2, KEY, fields.key_bits), (W1, W2, LABEL, fields.label_bits)):
        length = fields.entries * bits
        read, left = entry * bits + t - 1, bits - t + 1  # bits read so far, and the position of this one
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


@implements(
    Ref("KS25", "Lemma C.1"),
    statement="With skip connections: 1 + m + K·max(rho, c) + 3 blocks of width 14.",
    test="tests/build/ks25/test_residual_memorizer.py",
)
@implements(
    Ref("KS25", "Lemma F.1"),
    statement="With skip connections: pieces in a row share x and y, and the trajectories are cleared between them.",
    test="tests/build/ks25/test_residual_memorizer.py",
)
def memorizer_blocks(
    pieces: Sequence[KeyTable],
    hidden: int = DENSE,
    effects: tuple[Effect, ...] = (),
    shift: Mapping[str, Number] | None = None,
) -> list[WireBlock]:
    """Start, look up and scan for each piece in turn; `effects` and `shift` join the very first block."""
    steps: list[WireBlock] = []
    for piece in pieces:
        if steps:
            steps.append(WireBlock(cleared(*TRAJECTORIES), start_shift(piece.fields)))
        else:
            steps.append(WireBlock(effects, {**start_shift(piece.fields), **(shift or {})}))
        steps += lookup_blocks(piece.groups, piece.fields)
        steps += scan_blocks(piece.fields, hidden)
    return steps or [WireBlock(effects, dict(shift or {}))]


@implements(
    Ref("V22", "bounded depth"),
    statement="With skip connections: memories beside each other on a shared x and y, each with eight numbers of its "
    "own; the label is their sum, because each is zero where x is not one of its keys.",
    test="tests/build/ks25/test_depth.py",
)
def memorizer_lanes(
    pieces: Sequence[KeyTable],
    effects: tuple[Effect, ...] = (),
    shift: Mapping[str, Number] | None = None,
    used: int = 0,
) -> list[WireBlock]:
    """All pieces at once. The first block also clears the trajectories of the `used` lanes of the previous memory."""
    most = max((piece.group_count for piece in pieces), default=0)
    merged: list[WireBlock] = []
    for lane, piece in enumerate(pieces):
        waiting = [WireBlock()] * (most - piece.group_count)
        start = WireBlock((), start_shift(piece.fields))
        steps = [start, *lookup_blocks(piece.groups, piece.fields), *waiting, *scan_blocks(piece.fields)]
        steps = [_in_lane(step, lane) for step in steps]
        merged = [_together(a, b) for a, b in zip(merged, steps, strict=True)] if merged else steps
    old = tuple(e for lane in range(used) for e in _in_lane(WireBlock(cleared(*TRAJECTORIES)), lane).effects)
    first = WireBlock((*effects, *old), dict(shift or {}))
    return [_together(first, merged[0]), *merged[1:]] if merged else [first]


def _together(a: WireBlock, b: WireBlock) -> WireBlock:
    """Both blocks as one; no number is shifted by both."""
    return WireBlock((*a.effects, *b.effects), {**a.shift, **b.shift})
