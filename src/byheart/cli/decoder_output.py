"""What `byheart decoder` prints."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
from rich.table import Table

from byheart.cli import show
from byheart.compile.distribution_table import DistributionTable
from byheart.compile.documents import DecoderMemory
from byheart.data.dataset.targets import Distributions
from byheart.progress import Progress


def table_report(
    build: Callable[..., DistributionTable],
    contexts: Distributions,
    fraction: float,
    effort: int,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """Builds and proves the memory with a table of distributions; its numbers."""
    started = time.perf_counter()
    found = build(contexts, fraction=fraction, effort=effort, seed=seed, progress=progress)
    certificate = found.certificate
    return {
        "construction": "compact with a table of distributions",
        "contexts": contexts.count,
        "vocabulary": contexts.vocabulary_size,
        "entropy": certificate.entropy,
        "cross_entropy": certificate.entropy + certificate.gap_upper,
        "gap": certificate.gap_upper,
        "relative_gap": certificate.gap_upper / certificate.entropy if certificate.entropy else None,
        "parameters": found.parameters,
        "parameters_per_context": found.parameters / contexts.count,
        "memory_parameters": found.memory.size.parameters,
        "distributions": len(found.coordinates),
        "rank": found.rank,
        "max_bits": found.memory.size.max_bits,
        "condition_number": None,  # nothing is solved: the table comes from Newton steps
        "verdict": certificate.verdict.value,
        "reason": certificate.reason,
        "seconds": time.perf_counter() - started,
    }


def show_report(report: dict[str, Any], as_json: bool, quiet: bool) -> None:
    if as_json:
        show.print_json(report)
        return
    for name, value in report.items() if not quiet else [("verdict", report["verdict"])]:
        if value is not None:
            words, shown = name.replace("_", " "), f"{value:,.6g}" if isinstance(value, float) else value
            click.echo(f"{words:24}{shown}")


def show_memory(
    memory: DecoderMemory, output: str | None, text: str | None, promised: bool | None, *, fresh: bool, quiet: bool
) -> None:
    """The table of a fresh decoder, or of a file that is only looked at; then the text that was asked for."""
    out = show.console()
    certificate = memory.certificate
    if fresh or text is None:
        if not quiet:
            out.print(_table(memory))
        show.line(out, f"{certificate.verdict.value}: {certificate.reason} ({certificate.arithmetic})")
    if output is not None and not quiet:
        show.line(out, f"saved to {output}")
    if text is not None:
        out.print(text, markup=False, soft_wrap=True)  # as it is: it may have several lines
        if not promised and not quiet:
            click.echo("the prompt is no memorized context: nothing is proved about this continuation", err=True)


def _table(memory: DecoderMemory) -> Table:
    found = memory.summary()
    relative = (
        "  (the entropy is 0: every context has one continuation)"
        if found["relative_gap"] is None
        else f"  ({found['relative_gap']:.3g} of the entropy)"
    )
    shape = f"{found['mixer']}, dimension {found['dimension']}, {found['activation']}"
    table = Table(title=f"{found['construction']}: one-layer decoder, {shape}", title_justify="left", show_header=False)
    refuted = f", {found['labels_refuted']:,} refuted" if found["labels_refuted"] else ""
    for meaning, value in (
        ("contexts", f"{found['contexts']:,}"),
        ("vocabulary", f"{found['vocabulary']:,}"),
        ("entropy 𝓗", f"{found['entropy']:.6f} nats"),
        ("cross-entropy 𝓛", f"{found['cross_entropy']:.6f} nats"),
        ("gap 𝓛 - 𝓗", f"{found['gap']:.3g} nats{relative}"),
        ("of it for zero probabilities", _number(found["floor_excess"], " nats")),
        ("neurons", f"{found['neurons']:,}"),
        ("parameters", f"{found['parameters']:,}"),
        ("parameters per context", f"{found['parameters_per_context']:.2f}"),
        ("condition number", _number(found["condition_number"])),
        ("residual", _number(found["residual"])),
        ("closest two contexts", _number(found["smallest_gap"])),
        ("largest weight, norm of V", f"{found['largest_weight']:.3g}, {found['output_norm']:.3g}"),
        ("labels proved", f"{found['labels_proved']:,} of {found['contexts']:,}{refuted}"),
        ("seconds", _seconds(found)),
    ):
        if value:
            table.add_row(meaning, value)
    for note in found["notes"]:
        table.add_row("note", note)
    return table


def _number(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.3g}{unit}"


def _seconds(found: dict[str, Any]) -> str:
    if found["build_seconds"] is None:
        return ""
    return f"{found['build_seconds']:.2f} to build, {found['certify_seconds']:.2f} to prove"
