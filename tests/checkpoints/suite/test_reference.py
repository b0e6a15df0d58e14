"""Logits of the machine and of Transformers, and fixtures whose answers are measured where nothing is proved."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from byheart.certify import Verdict
from byheart.checkpoints.hosts import _base
from byheart.checkpoints.hosts.llama import llama
from byheart.checkpoints.proof import verify_folder
from byheart.checkpoints.suite import check_logits, write
from byheart.checkpoints.suite.reference import Reference, machine_reads, open_reference
from byheart.checkpoints.suite.write import write_checkpoint, write_fixture
from byheart.cli import commands
from byheart.cli.fixture import margin_words
from byheart.errors import MissingExtraError
from tests.checkpoints.recital_folders import SHORT, recital_folder

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture
def foreign(monkeypatch):
    """A stock architecture that the proof does not read: Llama's tensors under the name of another family."""

    def build(recital, tokens, design):
        made = llama(recital, tokens, design)
        own = {"architectures": ["SeedOssForCausalLM"], "model_type": "seed_oss", "attention_bias": False,
               "attention_out_bias": False}  # fmt: skip
        return replace(made, architecture="seed-oss", config=made.config | own)

    host = replace(_base.host("llama"), name="seed-oss", model_type="seed_oss", build=build)
    monkeypatch.setitem(_base._HOSTS, "seed-oss", host)


@pytest.fixture
def half_proved(monkeypatch):
    """A prover that cannot decide bfloat16."""
    certify = write.certify_checkpoint

    def certified(*args, **options):
        found = certify(*args, **options)
        types = tuple(
            replace(one, verdict=Verdict.UNDECIDED, reason="no rule", margin=None) if one.type == "bfloat16" else one
            for one in found.types
        )
        return replace(found, verdict=Verdict.UNDECIDED, reason="bfloat16: no rule", types=types)

    monkeypatch.setattr(write, "certify_checkpoint", certified)


def test_both_references_agree() -> None:
    folder = recital_folder("llama", text=SHORT, tokens="characters")
    ids = list(range(4, 20))
    machine = open_reference(folder)
    from byheart.checkpoints.suite.reference import _stock

    stock = Reference("transformers", lambda dtype: _stock(folder, dtype))
    assert machine.engine == "byheart" and machine_reads(folder)
    for dtype, most in (("float64", 1e-3), ("float32", 1e-3), ("bfloat16", 0.5)):
        assert np.abs(machine.in_type(dtype)(ids) - stock.in_type(dtype)(ids)).max() < most


def test_a_folder_that_the_proof_does_not_read_is_measured_in_transformers(foreign, tmp_path) -> None:
    made = write_fixture("seed-oss", tmp_path / "tiny", text=SHORT[:30], tokens="characters")
    assert {one.engine for one in made.rechecked} == {"transformers"}
    assert {(one.dtype, one.options["attention"]) for one in made.rechecked} == {
        (dtype, form) for dtype in ("float32", "bfloat16", "float16") for form in ("sdpa", "eager")
    }
    content = json.loads((made.folder / "expected.json").read_text(encoding="utf-8"))
    for name in ("float32", "bfloat16", "float16"):
        assert content["margins"][name]["proved"] is None and content["margins"][name]["measured"] > 20
        assert "seed_oss" in content["not_proved"][name]
        assert content["measured_by"][name].startswith("transformers ")
    assert check_logits(made.folder) < content["tolerance"]["float32"]
    assert verify_folder(made.folder, [SHORT[:30]]).verdict is Verdict.UNDECIDED
    verify = CliRunner().invoke(commands, ["verify", str(made.folder)], standalone_mode=False)
    assert verify.return_value == 1 and verify.output.startswith("undecided")
    assert "measured margin" in (made.folder / "README.md").read_text(encoding="utf-8")


def test_only_the_types_without_a_proof_are_run_in_transformers(half_proved, tmp_path) -> None:
    made = write_fixture("llama", tmp_path / "tiny", text=SHORT[:30], tokens="characters")
    assert {(one.dtype, one.engine) for one in made.rechecked} == {
        ("float32", "byheart"), ("bfloat16", "transformers"), ("float16", "byheart"),
    }  # fmt: skip
    assert made.not_proved == {"bfloat16": "no rule"}
    words = margin_words(made.to_json(), "bfloat16")
    assert words.startswith("not proved: no rule; measured margin") and "in transformers" in words
    assert margin_words(made.to_json(), "float32").startswith("proved margin")


def test_without_transformers_an_unproved_fixture_is_refused(half_proved, tmp_path, monkeypatch) -> None:
    known = write.engines()
    missing = {**known, "transformers": replace(known["transformers"], packages=("no_such_package",))}
    monkeypatch.setattr(write, "engines", lambda: missing)
    with pytest.raises(MissingExtraError, match=r"bfloat16 \(no rule\)"):
        write_fixture("llama", tmp_path / "tiny", text=SHORT[:30], tokens="characters")
    assert not (tmp_path / "tiny").exists()
    memory = write.fixture_memory(SHORT[:30], "characters")
    exported = write_checkpoint(memory, tmp_path / "tiny", recited_in=("bfloat16",))
    assert exported.margins["bfloat16"] == {"proved": None, "measured": None}
