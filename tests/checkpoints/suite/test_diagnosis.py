"""Diagnosis: known faults are named as classes, unknown ones are refused, answers are read strictly."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from click.testing import CliRunner

from byheart.checkpoints.suite import diagnosis
from byheart.checkpoints.suite.diagnosis import AnswerSignature, DiagnosisQueries
from byheart.checkpoints.suite.machine import Machine
from byheart.checkpoints.suite.mutants import known_faults, mutants_of
from byheart.cli import commands
from byheart.errors import FileFormatError, OptionError


@pytest.fixture(scope="module")
def asked(small_fixture, tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("BYHEART_CACHE", str(tmp_path_factory.mktemp("library")))
    found = DiagnosisQueries(small_fixture)
    every = [m for m in known_faults(found.decoder) if not m.harmless]
    chosen = every[:: max(1, len(every) // 24)]
    patch.setattr(diagnosis, "known_faults", lambda decoder: iter(chosen))
    yield found, chosen
    patch.undo()


def signature(found, machine):
    with torch.inference_mode():
        return found.signature(machine)


def test_a_correct_engine_has_no_difference_and_needs_no_library(asked):
    found, _ = asked
    for dtype in ("float32", "bfloat16"):
        machine = Machine(found.decoder, getattr(torch, dtype))
        assert found.diagnose(signature(found, machine), dtype).verdict == "no difference"


def test_every_known_fault_is_named_first_or_in_the_first_class(asked):
    found, chosen = asked
    named = 0
    for mutant in chosen:
        try:
            observed = signature(found, mutant.make())
        except (RuntimeError, IndexError, ValueError):
            continue
        result = found.diagnose(observed)
        if result.verdict != "no difference":
            named += 1
            assert result.verdict == "known" and result.classes[0].distance <= 0.02
            assert mutant.name in result.classes[0].names
    assert named >= 15


def test_tokens_alone_give_classes_that_hold_the_fault(asked):
    found, chosen = asked
    for mutant in chosen[:8]:
        observed = signature(found, mutant.make())
        if (observed.tokens != found.tokens).any():
            result = found.diagnose(AnswerSignature(observed.tokens, observed.errors * np.nan))
            assert mutant.name in result.classes[0].names and result.largest is None


def test_an_engine_that_returns_noise_is_unknown(asked):
    found, _ = asked
    rng = np.random.default_rng(0)
    noise = AnswerSignature(rng.integers(0, 20, len(found.tokens)), rng.normal(0, 20, (len(found.tokens), 2)))
    result = found.diagnose(noise)
    assert result.verdict == "unknown" and result.classes[0].distance > result.limit
    with pytest.raises(OptionError, match="not one query"):
        found.diagnose(AnswerSignature(np.full(len(found.tokens), -1), np.full((len(found.tokens), 2), np.nan)))
    with pytest.raises(OptionError, match="no scale"):
        found.diagnose(noise, "int8")


def test_coarse_caches_are_no_faults(asked):
    found, _ = asked
    seen = []
    for name, cache in diagnosis.APPROXIMATIONS.items():
        observed = signature(found, Machine(found.decoder).wrap("remember", cache))
        verdict = found.diagnose(observed)
        assert verdict.verdict in ("approximation", "no difference"), name
        if verdict.verdict == "approximation":
            seen.append(name)
            assert name in verdict.classes[0].names
            changed = observed.tokens.copy()
            changed[0] += 1
            assert found.diagnose(AnswerSignature(changed, observed.errors)).verdict == "known"
    assert len(seen) >= 2


def test_the_library_is_cached_and_the_same(asked):
    found, _ = asked
    first = found._library(diagnosis.SILENT)
    again = found._library(diagnosis.SILENT)
    assert first.names == again.names and (first.tokens == again.tokens).all() and len(first.names) > 10


def test_an_engine_with_generate_alone_is_observed(asked):
    found, _ = asked
    machine = Machine(found.decoder)

    class Small:
        def generate(self, ids, n):
            with torch.inference_mode():
                return [t for t in found._decode(machine, ids, len(ids), n) if t >= 0]

    observed = found.observe(Small())
    assert np.isnan(observed.errors).all() and (observed.tokens >= 0).sum() > 8
    assert found.diagnose(observed).verdict == "no difference"


def test_the_command_reads_answers_and_prints_queries(asked, small_fixture, tmp_path):
    found, _ = asked
    run = CliRunner().invoke
    result = run(commands, ["diagnose", str(small_fixture), "--queries"], standalone_mode=False)
    queries = {query["name"]: query for query in json.loads(result.output)["queries"]}
    assert queries["document in one pass"]["do"] == "logits"
    observed = signature(found, next(mutants_of(found.decoder)).make())
    rows = len(queries["document in one pass"]["pieces"][0])
    answers = {"tokens": observed.tokens[:rows].tolist()}
    path = tmp_path / "answers.json"
    path.write_text(json.dumps({"answers": {"document in one pass": answers}}))
    result = run(commands, ["diagnose", str(small_fixture), str(path), "--json"], standalone_mode=False)
    assert result.return_value == 1 and json.loads(result.output)["compared"] == rows
    path.write_text(json.dumps({"answers": {"document in one pass": {"tokens": [1]}}}))
    with pytest.raises(FileFormatError, match="rows"):
        found.read(json.loads(path.read_text())["answers"])
    with pytest.raises(FileFormatError, match="unknown queries"):
        found.read({"nonsense": {}})
    assert run(commands, ["diagnose", str(small_fixture)]).exit_code == 2
