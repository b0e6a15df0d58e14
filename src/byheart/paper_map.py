"""Writes docs/paper-map.md from the registry of paper labels: `python -m byheart.paper_map [--check]`.

The registry fills as modules are imported, so every room that holds paper statements is walked first:

    >>> "# Paper map" in render(collect()).splitlines()
    True
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from byheart.paper import PAPERS, Entry, entries

ROOMS = ("byheart.build", "byheart.theory", "byheart.certify")
PAGE = Path("docs/paper-map.md")

INTRODUCTION = """\
# Paper map

Which code makes which statement real, and which test shows it. This page is written by `make paper-map` from the
labels that the code carries (`byheart.paper.implements`); a test fails when it is stale.
`byheart paper "Lemma G.4"` answers the same question on the command line.
"""


def collect(rooms: Sequence[str] = ROOMS) -> list[Entry]:
    """Every registered entry, after importing every module of the rooms that hold paper statements."""
    for room in rooms:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, prefix=f"{room}."):
            importlib.import_module(module.name)
    return entries()


def render(found: Sequence[Entry]) -> str:
    """The page: one table per paper, one row per statement and piece of code."""
    sections = [INTRODUCTION]
    for paper, rows in groupby(sorted(found, key=_order), key=lambda entry: entry.ref.paper):
        lines = [f"## {paper}", "", f"{PAPERS[paper]}.", "", "| label | statement | code | test |", "|---|---|---|---|"]
        lines += [_row(entry) for entry in rows]
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def _order(entry: Entry) -> tuple[int, list[str], str, str]:
    label = [part.zfill(6) if part.isdigit() else part for part in re.split(r"(\d+)", entry.ref.label)]  # 2 before 10
    return (list(PAPERS).index(entry.ref.paper), label, entry.module, entry.name)


def _row(entry: Entry) -> str:
    statement = " ".join(entry.statement.split()).replace("|", "\\|")
    return f"| {entry.ref.label} | {statement} | `{entry.module}.{entry.name}` | `{entry.test}` |"


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with `--check` says whether it is current; run from the project's top folder."""
    page = render(collect())
    if "--check" not in arguments:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"{PAGE} is stale: run `make paper-map` and commit the page", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
