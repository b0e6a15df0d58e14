"""Tables as stock classifiers: every row right in Transformers, the margin proved from the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import byheart
from byheart.certify import Verdict
from byheart.checkpoints.formats.classifier import Classifier, TableRows, read_rows, write_classifier
from byheart.checkpoints.hosts._base import host
from byheart.checkpoints.proof import certify_checkpoint, certify_classifier
from byheart.cli import commands
from byheart.data.tokens.tokenizer import PLAIN
from byheart.errors import DataError, ExportError, OptionError
from tests.checkpoints.proof.folders import edit_tensor
from tests.checkpoints.recital_folders import ARCHITECTURES

WORDS = ["cat", "act", "dog", "god", "tac", "at", "cats", "scat"]
LABELS = ["pet", "verb", "pet", "deity", "other", "other", "pet", "verb"]
CLASSES = ["deity", "other", "pet", "verb"]


def slowly(architecture: str) -> object:
    return pytest.param(architecture, marks=pytest.mark.slow)


STRANGERS = ["dogs", "ca", "t", "cat cat", "CAT", "ωζ", "", "tacos"]


def table_rows() -> TableRows:
    return TableRows.of([list(word) for word in WORDS], [CLASSES.index(x) for x in LABELS], CLASSES)


CLASSIFIERS = [name for name in ARCHITECTURES if host(name).classifies]


def test_an_architecture_without_a_classifier_is_refused() -> None:
    with pytest.raises(OptionError, match="granite: Transformers has no sequence classifier"):
        Classifier(table_rows(), "granite").checkpoint()


@pytest.mark.parametrize("architecture", [a if a in ("llama", "gpt2") else slowly(a) for a in CLASSIFIERS])
def test_every_row_in_every_architecture(architecture: str, tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    rows = table_rows()
    write_classifier(Classifier(rows, architecture, shape={"reach": 64}), tmp_path / "table")
    certificate = certify_classifier(tmp_path / "table", rows.ids, rows.answers)
    assert certificate.verdict is Verdict.PROVED and certificate.margin > 20, certificate.reason
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "table")
    for dtype in (torch.float32, torch.bfloat16):
        model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "table", dtype=dtype)
        with torch.no_grad():
            said = model(**tokenizer([*WORDS, *STRANGERS], padding=True, return_tensors="pt")).logits.argmax(1).tolist()
        assert [model.config.id2label[k] for k in said] == [*LABELS, *["<unknown>"] * len(STRANGERS)]


@pytest.mark.parametrize("architecture", ["gpt2", slowly("gpt-neox"), slowly("opt")])
def test_rows_of_many_lengths_are_proved_without_gates(architecture: str, tmp_path: Path) -> None:
    rows = TableRows.of([list("ab"), list("question"), list("to be or not")], [0, 1, 1], ["yes", "no"])
    write_classifier(Classifier(rows, architecture, shape={"reach": 64}), tmp_path / "table")
    certificate = certify_classifier(tmp_path / "table", rows.ids, rows.answers, ["bfloat16"])
    assert certificate.verdict is Verdict.PROVED and certificate.margin > 20, certificate.reason


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_long_rows_of_one_length_are_proved(architecture: str, tmp_path: Path) -> None:
    """Their units are all in the last layer; the others only fetch places."""
    texts = ["to be or no", "not to be t", "hat is the ", "question wh"]
    rows = TableRows.of([list(text) for text in texts], [0, 1, 1, 0], ["yes", "no"])
    write_classifier(Classifier(rows, architecture, shape={"reach": 64}), tmp_path / "table")
    assert certify_classifier(tmp_path / "table", rows.ids, rows.answers, ["float32"]).margin > 20


def test_a_classifier_is_not_taken_for_a_language_model_and_damage_is_noticed(tmp_path: Path) -> None:
    rows = table_rows()
    write_classifier(Classifier(rows, shape={"reach": 64}), tmp_path / "table")
    assert certify_checkpoint(tmp_path / "table", rows.ids).verdict is Verdict.UNDECIDED
    wrong = [*rows.answers[1:], rows.answers[0]]
    assert certify_classifier(tmp_path / "table", rows.ids, wrong).verdict is Verdict.REFUTED
    edit_tensor(tmp_path / "table", "score.weight", lambda w: w[::-1].copy())
    assert certify_classifier(tmp_path / "table", rows.ids, rows.answers).verdict is Verdict.REFUTED


def test_a_memory_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    lines = [f"{number} {word},{label}" for number, (word, label) in enumerate(zip(WORDS, LABELS, strict=True))]
    Path("t.csv").write_text("\n".join(["row,kind", *lines]) + "\n")
    run = CliRunner()
    assert run.invoke(commands, ["memorize", "t.csv", "--tokens", "words", "-o", "t.byheart"]).exit_code == 0
    refused = run.invoke(commands, ["export", "t.byheart", "--to", "huggingface", "-o", "no"])
    assert isinstance(refused.exception, ExportError) and "--data" in str(refused.exception) and not Path("no").exists()
    done = run.invoke(
        commands, ["export", "t.byheart", "--to", "huggingface", "--data", "t.csv", "-o", "table", "--json"]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    printed = json.loads(done.stdout)
    assert printed["verdict"] == "proved" and printed["measured"]["right"] == printed["rows"] == 8
    assert "8 of 8 rows" in Path("table/README.md").read_text()
    words = ["verify", "table", "t.csv", "--tokens", "words", "--json"]
    assert json.loads(run.invoke(commands, words).stdout)["verdict"] == "proved"
    Path("t.csv").write_text(Path("t.csv").read_text().replace("0 cat,pet", "0 cat,verb"))
    assert json.loads(run.invoke(commands, words).stdout)["verdict"] == "refuted"


def test_the_unknown_is_never_one_of_the_labels(tmp_path: Path) -> None:
    rows = TableRows.of(["ab", "ba", "aa"], [0, 1, 0], ["<unknown>", "<<unknown>>"])
    assert rows.label_names == ("<unknown>", "<<unknown>>", "<<<unknown>>>")
    write_classifier(Classifier(rows, shape={"reach": 64}), tmp_path / "table")
    assert certify_classifier(tmp_path / "table", rows.ids, rows.answers).verdict is Verdict.PROVED
    assert "`<<<unknown>>>`" in (tmp_path / "table/README.md").read_text()
    again = read_rows(tmp_path / "table", ["ab"], ["<unknown>"], PLAIN)
    assert again.answers == (0,)
    with pytest.raises(DataError, match="is not one of the 2"):
        read_rows(tmp_path / "table", ["ab"], ["<<<unknown>>>"], PLAIN)


def test_what_cannot_become_a_stock_classifier(tmp_path: Path) -> None:
    rows = [["a b", "c"], ["c", "d"]]
    memory = byheart.memorize(rows, [0, 1], progress=False)
    with pytest.raises(ExportError, match="between spaces"):
        memory.to_huggingface(tmp_path / "no")
    with pytest.raises(ExportError, match="next-token"):
        byheart.memorize_text("to be or not", progress=False).to_huggingface(tmp_path / "no")
    with pytest.raises(ExportError, match="differ as texts"):
        byheart.memorize(["ab", "ba"], [1, "1"], progress=False).to_huggingface(tmp_path / "no")
    assert not list(tmp_path.iterdir())
