"""Choosing a memory's shape: few parameters (or little time), and a fair chance that a draw of the chains works.

Loads of m buckets are binomial; a bucket of ℓ keys in a capacity of `cap` columns has no solution with probability
about 2^(ℓ − cap). The planner chooses the smallest capacity for which a draw succeeds often enough, for every number of
buckets, and then the cheapest division into words.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from byheart.build.native.layout import FloatType, Layout
from byheart.errors import BuildError
from byheart.theory.guarantees.native import MOST_BUCKET_BITS

# A square random matrix over GF(2) is singular with probability 1 - 0.2888: the most that one full bucket can spoil.
SINGULAR = 0.72

# Words per label bit. Tuned by hand.
MOST_WORDS = 48
# Buckets up to which the chance of a full one is summed exactly.
FEW_BUCKETS = 64


@dataclass(frozen=True)
class Need:
    """The contents of a memory: distinct keys, label and fingerprint bits, and the chains that carry the keys."""

    kind: FloatType
    keys: int
    label_bits: int
    fingerprint_bits: int
    chains: int  # at least; the speed objective uses one per word
    warmup: int
    scale: int


def smallest_capacity(keys: int, bucket_bits: int, targets: int, patience: float) -> int:
    """The least capacity with which one of `patience` draws fits every bucket, and then every third is solvable.

    >>> smallest_capacity(10_000, 8, 1, 60), smallest_capacity(10, 0, 1, 60)
    (56, 12)
    """
    buckets = 1 << bucket_bits
    if buckets == 1:
        return keys + 2
    fits = _few_buckets(keys, buckets) if buckets <= FEW_BUCKETS else _many_buckets(keys, buckets)
    # A dependent row contradicts the others unless all of its target bits agree with theirs by chance.
    contradiction = 1 - 0.5**targets
    lowest, most = max(1, -(-keys // buckets)), keys + 3
    # That every bucket fits is the likelier the more it holds, so the first capacity with which it is likely enough is
    # found by halving; whether the systems are solvable is then a matter of a few more columns.
    start = bisect_left(range(lowest, most), True, key=lambda cap: fits(cap, contradiction)[0] * patience >= 1)
    for capacity in range(lowest + start, most):
        if fits(capacity, contradiction)[1] >= 0.35:
            return capacity
    return keys + 2


Chances = Callable[[int, float], tuple[float, float]]  # (capacity, chance of a contradiction) -> two probabilities


def _few_buckets(keys: int, buckets: int) -> Chances:
    """By a fixed sample: the loads of few buckets are not independent."""
    sample = np.random.default_rng(0).multinomial(keys, [1 / buckets] * buckets, size=400)

    def chances(capacity: int, contradiction: float) -> tuple[float, float]:
        held = sample[(sample <= capacity).all(axis=1)]
        if not len(held):
            return 0.0, 0.0
        solved = np.prod(1 - contradiction * np.minimum(SINGULAR, 0.5 ** (capacity - held)), axis=1)
        return len(held) / len(sample), float(solved.mean())

    return chances


def _many_buckets(keys: int, buckets: int) -> Chances:
    """By binomial loads, taken as independent."""
    mean = keys / buckets
    loads = np.arange(int(mean + 12 * math.sqrt(mean)) + 60)
    logs = np.array([_log_binomial(keys, int(k)) for k in loads])
    each = np.exp(logs - loads * math.log(buckets) + (keys - loads) * math.log1p(-1 / buckets))

    def chances(capacity: int, contradiction: float) -> tuple[float, float]:
        held = loads <= capacity
        over = min(float(each[~held].sum()), 1 - 1e-9)
        singular = contradiction * float((each[held] * np.minimum(SINGULAR, 0.5 ** (capacity - loads[held]))).sum())
        return math.exp(buckets * math.log1p(-over)), math.exp(buckets * math.log1p(-singular))

    return chances


def _log_binomial(n: int, k: int) -> float:
    return -math.inf if k > n else math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def layouts(need: Need, patience: float, parallel: bool) -> Iterator[Layout]:
    """Every shape worth considering; `parallel`: one chain per word, so that all words are scanned together."""
    targets = need.label_bits + need.fingerprint_bits
    for bucket_bits in range(min(MOST_BUCKET_BITS, need.keys.bit_length()) + 1):
        capacity = smallest_capacity(need.keys, bucket_bits, targets, patience)
        least = -(-capacity // (need.kind.longest_word - 1))
        for words in range(least, min(MOST_WORDS, least + 12) + 1):
            if targets * words < need.chains:  # the token part borrows word channels, one per chain
                continue
            yield Layout(
                kind=need.kind,
                label_bits=need.label_bits,
                fingerprint_bits=need.fingerprint_bits,
                bucket_bits=bucket_bits,
                words=words,
                levels=max(2, -(-capacity // words) + 1),
                chains=max(need.chains, words) if parallel else need.chains,
                warmup=need.warmup,
                scale=need.scale,
            )


def evaluation_time(layout: Layout) -> float:
    """Microseconds per block on 4096 inputs, roughly: a fixed part, one pass over the hidden units, two products."""
    return sum(10 + hidden * (3 + 0.3 * layout.width) for hidden in layout.hidden_sizes)


def choose(need: Need, objective: str, patience: float, extra: Callable[[Layout], int]) -> Layout:
    """The best shape: "size" counts dense parameters (with `extra` for the token part), "speed" counts time."""
    speed = objective == "speed"
    cost: Callable[[Layout], float] = evaluation_time if speed else lambda layout: layout.parameters + extra(layout)
    best = min(layouts(need, patience, speed), key=cost, default=None)
    if best is None:
        raise BuildError(f"{need.keys} keys need more than {MOST_WORDS} words per label bit; use float64 or fewer rows")
    return best
