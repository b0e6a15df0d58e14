"""A table to an ONNX model that takes its cells: answers in ONNX Runtime, unknown rows, refusals, the account."""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
import warnings
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from click.testing import CliRunner

import byheart
from byheart.cli import commands
from byheart.data.read.cells import CellType, Column, read_cells, row_number_columns
from byheart.data.tokens.front import Cells, Characters, Front, FrontColumn, Scaled, Words, cuttings
from byheart.data.values import UNKNOWN
from byheart.errors import DataError, OptionError
from byheart.memory.deploy.deploying import deploy
from byheart.memory.deploy.deployment import Deployment
from byheart.memory.deployed import DeployedModel

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

ODD = ["SW1A 1AA", "é日本", "a😀b c", "x-]^\\[", "a\nb", 'say "hi"', "e\u0301", "-", "^", "  two  spaces "]


def ask(made: Deployment, **cells: list) -> tuple[list, list]:
    """What plain ONNX Runtime answers for columns by their names."""
    session = onnxruntime.InferenceSession(made.model)
    feeds = cells
    if made.signature.matrix is not None:
        feeds = {"rows": [list(row) for row in zip(*cells.values(), strict=True)]}
    label, known = session.run(None, feeds)
    return label.tolist(), known.tolist()


def test_texts_of_all_kinds_are_answered_and_others_are_unknown():
    made = deploy({"text": ODD, "kind": [str(k) + "!" for k in range(len(ODD))]}, progress=False)
    assert made.form == "lookup" and made.verdict == "proved"
    labels, known = ask(made, text=[*ODD, "SW1A 1AB", "é日", "", "a\n", "ab", "é"])
    assert labels[: len(ODD)] == [f"{k}!" for k in range(len(ODD))] and all(known[: len(ODD)])
    assert labels[len(ODD) :] == ["<unknown>"] * 6 and not any(known[len(ODD) :])


def test_only_standard_operators_are_used():
    made = deploy({"text": ODD, "size": [k / 10 for k in range(10)], "kind": list("ababababab")}, progress=False)
    model = onnx.load_from_string(made.model)
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx.ml"}
    assert {opset.domain for opset in model.opset_import} <= {"", "ai.onnx.ml"}


@pytest.mark.parametrize(
    ("labels", "unknown"),
    [
        (["a", "b", "<unknown>"], "<<unknown>>"),
        ([3, -(2**63), 5], -(2**63) + 1),
        ([True, False, True], -(2**63)),
    ],
)
def test_the_answer_for_an_unknown_row_is_never_a_label(labels, unknown):
    made = deploy({"x": ["p", "q", "rr"], "y": labels}, progress=False)
    found, known = ask(made, x=["p", "q", "rr", "zz"])
    assert found == [*labels, unknown] and known == [True, True, True, False]
    assert made.answers.unknown not in labels


def test_float_labels_are_doubles_and_unknown_is_nan():
    made = deploy({"x": ["p", "q", "rr"], "y": [0.1, -2.5, 1e300]}, progress=False)
    found, known = ask(made, x=["p", "q", "rr", "s"])
    assert found[:3] == [0.1, -2.5, 1e300] and np.isnan(found[3]) and known == [True, True, True, False]


def test_decimals_from_a_csv_file(tmp_path):
    rows = [["width", "height", "kind"], ["5.1", "3", "a"], ["4.9", "3.5", "b"], ["5.1", "3.5", "a"], ["0.1", "2", "b"]]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(map(",".join, rows)))
    made = deploy(path, tmp_path / "t.onnx", progress=False)
    assert [column.type for column in made.front.columns] == [CellType.NUMBER, CellType.NUMBER]
    session = onnxruntime.InferenceSession(str(tmp_path / "t.onnx"))
    label, known = session.run(None, {"rows": np.array([[5.1, 3.0], [0.1, 2.0], [5.1000001, 3.0], [np.nan, 3.0]])})
    assert label.tolist() == ["a", "b", "<unknown>", "<unknown>"] and known.tolist() == [True, True, False, False]


