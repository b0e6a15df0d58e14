"""The bounds as pictures: parameters against N, and against n for the two tasks.

>>> figure = bounds_figure(Problem("next-token", N=1000, n=8, d=4))
>>> [axes.get_xlabel() for axes in figure.axes]
['sequences N', 'sequence length n']

`growth_figure` plots measured sizes against the number of rows, between the theorem's guarantee and the lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from byheart.data.task import Task
from byheart.plots.style import colour, label_axes, marker, new_figure, styled
from byheart.theory.problem import Bound, Problem
from byheart.theory.report import CHAIN, lower_bounds, upper_bounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Points = Sequence[tuple[int, int]]  # (x, parameters)


@dataclass(frozen=True)
class Curve:
    """One bound over a range of problems."""

    name: str
    kind: str
    proved: bool
    points: Points


def bounds_figure(problem: Problem, measured: Mapping[str, Points] | None = None) -> Figure:
    """Two panels: every bound against N at the problem's n, and the two tasks against n at the problem's N.

    `measured` adds built networks to the first panel: name -> (N, parameters).
    """
    figure = new_figure(columns=2, width=7.2, height=5.2)
    with styled():
        _draw_by_count(figure.axes[0], problem, measured)
        _draw_by_length(figure.axes[1], problem)
    return figure


def parameters_by_count(problem: Problem, measured: Mapping[str, Points] | None = None) -> Figure:
    """Parameters against the number of sequences, log-log, with every upper and lower bound."""
    figure = new_figure(width=7.6, height=5.2)
    with styled():
        _draw_by_count(figure.axes[0], problem, measured)
    return figure


def parameters_by_length(problem: Problem) -> Figure:
    """Parameters against the length of the sequences: flat for next-token, √n for seq-to-seq."""
    figure = new_figure(width=7.2, height=5.0)
    with styled():
        _draw_by_length(figure.axes[0], problem)
    return figure


def _draw_by_count(axes: Axes, problem: Problem, measured: Mapping[str, Points] | None = None) -> None:
    """The first panel on `axes`."""
    counts = _steps(10, max(problem.N, 10**6))
    found = curves((N, replace(problem, N=N, B=None)) for N in counts)
    label_axes(axes, f"{problem.task}: parameters against N (n = {problem.n})", "sequences N", "parameters")
    _draw(axes, found)
    for index, (name, points) in enumerate((measured or {}).items()):
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, marker(index), color="black", markerfacecolor="white", label=f"{name}, measured")
    axes.axvline(problem.N, color="#BBBBBB", linewidth=0.8, zorder=0)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.14), ncols=2)


def _draw_by_length(axes: Axes, problem: Problem) -> None:
    """Plot the second panel: KS25's theorems for both tasks, at the problem's N."""
    lengths = _steps(1, max(problem.n, 1024))
    for index, task in enumerate((Task.NEXT_TOKEN, Task.SEQ_TO_SEQ)):
        found = curves((n, replace(problem, task=task, n=n, B=None)) for n in lengths)
        for curve in found:
            if curve.name == "ks25" or curve.name.startswith("byheart compact"):
                dashes = "-" if curve.proved else (0, (4, 2))
                label = f"{task}: {curve.name}{'' if curve.proved else ' (not proved)'}"
                axes.plot(*zip(*curve.points, strict=True), color=colour(index), linestyle=dashes, label=label)
            elif curve.name in ("Theorem 4.2", "Theorem 4.3"):
                label = f"{task}: at least ({curve.name})"
                axes.plot(*zip(*curve.points, strict=True), color=colour(index), linestyle=":", label=label)
    label_axes(axes, f"Both tasks against n (N = {problem.N})", "sequence length n", "parameters")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.14), ncols=2)


def curves(problems: Iterable[tuple[int, Problem]]) -> list[Curve]:
    """The bounds on parameters of a range of problems, one curve per name; only those about labels."""
    first: dict[str, Bound] = {}
    points: dict[str, list[tuple[int, int]]] = {}
    for x, problem in problems:
        for bound in (*lower_bounds(problem), *upper_bounds(problem)):
            if bound.quantity == "parameters" and bound.scope == "labels":
                first.setdefault(bound.name, bound)
                points.setdefault(bound.name, []).append((x, bound.value))
    return [Curve(name, bound.kind, bound.proved, tuple(points[name])) for name, bound in first.items()]


def _draw(axes: Axes, found: Sequence[Curve]) -> None:
    """Upper bounds solid where they are proved and dashed where not; lower bounds dotted, excluded sizes shaded."""
    floor = [curve for curve in found if curve.kind == "lower"]
    for index, curve in enumerate(floor):
        xs, ys = zip(*curve.points, strict=True)
        axes.plot(xs, ys, linestyle=(0, (1, 1 + index)), color="black", label=f"at least: {curve.name}")
    if floor:
        xs, ys = zip(*floor[0].points, strict=True)
        axes.fill_between(xs, ys, 1, color="#EEEEEE", zorder=0, linewidth=0)
    ceiling = [curve for curve in found if curve.kind == "upper"]
    families = list(dict.fromkeys(_family(curve.name) for curve in ceiling))
    for curve in ceiling:
        xs, ys = zip(*curve.points, strict=True)
        index = families.index(_family(curve.name))
        axes.plot(
            xs,
            ys,
            linestyle="-" if curve.proved else (0, (4, 2)),
            color=colour(index),
            marker=marker(index),
            markerfacecolor="white" if curve.name.endswith("residual") else colour(index),
            markevery=max(1, len(xs) // 6),
            zorder=3 - index / 100,  # where lines coincide, the first is seen
            label=curve.name if curve.proved else f"{curve.name} (not proved)",
        )


def _family(name: str) -> str:
    """Variants of one construction share a colour."""
    return name.split(", ")[0]


def _steps(low: int, high: int, per_decade: int = 3) -> list[int]:
    """Integers from `low` to `high`, evenly spaced in the logarithm.

    >>> _steps(1, 1000, per_decade=1)
    [1, 10, 100, 1000]
    """
    values = {low, high}
    power = 0
    while (value := round(low * 10 ** (power / per_decade))) < high:
        values.add(value)
        power += 1
    return sorted(values)


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
    """Parameters against N for each name in `measured`, with KS25's guarantee and the lower bound of `problem`."""
    figure = new_figure(width=7.0, height=4.6)
    with styled():
        axes = figure.axes[0]
        guarantee = [_bound(replace(problem, N=size), "ks25, residual") for size in sizes]
        floor = [_bound(replace(problem, N=size), CHAIN) for size in sizes]
        axes.plot(
            sizes, guarantee, "--", color="#7F7F7F", label=f"KS25's guarantee, N^{exponent(sizes, guarantee):.2f}"
        )
        for place, (name, values) in enumerate(measured.items()):
            slope = exponent(sizes, values)
            axes.plot(sizes, values, marker(place) + "-", color=colour(place), label=f"{name}, built: N^{slope:.2f}")
        axes.plot(sizes, floor, ":", color="#000000", label=f"lower bound N^{exponent(sizes, floor):.2f}")
        label_axes(axes, "Parameters of a Transformer that memorizes N sequences", "sequences N", "parameters")
        axes.legend()
    return figure


def _bound(problem: Problem, name: str) -> int:
    found = [
        b.value
        for b in (*upper_bounds(problem), *lower_bounds(problem))
        if b.name == name and b.quantity == "parameters"
    ]
    return int(found[0])
