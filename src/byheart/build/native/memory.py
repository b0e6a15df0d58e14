"""The label memory: solve every bucket, then write hash chain, selector, scan and readout as residual blocks.

Selector. g < m is the bucket. Units relu(g − j) for j = lo … hi−1 with the second differences of 2^G·U as weights add
2^G·(U_g − U_lo); the unit j = lo also does g −= relu(g − lo), which keeps every later term small.

Scan of a word, level p = Kw−1 … 0: u ← u − 2·relu(u − 2^(p+G)) + h. Folding strips bit p of U and turns the sign of
what was added before, so that the residue below 2^G is S − 2·Σ U_p·h_p (S = Σ h), and its bit 1 is
parity(U & h) ⊕ bit1(S).

Readout. The words' residues are added and folded around 2^p + 1/2, which swaps 0↔1 and 2↔3 modulo 4; relu(· − 1) is
bit 1.

All buckets are solved over GF(2): bits U with parity(U & h(x)) = target for every key of a bucket. A key's hash bits
h(x) are one row of a system of equations, packed 64 columns to a word, and all of its target bits stand beside it in
one word, so they are eliminated together. Elimination takes row after row. The invariant: the rows done so far are
combinations of the bucket's equations, each with a lowest column of its own (its pivot). A new row is reduced by the
pivots that it meets, which only moves its lowest column up, until that column is free. A row that becomes empty repeats
earlier ones: if its targets are empty too it says nothing new, otherwise the bucket has no solution and the caller
draws other hashes. Then the columns are filled from the highest down: a pivot's row holds only its own column and
higher ones, which are decided already, so its bit is whatever makes the parity right. Columns that are not a pivot stay
0.

A bucket of ℓ keys costs at most ℓ² additions of a row. Buckets hold tens of keys, so a row is a few words and the
whole is linear in the number of keys.

>>> rows = np.array([[0b01], [0b11]], dtype=np.uint64)
>>> solution = solve_buckets(rows, np.array([1, 0], dtype=np.uint64), np.array([0, 2]), targets=1)
>>> solution.singular, [int(v) for v in solution.bits[0, 0]]
(-1, [3])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from byheart.build.native.hashing import HashChain, Ints, Words, bucket_numbers, fold_units, hash_rows
from byheart.build.native.layout import Layout, Purpose, Step, Unit, residual
from byheart.exact import Number, dyadic
from byheart.ir.layers import Residual
from byheart.paper import Ref, implements


@dataclass(frozen=True, eq=False)
class Solution:
    """`bits[j, t]` packs the columns of bucket j for target bit t; `singular` is a bucket without solution, or -1."""

    bits: Words  # (m, targets, words of 64 columns)
    singular: int


def solve_buckets(rows: Words, targets_of: Words, starts: Ints, targets: int) -> Solution:
    """`rows` and `targets_of` sorted by bucket, and used up; bucket j is rows[starts[j]:starts[j + 1]]."""
    bits = np.zeros((len(starts) - 1, targets, rows.shape[1]), dtype=np.uint64)
    singular = _solve(rows, targets_of, starts.astype(np.int64), bits)
    return Solution(bits, int(singular))


@numba.njit(cache=True, nogil=True)
def _lowest(word: Any) -> Any:  # pragma: no cover - compiled
    """Place of the lowest set bit of a word that is not zero."""
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


@numba.njit(cache=True, nogil=True)
def _parity(word: Any) -> Any:  # pragma: no cover - compiled
    for shift in (32, 16, 8, 4, 2, 1):
        word ^= word >> np.uint64(shift)
    return word & np.uint64(1)


@numba.njit(cache=True, nogil=True)
def _solve(rows: Any, wanted: Any, starts: Any, bits: Any) -> Any:  # pragma: no cover - compiled
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


@dataclass(frozen=True)
class Refusal:
    """Why these chains do not store the data; another draw may."""

    reason: str
    alike: bool = False  # two contexts have one id


@dataclass(frozen=True, eq=False)
class Stored:
    """The words of every bucket: `words[j, t, w]` is U of bucket j for target t, bit p for level p."""

    words: Ints  # (m, targets, Z)
    largest_load: int


def store(layout: Layout, chains: Sequence[HashChain], ids: Ints, labels: Ints) -> Stored | Refusal:
    """Solves for the words that give every id (a row of L numbers) its label and all-zero fingerprints."""
    buckets, states = bucket_numbers(layout, chains, ids)
    loads = np.bincount(buckets, minlength=layout.buckets)
    largest = int(loads.max())
    if largest > layout.capacity:
        return Refusal(f"a bucket got {largest} keys, it holds {layout.capacity}")
    order = np.argsort(buckets, kind="stable")
    hashes = hash_rows(layout, chains, states[order])
    all_labels = np.uint64((1 << layout.targets) - 1)
    flips = np.where(hashes.ones & 2, all_labels, np.uint64(0))
    wanted = labels[order].astype(np.uint64) ^ flips ^ (hashes.fresh << np.uint64(layout.label_bits))
    starts = np.concatenate([[0], np.cumsum(loads)])
    solution = solve_buckets(hashes.rows, wanted, starts, layout.targets)
    if solution.singular >= 0:
        return Refusal(f"bucket {solution.singular} with {loads[solution.singular]} keys has no solution")
    return Stored(_words(layout, solution.bits), largest)


def _words(layout: Layout, bits: Words) -> Ints:
    """Packed columns -> one integer per word; column (Kw-1)·w + p - 1 is bit p of word w."""
    unpacked = np.unpackbits(bits.view(np.uint8), axis=2, bitorder="little")[:, :, : layout.capacity]
    parted = unpacked.reshape(*unpacked.shape[:2], layout.words, layout.levels - 1).astype(np.int64)
    return parted @ (np.int64(1) << np.arange(1, layout.levels, dtype=np.int64))


@implements(
    Ref("byheart", "float-native memory"),
    statement="K keys with c label bits are stored in about sqrt(K c) float64 weights, exact in every evaluation order",
    test="tests/build/native/test_memory.py",
)
def memory_blocks(layout: Layout, chains: Sequence[HashChain], stored: Stored) -> list[tuple[str, list[Residual]]]:
    """The blocks by stage. The stream starts as (x_l·2^s, 0, …, 0) and ends with the answer in the bucket channel."""
    hashing = [_chain_block(layout, chains, steps) for steps in layout.rounds if steps[0].purpose <= Purpose.BUCKET]
    scan = [_scan_block(layout, chains, steps, stored) for steps in layout.rounds if steps[0].purpose > Purpose.BUCKET]
    return [
        ("hash chain", hashing),
        ("bucket selector", _selector(layout, stored)),
        ("scan", scan),
        ("readout", _readout(layout)),
    ]


def _chain_block(layout: Layout, chains: Sequence[HashChain], steps: Sequence[Step]) -> Residual:
    units: list[Unit] = []
    for step in steps:
        bit = {layout.bucket_channel: 1 << step.index} if step.purpose is Purpose.BUCKET else {}
        units += fold_units(chains[step.chain].fold(step.number), step.chain, bit)
    return residual(layout.width, units)


def _selector(layout: Layout, stored: Stored) -> list[Residual]:
    words = stored.words.reshape(layout.buckets, -1)
    first = layout.word_channel(0, 0)
    blocks, high = [], layout.buckets - 1
    for size in layout.selector_sizes:
        low = high - size
        slopes = words[low + 1 : high + 1] - words[low:high]
        bends = np.diff(slopes, axis=0, prepend=np.zeros_like(slopes[:1])) << layout.guard
        units = []
        for j, bend in zip(range(low, high), bends.tolist(), strict=True):
            writes: dict[int, Number] = {first + a: w for a, w in enumerate(bend)}
            if j == low:
                writes[layout.bucket_channel] = -1
            units.append(Unit({layout.bucket_channel: 1}, -j, writes))
        bias: dict[int, Number] = {first + a: w << layout.guard for a, w in enumerate(words[0].tolist())}
        blocks.append(residual(layout.width, units, bias if low == 0 else None))
        high = low
    return blocks


def _scan_block(layout: Layout, chains: Sequence[HashChain], steps: Sequence[Step], stored: Stored) -> Residual:
    units: list[Unit] = []
    bias: dict[int, Number] = {}
    for step in steps:
        fold = chains[step.chain].fold(step.number)
        if step.purpose is Purpose.FRESH:
            units += fold_units(fold, step.chain, {layout.word_channel(layout.label_bits + step.index, 0): 2})
            continue
        channels = [layout.word_channel(t, step.word) for t in range(layout.targets)]
        units += fold_units(fold, step.chain, {channel: 1 for channel in channels})
        for t, channel in enumerate(channels):
            start = 0  # the offset 2^(G-1) enters with a word's first fold: the selector's lattice stays at 2^(G+1)
            if step.index == layout.levels - 1:
                start = 1 << (layout.guard - 1)
                if layout.buckets == 1:  # no selector: the only bucket's word enters here
                    start += int(stored.words[0, t, step.word]) << layout.guard
                bias[channel] = start
            units.append(Unit({channel: 1}, start - (1 << (step.index + layout.guard)), {channel: -2}))
    return residual(layout.width, units, bias)


def _readout(layout: Layout) -> list[Residual]:
    targets, words = range(layout.targets), range(layout.words)
    first = [layout.word_channel(t, 0) for t in targets]
    top = layout.readout_bits - 1
    together = [Unit({layout.word_channel(t, w): 1 for w in words}, _fold_at(top), {first[t]: -2}) for t in targets]
    copies = [Unit({layout.word_channel(t, w): 1}, 0, {first[t]: 1}) for t in targets for w in words[1:]]
    blocks = [residual(layout.width, together + copies)]
    for p in range(top - 1, 0, -1):
        blocks.append(residual(layout.width, [Unit({channel: 1}, _fold_at(p), {channel: -2}) for channel in first]))
    answer = [Unit({channel: 1}, -1, {layout.bucket_channel: 1 << t}) for t, channel in enumerate(first)]
    return [*blocks, residual(layout.width, answer)]


def _fold_at(p: int) -> Number:
    """The bias of a fold around 2^p + 1/2."""
    return dyadic(-(1 << (p + 1)) - 1, -1)
