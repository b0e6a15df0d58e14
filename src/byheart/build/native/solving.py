"""Solving all buckets over GF(2): bits U with parity(U & h(x)) = target for every key of a bucket.

A key's hash bits h(x) are one row of a system of equations, packed 64 columns to a word, and all of its target bits
stand beside it in one word, so they are eliminated together. Elimination takes row after row. The invariant: the rows
done so far are combinations of the bucket's equations, each with a lowest column of its own (its pivot). A new row is
reduced by the pivots that it meets, which only moves its lowest column up, until that column is free. A row that
becomes empty repeats earlier ones: if its targets are empty too it says nothing new, otherwise the bucket has no
solution and the caller draws other hashes. Then the columns are filled from the highest down: a pivot's row holds only
its own column and higher ones, which are decided already, so its bit is whatever makes the parity right. Columns that
are not a pivot stay 0.

A bucket of ℓ keys costs at most ℓ² additions of a row. Buckets hold tens of keys, so a row is a few words and the
whole is linear in the number of keys.

>>> rows = np.array([[0b01], [0b11]], dtype=np.uint64)
>>> solution = solve_buckets(rows, np.array([1, 0], dtype=np.uint64), np.array([0, 2]), targets=1)
>>> solution.singular, [int(v) for v in solution.bits[0, 0]]
(-1, [3])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from byheart.build.native.hashing import Ints, Words


@dataclass(frozen=True, eq=False)
class Solution:
    """`bits[j, t]` packs the columns of bucket j for target bit t; `singular` is a bucket without solution, or -1."""

    bits: Words  # (m, targets, words of 64 columns)
    singular: int


def solve_buckets(rows: Words, targets_of: Words, starts: Ints, targets: int) -> Solution:
    """`rows` and `targets_of` sorted by bucket; bucket j is rows[starts[j]:starts[j + 1]]."""
    bits = np.zeros((len(starts) - 1, targets, rows.shape[1]), dtype=np.uint64)
    singular = _solve(rows.copy(), targets_of.copy(), starts.astype(np.int64), bits)
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
