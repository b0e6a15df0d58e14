"""Writes the pages that are made from registries: `python -m byheart.pages [--check]`.

docs/paper-map.md comes from the labels that code carries, the tables of constructions in README.md and docs/choose.md
from what is registered.

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

from byheart.build import Listing, recipes
from byheart.data.task import Task
from byheart.paper import PAPERS, Entry, entries

ROOMS = ("byheart.build", "byheart.theory", "byheart.certify")
PAPER_MAP, README, CHOOSE = Path("docs/paper-map.md"), Path("README.md"), Path("docs/choose.md")
DEFAULT = "compact"

INTRODUCTION = """\
# Paper map

Which code makes which statement real, and which test shows it. This page is written by `make pages` from the
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


def construction_table() -> str:
    """The table of README.md: what can be built, from what, for which tasks."""
    lines = ["| construction | from | tasks | what it builds |", "|---|---|---|---|"]
    for name, entry in _listed():
        tasks = "all four" if len(entry.tasks) == len(Task) else ", ".join(entry.tasks)
        lines.append(
            f"| `{name}`{' (default)' if name == DEFAULT else ''} | {entry.paper} | {tasks} | {entry.summary} |"
        )
    return "\n".join(lines)


def construction_words() -> str:
    """The list of docs/choose.md: what each construction does and when to take it."""
    return "\n".join(f"- **`{name}`** ({entry.paper}). {entry.words}" for name, entry in _listed())


def _listed() -> list[tuple[str, Listing]]:
    """byheart's own constructions first, then the papers' in the order of tables."""
    found = {name: recipe.listing for name, recipe in recipes(texts=None).items()}
    return sorted(found.items(), key=lambda item: (item[0] != DEFAULT, not item[1].paper.startswith("byheart")))


def written() -> dict[Path, str]:
    """Every page, as it should be, that is made from the registries."""
    pages = {PAPER_MAP: render(collect())}
    for page, text in ((README, construction_table()), (CHOOSE, construction_words())):
        pages[page] = between(page.read_text(encoding="utf-8"), "constructions", text)
    return pages


def between(page: str, name: str, text: str) -> str:
    """The page with `text` between `<!-- made: name -->` and the next `<!-- end -->`.

    >>> between("a <!-- made: x --> old <!-- end --> b", "x", "new")
    'a <!-- made: x -->\\nnew\\n<!-- end --> b'
    """
    mark = f"<!-- made: {name} -->"
    before, start, rest = page.partition(mark)
    _, end, after = rest.partition("<!-- end -->")
    if not start or not end:
        raise SystemExit(f"the page must have the marks {mark} and <!-- end -->")
    return f"{before}{mark}\n{text}\n{end}{after}"


def main(arguments: Sequence[str]) -> int:
    """Writes the pages, or with `--check` says which are stale; run from the project's top folder."""
    stale = [page for page, text in written().items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    if "--check" not in arguments:
        for page, text in written().items():
            page.write_text(text, encoding="utf-8")
        return 0
    for page in stale:
        print(f"{page} is stale: run `make pages` and commit it", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
