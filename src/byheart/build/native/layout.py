"""The shape of a label memory: stream, rounds of the chains, and the cost.

The stream is (z_0 … z_{L-1}, g, u_{t,w}): L hash chains, the bucket number, and one word for every label bit t and
every w < Z. A round is one residual block in which every chain steps at most once.

How a label is read: warm-up rounds stir the chains, the next hash bits make the bucket number g, a selector of blocks
(one unit per bucket) writes bucket g's solution U into the words, the scan reads one hash bit per level and leaves the
parity of U & h(x) in a word's low bits, and the readout folds everything else away (`memory` has the formulas). More
buckets mean a larger selector, more levels a longer scan. `plan` weighs the two with the counts given here, and a test
compares these counts with the blocks that are built.

    >>> layout = Layout(FLOAT64, label_bits=1, fingerprint_bits=0, bucket_bits=8, words=2, levels=33, chains=1,
    ...                 warmup=6)
    >>> layout.width, layout.capacity, len(layout.rounds)
    (4, 64, 80)

Float types are given as numbers:

>>> FLOAT64.mantissa, FLOAT32.mantissa
(53, 24)

Residual blocks are written unit by unit:

>>> block = residual(2, [Unit({0: 1}, -3, {1: 2})], {0: 5})
>>> block.weight1.dense(), block.bias1, block.weight2.dense(), block.bias2
([[1, 0]], (-3,), [[0], [2]], (5, 0))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import isqrt

from byheart.errors import OptionError
from byheart.exact import Number
from byheart.ir.layers import Matrix, Residual


@dataclass(frozen=True)
class FloatType:
    """A binary float type: integers up to 2^mantissa are exact."""

    name: str
    mantissa: int

    @property
    def longest_word(self) -> int:
        """The most scan levels of one word: Kw with Kw + G + 2 <= mantissa, so that a fold never rounds."""
        levels = 2
        while levels + 1 + guard_bits(levels + 1) + 2 <= self.mantissa:
            levels += 1
        return levels


def guard_bits(levels: int) -> int:
    """G: space below a word's bits for the sum of `levels` hash bits and its sign.

    >>> guard_bits(44)
    7
    """
    return levels.bit_length() + 1


FLOAT64 = FloatType("float64", 53)
FLOAT32 = FloatType("float32", 24)


def float_type(name: str) -> FloatType:
    """The type called `name`."""
    for kind in (FLOAT64, FLOAT32):
        if kind.name == name:
            return kind
    raise OptionError(f"dtype {name!r} is not one of float64, float32")


@dataclass(frozen=True)
class Unit:
    """One hidden unit: relu(sum reads·stream + bias), added to the stream with the weights `writes`."""

    reads: Mapping[int, Number]
    bias: Number
    writes: Mapping[int, Number]


def residual(width: int, units: Sequence[Unit], bias: Mapping[int, Number] | None = None) -> Residual:
    """The block of these units on a stream of `width` numbers; `bias` is its b2 where not zero."""
    columns: list[dict[int, Number]] = [{} for _ in range(width)]
    for place, unit in enumerate(units):
        for channel, weight in unit.writes.items():
            columns[channel][place] = weight
    return Residual(
        weight1=Matrix.of([unit.reads for unit in units], width),
        bias1=tuple(unit.bias for unit in units),
        weight2=Matrix.of(columns, len(units)),
        bias2=tuple((bias or {}).get(channel, 0) for channel in range(width)),
    )


def dense_parameters(width: int, hidden: int) -> int:
    """Entries of W1, b1, W2, b2 of a block."""
    return 2 * width * hidden + hidden + width


class Purpose(IntEnum):
    """The purpose of a hash bit."""

    WARMUP = 0  # nothing: the first bits of a sum of tokens are not uniform
    BUCKET = 1  # bit `index` of g
    LEVEL = 2  # level `index` of word `word`
    FRESH = 3  # fingerprint bit `index`


@dataclass(frozen=True)
class Step:
    """One step of one chain: `number` counts that chain's steps from 0."""

    chain: int
    number: int
    purpose: Purpose
    index: int = 0
    word: int = 0


