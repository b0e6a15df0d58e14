"""Cards for notebooks: they show the objects' values, and nothing in them breaks out."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import byheart
from byheart.certify import Verdict
from byheart.checkpoints.proof.certificate import MarginCertificate
from byheart.memory.compare.rows import CompareRow, Comparison
from byheart.notebook import MOST_ROWS, card

HOSTILE = "<script>alert(1)</script>"


class Balance(HTMLParser):
    """Every element that opens closes again, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(shown: str) -> str:
    """The text of a card that is well formed, harmless, and leaves colours of text and paper to the notebook."""
    parser = Balance()
    parser.feed(shown)
    assert parser.open == [] and parser.seen <= {"div", "b", "table", "tr", "td", "th"}
    assert not re.search(r"(?<![-\w])color:|background:(?!none)", shown)
    return re.sub(r"<[^>]+>", " ", shown)


def test_a_memory_and_its_certificate():
    memory = byheart.memorize(["ab", "ba"], [HOSTILE, "</div>"], construction="ks25", progress=False)
    text = checked(memory._repr_html_())
    assert "2 rows memorized: ks25, proved" in text and "&lt;script&gt;" in text
    assert f"{memory.size.parameters:,}" in text and f"{memory.claim.bounds['parameters']:,}" in text
    text = checked(memory.certificate._repr_html_())
    assert "proved: every label was reproduced" in text and "2 rows, 2 evaluated, 2 agree" in text
    refuted = memory.verify(["ab", "ba"], ["</div>", HOSTILE])
    assert checked(refuted._repr_html_()).strip().startswith("refuted: ")


def test_a_loaded_memory_does_not_look_proved(tmp_path):
    byheart.memorize(["ab", "ba"], [0, 1], construction="ks25", progress=False).save(tmp_path / "m")
    shown = byheart.load(tmp_path / "m")._repr_html_()
    assert "recorded, not checked now" in checked(shown) and "rgba(46,160,67" not in shown


def test_bounds():
    found = byheart.lower_bound(N=1000, n=8, d=4, C=16)
    text = checked(found._repr_html_())
    assert "Lower bounds for 1,000 rows of 8 tokens with 16 classes" in text
    assert all(bound.sentence in text for bound in found.bounds)
    strongest = found.strongest("parameters")
    assert f"at least {strongest.value:,} parameters" in checked(strongest._repr_html_())
    asked = byheart.lower_bound(N=1000, n=8, d=8, C=2, architecture="8,9,1,1,10,40")
    assert "shatter" in checked(asked._repr_html_())


def test_a_comparison():
    rows = (CompareRow("compact", "proved", "", parameters=1234), CompareRow(HOSTILE, "predicted", "", depth=7))
    text = checked(Comparison("next-token", True, 9, 3, 2, 2, 9, rows, ())._repr_html_())
    assert "9 rows of 3 tokens, 2 classes: 2 ways" in text and "1,234" in text and "&lt;script&gt;" in text


def test_recitals_and_checkpoints():
    memory = byheart.memorize_recital([f"{HOSTILE} a", "b c"], tokens="words")
    assert "places: " in checked(memory._repr_html_())
    assert checked(memory.certify()._repr_html_()).strip().startswith("proved: all ")
    asked = MarginCertificate(Verdict.UNDECIDED, HOSTILE, "llama", 3, 2, 0, 8, 2, (), "", ())
    assert "undecided: &lt;script&gt;" in checked(asked._repr_html_())


def test_long_tables_and_texts_are_cut_and_counted():
    text = checked(card("x" * 1000, [], columns=("n",), rows=[(k,) for k in range(MOST_ROWS + 5)]))
    assert "… and 5 more" in text and len(text) < 3000
