"""Codes of tokens: numbers phi(t) whose sums distinguish rows, and the blocks that compute them.

A token (with its position) is one number t = weights · vector + bias on a line. Sums of t itself often do. Where they
do not, one of three kinds of blocks makes codes of t:

- **Bends** (4 parameters each, the usual kind). A bend at T keeps values below T and reflects values above it
  with a separate slope: h <- T - s·(h - T), s a random number between 1/2 and 3/2. F bends split the line into
  up to 2^F pieces, and the slope of a piece is the product of the s of its bends. With positions on, the line has one
  stretch per position, so log2 n bends in the middle give every position a separate factor: the sum over a row is
  then a random linear form of its tokens, which distinguishes rows with the same tokens in another order.
- **Folds** (4 parameters each): s = 1, at the highest binary digits of a multiple of t, with random offsets. For
  prefixes, and for memories that refuse: all digits are folded, so that inputs outside the data get distinct codes.
- **A table** (3 parameters a token): random values for few tokens, or where depth counts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from byheart.build.fold.block import StreamBlock, interpolate
from byheart.data.dataset.dataset import Dataset
from byheart.errors import BuildError
from byheart.exact import Number, dyadic

SPREADS = (*range(2, 34, 2), 42, 66, 130)  # random bits multiplied to the token
# Random bits that a thorough search multiplies in at least. Tuned by hand.
THOROUGH = 10
# Bits of a hashed number beyond its width, so that distinct numbers stay distinct. Tuned by hand.
GUARD = 4
SLOPE_BITS = 6  # of a bend's slope, at least, in the first sample
# Bends of a line that are tried before folds. Tuned by hand.
MOST_BENDS = 12
# Bits of a machine word in which sums are safe; longer numbers are Python ints.
SAFE_BITS = 62


@dataclass(frozen=True, eq=False)
class TokenLine:
    """Tokens as distinct integers t = weights · vector + bias >= 0 below 2^bits."""

    weights: tuple[int, ...]
    bias: int
    values: Any  # one per point of the data: words where they fit, else Python ints

    @cached_property
    def bits(self) -> int:
        return max(1, int(self.values.max()).bit_length())

    @cached_property
    def order(self) -> Any:
        """The points, ascending."""
        return np.argsort(self.values, kind="stable")


def token_line(dataset: Dataset, rng: random.Random) -> TokenLine:
    """Symbols (with positions) are numbered, lone numbers are themselves, and vectors are projected at random."""
    points = dataset.inputs.points
    if dataset.encoder.symbols is not None:
        weights = (1, len(dataset.encoder.symbols) + 1)[: points.width]
        return TokenLine(weights, 0, sum(_words(points.numerators[:, k]) * w for k, w in enumerate(weights)))
    lone = _lone_column(points.numerators)
    if lone is not None:
        return _lone_numbers(points.numerators[:, lone].tolist(), lone, points.width, points.denominator)
    for bits in range(2, 400):
        drawn = [rng.getrandbits(bits) - (1 << (bits - 1)) for _ in range(points.width)]
        values = points.numerators @ np.array(drawn, dtype=object)
        if len(set(values.tolist())) == len(values):
            least = min(values.tolist())
            weights = tuple(a * points.denominator for a in drawn)
            return TokenLine(weights, -least, _words(values - least))
    raise BuildError(f"{points.count} vectors were not separated by 400 projections; try another seed")


def _lone_column(numerators: Any) -> int | None:
    """The only coordinate in which vectors differ (the position of lone tokens is always the same), if there is one."""
    varying = [k for k in range(numerators.shape[1]) if (numerators[:, k] != numerators[0, k]).any()]
    return varying[0] if len(varying) == 1 else None


def _lone_numbers(numbers: list[int], column: int, width: int, denominator: int) -> TokenLine:
    """Numbers as they are, or mirrored where that puts the denser half first.

    The label memory goes through ids from below. At ever larger distances (powers of two) each group has few digits of
    its own; at ever smaller ones every group would have those of all before it.
    """
    ordered = sorted(numbers)
    sign = 1 if 2 * ordered[len(ordered) // 2] <= ordered[0] + ordered[-1] else -1
    least = min(sign * ordered[0], sign * ordered[-1])
    weights = [0] * width
    weights[column] = sign * denominator
    return TokenLine(tuple(weights), -least, _words(np.array([sign * v - least for v in numbers], dtype=object)))


def _words(numbers: Any) -> Any:
    """The same numbers as words, where sums of some of them fit as well."""
    if numbers.dtype != object or not numbers.size:
        return numbers
    try:
        words = numbers.astype(np.int64)
    except OverflowError:
        return numbers
    return words if max(int(words.max()), -int(words.min())).bit_length() <= SAFE_BITS // 2 else numbers


@dataclass(frozen=True)
class Codes:
    """E_in multiplies by `scale`, the blocks follow, and `values` are their outputs for every point: none negative."""

    scale: int
    blocks: tuple[StreamBlock, ...]
    values: Any


@dataclass(frozen=True)
class Draft:
    """A kind of codes and its size: `count` bends or folds, or a table (0); `low` is the length of codes.

    For bends it is the length of a slope, for folds how many bits stay below them, for a table the length of a value.
    """

    kind: str  # "plain", "bends", "folds" or "table"
    count: int
    low: int
    extra: int = 0  # first bends whose slopes are a bit longer: bends lengthen codes by their number, these by one each
    factor: int = 0  # attention's factor is sampled from this to twice this

    def parameters(self, line: TokenLine) -> int:
        return 3 * len(line.values) + 1 if self.kind == "table" else 4 * self.count

    def least_bits(self, line: TokenLine) -> int:
        """Bits that codes have at least."""
        if self.kind == "table":
            return 1
        return line.bits + (2 - self.count if self.kind == "folds" else 0)

    def draw(self, line: TokenLine, rng: random.Random) -> Codes:
        return {"plain": _plain, "bends": _bends, "folds": _folds, "table": _table}[self.kind](self, line, rng)


def _plain(draft: Draft, line: TokenLine, rng: random.Random) -> Codes:
    return Codes(1, (), line.values)


def _bends(draft: Draft, line: TokenLine, rng: random.Random) -> Codes:
    """Bends in the middle of the values, or near it.

    Before a bend the stream is a whole number h times 2 to the power of the lengths of all slopes to come: a bend
    divides its slope m by 2^k, so that all codes are whole.
    """
    lengths = [draft.low + (j < draft.extra) for j in range(draft.count)]
    long = line.bits + sum(lengths) + 2 * len(lengths) > SAFE_BITS
    h = line.values.astype(object if long else np.int64)
    blocks = []
    for j, k in enumerate(lengths):
        lowest, highest = int(h.min()), int(h.max())
        eighth = (highest - lowest) // 8
        place = (lowest + highest) // 2 + (rng.randint(-eighth, eighth) if rng.getrandbits(1) else 0)
        m = (1 << (k - 1)) + rng.getrandbits(k) | 1
        h = np.where(h > place, (place << k) - m * (h - place), h << k)
        blocks.append(StreamBlock(((1, -(place << sum(lengths[j:])), dyadic(-(1 << k) - m, -k)),)))
    return _lifted(1 << sum(lengths), blocks, h)


def _folds(draft: Draft, line: TokenLine, rng: random.Random) -> Codes:
    top = draft.low + draft.count
    offset = max(1, draft.low - GUARD)
    places = [(1 << p) + rng.getrandbits(offset) for p in range(top - 1, draft.low - 1, -1)]
    length = top - line.bits
    scale = rng.getrandbits(length) | 1 | (1 << (length - 1))  # all low bits random, not only the offsets'
    h = line.values.astype(np.int64 if top + 2 <= SAFE_BITS else object) * scale
    for place in places:
        h = np.where(h > place, 2 * place - h, h)
    return _lifted(scale, [StreamBlock(((1, -place, -2),)) for place in places], h)


def _table(draft: Draft, line: TokenLine, rng: random.Random) -> Codes:
    blocks = interpolate(line.values[line.order].tolist(), [rng.getrandbits(draft.low) for _ in line.order])
    codes = np.empty(len(line.values), dtype=object)
    codes[line.order] = _interpolated(blocks[0], line.values[line.order].tolist())
    return Codes(1, blocks, codes)


def _lifted(scale: int, blocks: Sequence[StreamBlock], h: Any) -> Codes:
    """Lift negative values by the last block's own bias."""
    lowest = min(0, int(h.min()))
    return Codes(scale, (*blocks[:-1], replace(blocks[-1], shift=-lowest)), h - lowest)