def test_columns_of_several_types_are_inputs_by_their_names():
    table = {
        "label": ["x", "y", "x", "y"],
        "known": [True, False, False, True],
        "n": [5, 1, 5, 2],
        "codes": ["a b", "b", "a b", "c d"],
        "answer": ["one", "two", "three", "four"],
    }
    made = deploy(table, label="answer", progress=False)
    assert made.signature.inputs == ("label", "known", "n", "codes")
    cells = {name: values for name, values in table.items() if name != "answer"}
    assert ask(made, **cells) == (table["answer"], [True] * 4)


def test_missing_cells_as_values_of_their_own():
    table = {"t": ["a", None, "b"], "x": [1.5, 2.5, None], "y": ["p", "q", "r"]}
    with pytest.raises(DataError, match=r"2 rows have an empty cell \(row 1: 't'; row 2: 'x'\).*--missing drop"):
        deploy(table, progress=False)
    made = deploy(table, missing="label", progress=False)
    assert ask(made, t=["a", "", "b"], x=[1.5, 2.5, float("nan")]) == (["p", "q", "r"], [True] * 3)


def test_long_texts_are_cut_into_words_and_put_together_again():
    rng = random.Random(1)
    names = ["alpha", "beta", "gamma", "delta", "epsilon"]
    texts = sorted({" ".join(rng.choice(names) for _ in range(rng.randint(20, 30))) for _ in range(40)})
    made = deploy({"t": texts, "y": [k % 3 for k in range(len(texts))]}, form="network", tokens="words", progress=False)
    assert made.front.columns[0].cutting.name == "words"
    labels, known = ask(made, t=[*texts, texts[0].replace(" ", "  "), texts[0] + " alpha", "zeta"])
    assert labels[:-3] == [k % 3 for k in range(len(texts))] and known[-3:] == [False] * 3


@pytest.mark.parametrize(
    ("cutting", "values", "others"),
    [
        (Characters, ODD, ["SW1A", "zz", "", "日本é"]),
        (Characters, ["aa", "ab"], ["a", "b", "ba", "aac", ""]),
        (Characters, ["aa"], ["ab", "a", "aaa"]),
        (Words, ["to be", "or not to be", "be"], ["be to", "to  be", " to", "", "be\tto", "to be or not to"]),
        (Cells, ["", "x", "x "], ["X", " x"]),
    ],
)
def test_the_graph_cuts_texts_as_the_front_does(cutting, values, others):
    """The codes of the graph, through a model whose labels are the rows' numbers."""
    name = {Characters: "characters", Words: "words", Cells: "cells"}[cutting]
    made = deploy(
        {"t": values, "y": list(range(len(values)))}, tokens=name, texts=["t"], missing="label", progress=False
    )
    assert ask(made, t=values) == (list(range(len(values))), [True] * len(values))
    front_knows = made.front.encode([others])[1]
    _, known = ask(made, t=others)
    assert not (np.array(known) & ~front_knows).any()  # the network may refuse more
    assert not any(known)


def test_scaled_numbers_are_exact_and_nothing_between_them_is_known():
    values = [0.1, 0.25, 1e-7, 3.0, None]
    scaled = Scaled.of(values)
    assert scaled is not None and scaled.digits == 7
    codes, known = scaled.encode([*values, 0.1 + 1e-12, 0.15, 7.0])
    assert known.tolist() == [True] * 5 + [False, True, False]
    assert len(set(codes[:5, 0].tolist())) == 5
    assert Scaled.of([0.1, 1e30]) is None and Scaled.of([1 / 3]) is None
    front = Front((FrontColumn("x", CellType.NUMBER, scaled),))
    assert front.encode([[0.25]])[0].tolist() == [[2_500_000 - 1]]


