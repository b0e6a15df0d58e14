"""Measured sizes against the number of rows, between the theorem's promise and the lower bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from byheart.plots.style import colour, label_axes, marker, new_figure, styled
from byheart.theory import Problem, lower_bounds, upper_bounds
from byheart.theory.report import CHAIN

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def exponent(sizes: Sequence[int], values: Sequence[int]) -> float:
    """The slope of the least-squares line through the points in the log-log picture.

    >>> round(exponent([100, 400, 1600], [20, 40, 80]), 6)
    0.5
    """
    x, y = [math.log(s) for s in sizes], [math.log(v) for v in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


def growth_figure(problem: Problem, sizes: Sequence[int], measured: Mapping[str, Sequence[int]]) -> Figure:
    """Parameters against N for each name in `measured`, with KS25's promise and the lower bound of `problem`."""
    figure = new_figure(width=7.0, height=4.6)
    with styled():
        axes = figure.axes[0]
        promise = [_bound(replace(problem, N=size), "ks25, residual") for size in sizes]
        floor = [_bound(replace(problem, N=size), CHAIN) for size in sizes]
        axes.plot(sizes, promise, "--", color="#7F7F7F", label=f"KS25's promise, N^{exponent(sizes, promise):.2f}")
        for place, (name, values) in enumerate(measured.items()):
            slope = exponent(sizes, values)
            axes.plot(sizes, values, marker(place) + "-", color=colour(place), label=f"{name}, built: N^{slope:.2f}")
        axes.plot(sizes, floor, ":", color="#000000", label=f"hardest labels need N^{exponent(sizes, floor):.2f}")
        label_axes(axes, "Parameters of a Transformer that knows N sequences by heart", "sequences N", "parameters")
        axes.legend()
    return figure


def _bound(problem: Problem, name: str) -> int:
    found = [
        b.value
        for b in (*upper_bounds(problem), *lower_bounds(problem))
        if b.name == name and b.quantity == "parameters"
    ]
    return int(found[0])
