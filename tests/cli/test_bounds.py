"""`byheart bounds` and its pictures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from byheart.cli import commands
from byheart.cli.bounds import command as bounds_command
from byheart.errors import MissingExtraError, OptionError
from byheart.theory import Problem


def run(*arguments: str):
    return CliRunner().invoke(bounds_command, arguments, catch_exceptions=True)


def test_json_is_one_object() -> None:
    result = run("--N", "10000", "--n", "8", "--d", "4", "--C", "16", "--omega", "50", "--json")
    assert result.exit_code == 0 and result.stdout.count("\n") == 1
    found = json.loads(result.stdout)
    assert (found["parameters"], found["total_bits"], found["task"]) == (73, 40000, "next-token")
    kinds = {(b["kind"], b["quantity"]) for b in found["bounds"]}
    assert {("lower", "parameters"), ("upper", "width"), ("upper", "depth"), ("upper", "max_bits")} <= kinds
    assert all(b["theorem"] and b["formula"] for b in found["bounds"])


@pytest.mark.parametrize("task", ["next-token", "seq-to-seq", "set", "causal"])
def test_tables_name_theorems(task: str) -> None:
    result = run("--N", "1000", "--n", "8", "--task", task, "--architecture", "4,9,1,1,10,4")
    assert result.exit_code == 0, result.output
    assert (
        "KS25" in result.output
        and ("guaranteed upper bounds" if task != "causal" else "expected sizes") in result.output
    )
    assert "This architecture" in result.output and "985 parameters" in result.output


@pytest.mark.parametrize(
    "arguments",
    [("--N", "0"), ("--N", "10", "--task", "x"), ("--N", "10", "--architecture", "1,2"), ("--N", "9", "--B", "4")],
)
def test_errors_are_for_people(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, OptionError) and result.stdout == ""


def test_hard_documents_are_written(tmp_path: Path) -> None:
    target = tmp_path / "hard.jsonl"
    found = json.loads(run("--N", "20", "--omega", "4", "--documents", str(target), "--json").stdout)
    hard, lines = found["documents"], target.read_text().splitlines()
    assert (hard["hard"], hard["forced"], hard["documents"]) == (20, 60, len(lines))
    lemma = next(b for b in found["bounds"] if b["theorem"] == "M24, Lemma 1")
    assert lemma["value"] == hard["forced"] and all(len(json.loads(line)["tokens"]) == 4 for line in lines)
    assert isinstance(run("--N", "20", "--documents", str(target)).exception, OptionError)


def test_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / "bounds.png"
    result = run("--N", "1000", "--n", "8", "--plot", str(target), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["plot"] == str(target) and target.stat().st_size > 5000


def test_pictures() -> None:
    pytest.importorskip("matplotlib")
    from byheart.plots.bounds import curves, parameters_by_count, parameters_by_length

    problem = Problem("seq-to-seq", N=500, n=8, d=4, C=3)
    figure = parameters_by_count(problem, measured={"compact": [(100, 400), (500, 900)]})
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert "compact, measured" in labels and "at least: Theorem 4.3" in labels and "ks25" in labels
    assert figure.axes[0].get_xscale() == "log" == figure.axes[0].get_yscale()
    labels = parameters_by_length(problem).axes[0].get_legend_handles_labels()[1]
    assert any(label.startswith("next-token") for label in labels) and "seq-to-seq: ks25" in labels
    found = {curve.name: curve for curve in curves([(8, problem), (9, problem)])}
    assert len(found["ks25"].points) == 2 and not found["byheart compact"].proved


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_same_figure_same_bytes(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    from byheart.plots.style import label_axes, new_figure, save

    files = []
    for name in "ab":
        figure = new_figure()
        figure.axes[0].plot([1, 10, 100], [1, 5, 30], label="line")
        label_axes(figure.axes[0], "title", "x", "y")
        files.append(save(figure, tmp_path / f"{name}{suffix}").read_bytes())
    assert files[0] == files[1] and len(files[0]) > 1000


def test_bad_plot_names(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert "end the name in" in str(run("--N", "10", "--plot", str(tmp_path / "x.doc")).exception)
    assert "cannot write" in str(run("--N", "10", "--plot", str(tmp_path / "no" / "x.png")).exception)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("--N", "10", "--plot", str(tmp_path / "x.png"))
    assert isinstance(result.exception, MissingExtraError) and "byheart[plot]" in str(result.exception)


def test_bounds_of_another_scope_have_tables_of_their_own() -> None:
    """Sontag's N/2 was printed among the worst-case bounds on labels, above the size of compact for the same N."""
    shown = " ".join(run("--N", "10000", "--n", "8", "--d", "4", "--C", "16", "--omega", "50").output.split())
    labels, rest = shown.split("worst-case lower bounds for distributions, not labels")
    distributions, points = rest.split("one network shape")[0], rest.split("one network shape")[1]
    assert "worst-case lower bounds" in labels and " 5,000 " not in labels and "M24" not in labels
    assert "(M24," in distributions and " 5,000 " not in distributions
    assert " 5,000 " in points and "cited" in points and "a network for one data set may have fewer" in points


