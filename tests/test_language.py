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
    assert check_text.phrases([*check_text.pages(), *check_text.sources()]) == []


@pytest.mark.parametrize(
    "line",
    [
        "the proof of recall knows RMSNorm",
        "one unit knows it",
        "heads tell BOS from others",
        "every head brings its token",
        "the unit wakes",
        "a key stands twice in the file",
        "nothing is said about other inputs",
        "rounding costs some of the lead",
        "a head of its own",
        "tables as people have them",
        "reachable room by room",
        "the function hands it over",
    ],
)
def test_phrases_of_earlier_versions_are_found(check_text, monkeypatch, tmp_path, line):
    monkeypatch.setattr(check_text, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(line, encoding="utf-8")
    assert len(check_text.phrases([tmp_path / "page.md"])) == 1


@pytest.mark.parametrize("line", ["hashes lead to labels", "it leads to the label", "wake up", 'TEXT = "say it twice"'])
def test_ordinary_lines_pass(check_text, monkeypatch, tmp_path, line):
    monkeypatch.setattr(check_text, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(line, encoding="utf-8")
    assert check_text.phrases([tmp_path / "page.md"]) == []


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
