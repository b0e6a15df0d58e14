"""The live page: what its JavaScript builds is a real memory, what it shows is what that memory does."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache

import pytest

import byheart
from byheart.cli import commands
from byheart.errors import DataError, OptionError
from byheart.ir.evaluate import answers
from byheart.ir.network import Decode, Network, Readout
from byheart.report.live_page import FIVE, LIMITS, curves, explain, render
from byheart.theory.guarantees.compact import compact_budget
from tests.report.test_build_js import HOSTILE


@cache
def five() -> str:
    return explain()


# --- the page before any script runs


def test_it_needs_nothing_from_elsewhere():
    assert "http" not in five() and not re.findall(r'(?:src|href)="(?!data:|#)', five())


def test_data_cannot_break_out():
    page = explain(*map(list, zip(*HOSTILE, strict=True)))
    assert "<img src=x" not in page and page.count("</script>") == 3


def test_curves_are_those_of_theory():
    found = {one["kind"]: one["values"] for one in curves()["series"]}
    grid = curves()["grid"]
    assert grid == sorted(set(grid)) and grid[-1] == 10**6
    for k in (0, 30, len(grid) - 1):
        N = grid[k]
        bounds = byheart.lower_bound(N=N, n=5, d=2, C=2).bounds
        assert found["lower"][k] == next(b.value for b in bounds if b.name == "any chain of layers")
        assert found["linear"][k] == 3 * N + 8
        assert found["lower"][k] < found["root"][k]


def test_the_guarantee_that_is_drawn_is_the_one_that_is_made():
    """compact's curve at N is its claim for N random words of five letters, when all letters occur."""
    from byheart.data.dataset.dataset import load
    from byheart.theory.guarantees.compact import CompactFacts

    letters = "abcdefghijklmnopqrstuvwxyz"
    rows = [f"{letters[k % 26]}{letters[k // 26]}{letters[(7 * k) % 26]}{letters[(3 * k) % 26]}z" for k in range(115)]
    facts = CompactFacts.of(load(rows, [k % 2 for k in range(115)], task="next-token", positions=True))
    at = curves()["grid"].index(115)
    root = next(one for one in curves()["series"] if one["kind"] == "root")
    assert root["values"][at] == compact_budget(facts, head="logits")


@pytest.mark.parametrize(
    ("rows", "labels", "options", "message"),
    [
        ([f"{k}" for k in range(LIMITS["rows"] + 1)], None, {}, "301 rows"),
        (["a" * 25, "b"], None, {}, "25 tokens in a row"),
        ([[1, 2], [2, 1]], None, {}, "cannot be typed"),
        ([[0.5, 1.5], [1.5, 0.5]], None, {}, "texts"),
        (["a", "b"], [1, "1"], {}, "different types"),
        (["a", "b"], [" x", "y"], {}, "cannot be typed"),
        (["ab", "ba"], None, {"construction": "mahdavi24"}, "cannot follow"),
        (["a", "b"], [[1], [2]], {"task": "seq-to-seq"}, "one label per row"),
    ],
)
def test_what_the_page_cannot_take_is_said(rows, labels, options, message):
    with pytest.raises((DataError, OptionError), match=message):
        explain(rows, labels or [k % 2 for k in range(len(rows))], **{"construction": "ks25", **options})


