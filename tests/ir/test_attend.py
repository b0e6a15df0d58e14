"""Shares of attention, against the definition: for every token the keys that its pattern allows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.errors import NotRationalError
from byheart.exact.number import Values
from byheart.ir.attend import allowed, gather, linear_image, scores_matter, shares
from byheart.ir.layers import Attention, Head, Kind, Matrix, Pattern

ONE = Matrix.of([{0: 1}], 1)
ROWS = np.array([[0, 1, 2, 1], [2, 0, 1, -1], [1, -1, -1, -1]], dtype=np.int64)
VECTORS = Values.of([[3], [-5], [7]])


def head(key: Matrix | None = None, query: Matrix | None = None) -> Head:
    return Head(ONE, ONE, key, query)


@pytest.mark.parametrize("pattern", list(Pattern))
def test_equal_scores_share_what_the_pattern_allows(pattern):
    layer = Attention(Kind.UNIFORM, pattern, (head(),))
    found = shares(layer, layer.heads[0], VECTORS, None, ROWS)
    for row, line in enumerate(ROWS.tolist()):
        n = sum(point >= 0 for point in line)
        for token in range(n):
            keys = [line[k] for k in range(n) if allowed(pattern, n)[token, k]]
            assert int(found.counts[row, token]) == len(keys)
            assert int(found.sums[0][row, token]) == sum(int(VECTORS.numerators[k, 0]) for k in keys)


@given(st.lists(st.integers(-2, 2), min_size=3, max_size=3))
def test_hardmax_shares_among_the_largest_scores(keys):
    scores = Values.of([[k] for k in keys]), Values.of([[1], [1], [1]])
    layer = Attention(Kind.HARDMAX, Pattern.FULL, (head(ONE, ONE),))
    found = shares(layer, layer.heads[0], VECTORS, scores, ROWS[:1])
    best = max(keys[k] for k in ROWS[0].tolist())
    chosen = [k for k in ROWS[0].tolist() if keys[k] == best]
    assert found.counts[0].tolist() == [len(chosen)] * 4
    assert found.sums[0][0].tolist() == [sum(int(VECTORS.numerators[k, 0]) for k in chosen)] * 4


def test_softmax_of_unequal_scores_is_refused_and_of_equal_ones_shared():
    layer = Attention(Kind.SOFTMAX, Pattern.FULL, (head(ONE, ONE),))
    equal = Values.of([[2], [2], [2]]), Values.of([[1], [5], [9]])
    assert shares(layer, layer.heads[0], VECTORS, equal, ROWS[:1]).counts.tolist() == [[4, 4, 4, 4]]
    with pytest.raises(NotRationalError, match="softmax of unequal scores at row 0"):
        shares(layer, layer.heads[0], VECTORS, (Values.of([[1], [2], [3]]), equal[1]), ROWS[:1])


def test_numbers_that_leave_64_bits_are_added_exactly():
    large = np.array([1 << 62, -(1 << 62), 5], dtype=object)
    assert gather(large, ROWS).dtype == object and gather(large, ROWS)[0].sum() == 5 - (1 << 62)
    assert gather(np.array([1, 2, 3], dtype=object), ROWS).dtype == np.int64


def test_scores_matter_only_with_keys_and_queries():
    assert not scores_matter(head()) and not scores_matter(head(Matrix.zero(1, 1), ONE))
    assert scores_matter(head(ONE, ONE))


def test_linear_images_keep_one_denominator():
    from byheart.exact import dyadic

    image = linear_image(Matrix.of([{0: dyadic(3, -2)}, {0: 1}], 1), VECTORS)
    assert image.row(2) == (21 / 4, 7)
