from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from byheart.build.fold.block import run_blocks
from byheart.build.fold.interpolation import interpolate


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
