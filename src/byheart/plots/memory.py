"""A memory as pictures: its sizes between promise and lower bound, and where its bits are.

>>> import byheart
>>> memory = byheart.memorize(["cat", "act"], [0, 1], progress=False)
>>> size_figure(memory).axes[0].get_xlabel(), weights_figure(memory).axes[0].get_xlabel()
('size', 'layer')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byheart.compile.memory import Memory
from byheart.compile.size_rows import size_rows
from byheart.exact import bit_length
from byheart.ir.decoder_network import DecoderNetwork
from byheart.ir.size import FLOAT_BITS
from byheart.plots.style import colour, label_axes, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_THICK = 0.26  # of a bar; three of them stand side by side


def size_figure(memory: Memory) -> Figure:
    """Promised and measured sizes, and what the hardest labels demand, as bars on a logarithmic scale."""
    rows = size_rows(memory)
    figure = new_figure(width=7.6, height=0.62 * len(rows) + 1.3)
    kinds: list[tuple[str, list[int | None], str]] = [
        ("promised by the theorem", [row.promised for row in rows], "#B8C4D0"),
        ("measured", [*(row.measured for row in rows)], colour(0)),
        ("needed for the hardest labels", [row.hardest for row in rows], colour(1)),
    ]
    with styled():
        axes = figure.axes[0]
        for offset, (name, values, ink) in enumerate(kinds):
            places = [place + (offset - 1) * _THICK for place, value in enumerate(values) if value]
            bars = axes.barh(places, [value for value in values if value], _THICK, color=ink, label=name)
            axes.bar_label(bars, [f"{value:,}" for value in values if value], padding=3, fontsize=7.5)
        label_axes(axes, f"{memory.construction}: {memory.certificate.rows:,} rows by heart", "size", "", log=False)
        axes.set_xscale("log")
        axes.set_xlim(0.8, 12 * max(max(filter(None, values), default=1) for _, values, _ in kinds))
        axes.set_yticks(range(len(rows)), [row.meaning for row in rows])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def weights_figure(memory: Memory) -> Figure:
    """How long the longest weight of each layer is: what is memorized is in the long ones."""
    if isinstance(memory.network, DecoderNetwork):
        bits = [FLOAT_BITS for _ in memory.network.decoder.matrices]
    else:
        bits = [max((bit_length(weight) for weight in layer.weights()), default=0) for layer in memory.network.layers]
    figure = new_figure(width=8.0, height=3.0)
    with styled():
        axes = figure.axes[0]
        axes.bar(range(1, len(bits) + 1), bits, width=1.0, color=colour(0))
        title = f"{memory.construction}: bits of the longest weight, layer by layer"
        label_axes(axes, title, "layer", "bits", log=False)
    return figure
