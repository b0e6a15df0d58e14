"""Whoever waits for code that is compiled for the first time hears of it; afterwards nobody does."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

from byheart.compile.memorize import WORDS, _is_kept
from byheart.progress import SILENT


def test_code_that_is_there_and_code_that_is_not(tmp_path):
    kernel = SimpleNamespace(__name__="solve", stats=SimpleNamespace(cache_path=str(tmp_path)))
    assert not _is_kept(kernel)
    (tmp_path / "_segment.solve-266.py311.nbi").touch()
    assert _is_kept(kernel)
    assert _is_kept(SimpleNamespace(__name__="plain")), "without numba nothing is compiled"


def test_the_stage_is_named(monkeypatch):
    module = importlib.import_module("byheart.compile.memorize")  # the package has a function of that name

    heard: list[str] = []

    class Listener:
        def stage(self, name, total=None):
            heard.append(name)
            return SILENT.stage(name)

        def say(self, message):
            raise AssertionError(message)

    for kept, words in ((False, [WORDS]), (True, [])):
        heard.clear()
        monkeypatch.setattr(module, "_is_kept", lambda kernel, kept=kept: kept)
        with module.first_use("compact", Listener()):
            pass
        assert heard == words
