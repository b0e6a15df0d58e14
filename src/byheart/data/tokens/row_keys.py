"""Which rows are in a table, exactly, in a way that an ONNX graph can repeat: a row's codes as numbers, looked up.

The codes of a few places are one number in mixed radix, as long as it stays below 2^62. The numbers that occur in the
table are listed, and the place in the list takes the part of these codes in the next number, and so on to the last
place. A row is in the table if every number was listed. Nothing is hashed, so no other row is ever taken for one of
them; a list takes 16 bytes for each of its numbers.

>>> keys = RowKeys.of((3, 5), np.array([[0, 4], [2, 1]]))
>>> [stage.keys.tolist() for stage in keys.stages], keys.known(np.array([[0, 4], [2, 4], [2, 1]])).tolist()
([[4, 11]], [True, False, True])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
ENTRY_BYTES = 16  # a number and its place in the list
# Mixed-radix numbers stay below, so that sums fit an int64.
_LARGEST = 1 << 62


@dataclass(frozen=True)
class KeyStage:
    """Places from `start` on, what each of their codes counts, what the earlier stage's answer counts, and the list."""

    start: int
    strides: tuple[int, ...]
    carry: int
    keys: Codes

    def numbers(self, codes: Codes, earlier: Codes) -> Codes:
        """(N,) numbers of rows of codes (N, places) whose earlier places were number `earlier` of their list."""
        part = codes[:, self.start : self.start + len(self.strides)]
        return np.asarray(part @ np.array(self.strides, dtype=np.int64) + self.carry * earlier)


@dataclass(frozen=True)
class RowKeys:
    """The lists, one after the other."""

    stages: tuple[KeyStage, ...]

    @staticmethod
    def of(sizes: Sequence[int], codes: Codes) -> RowKeys:
        """The lists of the rows of codes (N, places), where `sizes` are how many codes there are at each place."""
        stages: list[KeyStage] = []
        earlier = np.zeros(len(codes), dtype=np.int64)
        for empty in empty_stages(sizes, len(codes)):
            keys, earlier = np.unique(empty.numbers(codes, earlier), return_inverse=True)
            stages.append(replace(empty, keys=keys))
        return RowKeys(tuple(stages))

    def places(self, codes: Codes) -> Codes:
        """The place of each listed row of codes (N, places) in the last list."""
        earlier = np.zeros(len(codes), dtype=np.int64)
        for stage in self.stages:
            earlier = np.searchsorted(stage.keys, stage.numbers(codes, earlier))
        return earlier

    def digits(self, sizes: Sequence[int]) -> Codes:
        """The codes (rows, places) of every listed row, in the order of the last list.

        >>> RowKeys.of((3, 5), np.array([[0, 4], [2, 1]])).digits((3, 5)).tolist()
        [[0, 4], [2, 1]]
        """
        found = np.zeros((len(self.stages[-1].keys), len(sizes)), dtype=np.int64)
        rest, rows = self.stages[-1].keys, np.arange(len(found))
        for number in range(len(self.stages) - 1, -1, -1):
            stage = self.stages[number]
            if number:
                rows, rest = rest // stage.carry, rest % stage.carry
            for place, stride in enumerate(stage.strides, start=stage.start):
                found[:, place] = rest // stride
                rest = rest % stride
            if number:
                rest = self.stages[number - 1].keys[rows]
        return found

    def known(self, codes: Codes) -> Mask:
        """Which rows of codes, each within its size, are listed."""
        found, earlier = np.ones(len(codes), dtype=bool), np.zeros(len(codes), dtype=np.int64)
        for stage in self.stages:
            numbers = stage.numbers(codes, earlier)
            earlier = np.minimum(np.searchsorted(stage.keys, numbers), len(stage.keys) - 1)
            found &= stage.keys[earlier] == numbers
        return found


def spans(sizes: Sequence[int], rows: int) -> list[tuple[int, int]]:
    """Run of places whose codes make one number below 2^62, together with the answer of the run before.

    >>> spans([1 << 30] * 4, 100), spans([10] * 8, 5)
    ([(0, 2), (2, 3), (3, 4)], [(0, 8)])
    """
    found: list[tuple[int, int]] = []
    start, product = 0, 1
    for place, size in enumerate(sizes):
        if place > start and product * size >= _LARGEST:
            found.append((start, place))
            start, product = place, rows
        product *= size
    return [*found, (start, len(sizes))]


def empty_stages(sizes: Sequence[int], rows: int) -> list[KeyStage]:
    """The stages of this many rows before their lists are known."""
    stages: list[KeyStage] = []
    for start, end in spans(sizes, rows):
        strides = tuple(int(np.prod([1, *sizes[k + 1 : end]], dtype=object)) for k in range(start, end))
        carry = strides[0] * sizes[start] if stages else 0
        stages.append(KeyStage(start, strides, carry, np.zeros(0, dtype=np.int64)))
    return stages


def keys_bytes(sizes: Sequence[int], rows: int) -> int:
    """About what the lists of this many rows take, at most."""
    return ENTRY_BYTES * rows * len(spans(sizes, rows))
