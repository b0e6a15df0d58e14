"""The labels that code carries: each statement of both papers has a row, with a test and code that are there."""

import importlib
import os
import re
from pathlib import Path

import pytest

from byheart.paper import PAPERS, Entry, cite, find
from tools import pages

PROJECT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def found() -> list[Entry]:
    return pages.collect()


def test_named_tests_exist(found):
    named = {entry.test.partition("::")[0] for entry in found if entry.code}
    missing = sorted(test for test in named if not (PROJECT / test).is_file())
    assert missing == [], f"paper labels name tests that do not exist: {missing}"


def test_statements_say_something(found):
    assert [str(entry.ref) for entry in found if len(entry.statement.split()) < 3] == []


KS25 = """
    Remark 3.1, Section 3.2, Section 3.3, Assumption 4.1, Theorem 4.1, Remark 4.1, Remark 4.2, Remark 4.3,
    Definition 4.1, Remark 4.4, Theorem 4.2, Corollary 4.1, Remark 4.5, Remark 4.6, Theorem 4.3, Open Problem,
    Definition A.1, Definition A.2, Assumption A.1, Definition B.1, Lemma B.1, Lemma B.2, Lemma B.3, Theorem B.1,
    Theorem B.2, Lemma B.4, Theorem B.3, Lemma C.1, Lemma C.2, Theorem D.1, Theorem E.1, Lemma F.1, Theorem F.1,
    Lemma G.1, Lemma G.2, Lemma G.3, Lemma G.4, Lemma G.5, Lemma G.6, footnote 1, footnote 2, footnote 3, Table 1,
    Figure 1, Figure 2, Figure 3, eq. (1), eq. (2), eq. (3), eq. (4), eq. (5), eq. (6), eq. (7), eq. (11), eq. (12),
    eq. (13), after Remark 4.3, eq. (20), eq. (39), eq. (47), eq. (50), eq. (55), eq. (132), eq. (142), eq. (153),
    eq. (161), eq. (52), eq. (61), eq. (92), eq. (94), eq. (110), eq. (111),
    Section 3.1, eq. (23), eq. (31), eq. (74), eq. (140), eq. (157), eq. (112), eq. (128), eq. (158),
    eq. (159), eq. (160), eq. (165)
"""
M24 = """
    Definition 1, Lemma 1, Lemma 2, Theorem 1, Theorem 2, Theorem 3, Theorem 4, Theorem 5, Theorem 6, Theorem 7,
    Equation (1), Equation (2), Equation (3), Algorithm after Theorem 5, Table 1, Figure 1, Section 2,
    Remark after Theorem 4, Remark after eq. (2)
"""


@pytest.mark.parametrize(("paper", "labels"), [("KS25", KS25), ("M24", M24)])
def test_every_statement_of_both_papers_has_a_row(found, paper, labels):
    """Definitions, assumptions, lemmas, theorems, corollaries, remarks, footnotes, figures: none is missing."""
    wanted = {" ".join(label.split()) for label in labels.split(",")}
    assert wanted - {entry.ref.label for entry in found if entry.ref.paper == paper} == set()


PAPERS_AT_HAND = Path(os.environ.get("BYHEART_PAPERS", PROJECT.parent / "shared" / "papers"))
TITLES = {"KS25": "ON THE OPTIMAL MEMORIZATION CAPACITY", "M24": "memory capacity bounds of transformers"}
NUMBERED = r"Definition|Assumption|Theorem|Lemma|Corollary|Remark|Proposition"


def text_of(paper: str) -> str:
    """The paper's own text, where it is available."""
    for path in sorted(PAPERS_AT_HAND.glob("*.txt")) if PAPERS_AT_HAND.is_dir() else ():
        text = path.read_text(encoding="utf-8")
        if TITLES[paper] in text[:1000]:
            return text
    pytest.skip(f"the text of {paper} is not available (BYHEART_PAPERS names its folder)")


def statements_in(text: str) -> set[str]:
    """The labels that begin a line, and the numbered footnotes, figures and tables."""
    found = {
        f"{kind} {label}" for kind, label in re.findall(rf"^\**({NUMBERED}) ((?:[A-Z]\.)?\d+(?:\.\d+)?)\b", text, re.M)
    }
    found |= {"Open Problem"} if re.search(r"^\**Open Problem", text, re.M) else set()
    found |= {f"{kind} {label}" for kind, label in re.findall(r"^\**(Figure|Table) (\d+):", text, re.M)}
    footnotes = re.findall(r"^ *\$?<sup>(?:&</sup>lt;sup>)?\^?(\d)</sup>", text, re.M)
    return found | {f"footnote {number}" for number in footnotes}


