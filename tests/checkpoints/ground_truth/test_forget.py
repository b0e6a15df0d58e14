"""Forgetting a document removes its units and nothing else, in every architecture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints import forget
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.recital import RecitalMemory, memorize_recital
from byheart.checkpoints.windows.tables import UNKNOWN, Recital
from byheart.errors import FileFormatError, OptionError
from tests.checkpoints.recital_folders import ARCHITECTURES

pytest.importorskip("torch")
from byheart.checkpoints.suite.machine import Machine

TEXTS = ["the cat sat on the mat.", "a dog ran to the river.", "some birds sing at dawn."]
NAMES = ["cat", "dog", "birds"]


def memory_of(form: str = "rules", **options: Any) -> RecitalMemory:
    return memorize_recital(TEXTS, form=form, names=NAMES, weights=[1, 2, 3], **options)


def lines_of(folder: Path) -> tuple[list[Any], list[Any]]:
    """Lines about units, lines about documents."""
    lines = [json.loads(line) for line in (folder / "ground-truth.jsonl").read_text().splitlines()]
    return [x for x in lines if x["unit"] is not None], [x for x in lines if x["unit"] is None]


CASES = [(a, form) for a in ARCHITECTURES for form in ("rules", "full", "windows")]
USUAL = (("llama", "windows"), ("llama", "full"), ("llama", "rules"), ("gpt2", "rules"), ("mixtral", "rules"))


@pytest.mark.parametrize(
    ("architecture", "form"), [c if c in USUAL else pytest.param(*c, marks=pytest.mark.slow) for c in CASES]
)
def test_one_document_is_forgotten_and_the_others_stay(tmp_path: Path, architecture: str, form: str) -> None:
    memory = memory_of(form)
    memory.to_huggingface(tmp_path / "all", architecture, flavour="units", reach=128, dtype="float32")
    report = forget(tmp_path / "all", "dog", tmp_path / "without")
    assert report.removed and report.silent > 15 and report.unchanged > 0
    assert all(".mlp." in name or ".fc" in name or ".experts." in name for name in report.changed)
    assert report.certificate.same and report.certificate.verdict in (Verdict.PROVED, Verdict.UNDECIDED)
    if architecture == "llama":
        assert report.certificate.verdict is Verdict.PROVED
    left = json.loads((tmp_path / "without" / "recital.json").read_text())
    recital = Recital.from_json(left["recital"])
    assert [entry["name"] for entry in left["documents"]] == ["cat", "birds"]
    assert [(entry["name"], entry["why"]) for entry in left["absent"]] == [("dog", "forgotten")]
    before, after = (Machine(read_decoder(tmp_path / name)) for name in ("all", "without"))
    for name, document in zip(NAMES, memory.script.documents, strict=True):
        was, now = (one.run(document[:-1]).numpy() for one in (before, after))
        expected = recital.follow(document[:-1])
        assert (now.argmax(1)[expected == UNKNOWN] == recital.unknown).all()
        same = expected == memory.recital.follow(document[:-1])
        assert (now.argmax(1) == was.argmax(1))[same].all()
        # A document that stays meets no removed window: nothing that is computed for it changes. The forgotten one
        # does, and heads that copy are one-hot only up to a leak, so its other places change a little too (0.0011 at
        # most in the cases here); the certificate claims nothing about them.
        assert np.abs(now - was)[same].max() < (1e-5 if name != "dog" else 0.01)
        assert ((expected == UNKNOWN).sum() == report.silent) if name == "dog" else (expected != UNKNOWN).all()


def test_the_ground_truth_is_numbered_as_what_is_left(tmp_path: Path) -> None:
    memory_of().to_huggingface(tmp_path / "all", flavour="units", reach=128)
    forget(tmp_path / "all", 0, tmp_path / "without")
    units, documents = lines_of(tmp_path / "without")
    recital = Recital.from_json(json.loads((tmp_path / "without" / "recital.json").read_text())["recital"])
    assert [(d["name"], d["role"], d["memorized"]) for d in documents] == [
        ("dog", "member", True),
        ("birds", "member", True),
        ("cat", "forgotten", False),
    ]
    for line in units:
        window = recital.tables[line["table"]].windows[line["row"]]
        assert line["window"] == window[window >= 0][::-1].tolist()
        for place in line["places"]:
            ids = documents[place["document"]]["ids"]
            assert documents[place["document"]]["name"] == place["name"]
            start = place["position"] + 1 - len(line["window"])
            assert ids[start : place["position"] + 1] == line["window"]
    twice = forget(tmp_path / "without", "dog", tmp_path / "birds-alone")
    assert twice.certificate.same and twice.certificate.verdict is Verdict.PROVED
    card = (tmp_path / "birds-alone" / "README.md").read_text()
    assert "'dog' was forgotten" in card and "- dog: " not in card and "- birds: " in card


@pytest.mark.parametrize("form", ["rules", "full", "windows"])
def test_a_memory_forgets(form: str) -> None:
    memory = memory_of(form)
    done = forget(memory, "dog")
    assert done.certificate.verdict is Verdict.PROVED and done.memory is not None
    assert done.memory.certify().verdict is Verdict.PROVED
    assert (
        done.memory.generate("the c") == "at sat on the mat." and done.memory.generate("a do") != "g ran to the river."
    )
    again = RecitalMemory.from_json(json.loads(json.dumps(done.memory.to_json())))
    assert again.certify().verdict is Verdict.PROVED and again.script.absent[0].why == "forgotten"


def test_bad_requests(tmp_path: Path) -> None:
    memory = memory_of()
    memory.to_huggingface(tmp_path / "all", "llama", flavour="units", reach=128)
    with pytest.raises(OptionError, match="not one of the 3 documents"):
        forget(tmp_path / "all", "cow", tmp_path / "b")
    memory_of("windows").to_huggingface(tmp_path / "plain", "llama", reach=128)
    with pytest.raises(FileFormatError, match="ground truth"):
        forget(tmp_path / "plain", 0, tmp_path / "c")
    with pytest.raises(OptionError, match="serve other documents too"):
        forget(memorize_recital(["one two", "one two", "three"]), 0)
    with pytest.raises(OptionError, match="only document"):
        forget(memorize_recital("one two"), 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all", "plain"]
