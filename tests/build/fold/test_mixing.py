from __future__ import annotations

from byheart.build.fold.block import run_blocks
from byheart.build.fold.mixing import stir


def test_pulls_regular_ids_apart() -> None:
    ids = [(1 << 300) + (i << 40) for i in range(500)]
    blocks, left = stir(ids, folds=30, seed=0) or ((), [])
    assert len(set(left)) == 500 and left == [run_blocks(blocks, x) for x in ids]
    assert len(blocks) in (30, 31) and max(left).bit_length() <= 49 - 30 + 8
    assert min(left) >= 0


def test_short_ids_are_multiplied_first() -> None:
    blocks, left = stir(list(range(7, 27)), folds=12, seed=3) or ((), [])
    assert left == [run_blocks(blocks, x) for x in range(7, 27)] and len(set(left)) == 20


def test_ids_that_fall_together_are_no_front() -> None:
    assert stir(list(range(5000)), folds=2, seed=0) is not None
    assert stir([0, 1 << 40], folds=300, seed=0) is not None  # multiplied until 300 folds leave something
