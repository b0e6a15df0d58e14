"""Sorted keys and their labels, packed into two long words per group: stage II of the proof of KS25, Lemma C.1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from byheart.errors import BuildError


@dataclass(frozen=True)
class Fields:
    """How a word is divided: `entries` fields, each of `key_bits` in the key word and `label_bits` in the label word.

    Notation: entries = n of Lemma G.6 (K in our notes), key_bits = rho, label_bits = c.
    """

    entries: int
    key_bits: int
    label_bits: int

    def __post_init__(self) -> None:
        if min(self.entries, self.key_bits, self.label_bits) < 1:
            raise BuildError(f"fields need at least one entry and one bit, not {self}")

    @property
    def steps(self) -> int:
        """max(rho, c): bits to read per entry."""
        return max(self.key_bits, self.label_bits)

    @property
    def key_word(self) -> int:
        return self.entries * self.key_bits

    @property
    def label_word(self) -> int:
        return self.entries * self.label_bits


@dataclass(frozen=True)
class Group:
    """Consecutive keys: the interval [first, last] that holds them, and their two words (u_j and w_j)."""

    first: int
    last: int
    key_word: int
    label_word: int


def pack(keys: Sequence[int], labels: Sequence[int], fields: Fields) -> tuple[Group, ...]:
    """Groups of `fields.entries` keys (the floors of x_1 < … < x_N), first entry in the highest bits.

    Places left over in the last group hold key 0 and label 0: no x >= 2 matches them.

    >>> pack([2, 5, 8], [1, 3, 2], Fields(entries=2, key_bits=4, label_bits=2))
    (Group(first=2, last=6, key_word=37, label_word=7), Group(first=8, last=9, key_word=128, label_word=8))
    """
    for earlier, later in pairwise(keys):
        if later - earlier < 1:
            raise BuildError(f"keys must ascend, but {later} follows {earlier}")
    for key, label in zip(keys, labels, strict=True):
        if not 2 <= key < 1 << fields.key_bits or not 1 <= label < 1 << fields.label_bits:
            raise BuildError(f"key {key} with label {label} does not fit {fields}")
    groups = []
    for start in range(0, len(keys), fields.entries):
        key_word = label_word = 0
        chunk = range(start, min(start + fields.entries, len(keys)))
        for place in range(start, start + fields.entries):
            key_word = key_word << fields.key_bits | (keys[place] if place in chunk else 0)
            label_word = label_word << fields.label_bits | (labels[place] if place in chunk else 0)
        groups.append(Group(keys[chunk[0]], keys[chunk[-1]] + 1, key_word, label_word))
    return tuple(groups)
