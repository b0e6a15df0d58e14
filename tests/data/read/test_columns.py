"""The columns of a source: which are inputs and label, and what every command reads of them."""

from __future__ import annotations

import datetime

import pytest

from byheart.data.read.columns import (
    choose_columns,
    from_lines,
    open_records,
    read_columns,
    refuse_labels,
    table_columns,
    unused,
)
from byheart.data.read.records import from_columns
from byheart.data.read.sources import Limits, TextForm
from byheart.data.task import Task
from byheart.errors import DataError

DAYS = [datetime.date(2024, 1, 31), None, datetime.date(2024, 2, 1)]


def records(**columns):
    return from_columns(columns, "the table")


@pytest.mark.parametrize(
    ("names", "inputs", "label"),
    [
        ("name colour", ("name",), "colour"),
        ("label text", ("text",), "label"),
        ("a b c", ("a", "b"), "c"),
        ("a text y", ("text",), "y"),
        ("target a b", ("a", "b"), "target"),
    ],
)
def test_usual_names_decide_and_else_the_last_column_is_the_label(names, inputs, label):
    found = table_columns(records(**{name: ["x"] for name in names.split()}), (), None)
    assert (found.inputs, found.label) == (inputs, label)
    assert choose_columns(records(**{name: ["x"] for name in names.split()}), (), None, Task.NEXT_TOKEN) == (
        inputs,
        label,
    )


def test_a_next_token_needs_no_label_column():
    assert choose_columns(records(text=["ab"], other=["x"]), (), None, Task.CAUSAL) == (("text",), None)
    assert choose_columns(records(text=["ab"], label=["x"]), (), None, Task.CAUSAL) == (("text",), "label")
    with pytest.raises(DataError, match="has labels in 'label'"):
        refuse_labels(records(text=["ab"], label=["x"]), "text")


def test_a_misspelt_column_has_a_suggestion():
    with pytest.raises(DataError, match=r"no column 'Nmae'; it has 'name', 'colour'; did you mean 'name'\?"):
        table_columns(records(name=["x"], colour=["y"]), ["Nmae"])
    assert unused(records(a=[1], b=[2], c=[3]), ("a", None)) == "not used: 'b', 'c'"


def test_cells_are_kept_by_column_with_their_places():
    found = read_columns(records(a=["p", "q"], b=[1, 2], y=["x", "z"]), ("a", "b"), "y", Limits())
    assert (found.rows(), found.labels, len(found)) == ([["p", 1], ["q", 2]], ["x", "z"], 2)
    part = found.take([1])
    assert (part.rows(), part.labels, part.place(0)) == ([["q", 2]], ["z"], "the table, row 1")
    assert read_columns(records(a=["p"], y=["x"]), ("a",), None, Limits()).rows() == ["p"]
    assert read_columns(records(a=["p", "q"]), ("a",), None, Limits(max_rows=1)).rows() == ["p"]


def test_columns_of_dates_become_texts_and_others_stay():
    found = read_columns(records(day=DAYS, n=[1, 2, 3]), ("day", "n"), None, Limits()).dated()
    assert found.rows() == [["2024-01-31", 1], [None, 2], ["2024-02-01", 3]]


def test_a_header_is_doubted_only_where_the_names_are_a_line_of_the_file(tmp_path):
    (tmp_path / "t.csv").write_text("5.1,kind\n4.9,a\n4.7,b\n")
    found = read_columns(open_records(tmp_path / "t.csv", Limits(), TextForm()), ("5.1",), "kind", Limits())
    assert found.doubt == ("'5.1' is a number like the cells below it", "--no-header")
    assert read_columns(records(**{"5.1": ["4.9"], "kind": ["a"]}), ("5.1",), "kind", Limits()).doubt == ("", "")


def test_columns_that_number_the_rows_are_named():
    found = read_columns(records(id=[4, 5, 6], a=["x", "y", "x"], y=[1, 2, 3]), ("id", "a"), "y", Limits())
    assert found.numbering() == ("id",) and found.numbering(["id"]) == ()


def test_lines_are_one_column_without_blank_ones():
    found = from_lines([(1, "a b\n"), (2, "  \n"), (3, "c\r\n")], "standard input")
    assert found.rows() == ["a b", "c"] and found.place(1) == "standard input, line 3"


@pytest.mark.parametrize("source", [7, object(), None])
def test_what_is_no_table_is_refused(source):
    with pytest.raises(DataError, match="cannot be read; give the name of a file"):
        open_records(source, Limits(), TextForm())
