"""Blocks on one number: a line through every point, and hashing by folds."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from byheart.build.fold.block import interpolate, run_blocks, stir


@settings(deadline=None)
@given(points=st.dictionaries(st.integers(0, 60), st.integers(0, 3), min_size=1, max_size=20))
@example(points={0: 0})
@example(points={0: 1, 1: 0, 2: 0, 3: 2})
def test_goes_through_every_point_with_one_unit_each(points: dict[int, int]) -> None:
    ids = sorted(points)
    (block,) = interpolate(ids, [points[x] for x in ids])
    assert all(run_blocks([block], x) == 2 * points[x] + 1 for x in ids)
    assert len(block.units) <= len(ids) + 1
    assert all(isinstance(v, int) for unit in block.units for v in unit)


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
