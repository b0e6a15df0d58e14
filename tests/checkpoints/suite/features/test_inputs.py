"""Fixtures of encoders, encoder-decoders and pictures in stock Transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from byheart.checkpoints.engines import read_queries
from byheart.checkpoints.formats.inputs import MASK, number_of
from byheart.checkpoints.suite.adapters import engine_adapter
from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.features.inputs import masked_cases
from byheart.checkpoints.suite.runner import all_cases, run_cases
from byheart.checkpoints.suite.write import fixture_memory, write_fixture
from byheart.errors import FileFormatError
from tests.checkpoints.unseen_texts import TEXTS

KINDS = {"bert": "masked", "t5": "seq2seq", "llava": "picture"}
TEXT = "The boat left at dawn. Nobody saw who rowed it, or why the lamp on its bow was lit in so bright a light."


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target: Path = tmp_path_factory.mktemp("inputs") / request.param
    write_fixture(request.param, target, text=TEXT, tokens="characters")
    return target


def test_answers_were_measured_in_three_types(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    assert expected["task"] == KINDS[folder.name]
    for name in ("float32", "bfloat16", "float16"):
        assert expected["margins"][name]["measured"] > 20
        proved = expected["margins"][name]["proved"]
        assert proved is None if folder.name == "llava" else proved > 5
    assert ("others" in expected["proof"]["scope"]) == (folder.name != "llava")
    assert all(case["measured_in"] for case in expected["cases"])


def test_every_token_is_asked(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    ids, cases = expected["documents"][0]["ids"], expected["cases"]
    if folder.name == "bert":
        pairs = [(case, row, at) for case in cases for row, at in zip(case["ids"], case["masked"], strict=True)]
        assert sum(len(at) for _, _, at in pairs) >= len(ids) - 2
        said = {t for case in cases for row in case["expected_ids"] for t in row}
        assert set(ids[1:-1]) <= said
        return
    if folder.name == "t5":
        whole = next(case for case in cases if case["do"] == "translated")
        assert whole["continuation_ids"] == [ids[1:]]
        return
    first = next(case for case in cases if case["do"] == "pictured_logits")
    assert [t[0] for t in first["tokens"]] == ids[1:]
    assert (folder / "picture-0.png").is_file()


def test_masked_tokens_are_no_neighbours_of_each_other(tmp_path: Path) -> None:
    memory = fixture_memory(TEXT * 2, "characters", "bert")
    masked = [case for case in masked_cases(memory, tmp_path) if case["do"] == "masked" and any(case["masked"])]
    mask, ahead = number_of(memory.lexicon, MASK), len(masked) - 1
    for number, case in enumerate(masked):
        other = masked[number - 1]
        for row, seen, at, wanted in zip(case["ids"], other["ids"], case["masked"], case["expected_ids"], strict=True):
            for place, token in zip(at, wanted, strict=True):
                inside = ahead < place < len(row) - 1 - ahead
                assert row[place] == mask
                assert token == seen[place] or not inside


def test_a_wrong_expected_token_is_incorrect(folder: Path) -> None:
    cases = read_cases(folder)
    case = next(case for case in cases if "logits" in case.content)
    opener = engine_adapter("transformers", "float32")
    assert next(run_cases([case], opener)).status == "correct"
    case.content["logits"][3][1] += 1.0
    assert "nats off" in next(run_cases([case], opener)).message
    case.content["tokens"][2][0] = 4 if case.content["tokens"][2][0] != 4 else 5
    assert "after prefix 3" in next(run_cases([case], opener)).message


def test_commands_for_prompts_refuse_the_folder_by_name(folder: Path) -> None:
    with pytest.raises(FileFormatError, match="byheart suite"):
        read_queries(folder)
    assert [case.id for case in all_cases(folder)] == [case.id for case in read_cases(folder)]


@pytest.mark.slow
def test_shipped_test_runs_by_itself(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "test_recital.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("architecture", KINDS)
@pytest.mark.parametrize(("tokens", "name"), [("bpe:450", "notice"), ("characters", "zen"), ("bpe:450", "scripts")])
def test_unseen_texts(architecture: str, tokens: str, name: str, tmp_path: Path) -> None:
    fixture = write_fixture(architecture, tmp_path / "fixture", text=TEXTS[name](), tokens=tokens)
    assert min(float(m["measured"] or 0) for m in fixture.margins.values()) > 20
    assert fixture.size < (16e6 if architecture == "t5" else 10e6)