def test_the_command(tmp_path, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("name,colour\ncat,red\nact,blue\n")
    printed = CliRunner().invoke(commands, ["explain", "t.csv", "-o", "p.html", "--json"], catch_exceptions=False)
    assert printed.exit_code == 0 and json.loads(printed.stdout)["page"] == "p.html"
    assert '"word":"act","label":"blue"' in (tmp_path / "p.html").read_text(encoding="utf-8")
    assert CliRunner().invoke(commands, ["explain"], catch_exceptions=False).exit_code == 0
    assert (tmp_path / "explain.html").read_text(encoding="utf-8") == five() == byheart.explain(output="again.html")


# --- in a browser, with real clicks


@pytest.fixture
def open_page(chromium, tmp_path):
    """Opens a page; at the end the console must be empty."""
    messages: list[str] = []

    def opened(page: str, width: int = 1100, **options):
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        tab = chromium.new_page(viewport={"width": width, "height": 800}, reduced_motion="reduce", **options)
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.goto((tmp_path / "page.html").as_uri())
        return tab

    yield opened
    assert messages == []


def walk(tab) -> list[str]:
    """The titles of all steps from the first to the last."""
    while tab.is_enabled(".back"):
        tab.click(".back")
    titles = [tab.inner_text(".player h3")]
    while tab.is_enabled(".next"):
        tab.click(".next")
        titles.append(tab.inner_text(".player h3"))
    return titles


def ask(tab, word: str) -> str:
    """The last step's answer."""
    tab.fill("#question", word)
    tab.click("#ask button")
    tab.locator(".chapter").last.click()
    return tab.inner_text(".answer")


def test_from_letters_to_the_label(open_page):
    tab = open_page(five())
    titles = walk(tab)
    expected = ["Every letter gets a number", "Every word gets a distinct id", "Neighbours share a line"]
    assert titles[:5] == [*expected, "Every row in its label’s cell", "Tokens become numbers"]
    order = ["One number for every token", "Attention adds the row up", "The row is one number now", "The group’s line"]
    assert [t for t in titles if t in order] == order and titles[-1] == "One logit for every label"
    assert sum(t.startswith("Fold ") for t in titles) >= 3
    for word, label in FIVE:
        tab.click(f'[aria-label="predict row {[w for w, _ in FIVE].index(word) + 1}"]')
        assert tab.input_value("#question") == word
        assert tab.inner_text(".answer") == f"Answer: {label}, as labelled."
    assert (
        "never seen" in (tab.fill("#question", "dog"), tab.click("#ask button"), tab.inner_text("#question-problem"))[2]
    )
    assert "Tokens become numbers" not in walk(tab), "no trace of another word under the message"


def test_numbers_in_view_are_those_of_the_layers(open_page, tmp_path):
    """The id, the line and every fold from the pictures' equations, against byheart's exact evaluator."""
    tab = open_page(five())
    with tab.expect_download() as handed:
        tab.click("#save")
    handed.value.save_as(tmp_path / "words.byheart")
    with tab.expect_download() as handed:
        tab.click("#save-rows")
    handed.value.save_as(tmp_path / "words.csv")
    memory = byheart.load(tmp_path / "words.byheart")
    words, labels = zip(*FIVE, strict=True)
    assert memory.verify(list(words), list(labels)).verdict == "proved"
    from click.testing import CliRunner

    arguments = ["verify", str(tmp_path / "words.byheart"), str(tmp_path / "words.csv")]
    assert CliRunner().invoke(commands, arguments, catch_exceptions=False).exit_code == 0
    tab.click('[aria-label="predict row 4"]')
    shown = []
    while tab.is_enabled(".next"):
        tab.click(".next")
        shown.append(shown_value(tab) if tab.locator(".term.strong").count() else None)
    stream = streams(memory, words[3])
    attention = next(k for k, layer in enumerate(memory.network.layers) if type(layer).__name__ == "Attention")
    stream.insert(attention + 1, stream[attention])  # the id has its own step
    assert shown[-len(stream) - 1 : -1] == stream
    unseen = ["tat", "cea", "tce"]
    assert [ask(tab, word).split(".")[0] for word in unseen] == [f"Answer: {a}" for a in memory.predict(unseen)]


def streams(memory: byheart.Memory, word: str) -> list[int]:
    """The last token's stream after every layer but the last, by networks that end there and read it as a number."""
    low, found = -(10**9), []
    for k in range(1, len(memory.network.layers)):
        readout = Readout(Decode.VALUE, 2 * 10**9, low)
        part = Network(memory.network.layers[:k], memory.network.read, readout, ())
        found.append(int(answers(part, memory.encoder.encode([list(word)]))[0]) + low)
    return found


def test_the_way_stays_in_view_and_plays(open_page):
    """Every button shows its stage's output; play continues automatically and stops at the end."""
    tab = open_page(five())
    values = dict(text.split("\n") for text in tab.locator(".chapter").all_inner_texts() if "\n" in text)
    assert values["label"] == "animal" and values["cells"] == "3"
    tab.click('.chapter:has-text("attention")')
    assert shown_value(tab) == int(values["attention"])
    tab.click(".chapter:has-text('folds')")
    while tab.inner_text(".player h3") != "One logit for every label":
        folded = shown_value(tab)
        tab.click(".next")
    assert folded == int(values["folds"])
    tab.clock.install()
    tab.click(".play")
    assert tab.inner_text(".count").startswith("step 1 "), "from the beginning again"
    tab.clock.run_for(1900)
    assert tab.inner_text(".count").startswith("step 2 ") and tab.get_attribute(".play", "aria-pressed") == "true"
    tab.clock.run_for(60_000)
    assert tab.is_disabled(".next") and tab.get_attribute(".play", "aria-pressed") == "false"


def shown_value(tab) -> int:
    return int(tab.inner_text(".term.strong .num").replace("−", "-").replace(",", ""))


def test_rows_are_edited(open_page, tmp_path):
    tab = open_page(five())
    tab.fill('[aria-label="word of row 2"]', "cat")
    tab.wait_for_selector(".why")
    assert "Rows 1 and 2 are both “cat”" in tab.inner_text(".why") and not tab.locator("#player").is_visible()
    assert tab.is_disabled("#save")
    tab.fill('[aria-label="word of row 2"]', "dog")
    tab.fill('[aria-label="label of row 2"]', "<i>pet</i>")
    tab.wait_for_function("document.querySelector('#status').innerText.includes('4 labels')")
    tab.click('[aria-label="predict row 2"]')
    tab.locator(".chapter").last.click()
    assert tab.inner_text(".answer") == "Answer: <i>pet</i>, as labelled."
    tab.click("#add")
    tab.keyboard.type("god")
    tab.wait_for_selector(".why")
    assert "has no label" in tab.inner_text(".why")
    tab.keyboard.press("Tab")
    tab.keyboard.type("deity")
    tab.wait_for_function("document.querySelector('#status').innerText.includes('6 rows')")
    tab.click('[aria-label="remove row 1"]')
    tab.click('[aria-label="predict row 5"]')
    tab.locator(".chapter").last.click()
    assert tab.inner_text(".answer") == "Answer: deity, as labelled."
    with tab.expect_download() as handed:
        tab.click("#save")
    handed.value.save_as(tmp_path / "m")
    rows = {"dog": "<i>pet</i>", "tea": "drink", "eat": "verb", "ate": "verb", "god": "deity"}
    assert byheart.load(tmp_path / "m").verify(list(rows), list(rows.values())).verdict == "proved"
    for _ in range(5):
        tab.click('[aria-label="remove row 1"]')
    assert "nothing to memorize" in tab.inner_text("#status") and not tab.locator("#player").is_visible()
    tab.click("#again")
    assert tab.inner_text("#status").startswith("5 rows, 3 labels")


def test_byhearts_own_networks_are_asked(open_page):
    rows = [f"{a}{b}{c}" for a in "abc" for b in "abc" for c in "ab"]
    labels = [f"l{(7 * k * k + k // 3) % 5}" for k in range(len(rows))]
    own = {name: byheart.memorize(rows, labels, construction=name, progress=False) for name in ("compact", "ks25")}
    tab = open_page(render(own["compact"]))
    for name, memory in own.items():
        tab.check(f"input[value={name}]")
        assert "18 rows, 18 evaluated, 18 agree" in tab.inner_text("#about")
        for word in [*rows[:2], "abc", "ccc"]:
            (answer,) = memory.predict([word])
            said = "No label" if answer is byheart.UNKNOWN else f"Answer: {answer}"
            assert ask(tab, word).startswith(said), (name, word)
        assert "step" in tab.inner_text(".count")
    assert "given rows" not in tab.inner_text("#networks")
    tab.fill('[aria-label="label of row 1"]', "new")
    tab.wait_for_function("document.querySelector('#about').innerText.includes('Your changes')")
    choice = "Theorem 4.1’s network for the given rows"
    assert choice in tab.inner_text("#networks") and tab.inner_text("#networks").count("without your changes") == 2
    assert ask(tab, rows[0]) == f"Answer: {labels[0]}, as labelled in the given rows."
    assert "This row was not among the given rows" in ask(tab, "ccc")
    tab.check("input[value=here]")
    assert ask(tab, rows[0]) == "Answer: new, as labelled."
    tab.fill('[aria-label="label of row 1"]', labels[0])
    tab.wait_for_function("!document.querySelector('#networks').innerText.includes('given rows')")


def test_numbers_of_the_theorems_network_have_names(open_page):
    tab = open_page(five())
    tab.check("input[value=ks25]")
    tab.locator(".chapter", has_text="label memory").click()
    names = tab.locator(".stream td:first-child").all_inner_texts()
    assert len(names) == 10 and {"key x", "label so far", "distance of x from the key"} <= set(names)


def test_the_slider_builds_and_counts(open_page):
    tab = open_page(five())
    tab.locator("#N").focus()
    tab.keyboard.press("Home")
    assert tab.inner_text("#N-shown") == "N = 2"
    for _ in range(9):
        tab.keyboard.press("ArrowRight")
    N = int(tab.inner_text("#N-shown").split("= ")[1])
    tab.locator("#curves").scroll_into_view_if_needed()
    tab.wait_for_function("!document.querySelector('#sizes').innerText.includes('…')")
    rows = dict(
        re.findall(
            r"(?m)^(one bend per row|built on this page|lower bound)\n.*\n\s*([\d,]+)$", tab.inner_text("#sizes")
        )
    )
    assert int(rows["one bend per row"]) == 3 * N + 8 and int(rows["lower bound"]) < int(rows["built on this page"])
    assert tab.locator(".dot.built").count() >= 1 and tab.locator(".curve").count() >= 3
    tab.keyboard.press("End")
    assert tab.inner_text("#N-shown") == "N = 1,000,000" and "–" in tab.inner_text("#sizes")
    tab.check("#logarithmic")
    assert tab.locator(".curve.linear").get_attribute("points")


def test_curves_carry_their_names_and_nothing_lies_over_them(open_page):
    tab = open_page(five(), 1280)
    names = tab.locator("#curves .name")
    assert sorted(names.all_text_contents()) == ["compact", "lower bound", "one bend per row"]
    boxes = sorted(box["y"] for box in (name.bounding_box() for name in names.all()))
    assert all(low - high >= 12 for high, low in itertools.pairwise(boxes)), boxes
    tab.mouse.wheel(0, 10_000)  # the rows that stay in view while one scrolls must end with their part
    tab.wait_for_function("scrollY > 300")
    edges = tab.evaluate("['know', 'grow'].map((id) => document.getElementById(id).getBoundingClientRect())")
    assert edges[0]["bottom"] <= edges[1]["top"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_by_keyboard(open_page, scheme):
    tab = open_page(five(), 390, color_scheme=scheme)
    for _ in range(20):
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, tab.inner_text(".player h3")
        edges = tab.evaluate("[...document.querySelectorAll('.chapter')].map((e) => e.getBoundingClientRect().right)")
        assert max(edges) <= 390, "chips wrap, none is off-screen"
        sizes = "[...document.querySelectorAll('.drawn text')].map(e => parseFloat(getComputedStyle(e).fontSize))"
        assert min(tab.evaluate(sizes), default=13) >= 12
    assert tab.inner_text(".answer") == "Answer: animal, as labelled."
    tab.keyboard.press("ArrowLeft")
    assert tab.inner_text(".player h3").startswith("Fold ")
    tab.locator("#question").focus()
    before = tab.inner_text(".count")
    tab.keyboard.press("ArrowLeft")
    assert tab.inner_text(".count") == before, "arrows move the cursor while one types"
    contrast = tab.evaluate(CONTRAST)
    assert min(contrast.values()) >= 4.5, contrast


CONTRAST = """() => {
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (c) => {
    const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (node) => {
    for (; node; node = node.parentElement) {
      const c = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)$/.test(c)) return c;
    }
    return "rgb(255, 255, 255)";
  };
  const found = {};
  for (const node of document.querySelectorAll("h1, p, small, label, td, th, button:not(:disabled), .num, .soft")) {
    if (!node.offsetParent || !node.innerText.trim()) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(over(node))].sort((p, q) => q - p);
    const name = node.tagName + "." + node.className;
    found[name] = Math.min(found[name] ?? 99, (a + 0.05) / (b + 0.05));
  }
  return found;
}"""


def test_every_control_has_a_name(open_page):
    tab = open_page(five())
    nameless = """[...document.querySelectorAll('button, input, select')].filter((e) => !(e.innerText || '').trim()
        && !e.getAttribute('aria-label') && !e.labels?.length).map((e) => e.outerHTML)"""
    assert tab.evaluate(nameless) == []
    assert tab.locator(".live-text[aria-live=polite]").count() == 1
    assert tab.locator(".chapter[aria-current=step]").count() == 1


def test_it_can_be_printed(open_page):
    tab = open_page(five())
    steps = int(tab.inner_text(".count").split(" of ")[1])
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")
    assert tab.locator("#printed > div").count() == steps and tab.locator("#printed .answer").is_visible()
    assert not tab.locator("#player").is_visible() and not tab.locator("#save").is_visible()
    assert tab.pdf(format="A4").startswith(b"%PDF-")


@pytest.mark.slow
def test_words_are_explained_by_keyboard(open_page):
    tab = open_page(five(), 390)
    assert not tab.locator("#glossary dl").is_visible()
    tab.locator("#glossary summary").focus()
    tab.keyboard.press("Enter")
    assert {"attention", "logit"} <= set(tab.locator("#glossary dt").all_inner_texts())
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
