"""The blocks of park21, on a stream of six numbers.

    x      where the row stands on the line; later the offset of its word, then the bit that is read
    z      its place in the table
    u1, u2 the two trajectories of the word (see bit_extraction)
    miss   how far the bit's place is from z
    y      the label

x and z are multiples of 1/one, so relu(one·(z - t) + 1) - relu(one·(z - t)) is 1 from t on and 0 before, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

from byheart.build.shared.wires import Block, Effect, Form, wire
from byheart.build.table1.shifted_table import ShiftedTable
from byheart.exact import Number, dyadic

STREAM = ("x", "z", "u1", "u2", "miss", "y")
LOOK_UNITS, SCAN_UNITS = 2, 10


def step(at: Form, one: int, adds: Mapping[str, Number]) -> tuple[Effect, Effect]:
    """Two units that add `adds` once `at` is not negative."""
    takes = {name: -weight for name, weight in adds.items()}
    return Effect(one * at + 1, adds), Effect(one * at, takes)


def start_block(bias: int, word_bits: int, shift: int) -> Block:
    """x in place, z = x + the first group's shift, the trajectories of the word 0."""
    starts: dict[str, Number] = {"u1": dyadic(1, -word_bits - 1), "u2": dyadic(1, -word_bits - 2)}
    return Block((Effect(wire("x") + bias, {"z": 1}),), {"x": bias, "z": shift, **starts})


def shift_blocks(table: ShiftedTable, one: int) -> list[Block]:
    """One block per further group: from its first key on, its own shift instead of the group's before."""
    found = []
    for first, before, shift in zip(table.firsts[1:], table.shifts, table.shifts[1:], strict=False):
        found.append(Block(step(wire("x") - first, one, {"z": shift - before})))
    return found


def fold_blocks(top: int, modulus: int, one: int) -> list[Block]:
    """z modulo M, one block per power of two: z -= 2^k·M where z is at least that."""
    found = []
    for k in reversed(range((top // modulus + 1).bit_length())):
        amount = modulus << k
        found.append(Block(step(wire("z") - amount, one, {"z": -amount})))
    return found


def look_blocks(table: ShiftedTable, one: int) -> list[Block]:
    """The word of z's row, and in x (cleared first) how many places lie before that row."""
    scale = -table.word_bits
    first: Number = dyadic(table.words[0], scale)
    found = [Block((Effect(wire("x"), {"x": -1}),), {"u1": first, "u2": first})]
    for row, (before, word) in enumerate(zip(table.words, table.words[1:], strict=False), start=1):
        change = dyadic(word - before, scale)
        adds: dict[str, Number] = {"u1": change, "u2": change, "x": table.places}
        found.append(Block(step(wire("z") - row * table.places, one, adds)))
    return found


def scan_blocks(table: ShiftedTable, one: int) -> list[Block]:
    """Read every bit of the word; a bit whose place is z goes to y with its weight.

    Block l folds for bit l; block l + 1 emits the bit to x and its distance from z to miss; block l + 2 gates it.
    """
    bits, c = table.word_bits, table.label_bits
    x, z, miss = wire("x"), wire("z"), wire("miss")
    found = [Block((Effect(x, {"x": -1, "z": -1}),))]
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
        found.append(Block(tuple(effects)))
    return found
