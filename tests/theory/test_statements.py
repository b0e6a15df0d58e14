"""Rows of the paper map without a function: their code and tests exist."""

from __future__ import annotations

import importlib
from pathlib import Path

from byheart.paper import entries
from byheart.theory import statements

ROOT = Path(__file__).parents[2]
STATED = [entry for entry in entries() if entry.ref.paper in ("KS25", "M24")]


def test_the_code_of_every_statement_can_be_imported():
    assert statements.IN_WORDS and len(STATED) > 40
    missing = []
    for entry in STATED:
        if entry.module:
            found: object = importlib.import_module(entry.module)
            for part in entry.name.split("."):
                found = getattr(found, part, None)
            if found is None:
                missing.append(entry.code)
    assert missing == []


def test_the_test_of_every_statement_exists():
    assert [entry.test for entry in STATED if entry.test and not (ROOT / entry.test).exists()] == []


def test_a_statement_has_code_or_a_reason():
    silent = [str(entry.ref) for entry in STATED if not entry.module and entry.status in ("built", "checked")]
    assert silent == []
