"""The fast engine: batches of big numbers through the limb kernel, chunk by chunk, on every core.

Python ints become limbs by their bytes: 56 bits are seven bytes. Memory is bounded by the chunk (256 inputs per core),
whatever the number of inputs. When a number outgrows its buffer the chunk is run again with a larger one.

The kernel handles only integers times powers of two, but inputs may have any denominator q · 2^k with q odd (means of
three tokens). So everything is computed q times too large: inputs enter as their numerators, every bias is multiplied
by q, weights stay, and relu(q·x) = q·relu(x). The result is divided by q once, by writing q into its denominator.
2^k needs no such factor: numerators are shifted to a whole number of limbs and start at a negative limb position.

Cost: (terms of the program · limbs of the numbers) products per input; `budget` counts in this unit.

The compiled kernel runs many inputs side by side, numbers as 56-bit limbs. Register r holds, for every lane (input),
sum over k of limb[r, k] · 2^(56·(low[r] + k)) for k < length[r]. Limbs lie in [0, 2^56) except the top one, which is
signed with absolute value at most 2^56. `low` may be negative: fractions cost nothing special. After every instruction
limbs that are zero in all lanes are dropped at both ends, so a register is only as long as its values need.

Why 56 bits of 64: the spare byte lets a sum of many terms be accumulated limb by limb without looking at carries, and
the innermost loop runs over lanes, which the compiler turns into vector instructions. The invariant is that no
accumulator leaves ±LIMIT·2^56, which fits in 64 bits: every term comes with its `cost`, the most it adds in units of
2^56 (`program` computes it), and carries are propagated before the spent cost would pass LIMIT. An instruction costs
(terms · limbs · lanes) multiplications and additions, and one pass of carries.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from byheart.exact.budget import meter
from byheart.exact.compiled import compiled
from byheart.exact.number import Integers, Values
from byheart.exact.program import LIMB, Program, compile_steps
from byheart.exact.reference import Step, odd_part
from byheart.progress import Stage

# All bits of a limb, and of half a limb.
MASK = (1 << 56) - 1
HALF = (1 << 28) - 1
LIMIT = 100  # accumulated cost (units of 2^56) above which carries are propagated; 128 would overflow


@compiled
def carry(acc, size, lanes):  # type: ignore[no-untyped-def]
    """Normalizes every limb but the top one to [0, 2^56); the shift rounds down, so only the top one keeps a sign."""
    for k in range(size - 1):
        for j in range(lanes):
            value = acc[k, j]
            acc[k + 1, j] += value >> 56
            acc[k, j] = value & MASK


@compiled
def place(acc, k, shift, j, y):  # type: ignore[no-untyped-def]
    """Add y · 2^shift to limb k of lane j. A left shift that wraps around is harmless: its low 56 bits are correct."""
    acc[k, j] += (y << shift) & MASK
    acc[k + 1, j] += y >> (56 - shift)


@compiled
def add_term(acc, base, limbs, size, digit, shift, mode, lanes):  # type: ignore[no-untyped-def]
    """acc[base + k] += digit · 2^shift · limbs[k].

    Mode 0: no shift and a small digit, so the product fits in one limb. Mode 1: a small digit, so the product
    fits in 64 bits and its two halves go to two limbs. Mode 2: digits of up to 28 bits, so each limb is multiplied in
    halves of 28 bits; their products stay below 2^56.
    """
    for k in range(size):
        if mode == 0:
            if digit == 1:
                for j in range(lanes):
                    acc[base + k, j] += limbs[k, j]
            elif digit == -1:
                for j in range(lanes):
                    acc[base + k, j] -= limbs[k, j]
            else:
                for j in range(lanes):
                    acc[base + k, j] += digit * limbs[k, j]
        elif mode == 1:
            for j in range(lanes):
                y = digit * limbs[k, j]
                acc[base + k, j] += (y << shift) & MASK
                acc[base + k + 1, j] += y >> (56 - shift)
        else:
            for j in range(lanes):
                y = digit * (limbs[k, j] & HALF)
                acc[base + k, j] += (y << shift) & MASK
                acc[base + k + 1, j] += y >> (56 - shift)
                y = digit * (limbs[k, j] >> 28)
                high = shift + 28
                if high < 56:
                    place(acc, base + k, high, j, y)
                else:
                    place(acc, base + k + 1, high - 56, j, y)


@compiled
def all_between(row, lanes, least, most):  # type: ignore[no-untyped-def]
    for j in range(lanes):  # noqa: SIM110  (numba compiles loops, not generators)
        if row[j] < least or row[j] > most:
            return False
    return True


@compiled
def trim(acc, size, lanes):  # type: ignore[no-untyped-def]
    """(skip, size): the limbs acc[skip:size] that some lane needs; a top limb of -1 is folded into its neighbour.

    Without the folding -5 would be (2^56 - 5, -1), and every small negative number would be one limb too long.
    """
    while size > 0:
        if all_between(acc[size - 1], lanes, 0, 0):
            size -= 1
        elif size > 1 and all_between(acc[size - 1], lanes, -1, 0):
            for j in range(lanes):
                acc[size - 2, j] += acc[size - 1, j] << 56
            size -= 1
        else:
            break
    skip = 0
    while skip < size and all_between(acc[skip], lanes, 0, 0):
        skip += 1
    return skip, size


@compiled
def execute(  # type: ignore[no-untyped-def]
    target, relu, terms, source, digit, limb, shift, mode, cost,
    constants, constant_start, constant_limbs, registers, low, length, acc, lanes,
):  # fmt: skip
    """Run every instruction on `lanes` inputs; returns -1, or the instruction whose number outgrew the buffers."""
    capacity = registers.shape[1]
    for i in range(target.shape[0]):
        # The limb positions that the sum can reach: those of all its terms and of its constant.
        least = 1 << 40
        most = -(1 << 40)
        for t in range(terms[i], terms[i + 1]):
            s = source[t]
            if length[s]:
                least = min(least, low[s] + limb[t])
                most = max(most, low[s] + limb[t] + length[s] + (2 if mode[t] else 0))
        count = constants[i + 1] - constants[i]
        if count:
            least = min(least, constant_start[i])
            most = max(most, constant_start[i] + count)
        if most < least:
            length[target[i]] = 0
            low[target[i]] = 0
            continue
        size = most - least + 1  # one more limb than any term reaches: it receives the carries and the sign
        if size > acc.shape[0]:
            return i
        for k in range(size):
            for j in range(lanes):
                acc[k, j] = 0
        for k in range(count):
            value = constant_limbs[constants[i] + k]
            for j in range(lanes):
                acc[constant_start[i] - least + k, j] += value
        spent = 1
        for t in range(terms[i], terms[i + 1]):
            s = source[t]
            if length[s]:
                if spent + cost[t] > LIMIT:
                    carry(acc, size, lanes)
                    spent = 1
                spent += cost[t]
                add_term(acc, low[s] + limb[t] - least, registers[s], length[s], digit[t], shift[t], mode[t], lanes)
        carry(acc, size, lanes)
        if relu[i]:  # after the carries the top limb has the sign of the whole number
            for j in range(lanes):
                if acc[size - 1, j] < 0:
                    for k in range(size):
                        acc[k, j] = 0
        skip, size = trim(acc, size, lanes)
        if size - skip > capacity:
            return i
        r = target[i]
        for k in range(skip, size):
            for j in range(lanes):
                registers[r, k - skip, j] = acc[k, j]
        length[r] = size - skip
        low[r] = least + skip if size > skip else 0
    return -1


Buffers: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def buffers(registers: int, capacity: int, lanes: int) -> Buffers:
    """(registers, low, length, accumulator) for one run of `execute`."""
    return (
        np.zeros((registers, capacity, lanes), dtype=np.int64),
        np.zeros(registers, dtype=np.int64),
        np.zeros(registers, dtype=np.int64),
        np.zeros((2 * capacity + 4, lanes), dtype=np.int64),
    )


# Inputs at a time. Tuned by hand.
LANES = 256


def run(steps: Sequence[Step], values: Values, stage: Stage | None = None) -> Values:
    """Every row of `values` through `steps`, exactly: equal to `reference.run` to the last bit."""
    if not values.count or not steps:
        return values
    q, k = odd_part(values.denominator)
    program = compile_steps(steps, values.width, unit=q)
    lowest, chunks = 0, []
    for low, numerators in _in_order(_Chunks(program, values.numerators, k), values.count, stage):
        lowest = min(lowest, low)
        chunks.append((low, numerators))
    # Chunks may end at different limb positions; all are brought to the lowest, so that they share one denominator.
    aligned = [n << (LIMB * (low - lowest)) if low > lowest else n for low, n in chunks]
    return Values(np.concatenate(aligned), q << (-LIMB * lowest))


def _in_order(chunks: _Chunks, count: int, stage: Stage | None) -> Iterator[tuple[int, Integers]]:
    starts = range(0, count, LANES)
    workers = min(os.cpu_count() or 1, len(starts))
    if workers == 1:
        for start in starts:
            yield chunks(start)
            if stage is not None:
                stage.advance(min(LANES, count - start))
        return
    with ThreadPoolExecutor(workers) as pool, closing(_Canceller(pool)):
        for start, result in zip(starts, pool.map(chunks, starts), strict=True):
            yield result
            if stage is not None:
                stage.advance(min(LANES, count - start))


class _Canceller:
    """Drops the chunks that wait when the consumer stops early (an error or Ctrl-C)."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)


