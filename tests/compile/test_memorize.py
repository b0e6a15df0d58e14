"""Code that is compiled for the first time is waited for with a word; tokens are chosen by the size of the result."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest

import byheart
from byheart.compile.memorize import WORDS, _is_kept, planning
from byheart.data.tokens.tokenizer import TokenTable
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


@pytest.mark.parametrize("tokens", ["characters", "words"])
def test_plans_are_what_is_built(tokens):
    codes = sorted({f"{chr(65 + k % 23)}{k * 37 % 97} {k % 89}{chr(65 + k % 19)}" for k in range(500)})
    frame = {"code": codes, "kind": [k % 3 for k in range(len(codes))]}
    table = byheart.read(frame, tokens=tokens)
    plan = planning("native", {})
    planned = plan(TokenTable.of(tokens, codes), len(codes), 3)
    assert byheart.memorize(table, construction="native", progress=False).size.parameters == planned


def test_tokens_are_chosen_by_the_size_of_the_memory():
    few_words = [f"{one} {two}" for one in ("northern", "southern") for two in ("harbour", "mountain", "plateau")]
    codes = sorted({f"{chr(65 + k % 23)}{k * 37 % 97} {k % 89}{chr(65 + k % 19)}" for k in range(500)})
    for rows, kind in ((few_words, "words"), (codes, "characters")):
        frame = {"text": rows, "kind": [k % 3 for k in range(len(rows))]}
        for construction in ("native", "compact"):
            table = byheart.read(frame, planning=planning(construction, {}))
            assert table.tokens.kind == kind
        memory = byheart.memorize(frame, label="kind", construction="native", progress=False)
        assert memory.tokens.kind == kind
    assert "characters are planned to take" in table.note and "(--tokens words)" in table.note
