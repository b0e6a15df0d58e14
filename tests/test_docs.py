"""What README.md and docs/ show is run unchanged: Python blocks one after the other, `byheart` commands too.

In a console block, `$ cat FILE` followed by lines makes that file, so that the commands after it find it.
"""

import importlib
import importlib.util
import inspect
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import byheart
import byheart.plots
from tools import pages

PROJECT = Path(__file__).parent.parent
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SKIP = "<!-- not run: "  # on the line before a block, with the reason


def blocks(page: Path) -> list[tuple[str, str]]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        before = text[: match.start()].rstrip("\n").rpartition("\n")[2]
        if not before.startswith(SKIP):
            found.append((match[1], match[2]))
    return found


def with_blocks() -> list[object]:
    marks = {"gallery.md": [pytest.mark.slow]}  # a dozen pictures, with a checkpoint and a small study
    return [pytest.param(page, id=page.name, marks=marks.get(page.name, [])) for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", with_blocks())
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "example"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page.name, "exec"), namespace)
        else:
            run_console(text)


def run_console(text: str) -> None:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        words = shlex.split(command, comments=True)
        if words[0] == "cat" and len(words) == 2 and output:
            Path(words[1]).write_text(output, encoding="utf-8")
        elif words[0] == "byheart":
            from byheart.cli import commands

            result = CliRunner().invoke(commands, words[1:], catch_exceptions=False)
            assert result.exit_code == 0, f"{command}\n{result.output}"


