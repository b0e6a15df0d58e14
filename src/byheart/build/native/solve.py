"""The words of all buckets: systems of equations over GF(2), solved part by part.

All buckets are solved over GF(2): bits U with parity(U & h(x)) = target for every key of a bucket. A key's hash bits
h(x) are one row of a system of equations, packed 64 columns to a word, and all of its target bits are stored beside it
in one word, so they are eliminated together. Elimination processes one row after the other. The invariant: the rows
done so far are combinations of the bucket's equations, each with a distinct lowest column (its pivot). A new row is
reduced by the pivots that it meets, which only moves its lowest column up, until that column is free. A row that
becomes empty repeats earlier ones: if its targets are empty too it adds nothing, otherwise the bucket has no solution
and the caller samples other hashes. Then the columns are filled from the highest down: a pivot's row holds only its own
column and higher ones, which are decided already, so its bit follows from the parity. Columns that are not a pivot stay
0.

A bucket of ℓ keys costs at most ℓ² additions of a row. Buckets hold tens of keys, so a row is a few words and the
whole is linear in the number of keys.

>>> rows = np.array([[0b01], [0b11]], dtype=np.uint64)
>>> solution = solve_buckets(rows, np.array([1, 0], dtype=np.uint64), np.array([0, 2]), targets=1)
>>> solution.singular, [int(v) for v in solution.bits[0, 0]]
(-1, [3])

Parts of the buckets are independent of each other, so threads of this process or any executor solve them; which one
does makes no difference to the bits. Buckets come in the order of their loads, the fullest first: a bucket of ℓ keys
has no solution with probability about 2^(ℓ − capacity), so that a draw which fails nearly always does so within its
first, small part, before the hash bits of the other keys are computed. Only the parts that are being solved are held
in memory as hash rows.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.build.native.hashing import HashChain, Ints, Words, hash_rows
from byheart.build.native.layout import Layout
from byheart.exact.compiled import compiled

FIRST_KEYS = 1 << 12  # of the part with the fullest buckets
# Keys of a part that one worker solves. Tuned by hand.
PART_KEYS = 1 << 16
AHEAD = 2  # parts for each worker that are held at once


@dataclass(frozen=True, eq=False)
class Solution:
    """`bits[j, t]` packs the columns of bucket j for target bit t; `singular` is a bucket without solution, or -1."""

    bits: Words  # (m, targets, words of 64 columns)
    singular: int


def solve_buckets(rows: Words, targets_of: Words, starts: Ints, targets: int) -> Solution:
    """`rows` and `targets_of` sorted by bucket, and used up; bucket j is rows[starts[j]:starts[j + 1]]."""
    bits = np.zeros((len(starts) - 1, targets, rows.shape[1]), dtype=np.uint64)
    singular = eliminate(rows, targets_of, starts.astype(np.int64), bits)
    return Solution(bits, int(singular))


@compiled
def _lowest(word: Any) -> Any:  # pragma: no cover - compiled
    """Return the index of the lowest set bit of a nonzero word."""
    place = 0
    if word & np.uint64(0xFFFFFFFF) == 0:
        place += 32
        word >>= np.uint64(32)
    if word & np.uint64(0xFFFF) == 0:
        place += 16
        word >>= np.uint64(16)
    if word & np.uint64(0xFF) == 0:
        place += 8
        word >>= np.uint64(8)
    while word & np.uint64(1) == 0:
        place += 1
        word >>= np.uint64(1)
    return place


@compiled
def _parity(word: Any) -> Any:  # pragma: no cover - compiled
    for shift in (32, 16, 8, 4, 2, 1):
        word ^= word >> np.uint64(shift)
    return word & np.uint64(1)


@compiled
def eliminate(rows: Any, wanted: Any, starts: Any, bits: Any) -> Any:  # pragma: no cover - compiled
    """Rows are reduced in place until each has an own lowest column; then columns are filled from the highest down."""
    width = rows.shape[1]
    one = np.uint64(1)
    for bucket in range(starts.shape[0] - 1):
        pivots = np.full(64 * width, -1, np.int64)
        for row in range(starts[bucket], starts[bucket + 1]):
            at = 0
            while at < width:
                if rows[row, at] == 0:
                    at += 1
                    continue
                column = 64 * at + _lowest(rows[row, at])  # the lowest column left in this row
                pivot = pivots[column]
                if pivot < 0:
                    pivots[column] = row
                    break
                for k in range(at, width):  # the words below are empty in both rows
                    rows[row, k] ^= rows[pivot, k]
                wanted[row] ^= wanted[pivot]
            if at == width and wanted[row] != 0:
                return bucket
        for column in range(64 * width - 1, -1, -1):
            pivot = pivots[column]
            if pivot < 0:
                continue
            for target in range(bits.shape[1]):
                mixed = np.uint64(0)
                for k in range(column >> 6, width):
                    mixed ^= rows[pivot, k] & bits[bucket, target, k]
                if _parity(mixed) != (wanted[pivot] >> np.uint64(target)) & one:
                    bits[bucket, target, column >> 6] |= one << np.uint64(column & 63)
    return -1


@dataclass(frozen=True, eq=False)
class Keys:
    """The contents of all buckets: the bucket of every key, its chains' states (K, L), its label, and the loads."""

    buckets: Ints
    states: Ints
    labels: Ints
    loads: Ints


