"""Hashing by folds: random tents turn any distinct ids into random-looking ones of about 2·log2 N bits.

Folding h around 2^p plus a random offset keeps the low bits of h or reflects and shifts them; which of the two
depends on bit p. So every bit above the window adds its own random amount (with alternating signs) to what is left.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from byheart.build.fold.block import Block, run_blocks
from byheart.errors import BuildError
from byheart.paper import Ref, implements

DRAWS = 8


@implements(
    Ref("byheart", "hashing by folds"),
    statement="folds with random offsets separate ids of any structure, at 4 parameters per bit",
    test="tests/build/fold/test_mixing.py",
)
def hashing_folds(bits: int, width: int, spread: int, rng: random.Random) -> tuple[Block, ...]:
    """Blocks that hash integers in [0, 2^bits) to about `width` bits; `spread` random bits are multiplied in first.

    >>> blocks = hashing_folds(bits=4, width=10, spread=2, rng=random.Random(1))
    >>> len(blocks), len({run_blocks(blocks, x) for x in range(16)})
    (7, 16)
    """
    factor, low, folds = hashing_numbers(bits, width, spread, rng)
    first = Block(((1, 0, (factor << low) - 1),), 1 << (low - 1))
    return (first, *(Block(((1, -place, -2),)) for place in folds))


def hashing_numbers(bits: int, width: int, spread: int, rng: random.Random) -> tuple[int, int, tuple[int, ...]]:
    """(multiplier, bits of the window, places of the folds from the top down)."""
    factor = rng.getrandbits(spread) | 1 | (1 << (spread - 1)) if spread else 1
    low = width + (bits + spread).bit_length() + 2
    top = low + bits + spread
    return factor, low, tuple((1 << p) + rng.getrandbits(width - 1) for p in range(top - 1, low - 1, -1))


def mix(ids: Sequence[int], seed: int) -> tuple[tuple[Block, ...], list[int]]:
    """Blocks that make ids of any structure look random, and the new ids in the order of the old ones."""
    base = min(ids)
    bits = (max(ids) - base).bit_length()
    width = 2 * len(ids).bit_length() + 6
    for draw in range(DRAWS):
        first, *folds = hashing_folds(bits, width, 8 + 8 * draw, random.Random(f"mix {seed} {draw}"))
        blocks = (replace(first, shift=first.shift - base * (first.units[0][2] + 1)), *folds)
        mixed = [run_blocks(blocks, x) for x in ids]
        whole = [x for x in mixed if isinstance(x, int)]
        if len(set(whole)) == len(ids) and min(whole) >= 0:
            return blocks, whole
    raise BuildError(f"{len(ids)} ids of {bits} bits were not separated by {DRAWS} draws of hashing; try another seed")
