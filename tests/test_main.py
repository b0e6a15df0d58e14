"""`python -m byheart` is the command `byheart`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import byheart
from byheart.version import __version__


@pytest.fixture(autouse=True)
def path(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(Path(byheart.__file__).parents[1]))
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "byheart", *arguments], capture_output=True, text=True, check=False)


def test_it_is_the_command():
    assert run("--version").stdout == f"byheart, version {__version__}\n"
    assert run("--help").stdout.startswith("Usage: byheart [OPTIONS] COMMAND")


def test_its_status_is_that_of_the_command():
    failed = run("verify", "nowhere", "nowhere")
    assert failed.returncode == 2 and failed.stderr.startswith("byheart: ") and failed.stderr.count("\n") == 1
    wrong = run("verify")
    assert wrong.returncode == 2 and "Usage: byheart verify" in wrong.stderr
