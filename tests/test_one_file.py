"""Adding a construction, an export target, a reader, a preset, a host or an engine takes one file.

Here each is one function. The slow test adds files to a copy of the package, and then only the command line speaks; one
of them is the construction that CONTRIBUTING.md writes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import byheart
from byheart.build import _base as constructions
from byheart.build._base import Construction, register
from byheart.build.table1.nilsson65 import build_nilsson65
from byheart.checkpoints.hosts import _base as host
from byheart.checkpoints.hosts.llama import llama
from byheart.checkpoints.proof import certify_checkpoint
from byheart.data.task import Task
from byheart.export.targets import _base as targets
from byheart.export.targets import target
from byheart.paper import PAPERS, Ref, cite


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """What a test registers is gone afterwards; what is imported for the first time inside a test stays registered."""
    constructions.recipes()
    monkeypatch.setattr(constructions, "_RECIPES", dict(constructions._RECIPES))
    monkeypatch.setattr(targets, "_TARGETS", dict(targets._TARGETS))
    monkeypatch.setattr(host, "_HOSTS", dict(host.hosts()))
    for name in set(PAPERS):
        monkeypatch.setitem(PAPERS, name, PAPERS[name])
    monkeypatch.delitem(PAPERS, "TOY", raising=False)


def test_a_toy_construction():
    @register("toy", summary="nilsson65 by another name", ref=Ref(cite("TOY", "A toy"), "Theorem 1"), tasks=tuple(Task))
    def build(dataset, *, seed, progress):
        return Construction(build_nilsson65(dataset, seed=seed, progress=progress).network)

    memory = byheart.memorize(["ab", "ba"], [1, 2], construction="toy", progress=False)
    assert memory.predict(["ab"]) == [1] and memory.certificate.verdict == "proved"
    assert memory.certificate.guaranteed == {}, "a construction without a guarantee guarantees nothing"
    assert byheart.constructions()["toy"].summary == "nilsson65 by another name"


def test_a_toy_export_target(tmp_path):
    @target("toy")
    def write(request, path):
        path.write_text(json.dumps({"layers": len(request.network.layers)}), encoding="utf-8")
        return {"file": str(path), "metadata": {}}

    from byheart.memory.export_memory import export_file

    memory = byheart.memorize(["ab", "ba"], [1, 2], construction="native", progress=False)
    export_file(memory, "toy", tmp_path / "m.toy")
    assert json.loads((tmp_path / "m.toy").read_text(encoding="utf-8"))["layers"] > 1


def test_a_toy_host(tmp_path):
    @host.register("toy", model_type="llama", summary="Llama by another name")
    def build(recital, tokens, design):
        return llama(recital, tokens, design)

    memory = byheart.memorize_recital(["to be or not to be"])
    memory.to_huggingface(tmp_path / "toy", "toy", dtype="float32")
    found = certify_checkpoint(tmp_path / "toy", memory.script.documents, ("float32",))
    assert found.verdict == "proved", "the checker reads config.json, not our registry"


FILES = {
    "build/toy.py": """
from byheart.build import Construction, register
from byheart.build.table1.nilsson65 import build_nilsson65
from byheart.data.task import Task
from byheart.ir.size import Claim
from byheart.paper import Ref, cite

REF = Ref(cite("TOY", "A toy"), "Theorem 1")

@register("toy", summary="nilsson65 by another name", ref=REF, tasks=(Task.NEXT_TOKEN,), floats=True,
          guarantee=lambda dataset, options: Claim(REF, bounds={"depth": 9}, formulas={"depth": "9"}))
def build(dataset, *, seed, progress):
    return Construction(build_nilsson65(dataset, seed=seed, progress=progress).network)
""",
    "export/targets/toy.py": """
from byheart.export.targets import target

@target("toy")
def write(request, path):
    path.write_text(str(len(request.network.layers)), encoding="utf-8")
    return {"file": str(path), "metadata": {"byheart.dtype": "none", "byheart.checked": "nothing"}}
