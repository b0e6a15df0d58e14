"""Steps compiled into a straight-line program for the limb kernel.

A program is a list of instructions `register = relu?(sum of weight · register + constant)`. Two things make it
short: a value that is only carried (weight 1, no bias, known not to be negative) costs nothing, because the new
name points at the old register; and a wide block is done unit by unit, so that memory does not grow with its width.

A weight m·2^e is split into digits below 2^28; a digit d at bit position p becomes a term (d, p // 56, p % 56), that is
limb offset and shift inside a limb. `cost` bounds the amount that a term adds to an accumulator, in units of 2^56, so
that the kernel can decide when carries must be propagated before 64 bits overflow.

Registers are the memory of a run (each holds a number of thousands of bits per input), so few are used: a register is
free again as soon as no channel of the stream is named after it. The invariant while compiling: `stream[c]` is the
register that holds channel c at this point, and no register in `free` is in `stream`. The program has one instruction
per hidden unit and per channel that changes, and a term per digit that is not zero: about a term for 28 bits of weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from byheart.exact.number import Number, parts
from byheart.exact.reference import Block, Map, Step

# Bits of a limb, and of a digit of a weight: their product fits 64 bits in halves.
LIMB = 56
DIGIT = 28
SMALL = 64  # digits up to this size multiply a whole limb without overflow
WIDE = 64  # hidden units above which a block is done unit by unit

# How a term is added: its digit times a limb, shifted, or by halves of the limb.
PLAIN, SHIFTED, SPLIT = 0, 1, 2

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Program:
    """Flat arrays for the kernel; `inputs` and `outputs` name registers."""

    registers: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    target: Ints
    relu: npt.NDArray[np.bool_]
    terms: Ints  # (instructions + 1,) offsets into the term arrays
    source: Ints
    digit: Ints
    limb: Ints
    shift: Ints
    mode: Ints
    cost: Ints
    constants: Ints  # (instructions + 1,) offsets into constant_limbs
    constant_start: Ints  # lowest limb position of each instruction's constant
    constant_limbs: Ints
    longest: int  # limbs of the longest constant or weight


@dataclass
class _Assembler:
    """Collect instructions while registers are allocated and freed."""

    unit: int
    free: list[int] = field(default_factory=list)
    registers: int = 0
    target: list[int] = field(default_factory=list)
    relu: list[bool] = field(default_factory=list)
    terms: list[int] = field(default_factory=lambda: [0])
    columns: tuple[list[int], ...] = field(default_factory=lambda: tuple([] for _ in range(6)))
    constants: list[int] = field(default_factory=lambda: [0])
    constant_start: list[int] = field(default_factory=list)
    constant_limbs: list[int] = field(default_factory=list)
    longest: int = 1
    nonnegative: set[int] = field(default_factory=set)

    def new(self) -> int:
        if self.free:
            return self.free.pop()
        self.registers += 1
        return self.registers - 1

    def emit(self, target: int, row: Sequence[tuple[int, Number]], bias: Number, relu: bool) -> None:
        for register, weight in row:
            for digit, limb, shift, mode, cost in _digits(weight):
                for column, value in zip(self.columns, (register, digit, limb, shift, mode, cost), strict=True):
                    column.append(value)
                self.longest = max(self.longest, abs(limb) + 2)
        self.terms.append(len(self.columns[0]))
        start, limbs = limbs_of(bias, self.unit)
        self.constant_start.append(start)
        self.constant_limbs.extend(limbs)
        self.constants.append(len(self.constant_limbs))
        self.longest = max(self.longest, len(limbs) + abs(start))
        self.target.append(target)
        self.relu.append(relu)
        (self.nonnegative.add if relu else self.nonnegative.discard)(target)

    def finish(self, inputs: list[int], outputs: list[int]) -> Program:
        source, digit, limb, shift, mode, cost = (np.array(column, dtype=np.int64) for column in self.columns)
        return Program(
            self.registers,
            tuple(inputs),
            tuple(outputs),
            np.array(self.target, dtype=np.int64),
            np.array(self.relu, dtype=np.bool_),
            np.array(self.terms, dtype=np.int64),
            source,
            digit,
            limb,
            shift,
            mode,
            cost,
            np.array(self.constants, dtype=np.int64),
            np.array(self.constant_start, dtype=np.int64),
            np.array(self.constant_limbs, dtype=np.int64),
            self.longest,
        )


def compile_steps(steps: Sequence[Step], width_in: int, unit: int = 1) -> Program:
    """The program of `steps` for inputs scaled by `unit` (every bias is multiplied by it)."""
    asm = _Assembler(unit)
    inputs = [asm.new() for _ in range(width_in)]
    stream = list(inputs)
    for step in steps:
        before = set(stream)
        stream = _map(asm, step, stream) if isinstance(step, Map) else _block(asm, step, stream)
        asm.free.extend(before - set(stream))
    return asm.finish(inputs, stream)


def _map(asm: _Assembler, step: Map, stream: list[int]) -> list[int]:
    after = []
    for row, bias in zip(step.rows, step.bias, strict=True):
        carried = stream[row[0][0]] if len(row) == 1 and row[0][1] == 1 and bias == 0 else None
        if carried is not None and (not step.relu or carried in asm.nonnegative):
            after.append(carried)
            continue
        target = asm.new()
        asm.emit(target, [(stream[j], w) for j, w in row], bias, step.relu)
        after.append(target)
    return after


def _block(asm: _Assembler, step: Block, stream: list[int]) -> list[int]:
    if len(step.rows1) > WIDE:
        return _wide_block(asm, step, stream)
    hidden = []
    for row, bias in zip(step.rows1, step.bias1, strict=True):
        hidden.append(asm.new())
        asm.emit(hidden[-1], [(stream[j], w) for j, w in row], bias, True)
    after = []
    for register, row2, bias in zip(stream, step.rows2, step.bias2, strict=True):
        if not row2 and bias == 0:
            after.append(register)
            continue
        after.append(asm.new())
        asm.emit(after[-1], [(register, 1), *((hidden[u], w) for u, w in row2)], bias, False)
    asm.free.extend(hidden)
    return after


def _wide_block(asm: _Assembler, step: Block, stream: list[int]) -> list[int]:
    """One hidden register for all units in turn: each is computed, added to the channels it feeds, and overwritten.

    The outputs need separate registers, because later units still read the stream as it was before the block.
    """
    after = []
    for register, bias in zip(stream, step.bias2, strict=True):
        after.append(asm.new())
        asm.emit(after[-1], [(register, 1)], bias, False)
    hidden = asm.new()
    outputs: list[list[tuple[int, Number]]] = [[] for _ in step.rows1]
    for channel, row2 in enumerate(step.rows2):
        for u, weight in row2:
            outputs[u].append((channel, weight))
    for row, bias, out in zip(step.rows1, step.bias1, outputs, strict=True):
        asm.emit(hidden, [(stream[j], w) for j, w in row], bias, True)
        for channel, weight in out:
            asm.emit(after[channel], [(after[channel], 1), (hidden, weight)], 0, False)
    asm.free.append(hidden)
    return after


def _digits(weight: Number) -> Iterator[tuple[int, int, int, int, int]]:
    """(digit, limb offset, shift, mode, cost) terms that add up to `weight`."""
    mantissa, exponent = parts(weight)
    if mantissa == 0:
        return
    if -SMALL <= mantissa <= SMALL and exponent == 0:
        yield mantissa, 0, 0, PLAIN, abs(mantissa)
        return
    zeros = (mantissa & -mantissa).bit_length() - 1
    mantissa, exponent = mantissa >> zeros, exponent + zeros
    sign, rest, place = (1 if mantissa > 0 else -1), abs(mantissa), exponent
    while rest:
        digit = rest & ((1 << DIGIT) - 1)
        if digit:
            limb, shift = divmod(place, LIMB)
            yield _term(sign * digit, limb, shift)
        rest >>= DIGIT
        place += DIGIT


def _term(digit: int, limb: int, shift: int) -> tuple[int, int, int, int, int]:
    """The most a term adds, in units of 2^56: its size; low part and high part of a product; four half products."""
    size = abs(digit)
    if size <= SMALL and shift == 0:
        return digit, limb, shift, PLAIN, size
    if size <= SMALL and size << shift <= SMALL << LIMB:
        return digit, limb, shift, SHIFTED, 1 + max(1, (size << shift) >> LIMB)
    return digit, limb, shift, SPLIT, 4


def limbs_of(number: Number, unit: int) -> tuple[int, list[int]]:
    """(lowest limb position, limbs) of number · unit: limbs in [0, 2^56) except the signed top one."""
    mantissa, exponent = parts(number)
    mantissa *= unit
    if mantissa == 0:
        return 0, []
    start = exponent // LIMB
    mantissa <<= exponent - start * LIMB
    limbs = []
    while not -(1 << LIMB) <= mantissa < (1 << LIMB):
        limbs.append(mantissa & ((1 << LIMB) - 1))
        mantissa >>= LIMB
    limbs.append(mantissa)
    while len(limbs) > 1 and limbs[0] == 0:
        limbs.pop(0)
        start += 1
    return start, limbs
