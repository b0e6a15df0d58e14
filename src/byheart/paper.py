"""The registry of paper labels: which code implements which statement.

A builder carries its label as metadata, so names can describe and labels can be looked up:

    >>> from byheart.paper import Ref
    >>> str(Ref("KS25", "Lemma G.4"))
    'KS25, Lemma G.4'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

PAPERS = {
    "KS25": "Kajitsuka and Sato, On the Optimal Memorization Capacity of Transformers, ICLR 2025",
    "M24": "Madden, Fox and Thrampoulidis, Upper and lower memory capacity bounds of transformers for next-token "
    "prediction, May 2024; later versions: Next-token prediction capacity",
    "V22": "Vardi, Yehudai and Shamir, On the Optimal Memorization Power of ReLU Neural Networks, ICLR 2022",
    "P21": "Park, Lee, Yun and Shin, Provable Memorization via Deep Neural Networks using Sub-linear Parameters, COLT "
    "2021",
    "K23": "Kim, Kim and Mozafari, Provable Memorization Capacity of Transformers, ICLR 2023",
    "KS24": "Kajitsuka and Sato, Are Transformers with One Layer Self-Attention Using Low-Rank Weight Matrices "
    "Universal Approximators?, ICLR 2024",
    "MA24": "Mahdavi, Liao and Thrampoulidis, Memorization Capacity of Multi-Head Attention in Transformers, ICLR 2024",
    "B88": "Baum, On the capabilities of multilayer perceptrons, 1988",
    "N65": "Nilsson, Learning Machines, 1965",
    "S97": 'Sontag, Shattering All Sets of k Points in "General Position" Requires (k - 1)/2 Parameters, 1997',
    "Y20": "Yun, Bhojanapalli, Rawat, Reddi and Kumar, Are Transformers universal approximators of "
    "sequence-to-sequence functions?, ICLR 2020",
    "SI24": "Siegel, Sharp Lower Bounds on Interpolation by Deep ReLU Neural Networks at Irregularly Spaced Data, 2024",
    "GJ95": "Goldberg and Jerrum, Bounding the Vapnik-Chervonenkis Dimension of Concept Classes Parameterized by Real "
    "Numbers, 1995",
    "byheart": "byheart's own constructions, docs/compact.md",
}


def cite(short: str, citation: str) -> str:
    """Register a paper under a short name, for a theorem whose paper no other package quotes.

    Args:
        short: The name.
        citation: Authors, title and year.

    Returns:
        The name, for `Ref`.

    Raises:
        KeyError: The name is another paper's.

    >>> cite("KS25", PAPERS["KS25"])
    'KS25'
    """
    if PAPERS.setdefault(short, citation) != citation:
        raise KeyError(f"{short} already names {PAPERS[short]}")
    return short


@dataclass(frozen=True, order=True)
class Ref:
    """A label in a paper, such as `Ref("KS25", "Lemma G.4")`."""

    paper: str
    label: str

    def __post_init__(self) -> None:
        if self.paper not in PAPERS:
            raise KeyError(f"unknown paper {self.paper!r}; known: {', '.join(PAPERS)}")

    def __str__(self) -> str:
        return f"{self.paper}, {self.label}"


@dataclass(frozen=True)
class Entry:
    """One line of the paper map: a label, its statement in words, the code, the test, and what came of it.

    `status`: built, a number, checked, …; "partly: …" and "out of reach: …" give the reason. Without code, module and
    name are empty.
    """

    ref: Ref
    statement: str
    module: str
    name: str
    test: str
    status: str = "built"

    @property
    def code(self) -> str:
        """The dotted name of the code; empty where there is none."""
        return f"{self.module}.{self.name}" if self.name else self.module


_ENTRIES: dict[tuple[Ref, str, str], Entry] = {}

T = TypeVar("T", bound=Callable[..., object])


_STATUS = {"theory": "a number", "certify": "checked"}  # what code of a package does; of any other: built


def implements(ref: Ref, statement: str, test: str, partly: str = "") -> Callable[[T], T]:
    """Register the decorated function or class as the code of a statement.

    Args:
        ref: The label in the paper.
        statement: The statement in words.
        test: The path of its test file.
        partly: What is weaker here than in the paper.

    Returns:
        The decorator, which returns the code unchanged.
    """

    def register(code: T) -> T:
        status = f"partly: {partly}" if partly else _STATUS.get(code.__module__.split(".")[1], "built")
        entry = Entry(ref, statement, code.__module__, code.__qualname__, test, status)
        _ENTRIES[ref, entry.module, entry.name] = entry
        return code

    return register


def state(ref: Ref, statement: str, status: str, *, code: str = "", test: str = "") -> None:
    """Register a statement whose code lies elsewhere (a dotted name), or that has none."""
    module, _, name = code.rpartition(".")
    _ENTRIES[ref, module, name] = Entry(ref, statement, module, name, test, status)


def entries() -> list[Entry]:
    """Every registered entry, sorted by paper and label (import the packages first to fill the registry)."""
    return sorted(_ENTRIES.values(), key=lambda e: (e.ref, e.module, e.name))


def find(label: str) -> list[Entry]:
    """Entries whose label is `label`, as people write it: `KS25, Lemma G.4`, `lemma g.4`, `Lem. G.4`, `Thm 4.1`; where
    no label is, those of the paper that the words name: `Sontag`, `Madden Theorem 5`, `V22`."""
    wanted = plain(label)
    exact = [e for e in entries() if wanted in (plain(e.ref.label), plain(str(e.ref)))]
    words = set(wanted.split())
    return exact or [e for e in entries() if words and words <= _words(e.ref)]


def _words(ref: Ref) -> set[str]:
    return {*plain(f"{ref} {PAPERS[ref.paper]}").split()}


_SHORT = {
    "thm": "theorem",
    "th": "theorem",
    "lem": "lemma",
    "cor": "corollary",
    "rem": "remark",
    "rmk": "remark",
    "def": "definition",
    "defn": "definition",
    "equation": "eq",
    "prop": "proposition",
    "fn": "footnote",
}


def plain(label: str) -> str:
    """A label in the one form in which labels are compared.

    >>> plain("Thm. 4.1"), plain("KS25, Theorem 4.1"), plain("Eq (4)"), plain("Equation 4"), plain("lem G.4")
    ('theorem 4.1', 'ks25 theorem 4.1', 'eq 4', 'eq 4', 'lemma g.4')
    """
    words = re.sub(r"[,()\[\]]", " ", label.lower().replace("thm.", "thm ")).split()
    bare = [word.rstrip(".") for word in words]
    return " ".join(_SHORT.get(word, word) for word in bare)
