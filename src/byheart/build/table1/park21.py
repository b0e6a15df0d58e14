"""Park, Lee, Yun and Shin 2021: the first sub-linear memorization, O(N^(2/3)), on flattened rows.

Keys moved into a short table without collisions: groups of neighbours share a shift modulo the table's length.

Park et al. 2021 in our reconstruction. N sorted keys are split into groups of K; group j is shifted by s_j modulo M. A
shift is bad when it maps one of K keys to one of at most N occupied cells, so M > K·N always leaves a good one.
The table of M cells is split into rows; each row's labels are the bits of one long word.

form=plain has three units per layer, the theorem's width, because no more than two numbers are ever carried:

    v          the row's position on the line, then its cell in the table, then word·G + the position within the word;
               a step, v + a from some threshold on, needs v and two more units
    t, p       v twice; the word is subtracted from p bit by bit, and p is the position within the word
    t, p       t loses its bits from the top; at position p, p becomes the rest of t
    p, y       p begins with the label's bits, which are added to y

form=residual has the blocks of eq. (3) of KS25, wider and shallower, on a stream of six numbers:

    x      the row's position on the line; later the offset of its word, then the bit that is read
    z      its cell in the table
    u1, u2 the two trajectories of the word (see bit_extraction)
    miss   the distance of the bit's cell from z
    y      the label

x and z are multiples of 1/one, so relu(one·(z - t) + 1) - relu(one·(z - t)) is 1 from t on and 0 before, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from byheart.build._base import Construction, Option, register
from byheart.build.shared.projection import Constants, KeyLine
from byheart.build.shared.wires import (
    ZERO,
    Effect,
    Form,
    WireBlock,
    affine,
    assemble,
    carried,
    residual,
    wire,
    wires,
)
from byheart.build.table1.flattened import Stage, feed_forward_network, flat_rows, row_line
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import BuildError
from byheart.exact import Number, dyadic
from byheart.ir.layers import Affine
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.guarantees.table1 import PARK_FORMS, cheapest_cut, longest_table, table_length


@dataclass(frozen=True)
class ShiftedTable:
    """firsts[j], shifts[j]: keys from firsts[j] on are shifted by shifts[j] modulo `modulus`.

    words[a] stores the labels of cells a·places to (a + 1)·places - 1, the first cell in the highest bits.
    """

    modulus: int
    firsts: tuple[int, ...]
    shifts: tuple[int, ...]
    places: int
    label_bits: int
    words: tuple[int, ...]

    @property
    def word_bits(self) -> int:
        return self.places * self.label_bits

    def place(self, key: int) -> int:
        """Where a key is moved to."""
        group = max(j for j, first in enumerate(self.firsts) if first <= key)
        return (key + self.shifts[group]) % self.modulus

    def label(self, key: int) -> int:
        """The table's entry for a key."""
        row, column = divmod(self.place(key), self.places)
        return self.words[row] >> (self.places - 1 - column) * self.label_bits & ((1 << self.label_bits) - 1)


