"""The smallest memory of few ids with two labels: a zigzag that crosses zero where the label changes.

Only the sign is read, so a run of equal labels costs one unit, however many ids it has. Off the data set nothing is
queried, so the ids may be chosen: `few_runs` looks for weights under which equal labels are adjacent.

    >>> found = zigzag([1, 4, 6, 9, 12], [0, 0, 1, 0, 0])
    >>> found.runs, [found.block(x) + found.shift > 0 for x in (1, 4, 6, 9, 12)]
    (3, [False, False, True, False, False])

That order is searched by simulated annealing, a batch at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.build.fold.block import StreamBlock
from byheart.exact import Number, dyadic

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BATCH = 16  # proposals that are counted together
PATIENCE = 1  # proposals per step that is requested


def count_runs(values: Floats, labels: Ints) -> Any:
    """How often the label changes along ascending values, plus one; for every column of `values`.

    >>> int(count_runs(np.array([3.0, 1.0, 2.0]), np.array([1, 0, 1])))
    2
    """
    ordered = labels[np.argsort(values, axis=0, kind="stable")]
    return 1 + np.count_nonzero(ordered[1:] != ordered[:-1], axis=0)


def anneal(
    own: Floats, total: Floats, labels: Ints, weights: Floats, factor: float, steps: int, seed: int
) -> tuple[Floats, float, int]:
    """Weights A and factor b with few runs of own·A + b·total·A, from the given start.

    A proposal moves one weight, all of them, or b, by an amount whose size is sampled from a wide range. The best of a
    batch, with noise that cools down, is where the next batch starts.
    """
    rng = np.random.default_rng(seed)
    d = len(weights)
    here, b_here = weights.copy(), float(factor)
    best, b_best = here.copy(), b_here
    least = int(count_runs(own @ here + b_here * (total @ here), labels))
    batches = max(1, PATIENCE * steps // BATCH) if steps else 0
    cost = least
    for step in range(batches):
        size = np.exp(rng.uniform(-5.0, 0.5, BATCH))
        kind = rng.integers(0, 3, BATCH) if d > 1 else np.full(BATCH, 2)  # one weight changes nothing but the scale
        moves = rng.standard_normal((d, BATCH)) * size
        moves *= (kind == 1) | ((kind == 0) & (np.arange(d)[:, None] == rng.integers(0, d, BATCH)))
        there = here[:, None] + moves
        turned = np.where(rng.integers(0, 8, BATCH) == 0, -1.0, 1.0)
        b_there = np.where(kind == 2, b_here * np.exp(size * rng.standard_normal(BATCH)) * turned, b_here)
        found = count_runs(own @ there + b_there * (total @ there), labels)
        heat = 1.0 - step / batches
        k = int(np.argmin(found - heat * np.log(1 / rng.uniform(1e-12, 1, BATCH))))
        if found[k] <= cost or rng.uniform() < np.exp((cost - found[k]) / (heat + 1e-9)):
            here, b_here, cost = there[:, k].copy(), float(b_there[k]), int(found[k])
            if cost < least:
                best, b_best, least = here.copy(), b_here, cost
    return best, b_best, least


ROUNDINGS = (4, 6, 8, 10, 12, 16, 20, 26)  # bits of the weights, shortest first
FLOAT_BITS = 500  # of the longest number in a search with floats: its square is a float, too
FACTORS = (0.03, 0.3, 1.0, 3.0)  # starts for b


@dataclass(frozen=True)
class Zigzag:
    """sign·(block(x) + shift) is positive for label 1 and negative for label 0.

    `shift` and `sign` are those of the output layer; with two runs x itself will do, and the block has no units.
    """

    block: StreamBlock
    shift: Number
    sign: int
    runs: int

    @property
    def parameters(self) -> int:
        """Of the block; without units there is none."""
        return self.block.parameters if self.block.units else 0


@dataclass(frozen=True, eq=False)
class Order:
    """Ids x = (own·A)·2^bits + total·A·b, whole numbers, as A and b were found; `runs` of equal labels."""

    weights: tuple[int, ...]  # A
    factor: int  # b·2^bits
    bits: int
    ids: tuple[int, ...]
    runs: int


def zigzag(ids: Sequence[int], labels: Sequence[int], bits: int = 0) -> Zigzag:
    """For whole numbers in any order; the stream holds id/2^bits. Equal ids have equal labels, both labels occur."""
    ordered = sorted(zip(ids, labels, strict=True))
    crossings = [a + b for (a, p), (b, q) in pairwise(ordered) if p != q]  # doubled, strictly between two ids
    units: list[tuple[Number, Number, Number]] = []
    for k, (before, after) in enumerate(pairwise(crossings)):
        kink = dyadic(before + after, -2 - bits)
        units.append((1, -kink, 2 if k % 2 else -2))
    first = -1 if ordered[0][1] else 1
    return Zigzag(StreamBlock(tuple(units)), -dyadic(crossings[0], -1 - bits), first, len(crossings) + 1)


def few_runs(own: Any, total: Any, labels: Ints, *, steps: int, restarts: int, seed: int) -> Order | None:
    """Weights for ids own·A + b·total·A with few runs of equal labels, rounded to short numbers.

    own and total are (M, d) arrays of whole numbers. None where no rounding distinguishes different labels.
    """
    first, second, scale = _scaled(own, total)
    best: tuple[int, Floats, float] | None = None
    for k, (weights, factor) in enumerate(_starts(first, second, labels, restarts, seed)):
        draw = (seed * 7919 + k) & 0x7FFFFFFF
        weights, factor, runs = anneal(first, second, labels, weights, factor, steps, draw)
        if best is None or runs < best[0]:
            best = (int(runs), weights, float(factor))
    if best is None:
        return None
    return _rounded(own, total, labels, best[1] / scale, best[2], best[0])


def _scaled(own: Any, total: Any) -> tuple[Floats, Floats, Floats]:
    """Return columns of about unit spread as floats, for the search, and their divisors.

    Numbers too long for floats lose their last bits here, all alike: the search's result is checked exactly.
    """
    longest = max(int(abs(values).max()).bit_length() for values in (own, total))
    if longest > FLOAT_BITS:
        own, total = (np.array(values, dtype=object) >> (longest - FLOAT_BITS) for values in (own, total))
    first, second = np.array(own, dtype=np.float64), np.array(total, dtype=np.float64)
    scale = np.maximum(first.std(axis=0), second.std(axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    return np.ascontiguousarray(first / scale), np.ascontiguousarray(second / scale), scale


def _starts(first: Floats, second: Floats, labels: Ints, restarts: int, seed: int) -> list[tuple[Floats, float]]:
    """Least squares for the labels (the best of a few b), then random directions."""
    found: list[tuple[int, Floats, float]] = []
    wanted = np.where(labels > 0, 1.0, -1.0)
    for factor in FACTORS:
        ids = first + factor * second
        centred = ids - ids.mean(axis=0)
        weights = np.linalg.lstsq(centred, wanted - wanted.mean(), rcond=None)[0]
        found.append((count_runs(ids @ weights, labels), weights, factor))
    _, weights, factor = min(found, key=lambda item: item[0])
    rng = np.random.default_rng(seed)
    starts = [(np.ascontiguousarray(weights), factor)]
    for _ in range(restarts - 1):
        starts.append((rng.standard_normal((first.shape[1],)), float(rng.choice(FACTORS))))
    return starts


def _rounded(own: Any, total: Any, labels: Ints, weights: Floats, factor: float, wanted: int) -> Order | None:
    """The shortest whole weights that keep the number of runs, or else those with the fewest."""
    own, total = np.array(own, dtype=object), np.array(total, dtype=object)
    largest = np.abs(weights).max() or 1.0
    marks = labels.tolist()
    best: Order | None = None
    for bits in ROUNDINGS:
        whole = [round(float(w / largest) * 2**bits) for w in weights] if len(weights) > 1 else [1]
        b = round(factor * 2**bits)
        ids = ((own @ np.array(whole, dtype=object)) * 2**bits + (total @ np.array(whole, dtype=object)) * b).tolist()
        runs = _exact_runs(ids, marks)
        if runs is not None and (best is None or runs < best.runs):
            best = Order(tuple(whole), b, bits, tuple(ids), runs)
        if best is not None and best.runs <= wanted:
            break
    return best


def _exact_runs(ids: list[int], labels: list[int]) -> int | None:
    """None when equal ids have different labels."""
    ordered = sorted(zip(ids, labels, strict=True))
    if any(a == b and p != q for (a, p), (b, q) in pairwise(ordered)):
        return None
    return 1 + sum(p != q for (_, p), (_, q) in pairwise(ordered))
