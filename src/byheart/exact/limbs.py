"""The fast engine: batches of big numbers through the limb kernel, chunk by chunk, on every core.

Python ints become limbs by their bytes: 56 bits are seven bytes. Memory is bounded by the chunk (256 inputs per core),
whatever the number of inputs. When a number outgrows its buffer the chunk is run again with a larger one.

The kernel knows only integers times powers of two, but inputs may have any denominator q · 2^k with q odd (means of
three tokens). So everything is computed q times too large: inputs enter as their numerators, every bias is multiplied
by q, weights stay, and relu(q·x) = q·relu(x). The result is divided by q once, by writing q into its denominator.
2^k needs no such factor: numerators are shifted to a whole number of limbs and start at a negative limb position.

Cost: (terms of the program · limbs of the numbers) products per input; `budget` counts in this unit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import numpy.typing as npt

from byheart.exact import limb_kernel
from byheart.exact.budget import meter
from byheart.exact.program import LIMB, Program, compile_steps
from byheart.exact.reference import odd_part
from byheart.exact.steps import Step
from byheart.exact.values import Integers, Values
from byheart.progress import Stage

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
            state = limb_kernel.buffers(self.program.registers, capacity, len(rows))
            registers, low, length, _ = state
            for register, limbs in zip(self.program.inputs, columns, strict=True):
                registers[register, : limbs.shape[0]] = limbs
                length[register], low[register] = limbs.shape[0], -self.low
            if self._execute(state, len(rows)) < 0:
                break
            self.capacity = max(self.capacity, 2 * capacity)  # kept: the chunks that follow are likely to need it too
        return self._outputs(registers, low, length)

    def _execute(self, state: limb_kernel.Buffers, lanes: int) -> int:
        p = self.program
        return int(
            limb_kernel.execute(
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
