"""Which rows are in a table: exactly those, however many numbers a row takes."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.data.tokens.row_keys import RowKeys, keys_bytes, spans


@pytest.mark.parametrize("sizes", [(7, 5, 3), (1 << 40, 1 << 40), (1 << 30, 1 << 30, 9, 1 << 30, 4, 1 << 30)])
def test_rows_that_differ_in_a_code_or_mix_two_rows_are_not_known(sizes):
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(1, size - 1, 40) for size in sizes], 1)
    rows = np.unique(rows[np.argsort(rows[:, 0])], axis=0)
    listed = set(map(tuple, rows.tolist()))
    keys = RowKeys.of(sizes, rows)
    assert keys.known(rows).all()
    strangers = [np.where(np.arange(len(sizes)) < cut, one, other) for one in rows for other in rows for cut in (1, 2)]
    for place in range(len(sizes)):
        for step in (-1, 1):
            moved = rows.copy()
            moved[:, place] += step
            strangers += [*moved, *(np.where(np.arange(len(sizes)) < 1, a, b) for a in rows for b in moved[:9])]
    asked = np.array(strangers)
    assert keys.known(asked).tolist() == [tuple(row) in listed for row in asked.tolist()]


def test_numbers_stay_below_2_to_62():
    sizes, rows = (1 << 30,) * 5, 1000
    for number, (start, end) in enumerate(spans(sizes, rows)):
        assert (rows if number else 1) * (1 << 30) ** (end - start) < 1 << 62
    assert keys_bytes(sizes, rows) == 16 * rows * len(spans(sizes, rows))
