"""Keys moved into a short table without collisions: groups of neighbours share a shift modulo the table's length.

Park et al. 2021 in our reconstruction. N sorted keys are cut into groups of K; group j is shifted by s_j modulo M. A
shift is bad when it puts one of K keys on one of at most N places that are taken, so M > K·N always leaves a good one.
The table of M places is cut into rows; each row's labels are the bits of one long word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from byheart.errors import BuildError
from byheart.paper import Ref, implements


@dataclass(frozen=True)
class ShiftedTable:
    """firsts[j], shifts[j]: keys from firsts[j] on are shifted by shifts[j] modulo `modulus`.

    words[a] holds the labels of places a·places to (a + 1)·places - 1, the first place in the highest bits.
    """

    modulus: int
    firsts: tuple[int, ...]
    shifts: tuple[int, ...]
    places: int
    label_bits: int
    words: tuple[int, ...]

    @property
    def word_bits(self) -> int:
        return self.places * self.label_bits

    def place(self, key: int) -> int:
        """Where a key is moved to."""
        group = max(j for j, first in enumerate(self.firsts) if first <= key)
        return (key + self.shifts[group]) % self.modulus

    def label(self, key: int) -> int:
        """What the table says about a key."""
        row, column = divmod(self.place(key), self.places)
        return self.words[row] >> (self.places - 1 - column) * self.label_bits & ((1 << self.label_bits) - 1)


@implements(
    Ref("P21", "Theorem 1"),
    statement="N^(2/3) groups of N^(1/3) keys, each shifted without collision, fit a table of N^(4/3) places, which is "
    "N^(2/3) words of N^(2/3) bits",
    test="tests/build/table1/test_park21.py",
)
def shift_groups(keys: Sequence[int], labels: Sequence[int], group: int, places: int, label_bits: int) -> ShiftedTable:
    """The table for keys in ascending order; `group` is K, `places` how many labels a word holds.

    >>> table = shift_groups([3, 9, 14, 40], [1, 0, 1, 1], group=2, places=4, label_bits=1)
    >>> [table.label(key) for key in (3, 9, 14, 40)]
    [1, 0, 1, 1]
    """
    if not keys or any(b <= a for a, b in pairwise(keys)) or keys[0] < 0:
        raise BuildError("a shifted table needs different keys >= 0 in ascending order")
    starts = range(0, len(keys), group)
    modulus = _modulus(keys, group)
    taken = np.zeros(modulus, dtype=bool)
    shifts, cells = [], {}
    for start in starts:
        residues = [key % modulus for key in keys[start : start + group]]
        bad = np.zeros(modulus, dtype=bool)
        for residue in residues:
            bad |= np.roll(taken, -residue)
        shift = int(np.argmin(bad))
        shifts.append(shift)
        for offset, residue in enumerate(residues):
            place = (residue + shift) % modulus
            taken[place] = True
            cells[place] = labels[start + offset]
    words = [0] * -(-modulus // places)
    for place, label in cells.items():
        row, column = divmod(place, places)
        words[row] |= label << (places - 1 - column) * label_bits
    return ShiftedTable(modulus, tuple(keys[s] for s in starts), tuple(shifts), places, label_bits, tuple(words))


def least_modulus(count: int, group: int) -> int:
    """M = K·N + 1: one place more than there are bad shifts."""
    return group * count + 1


def _modulus(keys: Sequence[int], group: int) -> int:
    """The smallest M > K·N that keeps the keys of every group apart."""
    modulus = least_modulus(len(keys), group)
    while True:
        parts = ([key % modulus for key in keys[s : s + group]] for s in range(0, len(keys), group))
        if all(len(set(part)) == len(part) for part in parts):
            return modulus
        modulus += 1
