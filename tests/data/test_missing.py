"""Missing values: an empty CSV cell, null, None, NaN and NA are treated alike, and all rows concerned are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import byheart
from byheart.cli import commands
from byheart.data.missing import settle_missing
from byheart.data.read.table import read, read_sequences
from byheart.errors import DataError, OptionError

CSV = "name,kind\ncat,pet\n,pet\ndog,\nyak,wild\n,\n"


def sources(folder: Path) -> list[tuple[Any, str, list[int]]]:
    """The same table in many formats, what it counts, and which of its rows lack something."""
    pandas, polars, pyarrow = map(pytest.importorskip, ("pandas", "polars", "pyarrow"))
    columns = {"name": ["cat", None, "dog", "yak", None], "kind": ["pet", "pet", None, "wild", None]}
    (folder / "t.csv").write_text(CSV)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows[1].pop("name")  # a field that is not there is missing too
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with_nan = pandas.DataFrame({name: [float("nan") if v is None else v for v in vs] for name, vs in columns.items()})
    return [
        (folder / "t.csv", "line", [3, 4, 6]),
        (folder / "t.jsonl", "line", [2, 3, 5]),
        (pandas.DataFrame(columns), "row", [1, 2, 4]),
        (with_nan, "row", [1, 2, 4]),
        (pandas.DataFrame(columns).astype("string"), "row", [1, 2, 4]),
        (polars.DataFrame(columns), "row", [1, 2, 4]),
        (pyarrow.table(columns), "row", [1, 2, 4]),
        (columns, "row", [1, 2, 4]),
    ]


def test_every_door_treats_them_alike(tmp_path: Path) -> None:
    for source, unit, numbers in sources(tmp_path):
        no_name, no_kind = f"{unit} {numbers[0]}, {unit} {numbers[2]}", f"{unit} {numbers[1]}, {unit} {numbers[2]}"
        with pytest.raises(DataError, match=f"sequence is missing in {no_name}; the label is missing in {no_kind}:"):
            read(source)
        dropped = read(source, missing="drop")
        assert dropped.labels == ["pet", "wild"] and dropped.missing.left_out == 3
        assert f"3 rows were skipped ({unit} {numbers[0]}, " in dropped.note
        kept = read(source, missing="label")
        assert kept.labels == ["pet", "pet", None, "wild", None] and kept.sequences[1] == [None]


def test_a_long_list_is_cut_and_counted() -> None:
    with pytest.raises(DataError, match=r"row 0, row 1, .*row 19, … \(50 in all\)"):
        settle_missing([["a"]] * 60, [None] * 50 + ["x"] * 10)


def test_missing_cells_of_several_columns(tmp_path: Path) -> None:
    frame = pytest.importorskip("pandas").DataFrame({"a": [0.5, float("nan")], "b": ["x", "y"], "k": [1, 2]})
    with pytest.raises(DataError, match="sequence is missing in row 1"):
        byheart.memorize(frame, label="k", progress=False)
    memory = byheart.memorize(frame, label="k", missing="drop", progress=False)
    assert memory.predict([[0.5, "x"]]) == [1] and "1 row was skipped (row 1)" in memory.notes[-1]
    memory = byheart.memorize(frame, label="k", missing="label", construction="ks25", progress=False)
    memory.save(tmp_path / "m")
    assert byheart.load(tmp_path / "m").predict([[None, "y"], [0.5, "x"]]) == [2, 1]


@pytest.mark.parametrize("labels", [["x", None], ["x", float("nan")], np.array([1.0, np.nan]), iter(["x", None])])
def test_lists_and_arrays(labels: Any) -> None:
    with pytest.raises(DataError, match="the label is missing in row 1"):
        byheart.memorize(["a", "b"], labels, progress=False)


def test_tokens_of_lists_and_arrays() -> None:
    for rows in ([["a"], ["b", None]], [[0.5], [float("nan")]], np.array([[0.5], [np.nan]]), [[[1.5, 2]], [[1, None]]]):
        with pytest.raises(DataError, match="the sequence is missing in row 1"):
            byheart.memorize(rows, ["x", "y"], progress=False)
        assert len(settle_missing(rows, ["x", "y"], "drop").labels) == 1
    with pytest.raises(DataError, match="leaves no row"):
        settle_missing([[]], [1], "drop")
    with pytest.raises(OptionError, match="error, drop, label"):
        byheart.memorize(["a"], ["x"], missing="skip", progress=False)


def test_labels_per_token(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"x": "ab", "y": ["u", null]}\n{"x": "cd", "y": ["u", "v"]}\n{"x": "ef", "y": null}\n')
    with pytest.raises(DataError, match="label is missing in line 1, line 3"):
        read(path, task="seq-to-seq")
    assert read(path, task="seq-to-seq", missing="drop").labels == [["u", "v"]]


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(CSV)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(commands, [*arguments], standalone_mode=False)

    refused = run("memorize", "t.csv", "-o", "m")
    assert isinstance(refused.exception, DataError) and "line 3, line 6" in str(refused.exception)
    printed = json.loads(run("memorize", "t.csv", "-o", "m", "--missing", "drop", "--json").output)
    assert printed["N"] == 2 and printed["missing"] == {
        "policy": "drop", "rows": 3, "rows_left_out": 3, "named": "line 3, line 4, line 6"
    }  # fmt: skip
    assert run("verify", "m", "t.csv", "--missing", "drop").return_value == 0
    assert isinstance(run("verify", "m", "t.csv").exception, DataError), "rows are not skipped unless a flag allows it"
    (tmp_path / "t.csv").write_text(CSV.removesuffix(",\n"))
    printed = json.loads(run("memorize", "t.csv", "-o", "m", "--missing", "label", "--json").output)
    assert printed["N"] == 4 and printed["C"] == 3
    assert run("verify", "m", "t.csv", "--missing", "label").return_value == 0


def test_questions(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    with pytest.raises(DataError, match="line 3, line 6"):
        read_sequences(str(tmp_path / "t.csv"))
