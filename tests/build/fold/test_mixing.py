from __future__ import annotations

from byheart.build.fold.block import run_blocks
from byheart.build.fold.mixing import mix


def test_separates_and_scatters_regular_ids() -> None:
    ids = [(1 << 300) + (i << 40) for i in range(500)]
    blocks, mixed = mix(ids, seed=0)
    assert len(set(mixed)) == 500 and mixed == [run_blocks(blocks, x) for x in ids]
    assert max(mixed).bit_length() <= 2 * 9 + 6 + 10
    low = [(x >> 1) & 15 for x in mixed]  # a fold keeps the lowest bit
    assert max(low.count(v) for v in range(16)) < 80  # 31 expected
