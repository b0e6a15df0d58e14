"""How the command line behaves: quiet, verbose, without colours, interrupted, completed, and with a full disk."""

from __future__ import annotations

import logging
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import byheart
from byheart.cli import COMMANDS, commands, main
from byheart.errors import DataError, TableError

PROGRAM = "import sys; from byheart.cli import main; sys.argv[0] = 'byheart'; main()"
TABLE = "name,colour\ncat,red\nact,blue\n"


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(byheart.__file__).parents[1]))  # processes start in another folder
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TABLE)


def invoke(*arguments: str):
    return CliRunner().invoke(commands, ["memorize", "t.csv", "--construction", "ks25", "-o", "m", *arguments])


def test_quiet_says_the_verdict_alone():
    result = invoke("--quiet")
    assert result.output.count("\n") == 1 and result.output.startswith("proved") and result.stderr == ""


def test_verbose_says_how_long_it_took():
    result = invoke("--verbose", "--json")
    assert result.stdout.count("\n") == 1
    result = invoke("--verbose")
    order = re.findall(r"^(reading|building ks25|proving): \d+\.\d s$", result.stderr, re.MULTILINE)
    assert order == ["reading", "building ks25", "proving"] and "proved" in result.stdout
    assert len(logging.getLogger("byheart").handlers) == 1, "the handler is gone with the command"
    assert invoke("--verbose", "--quiet").stderr == ""


def terminal(arguments: list[str], **environment: str) -> str:
    """What byheart writes to a terminal."""
    reader, writer = pty.openpty()
    base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=writer,
        stderr=writer,
        env={**base, "TERM": "xterm-256color", **environment},
    )
    os.close(writer)
    found = b""
    while True:
        try:
            part = os.read(reader, 4096)
        except OSError:
            break
        if not part:
            break
        found += part
    process.wait()
    os.close(reader)
    return found.decode()


def test_colours_only_where_they_are_wanted():
    """Rich draws the heading of the table in bold on a terminal; NO_COLOR leaves no colour code."""
    colour = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;5)[0-9;]*m")
    assert not colour.search(terminal(["constructions"], NO_COLOR="1"))
    piped = subprocess.run([sys.executable, "-c", PROGRAM, "constructions"], capture_output=True, text=True)
    assert "\x1b" not in piped.stdout + piped.stderr


def test_every_command_shows_an_example_and_takes_json():
    for name in COMMANDS:
        command = commands.get_command(None, name)
        below = [[name, inner] for inner in getattr(command, "commands", {})]
        for path in below or [[name]]:
            shown = CliRunner().invoke(commands, [*path, "--help"]).output
            assert f"byheart {' '.join(path)}" in shown, f"{path} --help has no example"
            assert "--json" in shown, f"{path} has no --json"
    assert "Exit status: 0" in CliRunner().invoke(commands, ["--help"]).output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    environment = {**os.environ, "_BYHEART_COMPLETE": f"{shell}_source"}
    found = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    if shell == "bash" and "Bash" in found.stderr:
        pytest.skip("no new Bash here")
    assert found.returncode == 0 and "_BYHEART_COMPLETE" in found.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("byheart mem", "memorize"),
        ("byheart memorize --construction ks", "ks25"),
        ("byheart verify --conf", "--conflicts"),
    ],
)
def test_completion(words, expected):
    environment = {
        **os.environ,
        "_BYHEART_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    found = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert f"plain,{expected}" in found.stdout.split()


def test_interrupting_leaves_no_file(tmp_path):
    rows = "".join(f"{k:06d},{k % 7}\n" for k in range(40_000))
    (tmp_path / "big.csv").write_text("name,label\n" + rows)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "memorize", "big.csv", "-o", "big", "--construction", "ks25", "--quiet"],
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("it was done before it could be interrupted")
    assert process.returncode in (130, -signal.SIGINT), said
    assert sorted(os.listdir(tmp_path)) == ["big.csv", "t.csv"]


@pytest.mark.parametrize("arguments", [["constructions", "--json"], ["memorize", "t.csv", "-o", "m", "--json"]])
def test_a_full_disk_is_one_sentence(arguments):
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert run.returncode == 2 and "No space left on device" in run.stderr and "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "--max-rows"),
        (OSError(28, "No space"), 2, "No space"),
        (DataError("one\n\x1b[31mline"), 2, "byheart: one\\n\\x1b[31mline\n"),
        (TableError("t.csv:", ["a\x07b", "c\nd"]), 2, "byheart: t.csv:\n  a\\x07b\n  c\\nd\n"),
    ],
)
def test_endings(monkeypatch, capsys, error, status, words):
    def fail(**_):
        raise error

    monkeypatch.setattr("byheart.cli.commands", fail)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == status and words in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["memorize", "t.csv", "-o", "new", "--construction", "ks25", "--quiet"],
        ["report", "m", "t.csv", "-o", "new"],
    ],
)
def test_a_disk_that_fills_up_leaves_the_old_file(arguments, tmp_path):
    """No file may grow beyond a kilobyte: the write fails in the middle, the old file stays, nothing is left over."""
    invoke("--quiet")
    (tmp_path / "new").write_text("old")
    before = sorted(os.listdir(tmp_path))
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    command = [sys.executable, "-B", "-c", limit + PROGRAM, *arguments]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "NUMBA_CACHE_DIR": "/nonexistent"}
    )
    assert run.returncode == 2 and run.stderr.startswith("byheart: cannot write new: "), run.stderr
    assert run.stderr.count("\n") == 1
    assert (tmp_path / "new").read_text() == "old" and sorted(os.listdir(tmp_path)) == before
