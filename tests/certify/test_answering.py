"""Proofs in parts: the same verdict anywhere, and no file that makes a false one."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import byheart
from byheart.certify import Certificate, EvaluationPlan, Verdict, answering, certify
from byheart.data.dataset.dataset import Dataset, load
from byheart.errors import BudgetError, FileFormatError, OptionError
from byheart.exact.budget import Budget, limited
from byheart.memory.memory import Memory

ROWS = [f"{k:03b}"[-3:] + f"{k:02d}" for k in range(24)]
LABELS = [k * 7 % 3 for k in range(24)]


@pytest.fixture(autouse=True)
def small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "PLACES", 1)
    monkeypatch.setattr(answering, "FEWEST", 5)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def memory() -> Memory:
    return byheart.memorize(ROWS, LABELS, construction="native", progress=False)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load(ROWS, LABELS)


def prove(memory: Memory, data: Dataset, plan: EvaluationPlan) -> Certificate:
    return certify(memory.network, data, memory.claim, plan=plan)  # type: ignore[arg-type]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of every part that was evaluated; raises KeyboardInterrupt instead of the third part."""
    counts: list[int] = []
    real: Callable[..., Any] = answering._answers

    def counted(network: Any, inputs: Any, *rest: Any) -> Any:
        counts.append(len(inputs.index))
        if len(counts) == 3:
            raise KeyboardInterrupt
        return real(network, inputs, *rest)

    monkeypatch.setattr(answering, "_answers", counted)
    return counts


def interrupted(memory: Memory, data: Dataset, kept: Path) -> bytes:
    with pytest.raises(KeyboardInterrupt):
        prove(memory, data, EvaluationPlan(kept=kept))
    return kept.read_bytes()


def test_an_interrupted_proof_goes_on(memory: Memory, data: Dataset, asked: list[int], tmp_path: Path) -> None:
    kept = tmp_path / "rows.seals"
    interrupted(memory, data, kept)
    found = prove(memory, data, EvaluationPlan(kept=kept))
    assert asked == [5, 5, 5, 5, 5, 4]  # the third was interrupted
    assert found.verdict is Verdict.PROVED and found.agree == 24
    assert "10 rows of them by an earlier run" in found.reason
    assert not kept.exists()


def test_seals_are_for_their_own_labels_and_weights(
    memory: Memory, data: Dataset, asked: list[int], tmp_path: Path
) -> None:
    kept = tmp_path / "rows.seals"
    written = interrupted(memory, data, kept)
    labels = data.labels.copy()
    labels[0] = (labels[0] + 1) % 3
    found = prove(memory, replace(data, labels=labels), EvaluationPlan(kept=kept))
    assert found.verdict is Verdict.REFUTED and found.witness is not None and found.witness.row == 0
    other = byheart.memorize(ROWS, [2 - label for label in LABELS], construction="native", progress=False)
    kept.write_bytes(written)
    assert prove(other, data, EvaluationPlan(kept=kept)).verdict is Verdict.REFUTED


