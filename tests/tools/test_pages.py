"""The pages that are built from registries agree with the code."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from byheart.paper import Entry, Ref
from tools import pages

PROJECT = Path(__file__).parents[2]


def test_pages_are_current():
    """In its own process: other tests register constructions, targets and presets that the pages would list."""
    found = subprocess.run(
        [sys.executable, "-m", "tools.pages", "--check"], cwd=PROJECT, capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_check_notices_a_stale_page(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    for page in (pages.TABLE, pages.CHOOSE):
        page.write_text("<!-- made: constructions -->\n<!-- end -->\n", encoding="utf-8")
    assert pages.main(["--check"]) == 1
    assert "make pages" in capsys.readouterr().err
    assert pages.main([]) == 0
    assert pages.main(["--check"]) == 0
    (tmp_path / pages.PAPER_MAP).write_text("# Paper map\n", encoding="utf-8")
    assert pages.main(["--check"]) == 1


def test_table_survives_odd_statements():
    entry = Entry(Ref("KS25", "Lemma G.2"), "|x| stays\n inside", "byheart.gadgets.interval", "build", "tests/x.py")
    row = pages.render([entry]).splitlines()[-1]
    assert row == "| Lemma G.2 | \\|x\\| stays inside | built | `byheart.gadgets.interval.build` | `tests/x.py` |"
    row = pages.render([replace(entry, status="partly: 1 instead of √|S|")]).splitlines()[-1]
    assert "| partly: 1 instead of √\\|S\\| |" in row


def test_labels_are_in_the_order_of_the_paper():
    labels = ["Theorem 10", "Theorem 2", "Lemma G.4", "Lemma C.1"]
    page = pages.render([Entry(Ref("KS25", label), "says something", "m", "f", "t") for label in labels])
    assert re.findall(r"^\| (\w+ \S+) \|", page, re.MULTILINE) == ["Lemma C.1", "Lemma G.4", "Theorem 2", "Theorem 10"]


def test_the_manual_has_every_command_and_no_stray_roff():
    page = pages.manual()
    for name in pages.commands.list_commands(None):
        assert f".SS byheart {name}" in page
    known = ('.\\"', ".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".nf", ".fi")
    assert [line for line in page.splitlines() if line.startswith((".", "'")) and not line.startswith(known)] == []
