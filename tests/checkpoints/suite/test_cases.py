"""Folders as cases, and the cache that builds them once."""

from __future__ import annotations

import json

import pytest

from byheart.checkpoints.suite import kinds
from byheart.checkpoints.suite.cases import cached_fixture, read_cases
from byheart.errors import ByheartError, FileFormatError, OptionError


def test_every_prompt_batch_and_pass_is_a_case(small_fixture):
    expected = json.loads((small_fixture / "expected.json").read_text())
    found = read_cases(small_fixture)
    batches = [b for b in expected["batches"] if len(b["ids"]) > 1]
    assert [c.verb for c in found].count("generate") == len(expected["prompts"])
    assert [c.verb for c in found].count("batch") == len(batches)
    assert [c.verb for c in found].count("logits") == len(expected["logits"]["after_every_prefix"])
    assert len({c.id for c in found}) == len(found)


def test_sensors_and_their_batch_are_cases_of_their_own(tmp_path):
    one = {"name": "s", "ids": [1], "continuation_ids": [2]}
    batch = {"name": "b", "ids": [[1], [1, 2]], "count": 1, "continuation_ids": [[2], [2]]}
    content = {"format": "byheart fixture", "architecture": "llama", "prompts": [one], "batches": [batch]}
    (tmp_path / "expected.json").write_text(json.dumps({**content, "sensors": [one], "sensor_batches": [batch]}))
    assert [(case.verb, case.sensor) for case in read_cases(tmp_path)] == [
        ("generate", False), ("generate", True), ("batch", False), ("batch", True),
    ]  # fmt: skip


def _writer(calls, fails=False):
    def write(architecture, folder, *, progress, **options):
        calls.append((architecture, options))
        folder.mkdir()
        (folder / "half").write_text("")
        if fails:
            raise ByheartError("no")
        (folder / "expected.json").write_text("{}")

    return write


def test_a_fixture_is_built_once_per_parameters(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(kinds, "kinds", lambda: {"toy": kinds.FixtureKind("toy", "", _writer(calls))})
    first = cached_fixture("toy", "llama", root=tmp_path, size=1)
    assert cached_fixture("toy", "llama", root=tmp_path, size=1) == first and len(calls) == 1
    assert cached_fixture("toy", "llama", root=tmp_path, size=2) != first and len(calls) == 2


def test_a_failure_leaves_nothing_that_looks_like_a_fixture(tmp_path, monkeypatch):
    monkeypatch.setattr(kinds, "kinds", lambda: {"toy": kinds.FixtureKind("toy", "", _writer([], fails=True))})
    with pytest.raises(ByheartError):
        cached_fixture("toy", "llama", root=tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_unknown_kinds_and_foreign_folders_are_refused(tmp_path):
    with pytest.raises(OptionError, match="unknown kind 'nonsense'"):
        cached_fixture("nonsense", "llama", root=tmp_path)
    with pytest.raises(FileFormatError, match="cannot read"):
        read_cases(tmp_path)
    (tmp_path / "expected.json").write_text("{}")
    with pytest.raises(FileFormatError, match="not written by byheart"):
        read_cases(tmp_path)
    (tmp_path / "expected.json").write_text(
        '{"format": "byheart fixture", "architecture": "llama", "cases": [{"name": "a", "do": "dance"}]}'
    )
    with pytest.raises(FileFormatError, match="dance"):
        read_cases(tmp_path)


def test_a_checkpoint_inside_of_a_fixture_has_its_own_cases(tmp_path):
    cases = [{"name": name, "do": "generate", "model": name} for name in ("chatml", "llama3")]
    content = {"format": "byheart fixture", "kind": "chat", "architecture": "llama", "cases": cases}
    (tmp_path / "chatml").mkdir()
    (tmp_path / "expected.json").write_text(json.dumps(content))
    assert [case.name for case in read_cases(tmp_path)] == ["chatml", "llama3"]
    assert [case.name for case in read_cases(tmp_path / "chatml")] == ["chatml"]
