"""The guarantee of `native`: exact floats in any order of evaluation, and a budget of parameters.

The budget counts a memory that is a little worse than the one that is built. K contexts with t label and fingerprint
bits go into 2^b buckets; p is the mantissa, w = 43 (float64) or 15 (float32) the bits of a word:

    cap = min(K + 2, ⌈K/2^b⌉ + ⌊√(b·K/2^b)⌋ + b + 2)      columns that the fullest bucket needs
    L   = ⌈(max(14, 2·log2 K) + 10) / room⌉                hash chains, `room` bits of a token's number in each
    Z   = max(⌈cap/w⌉, ⌈L/t⌉),   W = L + 1 + t·Z           words per label bit; width of the stream
    U   = 2^b + (t + 3)·(cap + 2Z) + 3·(L·warmup + b + t) + t·(Z + R)              hidden units
    B   = 2^b/16 + warmup + b + cap + 2Z + t + R + 6                               blocks,   R = 9 + bits(Z)

    budget = min over b of (2W + 1)·U + W·B + front + tokens

A hidden unit has 2W + 1 numbers, a block W biases; attention and, for prefixes, gated sums come before, and tokens
need W numbers per id of the table or some folds of a vector. Reasons of the constants: a step of a chain needs two
units, three where it rescales, and the scan one more per label bit; a selector's block serves at least 16 buckets; 10
bits more than 2·log2 K are reserved for ids that collide; R is the length of the sum that is folded
away at the end.

Only cap is not a count: that every load stays below it, often enough for some of 60 draws, was computed for K from 1 to
30,000 and every b (`tests/theory/test_guarantees.py`). The builder chooses the cheapest b and Z for its own estimate of
the loads, so its plan should be below the budget; where it is not, it raises a BuildError.

objective=speed looks for the fewest blocks however wide they are, so no number of parameters is guaranteed for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, isqrt, lcm, log2
from typing import Any

from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.ir.size import Claim
from byheart.paper import Ref
from byheart.theory.guarantees import choice, guarantees
from byheart.theory.guarantees.ks25 import token_id_count

THEOREM = Ref("byheart", "float-native Transformer")
# Bits of the significand.
MANTISSA = {"float64": 53, "float32": 24}
WORD_BITS = {53: 43, 24: 15}  # of one word: levels, guard bits and a sign fit the mantissa
LEAST_SCALE = {53: 4, 24: 2}  # folds of a chain between two rescalings, at least
# Hash chains, and bits of a bucket's number. Tuned by hand.
MOST_CHAINS = 12
MOST_BUCKET_BITS = 16
SPARE_BITS = 10  # by which the builder lengthens ids that collide, at most
IDLE_BITS = 2  # highest bits of a vector's number, reserved for its folds and empty for the first hash bits
SELECTOR_BLOCK = 16  # buckets in a block of the selector, at least


class Mixing(StrEnum):
    """How a context's tokens come together."""

    FULL = "full"  # the mean over n tokens, always n
    POOL = "pool"  # the sum of a set
    PREFIX_SUM = "prefix-sum"  # causal: the prefix mean times the token's position
    PREFIX_MEAN = "prefix-mean"  # causal without positions: the prefix mean itself


def mixing_of(task: Task, positions: bool) -> Mixing:
    """How the task's contexts come together."""
    if task is Task.SET:
        return Mixing.POOL
    if task is Task.CAUSAL:
        return Mixing.PREFIX_SUM if positions else Mixing.PREFIX_MEAN
    return Mixing.FULL


def own_weight(mixing: Mixing, positions: bool) -> int:
    """β, the weight of the sum beside the own token."""
    return 2 if mixing is Mixing.FULL and not positions else 1


def rounds(mixing: Mixing, length: int) -> bool:
    """Whether a mean can round in floats, so that it must be snapped."""
    if mixing is Mixing.FULL:
        return length & (length - 1) != 0
    return mixing in (Mixing.PREFIX_SUM, Mixing.PREFIX_MEAN) and length > 2


def id_factor(mixing: Mixing, length: int, positions: bool) -> tuple[int, int]:
    """(factor, step): tokens are multiples of `step` below step·2^bits, ids are below factor·2^bits."""
    if mixing is Mixing.FULL:
        return own_weight(mixing, positions) * length + 1, 1
    if mixing is Mixing.POOL:
        return length, 1
    if mixing is Mixing.PREFIX_SUM:
        return length + 1, 1
    step = 2 * lcm(*range(1, length + 1))
    return step + step // 2, step