class _Chunks:
    """One chunk of inputs through the program: (lowest limb position, numerators scaled by 2^(-56·lowest))."""

    def __init__(self, program: Program, numerators: Integers, fraction_bits: int) -> None:
        self.program = program
        self.numerators = numerators
        self.low = -(-fraction_bits // LIMB)
        self.lift = self.low * LIMB - fraction_bits
        self.capacity = program.longest + 4
        self.limit = meter()

    def __call__(self, start: int) -> tuple[int, Integers]:
        rows = self.numerators[start : start + LANES]
        columns = [to_limbs([x << self.lift for x in rows[:, c]]) for c in range(rows.shape[1])]
        self.capacity = max(self.capacity, *(c.shape[0] + 2 for c in columns), 4)
        while True:
            capacity = self.capacity
            if self.limit is not None:
                self.limit.hold(8 * self.program.registers * capacity * len(rows))
            state = buffers(self.program.registers, capacity, len(rows))
            registers, low, length, _ = state
            for register, limbs in zip(self.program.inputs, columns, strict=True):
                registers[register, : limbs.shape[0]] = limbs
                length[register], low[register] = limbs.shape[0], -self.low
            if self._execute(state, len(rows)) < 0:
                break
            self.capacity = max(self.capacity, 2 * capacity)  # kept: the chunks that follow are likely to need it too
        return self._outputs(registers, low, length)

    def _execute(self, state: Buffers, lanes: int) -> int:
        p = self.program
        return int(
            execute(
                p.target, p.relu, p.terms, p.source, p.digit, p.limb, p.shift, p.mode, p.cost,
                p.constants, p.constant_start, p.constant_limbs, *state, lanes,
            )
        )  # fmt: skip

    def _outputs(
        self, registers: npt.NDArray[np.int64], low: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
    ) -> tuple[int, Integers]:
        lowest = min(0, *(int(low[r]) for r in self.program.outputs))
        out = np.empty((registers.shape[2], len(self.program.outputs)), dtype=object)
        for column, r in enumerate(self.program.outputs):
            shift = LIMB * (int(low[r]) - lowest)
            out[:, column] = [x << shift for x in from_limbs(registers[r, : length[r]])]
        return lowest, out


def to_limbs(numbers: Sequence[int]) -> npt.NDArray[np.int64]:
    """(limbs, lanes) of signed Python ints: limbs in [0, 2^56), the top one signed.

    >>> to_limbs([-1, 2**56]).tolist()
    [[72057594037927935, 0], [-1, 1]]
    """
    size = max(x.bit_length() for x in numbers) // LIMB + 1
    width = 7 * size
    data = b"".join(x.to_bytes(width, "little", signed=True) for x in numbers)
    raw = np.frombuffer(data, dtype=np.uint8).reshape(len(numbers), size, 7)
    padded = np.zeros((len(numbers), size, 8), dtype=np.uint8)
    padded[:, :, :7] = raw
    limbs = padded.view(np.int64)[:, :, 0].T.copy()
    negative = np.array([x < 0 for x in numbers])
    limbs[-1, negative] -= 1 << LIMB
    return limbs


def from_limbs(limbs: npt.NDArray[np.int64]) -> list[int]:
    """The Python ints of (limbs, lanes).

    >>> from_limbs(to_limbs([-5, 0, 2**100]))
    [-5, 0, 1267650600228229401496703205376]
    """
    size, lanes = limbs.shape
    if size == 0:
        return [0] * lanes
    low = np.ascontiguousarray(limbs[:-1].T).view(np.uint8).reshape(lanes, size - 1, 8)[:, :, :7]
    data, width = low.tobytes(), 7 * (size - 1)
    top = limbs[-1].tolist()
    return [
        int.from_bytes(data[i * width : (i + 1) * width], "little") + (top[i] << (LIMB * (size - 1)))
        for i in range(lanes)
    ]
