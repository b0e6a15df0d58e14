"""A terminated command removes its drafts; a killed one leaves no folder that looks finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import byheart
from byheart.cli import _end_in_order

# A writer that reports when its draft exists, then waits; `commands` is what main() runs.
WRITER = """
import sys, time
from pathlib import Path
import byheart.cli
from byheart.files import building, replacing
def write(**_):
    with {manager}(Path("target")) as draft:
        (draft / "part" if draft.is_dir() else draft).write_text("begun")
        print("ready", flush=True)
        time.sleep(60)
byheart.cli.commands = write
byheart.cli.main()
"""
# `fixture` stopped after the proof, where only expected.json is missing.
FIXTURE = """
import sys, time
import byheart.cli, byheart.checkpoints.suite.write as write
def stop(*_, **__):
    print("ready", flush=True)
    time.sleep(60)
write.measure = stop
sys.argv = ["byheart", "fixture", "--text", "t.txt", "-o", "tiny", "--quiet"]
byheart.cli.main()
"""


def stopped(program: str, number: int, folder: Path) -> int:
    """The status of a program that gets a signal in the middle of its work."""
    environment = {**os.environ, "PYTHONPATH": str(Path(byheart.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True,
        # A shell starts background jobs with SIGINT ignored, nohup ignores SIGHUP, and children inherit that.
        preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGHUP)],
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=30)
    return process.returncode


@pytest.mark.parametrize("manager", ["replacing", "building"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_drafts_are_removed(tmp_path, manager, number):
    status = stopped(WRITER.format(manager=manager), number, tmp_path)
    assert status == (130 if number == signal.SIGINT else 128 + number)
    assert os.listdir(tmp_path) == []


def test_a_fixture_that_is_stopped_late_leaves_no_folder(tmp_path):
    (tmp_path / "t.txt").write_text("one two three\nfour five six\nseven eight\n")
    assert stopped(FIXTURE, signal.SIGTERM, tmp_path) == 143
    assert os.listdir(tmp_path) == ["t.txt"]
    assert stopped(FIXTURE, signal.SIGKILL, tmp_path) == -9
    assert not (tmp_path / "tiny").exists(), "a draft may stay, but not under the folder's name"


def test_ignored_signals_stay_ignored_and_handlers_are_restored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        restore = _end_in_order()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        restore()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