@dataclass(frozen=True)
class Layout:
    """The numbers that fix a memory's shape.

    Notation: c + f = label_bits + fingerprint_bits, lg = bucket_bits, Z = words, Kw = levels, L = chains.
    `scale` is s of the chains (only its rescaling steps cost a unit), `clears` the words that must be cleared first.
    """

    kind: FloatType
    label_bits: int
    fingerprint_bits: int
    bucket_bits: int
    words: int
    levels: int
    chains: int
    warmup: int
    scale: int = 8

    @property
    def targets(self) -> int:
        """Label and fingerprint bits together."""
        return self.label_bits + self.fingerprint_bits

    @property
    def width(self) -> int:
        return self.chains + 1 + self.targets * self.words

    @property
    def bucket_channel(self) -> int:
        return self.chains

    def word_channel(self, target: int, word: int) -> int:
        return self.chains + 1 + target * self.words + word

    @property
    def buckets(self) -> int:
        return 1 << self.bucket_bits

    @property
    def capacity(self) -> int:
        """Keys that one bucket can hold: level 0 of a word carries no bit of U."""
        return self.words * (self.levels - 1)

    @property
    def guard(self) -> int:
        return guard_bits(self.levels)

    @property
    def selector_block(self) -> int:
        """Buckets per block of the selector: the largest Q with 2^(Kw-1)·(Q² + 2) <= 2^mantissa."""
        return max(1, isqrt((1 << max(0, self.kind.mantissa - self.levels + 1)) - 2))

    @property
    def readout_bits(self) -> int:
        """Bits of the largest sum of words after the scan."""
        return (self.words * ((1 << (self.guard - 1)) + self.levels + 1) + 2).bit_length()

    @cached_property
    def rounds(self) -> tuple[tuple[Step, ...], ...]:
        """Every block that steps a chain: warm-up, bucket bits, levels, fresh bits."""
        taken = [0] * self.chains
        rounds: list[tuple[Step, ...]] = []

        def add(wanted: list[tuple[Purpose, int, int]]) -> None:
            steps = []
            for chain, (purpose, index, word) in enumerate(wanted):
                steps.append(Step(chain, taken[chain], purpose, index, word))
                taken[chain] += 1
            rounds.append(tuple(steps))

        for _ in range(self.warmup):
            add([(Purpose.WARMUP, 0, 0)] * self.chains)
        for first in range(0, self.bucket_bits, self.chains):
            bits = range(first, min(first + self.chains, self.bucket_bits))
            add([(Purpose.BUCKET, self.bucket_bits - 1 - bit, 0) for bit in bits])
        for first in range(0, self.words, self.chains):
            words = range(first, min(first + self.chains, self.words))
            for level in range(self.levels - 1, -1, -1):
                add([(Purpose.LEVEL, level, word) for word in words])
        for first in range(0, self.fingerprint_bits, self.chains):
            add([(Purpose.FRESH, t, 0) for t in range(first, min(first + self.chains, self.fingerprint_bits))])
        return tuple(rounds)

    @property
    def selector_sizes(self) -> tuple[int, ...]:
        """Hidden sizes of the selector's blocks, from the top bucket down."""
        left, sizes = self.buckets - 1, []
        while left > 0:
            sizes.append(min(left, self.selector_block))
            left -= sizes[-1]
        return tuple(sizes)

    @property
    def hidden_sizes(self) -> list[int]:
        """The hidden size of every block, in order."""
        sizes, scan = [], []
        for steps in self.rounds:
            hidden = sum(2 + ((step.number + 1) % self.scale == 0) for step in steps)
            if steps[0].purpose in (Purpose.WARMUP, Purpose.BUCKET):
                sizes.append(hidden)
            else:
                scan.append(hidden + (self.targets * len(steps) if steps[0].purpose is Purpose.LEVEL else 0))
        readout = [self.targets * self.words] + [self.targets] * (self.readout_bits - 1)
        return [*sizes, *self.selector_sizes, *scan, *readout]

    @property
    def parameters(self) -> int:
        """Dense parameters of all blocks, without the token part."""
        return sum(dense_parameters(self.width, hidden) for hidden in self.hidden_sizes)
