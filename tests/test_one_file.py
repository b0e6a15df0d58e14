"""Adding a construction, an export target, a reader, a preset or a host takes one file: here each is one function."""

from __future__ import annotations

import json

import pytest

import byheart
from byheart.build import _base as constructions
from byheart.build._base import Construction, register
from byheart.build.table1.nilsson65 import build_nilsson65
from byheart.certify.checkpoint import certify_checkpoint
from byheart.data.task import Task
from byheart.export.huggingface import host
from byheart.export.huggingface.llama import llama
from byheart.export.targets import _base as targets
from byheart.export.targets import target
from byheart.paper import PAPERS, Ref, cite


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """What a test registers is gone afterwards."""
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
    assert memory.certificate.promised == {}, "a construction without a promise promises nothing"
    assert byheart.constructions()["toy"].summary == "nilsson65 by another name"


def test_a_toy_export_target(tmp_path):
    @target("toy")
    def write(request, path):
        path.write_text(json.dumps({"layers": len(request.network.layers)}), encoding="utf-8")
        return {"file": str(path), "metadata": {}}

    from byheart.compile.export_memory import export_file

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
