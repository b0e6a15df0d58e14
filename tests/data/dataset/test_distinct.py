"""Equal rows of tables, against Python's own sets and sorting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.data.dataset.distinct import (
    distinct_rows,
    pack_columns,
    rank_in_place,
    rank_keys,
    sorted_distinct_rows,
)

words = st.one_of(st.integers(-2, 2), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**31, -(2**63), 2**63 - 1]))
tables = st.integers(1, 5).flatmap(lambda k: st.lists(st.lists(words, min_size=k, max_size=k), min_size=1, max_size=20))


@given(tables)
def test_agree_with_sets_of_tuples(rows: list[list[int]]) -> None:
    table = np.array(rows, dtype=np.int64)
    first, which = distinct_rows(table)
    kinds = list(dict.fromkeys(map(tuple, rows)))
    assert [tuple(rows[i]) for i in first] == kinds
    assert [kinds[k] for k in which] == [tuple(row) for row in rows]
    assert [tuple(row) for part in sorted_distinct_rows(table) for row in part.tolist()] == sorted(kinds)


@given(tables)
def test_packing_keeps_order_and_equality(rows: list[list[int]]) -> None:
    packed = list(map(tuple, pack_columns(np.array(rows, dtype=np.int64)).tolist()))
    assert sorted(range(len(rows)), key=packed.__getitem__) == sorted(range(len(rows)), key=rows.__getitem__)
    assert len(set(packed)) == len(set(map(tuple, rows)))


@given(tables)
def test_collisions_are_noticed(rows: list[list[int]]) -> None:
    table = np.array(rows, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("byheart.data.dataset.distinct.mix", lambda bits: bits * np.uint64(0))
        first, which = distinct_rows(table)
    assert len(first) == len(set(map(tuple, rows)))
    assert (table[first[which]] == table).all()


@given(st.lists(st.integers(0, 9)), st.sampled_from([10, 10**12]))
def test_ranks(keys: list[int], bound: int) -> None:
    values, ranks = rank_keys(np.array(keys, dtype=np.int64), bound)
    assert values.tolist() == sorted(set(keys)) and values[ranks].tolist() == keys
    table = np.array([*keys, -1], dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("byheart.data.dataset.distinct._CHUNK", 3)
        assert rank_in_place(table, bound).tolist() == values.tolist()
    assert table.tolist() == [*ranks.tolist(), -1]


@given(tables, st.integers(1, 4))
def test_sorted_rows_do_not_depend_on_how_many_are_taken_at_once(rows: list[list[int]], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("byheart.data.dataset.distinct._CHUNK", chunk)
        parts = list(sorted_distinct_rows(np.array(rows, dtype=np.int64)))
    assert max(map(len, parts)) <= chunk
    assert [tuple(row) for part in parts for row in part.tolist()] == sorted(set(map(tuple, rows)))


def test_unsigned_words() -> None:
    table = np.array([[2**64 - 1, 0], [0, 1], [2**64 - 1, 0]], dtype=np.uint64)
    assert distinct_rows(table)[1].tolist() == [0, 1, 0]
