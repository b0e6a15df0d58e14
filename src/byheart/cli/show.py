"""What people read in the terminal: tables of guaranteed, measured and necessary sizes."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from byheart.certify import Certificate
from byheart.data.wording import visible
from byheart.memory import Memory
from byheart.memory.size_rows import size_rows


def print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


class _Console(Console):
    """Lets `main` see that the reader of our output has gone; rich alone would end with the status of "not proved"."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(**options: Any) -> Console:
    """Standard output for people."""
    return _Console(highlight=False, **options)


def line(out: Console, text: str) -> None:
    """A line as it is: names from the data are not markup, and paths are not wrapped; it stays one line."""
    out.print(visible(text), markup=False, soft_wrap=True)


def size_table(memory: Memory) -> Table:
    """Guaranteed and measured sizes, and worst-case lower bounds, side by side."""
    table = Table(title=f"{memory.construction}: {memory.claim.ref}", title_justify="left")
    table.add_column("")
    for heading in (memory.claim.limit, "measured", "lower bound"):
        table.add_column(heading, justify="right")
    for row in size_rows(memory):
        table.add_row(row.meaning, _count(row.guaranteed), _count(row.measured), _count(row.lower_bound))
    return table


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def gap_table(memory: Memory) -> Table:
    """The distributions and how closely they are met."""
    found = memory.summary()
    table = Table(title="the distributions of what follows", title_justify="left", show_header=False)
    of_entropy = "" if found["relative_gap"] is None else f"  ({found['relative_gap']:.3g} of the entropy)"
    refuted = f", {found['labels_refuted']:,} refuted" if found["labels_refuted"] else ""
    for meaning, value in (
        ("contexts", f"{found['contexts']:,}"),
        ("vocabulary", _optional(found.get("vocabulary"))),
        ("entropy 𝓗", f"{found['entropy']:.6f} nats"),
        ("cross-entropy 𝓛", f"{found['cross_entropy']:.6f} nats"),
        ("gap 𝓛 - 𝓗", f"{found['gap']:.3g} nats{of_entropy}"),
        ("of it for zero probabilities", _optional(found.get("floor_excess"))),
        ("neurons", _optional(found.get("neurons"))),
        ("parameters per context", f"{found['parameters'] / found['contexts']:.2f}"),
        ("condition number", _optional(found.get("condition_number"))),
        ("closest two contexts", _optional(found.get("smallest_gap"))),
        ("likeliest labels proved", f"{found['labels_proved']:,} of {found['contexts']:,}{refuted}"),
    ):
        if value:
            table.add_row(meaning, value)
    return table


def _optional(value: float | int | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def verdict_line(memory: Memory) -> str:
    """What the checker has just found about a memory that was built now."""
    certificate = memory.certificate
    if certificate.verdict == "proved" and certificate.gap is None:
        rows = f"{certificate.labels:,} labels of {certificate.asked:,} rows"
        gone = sum(certificate.left_out.values())
        left = (
            f"; {gone:,} of {certificate.rows:,} rows were skipped ({', '.join(certificate.left_out)})" if gone else ""
        )
        return f"proved: {rows} reproduced in {certificate.arithmetic}{left}"
    return f"{certificate.verdict.value}: {certificate.reason}"


def certificate_lines(certificate: Certificate) -> list[str]:
    """The verdict about the given data: verdict, scope, guarantee, remarks."""
    lines = [f"{certificate.verdict.value}: {certificate.reason}", certificate.count_words]
    sizes = certificate.size.as_dict()
    compared = [f"{name} {sizes[name]:,} of {bound:,}" for name, bound in certificate.guaranteed.items()]
    lines.append(f"guarantee {certificate.guarantee}" + (f": {', '.join(compared)}" if compared else ""))
    lines += [f"{name}: {sentence}" for name, sentence in certificate.proofs.items()]
    return lines + [f"note: {remark}" for remark in certificate.remarks]
