"""Tokens and rows in messages are short, on one line, and never fail."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.data.wording import as_json_number, cut, one_line, quote, quote_row, short, visible, written


@given(st.one_of(st.text(), st.integers(), st.floats(), st.binary(), st.lists(st.text())))
def test_quotes_are_short_for_anything(value):
    assert len(quote(value)) <= 34 and len(cut(repr(value))) <= 34


def test_numbers_that_python_refuses_to_write_are_hexadecimal():
    huge = 16**5000
    assert quote(huge).startswith("0x1000") and written(huge).startswith("0x1") and as_json_number(-huge)[:4] == "-0x1"
    assert quote([huge]) == "a list" and as_json_number(12) == 12


def test_rows_are_texts_where_they_are_characters():
    assert quote_row("abc") == "'abc'" and quote_row(["ab", 1]) == "['ab', 1]"
    assert quote_row(list(range(9))).endswith(" …]")


@given(st.text())
def test_lines_for_a_terminal_have_no_control_characters(text):
    assert visible(text).isprintable() and "\n" not in one_line(ValueError(text))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(Fraction(1, 3), "0.3333"), (Fraction(10**9), "1e+09"), (Fraction(0), "0"), (Fraction(-7, 2), "-3.5")],
)
def test_numbers_in_few_characters(value, expected):
    assert short(value) == expected
