"""The report page: its numbers, its safety, and its behaviour in a real browser, for every construction and task."""

from __future__ import annotations

import html
import json
import re
import shutil

import pytest

import byheart
from byheart.cli import commands
from byheart.data.task import Task
from byheart.errors import ByheartError
from byheart.report import render, write
from tests.cases import cases

ROWS = ["<script>", "&amp;", "abc", "acb", "b\u2028c"]
LABELS = ["<img src=x onerror=alert(1)>", "two", "three", "</script>", "four"]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def memory():
    return byheart.memorize(ROWS, LABELS, construction="ks25", progress=False)


@pytest.fixture(scope="module")
def page(memory):
    return render(memory)


def shown_numbers(page: str) -> dict[str, int]:
    found = re.findall(r'data-(?:field|size)="(\w+)">([\d,]+)<', page)
    return {field: int(text.replace(",", "")) for field, text in found}


def test_numbers_equal_the_summary(memory, page):
    assert "gives every token a number of its own" in page
    told, shown = memory.summary(), shown_numbers(page)
    assert {"N", "n", "C", "contexts", "parameters", "total_bits", "max_bits", "width", "depth"} <= set(shown)
    assert shown == {field: told[field] for field in shown}


def test_numbers_equal_those_of_the_command(tmp_path, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("name,colour\ncat,red\nact,blue\n")
    told = json.loads(CliRunner().invoke(commands, ["memorize", "t.csv", "-o", "m", "--json"]).stdout)
    CliRunner().invoke(commands, ["report", "m", "t.csv", "-o", "r.html"], catch_exceptions=False)
    shown = shown_numbers((tmp_path / "r.html").read_text())
    assert shown and shown == {field: told[field] for field in shown}


def test_it_needs_nothing_from_elsewhere(page):
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "http" not in page


def test_data_cannot_break_out(page):
    assert "<img src=x" not in page
    assert page.count("</script>") == 3 and "<script>&" not in page


def test_large_networks_are_not_carried(memory, monkeypatch):
    monkeypatch.setattr("byheart.report.page.LIVE_LIMIT", 100)
    page = render(memory)
    assert "The live picture is left out" in page and "<script" not in page


@pytest.fixture(scope="module")
def chromium():
    sync = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium here")
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, tmp_path):
    """Opens the page of a memory; at the end the console must be empty."""
    messages: list[str] = []

    def opened(memory: byheart.Memory, width: int = 1100):
        write(memory, tmp_path / "report.html")
        tab = chromium.new_page(viewport={"width": width, "height": 800})
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.goto((tmp_path / "report.html").as_uri())
        return tab

    yield opened
    assert messages == []


def ask(tab, row) -> str:
    tab.fill("#tokens", row if isinstance(row, str) else json.dumps(row))
    tab.click("#run")
    return tab.inner_text("#answer")


@pytest.mark.parametrize("width", [1100, 360])
def test_in_a_browser(memory, open_page, width):
    tab = open_page(memory, width)
    assert tab.inner_text("#verdict").startswith("proved")
    for row, label in zip(ROWS, LABELS, strict=True):
        assert ask(tab, list(row)) == f"answer: {label}"
    assert "never seen" in ask(tab, ["?"])
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    sizes = "[...document.querySelectorAll('.bar, .map div, .ends')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert min(tab.evaluate(sizes)) >= 13, "text keeps its size on a phone"


def expected(memory: byheart.Memory, row) -> str:
    (answer,) = memory.predict([row])
    if isinstance(answer, list):
        return "answers: " + " · ".join("none" if a is byheart.UNKNOWN else str(a) for a in answer)
    return "no answer: the output is not a class" if answer is byheart.UNKNOWN else f"answer: {answer}"


def plain(row):
    return [list(token) if isinstance(token, tuple) else token for token in row]


PAIRS = [(name, task) for name, listing in byheart.constructions().items() for task in listing.tasks]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one", "every"])
@pytest.mark.parametrize(("construction", "task"), PAIRS)
def test_the_page_answers_as_the_memory_does(construction, task, every, open_page):
    """Symbols, ragged rows and vectors, with and without positions: one of these cases, or every one."""
    chosen = [c for c in cases(Task(task)) if c.name in ("symbols", "vectors", "ragged words", "ragged sets")]
    for case in chosen if every else [chosen[PAIRS.index((construction, task)) % len(chosen)]]:
        try:
            memory = byheart.memorize(
                case.sequences,
                case.labels,
                task=task,
                positions=case.positions,
                construction=construction,
                progress=False,
            )
        except ByheartError:
            continue  # the construction does not take such data
        tab = open_page(memory)
        if "softmax of unequal scores" in tab.content() and not tab.query_selector("#tokens"):
            assert "enclosure" in memory.certificate.arithmetic
            continue
        for row in case.sequences[:4]:
            assert ask(tab, plain(row)) == expected(memory, row), f"{case} {row}"
        tab.close()


