"""Recall: a function of every token sequence, and the code words by which a decoder computes it.

Let x_0 = BOS. Place i *holds* the key (x_{i-1}, x_{i-2}) with the value x_i, unless x_i is BOS; x_{-1} and x_{-2}
count as x_0. After x_0 ... x_t

    answer = x_i of the first place i <= t that holds (x_t, x_{t-1}); NONE if no place does.

Keys of one token leave out the second component. Greedy decoding thus copies what followed the first occurrence of the
last two tokens: one function is needle retrieval, copying (repeat the prompt), and n-gram continuation.

With a sliding window the layers see less: a place is *found* if it sees a holder of its key, a holder is *stale* if the
place before it was found, and the answer is the value of the fresh holder in sight.

Keys are words of +1 and -1 of a linear code. The word of a pair is the product of two words, so a pair needs as many
bits as one word. Two keys differ in at least `distance` bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import DataError, OptionError

Bits = npt.NDArray[np.int64]
VOCABULARY = 256
_MESSAGE = 8  # bits of a token's number
# Generator polynomials in octal: the extended BCH codes (32, 2^11, distance 12) inside (32, 2^16, distance 8), and the
# extended Golay code (24, 2^12, distance 8), of which the words that begin with four zeros are a code (20, 2^8, 8).
_NEWER, _PAIRS, _GOLAY = "5423325", "107657", "5343"
_HAMMING, _PLACE = "23", 11  # the extended Hamming code (16, 2^11, distance 4), for learned positions


@dataclass(frozen=True)
class RecallFunction:
    """The function that a recall checkpoint computes.

    Args:
        key_length: tokens of a key, 1 or 2.
        window: positions that a query sees, itself included; None for all.

    >>> RecallFunction().answers([1, 7, 8, 9, 7, 8])
    [0, 0, 0, 0, 0, 9]
    >>> RecallFunction(key_length=1).answers([1, 7, 8, 9, 7, 8])
    [0, 0, 0, 0, 8, 9]
    """

    key_length: int = 2
    window: int | None = None
    none: int = 0
    bos: int = 1
    eos: int = 2
    pad: int = 3

    def __post_init__(self) -> None:
        if self.key_length not in (1, 2):
            raise OptionError(f"recall: keys have 1 or 2 tokens, not {self.key_length}")
        if self.window is not None and self.window < 4:
            raise OptionError(f"recall: a window of {self.window} positions sees no key; 4 or more are needed")

    def _key(self, ids: Sequence[int], last: int) -> tuple[int, ...]:
        return tuple(ids[max(last - k, 0)] for k in range(self.key_length))

    def answers(self, ids: Sequence[int]) -> list[int]:
        """Return the correct next token after every prefix.

        Raises:
            DataError: the sequence does not begin with BOS, has tokens outside the vocabulary, or has a window
                without BOS.
        """
        self._check(ids)
        if self.window is not None:
            return self._windowed(ids, self.window)
        first: dict[tuple[int, ...], int] = {}
        found = []
        for t, token in enumerate(ids):
            if token != self.bos:
                first.setdefault(self._key(ids, max(t - 1, 0)), token)
            found.append(first.get(self._key(ids, t), self.none))
        return found

    def _windowed(self, ids: Sequence[int], window: int) -> list[int]:
        holders: dict[tuple[int, ...], list[int]] = {}
        found: list[bool] = []
        answers = []
        for t, token in enumerate(ids):
            if token != self.bos:
                holders.setdefault(self._key(ids, max(t - 1, 0)), []).append(t)
            seen = [i for i in holders.get(self._key(ids, t), ()) if i > t - window]
            found.append(bool(seen))
            fresh = [i for i in seen if not found[max(i - 1, 0)]]
            answers.append(ids[fresh[0]] if fresh else self.none)
        return answers

    def _check(self, ids: Sequence[int]) -> None:
        if not len(ids) or ids[0] != self.bos:
            raise DataError(f"recall: a sequence begins with BOS (token {self.bos})")
        wrong = next((t for t in ids if not 0 <= t < VOCABULARY), None)
        if wrong is not None:
            raise DataError(f"recall: token {wrong} is not one of {VOCABULARY}")
        if self.window is not None:
            starts = [t for t, token in enumerate(ids) if token == self.bos]
            gap = max(np.diff([*starts, len(ids)]).tolist(), default=0)
            if gap > self.window:
                raise DataError(f"recall: {gap} tokens without BOS; a window of {self.window} positions must hold one")

    def continuation(self, ids: Sequence[int], count: int) -> list[int]:
        """Return up to `count` tokens of greedy decoding, up to and including EOS."""
        tokens: list[int] = list(ids)
        while len(tokens) < len(ids) + count:
            tokens.append(self.answers(tokens)[-1])
            if tokens[-1] == self.eos:
                break
        return tokens[len(ids) :]

    def to_json(self) -> dict[str, Any]:
        tokens = {"bos": self.bos, "eos": self.eos, "none": self.none, "pad": self.pad}
        return {"key_length": self.key_length, "window": self.window, "vocabulary": VOCABULARY, "tokens": tokens}


@dataclass(frozen=True, eq=False)
class KeyCode:
    """Words of +-1 per token: `newer` for the last token of a key and for answers, `older` for the token before it.

    Any two keys differ in at least `distance` bits, any two words of `newer` in at least `spread`.
    """

    newer: Bits
    older: Bits | None
    distance: int
    spread: int

    @property
    def bits(self) -> int:
        return int(self.newer.shape[1])

    def differences(self) -> npt.NDArray[np.bool_]:
        """Return every set of bits in which two keys may differ: the code is linear, so it is every word but one."""
        words = self.newer if self.older is None else (self.newer[:, None] * self.older[None]).reshape(-1, self.bits)
        return np.asarray((words < 0)[1:])


@lru_cache(maxsize=2)
def key_code(key_length: int) -> KeyCode:
    """Return the code of keys of 1 or 2 tokens.

    >>> code = key_code(2)
    >>> code.bits, int(code.differences().sum(1).min()), code.spread
    (32, 8, 12)
    >>> code = key_code(1)
    >>> code.bits, int(code.differences().sum(1).min()), code.spread
    (20, 8, 8)
    """
    messages = (np.arange(VOCABULARY)[:, None] >> np.arange(_MESSAGE)) & 1
    if key_length == 1:
        # Rows of a reduced basis whose pivots are the last eight: zero in the first four columns.
        rows = _reduced(_shifts(_GOLAY, 12, 24))[4:, 4:]
        return KeyCode(_signs(messages @ rows), None, 8, 8)
    basis = list(_shifts(_NEWER, _MESSAGE, 32))
    for row in _shifts(_PAIRS, 16, 32):
        if len(basis) < 2 * _MESSAGE and len(_reduced(np.array([*basis, row]))) == len(basis) + 1:
            basis.append(row)
    words = np.array(basis)
    return KeyCode(_signs(messages @ words[:_MESSAGE]), _signs(messages @ words[_MESSAGE:]), 8, 12)


def position_code(count: int) -> Bits:
    """Return a word of 32 signs for each of `count` positions: half of them are +1, and any two differ in 8 or more.

    Raises:
        OptionError: more positions than the code has words.

    >>> words = position_code(2048)
    >>> words.shape, int(abs(words.sum(1)).max()), int((words[1:] @ words[0]).max())
    ((2048, 32), 0, 16)
    """
    if count > 1 << _PLACE:
        raise OptionError(f"recall: {count:,} learned positions; {1 << _PLACE:,} is the most")
    half = _signs(((np.arange(count)[:, None] >> np.arange(_PLACE)) & 1) @ _shifts(_HAMMING, _PLACE, 16))
    return np.concatenate([half, -half], axis=1)


def _signs(sums: Bits) -> Bits:
    return np.asarray(1 - 2 * (sums % 2))


def _shifts(octal: str, count: int, length: int) -> Bits:
    """The generator shifted `count` times, with a parity bit at the end."""
    generator = np.array([int(c) for c in bin(int(octal, 8))[2:]])
    rows = np.zeros((count, length), dtype=np.int64)
    for i in range(count):
        rows[i, i : i + len(generator)] = generator
    rows[:, -1] = rows.sum(1) % 2
    return rows


def _reduced(rows: Bits) -> Bits:
    """The reduced row echelon form over two elements, without zero rows."""
    rows, rank = rows.copy(), 0
    for column in range(rows.shape[1]):
        pivots = np.flatnonzero(rows[rank:, column])
        if not len(pivots):
            continue
        rows[[rank, rank + pivots[0]]] = rows[[rank + pivots[0], rank]]
        others = np.flatnonzero(rows[:, column])
        rows[others[others != rank]] ^= rows[rank]
        rank += 1
        if rank == len(rows):
            break
    return rows[:rank]
