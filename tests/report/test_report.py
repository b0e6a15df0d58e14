"""The report page: its numbers, its safety, and its behaviour in a real browser."""

from __future__ import annotations

import re
import shutil

import pytest

import byheart
from byheart.report import render, write

ROWS = ["<script>", "&amp;", "abc", "acb", "b\u2028c"]
LABELS = ["<img src=x onerror=alert(1)>", "two", "three", "</script>", "four"]


@pytest.fixture(scope="module")
def memory():
    return byheart.memorize(ROWS, LABELS, construction="ks25", progress=False)


@pytest.fixture(scope="module")
def page(memory):
    return render(memory)


def test_numbers_equal_the_summary(memory, page):
    told = memory.summary()
    for field, text in re.findall(r'data-(?:field|size)="(\w+)">([\d,]+)<', page):
        assert int(text.replace(",", "")) == told[field], field


def test_it_needs_nothing_from_elsewhere(page):
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_data_cannot_break_out(page):
    assert "<img src=x" not in page
    assert page.count("</script>") == 2 and "<script>&" not in page


def browser():
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium here")
    return path


FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.mark.parametrize("width", [1100, 360])
def test_in_a_browser(memory, tmp_path, width):
    sync = pytest.importorskip("playwright.sync_api")
    write(memory, tmp_path / "report.html")
    messages: list[str] = []
    with sync.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=FLAGS)
        tab = chromium.new_page(viewport={"width": width, "height": 800})
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.goto((tmp_path / "report.html").as_uri())
        assert tab.inner_text("#verdict").startswith("proved")
        for row, label in zip(ROWS, LABELS, strict=True):
            tab.fill("#tokens", str(list(row)).replace("'", '"'))
            tab.click("#run")
            assert tab.inner_text("#answer") == f"answer: {label}"
        tab.fill("#tokens", '["?"]')
        tab.click("#run")
        assert "never seen" in tab.inner_text("#answer")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        chromium.close()
    assert messages == []