""",
    "data/read/formats/toy.py": """
from byheart.data.read.records import Records, reader

@reader(".toy")
def toy(source):
    rows = [(number, dict(zip(("word", "kind"), line.split(), strict=True))) for number, line in source.lines()[0]]
    return Records(("word", "kind"), lambda names: ((n, tuple(row[k] for k in names)) for n, row in rows), source.name)
""",
    "lab/presets/toy.py": """
from byheart.lab.presets import preset
from byheart.lab.presets.ks25 import multinli_curves

preset("toy-fig1", "A toy figure")(multinli_curves)
""",
    "checkpoints/hosts/toy.py": """
from byheart.checkpoints.hosts._base import register
from byheart.checkpoints.hosts.llama import llama

@register("toy", model_type="llama", summary="Llama by another name")
def toy(recital, tokens, design):
    return llama(recital, tokens, design)
""",
    "engines/toy.py": """
from byheart.checkpoints.engines._base import engine
from byheart.checkpoints.engines.transformers import open_transformers

@engine("toy", extra="huggingface", packages=("transformers",), types=("float32",), summary="Transformers, renamed")
def open_toy(folder, dtype, options):
    return open_transformers(folder, dtype, {"attention": "eager"})
""",
}


def recipe_of_the_page() -> str:
    """The construction in CONTRIBUTING.md, with the network of nilsson65 where the page has dots."""
    page = Path(__file__).parents[1].joinpath("CONTRIBUTING.md").read_text(encoding="utf-8")
    written = textwrap.dedent(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
    network = "build_nilsson65(dataset, seed=seed, progress=progress).network"
    filled = written.replace("network = ...", f"network = {network}")
    assert filled != written
    return f"from byheart.build.table1.nilsson65 import build_nilsson65\n{filled}"


@pytest.mark.slow
def test_one_file_each_in_a_copy_of_the_package(tmp_path):
    package = tmp_path / "copy" / "byheart"
    shutil.copytree(Path(byheart.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        (package / name).write_text(text, encoding="utf-8")
    (package / "build" / "doe26.py").write_text(recipe_of_the_page(), encoding="utf-8")
    (tmp_path / "t.toy").write_text("cat animal\noak plant\n", encoding="utf-8")

    def run(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(package.parent)}
        command = [sys.executable, "-m", "byheart", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    made = json.loads(run("memorize", "t.toy", "--for", "toy", "--construction", "toy", "-o", "m", "--json"))
    assert made["verdict"] == "proved" and made["columns"] == {"sequence": "word", "label": "kind"}
    assert made["guaranteed"] == {"depth": 9}
    assert json.loads(run("verify", "m", "t.toy", "--json"))["verdict"] == "proved"
    run("export", "m", "--to", "toy", "-o", "m.out")
    assert int((tmp_path / "m.out").read_text()) > 1
    assert "toy" in json.loads(run("constructions", "--json")) and "Theorem 1" in run("paper", "Theorem 1", "--json")
    rows = json.loads(run("compare", "t.toy", "--construction", "toy", "--json"))["rows"]
    assert rows[0]["construction"] == "toy" and rows[0]["verdict"] == "proved"
    assert "A toy figure" in run("lab", "run", "--help")
    options = ("--construction", "doe26", "--option", "groups=2")
    made = json.loads(run("memorize", "t.toy", *options, "-o", "d", "--json"))
    assert made["verdict"] == "proved" and made["guaranteed"] == {"width": 14}
    assert json.loads(run("verify", "d", "t.toy", "--json"))["verdict"] == "proved"
    (tmp_path / "poem.txt").write_text("to be or not to be", encoding="utf-8")
    run("memorize", "poem.txt", "--construction", "recital", "-o", "r")
    run("export", "r", "--to", "huggingface", "--arch", "toy", "--dtype", "float32", "-o", "toy-folder")
    said = json.loads(run("recite", "toy-folder", "--engine", "toy", "--json"))
    assert said["engine"] == "toy" and all(check["right"] == check["asked"] for check in said["checks"])
