"""KS25 in one scroll: its numbers are those of a proved network and of the theory, in Python and in the browser."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import pytest

import byheart
from byheart.ir.evaluate import answers
from byheart.ir.layers import Affine, Matrix, Residual
from byheart.ir.network import Decode, Network, Readout
from byheart.report import article
from byheart.theory.theorems import token_labels
from byheart.theory.upper import residual_memory_depth
from tests.report.test_explain import CONTRAST
from tests.report.test_explain import open_page as open_page

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from one_scroll import size_of

WORDS = [word for word, _ in article.WORDS]
LABELS = [label for _, label in article.WORDS]


@cache
def page() -> str:
    return article.one_scroll()


def stream(word: str, layer: int, name: str) -> int:
    """One number of the last token's stream after a layer, from byheart's exact evaluator."""
    memory, at = article.example().memory, article.STREAM.index(name)
    pick = Affine(Matrix.of([{at: 1}], len(article.STREAM)), None, relu=False)
    part = Network(
        (*memory.network.layers[: layer + 1], pick), memory.network.read, Readout(Decode.VALUE, 10**6, 0), ()
    )
    return int(answers(part, memory.encoder.encode([list(word)]))[0])


# --- the story and the sizes


def test_the_network_is_proved_and_theorem_4_1_covers_its_rows():
    memory = article.example().memory
    assert memory.certificate.verdict == "proved" and memory.size.attention_layers == 1
    assert list(memory.predict(WORDS)) == LABELS
    with pytest.raises(byheart.ByheartError, match=r"art|rat"):  # the condition that the text names
        byheart.memorize([*WORDS, "art"], [*LABELS, "thing"], construction="ks25", positions=False, progress=False)


def test_every_letter_with_a_number_is_needed():
    phi = article.story()["phi"]
    chosen = [letter for letter in phi if phi[letter]]
    assert 0 < len(chosen) <= len(WORDS) - 1 and max(phi.values()) <= token_labels(len(WORDS))
    bags = {tuple(sorted(word)) for word in WORDS}
    for gone in ("", *chosen):
        sums = {bag: sum(phi[letter] for letter in bag if letter != gone) for bag in bags}
        assert (len(set(sums.values())) == len(bags)) == (gone == ""), gone


def test_a_block_has_at_most_the_parameters_that_the_text_names():
    blocks = [layer for layer in article.example().memory.network.layers if isinstance(layer, Residual)]
    most = article.article_parts()["block_parameters"]
    assert max(block.hidden for block in blocks) == article.UNITS and max(block.parameters for block in blocks) == most
    assert f"A block has at most {most} parameters (10 numbers in and out, at most 14 ReLUs)" in page()


def test_guarantee_line_and_crossing():
    found = article.sizes()
    N = found["crossing"]
    assert 10**7 < N < 10**8
    # Steps of rounding must not move the crossing by more than the article's two digits.
    for share, above in ((0.98, True), (1.02, False)):
        near = range(round(N * share) - 50, round(N * share) + 50)
        assert all((article.guaranteed_parameters(M) >= article.linear_parameters(M)) is above for M in near)
    for k in (0, 30, len(found["grid"]) - 1):
        assert found["lower"][k] < found["theorem"][k]
    assert found["grid"][0] == 10 and found["grid"][-1] == 10**article.LAST_DECADE
    between = found["built_crossing"]
    assert between is not None and 30_000 == between["before"] < between["at"] < between["after"] == 100_000


@pytest.mark.parametrize("construction", ["ks25", "compact"])
def test_built_sizes_are_those_of_builds(construction):
    for N in (10, 100):
        assert size_of(construction, N) == (article.BUILT[construction][N], "proved")


# --- in a browser


def named(tab) -> dict[str, str]:
    return {row.split("\t")[0]: row.split("\t")[1].strip() for row in tab.inner_text("#a-named").split("\n")}


NAMES = {"key x": "x", "key so far": "key", "label so far": "label", "answer": "y", "label at the gate": "pending"}


@pytest.mark.parametrize("row", [0, 3])
def test_numbers_in_view_are_those_of_the_network(open_page, row):
    tab, story = open_page(page()), article.story()
    tab.click(f"#a-words button >> nth={row}")
    key = tab.locator("#a-keys tr.me td").all_inner_texts()
    last = stream(WORDS[row], story["attention"], "x"), stream(WORDS[row], story["attention"], "key")
    assert key == [WORDS[row], WORDS[row][-1], *map(str, last), str(story["keys"][row]), LABELS[row]]
    for block in range(story["memory"]["layers"]):
        shown = named(tab)
        for name, wire in NAMES.items():
            expected = stream(WORDS[row], story["memory"]["start"] + block, wire)
            assert shown[name].split(":")[0] == str(expected), (block, name)
        if block < story["memory"]["layers"] - 1:
            tab.click("#a-next")
    assert tab.is_disabled("#a-next") and named(tab)["answer"].endswith(LABELS[row])
    group = next(g for g in story["groups"] if g["first"] <= story["keys"][row] <= g["last"])
    tab.evaluate("document.querySelector('#a-step').value = 0")
    tab.locator("#a-step").focus()
    tab.keyboard.press("Home")
    for _ in story["groups"]:
        tab.keyboard.press("ArrowRight")
    assert named(tab)["bits still to read"] == format(group["u"], "08b")


def test_deleting_a_letter_makes_two_bars_collide(open_page):
    tab, phi = open_page(page()), article.story()["phi"]
    assert "Collision" not in tab.inner_text("#a-clash")
    for letter in [one for one in phi if phi[one]]:
        tab.click(f"[data-letter={letter}]")
        first, second, total = re.search(
            r"(\w+) and (\w+) both have the sum (\d+)", tab.inner_text("#a-clash")
        ).groups()
        for word in (first, second):
            assert sum(phi[one] for one in word if one != letter) == int(total)
        assert first[-1] == second[-1]
        assert f"and end in {first[-1]}: no later layer can distinguish them" in tab.inner_text("#a-clash")
        tab.keyboard.press("Enter")  # the button keeps the focus
        assert "Collision" not in tab.inner_text("#a-clash")


def test_the_sliders(open_page):
    tab, found = open_page(page()), article.sizes()
    tab.locator("#a-N").focus()
    for at in ("Home", "End"):
        tab.keyboard.press(at)
        k = 0 if at == "Home" else len(found["grid"]) - 1
        N, rho = found["grid"][k], found["bits"][k]
        assert tab.inner_text("#a-N-shown") == f"N = {N:,}"
        values = dict(re.findall(r"(?m)^(.+)\t([\d,]+)", tab.inner_text("#a-sizes")))
        assert values["one bend per row"] == f"{3 * N + 8:,}" and values["lower bound"] == f"{found['lower'][k]:,}"
        assert values["Theorem 4.1, guaranteed"] == f"{article.guaranteed_parameters(N):,}"
        tab.click("#a-best")
        words = tab.inner_text("#a-cost-words")
        K, blocks = (
            int(x.replace(",", "")) for x in re.search(r"minimum is K = ([\d,]+) with ([\d,]+)", words).groups()
        )
        near = range(max(1, K - 300), min(N, K + 300) + 1)
        assert blocks == min(residual_memory_depth(-(-N // one), one, rho, 1) for one in near)
        assert blocks == residual_memory_depth(-(-N // K), K, rho, 1)
        tab.locator("#a-N").focus()
    words = tab.inner_text("#a-crossing")
    assert f"{found['crossing']:,}" in words and f"{max(article.BUILT['ks25']):,}" in words


COVERED = """() => [...document.querySelectorAll('svg')].flatMap((figure) => {
    const texts = [...figure.querySelectorAll('text')].map((e) => [e.textContent, e.getBoundingClientRect()]);
    const frame = figure.getBoundingClientRect();
    const over = (a, b, from, to) => Math.min(a[to], b[to]) - Math.max(a[from], b[from]);
    const covers = (a, b) => over(a, b, 'left', 'right') > 1 && over(a, b, 'top', 'bottom') > 3;
    return texts.flatMap(([words, a], k) => [
        ...(a.left < frame.left - 1 || a.right > frame.right + 1 ? [words] : []),
        ...texts.slice(k + 1).filter(([, b]) => covers(a, b)).map(([other]) => words + ' | ' + other),
    ]);
})"""


@pytest.mark.parametrize("width", [350, 1280])  # 350: in the frame of the docs' front page on a phone
def test_labels_of_the_figures_do_not_cover_each_other(open_page, width):
    tab, crossing = open_page(page(), width), article.sizes()["crossing"]
    growth = tab.locator("#a-growth").text_content()
    assert f"Theorem 4.1: {crossing / 10**7:.1f}·10⁷" in growth and "ks25 as built: " in growth
    assert ("one bend per row" in growth) == (width > 600), "the table below names the lines where there is no room"
    for stop in range(0, len(article.sizes()["grid"]), 8):
        move = "N => { const e = document.querySelector('#a-N'); e.value = N; e.dispatchEvent(new Event('input')); }"
        tab.evaluate(move, stop)
        assert tab.evaluate(COVERED) == []
    for _ in range(article.story()["memory"]["layers"] - 1):
        tab.click("#a-next")
        assert tab.evaluate(COVERED) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_and_in_print(open_page, scheme):
    tab = open_page(page(), 390, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    outside = """[...document.querySelectorAll('button, input, svg text')].filter((e) => {
        const b = e.getBoundingClientRect();
        return b.left < -1 || b.right > 391;
    }).map((e) => e.outerHTML)"""
    assert tab.evaluate(outside) == []
    sizes = "[...document.querySelectorAll('.drawn text')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert min(tab.evaluate(sizes)) >= 12
    contrast = tab.evaluate(CONTRAST)
    assert min(contrast.values()) >= 4.5, contrast
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")
    assert tab.locator("#a-table tr").count() == article.story()["memory"]["layers"] + 1
    assert tab.locator("#a-table").is_visible() and not tab.locator("#a-next").is_visible()
    assert "none yet" not in tab.inner_text("#a-named"), "on paper the strips show their bits"
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(253, 253, 252)", "paper is light, whatever the screen is"


def test_it_plays_and_needs_nothing_from_elsewhere(open_page):
    assert "http" not in page() and not re.findall(r'(?:src|href)="(?!data:|#)', page())
    tab = open_page(page())
    tab.clock.install()
    tab.click("#a-play")
    tab.clock.run_for(60_000)
    assert tab.is_disabled("#a-next") and tab.get_attribute("#a-play", "aria-pressed") == "false"


def test_the_live_page_has_it(open_page):
    tab = open_page(byheart.explain(), 390)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.locator("#one-scroll h2").inner_text().startswith("Why √N parameters suffice")
    tab.click("#a-words button >> nth=1")
    for _ in range(article.story()["memory"]["layers"] - 1):
        tab.click("#a-next")
    assert named(tab)["answer"] == "1: animal"
    assert tab.inner_text(".count").startswith("step 1 "), "the two players do not move each other"