@pytest.mark.parametrize("page", ["docs/constructions.md", "docs/choose.md"])
def test_every_construction_is_introduced(page):
    text = (PROJECT / page).read_text(encoding="utf-8")
    missing = [name for name in byheart.constructions() if f"`{name}`" not in text]
    assert missing == [], f"{page} does not explain when to use {missing}"


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, PROJECT / "CONTRIBUTING.md", PROJECT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            built = (page.parent / target).relative_to(PROJECT) in pages.built()
            assert built or (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_files_and_functions_that_pages_name_are_there():
    from tests.test_architecture import look_up

    for page in [*PAGES, PROJECT / "CONTRIBUTING.md"]:
        text = page.read_text(encoding="utf-8")
        for file in re.findall(r"`((?:tests|src|experiments|benchmarks|examples|checker)/[\w/-]+\.\w+)`", text):
            assert "doe26" in file or (PROJECT / file).exists(), f"{page.name} names {file}, which is not there"
        for name in re.findall(r"`(byheart(?:\.[a-z_0-9]+)+(?:\.\w+)*)`", text):
            if name.count(".") > 1:  # `byheart.labels` may be the name of a field
                look_up(name)


def test_the_gallery_draws_and_shows_every_picture():
    page = (PROJECT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for module in pkgutil.iter_modules(byheart.plots.__path__, "byheart.plots."):
        for name, function in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
            if function.__annotations__.get("return") == "Figure" and name not in ("new_figure", *OTHER_PICTURES):
                assert f"{name}(" in page, f"the gallery lacks {name}"
    drawn, shown = re.findall(r'"(gallery-\w+\.png)"\)', page), re.findall(r"\(pictures/(gallery-\w+\.png)\)", page)
    kept = [path.name for path in (PROJECT / "docs" / "pictures").glob("gallery-*")]
    assert sorted(drawn) == sorted(shown) == sorted(kept)


OTHER_PICTURES = ("grid_figure", "bits_figure")  # of whole studies: on the laboratory's page


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="needs byheart[docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def typeset():
    pytest.importorskip("latex2mathml", reason="needs byheart[docs]")
    found = importlib.util.spec_from_file_location("typeset", PROJECT / "docs" / "typeset.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("typed", "dollars"),
    [
        ("at most 2^-24.", "at most $2^{-24}$."),
        ("O(sqrt(N log N)·log n)", r"$O(\sqrt{N \log  N} \cdot \log  n)$"),
        ("5.5·√(contexts·log2 C)", r"$5.5 \cdot \sqrt{\mathrm{contexts} \cdot \log_2  C}$"),
        ("(nN)^0.52, N^(2/3)", "$(nN)^{0.52}$, $N^{2/3}$"),
        ("`2^53`, $x^2$, O(nly words), [a](b^2), see O(·)", "`2^53`, $x^2$, O(nly words), [a](b^2), see O(·)"),
    ],
)
def test_formulas_as_they_are_typed_get_dollars(typed, dollars):
    assert typeset().on_page_markdown(typed) == dollars


def test_site_builds_without_warnings_and_needs_no_server(site):
    pages = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    assert not re.findall(r'(?:src|<link[^>]*href)="https?://[^"]*"', pages), "the site must work offline"
    assert len(re.findall(r'<li class="md-tabs__item', (site / "index.html").read_text(encoding="utf-8"))) <= 7
    for notebook in (PROJECT / "examples" / "notebooks").glob("*.ipynb"):
        assert (site / "notebooks" / notebook.name).read_bytes() == notebook.read_bytes()


@pytest.mark.parametrize("page", ["ks25", "compact", "bounds", "native", "decoder", "table1", "paper-map"])
def test_formulas_are_typeset(site, page):
    source = typeset().on_page_markdown((PROJECT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    shown = (site / page / "index.html").read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|`[^`]*`", "", source, flags=re.DOTALL)
    assert shown.count("<math") == len(re.findall(r"\$\$.+?\$\$|\$[^$]+\$", text, re.DOTALL)) > 5
    plain = re.sub(r"<(pre|code|math).*?</\1>|<[^>]+>", "", shown, flags=re.DOTALL)
    assert not re.findall(r"\w\^[-\w(]|sqrt\(", plain)
    assert "arithmatex" not in shown and "$" not in re.sub(r"<pre.*?</pre>|<[^>]+>", "", shown, flags=re.DOTALL)


CUT = """[...document.querySelectorAll('article table')].filter(table => {
    const box = table.closest('.md-typeset__scrollwrap') || table.parentElement;
    return box.scrollWidth > box.clientWidth + 1 || table.getBoundingClientRect().right > innerWidth;
}).map(table => table.textContent.slice(0, 80))"""


@pytest.mark.slow
def test_no_table_is_cut(site, chromium):
    tab = chromium.new_page(viewport={"width": 1280, "height": 800})
    pages = sorted(site.rglob("index.html"))
    for page in pages:
        tab.goto(page.as_uri())
        assert tab.evaluate(CUT) == [], page
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1280, page
    assert len(pages) > 25


@pytest.mark.parametrize("width", [390, 1280])
def test_the_front_page_shows_cards_and_the_whole_article(site, chromium, width):
    """Three groups of readers first; the article's frame is as tall as the article, so its buttons are in view."""
    tab = chromium.new_page(viewport={"width": width, "height": 800})
    tab.goto((site / "index.html").as_uri())
    cards = tab.locator(".card")
    assert cards.count() == 3 and cards.first.bounding_box()["y"] < 400
    tab.locator("iframe.live").scroll_into_view_if_needed()
    inside = tab.frame_locator("iframe.live")
    inside.get_by_role("heading", level=1).wait_for()
    tab.wait_for_function("document.querySelector('iframe.live').offsetHeight > 2000")
    inside.locator("#a-next").click()
    assert inside.locator("#a-now").inner_text().startswith("Block 2:")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    outer, inner = tab.locator("iframe.live").bounding_box(), inside.locator("body").bounding_box()
    assert outer["height"] >= inner["height"] - 40


@pytest.mark.parametrize("page", ["index.html", "explain/index.html"])
def test_the_live_pages_follow_the_switch_of_the_site(site, chromium, page):
    """The system is light; the site's switch makes page and frame dark, and light again."""
    tab = chromium.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
    tab.goto((site / page).as_uri())
    tab.locator("iframe.live").scroll_into_view_if_needed()
    root = tab.frame_locator("iframe.live").locator("html")
    tab.frame_locator("iframe.live").locator("#a-words button").first.wait_for()
    paper = {"light": "rgb(253, 253, 252)", "dark": "rgb(17, 22, 27)"}
    inside = next(frame for frame in tab.frames if frame != tab.main_frame)
    for scheme in ("light", "dark", "light"):
        root.and_(tab.frame_locator("iframe.live").locator(f"[data-scheme={scheme}]")).wait_for()
        assert inside.evaluate("getComputedStyle(document.body).backgroundColor") == paper[scheme]
        tab.locator("label.md-header__button[for^=__palette]:visible").click()
    tab.wait_for_function("document.querySelector('iframe.live').offsetHeight > 2000")


def test_every_public_name_is_in_the_reference():
    page = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8")
    missing = [name for name in byheart.__all__ if not re.search(rf"\b{name}\b", page)]
    assert not missing, f"docs/api.md does not describe {', '.join(missing)}"
