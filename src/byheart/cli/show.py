"""What people read in the terminal: tables of promised, measured and necessary sizes."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from byheart.bounds import lower_bound
from byheart.compiler import Memory

_ROWS = {
    "parameters": "parameters (every entry of every matrix)",
    "nonzero": "of them not zero",
    "width": "width",
    "depth": "depth (layers and blocks)",
    "blocks": "blocks",
    "max_bits": "bits of the longest weight",
    "total_bits": "bits of all weights",
}


def print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def console() -> Console:
    return Console(highlight=False)


def size_table(memory: Memory) -> Table:
    """Promised, measured and the least that any network needs, side by side."""
    summary = memory.summary()
    least = lower_bound(task=memory.task.value, N=summary["contexts"], n=summary["n"], d=summary["d"], C=summary["C"])
    floor = {"parameters": least.parameters, "total_bits": least.total_bits}
    table = Table(title=f"{memory.construction}: {memory.claim.ref}", title_justify="left")
    for heading, justify in (("", "left"), ("promised", "right"), ("measured", "right"), ("at least", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for name, words in _ROWS.items():
        promised = memory.certificate.promised.get(name)
        table.add_row(words, _count(promised), _count(summary[name]), _count(floor.get(name)))
    return table


def _count(value: float | int | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def verdict_line(memory: Memory) -> str:
    certificate = memory.certificate
    if certificate.verdict == "proved":
        return (
            f"proved: {certificate.labels:,} labels of {certificate.rows:,} rows reproduced in {certificate.arithmetic}"
        )
    return f"{certificate.verdict.value}: {certificate.reason}"
