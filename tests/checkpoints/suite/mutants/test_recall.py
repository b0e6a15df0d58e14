"""Faults of caches, chunks and positions on recall folders: all but three change tokens, honest caches change none."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from byheart.checkpoints.hosts.recall.architectures import RecallOptions, recall_checkpoint
from byheart.checkpoints.suite.features.recall import recall_files, recall_lexicon
from byheart.checkpoints.suite.mutants._base import FAMILIES
from byheart.checkpoints.suite.mutants.recall import check_recall_mutants, read_trial

BLIND = {"scores times 0.9", "scores times 0.5", "the next token is seen"}


def folder(place: Path, architecture: str, **options: object) -> Path:
    checkpoint = recall_checkpoint(architecture, RecallOptions(**options))  # type: ignore[arg-type]
    for name, data in recall_files(checkpoint, recall_lexicon(checkpoint.function), "bfloat16").items():
        (place / name).write_bytes(data)
    return place


def check(place: Path, *types: str) -> None:
    report = check_recall_mutants(place, types=types)
    assert not report.broken, [o.name for o in report.broken]
    assert {o.name for o in report.survivors} <= BLIND
    assert all(set(o.tokens_in) == set(types) for o in report.outcomes if o.verdict == "tokens")
    assert {o.family for o in report.outcomes} <= set(FAMILIES)
    assert len([o for o in report.outcomes if o.harmless]) == 4


def test_faults_change_tokens_and_honest_caches_do_not(tmp_path: Path) -> None:
    place = folder(tmp_path, "llama", context=512, heads=2, kv_heads=1)
    torch.set_num_threads(1)
    trial = read_trial(place)
    assert len(trial.context) + len(trial.rest) <= 512
    asked = (trial.answers != trial.function.none).double().mean()
    assert asked > 0.8, "nearly every place of the context is queried"
    check(place, "bfloat16")


def test_a_window_shows_what_is_asked(tmp_path: Path) -> None:
    trial = read_trial(folder(tmp_path, "mistral", context=2048, heads=2, kv_heads=1))
    assert trial.length % 256, "BOS at the border would hide positions that are off"
    answers = trial.answers[: trial.seen].tolist()
    assert sum(a != trial.function.none for a in answers) > 0.9 * trial.seen


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "mistral", "gemma"])
def test_every_fault_at_full_length(architecture: str, tmp_path: Path) -> None:
    check(folder(tmp_path, architecture), "float32", "bfloat16")
