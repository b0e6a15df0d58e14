"""The report page: its numbers, its safety, and its behaviour in a real browser, for every construction and task."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import byheart
from byheart.cli import commands
from byheart.data.task import Task
from byheart.errors import ByheartError
from byheart.report.figures import stage_table
from byheart.report.page import render, write
from tests.cases import cases

ROWS = ["<script>", "&amp;", "abc", "acb", "b\u2028c"]
LABELS = ["<img src=x onerror=alert(1)>", "two", "three", "</script>", "four"]


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
    assert "gives a few tokens a number φ and all others 0" in page
    printed, shown = memory.summary(), shown_numbers(page)
    assert {"N", "n", "C", "contexts", "parameters", "total_bits", "max_bits", "width", "depth"} <= set(shown)
    assert shown == {field: printed[field] for field in shown}


def test_numbers_equal_those_of_the_command(tmp_path, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("name,colour\ncat,red\nact,blue\n")
    printed = json.loads(CliRunner().invoke(commands, ["memorize", "t.csv", "-o", "m", "--json"]).stdout)
    CliRunner().invoke(commands, ["report", "m", "t.csv", "-o", "r.html"], catch_exceptions=False)
    shown = shown_numbers((tmp_path / "r.html").read_text())
    assert shown and shown == {field: printed[field] for field in shown}


def test_it_needs_nothing_from_elsewhere(page):
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "http" not in page


def test_data_cannot_break_out(page):
    assert "<img src=x" not in page
    assert page.count("</script>") == 2 and "<script>&" not in page


def test_large_networks_are_not_carried(memory, monkeypatch):
    monkeypatch.setattr("byheart.report.page.LIVE_LIMIT", 100)
    page = render(memory)
    assert "The live picture is omitted" in page and "<script" not in page


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


WALK = "() => { const next = document.querySelector('.next'); while (!next.disabled) next.click(); }"
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
        tab.evaluate(WALK)  # every layer has its picture: an error on the way is in the console
        said = tab.inner_text(".player .answer").removeprefix("answer: ")
        assert tab.inner_text("#answer").removeprefix("answers: ").removeprefix("answer: ").startswith(said)
        tab.close()


def test_texts_are_cut_as_the_data_was(open_page, tmp_path):
    for tokens, texts in [("words", ["to be", "be to"]), ("bytes", ["é", "e"]), ("wordpunct", ["a, b", "b, a"])]:
        (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t, "y": k}) + "\n" for k, t in enumerate(texts)))
        table = byheart.read(tmp_path / "t.jsonl", tokens=tokens, max_length=3)
        tab = open_page(byheart.memorize(table, construction="compact", progress=False))
        assert [ask(tab, text) for text in texts] == ["answer: 0", "answer: 1"]


def test_the_steps_of_an_input(open_page):
    """The group, every fold, the answer: the page shows what the network does."""
    rows = [f"{a}{b}{c}" for a in "abcdef" for b in "abcdef" for c in "abcd"]
    memory = byheart.memorize(rows, [hash_free(row) for row in rows], abstain_bits=0, progress=False)
    tab = open_page(memory, 390)
    ask(tab, rows[7])
    chapters = [text.split("\n")[0] for text in tab.locator(".chapter").all_inner_texts()]
    assert chapters[0] == "tokens" and chapters[-3:] == ["group selector", "folds", "E_out"]
    tab.locator(".chapter").nth(len(chapters) - 3).click()
    assert re.search(r"It falls into group \d+ of \d+", tab.inner_text(".live-text"))
    value = shown_number(tab)
    tab.click(".next")
    assert tab.inner_text(".player h3").startswith("Fold 1 of ")
    folds = int(tab.inner_text(".player h3").split(" of ")[1])
    for place in range(folds):
        crease, turned = (
            number_in(tab.inner_text(".live-text p:not(.bits)"), "crease at "),
            tab.locator(".bits b.current"),
        )
        assert (turned.inner_text() == "1") == (value > crease)
        value = shown_number(tab)
        assert tab.locator(".bits b").count() == place + 1
        tab.click(".next")
    assert tab.inner_text(".answer") == f"answer: {hash_free(rows[7])}" and tab.is_disabled(".next")
    assert all(letter in tab.locator(".figure").inner_text() for letter in tab.inner_text(".answer")[8:])
    layers = tab.evaluate("document.getElementById('flow').height")
    box = tab.locator("#flow").bounding_box()
    tab.locator("#flow").hover(position={"x": 20, "y": box["height"] - 3})
    assert tab.inner_text("#pointed").startswith(f"layer {layers} of {layers}, {len(chapters) - 1}. E_out")
    tab.locator("#flow").click(position={"x": 20, "y": 2})
    assert tab.inner_text(".player h3") == "One number for every token"
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def number_in(text: str, after: str) -> float:
    """The number that follows these words."""
    return float(text.split(after)[1].split(". ")[0].replace(",", "").replace("−", "-"))


def shown_number(tab) -> float:
    """The equation gives the shown number; a shortened number is opened first."""
    strong = tab.locator(".term.strong .num")
    if strong.get_attribute("aria-expanded") == "false":
        strong.click()
    return float(strong.inner_text().replace(",", "").replace("−", "-"))


def test_nothing_of_another_row_stays_under_an_error(memory, open_page):
    tab = open_page(memory)
    ask(tab, ROWS[2])
    assert tab.locator("#player").is_visible() and tab.locator("#flow").is_visible()
    assert "never seen" in ask(tab, ["?"])
    assert not tab.locator("#player").is_visible() and not tab.locator("#flow").is_visible()
    assert ask(tab, ROWS[2]) == f"answer: {LABELS[2]}" and tab.locator("#player").is_visible()


def test_the_picture_of_bits_says_what_it_shows(open_page):
    memory = byheart.memorize(["ab", "ba", "bb", "aa"], [0, 1, 2, 1], progress=False)
    tab = open_page(memory, 390)
    assert tab.inner_text("#first-layer") == "layer 1"
    assert tab.inner_text("#last-layer") == f"layer {len(memory.network.layers)}"
    assert [name.split(" ", 1)[1] for name in tab.locator("#stage-names span").all_inner_texts()] == [
        name for name, *_ in stage_table(memory.network)
    ]
    left, middle, right = (part.replace("\n", "") for part in tab.locator("#places div span").all_inner_texts())
    assert left.startswith("2") and middle == "value of a dot" and right in ("20", "2−1")
    tab.locator("#bands button").last.click()
    assert tab.inner_text(".chapter.current").startswith("E_out\n")


def test_numbers_are_written_as_people_write_them():
    """Halves as decimals, other fractions as fractions, long numbers shortened with all digits on a click."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    written = {
        (1, 2): ["0.5", "0.5"],
        (-3, 4): ["−0.75", "−0.75"],
        (1, 3): ["1/3", "1/3"],
        (5, 128): ["5/128", "0.0390625"],
        (12345, 1): ["12,345", "12,345"],
        (10**20 + 7, 1): ["1000…0007 (21 digits)", "100,000,000,000,000,000,007"],
        (10**20, 3): ["≈ 3333…3333 (20 digits).333333", "100,000,000,000,000,000,000/3"],
    }
    script = (Path(byheart.__file__).parent / "report" / "templates" / "draw.js").read_text(encoding="utf-8")
    asked = script[script.index("const whole") : script.index("const element")]
    numbers = ", ".join(f"{{ n: {n}n, d: {d}n }}" for n, d in written)
    call = f"console.log(JSON.stringify([{numbers}].map((x) => [numberText(x), numberText(x, true)])));"
    done = subprocess.run([node, "-e", asked + call], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == list(written.values())


def test_a_label_memory_of_one_block():
    memory = byheart.memorize(["ab", "ba", "bb", "aa"], [0, 1, 2, 1], abstain_bits=0, progress=False)
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
