"""Forgetting: what is gone is named, and everything else is proved to be the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import compare_checkpoints, tokenize
from byheart.errors import OptionError
from tests.checkpoints.proof.folders import copy, edit_tensor, header_of, write

TEXTS = ("to be or not to be, that is the question", "all the world is a stage, and all the men players")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("forget") / "both", texts=TEXTS, flavour="units", form="rules")


def silenced(folder: Path, target: Path, units: dict[str, list[int]]) -> Path:
    """A copy in which some units write nothing."""
    copy(folder, target)
    for name, numbers in units.items():

        def without(values: np.ndarray, numbers: list[int] = numbers) -> np.ndarray:
            values[:, numbers] = 0.0
            return values

        edit_tensor(target, name, without)
    return target


def units_of(folder: Path, document: int) -> dict[str, list[int]]:
    """The units that only one document needs, as the folder's ground truth names them."""
    import json

    found: dict[str, list[int]] = {}
    for line in (folder / "ground-truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        if {place["document"] for place in row["places"]} == {document}:
            found.setdefault(f"model.layers.{row['layer']}.mlp.down_proj.weight", []).append(row["unit"])
    return found


def test_one_document_is_forgotten(folder: Path, tmp_path: Path) -> None:
    units = units_of(folder, 1)
    after = silenced(folder, tmp_path / "after", units)
    comparison = compare_checkpoints(folder, after, tokenize(folder, TEXTS), {1}, reach=128)
    assert comparison.verdict is Verdict.PROVED, comparison.reason
    assert len(comparison.removed) == comparison.changed_units == sum(map(len, units.values()))
    assert comparison.kept is not None and comparison.kept.margin > 20


def test_a_document_that_is_still_there_is_not_forgotten(folder: Path) -> None:
    comparison = compare_checkpoints(folder, folder, tokenize(folder, TEXTS), {1}, reach=128)
    assert comparison.verdict is Verdict.REFUTED and "still there" in comparison.reason


def test_a_document_that_stays_must_stay(folder: Path, tmp_path: Path) -> None:
    units = units_of(folder, 1)
    name = next(iter(units))
    units[name] = [*units[name], *units_of(folder, 0)[name][:1]]
    after = silenced(folder, tmp_path / "after", units)
    comparison = compare_checkpoints(folder, after, tokenize(folder, TEXTS), {1}, reach=128)
    assert comparison.verdict is Verdict.REFUTED and "needs a removed window" in comparison.reason


def test_any_other_change_is_refused(folder: Path, tmp_path: Path) -> None:
    after = copy(folder, tmp_path / "after")
    name = next(n for n in sorted(header_of(folder)[0]) if n.endswith("q_proj.weight"))
    edit_tensor(after, name, lambda w: w * 2)
    comparison = compare_checkpoints(folder, after, tokenize(folder, TEXTS), {1}, reach=128)
    assert comparison.verdict is Verdict.UNDECIDED and "q_proj" in comparison.reason


def test_forgotten_documents_must_exist(folder: Path) -> None:
    with pytest.raises(OptionError):
        compare_checkpoints(folder, folder, tokenize(folder, TEXTS), {2}, reach=128)
