"""byheart export on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from byheart.checkpoints.recital import memorize_recital
from byheart.cli import commands


@pytest.fixture
def files(tmp_path):
    """Data, and the memory that the command line makes of it."""
    (tmp_path / "words.csv").write_text("text,label\ncat,1\nact,2\ndog,3\n")
    made = ["memorize", str(tmp_path / "words.csv"), "-o", str(tmp_path / "words.byheart"), "--construction", "native"]
    assert CliRunner().invoke(commands, [*made, "--json"], catch_exceptions=False).exit_code == 0
    return tmp_path


@pytest.mark.parametrize("target", ["torch", "onnx", "safetensors"])
def test_export_prints_one_json_object(files, target):
    arguments = ["export", str(files / "words.byheart"), "--to", target, "-o", str(files / f"words.{target}"), "--json"]
    result = CliRunner().invoke(commands, arguments, catch_exceptions=False)
    shown = json.loads(result.output)
    assert shown["target"] == target and shown["checked"] == "10000 inputs drawn at random"
    assert shown["dtype"] == "float64" and "at most 2^" in shown["exactness"]
    assert (files / f"words.{target}").exists()


def test_export_checks_the_data_that_it_is_given(files):
    given = ["--data", str(files / "words.csv"), "--quiet"]
    arguments = ["export", str(files / "words.byheart"), "--to", "onnx", "-o", str(files / "words.onnx"), *given]
    result = CliRunner().invoke(commands, arguments, catch_exceptions=False)
    assert "checked on every row of the data (3)" in result.output


def test_what_cannot_be_exported_is_refused_before_it_is_built(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("name,kind\ncat,a\ndog,b\ncow,a\n")
    out = str(tmp_path / "m.byheart")
    refused = CliRunner().invoke(
        commands, ["memorize", str(table), "-o", out, "--for", "onnx", "--construction", "ks25"]
    )
    assert "the numbers of ks25 are longer than floats" in str(refused.exception)
    made = CliRunner().invoke(
        commands, ["memorize", str(table), "-o", out, "--for", "onnx", "--json"], standalone_mode=False
    )
    assert json.loads(made.output)["construction"] == "native"


@pytest.mark.slow
def test_a_folder_is_verified_by_the_choice_it_was_made_with(tmp_path, monkeypatch):
    """Prefixes with several continuations: their weighted distribution, or the first one."""
    monkeypatch.chdir(tmp_path)
    rows = [("to be", 1), ("to do", 3), ("do be", 1)]
    Path("d.jsonl").write_text("".join(json.dumps({"text": text, "often": often}) + "\n" for text, often in rows))
    texts, often = zip(*rows, strict=True)
    memorize_recital(texts, weights=often).to_huggingface("shares", "llama")
    memorize_recital(texts, ambiguous="first").to_huggingface("first", "llama")

    def verdict(folder: str, *flags: str) -> str:
        words = ["verify", folder, "d.jsonl", "--sequence-column", "text", "--quiet", *flags]
        return CliRunner().invoke(commands, words).output.split(":")[0]

    assert verdict("shares", "--weight-column", "often") == verdict("first", "--ambiguous", "first") == "proved"
    assert verdict("shares") != "proved" and verdict("first") != "proved"