def bits_per_token(mantissa: int, mixing: Mixing, length: int, positions: bool) -> int:
    """Bits that a token's number may have, so that the float type carries ids exactly.

    Rounding may spoil (n + few)·factor units below a number, and 4 times that for a gated prefix sum.

    >>> bits_per_token(53, Mixing.FULL, 8, True), bits_per_token(24, Mixing.PREFIX_SUM, 100, True)
    (44, 5)
    """
    factor, _ = id_factor(mixing, length, positions)
    room = mantissa - 1 - LEAST_SCALE[mantissa] - (factor + factor // 4).bit_length()
    if rounds(mixing, length):
        lost = (length + 8) * factor * (4 if mixing is Mixing.PREFIX_SUM else 1)
        room = min(room, mantissa - 3 - lost.bit_length())
    return room


def wanted_bits(keys: int, abstain_bits: int = 0) -> float:
    """2·log2(keys) bits make about one collision in ten draws.

    An unseen context has the id of a known one with probability keys/2^bits, which is to be an eighth of
    2^-abstain_bits at most.
    """
    refusing = log2(keys) + abstain_bits + 3 if abstain_bits else 0.0
    return max(14.0, 2 * log2(keys), refusing)


@dataclass(frozen=True)
class NativeFacts:
    """The inputs of the budget; `of` reads them from a data set."""

    mantissa: int
    mixing: Mixing
    positions: bool
    contexts: int
    targets: int  # label and fingerprint bits
    length: int
    ids: int = 0  # rows of the embedding table; 0 where tokens are vectors
    numbers: int = 0  # per token, where tokens are vectors
    fingerprint: int = 0  # of the targets, the bits that recognise unseen contexts

    @staticmethod
    def of(dataset: Dataset, dtype: str, fingerprint: int) -> NativeFacts:
        encoder, symbols = dataset.encoder, dataset.encoder.symbols is not None
        return NativeFacts(
            MANTISSA[dtype],
            mixing_of(encoder.task, encoder.positions),
            encoder.positions,
            len(dataset.contexts),
            max(1, (dataset.C - 1).bit_length()) + fingerprint,
            dataset.n,
            token_id_count(dataset) if symbols else 0,
            0 if symbols else dataset.inputs.points.width,
            fingerprint,
        )

    @property
    def chains(self) -> int:
        room = bits_per_token(self.mantissa, self.mixing, self.length, self.positions)
        return min(MOST_CHAINS, ceil((wanted_bits(self.contexts, self.fingerprint) + SPARE_BITS) / max(1, room)))


def fullest(contexts: int, bucket_bits: int) -> int:
    """Columns that the fullest of 2^bucket_bits buckets needs, at most.

    >>> fullest(10_000, 8), fullest(10, 0)
    (67, 12)
    """
    mean = -(-contexts >> bucket_bits)
    spread = isqrt((bucket_bits * contexts) >> bucket_bits)
    return min(contexts + 2, mean + spread + bucket_bits + 2)


def native_budget(facts: NativeFacts) -> int:
    """The most parameters of a memory with objective=size.

    >>> native_budget(NativeFacts(53, Mixing.FULL, False, contexts=100_000, targets=1, length=8))
    27436
    """
    return _cost(facts, cheapest_bucket_bits(facts))


def cheapest_bucket_bits(facts: NativeFacts) -> int:
    """The b with the smallest budget, among those that the builder tries."""
    most = min(MOST_BUCKET_BITS, facts.contexts.bit_length())
    return min(range(most + 1), key=lambda bucket_bits: _cost(facts, bucket_bits))


def words_per_bit(facts: NativeFacts, bucket_bits: int) -> int:
    """Z: enough for the fullest bucket, and a channel for every chain."""
    needed = -(-fullest(facts.contexts, bucket_bits) // WORD_BITS[facts.mantissa])
    return max(needed, -(-facts.chains // facts.targets))


def _cost(facts: NativeFacts, bucket_bits: int) -> int:
    t, chains, buckets = facts.targets, facts.chains, 1 << bucket_bits
    capacity, words = fullest(facts.contexts, bucket_bits), words_per_bit(facts, bucket_bits)
    width, warmup, reading = chains + 1 + t * words, facts.length.bit_length() + 3, 9 + words.bit_length()
    warmup += IDLE_BITS if facts.numbers else 0
    steps = capacity + 2 * words
    units = buckets + (t + 3) * steps + 3 * (chains * warmup + bucket_bits + t) + t * (words + reading)
    blocks = buckets // SELECTOR_BLOCK + warmup + bucket_bits + steps + t + reading + 6
    front = 2 * width * chains
    if facts.mixing is Mixing.PREFIX_SUM:
        units += (facts.length.bit_length() + 1) * (chains + 2)
        blocks += facts.length.bit_length()
    if facts.numbers:  # a fold and a third of a rescaling per bit of the mantissa and six more
        front += width * (facts.numbers + 1) + facts.numbers  # the last for moving them to 0
        units += ceil(4 / 3 * chains * (facts.mantissa + 6))
        blocks += facts.mantissa + 6
    return (2 * width + 1) * units + width * blocks + front + facts.ids * width


@guarantees("native")
def native(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Every float evaluation of the network is exact, whatever the order of its sums."""
    dtype = choice(options, "dtype", *MANTISSA)
    objective = choice(options, "objective", "size", "speed")
    fingerprint = options.get("abstain_bits", 0)
    if type(fingerprint) is not int or not 0 <= fingerprint <= 32:
        raise OptionError(f"abstain_bits={fingerprint!r} must lie in 0..32")
    claim = Claim(THEOREM, properties=(f"exact in any order: {dtype}",))
    if objective == "speed":
        return claim
    return Claim(
        THEOREM,
        {"parameters": native_budget(NativeFacts.of(dataset, dtype, fingerprint))},
        {"parameters": "min over b of (2W + 1)·U + W·B + front + tokens, see docs/native.md"},
        properties=claim.properties,
    )