def test_a_forged_file_is_as_good_as_an_empty_one(
    memory: Memory, data: Dataset, asked: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker has code, network, rows and format, and generates their own key; the weights are wrong."""
    wrong = replace(data, labels=(data.labels + 1) % 3)
    kept = tmp_path / "rows.seals"
    with monkeypatch.context() as attacker:
        attacker.setenv("XDG_STATE_HOME", str(tmp_path / "attacker"))
        attacker.setenv("LOCALAPPDATA", str(tmp_path / "attacker"))
        seals = answering.Seals.open(kept, memory.network, None)
        for start in range(0, 24, 5):
            seals.add(seals.of(answering._part(wrong.inputs, start, start + 5), wrong.labels[start : start + 5]))
    counts = len(asked)
    asked.extend([0] * 3)  # nothing is interrupted
    found = prove(memory, wrong, EvaluationPlan(kept=kept))
    assert sum(asked[counts + 3 :]) == 24
    assert found.verdict is Verdict.REFUTED and found.differ == 24


def test_other_code_has_other_seals(
    memory: Memory, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = answering._part(data.inputs, 0, 5)
    here = answering.Seals.open(tmp_path / "a", memory.network, None).of(part, data.labels[:5])
    floats = answering.Seals.open(tmp_path / "a", memory.network, "float64").of(part, data.labels[:5])
    monkeypatch.setattr(answering, "_code", lambda: "another")
    there = answering.Seals.open(tmp_path / "a", memory.network, None).of(part, data.labels[:5])
    assert len({here, floats, there}) == 3


def test_a_foreign_file_is_refused_and_left_alone(memory: Memory, data: Dataset, tmp_path: Path) -> None:
    kept = tmp_path / "thesis.txt"
    kept.write_text("my work")
    with pytest.raises(FileFormatError, match="does not contain the seals"):
        prove(memory, data, EvaluationPlan(kept=kept))
    assert kept.read_text() == "my work"


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_a_key_that_others_can_read_is_refused() -> None:
    key = answering.own_key()
    assert len(key) == 32 and answering.own_key() == key
    path = answering._state_folder() / "seals.key"
    path.chmod(0o644)
    with pytest.raises(FileFormatError, match="others can read"):
        answering.own_key()
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(FileFormatError, match="not a key"):
        answering.own_key()


@pytest.mark.parametrize("construction", ["native", "compact", "ks25", "ks24", "madden24"])
def test_an_executor_changes_nothing(construction: str) -> None:
    alone = byheart.memorize(ROWS, LABELS, construction=construction, progress=False)
    with ThreadPoolExecutor(2) as executor:
        there = byheart.memorize(ROWS, LABELS, construction=construction, progress=False, executor=executor)
    assert there.certificate == alone.certificate and there.options == alone.options


def test_rows_that_differ_are_found_on_an_executor(memory: Memory, data: Dataset) -> None:
    labels = data.labels.copy()
    labels[17] = (labels[17] + 1) % 3
    with ThreadPoolExecutor(2) as executor:
        found = prove(memory, replace(data, labels=labels), EvaluationPlan(executor))
    assert found.verdict is Verdict.REFUTED and found.witness is not None and found.witness.row == 17


def test_the_budget_holds_on_an_executor(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byheart.exact.engine.SMALL_JOB", 0)
    memory = byheart.memorize(ROWS, LABELS, construction="compact", progress=False)
    with ThreadPoolExecutor(2) as executor, pytest.raises(BudgetError), limited(Budget(work=1)):
        prove(memory, data, EvaluationPlan(executor))


def test_a_gap_is_not_proved_in_parts(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="one statement about all rows"):
        byheart.memorize(["a b", "a c"], construction="madden24", progress=False, resume=str(tmp_path / "kept"))


def test_absent_tokens_stay_absent() -> None:
    inputs = load(["ab", "b", "abc"], [0, 1, 1], task="set").inputs
    part = answering._part(inputs, 1, 2)
    assert part.points.count == 1 and part.index.tolist() == [[0, -1, -1]]
    assert np.array_equal(answering._part(inputs, 0, 3).index, inputs.index)


def test_only_parts_that_are_answered_as_labelled_get_a_seal(memory: Memory, data: Dataset, tmp_path: Path) -> None:
    """A second run with the same incorrect labels must not find them vouched for."""
    kept, labels = tmp_path / "kept", data.labels.copy()
    labels[3] = (labels[3] + 1) % 3
    for expected in (0, len(labels) - answering.FEWEST):  # the part with row 3 is answered again
        found = answering.answer_rows(memory.network, data.inputs, labels, None, plan=EvaluationPlan(kept=kept))
        assert (found.found == data.labels).all() and found.sealed == expected


def test_a_seal_is_for_its_rows_their_numbers_and_their_labels(memory: Memory, data: Dataset, tmp_path: Path) -> None:
    seals = answering.Seals.open(tmp_path / "kept", memory.network, None)  # type: ignore[arg-type]
    inputs, points = data.inputs, data.inputs.points
    other = replace(points, numerators=np.where(points.numerators == points.numerators[0], 0, points.numerators))
    turned = replace(inputs, index=inputs.index[::-1].copy())
    cases = ((inputs, data.labels), (turned, data.labels), (replace(inputs, points=other), data.labels))
    made = [seals.of(part, labels) for part, labels in (*cases, (inputs, data.labels[::-1].copy()))]
    assert len(set(made)) == 4 and seals.of(inputs, data.labels) == made[0]
