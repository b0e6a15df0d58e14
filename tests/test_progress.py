"""Progress: bars with rate and time left on a terminal and in a notebook, silence elsewhere, lines on request."""

from __future__ import annotations

import builtins
import io
import logging
import os
import re
import subprocess
import sys
import time
import types

import pytest

import byheart
from byheart import progress
from byheart.progress import SILENT, ConsoleProgress, console_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def as_terminal(monkeypatch, patience: float = 0.05) -> Terminal:
    """Standard error as a terminal, from now on; a fixture would be too early, as pytest sets its own after it."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "PATIENCE", patience)
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


def test_a_bar_with_rate_and_time_left_for_long_stages(monkeypatch):
    terminal = as_terminal(monkeypatch)
    shown = console_progress()
    assert isinstance(shown, ConsoleProgress)
    with shown.stage("counting", total=30) as stage:
        for _ in range(6):
            time.sleep(0.1)
            stage.advance(5)
    assert "counting" in terminal.getvalue() and "30/30" in terminal.getvalue()
    assert re.search(r"\d+/30\S* [\d.]+/s, 0:00:0\d left", terminal.getvalue())


def test_no_bar_for_short_stages(monkeypatch):
    terminal = as_terminal(monkeypatch, patience=60)
    with console_progress().stage("counting", total=30) as stage:
        stage.advance(30)
    assert terminal.getvalue() == ""


def test_an_interruption_takes_the_bar_away(monkeypatch):
    terminal = as_terminal(monkeypatch)
    with pytest.raises(KeyboardInterrupt), console_progress().stage("counting", total=30) as stage:
        stage.advance()
        time.sleep(0.3)
        raise KeyboardInterrupt
    assert "1/30" in terminal.getvalue()
    assert terminal.getvalue().count("\x1b[?25h") == 1, "the cursor is back"


def test_stages_are_logged_with_their_seconds_whoever_shows_them(monkeypatch, caplog):
    as_terminal(monkeypatch, patience=60)
    caplog.set_level(logging.DEBUG, "byheart")
    for shown in (SILENT, console_progress()):
        with shown.stage("counting", total=3000) as stage:
            stage.advance(3)
        (record,) = caplog.records
        assert record.getMessage() == "counting (3,000): 0.0 s" and record.levelname == "DEBUG"
        assert record.stage == "counting (3,000)" and 0 <= record.seconds < 1
        caplog.clear()
    with pytest.raises(KeyboardInterrupt), SILENT.stage("counting"):
        raise KeyboardInterrupt
    assert caplog.messages == ["counting: 0.0 s, ended by KeyboardInterrupt"]


def test_reading_building_proving_and_exporting_are_logged(tmp_path, caplog, capfd):
    pytest.importorskip("onnxruntime", reason="needs byheart[onnx]")
    (tmp_path / "table.csv").write_text("word,kind\ncat,animal\nact,deed\ndog,animal\n")
    caplog.set_level(logging.INFO, "byheart")
    memory = byheart.memorize(byheart.read(tmp_path / "table.csv"), construction="native", progress=False)
    memory.to_onnx(tmp_path / "table.onnx")
    stages = [record.stage for record in caplog.records if record.levelname == "INFO"]
    assert stages == ["reading", "building native", "proving", "exporting"]
    assert capfd.readouterr() == ("", ""), "a log is for those who listen"


def test_deploying_is_logged_too(caplog):
    pytest.importorskip("onnxruntime", reason="needs byheart[onnx]")
    caplog.set_level(logging.INFO, "byheart")
    table = {"word": ["cat", "act", None], "kind": ["animal", "deed", "?"]}
    byheart.deploy(table, form="network", abstain_bits=0, missing="drop", progress=False)
    stages = [record.stage for record in caplog.records if record.levelname == "INFO"]
    assert stages == ["reading", "building native", "proving", "exporting"]
    assert [record.left_out for record in caplog.records if record.levelname == "WARNING"] == [{"--missing drop": 1}]


def test_what_is_left_out_is_a_warning(caplog, capfd):
    table = byheart.read({"word": ["cat", "act", "act", None], "kind": [1, 2, 3, 4]}, missing="drop")
    byheart.memorize(table, construction="ks25", conflicts="first", progress=False)
    byheart.memorize(["cat", None], [1, 2], construction="ks25", missing="drop", progress=False)
    found = [(record.levelname, record.left_out) for record in caplog.records]
    assert found == [
        ("WARNING", {"missing=drop": 1}), ("WARNING", {"conflicts=first": 1}), ("WARNING", {"missing=drop": 1}),
    ]  # fmt: skip
    assert "omitted: 1 by missing=drop" in caplog.messages[0]
    assert capfd.readouterr().err == "", "and nothing reaches standard error unless it is requested"


def test_a_stage_that_never_advances_gets_a_bar(monkeypatch):
    terminal = as_terminal(monkeypatch)
    with console_progress().stage("thinking"):
        time.sleep(0.4)
    assert "thinking" in terminal.getvalue() and "so far" in terminal.getvalue()


def test_stages_inside_stages_share_the_screen(monkeypatch):
    terminal = as_terminal(monkeypatch)
    shown = console_progress()
    with shown.stage("outer", total=2) as outer:
        outer.advance()
        with shown.stage("inner", total=3) as inner:
            time.sleep(0.3)
            inner.advance(3)
        outer.advance()
    assert "outer" in terminal.getvalue() and "inner" in terminal.getvalue()
    assert terminal.getvalue().count("\x1b[?25h") == 1, "one display, from the first bar to the last"
    before = len(terminal.getvalue())
    time.sleep(0.2)
    assert len(terminal.getvalue()) == before, "and then it is gone"


COUNT = """
import time
from byheart import progress
progress.PATIENCE = 0.05
with progress.console_progress().stage("counting", total=3) as stage:
    time.sleep(0.4)
    stage.advance(3)
print("done")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_real_terminal_and_a_real_pipe():
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COUNT]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, check=True, text=True)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert run.stdout == "done\n" and "counting" in shown and "3/3" in shown
    run = subprocess.run(command, capture_output=True, env=environment, check=True, text=True)
    assert (run.stdout, run.stderr) == ("done\n", "")


def test_a_notebook(monkeypatch):
    """As rich finds one: a `get_ipython` of the kernel's class, and the libraries that draw in cells."""
    drawn, closed = [], []

    class ZMQInteractiveShell:
        pass

    class Output:
        def clear_output(self, wait: bool) -> None:
            drawn.append("")

        def close(self) -> None:
            closed.append(self)

        __enter__ = __exit__ = lambda self, *_: None

    def fake(name: str, **names: object) -> None:
        module = types.ModuleType(name)
        module.__dict__.update(names)
        module.__spec__ = types.SimpleNamespace(name=name)
        monkeypatch.setitem(sys.modules, name, module)

    texts: list[str] = []
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    fake("IPython")
    fake("IPython.display", display=lambda what: texts.append(getattr(what, "text", "")))
    with monkeypatch.context() as without:
        without.setattr(progress, "find_spec", lambda name: None)
        assert console_progress() is SILENT, "without ipywidgets rich would warn instead of drawing"
    fake("ipywidgets", Output=Output)
    shown = console_progress()
    assert isinstance(shown, ConsoleProgress)
    with shown.stage("counting", total=3) as stage:
        stage.advance(2)
        time.sleep(0.4)
    assert drawn and closed and any("counting" in text for text in texts)
