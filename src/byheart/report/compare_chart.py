"""A log-log picture as SVG text: one line per construction, named at its end; hollow marks are predicted sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 58, 168, 14, 40
COLOURS = 8


@dataclass(frozen=True)
class Point:
    """A size at N; `built` is False where a formula says it."""

    N: int
    value: int
    built: bool


def log_log(series: Mapping[str, Sequence[Point]], title: str, unit: str, floor: Sequence[Point] = ()) -> str:
    """The picture; names and titles are escaped. `floor` is drawn dotted: what the hardest labels need."""
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
        spare = 0.5 if low == high else 0.0  # one size only: the mark stands in the middle
        return _Scale(low - spare, high + spare, math.floor(min(ys)), max(math.ceil(max(ys)), math.floor(min(ys)) + 1))

    def x(self, N: int) -> float:
        share = (math.log10(N) - self.low_x) / (self.high_x - self.low_x)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: int) -> float:
        share = (math.log10(max(1, value)) - self.low_y) / (self.high_y - self.low_y)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


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
        ".floor { fill: none; stroke: #1c2127; stroke-dasharray: 2 4; stroke-width: 1.6; } .name { font-weight: 600; }",
    ]
    for place, ink in enumerate(INKS):
        rules.append(f".c{place} {{ stroke: {ink}; }} circle.c{place} {{ fill: {ink}; }}")
        rules.append(f"text.c{place} {{ fill: {ink}; stroke: none; }}")
    rules.append("circle.hollow { fill: #ffffff; stroke-dasharray: 2 1.5; }")
    head, tail = chart.split(">", 1)
    return f"{head}><style>{' '.join(rules)}</style>{tail}"
