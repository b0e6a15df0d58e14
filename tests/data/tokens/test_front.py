"""Cells to codes: what was seen has its own code, and nothing else is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Characters, Front, FrontColumn, Scaled, Words, cuttings

TEXTS = st.lists(st.text("ab c", min_size=1, max_size=5), min_size=1, max_size=8, unique=True)


@given(TEXTS, st.text("abcd ", max_size=6))
def test_distinct_texts_have_distinct_codes_and_others_are_unknown(texts, other):
    for way in cuttings(texts, CellType.TEXT):
        codes, known = way.encode(texts)
        assert known.all() and len({tuple(row) for row in codes.tolist()}) == len(texts)
        assert (codes >= 0).all() and (codes < np.array(way.sizes)).all()
        found, accepted = way.encode([other])
        if accepted[0]:  # then its parts were seen at their places, and it is no other text's row of codes
            same = [text for text, row in zip(texts, codes.tolist(), strict=True) if row == found[0].tolist()]
            assert same in ([], [other])
        if isinstance(way, Cells):
            assert accepted[0] == (other in texts)


@given(st.lists(st.one_of(st.integers(-500, 500).map(lambda k: k / 100), st.none()), min_size=1, max_size=9))
def test_scaled_numbers_come_back(values):
    way = Scaled.of(values)
    if all(value is None for value in values):
        assert way is None
        return
    codes, known = way.encode(values)
    assert known.all() and [way.value(int(code)) for code in codes[:, 0]] == values
    assert not way.encode([max(v for v in values if v is not None) + 1])[1][0]
    assert way.encode([None])[1][0] == (None in values)
    assert not way.encode([math.pi])[1][0]


@pytest.mark.parametrize("values", [[1e300], [0.1, 1e-17], [1 << 41]])
def test_numbers_out_of_reach_have_no_scale(values):
    assert Scaled.of(values) is None


def test_texts_that_cannot_be_put_together_again_are_not_tokenized_into_words():
    names = lambda texts: [way.name for way in cuttings(texts, CellType.TEXT)]  # noqa: E731
    assert names(["a b", "c"]) == ["whole cells", "characters", "words"]
    assert names(["a  b", "c"]) == names(["ab", "c"]) == ["whole cells", "characters"]
    assert names(["x" * 129]) == names(["a\0"]) == ["whole cells"]


def test_a_front_numbers_the_codes_of_all_columns_apart():
    front = Front(
        (
            FrontColumn("code", CellType.TEXT, Characters.of(["AB", "C"])),
            FrontColumn("words", CellType.TEXT, Words.of(["to be", "or"])),
            FrontColumn("n", CellType.WHOLE, Scaled(0, 5, 7)),
        )
    )
    codes, known = front.encode([["AB", "C", "AB"], ["to be", "or", "be to"], [5, 7, 6]])
    assert known.tolist() == [True, True, False] and front.places == 5 and front.codes == sum(front.sizes)
    assert all(first <= code < first + size for row in codes[:2].tolist()
               for code, first, size in zip(row, front.first_codes, front.sizes, strict=True))  # fmt: skip
