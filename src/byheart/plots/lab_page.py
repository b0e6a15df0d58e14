"""One HTML page per laboratory run: pictures inside, tables, how it was made. No file or address beside it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from byheart.plots.style import styled

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
    """The page. Figures are drawn into it as SVG, tables from rows that share their columns.

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
