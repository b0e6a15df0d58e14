"""Which rows of an integer table are equal: exactly, and at the speed of sorting one column.

Columns of small numbers are packed side by side into words. Rows of several words are first grouped by a 64-bit hash;
every row is then compared with its group's first row, and the rare table with a collision is sorted lexicographically
instead. So the hash saves time and never decides.

    >>> first, which = distinct_rows(np.array([[5, 1], [2, 2], [5, 1]]))
    >>> first.tolist(), which.tolist()
    ([0, 1], [0, 1, 0])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Table = npt.NDArray[Any]  # (T, k) of int64 or uint64

_ODD = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)
# Keys below a few times their number are counted in a table of this size at least, instead of sorted.
_DENSE = 1 << 20
_CHUNK = 1 << 18  # keys ranked, rows sorted out at once


def distinct_rows(table: Table) -> tuple[Index, Index]:
    """The first row of each kind, in order of appearance, and for every row the number of its kind."""
    words = pack_columns(table)
    if words.shape[1] == 1:
        return by_appearance(words[:, 0])
    first, which = by_appearance(hash_rows(words))
    if bool((words == words[first[which]]).all()):
        return first, which
    return _distinct_by_sorting(words)


def sorted_distinct_rows(table: Table) -> Iterator[Table]:
    """The distinct rows in lexicographic order, some at a time.

    >>> [part.tolist() for part in sorted_distinct_rows(np.array([[5, 1], [-1, 2], [5, 1]]))]
    [[[-1, 2], [5, 1]]]
    """
    words = pack_columns(table)
    order = np.lexsort(words.T[::-1])
    before = np.zeros((0, words.shape[1]), dtype=words.dtype)
    for start in range(0, len(order), _CHUNK):
        part = order[start : start + _CHUNK]
        ordered = np.concatenate([before, words[part]])
        new = np.ones(len(part), dtype=bool)
        new[len(part) - len(ordered) + 1 :] = (ordered[1:] != ordered[:-1]).any(axis=1)
        yield table[part[new]]
        before = ordered[-1:]


def pack_columns(table: Table) -> npt.NDArray[np.uint64]:
    """As few 64-bit words per row as hold its columns side by side: rows keep their order and their equality.

    >>> pack_columns(np.array([[-1, 5], [6, 7]])).tolist()
    [[0], [30]]
    """
    if not table.size:
        return np.zeros((len(table), 1), dtype=np.uint64)
    lows, highs = table.min(axis=0), table.max(axis=0)
    words: list[npt.NDArray[np.uint64]] = []
    room = 0
    for column, (low, high) in enumerate(zip(lows, highs, strict=True)):
        bits = (int(high) - int(low)).bit_length()
        digits = table[:, column].view(np.uint64) - np.uint64(int(low) % (1 << 64))
        if words and bits <= room:
            words[-1] = (words[-1] << np.uint64(bits)) | digits
            room -= bits
        else:
            words.append(digits)
            room = 64 - bits
    return np.column_stack(words)


def by_appearance(keys: npt.NDArray[Any]) -> tuple[Index, Index]:
    """`distinct_rows` of a single column."""
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return _number_by_appearance(first.astype(np.int64), which.reshape(-1))


def hash_rows(table: Table) -> Hashes:
    """A 64-bit hash of each row; equal rows have equal hashes, the converse is for the caller to check."""
    bits = table.view(np.uint64) if table.dtype != np.uint64 else table
    hashes = np.zeros(len(table), dtype=np.uint64)
    for column in range(table.shape[1]):
        hashes = mix(hashes + bits[:, column])
    return hashes


def mix(bits: Hashes) -> Hashes:
    """A bijection of 64-bit words that spreads every bit (Murmur's finalizer with other constants)."""
    mixed = (bits ^ (bits >> _FOLD)) * _ODD
    return np.asarray((mixed ^ (mixed >> _FOLD)) * _ODD, dtype=np.uint64)


def rank_keys(keys: Index, bound: int) -> tuple[Index, Index]:
    """The distinct keys (each in 0..bound-1) in ascending order, and for every key its rank among them."""
    if bound > 4 * keys.size + _DENSE:
        values, ranks = np.unique(keys, return_inverse=True)
        return values, ranks.reshape(keys.shape).astype(np.int64, copy=False)
    seen = np.zeros(bound, dtype=bool)
    seen[keys] = True
    return np.flatnonzero(seen), (np.cumsum(seen, dtype=np.int64) - 1)[keys]


def rank_in_place(keys: Index, bound: int) -> Index:
    """`rank_keys` that writes the ranks over the keys, a part at a time; negative keys stay what they are.

    >>> keys = np.array([[7, -1], [2, 7]])
    >>> rank_in_place(keys, 9).tolist(), keys.tolist()
    ([2, 7], [[1, -1], [0, 1]])
    """
    flat = keys.reshape(-1)
    if bound > 4 * keys.size + _DENSE:
        present = flat >= 0
        values, ranks = np.unique(flat[present], return_inverse=True)
        flat[present] = ranks
        return values
    seen = np.zeros(bound + 1, dtype=bool)  # the last is that of negative keys
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        seen[np.where(part < 0, bound, part)] = True
    seen[bound] = False
    rank = np.append((np.cumsum(seen, dtype=np.int64) - 1)[:bound], 0)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        part[:] = np.where(part < 0, part, rank[part])
    return np.flatnonzero(seen)


def _number_by_appearance(first: Index, which: Index) -> tuple[Index, Index]:
    order = np.argsort(first)
    rank = np.empty(len(first), dtype=np.int64)
    rank[order] = np.arange(len(first))
    return first[order], rank[which]


def _distinct_by_sorting(table: Table) -> tuple[Index, Index]:
    order = np.lexsort(table.T[::-1])  # stable: the first of equal rows comes first
    ordered = table[order]
    new = np.ones(len(table), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    which = np.empty(len(table), dtype=np.int64)
    which[order] = np.cumsum(new) - 1
    return _number_by_appearance(order[new].astype(np.int64), which)
