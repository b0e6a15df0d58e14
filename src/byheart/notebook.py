"""What memories, certificates, comparisons and bounds look like in a notebook: one small card of HTML.

The card takes colours and fonts from the notebook, so that it is readable in light and dark; every text is escaped,
because labels, tokens and file names may hold HTML.

>>> print(card("2 < 3", [("verdict", "proved")], tone="good")[:94])
<div style="border:1px solid rgba(128,128,128,.4);border-left:5px solid rgba(46,160,67,.9);bor
>>> "2 &lt; 3" in card("2 < 3", [])
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

TONES = {
    "good": "rgba(46,160,67,.9)",
    "bad": "rgba(218,54,51,.9)",
    "open": "rgba(191,135,0,.9)",
    "": "rgba(128,128,128,.6)",
}
LINE = "1px solid rgba(128,128,128,.4)"
EDGE = "border-left:5px solid {tone};border-radius:6px"
CARD = f"border:{LINE};{EDGE};padding:.5em .9em;display:inline-block;max-width:100%"
CELL = (
    f"padding:.15em .7em .15em 0;border:0;border-bottom:{LINE};background:none;text-align:{{side}};vertical-align:top"
)
# Rows and characters of a card.
MOST_ROWS, MOST_TEXT = 40, 400


def tone_of(verdict: str) -> str:
    """The colour of a verdict's edge.

    >>> tone_of("proved"), tone_of("refuted"), tone_of("undecided")
    ('good', 'bad', 'open')
    """
    return {"proved": "good", "refuted": "bad"}.get(verdict, "open")


def card(
    title: str,
    facts: Iterable[tuple[str, object]],
    *,
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[object]] = (),
    tone: str = "",
) -> str:
    """A title, facts as lines `name: value`, and a table; numbers get separators, empty facts are omitted."""
    lines = "".join(f"<div>{_text(name)}: {_text(value)}</div>" for name, value in facts if value not in (None, "", ()))
    return f'<div style="{CARD.format(tone=TONES[tone])}"><b>{_text(title)}</b>{lines}{_table(columns, rows)}</div>'


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return ""
    head = "".join(_cell("th", name, k) for k, name in enumerate(columns))
    body = "".join(f"<tr>{''.join(_cell('td', v, k) for k, v in enumerate(row))}</tr>" for row in rows[:MOST_ROWS])
    more = f"<div>… and {len(rows) - MOST_ROWS:,} more</div>" if len(rows) > MOST_ROWS else ""
    table = f'<table style="border-collapse:collapse;margin:.4em 0 0;background:none"><tr>{head}</tr>{body}</table>'
    return f'<div style="overflow-x:auto">{table}</div>{more}'


def _cell(tag: str, value: object, column: int) -> str:
    side = "left" if column == 0 or (isinstance(value, str) and tag == "td") else "right"
    return f'<{tag} style="{CELL.format(side=side)}">{_text(value)}</{tag}>'


def _text(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape(text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…")
