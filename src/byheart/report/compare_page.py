"""The comparison as one self-contained page: table, log-log pictures, a paragraph per construction.

A paragraph describes each row of a comparison and when to use it.

A log-log picture as SVG text: one line per construction, named at its end; hollow marks are predicted sizes. Where
only one size exists, the picture shows bars instead of lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from byheart import __version__
from byheart.build import recipes
from byheart.files import write_atomically
from byheart.memory.compare.rows import CompareRow, Comparison, gentle_bits, gentle_growth, growth_exponents
from byheart.theory.report import CHAIN

# rows that are not constructions: these explain themselves here, constructions where they are registered
OTHERS = {
    "python dict": "The usual solution. Answers only stored keys, in constant time.",
    "sorted array": "Packed rows with labels, found by bisection: the smallest ordinary table.",
    "information limit": "The labels alone: any store of arbitrary labels needs this, even if the inputs were free.",
    "trained": "A network of KS25's form that gradient descent found on this data in the time given. It is checked in "
    "floating point, not proved.",
}


def words(name: str, summary: str) -> str:
    entry = recipes().get(name)
    return OTHERS.get(name, summary) if entry is None else entry.description


# Pixels of a plot and of its margins.
WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 58, 168, 14, 40
COLOURS = 8


@dataclass(frozen=True)
class Point:
    """A size at N; `built` is False where a formula gives it."""

    N: int
    value: int
    built: bool


def log_log(series: Mapping[str, Sequence[Point]], title: str, unit: str, floor: Sequence[Point] = ()) -> str:
    """The picture; names and titles are escaped. `floor` is drawn dotted: the worst-case lower bound."""
    shown = {name: sorted(points, key=lambda p: p.N) for name, points in series.items() if points}
    everything = [p for points in shown.values() for p in points] + list(floor)
    if not everything:
        return ""
    scale = _Scale.of(everything)
    parts = _axes(scale)
    if floor:
        parts.append(f'<polyline class="floor" points="{_path(scale, floor)}"/>')
    ends = []
    for place, (name, points) in enumerate(shown.items()):
        parts.append(f'<polyline class="line c{place % COLOURS}" points="{_path(scale, points)}"/>')
        for p in points:
            kind = "mark" if p.built else "mark hollow"
            tooltip = escape(f"{name}: {p.value:,} {unit} at N = {p.N:,}{'' if p.built else ', predicted'}")
            x, y = scale.x(p.N), scale.y(p.value)
            parts.append(
                f'<circle class="{kind} c{place % COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
                f"<title>{tooltip}</title></circle>"
            )
        ends.append((scale.y(points[-1].value), name, place))
    parts += _names(ends)
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}"'
    return f'{head} xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


@dataclass(frozen=True)
class _Scale:
    low_x: float
    high_x: float
    low_y: int
    high_y: int

    @staticmethod
    def of(points: Sequence[Point]) -> _Scale:
        xs = [math.log10(p.N) for p in points]
        ys = [math.log10(max(1, p.value)) for p in points]
        low, high = min(xs), max(xs)
        spare = 0.5 if low == high else 0.0  # one size only: the mark is in the middle
        return _Scale(low - spare, high + spare, math.floor(min(ys)), max(math.ceil(max(ys)), math.floor(min(ys)) + 1))

    def x(self, N: int) -> float:
        share = (math.log10(N) - self.low_x) / (self.high_x - self.low_x)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: int) -> float:
        share = (math.log10(max(1, value)) - self.low_y) / (self.high_y - self.low_y)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def bars(series: Mapping[str, Sequence[Point]], title: str, unit: str, floor: Sequence[Point] = ()) -> str:
    """One size only: a bar for every construction on a logarithmic scale, shortest first; the floor is a dotted line.

    >>> picture = bars({"<a>": [Point(9, 100, True)], "b": [Point(9, 10, False)]}, "sizes", "parameters")
    >>> picture.count("<rect"), picture.index(">b<") < picture.index("&lt;a&gt;")
    (2, True)
    """
    shown = sorted((points[-1].value, name, points[-1].built) for name, points in series.items() if points)
    if not shown:
        return ""
    left, right, step = 150, WIDTH - 110, 24
    decades = max(1, math.ceil(math.log10(max(value for value, _, _ in shown))))
    bottom = TOP + step * len(shown)

    def x(value: int) -> float:
        return left + math.log10(max(1, value)) / decades * (right - left)

    parts = []
    for decade in range(decades + 1):
        at = x(10**decade)
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}"/>')
        parts.append(f'<text class="axis" x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{10**decade:,}</text>')
    places = {name: place % COLOURS for place, name in enumerate(series)}
    for row, (value, name, built) in enumerate(shown):
        y, colour = TOP + step * row, f"c{places[name]}"
        words = escape(f"{name}: {value:,} {unit}{'' if built else ', predicted'}")
        parts.append(
            f'<rect class="bar{"" if built else " hollow"} {colour}" x="{left}" y="{y + 4}" '
            f'width="{max(1.0, x(value) - left):.1f}" height="{step - 8}"><title>{words}</title></rect>'
            f'<text class="name {colour}" x="{left - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>'
            f'<text class="value" x="{x(value) + 6:.1f}" y="{y + 16}">{"" if built else "~"}{value:,}</text>'
        )
    if floor:
        at = x(floor[-1].value)
        parts.append(f'<line class="floor" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}"/>')
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {bottom + 24}" role="img" aria-label="{escape(title)}"'
    return f'{head} xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def _axes(scale: _Scale) -> list[str]:
    parts = []
    for decade in range(scale.low_y, scale.high_y + 1):
        y = scale.y(10**decade)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text class="axis" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10**decade:,}</text>')
    for exponent in range(math.floor(scale.low_x), math.ceil(scale.high_x) + 1):
        for step in (1, 2, 5):
            N = step * 10**exponent
            if scale.low_x - 1e-9 <= math.log10(N) <= scale.high_x + 1e-9:
                x = scale.x(N)
                parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>')
                parts.append(
                    f'<text class="axis" x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{N:,}</text>'
                )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">rows N</text>')
    return parts


def _path(scale: _Scale, points: Sequence[Point]) -> str:
    return " ".join(f"{scale.x(p.N):.1f},{scale.y(p.value):.1f}" for p in points)


def _names(ends: list[tuple[float, str, int]]) -> list[str]:
    """The names beside the lines' ends, pushed apart so that none covers another."""
    step = 13.0
    ends = sorted(ends)
    places = [y for y, _, _ in ends]
    for k in range(1, len(places)):
        places[k] = max(places[k], places[k - 1] + step)
    over = places[-1] - (HEIGHT - BOTTOM) if places else 0.0
    if over > 0:
        places[-1] -= over
        for k in range(len(places) - 2, -1, -1):
            places[k] = min(places[k], places[k + 1] - step)
    x = WIDTH - RIGHT + 6
    return [
        f'<line class="lead" x1="{x - 4}" y1="{y:.1f}" x2="{x + 10}" y2="{at:.1f}"/>'
        f'<text class="name c{place % COLOURS}" x="{x + 13}" y="{at + 4:.1f}">{escape(name)}</text>'
        for (y, name, place), at in zip(ends, places, strict=True)
    ]


