"""What the chains of a layout give for many ids at once: bucket numbers, hash rows, targets.

The kernel works on int64: every value of a chain is below 2^53.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from byheart.build.native.chain import Chain
from byheart.build.native.layout import Layout, Purpose

FEW_KEYS = 50_000  # per core
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Hashes:
    """Per key: its hash bits (packed, column (Kw-1)·w + p - 1), the number of ones, and its fresh bits."""

    rows: Words  # (K, words of 64 columns)
    ones: Ints  # (K,) sum of all level bits, level 0 included
    fresh: Words  # (K,) bit t: fresh bit of fingerprint t


def bucket_numbers(layout: Layout, chains: Sequence[Chain], ids: Ints) -> tuple[Ints, Ints]:
    """(g of every key, chain states afterwards); ids is (K, L)."""
    program = _program(layout, chains, {Purpose.WARMUP, Purpose.BUCKET})
    states = ids << np.array([chain.scale for chain in chains], dtype=np.int64)
    buckets = np.zeros(len(ids), dtype=np.int64)
    _in_parts(lambda part: _run_buckets(states[part], *program, buckets[part]), len(ids))
    return buckets, states


def hash_rows(layout: Layout, chains: Sequence[Chain], states: Ints) -> Hashes:
    """The remaining bits, from the states that `bucket_numbers` left; the states are used up."""
    program = _program(layout, chains, {Purpose.LEVEL, Purpose.FRESH})
    rows = np.zeros((len(states), (layout.capacity + 63) // 64), dtype=np.uint64)
    ones = np.zeros(len(states), dtype=np.int64)
    fresh = np.zeros(len(states), dtype=np.uint64)
    _in_parts(lambda part: _run_rows(states[part], *program, rows[part], ones[part], fresh[part]), len(states))
    return Hashes(rows, ones, fresh)


def _in_parts(run: Callable[[slice], None], count: int) -> None:
    """Every key by itself, so on all cores where there are enough keys: the kernels release the interpreter lock."""
    workers = min(os.cpu_count() or 1, max(1, count // FEW_KEYS))
    cuts = [count * k // workers for k in range(workers + 1)]
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    if workers == 1:
        run(parts[0])
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, parts))


def _program(layout: Layout, chains: Sequence[Chain], purposes: set[Purpose]) -> tuple[Ints, Ints, Ints, Ints]:
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


def _kernel(function: Any) -> Any:
    return numba.njit(cache=True, nogil=True)(function)


@_kernel
def _run_buckets(
    states: Any, chain: Any, threshold: Any, rescale: Any, where: Any, buckets: Any
) -> None:  # pragma: no cover - compiled
    for key in range(states.shape[0]):
        bucket = 0
        for i in range(chain.shape[0]):
            z = states[key, chain[i]]
            if z > threshold[i]:
                z = 2 * threshold[i] - z
                if where[i] >= 0:
                    bucket |= 1 << where[i]
            states[key, chain[i]] = z << rescale[i]
        buckets[key] = bucket


@_kernel
def _run_rows(
    states: Any, chain: Any, threshold: Any, rescale: Any, where: Any, rows: Any, ones: Any, fresh: Any
) -> None:  # pragma: no cover - compiled
    one = np.uint64(1)
    for key in range(states.shape[0]):
        count = 0
        for i in range(chain.shape[0]):
            z = states[key, chain[i]]
            if z > threshold[i]:
                z = 2 * threshold[i] - z
                at = where[i]
                if at >= 0:
                    rows[key, at >> 6] |= one << np.uint64(at & 63)
                if at >= -1:
                    count += 1
                else:
                    fresh[key] |= one << np.uint64(-2 - at)
            states[key, chain[i]] = z << rescale[i]
        ones[key] = count