def test_json_says_the_scope_and_what_is_cited() -> None:
    found = json.loads(run("--N", "1000", "--n", "4", "--task", "seq-to-seq", "--json").stdout)["bounds"]
    sontag = next(b for b in found if b["theorem"] == "S97, Theorem 1")
    assert (sontag["value"], sontag["proved"], sontag["cited"], sontag["scope"]) == (500, False, True, "any points")
    assert "N sequences of equal tokens" in sontag["assumptions"][0]


def test_hard_documents_are_not_called_a_proof(tmp_path: Path) -> None:
    target = tmp_path / "hard.jsonl"
    shown = " ".join(run("--N", "20", "--omega", "5", "--documents", str(target)).output.split())
    assert "almost all such documents force a smooth model to have 80 parameters or more" in shown
    assert "this is not a proof about one file" in shown


def test_one_hard_context_is_one(tmp_path: Path) -> None:
    """--N 1 --omega 2 wrote two contexts and spoke of two parameters."""
    target = tmp_path / "hard.jsonl"
    found = json.loads(run("--N", "1", "--omega", "2", "--documents", str(target), "--json").stdout)["documents"]
    assert (found["hard"], found["contexts"], found["forced"]) == (1, 1, 1)
    assert "omega = 1" in str(run("--N", "4", "--omega", "1", "--documents", str(target)).exception)
    assert "N = 0" in str(run("--N", "0", "--omega", "2", "--documents", str(target)).exception)


def test_only_theorems_are_in_the_table_of_guarantees() -> None:
    """compact's estimate and Park's order were printed in the column of theorems."""
    shown = " ".join(run("--N", "1000", "--n", "5", "--d", "4").output.split())
    guaranteed, expected = shown.split("guaranteed upper bounds")[1].split("expected sizes, no theorem")
    assert "Vardi 2022" in guaranteed and not any(name in guaranteed for name in ("compact", "native", "Park"))
    assert all(name in expected for name in ("byheart compact", "byheart native", "Park 2021"))


def test_whose_constants_they_are() -> None:
    """KS25 states Ω(√N); −9 + √(72 + 12T) was printed as if the paper had it."""
    found = json.loads(run("--N", "1000", "--json").stdout)["bounds"]
    own = {b["name"] for b in found if b["own_constants"]}
    assert own == {"Theorem 4.2", "Theorem 4.2, without logarithms", "any chain of layers"}
    assert "constants are byheart's" in " ".join(run("--N", "1000").output.split())


def test_parks_row_is_about_as_large_as_what_is_built() -> None:
    """It was N^(2/3) with constant 1: 118 parameters for a network that has thousands."""
    import byheart

    rows = [f"{k:04d}" for k in range(0, 3000, 7)]
    labels = [k * k % 3 % 2 for k in range(len(rows))]
    memory = byheart.memorize(rows, labels, construction="park21", progress=False)
    row = next(b for b in byheart.theory.bounds(N=len(rows), n=4, d=memory.summary()["d"]) if b.name == "Park 2021")
    assert memory.size.parameters <= row.value <= 2 * memory.size.parameters and not row.proved


@pytest.mark.parametrize(("construction", "heading"), [("compact", "budget"), ("ks25", "guaranteed")])
def test_a_tuned_budget_is_not_called_a_guarantee(construction, heading, tmp_path):
    """byheart's own constructions have budgets; only a paper's theorem guarantees a size."""
    table = tmp_path / "t.csv"
    table.write_text("name,label\nab,x\nba,y\n", encoding="utf-8")
    arguments = ["memorize", str(table), "--construction", construction, "-o", str(tmp_path / "m.byheart")]
    result = CliRunner().invoke(commands, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert {"budget", "guaranteed"} & set(result.output.split()) == {heading}
