"""The comparison as one self-contained page: table, log-log pictures, a paragraph per construction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from byheart import __version__
from byheart.compile.compare.rows import CompareRow, Comparison, growth_exponents
from byheart.files import write_atomically
from byheart.report.compare_chart import Point, log_log, standalone
from byheart.report.compare_words import words
from byheart.theory.report import CHAIN

COLUMNS = (
    ("parameters", "parameters"),
    ("nonzero", "of them not zero"),
    ("max_bits", "longest, bits"),
    ("total_bits", "all weights, bits"),
    ("depth", "depth"),
    ("width", "width"),
    ("attention_layers", "attention layers"),
)


def render(comparisons: Sequence[Comparison]) -> str:
    """The page as text; the table is the last comparison's, the pictures show all of them."""
    environment = Environment(loader=PackageLoader("byheart.report"), autoescape=select_autoescape(default=True))
    last = comparisons[-1]
    return environment.get_template("compare.html.jinja").render(
        version=__version__,
        facts=last,
        columns=COLUMNS,
        rows=[_shown(row) for row in last.rows],
        pictures=[
            ("Parameters", _picture(comparisons, "parameters", "parameters")),
            ("Bits of all weights", _picture(comparisons, "total_bits", "bits")),
        ],
        sizes=[part.N for part in comparisons],
        exponents=sorted(growth_exponents(comparisons).items(), key=lambda item: item[1]),
        bit_exponents=growth_exponents(comparisons, "total_bits"),
    )


def write(comparisons: Sequence[Comparison], path: Path) -> None:
    """Renders to a file, atomically."""
    write_atomically(path, render(comparisons).encode("utf-8"))


def picture_file(comparisons: Sequence[Comparison], quantity: str, path: Path) -> None:
    """One picture as an SVG file of its own, for documents: light colours on white."""
    drawn = str(_picture(comparisons, quantity, quantity.replace("_", " ")))
    write_atomically(path, standalone(drawn).encode("utf-8"))


def _shown(row: CompareRow) -> dict[str, Any]:
    seconds = None if row.build_seconds is None else row.build_seconds + (row.certify_seconds or 0.0)
    verdict = "proved by balls" if row.verdict == "proved" and "enclosures" in row.arithmetic else row.verdict
    return {"row": row, "verdict": verdict, "seconds": seconds, "words": words(row.construction, row.summary)}


def _picture(comparisons: Sequence[Comparison], quantity: str, unit: str) -> Markup:
    series: dict[str, list[Point]] = {}
    floor = []
    for part in comparisons:
        for row in part.rows:
            value = getattr(row, quantity)
            if value:
                built = row.built or row.verdict in ("baseline", "trained")
                series.setdefault(row.construction, []).append(Point(part.N, value, built))
        hardest = [f.value for f in part.floors if f.quantity == quantity and f.name in (CHAIN, "bits")]
        if hardest:
            floor.append(Point(part.N, max(hardest), True))
    title = f"{unit} against the number of rows, both logarithmic"
    return Markup(log_log(series, title, unit, floor))  # every text in it is escaped by the chart
