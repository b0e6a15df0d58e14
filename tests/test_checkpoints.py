"""Forgetting a document removes its units and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from byheart.checkpoints import forget
from byheart.compile.recital import memorize_recital
from byheart.errors import FileFormatError, OptionError
from byheart.ir.recital import Recital

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXTS = ["the cat sat on the mat.", "a dog ran to the river.", "some birds sing at dawn."]


@torch.no_grad()
def said(folder: Path, tokens: tuple[int, ...]) -> list[int]:
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model(torch.tensor([tokens])).logits[0].argmax(1).tolist()


def test_one_document_is_forgotten_and_the_others_stay(tmp_path: Path) -> None:
    memory = memorize_recital(TEXTS, form="rules", names=["cat", "dog", "birds"])
    memory.to_huggingface(tmp_path / "all", "llama", flavour="units", reach=256)
    lines = (tmp_path / "all" / "ground-truth.jsonl").read_text().splitlines()
    assert len(lines) == memory.recital.rows
    report = forget(tmp_path / "all", "dog", tmp_path / "without")
    assert report.removed and report.unchanged > 0
    assert all(".mlp." in name for name in report.changed)
    left = json.loads((tmp_path / "without" / "recital.json").read_text())
    recital = Recital.from_json(left["recital"])
    assert recital.rows == memory.recital.rows - len(report.removed)
    for name, document in zip(memory.script.names, memory.script.documents, strict=True):
        found = said(tmp_path / "without", document[:-1])
        answers = [recital.answer(k) for k in recital.follow(document[:-1]).tolist()]
        assert all(token in dict(answer.weights) for token, answer in zip(found, answers, strict=True))
        # The first token has three continuations, so any of them may come first.
        assert (found[1:] == list(document[2:])) is (name != "dog")


def test_bad_requests(tmp_path: Path) -> None:
    memory = memorize_recital(TEXTS, form="rules")
    memory.to_huggingface(tmp_path / "all", "llama", flavour="units", reach=256)
    with pytest.raises(OptionError, match="not one of the 3 documents"):
        forget(tmp_path / "all", "cow", tmp_path / "b")
    memorize_recital(TEXTS).to_huggingface(tmp_path / "plain", "llama", reach=256)
    with pytest.raises(FileFormatError, match="ground truth"):
        forget(tmp_path / "plain", 0, tmp_path / "c")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all", "plain"]