def test_numbers_with_leading_zeros_and_equal_numbers_stay_texts():
    cells = {"a": ["00501", "1"], "b": ["1.1", "1.10"], "c": ["-0", "1"], "d": ["1e3", "2"], "e": ["9" * 25, "1"]}
    table = read_cells({**cells, "f": ["7", "8"], "y": ["p", "q"]})
    kinds = {column.name: column.type for column in table.columns}
    assert kinds == {name: CellType.TEXT for name in "abce"} | {"d": CellType.NUMBER, "f": CellType.WHOLE}


def test_a_column_that_numbers_the_rows_is_asked_about(tmp_path):
    table = {"uid": [4, 5, 6, 7], "t": ["a", "b", "c", "a"], "y": ["p", "q", "r", "s"]}
    assert row_number_columns(read_cells(table).columns) == ["uid"]
    with pytest.warns(UserWarning, match="column 'uid' numbers the rows"):
        deploy(table, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deploy(table, keep=["uid"], progress=False)
        deploy({"uid": table["uid"], "y": table["y"]}, progress=False)  # the only input is the key
    path = tmp_path / "t.csv"
    path.write_text("uid,t,y\n4,a,p\n5,b,q\n6,,r\n7,a,s\n")
    result = CliRunner().invoke(commands, ["deploy", str(path), "-o", str(tmp_path / "t.onnx")], catch_exceptions=True)
    words = str(result.exception)
    assert "for example, add: --keep uid --missing drop" in words, "dropping it would lose a row"
    assert "--drop uid skips it" in words and "--missing drop" in words and "--conflicts" not in words
    assert not (tmp_path / "t.onnx").exists()


def test_every_row_that_is_left_out_is_accounted_for(tmp_path):
    path, model = tmp_path / "t.csv", tmp_path / "t.onnx"
    rows = [["t", "y"], ["a", "p"], ["a", "q"], ["", "p"], ["b", ""], ["b", "r"], ["b", "r"], ["c", "p"]]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    runner = CliRunner()
    flags = ["--missing", "drop", "--conflicts", "drop"]
    result = runner.invoke(
        commands, ["deploy", str(path), "-o", str(model), *flags, "--left-out", str(tmp_path / "l.csv")]
    )
    assert "7 rows read, 3 known, of which 1 repeat another row" in result.output
    assert "proved from the file: it contains exactly the table's 2 different rows" in result.output
    assert "skipped: 2 rows with an empty cell (--missing drop): line 4-5" in result.output
    assert "the same inputs as a row with another label (--conflicts drop): line 2-3" in result.output
    listed = (tmp_path / "l.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in listed] == ["line", "4", "5", "2", "3"]
    result = runner.invoke(commands, ["deploy", str(path), "-o", str(model), *flags, "--json"])
    found = json.loads(result.output)
    assert (
        found["verdict"] == "proved" and found["rows"]["known"] == 3 and found["bytes"]["file"] == model.stat().st_size
    )
    label, known = onnxruntime.InferenceSession(str(model)).run(None, {"t": ["b", "c", "a"]})
    assert label.tolist() == ["r", "p", "<unknown>"] and known.tolist() == [True, True, False]


@pytest.mark.parametrize("policy", ["first", "majority", "drop"])
def test_conflicts_are_settled_as_memorize_settles_them(policy):
    rng = random.Random(3)
    keys = [rng.choice("abcdefgh") for _ in range(60)]
    labels = [rng.choice("xyz") if key in "abcd" else key for key in keys]
    made = deploy({"k": keys, "y": labels}, conflicts=policy, progress=False)
    memory = byheart.memorize(keys, labels, conflicts=policy, construction="native", progress=False)
    distinct = sorted(set(keys))
    found, known = ask(made, k=distinct)
    kept = [key for key, there in zip(distinct, known, strict=True) if there]
    assert made.account.counts().get(f"--conflicts {policy}", 0) == memory.conflicts["rows_left_out"]
    assert [label for label, there in zip(found, known, strict=True) if there] == memory.predict(kept)
    assert policy != "drop" or kept == list("efgh")


def test_mistakes_are_named(tmp_path):
    with pytest.raises(DataError, match="has one column"):
        deploy({"y": ["a", "b"]}, progress=False)
    with pytest.raises(DataError, match=r"no column 'colour'.*did you mean 'color'"):
        deploy({"color": ["a"], "y": ["b"]}, label="colour", progress=False)
    with pytest.raises(OptionError, match="tokens='bpe'"):
        deploy({"x": ["a"], "y": ["b"]}, tokens="bpe", progress=False)
    with pytest.raises(OptionError, match="cannot be tokenized into words"):
        deploy({"x": ["a", "b"], "y": ["b", "c"]}, tokens="words", progress=False)
    with pytest.raises(DataError, match=r"\[1, 2\] \(list\); a deployed model takes"):
        deploy({"x": [[1, 2], [3]], "y": ["b", "c"]}, progress=False)
    with pytest.raises(DataError, match="not Unicode"):
        deploy({"x": ["a\ud800", "b"], "y": ["b", "c"]}, progress=False)
    with pytest.raises(DataError, match="every row of the dictionary has an empty cell"):
        deploy({"x": [None, "b"], "y": ["b", None]}, missing="drop", progress=False)


def test_a_null_character_is_no_place_for_patterns():
    values = ["a\0b", "ab", "a", "ab\0"]
    assert [way.name for way in cuttings(values, CellType.TEXT)] == ["whole cells"]
    made = deploy({"x": values, "y": ["p", "q", "r", "r\0"]}, progress=False)
    assert ask(made, x=[*values, "a\0"]) == (["p", "q", "r", "r\0", "<unknown>"], [True] * 4 + [False])


@pytest.mark.parametrize("cells", [[3, 5, 8], [0.5, 2.25, -1.0], [2**63 - 1, 4, 7]])
def test_rows_outside_a_column_of_numbers_are_evaluated_before_the_file_is_written(cells):
    assert deploy({"x": cells, "y": ["p", "q", "p"]}, progress=False).outside == (3 - (2**63 - 1 in cells), 0)


def test_no_row_outside_of_the_table_is_ever_known():
    """All combinations of known cells, which the network alone would take for known ones now and then."""
    rng = random.Random(2)
    rows = sorted(
        {(rng.choice("abcd") * rng.randint(1, 3), rng.randint(0, 9), rng.randint(0, 4) / 4) for _ in range(90)}
    )
    columns = list(zip(*rows, strict=True))
    for form, bits, exact in (("lookup", None, True), ("network", None, True), ("network", 0, False)):
        made = deploy(
            {"t": columns[0], "n": columns[1], "x": columns[2], "y": [rng.choice("pqr") for _ in rows]},
            form=form,
            abstain_bits=bits,
            progress=False,
        )
        every = list(itertools.product(sorted(set(columns[0])), range(10), sorted(set(columns[2]))))
        found = ask(made, **dict(zip(("t", "n", "x"), map(list, zip(*every, strict=True)), strict=True)))
        assert made.exact_unknown is exact
        assert ({row for row, known in zip(every, found[1], strict=True) if known} == set(rows)) is exact
        assert {label for label, known in zip(*found, strict=True) if not known} <= {"<unknown>"}


def test_wide_rows_are_recognised_by_several_lists():
    rng = random.Random(6)
    names = [f"s{k}" for k in range(48)]
    rows = [[rng.randint(0, 10**6) / 1000 for _ in names] for _ in range(40)]
    made = deploy(
        {**dict(zip(names, zip(*rows, strict=True), strict=True)), "y": [k % 3 for k in range(40)]},
        form="network",
        progress=False,
    )
    assert made.sizes["list of rows"] > 40 * 16 * 3, "more than one number holds"
    swapped = [[*one[:k], *two[k:]] for one, two, k in zip(rows, rows[1:], [*range(1, 12)] * 3, strict=False)]
    _, known = ask(made, **dict(zip(names, map(list, zip(*rows, *swapped, strict=True)), strict=True)))
    assert known == [True] * 40 + [False] * len(swapped)


def test_lines_that_are_not_rows_are_left_out_when_asked_and_counted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\nx,p\nonly one\ny,q\nz,r,too many\n   \nw,p\n")
    with pytest.raises(
        DataError, match=r"3 lines do not have as many cells .*line 3 has 1, line 5 has 3.*--uneven drop"
    ):
        deploy(path, progress=False)
    made = deploy(path, uneven="drop", progress=False)
    assert made.account.lines() == [
        "6 rows read, 3 known",
        "skipped: 3 rows with more or fewer cells than there are columns (--uneven drop): line 3, 5-6",
    ]
    assert ask(made, a=["x", "y", "w", "z"])[0] == ["p", "q", "p", "<unknown>"]


@pytest.mark.parametrize(
    ("written", "refused"),
    [
        ("SW1,London\nM1,North\nEH1,London\n", "'London' is also a cell below it"),
        ("5.1,3.5,x\n4.9,3.1,y\n", "'5.1' is a number like the cells below it"),
        ("0,1,2,kind\n0,1,2,a\n5,6,7,b\n", ""),
        ("2019,2020,kind\n0,2020,a\n5,6,b\n", ""),
        ("name,kind\na,p\nb,q\n", ""),
    ],
)
def test_a_first_line_that_looks_like_a_row_is_asked_about(tmp_path, written, refused):
    path = tmp_path / "t.csv"
    path.write_text(written)
    rows = written.count("\n")
    if refused:
        with pytest.raises(DataError, match=f"{refused}; --header reads it as names all the same"):
            deploy(path, progress=False)
        assert deploy(path, header=False, progress=False).account.rows == rows
    assert deploy(path, header=True if refused else None, progress=False).account.rows == rows - 1


def test_columns_without_cells_and_names_that_occur_twice(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,a,y\nx,,1,p\nx,,2,q\nz,,2,p\n")
    with pytest.raises(DataError, match=r"column 'b' is empty; add --drop b"):
        deploy(path, missing="drop", progress=False)
    made = deploy(path, drop=["b"], progress=False)
    assert made.signature.inputs == ("a", "a (2)") and "'a', 'a (2)' here" in made.remarks[-1]
    with pytest.raises(DataError, match="the label's column, 'y', is empty; name another one with --label"):
        deploy({"a": ["x", "z"], "y": [None, None]}, progress=False)


def test_frames_of_every_library_give_the_same_model():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    arrow, datasets = pytest.importorskip("pyarrow"), pytest.importorskip("datasets")
    columns = {"name": ["Ann", "Bo", "Cy"], "size": [1.5, 2.25, 0.1], "n": [3, 1, 1], "kind": ["x", "y", "x"]}
    sources = [columns, pandas.DataFrame(columns), polars.DataFrame(columns), arrow.table(columns)]
    models = {
        deploy(source, label="kind", progress=False).model for source in [*sources, datasets.Dataset.from_dict(columns)]
    }
    assert len(models) == 1


def test_iris_in_one_call():
    data = pytest.importorskip("sklearn.datasets")
    frame = data.load_iris(as_frame=True).frame
    made = deploy(frame, progress=False)
    X, y = data.load_iris(return_X_y=True)
    label, known = onnxruntime.InferenceSession(made.model).run(None, {"rows": X})
    assert (label == y).all() and known.all()
    unseen = X + np.random.default_rng(0).choice([-0.1, 0.1], X.shape).round(1)
    fresh = ~(unseen.round(1)[:, None, :] == X.round(1)[None]).all(axis=2).any(axis=1)
    assert not onnxruntime.InferenceSession(made.model).run(None, {"rows": unseen.round(1)[fresh]})[1].any()


@pytest.mark.slow
def test_digits_and_twenty_columns_of_decimals(tmp_path: Path):
    data = pytest.importorskip("sklearn.datasets")
    X, y = data.load_digits(return_X_y=True)
    made = deploy(data.load_digits(as_frame=True).frame, progress=False)
    label, known = onnxruntime.InferenceSession(made.model).run(None, {"rows": X})
    assert (label == y).all() and known.all() and made.outside[1] == 0
    rng = random.Random(3)
    rows = [[round(rng.gauss(5, 2), 3) for _ in range(20)] for _ in range(3_000)]
    path = tmp_path / "sensors.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [[f"s{k}" for k in range(20)] + ["kind"], *([*row, k % 3] for k, row in enumerate(rows))]
        )
    made = deploy(path, progress=False)
    label, known = onnxruntime.InferenceSession(made.model).run(None, {"rows": np.array(rows)})
    assert label.tolist() == [k % 3 for k in range(3_000)] and known.all()
    assert made.sizes["cells"] < 20_000, "numbers with many digits are scaled, not listed"


@pytest.mark.slow
def test_a_large_table_with_everything(tmp_path: Path):
    """40,000 rows with spaces, quotes, unicode, empty cells and conflicts: refused with flags, then answered."""
    rng = random.Random(5)
    first = ["José", "Anna", "李", "O'Brien", "Mary Ann", '"Q"', "Ana-María", "Ørsted"]
    cities = ["São Paulo", "New York", "Los Angeles, CA", "東京", 'A "quoted" town']
    tiers = ["gold", "bronze, old", 'no "class"']
    rows = [
        [f"{rng.choice(first)} {rng.choice('ABCDEFGH')}{rng.randint(0, 99999)}", rng.choice(cities),
         f"{rng.uniform(0, 1000):.2f}", rng.randint(18, 99), rng.choice(tiers)]
        for _ in range(40_000)
    ]  # fmt: skip
    for row in rng.sample(rows, 300):
        row[rng.randint(0, 4)] = ""
    for row in rng.sample(rows, 200):
        row[:4] = rng.choice(rows)[:4]
    path, model = tmp_path / "t.csv", tmp_path / "t.onnx"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["name", "city", "spent", "age", "tier"], *rows])
    refused = CliRunner().invoke(commands, ["deploy", str(path), "-o", str(model)])
    assert "--missing drop" in str(refused.exception) and "--conflicts first" in str(refused.exception)
    flags = ["--missing", "drop", "--conflicts", "first", "--json"]
    found = json.loads(CliRunner().invoke(commands, ["deploy", str(path), "-o", str(model), *flags]).output)
    gone = {number for part in found["rows"]["left_out"] for number in part["places"]}
    kept = [row for line, row in enumerate(rows, start=2) if line not in gone]
    assert len(kept) == found["rows"]["known"] and len(kept) + len(gone) == 40_000
    columns = list(zip(*kept, strict=True))
    feeds = {"name": list(columns[0]), "city": list(columns[1]), "spent": np.array(columns[2], dtype=float),
             "age": np.array(columns[3], dtype=np.int64)}  # fmt: skip
    label, known = onnxruntime.InferenceSession(str(model)).run(None, feeds)
    assert known.all() and label.tolist() == list(columns[4])