@dataclass(frozen=True, eq=False)
class BucketPart:
    """Some buckets with their keys, sorted by bucket: all that a worker needs."""

    layout: Layout
    chains: tuple[HashChain, ...]
    numbers: Ints  # of the buckets
    loads: Ints
    states: Ints
    labels: Ints


def solve_part(part: BucketPart) -> Solution:
    """The words of the buckets of one part; `singular` counts within the part."""
    layout = part.layout
    hashes = hash_rows(layout, part.chains, part.states)
    flips = np.where(hashes.ones & 2, np.uint64((1 << layout.targets) - 1), np.uint64(0))
    wanted = part.labels.astype(np.uint64) ^ flips ^ (hashes.fresh << np.uint64(layout.label_bits))
    starts = np.concatenate([[0], np.cumsum(part.loads)])
    return solve_buckets(hashes.rows, wanted, starts, layout.targets)


def solve_all(layout: Layout, chains: Sequence[HashChain], keys: Keys, executor: Executor | None = None) -> Solution:
    """The words of every bucket; `singular` is the first one without a solution, in the order of their loads."""
    bits = np.zeros((layout.buckets, layout.targets, (layout.capacity + 63) // 64), dtype=np.uint64)
    parts = _parts(layout, tuple(chains), keys)
    for numbers, solution in _solved(parts, executor, len(keys.labels)):
        if solution.singular >= 0:
            return Solution(bits, int(numbers[solution.singular]))
        bits[numbers] = solution.bits
    return Solution(bits, -1)


def _parts(layout: Layout, chains: tuple[HashChain, ...], keys: Keys) -> Iterator[BucketPart]:
    """The buckets, the fullest first, in parts of about as many keys each; empty buckets need nothing."""
    ranked = np.argsort(-keys.loads, kind="stable")[: int(np.count_nonzero(keys.loads))]
    place = np.zeros(layout.buckets, dtype=np.int64)
    place[ranked] = np.arange(len(ranked))
    order = np.argsort(place[keys.buckets], kind="stable")
    ends = np.cumsum(keys.loads[ranked])
    first = done = 0
    while first < len(ranked):
        room = PART_KEYS if first else FIRST_KEYS
        last = max(first + 1, int(np.searchsorted(ends, done + room, side="right")))
        chosen, numbers = order[done : int(ends[last - 1])], ranked[first:last]
        yield BucketPart(layout, chains, numbers, keys.loads[numbers], keys.states[chosen], keys.labels[chosen])
        first, done = last, int(ends[last - 1])


def _solved(parts: Iterator[BucketPart], executor: Executor | None, keys: int) -> Iterator[tuple[Ints, Solution]]:
    """The solutions in the order of the parts, which is that of the draw's chances to fail."""
    head = next(parts, None)
    if head is None:
        return
    yield head.numbers, solve_part(head)
    if executor is None and keys <= PART_KEYS:
        for part in parts:
            yield part.numbers, solve_part(part)
        return
    with ExitStack() as stack:
        workers = executor or stack.enter_context(ThreadPoolExecutor(os.cpu_count()))
        running: deque[tuple[Ints, Future[Solution]]] = deque()
        try:
            for part in parts:
                running.append((part.numbers, workers.submit(solve_part, part)))
                if len(running) > AHEAD * (os.cpu_count() or 1):
                    numbers, future = running.popleft()
                    yield numbers, future.result()
            while running:
                numbers, future = running.popleft()
                yield numbers, future.result()
        finally:  # a part without solution ends the draw
            for _, future in running:
                future.cancel()
