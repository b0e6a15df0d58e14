"""Progress: bars with stage, rate and time left on a terminal, silence elsewhere, lines where they are asked for."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from byheart import progress
from byheart.progress import SILENT, ConsoleProgress, LineProgress, console_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def as_terminal(monkeypatch) -> Terminal:
    """Standard error as a terminal, from now on; a fixture would be too early, as pytest sets its own after it."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return shown


def test_silence_in_a_pipe(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert console_progress() is SILENT
    with SILENT.stage("counting", total=3) as stage:
        stage.advance(3)
    SILENT.say("nothing")
    assert capsys.readouterr().out == ""


def test_a_bar_for_long_stages(monkeypatch):
    terminal = as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    shown = console_progress()
    assert isinstance(shown, ConsoleProgress)
    with shown.stage("counting", total=30) as stage:
        for _ in range(3):
            stage.advance(10)
    assert "counting" in terminal.getvalue() and "30/30" in terminal.getvalue()


def test_no_bar_for_short_stages(monkeypatch):
    terminal = as_terminal(monkeypatch)
    with console_progress().stage("counting", total=30) as stage:
        stage.advance(30)
    assert terminal.getvalue() == ""


def test_an_interruption_takes_the_bar_away(monkeypatch):
    terminal = as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    with pytest.raises(KeyboardInterrupt), console_progress().stage("counting", total=30) as stage:
        stage.advance()
        raise KeyboardInterrupt
    assert "\x1b[?25h" in terminal.getvalue(), "the cursor is back"


def test_lines(capsys):
    with LineProgress().stage("counting", total=3000) as stage:
        stage.advance(3)
    assert capsys.readouterr().err == "counting (3,000): 0.0 s\n"


def test_a_stage_that_never_advances_gets_a_bar(monkeypatch):
    terminal = as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    with console_progress().stage("thinking"):
        time.sleep(0.4)
    assert "thinking" in terminal.getvalue() and "so far" in terminal.getvalue()


def test_stages_inside_stages_share_the_screen(monkeypatch):
    terminal = as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    shown = console_progress()
    with shown.stage("outer", total=2) as outer:
        outer.advance()
        with shown.stage("inner", total=3) as inner:
            inner.advance(3)
        outer.advance()
    assert "outer" in terminal.getvalue() and "inner" in terminal.getvalue()
    assert terminal.getvalue().count("\x1b[?25h") == 1, "one display, from the first bar to the last"
    before = len(terminal.getvalue())
    time.sleep(0.1)
    assert len(terminal.getvalue()) == before, "and then it is gone"


def test_rate_and_time_left_are_shown(monkeypatch):
    terminal = as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    with console_progress().stage("counting", total=30) as stage:
        for _ in range(4):
            time.sleep(0.05)
            stage.advance(5)
    assert re.search(r"counting .*20/30, [\d.]+/s, 0:00 left", terminal.getvalue())
