"""A table without its keys: the hash of a row leads to its label.

A hash selects four slots in four neighbouring segments of one array. The XOR of their contents is the row's *value*:
the number of its class, and above it a few bits of another hash of the row (the check). The contents are chosen so that
this holds for every row of the table. These are linear equations over GF(2), and an order exists in which each of them
still has its own slot ("peeling"; Graf and Lemire, "Binary fuse filters", 2022). The array has 1.08 to 1.3 slots
per row and no keys. A row outside the table meets arbitrary slots, so its check agrees once in 2^check_bits times.

Hashes are MurmurHash3 (x86, 32 bits), an operator of ONNX Runtime. Four seeds give four numbers per cell; the numbers
of several cells are added up with multipliers that depend on the seed.

Cost: linear in the rows; peeling takes a few hundred rounds of array operations.

>>> rows = [["a", "b", "c"]]
>>> table = HashedTable.of(rows, [CellType.TEXT], np.array([2, 0, 1]), count=3, check_bits=8)
>>> table.classes(rows, [CellType.TEXT]).tolist(), table.classes([["d"]], [CellType.TEXT]).tolist()
([2, 0, 1], [-1])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.read.cells import CellType
from byheart.errors import BuildError, OptionError

Whole = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

SLOTS = 4  # of a row
STREAMS = 4  # hashes of a row: its segment, two pairs of slots, its check
OFFSET_BITS = 15  # of a slot in its segment; two of them fit into a hash of several cells
MOST_BITS = 48  # of a slot: shifted inside a byte it still fits an int64
# Check bits beside a label in one slot.
MOST_CHECK_BITS = 30
PRIME = (1 << 31) - 1  # bounds hashes of several cells
_SEEDS = 64  # tried in turn; one fails for a few percent of small tables
_WORD = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, eq=False)
class HashedTable:
    """The array, and how it is read.

    Attributes:
        seed: Of the first hash; the others have the numbers after it.
        columns: Cells of a row.
        segments: Segments in which a row's first slot can lie.
        segment: Slots of a segment, a power of two.
        count: How many classes there are.
        check_bits: High bits of a value, which recognise unknown rows.
        packed: The slots, `bits` bits each, the lowest bit first, padded for the last read.
    """

    seed: int
    columns: int
    segments: int
    segment: int
    count: int
    check_bits: int
    packed: Bytes

    @staticmethod
    def of(
        columns: Sequence[Sequence[Any]], types: Sequence[CellType], classes: Whole, *, count: int, check_bits: int
    ) -> HashedTable:
        """Build the table of rows of cells, column by column.

        Args:
            columns: The cells; equal rows have equal classes.
            types: Of the columns, as the model takes them.
            classes: The class of every row.
            count: How many classes there are.
            check_bits: An unknown row gets a label once in 2^check_bits times.

        Returns:
            The table, whose every row has been read again.

        Raises:
            OptionError: `check_bits` is too large.
            BuildError: No seed separates the rows.
        """
        label_bits = (count - 1).bit_length()
        check_bits = max(check_bits, count == 1)  # a slot has at least one bit
        most = min(MOST_CHECK_BITS, MOST_BITS - label_bits)
        if not 0 <= check_bits <= most:
            raise OptionError(f"abstain_bits={check_bits}: a hashed lookup of {count:,} labels has 0 to {most}")
        for seed in range(0, STREAMS * _SEEDS, STREAMS):
            hashes = row_hashes(columns, types, seed)
            kept = np.unique(hashes, axis=0, return_index=True)[1]
            segments, segment = _shape(len(kept), seed // STREAMS)
            empty = HashedTable(seed, len(types), segments, segment, count, check_bits, np.zeros(0, np.uint8))
            values = classes[kept] | (hashes[kept, 3] & ((1 << check_bits) - 1)) << label_bits
            contents = _solve(empty.slots(hashes[kept]), values, empty.size)
            if contents is None:
                continue
            found = HashedTable(
                seed, len(types), segments, segment, count, check_bits, _packed(contents, label_bits + check_bits)
            )
            if (found._read(hashes) == classes).all():  # else two rows of different classes have one hash
                return found
        raise BuildError(f"{_SEEDS} seeds left rows that no hash separates; choose --unknown exact")

    @property
    def label_bits(self) -> int:
        """Low bits of a value: the class."""
        return (self.count - 1).bit_length()

    @property
    def bits(self) -> int:
        """Bits of a slot."""
        return self.label_bits + self.check_bits

    @property
    def size(self) -> int:
        """Slots of the array."""
        return (self.segments + SLOTS - 1) * self.segment

    @property
    def modulus(self) -> int:
        """Hashes are below it."""
        return 1 << 32 if self.columns == 1 else PRIME

    @property
    def read_bytes(self) -> int:
        """Bytes that contain one slot, wherever in a byte it begins."""
        return (self.bits + 14) // 8

    def slots(self, hashes: Whole) -> Whole:
        """The slots (rows, 4) of hashes (rows, 4)."""
        first = hashes[:, :1] * self.segments // self.modulus
        offsets = hashes[:, 1:3, None] // np.array([1, 1 << OFFSET_BITS]) & (self.segment - 1)
        return np.asarray((first + np.arange(SLOTS)) * self.segment + offsets.reshape(-1, SLOTS))

    def classes(self, columns: Sequence[Sequence[Any]], types: Sequence[CellType]) -> Whole:
        """The class of every row of cells; -1 for an unknown one."""
        return self._read(row_hashes(columns, types, self.seed))

    def _read(self, hashes: Whole) -> Whole:
        first = self.slots(hashes) * self.bits
        parts = self.packed[(first >> 3)[:, :, None] + np.arange(self.read_bytes)].astype(np.int64)
        contents = (parts << 8 * np.arange(self.read_bytes)).sum(axis=2) >> (first & 7)
        value = np.bitwise_xor.reduce(contents, axis=1) & ((1 << self.bits) - 1)
        found = value & ((1 << self.label_bits) - 1)
        agrees = value >> self.label_bits == hashes[:, 3] & ((1 << self.check_bits) - 1)
        return np.where(agrees & (found < self.count), found, -1)


def table_bytes(rows: int, count: int, check_bits: int) -> int:
    """The bytes of the array for so many rows.

    >>> table_bytes(42_789, 62, 0) / 42_789 < 0.9
    True
    """
    segments, segment = _shape(rows, 0)
    return ((segments + SLOTS - 1) * segment * ((count - 1).bit_length() + check_bits) + 7) // 8


def multipliers(seed: int, columns: int) -> Whole:
    """What the hashes of several cells are multiplied by before they are added: the sum fits an int64."""
    return np.random.default_rng(seed).integers(1, (1 << 31) // columns, columns)


def row_hashes(columns: Sequence[Sequence[Any]], types: Sequence[CellType], seed: int) -> Whole:
    """The hashes (rows, 4) of rows of cells."""
    each = [_as_hashable(cells, type) for cells, type in zip(columns, types, strict=True)]
    found = []
    for stream in range(STREAMS):
        parts = [murmur3(cells, seed + stream) for cells in each]
        if len(parts) == 1:
            found.append(parts[0])
        else:
            scaled = zip(parts, multipliers(seed, len(parts)).tolist(), strict=True)
            found.append(sum(part * number for part, number in scaled) % PRIME)
    return np.stack(found, axis=1)


def murmur3(cells: list[bytes] | npt.NDArray[Any], seed: int) -> Whole:
    """MurmurHash3 (x86, 32 bits) of texts in UTF-8, or of numbers of 8 bytes.

    >>> murmur3([b"", b"abc"], 7).tolist()
    [415870660, 940791465]
    """
    if isinstance(cells, np.ndarray):
        data = np.ascontiguousarray(cells).view(np.uint8)
        lengths = np.full(len(cells), 8)
    else:
        data = np.frombuffer(b"".join(cells) + bytes(4), np.uint8)
        lengths = np.fromiter(map(len, cells), np.int64, len(cells))
    starts = np.cumsum(lengths) - lengths
    state = np.full(len(lengths), seed, np.uint64)
    # Longer cells first: block k exists for a beginning of this order.
    order = np.argsort(-lengths, kind="stable")
    ascending = -lengths[order]
    for block in range(int(lengths.max(initial=0)) // 4):
        rows = order[: np.searchsorted(ascending, -4 * (block + 1), side="right")]
        word = _word(data, starts[rows] + 4 * block, np.full(len(rows), 4))
        mixed = _rotated(state[rows] ^ _scrambled(word), 13)
        state[rows] = mixed * np.uint64(5) + np.uint64(0xE6546B64) & _WORD
    state ^= _scrambled(_word(data, starts + lengths // 4 * 4, lengths % 4))
    state ^= lengths.astype(np.uint64)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state ^= state >> np.uint64(shift)
        state = state * np.uint64(factor) & _WORD
    return (state ^ state >> np.uint64(16)).astype(np.int64)


def _word(data: Bytes, starts: Whole, lengths: Whole) -> npt.NDArray[np.uint64]:
    """Up to four bytes from each start on, the first one lowest."""
    found = np.zeros(len(starts), np.uint64)
    for k in range(4):
        there = lengths > k
        found[there] |= data[starts[there] + k].astype(np.uint64) << np.uint64(8 * k)
    return found


def _rotated(word: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (word << np.uint64(bits) | word >> np.uint64(32 - bits)) & _WORD


def _scrambled(word: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    return _rotated(word * np.uint64(0xCC9E2D51) & _WORD, 15) * np.uint64(0x1B873593) & _WORD


def _as_hashable(cells: Sequence[Any], type: CellType) -> list[bytes] | npt.NDArray[Any]:
    """Cells as the graph hashes them: equal numbers have equal bytes."""
    if type is CellType.TEXT:
        return [(cell or "").encode() for cell in cells]
    if type is CellType.NUMBER:
        numbers = np.array([math.nan if cell is None else cell for cell in cells], np.float64)
        return np.where(np.isnan(numbers), math.nan, np.where(numbers == 0, 0.0, numbers))
    return np.array(cells, dtype=np.int64)


def _shape(rows: int, attempt: int) -> tuple[int, int]:
    """Segments and the slots of one, with a little more room after every attempt that failed.

    The paper's formulas for four slots per row, with less room at first: measured from 10 to 10^6 rows, peeling
    succeeds within a few attempts.
    """
    rows = max(rows, 2)
    segment = min(1 << int(math.log(rows) / math.log(2.91) - 0.5), 1 << OFFSET_BITS)
    segment = max(segment, 4)
    factor = max(1.06, 0.68 + 0.305 * math.log(600_000) / math.log(rows)) + attempt / 100
    return max(1, math.ceil(rows * factor / segment) - SLOTS + 1), segment


def _solve(slots: Whole, values: Whole, size: int) -> Whole | None:
    """Contents of the array whose XOR over each row's slots is its value; None if peeling stops early."""
    rows = len(slots)
    degree = np.bincount(slots.ravel(), minlength=size)
    touching = np.zeros(size, np.int64)  # the XOR of the rows that touch a slot: the row itself where it is one
    np.bitwise_xor.at(touching, slots.ravel(), np.repeat(np.arange(rows), SLOTS))
    rounds = []
    free = np.flatnonzero(degree == 1)
    while len(free):
        taken, first = np.unique(touching[free], return_index=True)
        rounds.append((taken, free[first]))
        theirs = slots[taken].ravel()
        np.subtract.at(degree, theirs, 1)
        np.bitwise_xor.at(touching, theirs, np.repeat(taken, SLOTS))
        candidates = np.unique(theirs)
        free = candidates[degree[candidates] == 1]
    if sum(len(taken) for taken, _ in rounds) < rows:
        return None
    # A row's own slot belongs to no row of its round or of later ones, so rounds are undone from the last.
    contents = np.zeros(size, np.int64)
    for taken, own in reversed(rounds):
        contents[own] = values[taken] ^ np.bitwise_xor.reduce(contents[slots[taken]], axis=1)
    return contents


def _packed(contents: Whole, bits: int) -> Bytes:
    """The low `bits` of every number, one after the other; a few bytes more, so that each read finds its bytes."""
    each = np.empty((len(contents), bits), np.uint8)
    for bit in range(bits):
        each[:, bit] = contents >> bit & 1
    return np.concatenate([np.packbits(each.ravel(), bitorder="little"), np.zeros(7, np.uint8)])