@pytest.mark.parametrize(
    ("cells", "kind", "asked"),
    [
        ([Decimal("1.10"), Decimal("2.5")], CellType.NUMBER, [1.1, 2.5]),
        ([Decimal("3"), Decimal("4.00")], CellType.WHOLE, [3, 4]),
        (
            [Decimal("0.12345678901234567890"), Decimal("0.12345678901234567891")],
            CellType.TEXT,
            ["0.12345678901234567890", "0.12345678901234567891"],
        ),
        ([math.inf, -math.inf, 0.5], CellType.NUMBER, [math.inf, -math.inf, 0.5]),
        ([UUID(int=5), UUID(int=6)], CellType.TEXT, [str(UUID(int=5)), str(UUID(int=6))]),
    ],
)
def test_cells_as_databases_have_them(cells, kind, asked):
    made = deploy({"x": cells, "y": list("abc")[: len(cells)]}, progress=False)
    assert [column.type for column in made.front.columns] == [kind]
    stranger = "?" if kind is CellType.TEXT else 7 if kind is CellType.WHOLE else 1e300
    labels, known = ask(made, x=[*asked, stranger])
    assert labels == [*"abc"[: len(cells)], "<unknown>"] and known == [True] * len(cells) + [False]


def test_rows_as_programs_have_them():
    for rows in ([{"x": "p", "y": 1}, {"x": "q", "y": 2}], np.array([("p", 1), ("q", 2)], dtype="U1,i8")):
        made = deploy(rows, progress=False)
        assert ask(made, **{made.signature.inputs[0]: ["q", "p", "r"]})[0][:2] == [2, 1]
    pandas = pytest.importorskip("pandas")
    with pytest.raises(DataError, match="reset_index"):
        deploy(pandas.DataFrame({"v": [1, 2]}, index=pandas.Index(["a", "b"], name="key")), progress=False)
    frame = pandas.DataFrame({"m": pandas.period_range("2020-01", periods=2, freq="M"), "y": ["a", "b"]})
    assert ask(deploy(frame, progress=False), m=["2020-02", "2020-03"]) == (["b", "<unknown>"], [True, False])


