"""The demo: a table that ships with Python, learnt by heart. `make demo`, or `python -m byheart.demo [FOLDER]`.

Memorizes the names of all HTML entities (`html.entities.html5`: spelling -> characters), certifies the network, saves
it, loads it again, asks it a few names, and prints what the theorem promised, what was built, and what nobody can undercut.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from html.entities import html5
from pathlib import Path

from rich.console import Console

import byheart

ASKED = ("eacute;", "copy;", "rarr;", "NotEqualTilde;", "amp", "CounterClockwiseContourIntegral;")
TASK = "next-token"

# Rows of the table: a field of the measured size, what it means to a newcomer, and the lower bound that speaks of it.
ROWS = (
    ("parameters", "numbers in the network", "parameters"),
    ("nonzero", "… that are not zero", None),
    ("max_bits", "bits of the longest number", None),
    ("total_bits", "bits of all numbers together", "total_bits"),
    ("width", "widest layer", None),
    ("depth", "layers, one after the other", None),
)


def entities() -> tuple[list[str], list[str]]:
    """Names and the characters that they stand for.

    >>> names, characters = entities()
    >>> len(names), dict(zip(names, characters))["copy;"]
    (2231, '©')
    """
    names = sorted(html5)
    return names, [html5[name] for name in names]


def main(arguments: Sequence[str] = ()) -> int:
    console = Console()
    folder = Path(arguments[0] if arguments else "out")
    names, characters = entities()
    known = byheart.constructions()
    construction = "compact" if "compact" in known else "ks25"
    console.print(
        f"[bold]Learning {len(names):,} HTML entity names by heart[/] ({names[0]} … {names[-1]}), "
        f"{len(set(characters)):,} different answers. Nothing is trained: the weights are computed."
    )
    start = time.perf_counter()
    memory = byheart.memorize(names, characters, task=TASK, construction=construction, positions=True, seed=0)
    seconds = time.perf_counter() - start

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "html-entities.byheart"
    memory.save(file)
    again = byheart.load(file)
    console.print(f"Built with [bold]{construction}[/] and checked in {seconds:.1f} s, saved as {file}.")
    console.print("Asked from the saved file: " + "  ".join(f"{name} → {again.predict([name])[0]}" for name in ASKED))
    console.print(size_table(memory, names, characters))
    verdict = memory.certificate.verdict
    console.print(
        f"Verdict: [bold]{verdict}[/]. Each of the {len(names):,} names went through the network in exact integer "
        "arithmetic, without rounding, and the answer was the right one."
        if verdict == "proved"
        else f"Verdict: [bold red]{verdict}[/]: {memory.certificate}"
    )
    return 0 if verdict == "proved" else 1
