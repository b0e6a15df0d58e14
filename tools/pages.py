"""Write the pages that are generated from registries: `python -m tools.pages [--check]`.

docs/paper-map.md and both pages of the reading guide come from the labels in the code, the tables of constructions in
docs/constructions.md and docs/choose.md from the registry, the manual page docs/byheart.1 from the command line's own
help. `docs/live.html` (what `byheart explain` writes) and `docs/one-scroll.html` (its article alone) are built with the
site and are not kept in git.

The registry fills as modules are imported, so every package that holds paper statements is walked first:

    >>> "# Paper map" in render(collect()).splitlines()
    True
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import click

from byheart.build import Listing, recipes
from byheart.cli import commands
from byheart.cli.paper import fill_registry
from byheart.data.task import Task
from byheart.paper import PAPERS, Entry, entries
from byheart.report import explain
from byheart.report.article import one_scroll
from byheart.version import __version__
from tools import reading_guide as guide

PAPER_MAP, TABLE, CHOOSE = Path("docs/paper-map.md"), Path("docs/constructions.md"), Path("docs/choose.md")
MANUAL = Path("docs/byheart.1")
DEFAULT = "compact"

INTRODUCTION = """\
# Paper map

Which code makes which statement real, and which test shows it. This page is written by `make pages` from the labels
that the code carries (`byheart.paper.implements`, and `byheart.theory.statements` for what no function carries); a
test fails when it is stale, or when a statement of KS25 or M24 has no row. `byheart paper "Lemma G.4"` finds the
same on the command line.

Status: **built**, a network is constructed and certified; **a number**, a formula is computed, never below (above)
the true bound; **checked**, the checker or the data package decides it on the data; **shown**, an experiment or a
table; **in words**, a definition that the code follows; **partly** and **out of reach** give what is missing and
why.
"""


def collect() -> list[Entry]:
    """Every registered entry, after importing every module of the packages that hold paper statements."""
    fill_registry()
    return entries()


def render(found: Sequence[Entry]) -> str:
    """The page: one table per paper, one row per statement and piece of code."""
    sections = [INTRODUCTION]
    for paper, rows in groupby(sorted(found, key=_order), key=lambda entry: entry.ref.paper):
        lines = [
            f"## {paper}",
            "",
            f"{PAPERS[paper]}.",
            "",
            "| label | statement | status | code | test |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(entry) for entry in rows]
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def _order(entry: Entry) -> tuple[int, list[str], str, str]:
    label = [part.zfill(6) if part.isdigit() else part for part in re.split(r"(\d+)", entry.ref.label)]  # 2 before 10
    return (list(PAPERS).index(entry.ref.paper), label, entry.module, entry.name)


def _row(entry: Entry) -> str:
    statement, status = (" ".join(text.split()).replace("|", "\\|") for text in (entry.statement, entry.status))
    code, test = (f"`{text}`" if text else "" for text in (entry.code, entry.test))
    return f"| {entry.ref.label} | {statement} | {status} | {code} | {test} |"


def construction_table() -> str:
    """The table of docs/constructions.md: what can be built, from what, for which tasks."""
    lines = ["| construction | from | tasks | what it builds |", "|---|---|---|---|"]
    for name, entry in _listed():
        tasks = "all four" if len(entry.tasks) == len(Task) else ", ".join(entry.tasks)
        lines.append(
            f"| `{name}`{' (default)' if name == DEFAULT else ''} | {entry.paper} | {tasks} | {entry.summary} |"
        )
    return "\n".join(lines)


def construction_words() -> str:
    """The list of docs/choose.md: what each construction does and when to use it."""
    return "\n".join(f"- **`{name}`** ({entry.paper}). {entry.description}" for name, entry in _listed())


def _listed() -> list[tuple[str, Listing]]:
    """byheart's own constructions first, then the papers' in the order of tables."""
    found = {name: recipe.listing for name, recipe in recipes(texts=None).items()}
    return sorted(found.items(), key=lambda item: (item[0] != DEFAULT, not item[1].paper.startswith("byheart")))


def written() -> dict[Path, str]:
    """Every page that is generated from the registries, as it should be."""
    pages = {PAPER_MAP: render(collect()), MANUAL: manual()}
    pages |= {Path("docs") / name: text for name, text in guide.render(collect()).items()}
    for page, text in ((TABLE, construction_table()), (CHOOSE, construction_words())):
        pages[page] = between(page.read_text(encoding="utf-8"), "constructions", text)
    return pages


def manual() -> str:
    """The manual page, section 1: every command with its options, as `--help` prints them.

    click-man finds no command here: it reads `Group.commands`, and these are imported when they are run. It would also
    join the lines of examples.
    """
    # with the group's own settings: click keeps the help option that a command got first
    context = click.Context(commands, info_name="byheart", **commands.context_settings)
    lines = [
        '.\\" -*- coding: utf-8 -*-',
        f'.TH BYHEART 1 "" "byheart {__version__}" "User Commands"',
        ".SH NAME",
        "byheart \\- Transformers that store a data set exactly, with a proof",
        ".SH SYNOPSIS",
        ".B byheart",
        "COMMAND [OPTIONS] [ARGUMENTS]",
        ".SH DESCRIPTION",
        *_roff(commands.help or ""),
        ".SH COMMANDS",
    ]
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        if command is not None:
            lines += _command_in_roff(command, click.Context(command, info_name=name, parent=context))
    lines += [".SH FILES", "Memories are JSON files; docs/file-format.md describes every field.", ".SH SEE ALSO"]
    return "\n".join([*lines, "The documentation in docs/, as a site by `make docs`."]) + "\n"


def _command_in_roff(command: click.Command, context: click.Context) -> list[str]:
    if isinstance(command, click.Group):
        names = command.list_commands(context)
        inner = [(command.get_command(context, name), name) for name in names]
        return [
            line
            for found, name in inner
            if found is not None
            for line in _command_in_roff(found, click.Context(found, info_name=name, parent=context))
        ]
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f".SS {_escaped(context.command_path)} {_escaped(usage)}", *_roff(command.help or "")]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            lines += [".TP", f".B {_escaped(record[0])}", _escaped(" ".join(record[1].split())) or "\\ "]
    return lines + (_roff(command.epilog) if command.epilog else [])


def _roff(help: str) -> list[str]:
    """Paragraphs; those that start with \\b keep their lines."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(help).split("\n\n"):
        if paragraph.startswith("\b"):
            lines += [".PP", ".nf", *map(_escaped, paragraph.removeprefix("\b").strip("\n").splitlines()), ".fi"]
        else:
            lines += [".PP", _escaped(" ".join(paragraph.split()))]
    return lines


def _escaped(text: str) -> str:
    """Text that roff prints as it is: dashes are dashes, and a dot at the start of a line does not command."""
    found = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{found}" if found.startswith((".", "'")) else found


@lru_cache(maxsize=1)
def built() -> dict[Path, str]:
    """Pages that are built with the site and not kept in git; the same rows and seed give the same pages."""
    return {Path("docs/live.html"): explain() + "\n", Path("docs/one-scroll.html"): one_scroll() + "\n"}


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
    """Write the pages, or with `--check` reports which are stale; run from the project's top folder."""
    stale = [page for page, text in written().items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    if "--check" not in arguments:
        for page, text in {**written(), **built()}.items():
            page.write_text(text, encoding="utf-8")
        return 0
    for page in stale:
        print(f"{page} is stale: run `make pages` and commit it", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
