"""The laboratory's pictures: curves while training, least sizes with fits, bits per parameter.

Trained networks, constructed ones and lower bounds share a picture, so that their distances are visible.

One HTML page per laboratory run: embedded pictures, tables, and the settings of the run. It needs no other file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from byheart.lab.comparison import LITERATURE, Built
from byheart.lab.config import PRECISIONS
from byheart.lab.results import Minimum, Row, best_record, fit_growth
from byheart.lab.study.experiment import Experiment, TrialRecord
from byheart.lab.study.planner import Planner
from byheart.plots.style import colour, label_axes, marker, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
import io
from html import escape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
figure { margin: 1rem 0; background: #fff; border-radius: 6px; padding: .5rem; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .875rem; display: block; overflow-x: auto; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #8885; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
code { font-size: .875rem; }
"""


def render(
    title: str,
    facts: Mapping[str, object],
    figures: Mapping[str, Figure],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
) -> str:
    """Return the page. Figures are embedded as SVG, tables come from rows that share their columns.

    >>> page = render("A run", {"seed": 0}, {}, {"Cells": [{"size": 4, "loss": 0.25}]})
    >>> "<td>0.25</td>" in page and "http" not in page
    True
    """
    parts = [f"<h1>{escape(title)}</h1>", _definition(facts)]
    for caption, figure in figures.items():
        name = escape(caption)
        parts.append(f"<h2>{name}</h2><figure role='img' aria-label='{name}'>{_svg(figure)}</figure>")
    for caption, rows in tables.items():
        if rows:
            parts.append(f"<h2>{escape(caption)}</h2>{_table(rows)}")
    body = "\n".join(parts)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    head += f"<style>{_STYLE}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    with styled():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _definition(facts: Mapping[str, object]) -> str:
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    return f"<table>{rows}</table>"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(str(column))}</th>" for column in rows[0])
    lines = ("".join(f"<td>{escape(_text(value))}</td>" for value in row.values()) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


_UNIT = {"uniform": "#blocks", "decoder": "neurons m"}


def curves_figure(experiment: Experiment, finished: Mapping[str, TrialRecord], problem: int = 0) -> Figure:
    """Loss and accuracy of the best trial of each size while it trains, with the threshold."""
    figure = new_figure(columns=2)
    planner = Planner(experiment)
    with styled():
        loss, accuracy = figure.axes
        for place, size in enumerate(experiment.sizes):
            records = planner.records(problem, size, dict(finished))
            if not records:
                continue
            epochs, losses, right = zip(*best_record(records).outcome.curve, strict=True)
            look: dict[str, Any] = {"color": colour(place), "label": f"{_UNIT[experiment.model]} = {size}"}
            loss.plot(epochs, losses, **look)
            accuracy.plot(epochs, right, **look)
        loss.axhline(experiment.loss, color="#7F7F7F", linestyle=":", label=f"memorized below {experiment.loss:g}")
        loss.set_yscale("log")
        name = experiment.problems[problem].name
        label_axes(loss, f"Training loss, {name}", "epoch", "loss", log=False)
        label_axes(accuracy, f"Accuracy, {name}", "epoch", "share of correct labels", log=False)
        loss.legend()
    return figure


def minimum_figure(experiment: Experiment, minima: Sequence[Minimum], built: Sequence[Built] = ()) -> Figure:
    """Left: the least size with its fits; right: parameters of trained and constructed networks and the bound."""
    figure = new_figure(columns=2)
    with styled():
        _draw_minima(figure.axes[0], experiment, minima)
        axes = figure.axes[1]
        known = [m for m in minima if m.parameters is not None]
        axes.plot(
            [m.x for m in known], [m.parameters or 0 for m in known], "o", color=colour(0), label="trained, least"
        )
        _draw_built(axes, {m.problem: m.x for m in minima}, built)
        label_axes(axes, "Parameters: trained, constructed, necessary", _axis(experiment), "parameters")
        _ticks_at(axes, sorted({m.x for m in minima}))
        _legend_below(axes)
    return figure


def variants_figure(experiment: Experiment, minima: Sequence[Minimum]) -> Figure:
    """Plot the least size of each variant against the varied quantity, and √(labels) through the first point found.

    For precisions, also plot the line that Theorem F.1 guarantees where bits are few.
    """
    from matplotlib.ticker import MaxNLocator

    figure = new_figure()
    with styled():
        axes = figure.axes[0]
        queried = [spec.N * (spec.n if spec.source == "contexts" else 1) for spec in experiment.problems]
        for place, variant in enumerate(dict.fromkeys(experiment.variants)):
            mine = [m for m, name in zip(minima, experiment.variants, strict=True) if name == variant]
            known = [m for m in mine if m.size is not None]
            look: dict[str, Any] = {"color": colour(place), "label": variant}
            axes.plot([m.x for m in known], [m.size or 0 for m in known], marker(place) + "-", **look)
            failed = [m for m in mine if m.size is None and m.largest_failed is not None]
            axes.plot([m.x for m in failed], [m.largest_failed or 0 for m in failed], "x", ms=10, color=colour(place))
        if any(m.size is None and m.largest_failed is not None for m in minima):
            axes.plot([], [], "x", ms=10, color="#7F7F7F", label="even this many failed")
        found = sorted((labels, m.x, m.size) for labels, m in zip(queried, minima, strict=True) if m.size is not None)
        if found:
            labels, _, size = found[0]
            orders = [(0.5, ":", "√(labels), through the smallest")]
            if set(experiment.variants) <= set(PRECISIONS):
                orders.append((1.0, "--", "few bits (KS25 Theorem F.1): labels, through the smallest"))
            for power, style, name in orders:
                line = sorted({(m.x, size * (a / labels) ** power) for a, m in zip(queried, minima, strict=True)})
                axes.plot(*zip(*line, strict=True), style, color="#7F7F7F", label=name)
        label_axes(axes, "The least number of blocks", _axis(experiment), "#blocks", log=False)
        _ticks_at(axes, sorted({m.x for m in minima}))
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
    return figure


def _draw_minima(axes: Axes, experiment: Experiment, minima: Sequence[Minimum]) -> None:
    from matplotlib.ticker import MaxNLocator

    known = [m for m in minima if m.size is not None]
    x, y = [m.x for m in known], [m.size or 0 for m in known]
    axes.plot(x, y, "o", color=colour(0), label="least that memorized")
    open_ended = [m for m in minima if m.size is None and m.largest_failed is not None]
    if open_ended:
        failed = [m.largest_failed or 0 for m in open_ended]
        axes.plot([m.x for m in open_ended], failed, "^", color=colour(1), label="even this failed")
    log = experiment.axis == "n"
    for place, scale in enumerate(("logarithm",) if log else ("root", "linear"), start=2):
        if len(set(x)) < 3:
            break
        fit = fit_growth(x, y, scale)
        grid = _grid(min(x), max(x), log)
        low, high = fit.band(grid)
        axes.plot(grid, fit.at(grid), "-" if place == 2 else "--", color=colour(place), label=fit.label)
        axes.fill_between(grid, low, high, color=colour(place), alpha=0.15, linewidth=0)
    label_axes(axes, "The least number of blocks", _axis(experiment), "#blocks", log=False)
    if log:
        axes.set_xscale("log")
    axes.set_ylim(0, 1.25 * max([1, *y, *(m.largest_failed or 0 for m in open_ended)]))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper left")


def grid_figure(
    experiment: Experiment, rows: Sequence[Row], entropies: Mapping[str, float], built: Sequence[Built] = ()
) -> Figure:
    """Madden et al., Figure 1. Left: gap to the entropy against neurons; right: parameters that close it to 1 %."""
    figure = new_figure(columns=2)
    with styled():
        gaps, needed = figure.axes
        names = list(dict.fromkeys(row.problem for row in rows))
        least = {}
        for place, name in enumerate(names):
            mine = [row for row in rows if row.problem == name]
            gap = [max(row.loss - entropies[name], 1e-6) for row in mine]
            label = f"{mine[0].x} documents"
            gaps.plot([row.size for row in mine], gap, marker(place) + "-", color=colour(place), label=label)
            closed = [row for row, g in zip(mine, gap, strict=True) if g <= 0.01 * entropies[name]]
            if closed:
                least[mine[0].x] = min(row.parameters for row in closed)
        label_axes(gaps, "Gap between loss and entropy", "neurons m", "nats per token")
        needed.plot(list(least), list(least.values()), "o-", color=colour(0), label="trained: gap below 1 % of entropy")
        _draw_built(needed, {row.problem: row.x for row in rows}, built)
        label_axes(needed, "Parameters: trained, solved and by theorem", "documents", "parameters")
        _ticks_at(gaps, sorted({row.size for row in rows}))
        _ticks_at(needed, sorted({row.x for row in rows}))
        gaps.legend()
        _legend_below(needed, columns=1)
    return figure


def bits_figure(trained: Sequence[tuple[str, float]], built: Sequence[Built]) -> Figure:
    """Bits of labels per parameter: trained networks, constructed ones, and results of the literature."""
    certified = [b for b in built if b.kind == "constructed" and b.bits_per_parameter]
    bars = [(name, value, 0) for name, value in trained]
    bars += [(f"{b.name}, {b.problem}", float(b.bits_per_parameter or 0), 1) for b in certified]
    figure = new_figure(width=8.0, height=max(2.4, 0.28 * len(bars) + 1.4))
    with styled():
        axes = figure.axes[0]
        places = range(len(bars))
        axes.barh(list(places), [b[1] for b in bars], color=[colour(b[2]) for b in bars])
        axes.set_yticks(list(places), [b[0] for b in bars], fontsize=8)
        axes.invert_yaxis()
        for place, (name, value) in enumerate(LITERATURE.items(), start=2):
            axes.axvline(value, color=colour(place), linestyle="--", label=name)
        label_axes(axes, "Bits of labels per parameter", "bits", "", log=False)
        figure.legend(loc="outside lower center", ncols=2)  # the axes have no free corner
    return figure


def _draw_built(axes: Axes, places: Mapping[str, int], built: Sequence[Built]) -> None:
    """Bounds, and constructed networks as far as they are proved."""
    built = [b for b in built if b.kind != "constructed" or b.verdict == "proved"]
    names = list(dict.fromkeys(b.name for b in built))
    for place, name in enumerate(names, start=1):
        points = sorted({(places[b.problem], b.parameters) for b in built if b.name == name and b.parameters})
        if not points:
            continue
        kind = next(b.kind for b in built if b.name == name)
        look = {"constructed": marker(place) + "-", "lower": ":", "upper": "--"}[kind]
        words = {"constructed": f"{name}, constructed", "lower": f"at least: {name}", "upper": f"enough: {name}"}[kind]
        # Problems may be sampled more than once.
        means = {x: fmean(y for at, y in points if at == x) for x, _ in points}
        axes.plot(list(means), list(means.values()), look, color=colour(place), label=words)


def _legend_below(axes: Axes, columns: int = 2) -> None:
    """Lines from the lower bound to the paper's constants leave no free corner."""
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.14), ncols=columns)


def _ticks_at(axes: Axes, places: Sequence[int]) -> None:
    """Plain numbers where something was measured: the powers of a logarithmic axis run into each other."""
    shown = places if len(places) < 9 else places[::2]  # more would run into each other, too
    axes.set_xticks(list(shown), [f"{place:,}" for place in shown])
    axes.xaxis.minorticks_off()


def _axis(experiment: Experiment) -> str:
    return "sequences N" if experiment.axis == "N" else "sequence length n"


def _grid(low: float, high: float, log: bool) -> list[float]:
    steps = [k / 100 for k in range(101)]
    return [low * (high / low) ** s if log else low + (high - low) * s for s in steps]
