"""Numbers of a few thousand bits as rows of 64-bit words (lowest first), added and multiplied modulo the row.

Factors are kept in 32-bit limbs, so that a product of two limbs fits one word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from byheart.build.fold._kernel import kernel

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

ONE = np.uint64(1)
ZERO = np.uint64(0)
W63 = np.uint64(63)
EVEN = np.uint64(0x5555555555555555)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def pack(values: Sequence[int], bits: int, count: int) -> Words:
    """`values` modulo 2^(bits·count) as rows of `count` digits of `bits` (32 or 64) bits each."""
    size = bits * count // 8
    mask = (1 << (8 * size)) - 1
    raw = b"".join((v & mask).to_bytes(size, "little") for v in values)
    dtype = np.dtype("<u8") if bits == 64 else np.dtype("<u4")
    return np.frombuffer(raw, dtype=dtype).reshape(len(values), count).astype(np.uint64)


def unpack(row: Words) -> int:
    """The number in a row of 64-bit words."""
    return int.from_bytes(np.ascontiguousarray(row, dtype="<u8").tobytes(), "little")


@kernel
def whole(v: np.uint64) -> int:
    """A word as a signed number: numba makes floats of sums of signed and unsigned ones."""
    return np.int64(v)  # type: ignore[return-value]


@kernel
def parity(v: int) -> int:
    v ^= v >> 32
    v ^= v >> 16
    v ^= v >> 8
    v ^= v >> 4
    v ^= v >> 2
    v ^= v >> 1
    return v & 1


@kernel
def ones(v: np.uint64) -> int:
    """Number of ones of a 64-bit word."""
    v = v - ((v >> ONE) & EVEN)
    v = (v & np.uint64(0x3333333333333333)) + ((v >> np.uint64(2)) & np.uint64(0x3333333333333333))
    v = (v + (v >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((v * np.uint64(0x0101010101010101)) >> np.uint64(56))  # type: ignore[return-value]


@kernel
def digit(row: Words, q: int, length: int) -> int:
    """Bits [q, q + length) of a row, length <= 62; bits beyond the row are zero."""
    i = q >> 6
    s = np.uint64(q & 63)
    v = row[i] >> s if i < len(row) else ZERO
    if s > ZERO and i + 1 < len(row):
        v |= row[i + 1] << (np.uint64(64) - s)
    return np.int64(v & ((ONE << np.uint64(length)) - ONE))  # type: ignore[return-value]


@kernel
def copy_row(source: Words, target: Words) -> None:
    for i in range(len(source)):
        target[i] = source[i]


@kernel
def add_at(row: Words, value: np.uint64, q: int) -> None:
    """row += value · 2^q."""
    i = q >> 6
    s = np.uint64(q & 63)
    low = value << s
    high = value >> (np.uint64(64) - s) if s > ZERO else ZERO
    while i < len(row) and (low != ZERO or high != ZERO):
        total = row[i] + low
        row[i] = total
        carry = ONE if total < low else ZERO
        low = high + carry  # high < 2^63 on entry, so this does not overflow
        high = ZERO
        i += 1


@kernel
def add_product(row: Words, limbs: Words, used: int, factor: Words) -> None:
    """row += limbs · factor, both in 32-bit limbs; only the first `used` of `limbs` are not zero."""
    for k in range(used):
        if limbs[k] != ZERO:
            for j in range(2 * len(row) - k):
                if factor[j] != ZERO:
                    add_at(row, factor[j] * limbs[k], 32 * (j + k))


@kernel
def add_scaled(row: Words, limbs: Words, used: int, factor: int, q: int) -> None:
    """row += limbs · factor · 2^q for a small factor."""
    for k in range(used):
        add_at(row, limbs[k] * np.uint64(factor), q + 32 * k)


@kernel
def count_section(row: Words, start: int, stop: int) -> tuple[int, int]:
    """(ones at even places, ones at odd places) among the bits [start, stop)."""
    even = 0
    odd = 0
    for i in range(start >> 6, (stop + 63) >> 6):
        v = row[i]
        if i == start >> 6:
            v &= ALL << np.uint64(start & 63)
        if i == stop >> 6:
            v &= (ONE << np.uint64(stop & 63)) - ONE
        even += ones(v & EVEN)
        odd += ones(v & ~EVEN)
    return even, odd


@kernel
def draw(state: Words) -> np.uint64:
    """The next number of a splitmix64 generator whose state is `state[0]`."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    v = state[0]
    v = (v ^ (v >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    v = (v ^ (v >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    v ^= v >> np.uint64(31)
    return np.uint64(v)
