"""Progress: bars with stage, rate and time left on a terminal, silence elsewhere, lines where they are asked for."""

from __future__ import annotations

import io
import sys

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