def test_texts_are_cut_as_the_data_was(open_page, tmp_path):
    for tokens, texts in [("words", ["to be", "be to"]), ("bytes", ["é", "e"]), ("wordpunct", ["a, b", "b, a"])]:
        (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t, "y": k}) + "\n" for k, t in enumerate(texts)))
        table = byheart.read(tmp_path / "t.jsonl", tokens=tokens, max_length=3)
        tab = open_page(byheart.memorize(table, construction="compact", progress=False))
        assert [ask(tab, text) for text in texts] == ["answer: 0", "answer: 1"]


def test_the_steps_of_an_input(open_page):
    """Ids of the tokens, the group, the folds, the answer: what the page says is what the network does."""
    rows = [f"{a}{b}{c}" for a in "abcdef" for b in "abcdef" for c in "abcd"]
    memory = byheart.memorize(rows, [hash_free(row) for row in rows], construction="compact", progress=False)
    tab = open_page(memory, 390)
    ask(tab, rows[7])
    steps = tab.locator(".step").all_inner_texts()
    assert [text.split("\n")[0].split(". ")[1] for text in steps][-3:] == ["group selector", "folds", "E_out"]
    assert re.search(r"group \d+ of \d+", steps[-3]) and re.search(r"\d+ of \d+ folds reflect", steps[-2])
    assert f"answer: {hash_free(rows[7])}" in steps[-1]
    assert all(f'"{letter}"' in steps[0] for letter in rows[7]), "every token has its id"
    whole = tab.evaluate("document.getElementById('flow').height")
    tab.locator(".step").nth(len(steps) - 3).click()
    assert tab.evaluate("document.getElementById('flow').height") == 1 < whole, "the selector alone"
    assert tab.locator(".step.zoomed").count() == 1
    tab.locator(".step.zoomed").click()
    box = tab.locator("#flow").bounding_box()
    tab.locator("#flow").hover(position={"x": 20, "y": box["height"] - 3})
    assert tab.inner_text("#pointed").startswith(f"layer {whole} of {whole}, {len(steps)}. E_out")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_label_memory_of_one_block():
    memory = byheart.memorize(["ab", "ba", "bb", "aa"], [0, 1, 2, 1], progress=False)
    assert "a line through all ids, bent wherever the label changes" in render(memory)


def hash_free(row: str) -> int:
    """A label that looks random and is the same everywhere."""
    return sum(ord(letter) * 7**place for place, letter in enumerate(row)) % 11


def test_names_can_be_copied(tmp_path, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    (tmp_path / "my table.csv").write_text("name,colour\ncat,red\nact,blue\n")
    for arguments in (["memorize", "my table.csv", "-o", "my.byheart"], ["report", "my.byheart", "my table.csv"]):
        assert CliRunner().invoke(commands, arguments, catch_exceptions=False).exit_code == 0
    page = html.unescape((tmp_path / "report.html").read_text())
    assert 'byheart.load("my.byheart")' in page and "byheart verify my.byheart 'my table.csv'" in page
    assert "byheart predict my.byheart cat" in page and 'memory.predict([["c", "a", "t"]])' in page


def test_it_opens(memory, tmp_path, monkeypatch):
    from click.testing import CliRunner

    shown: list[str] = []
    monkeypatch.chdir(tmp_path)
    memory.save("m")
    monkeypatch.setattr("webbrowser.open", lambda address: shown.append(address) or True)
    assert CliRunner().invoke(commands, ["report", "m", "--open"]).exit_code == 0
    assert shown == [(tmp_path / "report.html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert "open report.html yourself" in str(CliRunner().invoke(commands, ["report", "m", "--open"]).exception)


def test_it_can_be_printed(memory, chromium, tmp_path):
    write(memory, tmp_path / "report.html")
    tab = chromium.new_page()
    tab.goto((tmp_path / "report.html").as_uri())
    tab.emulate_media(media="print")
    assert not tab.locator("#run").is_visible()
    assert all(tab.locator(name).is_visible() for name in ("#sizes", "#flow", "#verdict"))
    assert tab.pdf(format="A4").startswith(b"%PDF-")
    tab.close()