@implements(
    Ref("P21", "Theorem 1"),
    statement="N^(2/3) groups of N^(1/3) keys, each shifted without collision, fit a table of N^(4/3) cells, which is "
    "N^(2/3) words of N^(2/3) bits",
    test="tests/build/table1/test_park21.py",
)
def shift_groups(keys: Sequence[int], labels: Sequence[int], group: int, places: int, label_bits: int) -> ShiftedTable:
    """The table for keys in ascending order; `group` is K, `places` the number of labels in a word.

    >>> table = shift_groups([3, 9, 14, 40], [1, 0, 1, 1], group=2, places=4, label_bits=1)
    >>> [table.label(key) for key in (3, 9, 14, 40)]
    [1, 0, 1, 1]
    """
    if not keys or any(b <= a for a, b in pairwise(keys)) or keys[0] < 0:
        raise BuildError("a shifted table needs different keys >= 0 in ascending order")
    starts = range(0, len(keys), group)
    modulus = _modulus(keys, group)
    taken = np.zeros(modulus, dtype=bool)
    shifts, cells = [], {}
    for start in starts:
        residues = [key % modulus for key in keys[start : start + group]]
        bad = np.zeros(modulus, dtype=bool)
        for residue in residues:
            bad |= np.roll(taken, -residue)
        shift = int(np.argmin(bad))
        shifts.append(shift)
        for offset, residue in enumerate(residues):
            place = (residue + shift) % modulus
            taken[place] = True
            cells[place] = labels[start + offset]
    words = [0] * -(-modulus // places)
    for place, label in cells.items():
        row, column = divmod(place, places)
        words[row] |= label << (places - 1 - column) * label_bits
    return ShiftedTable(modulus, tuple(keys[s] for s in starts), tuple(shifts), places, label_bits, tuple(words))


def _modulus(keys: Sequence[int], group: int) -> int:
    """The smallest M > K·N that keeps the keys of every group apart; the guarantee allows a few more cells."""
    least = table_length(len(keys), group)
    for modulus in range(least, longest_table(len(keys), group) + 1):
        parts = ([key % modulus for key in keys[s : s + group]] for s in range(0, len(keys), group))
        if all(len(set(part)) == len(part) for part in parts):
            return modulus
    raise BuildError(f"no table of {least:,} cells or a few more keeps the keys of a group apart; try another seed")


def ascending(values: Sequence[int], modulus: int) -> list[int]:
    """The same residues, each larger than the one before, as small as that allows.

    >>> ascending([4, 1, 1, 3], 10)
    [4, 11, 21, 23]
    """
    found: list[int] = []
    for value in values:
        before = found[-1] if found else value - 1
        found.append(value + modulus * max(0, -(-(before + 1 - value) // modulus)))
    return found


class NarrowPlan:
    """Layers of at most three units, written down one after another; forms are over the units of the last layer.

    All thresholds are met on multiples of 1/one, so relu(one·a + 1) - relu(one·a) is 1 where a >= 0 and 0 elsewhere.
    """

    def __init__(self, one: int) -> None:
        self.one = one
        self.plan: list[dict[str, Form]] = []

    def then(self, **units: Form) -> None:
        """One more layer."""
        self.plan.append(carried(units))

    def stairs(self, v: Form, steps: Sequence[tuple[int, int]]) -> Form:
        """v + the amounts of all (threshold, amount) with v >= threshold, the highest threshold first.

        Amounts are such that a raised value never falls below a threshold that it had passed.
        """
        for threshold, amount in steps:
            at = self.one * (v - threshold)
            self.then(v=v, above=at + 1, below=at)
            self.then(v=wire("v") + amount * (wire("above") - wire("below")))
            v = wire("v")
        return v

    def remainder(self, v: Form, top: int, modulus: int) -> Form:
        """v modulo this, for v up to `top`: 2^k of it are taken off where v has them."""
        amounts = [modulus << k for k in reversed(range((top // modulus).bit_length()))]
        return self.stairs(v, [(amount, -amount) for amount in amounts])

    def bit(self, short: Form, **kept: Form) -> Form:
        """1 where `short` is at most 0, and 0 where it is at least 1; the kept numbers remain after it."""
        self.then(**kept, short=short)
        self.then(**wires(carried(kept)), bit=1 - wire("short"))
        return wire("bit")


def narrow_plan(line: KeyLine, table: ShiftedTable) -> tuple[list[dict[str, Form]], Form]:
    """Layers of three units from x, the row's position on the line without bias, to the label."""
    layers = NarrowPlan(line.denominator)
    layers.then(v=wire("x") + line.bias)
    shifts = ascending(table.shifts, table.modulus)
    steps = [(first, b - a) for first, (a, b) in zip(table.firsts[1:], pairwise(shifts), strict=True)]
    v = layers.stairs(wire("v"), steps[::-1]) + shifts[0]
    v = layers.remainder(v, line.top + shifts[-1], table.modulus)
    unit = 1 << (table.places - 1).bit_length()  # of the word, above the position within it
    words = ascending(table.words, 1 << table.word_bits)
    steps = [(r * table.places, unit * (b - a) - table.places) for r, (a, b) in enumerate(pairwise(words), start=1)]
    v = layers.stairs(v, steps[::-1]) + unit * words[0]
    v = layers.remainder(v, unit * (words[-1] + 1), unit << table.word_bits)
    return _read_places(layers, v, unit, table)


def _read_places(layers: NarrowPlan, v: Form, unit: int, table: ShiftedTable) -> tuple[list[dict[str, Form]], Form]:
    """Map v = unit·word + position to the label at that position of the word.

    p goes from (1, places + 1], where it is the position counted from the end, to [0, 1), where it is the
    bits read: the label's bits and, after them, the rest of the word.
    """
    one, c = layers.one, table.label_bits
    t = p = v
    for k in reversed(range(table.word_bits)):
        bit = layers.bit(one * ((unit << k) - p), t=t, p=p)
        t, p = wire("t"), wire("p") - (unit << k) * bit
    p = table.places + 1 - p
    for left in range(table.places, 0, -1):
        hit = layers.bit(one * (left - p) + 1, t=t, p=p)
        scale = dyadic(1, 1 - (unit << left * c).bit_length())  # t is below 1/scale
        layers.then(t=wire("t"), p=wire("p") - (table.places + 1) * hit, read=scale * wire("t") + hit - 1)
        t, p = wire("t"), wire("p") + wire("read")
        for k in reversed(range((left - 1) * c, left * c)):
            bit = layers.bit(one * ((unit << k) - t), t=t, p=p)
            t, p = wire("t") - (unit << k) * bit, wire("p")
    fine, y = one * (unit << table.word_bits), ZERO  # p is a multiple of 1/fine
    for k in reversed(range(c)):
        bit = layers.bit((fine >> c - k) - fine * p, p=p, y=y)
        p, y = wire("p") - dyadic(1, k - c) * bit, (ZERO if y.is_zero else wire("y")) + (1 << k) * bit
    return layers.plan, y


STREAM = ("x", "z", "u1", "u2", "miss", "y")


def step(at: Form, one: int, adds: Mapping[str, Number]) -> tuple[Effect, Effect]:
    """Two units that add `adds` once `at` is not negative."""
    takes = {name: -weight for name, weight in adds.items()}
    return Effect(one * at + 1, adds), Effect(one * at, takes)


def start_block(bias: int, word_bits: int, shift: int) -> WireBlock:
    """x in place, z = x + the first group's shift, the trajectories of the word 0."""
    starts: dict[str, Number] = {"u1": dyadic(1, -word_bits - 1), "u2": dyadic(1, -word_bits - 2)}
    return WireBlock((Effect(wire("x") + bias, {"z": 1}),), {"x": bias, "z": shift, **starts})


def shift_blocks(table: ShiftedTable, one: int) -> list[WireBlock]:
    """One block per further group: from its first key on, its own shift instead of the group's before."""
    found = []
    for first, before, shift in zip(table.firsts[1:], table.shifts, table.shifts[1:], strict=False):
        found.append(WireBlock(step(wire("x") - first, one, {"z": shift - before})))
    return found


def fold_blocks(top: int, modulus: int, one: int) -> list[WireBlock]:
    """z modulo M, one block per power of two: z -= 2^k·M where z is at least that."""
    found = []
    for k in reversed(range((top // modulus + 1).bit_length())):
        amount = modulus << k
        found.append(WireBlock(step(wire("z") - amount, one, {"z": -amount})))
    return found


def look_blocks(table: ShiftedTable, one: int) -> list[WireBlock]:
    """The word of z's row, and in x (cleared first) how many cells lie before that row."""
    scale = -table.word_bits
    first: Number = dyadic(table.words[0], scale)
    found = [WireBlock((Effect(wire("x"), {"x": -1}),), {"u1": first, "u2": first})]
    for row, (before, word) in enumerate(zip(table.words, table.words[1:], strict=False), start=1):
        change = dyadic(word - before, scale)
        adds: dict[str, Number] = {"u1": change, "u2": change, "x": table.places}
        found.append(WireBlock(step(wire("z") - row * table.places, one, adds)))
    return found


def scan_blocks(table: ShiftedTable, one: int) -> list[WireBlock]:
    """Read every bit of the word; a bit whose cell is z is added to y with its weight.

    Block l folds for bit l; block l + 1 emits the bit to x and its distance from z to miss; block l + 2 gates it.
    """
    bits, c = table.word_bits, table.label_bits
    x, z, miss = wire("x"), wire("z"), wire("miss")
    found = [WireBlock((Effect(x, {"x": -1, "z": -1}),))]
    for block in range(1, bits + 3):
        effects: list[Effect] = []
        if block <= bits:
            for u in ("u1", "u2"):
                effects += [Effect(wire(u), {u: 1}), Effect(4 * wire(u) - 2, {u: -1})]
        seen = block - 1  # the bit that became visible
        if 1 <= seen <= bits:
            place = (seen - 1) // c
            effects.append(Effect((1 << bits + 2 - seen) * (wire("u2") - wire("u1")), {"x": 1}))
            effects += [Effect(one * (place - z), {"miss": 1}), Effect(one * (z - place - 1) + 1, {"miss": 1})]
        read = block - 2
        if read >= 1:
            effects += [
                Effect(x - miss, {"y": 1 << c - 1 - (read - 1) % c}),
                Effect(x, {"x": -1}),
                Effect(miss, {"miss": -1}),
            ]
        found.append(WireBlock(tuple(effects)))
    return found


THEOREM = Ref("P21", "Theorem 1")
RESIDUAL, PLAIN = PARK_FORMS
FORM = Option(
    "form", str, PLAIN, "plain: layers of width 3, as the theorem has; residual: blocks, wider, shallower", PARK_FORMS
)


@register(
    "park21",
    summary="feed-forward on the flattened row: groups shifted into a table of N^(4/3) bits, O(N^(2/3)) parameters",
    order=30,
    formula="Park 2021",
    description="The first construction below N: neighbours share a shift that moves them into a table without "
    "collisions, and the table is a list of long words whose bits are read one by one. Grows like N^(2/3). "
    "Reconstructed from the theorem's order of growth.",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN,),
    options=(FORM,),
)
@implements(
    THEOREM,
    statement="N separated points are memorized by a feed-forward network of width 3 and O(N^(2/3) + log(r/δ)) "
    "parameters.",
    test="tests/build/table1/test_park21.py",
    partly="our reconstruction of the network from the theorem's width and order of growth",
)
def build_park21(dataset: Dataset, *, seed: int = 0, progress: Progress = SILENT, form: str = PLAIN) -> Construction:
    """Projection · a step per group adds its shift · modulo by halving · a step per word · bit extraction.

    Reconstructed from the theorem's order of growth: N^(2/3) groups, a table of length K·N + 1 > N^(4/3) that always
    has space, and words read bit by bit. The table's length is the theorem's, not the shortest that would do.
    """
    with progress.stage("numbering rows", total=2) as stage:
        rows = flat_rows(dataset)
        line = row_line(dataset, rows, Constants.MEASURED, seed)
        stage.advance()
        order = sorted(range(rows.count), key=line.numerators.__getitem__)
        label_bits = max(1, (dataset.C - 1).bit_length())
        cut = cheapest_cut(rows.count, label_bits, form)
        keys = [line.numerators[i] // line.denominator for i in order]
        table = shift_groups(keys, [rows.labels[i] for i in order], cut.group, cut.places, label_bits)
        stage.advance()
    make = narrow_stages if form == PLAIN else block_stages
    network = feed_forward_network([("row", (rows.layer,)), *make(line, table)], dataset.C)
    note = (
        f"{len(table.firsts)} groups of {cut.group} rows, a table of {table.modulus} cells in {len(table.words)} words"
    )
    return Construction(network, {"form": form}, (note,))


def narrow_stages(line: KeyLine, table: ShiftedTable) -> list[Stage]:
    """E_in, layers of three units, E_out."""
    plan, label = narrow_plan(line, table)
    return [
        ("E_in", (_entrance(line, ("x",)),)),
        ("table", assemble(("x",), plan)),
        ("E_out", (affine(tuple(plan[-1]), {"y": label}, relu=False, bias=False),)),
    ]


def block_stages(line: KeyLine, table: ShiftedTable) -> list[Stage]:
    """E_in, blocks on a stream of six numbers, E_out."""
    one = line.denominator  # x is a multiple of 1/one: steps this steep meet no key half-way
    steps = [
        ("start", [start_block(line.bias, table.word_bits, table.shifts[0])]),
        ("shift", shift_blocks(table, one)),
        ("modulo", fold_blocks(line.top, table.modulus, one)),
        ("word", look_blocks(table, one)),
        ("bits", scan_blocks(table, one)),
    ]
    return [
        ("E_in", (_entrance(line, STREAM),)),
        *((name, tuple(residual(STREAM, block) for block in blocks)) for name, blocks in steps),
        ("E_out", (affine(STREAM, {"y": wire("y")}, relu=False, bias=False),)),
    ]


def _entrance(line: KeyLine, stream: Sequence[str]) -> Affine:
    inputs = tuple(f"x{j}" for j in range(len(line.weight)))
    projected = Form(dict(zip(inputs, line.weight, strict=True)))
    return affine(inputs, {name: projected if name == "x" else ZERO for name in stream}, relu=False, bias=False)
