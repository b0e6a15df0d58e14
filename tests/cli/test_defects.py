"""What is our fault has its own status; a reader that has gone is not a fault at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

CODE = "import sys; from byheart.cli import main; sys.argv[0] = 'byheart'; main()"
BROKEN = f"import byheart.cli.paper as p; p.entries = None; p.command.callback = lambda **k: 1 / 0; {CODE}"


def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_defect_never_looks_like_a_verdict():
    result = run(BROKEN, "paper", "Lemma G.4")
    assert result.returncode == 70 and result.stdout == ""
    assert result.stderr.startswith("byheart: this is a bug in byheart") and "ZeroDivisionError" in result.stderr
    assert "Traceback" not in result.stderr and result.stderr.count("\n") == 1


def test_the_traceback_is_for_those_who_ask():
    result = run(BROKEN, "paper", "Lemma G.4", BYHEART_DEBUG="1")
    assert result.returncode == 70 and "Traceback" in result.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="needs pipes that signal")
def test_a_closed_pipe_ends_byheart_as_it_ends_cat():
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run([sys.executable, "-c", CODE, "constructions"], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert process.returncode == -signal.SIGPIPE and process.stderr == b""
