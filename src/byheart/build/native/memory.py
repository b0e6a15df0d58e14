"""The label memory: solve every bucket, then write hash chain, selector, scan and readout as residual blocks.

Selector. g < m is the bucket. Units relu(g − j) for j = lo … hi−1 with the second differences of 2^G·U as weights add
2^G·(U_g − U_lo); the unit j = lo also does g −= relu(g − lo), which keeps every later term small.

Scan of a word, level p = Kw−1 … 0: u ← u − 2·relu(u − 2^(p+G)) + h. Folding strips bit p of U and turns the sign of
the sum added before, so that the residue below 2^G is S − 2·Σ U_p·h_p (S = Σ h), and its bit 1 is
parity(U & h) ⊕ bit1(S).

Readout. The words' residues are added and folded around 2^p + 1/2, which swaps 0↔1 and 2↔3 modulo 4; relu(· − 1) is
bit 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from byheart.build.native.hashing import HashChain, Ints, Words, bucket_numbers, fold_units
from byheart.build.native.layout import Layout, Purpose, Step, Unit, residual
from byheart.build.native.solve import Keys, solve_all
from byheart.exact import Number, dyadic
from byheart.ir.layers import Residual
from byheart.paper import Ref, implements


@dataclass(frozen=True)
class Refusal:
    """Why these chains do not store the data; another draw may."""

    reason: str
    alike: bool = False  # two contexts have one id


@dataclass(frozen=True, eq=False)
class BucketWords:
    """The words of every bucket: `words[j, t, w]` is U of bucket j for target t, bit p for level p."""

    words: Ints  # (m, targets, Z)
    largest_load: int


def store(
    layout: Layout, chains: Sequence[HashChain], ids: Ints, labels: Ints, executor: Executor | None = None
) -> BucketWords | Refusal:
    """Solve for the words that give every id (a row of L numbers) its label and all-zero fingerprints."""
    buckets, states = bucket_numbers(layout, chains, ids)
    loads = np.bincount(buckets, minlength=layout.buckets)
    largest = int(loads.max())
    if largest > layout.capacity:
        return Refusal(f"a bucket got {largest} keys, its capacity is {layout.capacity}")
    solution = solve_all(layout, chains, Keys(buckets, states, labels, loads), executor)
    if solution.singular >= 0:
        return Refusal(f"bucket {solution.singular} with {loads[solution.singular]} keys has no solution")
    return BucketWords(_words(layout, solution.bits), largest)


def _words(layout: Layout, bits: Words) -> Ints:
    """Packed columns -> one integer per word; column (Kw-1)·w + p - 1 is bit p of word w."""
    unpacked = np.unpackbits(bits.view(np.uint8), axis=2, bitorder="little")[:, :, : layout.capacity]
    parted = unpacked.reshape(*unpacked.shape[:2], layout.words, layout.levels - 1).astype(np.int64)
    return parted @ (np.int64(1) << np.arange(1, layout.levels, dtype=np.int64))


@implements(
    Ref("byheart", "float-native memory"),
    statement="K keys with c label bits are stored in about sqrt(K c) float64 weights, exact in every evaluation order",
    test="tests/build/native/test_memory.py",
)
def memory_blocks(layout: Layout, chains: Sequence[HashChain], stored: BucketWords) -> list[tuple[str, list[Residual]]]:
    """The blocks by stage. The stream starts as (x_l·2^s, 0, …, 0) and ends with the answer in the bucket channel."""
    hashing = [_chain_block(layout, chains, steps) for steps in layout.rounds if steps[0].purpose <= Purpose.BUCKET]
    scan = [_scan_block(layout, chains, steps, stored) for steps in layout.rounds if steps[0].purpose > Purpose.BUCKET]
    return [
        ("hash chain", hashing),
        ("bucket selector", _selector(layout, stored)),
        ("scan", scan),
        ("readout", _readout(layout)),
    ]


def _chain_block(layout: Layout, chains: Sequence[HashChain], steps: Sequence[Step]) -> Residual:
    units: list[Unit] = []
    for step in steps:
        bit = {layout.bucket_channel: 1 << step.index} if step.purpose is Purpose.BUCKET else {}
        units += fold_units(chains[step.chain].fold(step.number), step.chain, bit)
    return residual(layout.width, units)


def _selector(layout: Layout, stored: BucketWords) -> list[Residual]:
    words = stored.words.reshape(layout.buckets, -1)
    first = layout.word_channel(0, 0)
    blocks, high = [], layout.buckets - 1
    for size in layout.selector_sizes:
        low = high - size
        slopes = words[low + 1 : high + 1] - words[low:high]
        bends = np.diff(slopes, axis=0, prepend=np.zeros_like(slopes[:1])) << layout.guard
        units = []
        for j, bend in zip(range(low, high), bends.tolist(), strict=True):
            writes: dict[int, Number] = {first + a: w for a, w in enumerate(bend)}
            if j == low:
                writes[layout.bucket_channel] = -1
            units.append(Unit({layout.bucket_channel: 1}, -j, writes))
        bias: dict[int, Number] = {first + a: w << layout.guard for a, w in enumerate(words[0].tolist())}
        blocks.append(residual(layout.width, units, bias if low == 0 else None))
        high = low
    return blocks


def _scan_block(layout: Layout, chains: Sequence[HashChain], steps: Sequence[Step], stored: BucketWords) -> Residual:
    units: list[Unit] = []
    bias: dict[int, Number] = {}
    for step in steps:
        fold = chains[step.chain].fold(step.number)
        if step.purpose is Purpose.FRESH:
            units += fold_units(fold, step.chain, {layout.word_channel(layout.label_bits + step.index, 0): 2})
            continue
        channels = [layout.word_channel(t, step.word) for t in range(layout.targets)]
        units += fold_units(fold, step.chain, {channel: 1 for channel in channels})
        for t, channel in enumerate(channels):
            start = 0  # the offset 2^(G-1) enters with a word's first fold: the selector's lattice stays at 2^(G+1)
            if step.index == layout.levels - 1:
                start = 1 << (layout.guard - 1)
                if layout.buckets == 1:  # no selector: the only bucket's word enters here
                    start += int(stored.words[0, t, step.word]) << layout.guard
                bias[channel] = start
            units.append(Unit({channel: 1}, start - (1 << (step.index + layout.guard)), {channel: -2}))
    return residual(layout.width, units, bias)


def _readout(layout: Layout) -> list[Residual]:
    targets, words = range(layout.targets), range(layout.words)
    first = [layout.word_channel(t, 0) for t in targets]
    top = layout.readout_bits - 1
    together = [Unit({layout.word_channel(t, w): 1 for w in words}, _fold_at(top), {first[t]: -2}) for t in targets]
    copies = [Unit({layout.word_channel(t, w): 1}, 0, {first[t]: 1}) for t in targets for w in words[1:]]
    blocks = [residual(layout.width, together + copies)]
    for p in range(top - 1, 0, -1):
        blocks.append(residual(layout.width, [Unit({channel: 1}, _fold_at(p), {channel: -2}) for channel in first]))
    answer = [Unit({channel: 1}, -1, {layout.bucket_channel: 1 << t}) for t, channel in enumerate(first)]
    return [*blocks, residual(layout.width, answer)]


def _fold_at(p: int) -> Number:
    """The bias of a fold around 2^p + 1/2."""
    return dyadic(-(1 << (p + 1)) - 1, -1)
