"""Whoever waits for code that is compiled for the first time is told so; afterwards nobody hears of it."""

from __future__ import annotations

from types import SimpleNamespace

from byheart.compile.first_use import WORDS, _is_kept
from byheart.progress import SILENT


def test_code_that_is_there_and_code_that_is_not(tmp_path):
    kernel = SimpleNamespace(__name__="solve", stats=SimpleNamespace(cache_path=str(tmp_path)))
    assert not _is_kept(kernel)
    (tmp_path / "_segment.solve-266.py311.nbi").touch()
    assert _is_kept(kernel)
    assert _is_kept(SimpleNamespace(__name__="plain")), "without numba nothing is compiled"


def test_the_stage_is_named(monkeypatch):
    import byheart.compile.first_use as module

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
