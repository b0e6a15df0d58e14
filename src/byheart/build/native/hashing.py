"""The hash chain: folding an integer around an odd modulus yields one pseudo-random bit after another.

A chain keeps z = 2^e' · x with 0 <= x < M. Step i has the threshold θ = M·2^e and η = 2^e, e = s − i: with
r± = relu(z − θ ± η), z ← z − r₊ − r₋ folds z around θ and (r₊ − r₋)/(2η) is the bit [z > θ]. z/η is even and M odd,
so z is never nearer to θ than η. After s steps z is multiplied by 2^s and e starts again. Up to sign, step i
holds 2^i·x mod M: distinct ids never meet.

Why not multiply and take the remainder: a network has only sums and ReLUs. Folding at θ is a remainder up to sign, and
doubling is done by halving θ and η instead of doubling z, so that a step costs two units and no channel; only every
s-th step must rescale, with a third unit. η keeps the kink between two values that z can take, so that both units are
exact and their difference is exactly 0 or 2η.

    >>> chain = HashChain(modulus=13, scale=2)
    >>> [(f.threshold, f.margin, f.rescale) for f in (chain.fold(0), chain.fold(1), chain.fold(2))]
    [(26, 2, 0), (13, 1, 2), (26, 2, 0)]

`bucket_numbers` and `hash_rows` evaluate the chains of a layout for many ids at once: bucket numbers, hash rows,
targets. The kernel works on int64: every value of a chain is below 2^53.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.build.native.layout import Layout, Purpose, Unit
from byheart.errors import BuildError
from byheart.exact import Number, dyadic
from byheart.exact.compiled import compiled


@dataclass(frozen=True)
class Fold:
    """One step: threshold θ, margin η, and the power of two that z is multiplied with afterwards."""

    threshold: int
    margin: int
    rescale: int


@dataclass(frozen=True)
class HashChain:
    """z starts as x·2^scale with 0 <= x < modulus, an odd number."""

    modulus: int
    scale: int

    def __post_init__(self) -> None:
        if self.modulus % 2 == 0 or self.modulus < 3 or self.scale < 1:
            raise BuildError(f"a hash chain needs an odd modulus and bits to shift, not {self.modulus}, {self.scale}")

    def fold(self, step: int) -> Fold:
        """Step number `step`, counted from 0."""
        exponent = self.scale - 1 - step % self.scale
        return Fold(self.modulus << exponent, 1 << exponent, self.scale if exponent == 0 else 0)


def chain_scale(mantissa: int, modulus_bits: int) -> int:
    """The most shift that keeps a rescaling step exact: 4·M·2^s over the lattice 2 is at most 2^mantissa."""
    return mantissa - 1 - modulus_bits


def fold_units(fold: Fold, channel: int, bit: Mapping[int, int]) -> list[Unit]:
    """The units of one step on `channel`; the bit is added to the channels of `bit` with these weights."""
    scale = 1 << fold.rescale
    margin = fold.margin.bit_length()  # 1/(2η) = 2^-margin
    plus: dict[int, Number] = {c: dyadic(w, -margin) for c, w in bit.items()}
    minus: dict[int, Number] = {c: dyadic(-w, -margin) for c, w in bit.items()}
    units = [
        Unit({channel: 1}, fold.margin - fold.threshold, {**plus, channel: -scale}),
        Unit({channel: 1}, -fold.margin - fold.threshold, {**minus, channel: -scale}),
    ]
    if fold.rescale:
        units.append(Unit({channel: 1}, 0, {channel: scale - 1}))
    return units


FEW_KEYS = 50_000  # per core
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Hashes:
    """Per key: its hash bits (packed, column (Kw-1)·w + p - 1), the number of ones, and its fresh bits."""

    rows: Words  # (K, words of 64 columns)
    ones: Ints  # (K,) sum of all level bits, level 0 included
    fresh: Words  # (K,) bit t: fresh bit of fingerprint t


def bucket_numbers(layout: Layout, chains: Sequence[HashChain], ids: Ints) -> tuple[Ints, Ints]:
    """(g of every key, chain states afterwards); ids is (K, L)."""
    program = _program(layout, chains, {Purpose.WARMUP, Purpose.BUCKET})
    states = ids << np.array([chain.scale for chain in chains], dtype=np.int64)
    buckets = np.zeros(len(ids), dtype=np.int64)
    _in_parts(lambda part: _run_buckets(states[part], *program, buckets[part]), len(ids))
    return buckets, states


def hash_rows(layout: Layout, chains: Sequence[HashChain], states: Ints) -> Hashes:
    """The remaining bits, from the states that `bucket_numbers` left; the states are used up."""
    program = _program(layout, chains, {Purpose.LEVEL, Purpose.FRESH})
    rows = np.zeros((len(states), (layout.capacity + 63) // 64), dtype=np.uint64)
    ones = np.zeros(len(states), dtype=np.int64)
    fresh = np.zeros(len(states), dtype=np.uint64)
    _in_parts(lambda part: _run_rows(states[part], *program, rows[part], ones[part], fresh[part]), len(states))
    return Hashes(rows, ones, fresh)


def _in_parts(run: Callable[[slice], None], count: int) -> None:
    """Keys are independent, so all cores are used for many keys: the kernels release the interpreter lock."""
    workers = min(os.cpu_count() or 1, max(1, count // FEW_KEYS))
    cuts = [count * k // workers for k in range(workers + 1)]
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    if workers == 1:
        run(parts[0])
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, parts))


def _program(layout: Layout, chains: Sequence[HashChain], purposes: set[Purpose]) -> tuple[Ints, Ints, Ints, Ints]:
    """Chain, threshold, rescale and destination of every step, in order.

    Destinations: k >= 0 for column or bucket bit k, -1 for none, -2 - t for fresh bit t.
    """
    steps = []
    for step in (step for steps in layout.rounds for step in steps if step.purpose in purposes):
        fold = chains[step.chain].fold(step.number)
        where = -1
        if step.purpose is Purpose.BUCKET:
            where = step.index
        elif step.purpose is Purpose.LEVEL and step.index > 0:
            where = step.word * (layout.levels - 1) + step.index - 1
        elif step.purpose is Purpose.FRESH:
            where = -2 - step.index
        steps.append((step.chain, fold.threshold, fold.rescale, where))
    table = np.array(steps, dtype=np.int64).reshape(-1, 4)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy(), table[:, 3].copy()


LANES = 128  # keys that a kernel steps together: one loop without branches, which the compiler vectorises


@compiled
def _run_buckets(
    states: Any, chain: Any, threshold: Any, rescale: Any, where: Any, buckets: Any
) -> None:  # pragma: no cover - compiled
    held = np.zeros((states.shape[1], LANES), np.int64)
    found = np.zeros(LANES, np.int64)
    for first in range(0, states.shape[0], LANES):
        count = min(LANES, states.shape[0] - first)
        for lane in range(count):
            for k in range(states.shape[1]):
                held[k, lane] = states[first + lane, k]
        found[:] = 0
        for i in range(chain.shape[0]):
            z, bound, shift = held[chain[i]], threshold[i], rescale[i]
            bit = 1 << where[i] if where[i] >= 0 else 0
            for lane in range(LANES):
                above = z[lane] > bound
                found[lane] |= bit if above else 0
                z[lane] = (2 * bound - z[lane] if above else z[lane]) << shift
        for lane in range(count):
            buckets[first + lane] = found[lane]
            for k in range(states.shape[1]):
                states[first + lane, k] = held[k, lane]


@compiled
def _run_rows(
    states: Any, chain: Any, threshold: Any, rescale: Any, where: Any, rows: Any, ones: Any, fresh: Any
) -> None:  # pragma: no cover - compiled
    one, none = np.uint64(1), np.uint64(0)
    width = rows.shape[1]
    held = np.zeros((states.shape[1], LANES), np.int64)
    words = np.zeros((width + 1, LANES), np.uint64)  # the last one receives the fresh bits
    total = np.zeros(LANES, np.int64)
    for first in range(0, states.shape[0], LANES):
        count = min(LANES, states.shape[0] - first)
        for lane in range(count):
            for k in range(states.shape[1]):
                held[k, lane] = states[first + lane, k]
        words[:] = none
        total[:] = 0
        for i in range(chain.shape[0]):
            z, bound, shift, at = held[chain[i]], threshold[i], rescale[i], where[i]
            word, bit = words[width], none
            if at >= 0:
                word, bit = words[at >> 6], one << np.uint64(at & 63)
            elif at < -1:
                bit = one << np.uint64(-2 - at)
            counted = 1 if at >= -1 else 0
            for lane in range(LANES):
                above = z[lane] > bound
                word[lane] |= bit if above else none
                total[lane] += counted if above else 0
                z[lane] = (2 * bound - z[lane] if above else z[lane]) << shift
        for lane in range(count):
            for k in range(width):
                rows[first + lane, k] = words[k, lane]
            ones[first + lane] = total[lane]
            fresh[first + lane] = words[width, lane]
