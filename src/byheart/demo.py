"""The demo: a table that ships with Python, memorized. `make demo`, or `python -m byheart.demo [FOLDER]`.

Memorizes the names of all HTML entities (`html.entities.html5`: spelling -> characters), certifies the network, saves
it, loads it again, queries a few names, and prints the budget, the measured size and
the worst-case lower bound.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from html.entities import html5
from pathlib import Path

from rich.console import Console
from rich.table import Table

import byheart
from byheart.memory.size_rows import lower_sentences, size_rows

QUERIES = ("eacute;", "copy;", "rarr;", "NotEqualTilde;", "amp", "CounterClockwiseContourIntegral;")
CONSTRUCTION = "compact"


def entities() -> tuple[list[str], list[str]]:
    """Names and the characters that they represent.

    >>> names, characters = entities()
    >>> len(names), dict(zip(names, characters))["copy;"]
    (2231, '©')
    """
    names = sorted(html5)
    return names, [html5[name] for name in names]


def size_table(memory: byheart.Memory) -> Table:
    """Guaranteed size, measured size and lower bound side by side."""
    table = Table(title=f"How large is it? ({memory.claim.ref})", title_style="bold", title_justify="left")
    table.add_column("")
    table.add_column(memory.claim.limit, justify="right")
    table.add_column("measured", justify="right", style="bold")
    table.add_column("lower bound", justify="right")
    for row in size_rows(memory):
        table.add_row(row.meaning, _number(row.guaranteed), _number(row.measured), _number(row.lower_bound))
    return table


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def main(arguments: Sequence[str] = ()) -> int:
    console = Console(highlight=False)
    folder = Path(arguments[0] if arguments else "out")
    names, characters = entities()
    console.print(
        f"Memorizing the {len(names):,} names of HTML entities: {len(set(characters)):,} different answers. "
        "Nothing is trained: the weights of a Transformer are computed, then every name is checked.\n"
    )
    start = time.perf_counter()
    # Without fingerprints of the rows, whose bits the lower bound does not count.
    memory = byheart.memorize(names, characters, task="next-token", construction=CONSTRUCTION, abstain_bits=0)
    seconds = time.perf_counter() - start

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "html-entities.byheart"
    memory.save(file)
    again = byheart.load(file)
    console.print(f"Built with [bold]{CONSTRUCTION}[/] and certified in {seconds:.1f} s; saved as {file}.")
    console.print("Answers of the saved file:")
    for name, answer in zip(QUERIES, again.predict(QUERIES), strict=True):
        console.print(f"  {name:34} {answer}")
    console.print()
    console.print(size_table(memory))
    console.print(
        "Guaranteed: an upper bound, computed before anything is built. Lower bound: "
        + "; ".join(lower_sentences(memory))
        + ".\n"
    )
    return _conclude(console, memory, len(names))


def _conclude(console: Console, memory: byheart.Memory, count: int) -> int:
    certificate = memory.certificate
    if certificate.verdict != "proved":
        console.print(f"Verdict: [bold red]{certificate.verdict.value}[/]: {certificate.reason}")
        return 1
    console.print(
        f"Verdict: [bold green]proved[/]. Each of the {count:,} names went through the network in exact arithmetic, "
        "without rounding, and gives the correct characters; the network is within its budget."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
