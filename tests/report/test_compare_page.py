"""The page of a comparison: its numbers, its charts, and what its text cannot break."""

from __future__ import annotations

import re

import pytest

from byheart.memory.compare.comparison import compare_growth, random_dataset
from byheart.report.compare_page import Point, log_log, render, write

FAST = ["nilsson65", "baum88", "vardi22"]


@pytest.fixture(scope="module")
def small():
    return compare_growth([random_dataset(N, 2, 2, 2) for N in (8, 16, 32)], constructions=FAST)


def test_the_page_is_self_contained_and_escaped(small):
    page = render(small)
    assert page.count("<svg") == 2 and "Table 1, measured" in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page) and "<script" not in page
    for name in FAST:
        assert f'id="{name}"' in page
    chart = log_log({"<b>": [Point(10, 100, True), Point(100, 900, False)]}, "a & b", "parameters")
    assert "<b>" not in chart and "&lt;b&gt;" in chart and "a &amp; b" in chart and "hollow" in chart


def test_one_size_is_drawn_as_bars(small):
    """A line needs two sizes: of one, every construction has a bar and its number, shortest first."""
    page = render(small[-1:])
    parameters = page[page.index("<h2>Parameters</h2>") : page.index("<h2>Bits of all weights</h2>")]
    sizes = {row.construction: row.parameters for row in small[-1].rows if row.parameters}
    assert parameters.count("<rect") == len(sizes) and "<polyline" not in parameters and "<circle" not in parameters
    shown = re.findall(r'class="value"[^>]*>([\d,]+)<', parameters)
    assert [int(text.replace(",", "")) for text in shown] == sorted(sizes.values())
    assert "For N = 32 rows" in page and "<polyline" in render(small)


def test_the_page_is_written_whole(small, tmp_path):
    write(small, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == render(small)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
