"""Hashing by folds: random tents pull ids apart that stand too close together, or too regularly.

Folding h around 2^p plus a random offset keeps the low bits of h or reflects and shifts them; which of the two
depends on bit p. So every bit above the window adds its own random amount (with alternating signs) to what is left,
and what was close becomes twice as far apart, measured by what is left of the range.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from byheart.build.fold.block import Block
from byheart.paper import Ref, implements

DRAWS = 6
GUARD = 4  # bits by which offsets are shorter than what is left


@implements(
    Ref("byheart", "hashing by folds"),
    statement="folds with random offsets separate ids of any structure, at 4 parameters per bit",
    test="tests/build/fold/test_mixing.py",
)
def stir(ids: Sequence[int], folds: int, seed: int) -> tuple[tuple[Block, ...], list[int]] | None:
    """Blocks that fold the highest bits of ascending ids away, and what is left; None if ids fall together.

    >>> blocks, left = stir([0, 1, 1 << 20, (1 << 20) + 1], folds=8, seed=1)
    >>> len(blocks), max(left).bit_length() <= 14
    (8, True)
    """
    base = ids[0]
    bits = max(1, (ids[-1] - base).bit_length())
    for draw in range(DRAWS):
        rng = random.Random(f"stir {seed} {folds} {draw}")
        spread = max(0, folds + 8 - bits) + 2 * draw  # short ids are multiplied first
        factor = rng.getrandbits(spread) | 1 | (1 << (spread - 1)) if spread else 1
        top = bits + spread
        low = top - folds
        places = [(1 << p) + rng.getrandbits(max(1, low - GUARD)) for p in range(top - 1, low - 1, -1)]
        left = [_folded((x - base) * factor, places) for x in ids]
        if len(set(left)) == len(left):
            lift = -min(0, *left) if len(left) > 1 else max(0, -left[0])
            blocks = [Block(((1, -place, -2),)) for place in places]
            if factor > 1:
                blocks.insert(0, Block(((1, 0, factor - 1),), -base * factor))
            else:
                blocks[0] = Block(((1, -places[0] - base, -2),), -base)
            blocks[-1] = replace(blocks[-1], shift=blocks[-1].shift + lift)
            return tuple(blocks), [h + lift for h in left]
    return None


def _folded(h: int, places: Sequence[int]) -> int:
    for place in places:
        if h > place:
            h = 2 * place - h
    return h
