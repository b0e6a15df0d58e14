"""Checkpoint folders for tests, each built once per process from the poem that fixtures use."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from byheart.checkpoints.hosts._base import hosts
from byheart.checkpoints.suite.write import fixture_memory

RECURRENT = ("qwen3-next", "bamba")  # texts whose windows are chained, no ONNX, no units to forget
# Those that take the recital of any other: gemma2 looks two places back at most.
ARCHITECTURES = tuple(
    name for name, host in hosts().items() if host.task == "causal" and host.lookback is None and name not in RECURRENT
)
# Every kind of network once (gated, tied, experts, learned positions, parallel); the others are slow tests.
KINDS = ("llama", "gemma", "mixtral", "gpt2", "gpt-neox")
SHORT = "To keep a thing, say it twice:\nonce to the wind, and once to the Zoë."


@cache
def _room() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="byheart-recitals-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def recital_folder(
    architecture: str = "llama", text: str | None = None, tokens: str = "bpe:400", **options: Any
) -> Path:
    """A checkpoint of the built-in text, or of another one. Tests copy it before they change anything in it."""
    folder = _room() / f"{architecture}-{len(list(_room().iterdir()))}"
    fixture_memory(text, tokens, architecture).to_huggingface(folder, architecture, **options)
    return folder


def kinds_first(architectures: tuple[str, ...] = ARCHITECTURES) -> list[object]:
    """Parameters for pytest: one architecture of every kind in the usual tests, all in the slow ones."""
    return [a if a in KINDS else pytest.param(a, marks=pytest.mark.slow) for a in architectures]


def copy_of(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target
