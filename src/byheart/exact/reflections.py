"""Chains of folds on one number: blocks of one unit that either leave a value alone or reflect it.

x + o·relu(w·x + b) + s with o·w = -2 is x + s, or o·b + s - x where w·x + b > 0. A long chain of such blocks needs no
multiplication at all, so every input runs through all of them at once, limb by limb, in the nearest cache: some
nanoseconds per fold, where the engine for any block needs some hundred. Exact like the other engines.

The invariant in the loop: `v` is the number in 56-bit limbs, the last one signed, and all limbs from `size` on are 0. A
negative number has `size` = all limbs, because its sign is in the last one. The number of limbs is chosen beforehand
for the largest value that any order of folds could make, so nothing overflows. A fold costs a comparison from the top,
which mostly ends at the first limb, and one subtraction of `size` limbs if it reflects.

>>> fold = Block(rows1=(((0, 2),),), bias1=(-10,), rows2=(((0, -1),),), bias2=(0,))     # above 5: 10 - x
>>> run([fold], Values.of([[3], [7], [12]])).numerators[:, 0].tolist()
[3, 3, -2]
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.exact.budget import meter
from byheart.exact.compiled import compiled
from byheart.exact.number import Values
from byheart.exact.reference import Block

# Bits of a limb.
LIMB = 56
MASK = (1 << LIMB) - 1
# Numbers at a time. Tuned by hand.
LANES = 4096
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Chain:
    """Folds in limbs, for numbers of at most `largest` over `denominator`: prepared once, used for many numbers."""

    size: int  # limbs
    arrays: tuple[npt.NDArray[Any], ...]

    @staticmethod
    def of(steps: Sequence[Block], denominator: int, largest: int) -> Chain:
        folds = [_fold(step, denominator) for step in steps]
        most = largest + sum(abs(c) + abs(s) for _, c, s, _ in folds)
        size = max(most, *(abs(t) for t, _, _, _ in folds)).bit_length() // LIMB + 1
        limit = meter()
        if limit is not None:
            limit.hold(8 * size * (3 * len(folds) + LANES * (os.cpu_count() or 1)))
        arrays = (
            *_padded([t for t, _, _, _ in folds], size),
            *_padded([c for _, c, _, _ in folds], size),
            _padded([s for _, _, s, _ in folds], size)[0],
            np.array([s != 0 for _, _, s, _ in folds]),
            np.array([r for _, _, _, r in folds]),
        )
        return Chain(size, arrays)

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        """Where the folds send these numerators.

        >>> fold = Block(rows1=(((0, 2),),), bias1=(-10,), rows2=(((0, -1),),), bias2=(0,))
        >>> Chain.of([fold], denominator=1, largest=12)([7, 12])
        [3, -2]
        """
        z = _limbs(numbers, self.size)
        reflect(z, *self.arrays)
        return _numbers(z)


def run(steps: Sequence[Block], values: Values) -> Values:
    """Every number of the one channel of `values` through a chain of reflecting blocks."""
    numbers = values.numerators[:, 0]
    chain = Chain.of(steps, values.denominator, max(abs(int(numbers.max())), abs(int(numbers.min()))))
    parts = [numbers[start : start + LANES].tolist() for start in range(0, len(numbers), LANES)]
    out = np.empty((len(numbers), 1), dtype=object)
    with ThreadPoolExecutor(min(os.cpu_count() or 1, max(1, len(parts)))) as pool:
        for k, found in enumerate(pool.map(chain, parts)):
            out[k * LANES : k * LANES + len(found), 0] = found
    return Values(out, values.denominator)


def _fold(step: Block, den: int) -> tuple[int, int, int, bool]:
    """(place, constant, shift, rising): from `place` on (or below it), X becomes constant - X, else X + shift."""
    w, o, b, s = (int(v) for v in (step.rows1[0][0][1], step.rows2[0][0][1], step.bias1[0], step.bias2[0]))  # type: ignore[arg-type]
    place = -b * den // w + 1 if w > 0 else -(-b * den // -w)
    return place, (o * b + s) * den, s * den, w > 0


def _padded(numbers: list[int], size: int) -> tuple[Ints, Ints]:
    """(limbs, how many of them are needed): all of them for a negative number."""
    needed = [size if v < 0 else -(-v.bit_length() // LIMB) for v in numbers]
    return _limbs(numbers, size), np.array(needed, np.int64)


def _limbs(numbers: Sequence[int], size: int) -> Ints:
    """(count, size) of 56 bits, the last one signed."""
    width = 7 * size
    raw = np.frombuffer(b"".join(v.to_bytes(width, "little", signed=True) for v in numbers), np.uint8)
    padded = np.zeros((len(numbers), size, 8), np.uint8)
    padded[:, :, :7] = raw.reshape(len(numbers), size, 7)
    found = padded.view(np.int64)[:, :, 0].copy()
    found[:, -1] -= (found[:, -1] >> (LIMB - 1)) << LIMB
    return found


def _numbers(limbs: Ints) -> list[int]:
    width = 7 * limbs.shape[1]
    data = np.ascontiguousarray(limbs & MASK).view(np.uint8).reshape(len(limbs), limbs.shape[1], 8)[:, :, :7].tobytes()
    return [int.from_bytes(data[i : i + width], "little", signed=True) for i in range(0, len(data), width)]


@compiled
def reflect(
    z: Any, place: Any, place_size: Any, constant: Any, constant_size: Any, shift: Any, shifted: Any, rising: Any
) -> None:  # pragma: no cover - compiled
    """All folds for one number after the other. Limbs from `size` on are 0; a negative number has all of them."""
    limbs = z.shape[1]
    for j in range(z.shape[0]):
        v = z[j]
        size = limbs
        while size > 0 and v[size - 1] == 0:
            size -= 1
        if v[limbs - 1] < 0:
            size = limbs
        for f in range(place.shape[0]):
            # Compare v with the fold's threshold, from the highest limb in use: k is where they differ.
            k = max(size, place_size[f]) - 1
            while k >= 0 and v[k] == place[f, k]:
                k -= 1
            carry = 0
            if (k < 0 or v[k] > place[f, k]) == rising[f]:
                top = max(size, constant_size[f])
                for k in range(top):
                    t = constant[f, k] - v[k] + carry
                    v[k] = t & MASK
                    carry = t >> LIMB
                if carry < 0 and top < limbs:  # negative: the borrow runs through all limbs above
                    for k in range(top, limbs):
                        v[k] = MASK
                    carry = -1
            elif shifted[f]:
                top = limbs
                for k in range(limbs):
                    t = v[k] + shift[f, k] + carry
                    v[k] = t & MASK
                    carry = t >> LIMB
            else:
                continue
            if carry < 0:  # the mask made the last limb positive; its sign is restored
                v[limbs - 1] -= 1 << LIMB
                size = limbs
            else:
                size = top
                while size > 0 and v[size - 1] == 0:
                    size -= 1
