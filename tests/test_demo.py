"""The demo prints what it guarantees, on a handful of rows."""

import html.entities

import pytest

import byheart
from byheart import demo


@pytest.fixture
def few_entities(monkeypatch):
    kept = dict.fromkeys([*demo.QUERIES, *list(html.entities.html5)[:20]])
    monkeypatch.setattr(demo, "html5", {name: html.entities.html5[name] for name in kept})


def test_demo_proves_saves_and_explains(few_entities, tmp_path, capsys):
    assert demo.main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "proved" in printed
    assert all(part in printed for part in ("budget", "measured", "lower bound", "≂̸", "é"))
    memory = byheart.load(tmp_path / "html-entities.byheart")
    assert memory.predict(["copy;"]) == ["©"]
    assert f"{memory.size.parameters:,}" in printed
    assert memory.size.parameters <= memory.certificate.guaranteed.get("parameters", memory.size.parameters)


def test_demo_fails_when_the_verdict_does(few_entities, tmp_path, capsys, monkeypatch):
    from dataclasses import replace

    honest = byheart.memorize

    def doubtful(*arguments, **options):
        memory = honest(*arguments, **options)
        doubt = replace(memory.certificate, verdict=type(memory.certificate.verdict)("undecided"), reason="no reason")
        return replace(memory, certificate=doubt)

    monkeypatch.setattr(byheart, "memorize", doubtful, raising=False)
    assert demo.main([str(tmp_path)]) == 1
    assert "undecided" in capsys.readouterr().out
