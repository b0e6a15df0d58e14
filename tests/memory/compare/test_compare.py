"""The comparison: rows, predictions when time is up, assumptions with rows, and its faces (terminal, JSON, page)."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from math import isqrt
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from rich.console import Console

import byheart
from byheart.build import recipes
from byheart.cli import commands
from byheart.cli.compare import _print_growth, _print_table, parse_grid
from byheart.data.dataset.dataset import load
from byheart.errors import AssumptionError, DataError, OptionError
from byheart.memory.compare.comparison import (
    applicable,
    compare,
    compare_growth,
    listed,
    measured_row,
    predicted_row,
    prediction,
    random_dataset,
    subsets,
)
from byheart.memory.compare.rows import csv_table, gentle_bits, gentle_growth, growth_exponents
from byheart.memory.compare.worker import Worker
from byheart.report.compare_page import render
from byheart.theory import Problem

FAST = ["nilsson65", "baum88", "vardi22"]


@pytest.fixture(scope="module")
def small():
    return compare_growth([random_dataset(N, 2, 2, 2) for N in (8, 16, 32)], constructions=FAST)


def test_every_registered_construction_for_the_task_is_a_row():
    dataset = load(["ab", "ba"], [0, 1])
    names = applicable(dataset)
    assert {name for name, entry in recipes().items() if dataset.encoder.task in entry.tasks} <= set(names)
    assert {"madden24", "madden24-average"} <= set(names) and names[0] == "nilsson65"


def test_rows_carry_sizes_verdict_and_times(small):
    row = small[-1].row("vardi22")
    assert row.verdict == "proved" and row.parameters <= row.guaranteed["parameters"] and row.nonzero < row.parameters
    assert row.build_seconds >= 0 and row.certify_seconds >= 0 and row.theorem == "V22, Theorem 3.1"
    assert [r.construction for r in small[-1].rows][-3:] == ["python dict", "sorted array", "information limit"]
    assert small[-1].row("information limit").total_bits == 32
    assert small[-1].all_proved and small[-1].floors


def test_growth_is_the_slope_in_the_log_log_picture(small):
    slopes = growth_exponents(small)
    assert set(slopes) == set(FAST) and 0.5 < slopes["nilsson65"] < 1.6


def test_an_assumption_that_fails_is_a_row_with_the_offending_rows(monkeypatch):
    def refuse(*arguments, **options):
        raise AssumptionError("rows are short", "row 4 is long", (4,))

    monkeypatch.setattr(sys.modules["byheart.memory.memorize"], "memorize_dataset", refuse)
    row = measured_row(random_dataset(5, 2, 2, 2), "vardi22", 0)
    assert (row.verdict, row.assumption, row.rows) == ("assumption", "rows are short", (4,))
    assert not row.built and row.parameters is None


def test_an_assumption_that_is_not_needed_after_all_is_said_below_the_table(tmp_path):
    data = tmp_path / "grid.csv"
    codes = [a + b + c for a in "abcde" for b in "abcde" for c in "abcde"]
    rows = [f"{code},{(7 * k * k + k // 3) % 5 % 2}" for k, code in enumerate(codes)]
    data.write_text("\n".join(["code,label", *rows]), encoding="utf-8")
    words = ["compare", str(data), "--construction", "baum88", "--quiet"]
    result = CliRunner().invoke(commands, words, standalone_mode=False, env={"COLUMNS": "200"})
    assert result.exception is None and result.return_value == 0
    printed = " ".join(result.stdout.split())
    assert (
        "proved" in printed
        and "baum88: not true of this data, and not assumed: rows are in general position" in printed
    )


def test_what_does_not_fit_the_data_says_so():
    row = measured_row(load([["a", "b"]], [0], task="set"), "kim23", 0)
    assert row.verdict == "not applicable" and "does not build task set" in row.reason


def test_a_construction_that_is_stopped_is_predicted_and_not_tried_again():
    datasets = [random_dataset(N, 2, 2, 2) for N in (20, 40, 80)]
    found = compare_growth(datasets, constructions=["nilsson65"], time_limit=0.001)
    first, second, third = (part.row("nilsson65") for part in found)
    assert first.verdict == second.verdict == third.verdict == "predicted"
    assert "not finished within 0.001 seconds" in first.reason and "not finished" in second.reason
    assert "smaller data sets already took too long" in third.reason
    assert first.parameters == 19 * (2 * 2 + 2) + 1  # the theorem's formula


def test_the_worker_survives_a_time_out():
    dataset = random_dataset(6, 2, 2, 2)
    with Worker() as worker:
        assert "not finished" in str(worker.measure(dataset, "nilsson65", 0, 0.001))
        row = worker.measure(dataset, "nilsson65", 0, 120)
        assert not isinstance(row, str) and row.verdict == "proved"


KILLED = """
from byheart.memory.compare.comparison import random_dataset
from byheart.memory.compare.worker import Worker
worker = Worker()
print(worker._running().pid, flush=True)
worker.measure(random_dataset(2000, 8, 8, 2), "mahdavi24", 0, 600)  # minutes of work
"""


def alive(process):
    """Neither gone nor a zombie without a parent that waits."""
    try:
        os.kill(process, 0)
        return "zombie" not in Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # gone by now, or a system without /proc
        return not Path("/proc").is_dir()


@pytest.mark.skipif(not hasattr(os, "getppid") or sys.platform == "win32", reason="needs parents and children")
def test_a_worker_ends_with_its_parent():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    parent = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, env=environment)
    child = int(parent.stdout.readline())
    os.kill(parent.pid, 9)
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        if not alive(child):
            return
        time.sleep(0.1)
    raise AssertionError(f"process {child} is still there")


@pytest.mark.parametrize("name", [name for name, entry in listed().items() if entry.formula])
def test_every_formula_speaks_about_some_task(name):
    problems = [Problem(task, N=50, n=4, d=3, C=2, omega=9) for task in ("next-token", "seq-to-seq", "set", "causal")]
    found = [prediction(name, problem) for problem in problems]
    assert any(f is not None and f.sizes["parameters"] > 0 for f in found)


def test_no_formula_is_said_and_never_dropped():
    row = predicted_row("kim23", Problem("set", N=5), "too long")
    assert row.verdict == "predicted" and row.parameters is None and "no formula" in row.reason


def test_madden_decoders_are_built_on_symbols_in_order():
    dataset = load(["abc", "bca", "cab", "bbb"], [0, 1, 2, 1])
    found = compare(dataset, constructions=["madden24", "madden24-average"])
    assert [row.verdict for row in found.rows[:2]] == ["proved", "proved"]
    assert all("enclosures" in row.arithmetic and row.parameters > 0 for row in found.rows[:2])


@pytest.mark.parametrize("name", ["ks25-embedding", "madden24", "madden24-average"])
def test_vectors_become_a_vocabulary_where_a_table_is_needed(name):
    row = measured_row(random_dataset(30, 3, 2, 3), name, 0)
    assert row.verdict == "proved" and any("every vector" in note for note in row.notes)


def test_subsets_grow_inside_each_other():
    dataset = random_dataset(20, 2, 2, 2)
    few, more = (set(map(str, part.sequences())) for part in subsets(dataset, [5, 10]))
    assert len(few) == 5 and few < more


def test_csv_has_a_line_per_row(small):
    lines = list(csv.DictReader(io.StringIO(csv_table(small))))
    assert len(lines) == sum(len(part.rows) for part in small)
    assert lines[0]["construction"] == "nilsson65" and int(lines[0]["parameters"]) > 0


def test_the_command_prints_one_json_object(tmp_path):
    data = tmp_path / "names.csv"
    data.write_text("name,label\nab,0\nba,1\nabb,1\nbbb,0\n", encoding="utf-8")
    table, page = tmp_path / "rows.csv", tmp_path / "page.html"
    words = ["compare", str(data), "--construction", "nilsson65", "--construction", "park21", "--time-limit", "120"]
    result = CliRunner().invoke(
        commands, [*words, "--json", "--csv", str(table), "--html", str(page)], standalone_mode=False
    )
    assert result.exception is None, result.output
    printed = json.loads(result.stdout)
    assert printed["N"] == 4 and [row["verdict"] for row in printed["rows"][:2]] == ["proved", "proved"]
    assert {"construction", "verdict", "parameters", "nonzero", "max_bits", "total_bits"} <= set(printed["rows"][0])
    assert table.is_file() and "nilsson65" in page.read_text(encoding="utf-8")


def test_the_table_in_the_terminal():
    words = ["compare", "--grid", "N=6,12", "--n", "2", "--d", "2", "--construction", "nilsson65", "--quiet"]
    result = CliRunner().invoke(commands, words, standalone_mode=False, env={"COLUMNS": "160"})
    assert result.exception is None and result.return_value == 0
    assert (
        "N = 12 rows of 2 tokens" in result.stdout
        and "grow like" in result.stdout
        and "the given labels may be easier" in result.stdout
    )


def test_numbers_are_never_cut(small):
    narrow = Console(file=io.StringIO(), width=66, force_terminal=True, color_system=None)
    _print_table(narrow, small[-1])
    printed = narrow.file.getvalue()
    assert "…" not in printed and "too narrow for: max bits" in printed
    assert f"{small[-1].row('nilsson65').parameters:,}" in printed


def test_a_pipe_gets_all_columns(small, capsys):
    _print_table(Console(width=66), small[-1])
    printed = capsys.readouterr().out
    assert "…" not in printed and "max bits" in printed and "too narrow" not in printed


@pytest.mark.parametrize("text", ["N=", "M=3", "N=a", "N=0,4"])
def test_a_grid_that_is_none(text):
    with pytest.raises(OptionError, match="--grid"):
        parse_grid(text)


def test_nothing_to_compare_is_an_error():
    with pytest.raises(OptionError, match="give DATA"):
        CliRunner().invoke(commands, ["compare"], standalone_mode=False, catch_exceptions=False)
    with pytest.raises(OptionError, match="unknown construction"):
        compare(random_dataset(3, 1, 1, 1), constructions=["no-such"])


def test_slopes_below_one_half_are_explained():
    """700 + 40·√N has a slope of 0.27 at these sizes; a line through the origin needs no words."""
    sizes = (100, 300, 1000, 3000)
    kinds = {
        "with a constant": lambda N: 700 + 40 * isqrt(N),
        "root": lambda N: 40 * isqrt(N),
        "linear": lambda N: 3 * N,
    }
    parts = [
        SimpleNamespace(
            N=N, rows=[SimpleNamespace(construction=k, parameters=f(N), built=True) for k, f in kinds.items()]
        )
        for N in sizes
    ]
    assert growth_exponents(parts)["with a constant"] < 0.3
    printed = gentle_growth(parts)
    assert list(printed) == ["with a constant"] and "39.4·√N" in printed["with a constant"]


def test_bits_below_proportional_are_explained():
    """What labels need grows like N, so a slope below 1 is that of a constant part; the sentence has both ratios."""

    def row(name: str, bits: int) -> SimpleNamespace:
        return SimpleNamespace(construction=name, total_bits=bits, built=name != "information limit")

    sizes = (100, 300, 1000, 3000)
    kinds = {"with a constant": lambda N: 4000 + 4 * N, "linear": lambda N: 9 * N, "information limit": lambda N: N}
    parts = [SimpleNamespace(N=N, rows=[row(name, bits(N)) for name, bits in kinds.items()]) for N in sizes]
    printed = gentle_bits(parts)
    assert list(printed) == ["with a constant"]
    assert "44.0 times those of the labels alone at N = 100 and 5.3 times at N = 3,000" in printed["with a constant"]
    assert "Remark 4.4" in printed["with a constant"]


def test_the_terminal_and_the_page_explain_both_slopes():
    parts = compare_growth([random_dataset(N, 2, 2, 2) for N in (10, 40)], constructions=["park21"])
    out = Console(file=io.StringIO(), width=400)
    _print_growth(out, parts)
    printed = out.file.getvalue()
    assert "park21: parameters grow like N^" in printed and "park21: bits grow like N^" in printed
    for place in (printed, render(parts)):
        assert "times those of the labels alone" in place and "cannot stay there" in place


def test_rows_tables_and_data_sets_are_compared_alike():
    rows, labels, names = ["ab", "ba", "bb"], [0, 1, 1], ["nilsson65"]
    table = byheart.read({"row": rows, "label": labels}, label="label", tokens="characters")
    sizes = [
        byheart.compare(*data, constructions=names).rows[0].parameters
        for data in ((rows, labels), (table,), (load(rows, labels),))
    ]
    assert len(set(sizes)) == 1
    for wrong in ((rows,), (table, labels)):
        with pytest.raises(DataError, match="labels"):
            byheart.compare(*wrong)
