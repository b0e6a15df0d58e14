"""Data is never changed: what is a string stays that string, and 1, "1", 1.0, True, 0.0 and -0.0 are distinguished."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import byheart
from byheart.cli import commands
from byheart.data import load
from byheart.data.read.options import ReadOptions
from byheart.data.read.table import read
from byheart.data.values import convert, distinct, from_json, is_missing, key, order, plain, same, to_json
from byheart.errors import ByheartError, DataError, FileFormatError, OptionError

LOOKALIKES = [1, "1", 1.0, True, 0, "0", 0.0, -0.0, False, "True", "+1", " 1", "01", None]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


def write(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8")
    return str(path)


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(commands, [*arguments], catch_exceptions=False, standalone_mode=False)
    assert result.return_value == status, result.output
    return result.output


def test_lookalikes_are_distinct() -> None:
    classes, numbers = distinct(LOOKALIKES * 2)
    assert len(classes) == len(LOOKALIKES) and len(set(numbers)) == len(LOOKALIKES)
    assert all(same(classes[number], value) for number, value in zip(numbers, LOOKALIKES * 2, strict=True))
    assert len({key(value) for value in LOOKALIKES}) == len({json.dumps(to_json(v)) for v in LOOKALIKES}) == 14


@given(VALUES, VALUES)
def test_one_value_has_one_key_one_place_and_one_spelling(one: Any, two: Any) -> None:
    assert same(from_json(json.loads(json.dumps(to_json(one))), "classes"), one)
    assert same(one, two) == (to_json(one) == to_json(two) and json.dumps(to_json(one)) == json.dumps(to_json(two)))
    assert same(one, two) == (order(one) == order(two)) and (order(one) < order(two) or order(two) <= order(one))


@pytest.mark.parametrize(
    "spelling",
    [
        {"float": "0x1p+0"}, {"float": "nan"}, {"float": "1.0"}, {"float": 1}, {"bytes": "AB"}, {"bytes": "a b"},
        {"integer": "0x7"}, {"integer": 7}, {"integer": "0x0020000000000000"}, 2**53, {"bool": True}, {"none": True},
        1.0, [], {}, {"tuple": "ab"}, {"tuple": [1], "float": "0x0p+0"}, {"tuple": [{"float": "inf "}]},
    ],
    ids=str,
)  # fmt: skip
def test_other_spellings_are_refused(spelling: Any) -> None:
    with pytest.raises(FileFormatError, match="classes"):
        from_json(spelling, "classes")


def test_numpy_scalars_become_what_they_hold() -> None:
    given = [np.int8(1), np.uint64(2**64 - 1), np.float32(0.1), np.float64(-0.0), np.bool_(True), np.str_("1")]
    wanted = [1, 2**64 - 1, float(np.float32(0.1)), -0.0, True, "1"]
    assert same([plain(value) for value in given], wanted)
    assert isinstance(plain(np.datetime64(1, "ns")), np.datetime64), "its item would be a bare int"
    assert same(load(["a", "b"], np.array([0.0, -0.0])).label_values(), [0.0, -0.0])


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        ("00501", "str", "00501"), ("00501", "int", 501), ("+7", "int", 7), ("2.50", "float", 2.5),
        ("-0.0", "float", -0.0), (3.0, "int", 3), (7, "str", "7"), (0.5, "str", "0.5"), (7, "float", 7.0),
        ("TRUE", "bool", True), (0, "bool", False), (None, "int", None),
    ],
)  # fmt: skip
def test_what_the_user_asks_for(value: Any, kind: str, wanted: Any) -> None:
    assert same(convert(value, kind), wanted)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("7.0", "int"), (" 7", "int"), ("7_0", "int"), ("٣", "int"), (True, "int"), (0.5, "int"), ("nan", "float"),
        ("1e999", "float"), (2**53 + 1, "float"), (10**400, "float"), ("yes", "bool"), (2, "bool"), ([1], "str"),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_is_refused(value: Any, kind: str) -> None:
    with pytest.raises(DataError, match="is not"):
        convert(value, kind)


ZIP = 'name,zip\nholtsville,00501\nnewyork,10001\n"+7",+7\n'


def test_a_zip_code_stays_a_zip_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "zip.csv", ZIP)
    run("memorize", "zip.csv", "-o", "m", "--construction", "ks25")
    assert run("predict", "m", "holtsville", "+7") == "00501\n+7\n"
    assert json.loads(run("predict", "m", "holtsville", "--json"))["labels"] == ["00501"]
    assert run("verify", "m", "zip.csv").startswith("proved")
    write(tmp_path / "other.csv", ZIP.replace("00501", "501"))
    run("verify", "m", "other.csv", status=1)


def test_labels_of_the_type_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "zip.csv", ZIP)
    run("memorize", "zip.csv", "-o", "m", "--construction", "ks25", "--label-type", "int")
    assert json.loads(run("predict", "m", "holtsville", "--json"))["labels"] == [501]
    assert run("verify", "m", "zip.csv", "--label-type", "int").startswith("proved")
    with pytest.raises(OptionError, match="--label-type int"):
        run("verify", "m", "zip.csv")
    with pytest.raises(DataError, match=r"line 2: the label 'red' .* is not a whole number \(and 1 more rows\)"):
        read(write(tmp_path / "t.csv", "x,y\na,red\nb,1\nc,blue\n"), label_type="int")


FORMATS = ["csv", "jsonl", "parquet", "pandas", "polars", "arrow", "dictionary", "hugging face"]


@pytest.mark.parametrize("door", FORMATS)
def test_strings_that_look_like_numbers_in_every_door(door: str, tmp_path: Path) -> None:
    columns = {"a": ["007", "7", "+7", " 7"], "b": ["1", "1.0", "-0", "0"], "label": ["00501", "501", "+501", " 501"]}
    table = read(_through(door, columns, tmp_path), sequence_column=["a", "b"], label_column="label")
    assert table.sequences == [list(row) for row in zip(columns["a"], columns["b"], strict=True)]
    assert table.labels == columns["label"]
    memory = byheart.memorize(table, construction="ks25", progress=False)
    assert memory.predict(table.sequences) == columns["label"]


@pytest.mark.parametrize("door", FORMATS[1:])
def test_numbers_where_the_source_has_them(door: str, tmp_path: Path) -> None:
    columns = {"a": [7, 8], "b": ["7", "8"], "c": [0.5, -0.0], "label": [True, False]}
    table = read(_through(door, columns, tmp_path), label="label")
    assert same(table.sequences, [[7, "7", 0.5], [8, "8", -0.0]]) and same(table.labels, [True, False])
    memory = byheart.memorize(table, construction="ks25", progress=False)
    memory.save(tmp_path / "m")
    again = byheart.load(tmp_path / "m")
    assert same(again.predict(table.sequences), table.labels)
    with pytest.raises(ByheartError, match="never memorized"):
        again.predict([[7.0, "7", 0.5]])


def _through(door: str, columns: dict[str, list[Any]], folder: Path) -> Any:
    if door == "csv":
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        return write(folder / "t.csv", "\n".join(lines))
    if door == "jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return write(folder / "t.jsonl", "\n".join(map(json.dumps, rows)))
    if door == "dictionary":
        return columns
    if door == "hugging face":
        return pytest.importorskip("datasets").Dataset.from_dict(columns)
    if door in ("pandas", "polars"):
        return pytest.importorskip(door).DataFrame(columns)
    table = pytest.importorskip("pyarrow").table(columns)
    if door == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(table, folder / "t.parquet")
        return folder / "t.parquet"
    return table


def test_lookalikes_as_labels_and_as_tokens(tmp_path: Path) -> None:
    values = LOOKALIKES[:-1]
    rows = [[value, "x"] for value in values]
    for sequences, labels in ((rows, values), ([[n] for n in range(len(values))], values), (rows, range(len(values)))):
        memory = byheart.memorize(sequences, list(labels), construction="ks25", progress=False)
        memory.save(tmp_path / "m")
        again = byheart.load(tmp_path / "m")
        assert same(again.predict(sequences), list(labels)) and again.certificate.verdict == "proved"


@pytest.mark.parametrize("policy", ["error", "majority", "first", "drop"])
@pytest.mark.parametrize(
    "rows", [[[0.0], [-0.0]], [[1], [1.0]], [[[1, 2.5]], [[1.0, 2.5]]], np.array([[0.0], [-0.0]])], ids=str
)
def test_numbers_that_no_network_tells_apart_are_refused(rows: Any, policy: str) -> None:
    with pytest.raises(DataError, match="differ only in how a number is written"):
        byheart.memorize(rows, ["a", "b"], conflicts=policy, progress=False)
    assert load(rows, ["a", "a"]).N == 2, "with one label both are answered correctly"


def test_values_that_a_memory_cannot_keep() -> None:
    frame = {"name": ["a"], "day": [datetime.date(2026, 1, 1)]}
    with pytest.raises(DataError, match=r"row 0: the label .*type date.*--label-type"):
        read(frame)
    assert read(frame, label_type="str").labels == ["2026-01-01"]
    days = pytest.importorskip("pandas").DataFrame({0: [datetime.date(2026, 1, 1)], "kind": ["x"]})
    assert read(days, label="kind").sequences == [list("2026-01-01")], "a frame's day is the text that pandas writes"
    with pytest.raises(DataError, match="written differently"):
        load(["a", "b"], [Decimal("1"), Decimal("1.0")])


def test_options_are_one_value() -> None:
    options = ReadOptions.of(sequence_column="a", label_type="int", task="set")
    assert options.sequence_columns == ("a",) and options.task == "set"
    for wrong, words in [
        ({"label_type": "number"}, "not one of auto, str, int, float, bool"),
        ({"missing": "skip"}, "not one of error, drop, label"),
        ({"lable": "x"}, "unknown option 'lable'"),
        ({"label": "x", "label_column": "y"}, "give one of them"),
    ]:
        with pytest.raises(OptionError, match=words):
            ReadOptions.of(**wrong)


def test_missing_is_recognised() -> None:
    pandas = pytest.importorskip("pandas")
    assert all(
        map(is_missing, [None, float("nan"), np.float32("nan"), np.datetime64("NaT", "s"), pandas.NA, pandas.NaT])
    )
    assert not any(map(is_missing, ["", "nan", 0, False, np.int64(0), (), b""]))


def test_an_exported_module_tells_symbols_apart() -> None:
    pytest.importorskip("torch")
    rows = [[value, "x"] for value in (1, "1", 1.0, True, 0.0, -0.0)]
    memory = byheart.memorize(rows, list("abcdef"), construction="native", progress=False)
    module = memory.to_torch()
    assert same(module.symbols, list(memory.encoder.symbols or ()))
    assert [module.labels[k] for k in module.predict(module.encode(rows)).tolist()] == list("abcdef")
