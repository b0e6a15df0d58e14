"""Pages, messages and docstrings use the field's words: `tools/check_text.py` lists the phrases that they avoid."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def check_text():
    spec = importlib.util.spec_from_file_location("check_text", ROOT / "tools" / "check_text.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_texts_avoid_the_listed_phrases(check_text):
    modules = sorted((ROOT / "src").rglob("*.py"))
    assert check_text.phrases([*check_text.pages(), *modules]) == []


def test_links_lead_to_files_and_headings(check_text):
    assert check_text.links(check_text.pages()) == []


def test_pages_are_short(check_text):
    assert check_text.long_pages(check_text.pages()) == []


def test_each_check_finds_its_fault(check_text, monkeypatch, tmp_path):
    monkeypatch.setattr(check_text, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# One\n\nEvery row is asked. [gone](gone.md) [two](#two)\n" + "word " * 1600, encoding="utf-8")
    assert len(check_text.phrases([page])) == 1
    assert len(check_text.links([page])) == 2
    assert len(check_text.long_pages([page])) == 1
    module = tmp_path / "module.py"
    module.write_text('asked = "rows are told apart"\n', encoding="utf-8")
    assert [line.split(": ")[1] for line in check_text.phrases([module])] == ["'told apart'; write distinguished"]