INKS = ("#0969a8", "#c26a1b", "#2f7d4f", "#b03a5b", "#6d55b0", "#8a6a12", "#147d85", "#6b6f76")


def standalone(chart: str) -> str:
    """The picture with its own style, so that it needs no page around it."""
    rules = [
        "svg { font: 12px system-ui, sans-serif; background: #ffffff; } text { fill: #1c2127; }",
        ".axis { fill: #5c6670; font-size: 10px; } .grid, .lead { stroke: #d8dee4; }",
        ".line { fill: none; stroke-width: 1.8; }",
        ".bar { stroke-width: 0; opacity: .85; } .bar.hollow { opacity: .45; }",
        ".floor { fill: none; stroke: #1c2127; stroke-dasharray: 2 4; stroke-width: 1.6; } .name { font-weight: 600; }",
    ]
    for place, ink in enumerate(INKS):
        rules.append(f".c{place} {{ stroke: {ink}; }} circle.c{place}, rect.c{place} {{ fill: {ink}; }}")
        rules.append(f"text.c{place} {{ fill: {ink}; stroke: none; }}")
    rules.append("circle.hollow { fill: #ffffff; stroke-dasharray: 2 1.5; }")
    head, tail = chart.split(">", 1)
    return f"{head}><style>{' '.join(rules)}</style>{tail}"


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
        gentle=[gentle_growth(comparisons), gentle_bits(comparisons)],
    )


def write(comparisons: Sequence[Comparison], path: Path) -> None:
    """Render to a file, atomically."""
    write_atomically(path, render(comparisons).encode("utf-8"))


def picture_file(comparisons: Sequence[Comparison], quantity: str, path: Path) -> None:
    """Return one picture as a separate SVG file for documents: light colours on white."""
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
        values = [f.value for f in part.floors if f.quantity == quantity and f.name in (CHAIN, "bits")]
        if values:
            floor.append(Point(part.N, max(values), True))
    if len({part.N for part in comparisons}) == 1:
        drawn = bars(series, f"{unit} for {comparisons[-1].N:,} rows, on a logarithmic scale", unit, floor)
    else:
        drawn = log_log(series, f"{unit} against the number of rows, both logarithmic", unit, floor)
    return Markup(drawn)  # every text in it is escaped by the chart
