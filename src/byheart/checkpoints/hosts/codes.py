"""Code words for symbols: rows of +1 and -1 that differ from each other in many places.

They come from extended BCH codes, which are linear, so the least distance is the least weight of a word:
(length, words, least distance) are (16, 128, 6), (32, 2048, 12), (64, 65536, 24). `balanced` keeps only the words
with as many +1 as -1: LayerNorm subtracts the mean, which is then zero. There are 30, 1054 and 30366 of them, and 2576
among the words of 24 bits of the extended Golay code, whose distance is 8.

    >>> book = code_book(100)
    >>> book.words.shape, book.distance
    ((100, 16), 6)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from byheart.errors import ExportError

Words = npt.NDArray[np.int8]

# length: (generator polynomial in octal, dimension of the code, least distance of the extended code)
_CODES = {
    16: ("721", 7, 6),
    24: ("5343", 12, 8),
    32: ("5423325", 11, 12),
    64: ("6331141367235453", 16, 24),
}


@dataclass(frozen=True, eq=False)
class CodeBook:
    """`words` (symbols, bits) of +-1; any two differ in at least `distance` places."""

    words: Words
    distance: int

    @property
    def bits(self) -> int:
        return int(self.words.shape[1])


def code_book(symbols: int, *, balanced: bool = False, seed: int = 0, least: int = 16) -> CodeBook:
    """`symbols` words of the shortest code that has as many and at least `least` bits, in an order drawn by `seed`."""
    for length, (_, _, distance) in _CODES.items():
        if length < least or (length == 24 and not balanced):
            continue
        words = _all_words(length)
        words = words[words.sum(axis=1) == 0] if balanced else words
        if len(words) >= symbols:
            return CodeBook(np.random.default_rng(seed).permutation(words)[:symbols], distance)
    raise ExportError(
        f"{symbols:,} symbols are more than the longest code has words ({_most(balanced):,}); memorize a shorter text, "
        "or memorize it as rules (form=rules), whose codes are as long as the vocabulary needs"
    )


def book_around(symbols: int, centre: int, *, balanced: bool = False, seed: int = 0) -> CodeBook:
    """A book in which every word differs from that of `centre` in half of the bits, and still from each other.

    >>> book = book_around(70, 3)
    >>> set((book.words @ book.words[3]).tolist()) == {0, book.bits}
    True
    """
    for length, (_, _, distance) in _CODES.items():
        words = _all_words(length)
        words = np.random.default_rng(seed).permutation(words[words.sum(axis=1) == 0] if balanced else words)
        others = words[words.astype(np.int64) @ words[0].astype(np.int64) == 0]
        if length >= 32 and len(others) >= symbols - 1:
            return CodeBook(np.insert(others[: symbols - 1], centre, words[0], axis=0), distance)
    raise ExportError(f"{symbols:,} symbols are too many for a book around one of them; choose one answer per window")


def plain_book(symbols: int) -> CodeBook:
    """The numbers of the symbols in binary: the shortest code, of distance 1.

    >>> plain_book(3).words.tolist()
    [[-1, -1], [1, -1], [-1, 1]]
    """
    bits = max(1, (symbols - 1).bit_length())
    return CodeBook((2 * ((np.arange(symbols)[:, None] >> np.arange(bits)) & 1) - 1).astype(np.int8), 1)


def _most(balanced: bool) -> int:
    words = _all_words(max(_CODES))
    return int((words.sum(axis=1) == 0).sum()) if balanced else len(words)


@lru_cache(maxsize=8)
def _all_words(length: int) -> Words:
    """All words of the extended code, the all +1 word first."""
    octal, dimension, _ = _CODES[length]
    generator = np.array([int(c) for c in bin(int(octal, 8))[2:]], dtype=np.uint8)
    basis = np.zeros((dimension, length), dtype=np.uint8)
    for i in range(dimension):
        basis[i, i : i + len(generator)] = generator
    basis[:, -1] = basis.sum(axis=1) % 2  # the parity bit makes every distance even
    messages = ((np.arange(2**dimension)[:, None] >> np.arange(dimension)) & 1).astype(np.uint8)
    return (1 - 2 * ((messages @ basis) % 2).astype(np.int8)).astype(np.int8)