def equations_in(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"(?:\\tag\{|\()(\d{1,3})[})] *\$*\s*$", text, re.M)}


@pytest.mark.parametrize("paper", ["KS25", "M24"])
def test_the_lists_are_those_of_the_papers(found, paper):
    """Read from the text itself: what it numbers has a row, and our lists number nothing that it does not have."""
    numbered = statements_in(text_of(paper))
    assert len(numbered) > 8
    rows = {entry.ref.label for entry in found if entry.ref.paper == paper}
    assert numbered - rows == set()
    listed = {" ".join(label.split()) for label in {"KS25": KS25, "M24": M24}[paper].split(",")}
    ours = {label for label in listed if re.fullmatch(rf"({NUMBERED}|Figure|Table|footnote) [A-Z0-9.]+", label)}
    assert ours - numbered == set()


@pytest.mark.parametrize(("paper", "word", "last"), [("KS25", "eq.", 13), ("M24", "Equation", 3)])
def test_every_equation_of_the_main_text_is_accounted_for(found, paper, word, last):
    """By its own row, or named in the statement of another's."""
    text = text_of(paper)
    main = equations_in(text.split("REFERENCES")[0])
    assert main == set(range(1, last + 1))
    entries = [entry for entry in found if entry.ref.paper == paper]
    labels = {entry.ref.label for entry in entries}
    said = " ".join(entry.statement for entry in entries)
    assert {n for n in main if f"{word} ({n})" not in labels and f"({n})" not in said} == set()
    named = {int(n) for label in labels for n in re.findall(rf"^{re.escape(word)} \((\d+)\)$", label)}
    assert named <= equations_in(text) | {159}, "rows of equations that the text lacks"  # it dropped (159)


KNOWN = ("built", "a number", "checked", "checked on the data", "shown", "in words", "partly", "out of reach")


def test_every_row_says_what_came_of_it(found):
    """Code that can be imported, or a reason."""
    for entry in found:
        status, _, reason = entry.status.partition(": ")
        assert status in KNOWN
        assert (status in ("partly", "out of reach")) == bool(reason), entry
        if entry.code:
            importable(entry.code)
        else:
            assert status in ("in words", "out of reach"), entry


def importable(dotted):
    """A module, or a name (perhaps of a class's method) inside one."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return
    raise AssertionError(dotted)


@pytest.mark.parametrize(
    ("words", "paper"), [("Sontag", "S97"), ("siegel", "SI24"), ("Goldberg and Jerrum", "GJ95"), ("V22", "V22")]
)
def test_a_paper_is_found_by_its_authors(found, words, paper):
    assert {entry.ref.paper for entry in find(words)} == {paper}
    assert find("Theorem 99") == []


def test_a_short_name_stands_for_one_paper():
    assert cite("KS25", PAPERS["KS25"]) == "KS25"
    with pytest.raises(KeyError, match="KS25 already names"):
        cite("KS25", "Another paper")


def test_what_the_errata_discuss_is_found(found):
    """Every label of KS25 on both pages of the errata has an entry."""
    page = "".join((PROJECT / "docs" / name).read_text(encoding="utf-8") for name in ("errata.md", "errata-slips.md"))
    named = set(re.findall(r"(?:Lemma|Theorem|Corollary) [A-G4]\.\d|eq\. \(\d+\)", page))
    assert {"Lemma B.2", "Lemma B.3", "Theorem B.1", "eq. (20)", "eq. (47)"} <= named
    assert [label for label in sorted(named) if not find(f"KS25, {label}")] == []
    table = page.split("## Slips of the pen")[1].split("##")[0]
    places = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| "))
    slips = re.findall(r"eq\. \(\d+\)|Section \d\.\d", places)
    assert len(slips) > 10
    for label in slips:
        assert any("docs/errata" in entry.statement for entry in find(f"KS25, {label}")), label


def test_statuses_that_are_not_whole(found):
    """The builders that prove less than the theorem's statement are marked."""
    partly = {str(entry.ref) for entry in found if entry.status.startswith("partly") and ".build." in entry.code}
    assert {"KS25, Lemma B.2", "M24, Theorem 5", "M24, Theorem 7"} <= partly
