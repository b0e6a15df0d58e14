"""From tokens to context ids: an embedding table of random whole numbers, and sums over the sequence.

Token i has the number e_i, below 2^w, in every chain. A context's id is a weighted sum of them:
  full attention, W_V = β·n:   x = e_own + β·Σ e       (β = 2 without positions: own token and multiset stay apart)
  pooling (sets):              x = Σ e
  causal, positions known:     x = e_own + Σ over the prefix
  causal, positions unknown:   x = e_own + ½·mean over the prefix, with e a multiple of 2·lcm(1 … n)
Distinct contexts get distinct ids with high probability; the builder checks and samples again.

    >>> sizing(FLOAT64, Mixing.FULL, length=8, positions=True, keys=100_000)
    Sizing(table_bits=34, factor=9, step=1, modulus_bits=38, chains=1, scale=14, idle=0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from byheart.build.native.hashing import chain_scale
from byheart.build.native.layout import FLOAT64, FloatType
from byheart.errors import BuildError
from byheart.theory.guarantees.native import IDLE_BITS, MOST_CHAINS, Mixing, bits_per_token, id_factor, wanted_bits

__all__ = ["FLOAT64", "Mixing", "Sizing", "sizing"]

LEAST_TABLE_BITS = 8  # where the float type allows: fewer make poor hash bits


@dataclass(frozen=True)
class Sizing:
    """Table numbers are multiples of `step` below step·2^table_bits; ids are below factor·2^table_bits."""

    table_bits: int
    factor: int
    step: int
    modulus_bits: int
    chains: int
    scale: int
    idle: int = 0  # highest bits that no token's number uses

    @property
    def id_bound(self) -> int:
        """No input has an id of this size or more."""
        return self.factor << self.table_bits

    @property
    def warmup(self) -> int:
        """Folds until the id of a sum of tokens is spread over the whole range."""
        return (self.factor // self.step).bit_length() + 2 + self.idle


def sizing(
    kind: FloatType,
    mixing: Mixing,
    length: int,
    positions: bool,
    keys: int,
    spare: int = 0,
    least: int = 0,
    abstain_bits: int = 0,
) -> Sizing:
    """The fewest chains, and numbers as long as distinct ids need, that the float type can carry exactly.

    2·log2(keys) bits make about one collision in ten draws; `spare` bits more are for data that still collide. Tokens
    that are vectors need `least` bits in every chain, so that different vectors can have different numbers. An unseen
    context has the id of a known one with probability keys/2^bits, which must not exceed a part of 2^-abstain_bits.
    """
    factor, step = id_factor(mixing, length, positions)
    largest = bits_per_token(kind.mantissa, mixing, length, positions)
    wanted = wanted_bits(keys, abstain_bits) + spare
    for chains in range(1, MOST_CHAINS + 1):
        table_bits = max(min(max(LEAST_TABLE_BITS, least), largest), math.ceil(wanted / chains))
        if 3 <= table_bits <= largest:
            bound = factor << table_bits
            bits = (bound + bound // 4).bit_length()
            scale = chain_scale(kind.mantissa, bits)
            return Sizing(table_bits, factor, step, bits, chains, scale, IDLE_BITS if least else 0)
    remedy = "turn positions on" if mixing is Mixing.PREFIX_MEAN else "use shorter sequences"
    if kind is not FLOAT64:
        remedy = f"use dtype float64, or {remedy}"
    raise BuildError(
        f"{length} tokens leave {kind.name} {max(0, largest)} bits per token, too few for {keys} contexts; {remedy}"
    )
