"""Park's table: groups of keys shifted without collisions, labels as bits of long words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.build.table1.park21 import cheapest_cut, shift_groups
from byheart.errors import BuildError
from tests.build.table1.grid import THIN, proved


@given(
    st.dictionaries(st.integers(0, 10**6), st.integers(0, 7), min_size=1, max_size=60),
    st.integers(1, 8),
    st.integers(1, 9),
)
def test_the_table_knows_every_key(cells, group, places):
    keys = sorted(cells)
    table = shift_groups(keys, [cells[k] for k in keys], group, places, 3)
    assert [table.label(k) for k in keys] == [cells[k] for k in keys]
    assert len({table.place(k) for k in keys}) == len(keys)  # no collisions
    assert table.modulus > group * len(keys) and max(table.words).bit_length() <= table.word_bits


def test_equal_keys_are_refused():
    with pytest.raises(BuildError):
        shift_groups([3, 3], [0, 1], 1, 1, 1)


@pytest.mark.parametrize(("N", "n", "d", "C"), THIN)
def test_rows_are_memorized(N, n, d, C):
    proved("park21", N, n, d, C)


def test_the_cut_follows_the_cube_root():
    ratio = cheapest_cut(64_000, 1).group / cheapest_cut(1000, 1).group
    assert 3.0 < ratio < 5.0  # 64^(1/3) = 4
