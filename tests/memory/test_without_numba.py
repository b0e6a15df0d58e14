"""Memories load, predict and verify where numba is not installed; building names what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import byheart

WORDS = [f"w{k:04}" for k in range(400)]
LABELS = [str(k * k % 7) for k in range(400)]

# A module that is None in sys.modules cannot be imported, as if it were not installed.
START = "import sys; sys.modules['numba'] = None; import byheart\n"


def without_numba(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START + script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("construction", ["compact", "native", "ks25"])
def test_load_predict_verify(tmp_path, construction):
    path = tmp_path / "m.byheart"
    byheart.memorize(WORDS, LABELS, construction=construction, progress=False).save(path)
    script = """
memory = byheart.load(sys.argv[1])
words = [f"w{k:04}" for k in range(400)]
labels = [str(k * k % 7) for k in range(400)]
assert memory.predict(words) == labels  # so many that compiled code would be used
certificate = memory.verify(words, labels)
print(certificate.verdict.value, certificate.agree)
"""
    assert without_numba(script, str(path)) == "proved 400\n"


def test_building_names_what_is_missing():
    script = """
try:
    byheart.memorize(["ab", "cd"], ["x", "y"], progress=False)
except byheart.ByheartError as error:
    print(error)
print(byheart.memorize(["ab", "cd"], ["x", "y"], construction="ks25", progress=False).predict(["cd"]))
"""
    assert without_numba(script) == (
        "computing these weights needs numba, which is not installed: pip install 'byheart[build]' "
        "(loading, predicting, verifying and lookups work without it)\n['y']\n"
    )


def test_a_lookup_is_deployed_and_queried(tmp_path):
    """`deploy` compares a lookup with a network; where none can be built, it prints the lookup's cost alone."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "t.csv").write_text("code,kind\n" + "".join(f"c{k},k{k % 3}\n" for k in range(30)))
    script = """
from click.testing import CliRunner
from byheart.cli import commands
table, model = sys.argv[1:]
run = lambda *words: CliRunner().invoke(commands, words, standalone_mode=False)
made = run("deploy", table, "-o", model)
assert "written as lookup" in made.output and "the same rows as network" not in made.output
print(run("verify", model, table, "--json").output.count('"proved"'), run("predict", model, "c4", "c99").output.split())
print(run("deploy", table, "-o", model, "--as", "network").exception)
"""
    printed = without_numba(script, str(tmp_path / "t.csv"), str(tmp_path / "t.onnx")).splitlines()
    assert printed[0] == "1 ['k1', 'unknown']" and printed[1].startswith("computing these weights needs numba")


def test_constructions_and_papers_are_listed():
    script = """
from click.testing import CliRunner
from byheart.cli import commands
for words in (["constructions"], ["paper", "Theorem 4.1"]):
    assert CliRunner().invoke(commands, words, standalone_mode=False).exception is None
print(sorted(byheart.constructions())[:3])
"""
    assert without_numba(script) == "['baum88', 'compact', 'kim23']\n"
