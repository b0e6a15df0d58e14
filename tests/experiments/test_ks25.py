"""The guaranteed and measured sizes of docs/ks25.md and its notebook are those of the code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS.parent / "experiments"))

import ks25  # noqa: E402


def rows_of(page: Path, cells: int) -> list[tuple[str, ...]]:
    """The rows of the page's tables with this many cells."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    split = [tuple(part.strip() for part in line.strip("|").split("|")) for line in lines]
    return [row for row in split if len(row) == cells]


def test_the_page_repeats_rows_of_the_notebook():
    notebook = {(row[0], row[1], row[3], *row[4:8]) for row in rows_of(DOCS / "research/ks25.md", 9) if "≤" in row[4]}
    page = [row for row in rows_of(DOCS / "ks25.md", 7) if "≤" in row[3]]
    assert len(page) == 6 and set(page) <= notebook


@pytest.mark.slow
def test_the_notebook_has_the_sizes_of_today(tmp_path):
    (tmp_path / "research").mkdir()
    copy = tmp_path / "research/ks25.md"
    copy.write_text((DOCS / "research/ks25.md").read_text(encoding="utf-8"), encoding="utf-8")
    ks25.sizes(tmp_path)
    assert copy.read_text(encoding="utf-8") == (DOCS / "research/ks25.md").read_text(encoding="utf-8")
