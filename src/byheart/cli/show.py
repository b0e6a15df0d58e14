"""What people read in the terminal: tables of promised, measured and necessary sizes."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from byheart.compile import Memory
from byheart.compile.size_rows import size_rows


def print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def console() -> Console:
    return Console(highlight=False)


def line(out: Console, text: str) -> None:
    """A line as it is: names from the data are no markup, and paths are not wrapped."""
    out.print(text, markup=False, soft_wrap=True)


def size_table(memory: Memory) -> Table:
    """Promised, measured and the least that any network needs, side by side."""
    table = Table(title=f"{memory.construction}: {memory.claim.ref}", title_justify="left")
    for heading, justify in (("", "left"), ("promised", "right"), ("measured", "right"), ("no network below", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for row in size_rows(memory):
        table.add_row(row.meaning, _count(row.promised), _count(row.measured), _count(row.least))
    return table


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def verdict_line(memory: Memory) -> str:
    certificate = memory.certificate
    if certificate.verdict == "proved":
        return (
            f"proved: {certificate.labels:,} labels of {certificate.rows:,} rows reproduced in {certificate.arithmetic}"
        )
    return f"{certificate.verdict.value}: {certificate.reason}"
