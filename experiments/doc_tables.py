"""Writes a script's measurements into a page of the documentation, between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def insert(page: Path, name: str, text: str) -> None:
    """Replaces the text between `<!-- numbers: name -->` and the next `<!-- end -->`."""
    mark = f"<!-- numbers: {name} -->"
    before, start, rest = page.read_text(encoding="utf-8").partition(f"{mark}\n")
    _, end, after = rest.partition("<!-- end -->")
    if not start or not end:
        raise SystemExit(f"{page} must have the marks {mark} and <!-- end -->")
    page.write_text(f"{before}{mark}\n{text}\n{end}{after}", encoding="utf-8")
    print(f"wrote {name} into {page.name}", flush=True)


def markdown(table: Sequence[Sequence[str]], sentence: str = "") -> str:
    """Rows of cells, the heading first, and a sentence below.

    >>> print(markdown([["N", "parameters"], ["100", "76"]]))
    | N | parameters |
    |---|---|
    | 100 | 76 |
    """
    lines = ["| " + " | ".join(row) + " |" for row in table]
    lines.insert(1, "|" + "---|" * len(table[0]))
    return "\n".join([*lines, *(["", sentence] if sentence else [])])
