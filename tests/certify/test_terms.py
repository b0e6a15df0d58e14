"""The mutation gate of `certify`: every named term is in its module, and a test fails without it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.certify.terms import TERMS, Term, table

ROOT = Path(__file__).parents[2]
# Their tests take less than a second.
QUICK = ("carried errors of a sum", "largest id", "connections of attention")


def removed(*names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.certify.terms", *names], cwd=ROOT, capture_output=True, text=True
    )


def test_every_term_is_where_the_list_says() -> None:
    assert len({term.name for term in TERMS}) == len(TERMS)
    for term in TERMS:
        assert ast.dump(ast.parse(term.source())) and (ROOT / "tests" / term.tests).exists(), term


def test_the_page_has_the_names() -> None:
    assert table() in (ROOT / "docs" / "soundness-terms.md").read_text(encoding="utf-8")


def test_some_terms_are_missed_by_a_test() -> None:
    found = removed(*QUICK)
    assert found.returncode == 0, found.stdout + found.stderr


def test_what_changes_nothing_survives() -> None:
    same = Term(
        "a name", "certify/properties", "total, length = 0, n", "length, total = n, 0", "certify/test_properties.py"
    )
    assert same.survives()
    assert removed("no such term").returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_every_term_is_missed_by_a_test(term: Term) -> None:
    found = removed(term.name)
    assert found.returncode == 0, found.stdout + found.stderr
