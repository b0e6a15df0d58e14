"""Cells to tokens: the same for data, for queries and for the tokens on the command line."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.data.read.row_codec import RowCodec, checked_tokens
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.errors import DataError


def encoded(cell: object, kind: str = "words", **options: object) -> list[object]:
    return RowCodec(Tokenizer(kind, **options)).encode([cell], "line {}".format)[0]  # type: ignore[arg-type]


def test_every_kind_of_cell_becomes_tokens():
    assert encoded("to be") == ["to", "be"]
    assert encoded("[1, 2.5, [0.5, 1]]") == [1, 2.5, [0.5, 1]]
    assert encoded("[not a list]") == ["[not", "a", "list]"]
    assert encoded(np.array([1, 2])) == [1, 2] and encoded((1, "x")) == [1, "x"]
    assert encoded(None) == encoded(float("nan")) == encoded([]) == []
    assert encoded(True) == [True] and encoded(np.float64(1.5)) == [1.5]
    assert encoded("7 x", type="str") == ["7", "x"] and encoded("[1, 2]", type="str") == ["1", "2"]


def test_lengths_are_not_applied_here():
    assert encoded("a b c", max_length=2) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("cell", "kind", "words"),
    [
        ("plain", "json", "line 0: 'plain' is not a JSON list of tokens"),
        ("[1,", "json", "line 0: '.1,' is not a JSON list"),
        ("[1, }]", "json", "line 0: this is not JSON"),
        ([float("inf")], "words", "line 0: token 0 is inf"),
        ([{"a": 1}], "words", "line 0: token 0 is"),
        ([[1, "x"]], "words", "line 0: token 0 is"),
        ([[]], "words", "line 0: token 0 is"),
    ],
)
def test_what_is_no_token_is_named_with_its_place(cell, kind, words):
    with pytest.raises(DataError, match=words):
        encoded(cell, kind)


def test_missing_tokens_are_none():
    assert checked_tokens([np.nan, None, 1.0]) == [None, None, 1.0]