def test_a_comma_at_the_end_of_every_line_makes_no_column(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,\nx,1,\ny,2,\n")
    made = deploy(tmp_path / "t.csv", progress=False)
    assert made.label == "b" and made.signature.inputs == ("a",)
    assert "a column without a name and without cells was skipped" in made.remarks
    (tmp_path / "t.csv").write_text(",a,b\n1,x,1\n5,y,2\n")
    made = deploy(tmp_path / "t.csv", progress=False)
    assert made.signature.inputs == ("column 1", "a") and ask(made, **{"column 1": [5], "a": ["y"]}) == ([2], [True])


@pytest.mark.parametrize(
    ("name", "cells", "numbers"),
    [
        ("id no", ["q", "r", "s"], True),
        ("customer_id", [9, 4, 7], True),
        ("OrderID", ["x", "y", "z"], True),
        ("width", [9, 4, 7], False),
        ("valid", ["q", "r", "s"], False),
        ("customer_id", [9, 4, 9], False),
        ("t", list(range(0, 300, 30)), True),
        ("t", [0, 30, 60], False),
        ("t", [*range(0, 300, 30), 301], False),
    ],
)
def test_columns_that_name_or_number_the_rows(name, cells, numbers):
    assert row_number_columns([Column(name, CellType.TEXT, cells)]) == ([name] if numbers else [])


def test_the_printed_lines_run_where_the_first_row_has_no_number(tmp_path):
    made = deploy(
        {"a": [None, 1.5], "b": [math.inf, 2.5], "y": ["p", "q"]}, tmp_path / "m.onnx", missing="label", progress=False
    )
    found: dict = {}
    exec(made.snippet(), found)
    assert found["label"].tolist() == ["p"] and found["known"].tolist() == [True]


def test_whole_numbers_that_a_float_rounds_keep_their_column_texts(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,kind\n9007199254740993,a\n0.5,b\n")
    file = DeployedModel.of(deploy(path, progress=False).model)
    assert file.predict([["9007199254740993", "9007199254740992", "0.5"]]) == ["a", UNKNOWN, "b"]
    path.write_text("x,kind\n9007199254740992,a\n0.5,b\n")  # 2^53 + 1 rounds to it
    assert file.columns == DeployedModel.of(deploy(path, progress=False).model).columns == (("x", CellType.TEXT),)
    path.write_text("x,kind\n9007199254740991,a\n0.5,b\n")
    assert DeployedModel.of(deploy(path, progress=False).model).columns == (("x", CellType.NUMBER),)


def test_a_guessed_label_that_makes_rows_contradict_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y,cell\n" + "".join(f"{k % 5},{k // 5},c{k % 3}\n" for k in range(25)))
    with pytest.raises(DataError, match="the label 'y' is a guess, and with --label-column cell no rows contradict"):
        deploy(path, progress=False)
    path.write_text("x,y,cell\n1,2,a\n1,3,a\n1,2,b\n")  # contradicts itself either way
    with pytest.raises(DataError) as refused:
        deploy(path, progress=False)
    assert "is a guess" not in str(refused.value)