def _interpolated(block: StreamBlock, ordered: list[int]) -> list[int]:
    """A wide block on ascending inputs, its units taken in as their kinks are passed."""
    slope: Number = 1
    constant, k = block.shift, 0
    found = []
    kinks = list(block.units)
    for h in ordered:
        while k < len(kinks) and kinks[k][0] * h + kinks[k][1] > 0:
            w, b, out = kinks[k]
            slope, constant, k = slope + out * w, constant + out * b, k + 1
        found.append(int(slope * h + constant))  # type: ignore[arg-type]
    return found


def drafts(line: TokenLine, width: int, *, shallow: bool, thorough: bool, bends: bool) -> Iterator[Draft]:
    """Cheapest first: no codes at all, then one bend or fold more at a time, or random values."""
    if not thorough:  # a longer factor costs nothing but length
        for bits in range(1, min(line.bits, 24) + 4):
            yield Draft("plain", 0, line.bits, factor=1 << bits)
    table = 3 * len(line.values) + 1
    if bends and not thorough and not shallow:
        for count in range(1, MOST_BENDS + 1):
            if table > 4 * count:
                yield Draft("bends", count, max(SLOPE_BITS, -(-(width + GUARD - line.bits) // count)))
    for folds, spread in _sizes(line.bits, thorough):
        if shallow or (table <= 4 * folds and not thorough):
            yield Draft("table", 0, width - 1)
        else:
            yield Draft("folds", folds, max(width + GUARD, 8 + line.bits + spread - folds))


def _sizes(bits: int, thorough: bool) -> Iterator[tuple[int, int]]:
    """(number of folds, random bits multiplied in) in ascending order of folds."""
    if not thorough:
        for folds in range(1, bits + SPREADS[0]):
            yield folds, SPREADS[0]
    for spread in SPREADS:
        if spread >= THOROUGH or not thorough:
            yield bits + spread, spread
