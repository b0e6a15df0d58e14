"""Pictures for the page as SVG text: bars on a logarithmic scale, a histogram, the layer map.

Everything that comes from the user is escaped; colours are CSS variables, so that dark and print styles apply.
"""

from __future__ import annotations

import math
from collections import Counter
from html import escape

from byheart.compiler.size_rows import SizeRow
from byheart.exact import bit_length
from byheart.ir.network import Network

_WIDTH = 640


def size_bars(rows: list[SizeRow]) -> str:
    """Promised, measured and lower bound of each quantity as bars on one logarithmic scale."""
    bars = [
        (row.meaning, [("promised", row.promised), ("measured", row.measured), ("least", row.least)]) for row in rows
    ]
    largest = max((value for _, kinds in bars for _, value in kinds if value), default=1)
    decades = max(1, math.ceil(math.log10(max(10, largest))))
    parts, y, left = [], 14, 190
    scale = (_WIDTH - left - 80) / decades
    height = 14 + sum(16 * sum(v is not None for _, v in kinds) + 14 for _, kinds in bars) + 22
    for decade in range(decades + 1):
        x = left + decade * scale
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="4" x2="{x:.1f}" y2="{height - 20}"/>')
        parts.append(f'<text class="axis" x="{x:.1f}" y="{height - 6}" text-anchor="middle">{_power(decade)}</text>')
    for meaning, kinds in bars:
        parts.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{escape(meaning)}</text>')
        for kind, value in kinds:
            if value is None:
                continue
            length = max(1.0, math.log10(max(1, value)) * scale)
            parts.append(f'<rect class="{kind}" x="{left}" y="{y}" width="{length:.1f}" height="12"/>')
            parts.append(f'<text class="value" x="{left + length + 5:.1f}" y="{y + 10}">{value:,}</text>')
            y += 16
        y += 14
    return _svg(height, parts, "Promised, measured and lower bound of each size")


def bit_histogram(network: Network, columns: int = 32) -> str:
    """How many weights have how many bits."""
    counts = Counter(bit_length(w) for layer in network.layers for w in layer.weights())
    most = max(counts, default=1)
    step = max(1, -(-(most + 1) // columns))
    bins = [sum(counts.get(b, 0) for b in range(k * step, (k + 1) * step)) for k in range(-(-(most + 1) // step))]
    tallest = max(bins, default=1) or 1
    width = (_WIDTH - 70) / len(bins)
    parts = []
    for k, count in enumerate(bins):
        height = 120 * math.log1p(count) / math.log1p(tallest)
        x = 50 + k * width
        title = (
            f"{k * step} to {(k + 1) * step - 1} bits: {count:,} weights"
            if step > 1
            else f"{k} bits: {count:,} weights"
        )
        parts.append(
            f'<rect class="measured" x="{x:.1f}" y="{134 - height:.1f}" width="{max(1.0, width - 1):.1f}" '
            f'height="{height:.1f}"><title>{title}</title></rect>'
        )
    parts.append(f'<text class="axis" x="50" y="150">0</text><text class="axis" x="{_WIDTH - 20}" y="150" ')
    parts.append(
        f'text-anchor="end">{most} bits</text><text class="axis" x="46" y="22" text-anchor="end">{tallest:,}</text>'
    )
    return _svg(158, parts, "Histogram of the bit lengths of the weights")


def layer_map(network: Network) -> str:
    """The stages in order, each as wide as its share of the layers (by logarithm) and as tall as its widest layer."""
    stages = stage_table(network)
    total = sum(math.log2(count + 1) for _, count, _, _ in stages)
    tallest = max(math.log2(widest + 1) for _, _, widest, _ in stages)
    parts, x = [], 10.0
    for place, (name, count, widest, parameters) in enumerate(stages):
        width = (_WIDTH - 20) * math.log2(count + 1) / total
        height = 20 + 60 * math.log2(widest + 1) / tallest
        title = f"{name}: {count:,} layers, widest {widest:,}, {parameters:,} parameters"
        parts.append(
            f'<rect class="stage s{place % 4}" x="{x:.1f}" y="{50 - height / 2:.1f}" width="{max(2.0, width - 3):.1f}" '
            f'height="{height:.1f}" rx="3"><title>{escape(title)}</title></rect>'
        )
        parts.append(
            f'<text class="number" x="{x + width / 2 - 1.5:.1f}" y="54" text-anchor="middle">{place + 1}</text>'
        )
        x += width
    return _svg(100, parts, "The stages of the network from input to answer")


def stage_table(network: Network) -> list[tuple[str, int, int, int]]:
    """(name, layers, widest, parameters) of every stage, for the list under the map."""
    rows, start = [], 0
    for name, count in network.stages or (("all layers", len(network.layers)),):
        layers = network.layers[start : start + count]
        widest = max(max(layer.width_out, getattr(layer, "hidden", 0)) for layer in layers)
        rows.append((name, count, widest, sum(layer.parameters for layer in layers)))
        start += count
    return rows


def _power(decade: int) -> str:
    return "1" if decade == 0 else f'10<tspan dy="-4" font-size="8">{decade}</tspan>'


def _svg(height: float, parts: list[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
