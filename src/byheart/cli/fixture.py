"""byheart fixture: a small checkpoint with known answers, for the tests of an inference engine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from byheart.checkpoints.hosts._base import hosts
from byheart.checkpoints.suite import Fixture, MutantReport, check_mutants, write_fixture
from byheart.cli import show
from byheart.cli.data_options import output_options, progress_for, shape_options
from byheart.errors import DataError, OptionError
from byheart.progress import Progress


@click.command("fixture")
@click.option("--arch", "architectures", metavar="NAME", multiple=True, help="Architecture; several, or all [llama].")
@click.option("-o", "--output", metavar="DIR", type=click.Path(), help="The folder to write.")
@click.option("--text", metavar="FILE", type=click.Path(), help="Memorize this text instead of the built-in poem.")
@click.option("--tokens", default="bpe:400", show_default=True, help="How the text is cut into tokens.")
@click.option("--dtype", type=click.Choice(["bfloat16", "float16", "float32"]), default="bfloat16", show_default=True)
@click.option("--flavour", metavar="NAME", help="parabola, or quantized: a plateau, for integer weights [parabola].")
@shape_options
@click.option("--head-dim", type=click.IntRange(8), metavar="N", help="Dimensions of a head [64].")
@click.option("--intermediate-size", type=click.IntRange(1), metavar="N", help="Units of an MLP [as many as needed].")
@click.option("--rope-theta", type=click.FloatRange(1, min_open=True), metavar="X", help="Base of rotary positions.")
@click.option("--norm-eps", type=click.FloatRange(0, min_open=True), metavar="X", help="Epsilon of the norms.")
@click.option("--activation", metavar="NAME", help="silu or gelu_pytorch_tanh, where the gate allows both.")
@click.option("--tied/--untied", default=None, help="Whether the head is the embedding [as the architecture has it].")
@click.option("--sequential-residual", is_flag=True, help="GPT-NeoX without parallel branches.")
@click.option("--check-mutants", "mutants", is_flag=True, help="Which faults of an engine does it notice? (minutes)")
@output_options
def command(
    architectures: tuple[str, ...],
    output: str | None,
    text: str | None,
    tokens: str,
    dtype: str,
    flavour: str | None,
    shape: dict[str, int],
    head_dim: int | None,
    intermediate_size: int | None,
    rope_theta: float | None,
    norm_eps: float | None,
    activation: str | None,
    tied: bool | None,
    sequential_residual: bool,
    mutants: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write a checkpoint for a short text, with expected.json and a test for pytest.

    \b
      byheart fixture --arch qwen3 -o tiny-qwen3
      byheart fixture --arch llama --hidden-size 512 --layers 4 --heads 8 --kv-heads 2 -o like-mine
      byheart fixture --arch llama --check-mutants
    """
    names = _names(architectures)
    if output is None and not mutants:
        raise click.UsageError("name the folder to write with -o, or ask for --check-mutants")
    if output is not None and len(names) > 1:
        raise click.UsageError("-o takes one architecture; with several, leave -o out and ask for --check-mutants")
    options = {
        "dtype": dtype, "flavour": flavour, "text": _text(text), "tokens": tokens, **shape, "head_dim": head_dim,
        "units": intermediate_size, "theta": rope_theta, "epsilon": norm_eps, "activation": activation, "tied": tied,
        "sequential": sequential_residual or None,
    }  # fmt: skip
    progress = progress_for(as_json, quiet)
    rows = [_one(name, output, mutants, options, progress) for name in names]
    if as_json:
        shown = [fixture.to_json() | ({} if report is None else report.to_json()) for fixture, report in rows]
        show.print_json(shown[0] if len(shown) == 1 else {"fixtures": shown})
    else:
        _print(rows, kept=output is not None, quiet=quiet)
    return 0 if all(report is None or report.passed for _, report in rows) else 1


def _names(given: tuple[str, ...]) -> list[str]:
    known = list(hosts())
    names = known if "all" in given else [name.replace("_", "-").lower() for name in given or ("llama",)]
    for name in names:
        if name not in known:
            raise OptionError(f"unknown architecture {name!r}; known: {', '.join(known)}")
    return names


def _text(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _one(
    name: str, output: str | None, mutants: bool, options: dict[str, Any], progress: Progress
) -> tuple[Fixture, MutantReport | None]:
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(output) if output is not None else Path(scratch) / name
        fixture = write_fixture(name, target, progress=progress, **options)
        return fixture, check_mutants(target, progress) if mutants else None


def _print(rows: list[tuple[Fixture, MutantReport | None]], *, kept: bool, quiet: bool) -> None:
    out = show.console()
    for fixture, _ in rows if kept else []:
        leads = ", ".join(f"{name} {_lead(values)}" for name, values in fixture.margins.items())
        show.line(
            out,
            f"wrote {fixture.folder}: {fixture.architecture}, {fixture.tokens} tokens, "
            f"{fixture.parameters:,} parameters"
            f", {fixture.size / 1e6:.2f} MB; least lead in nats: {leads}",
        )
    reports = [report for _, report in rows if report is not None]
    if reports:
        table = Table(title="Faults of an engine that the fixture notices", title_justify="left")
        for heading in ("", "faults", "wrong tokens", "wrong logits", "unnoticed", "harmless", "of these survived"):
            table.add_column(heading, justify="right" if heading else "left")
        for report in reports:
            harmless = [o for o in report.outcomes if o.harmless]
            counts = (report.total, report.count("tokens"), report.count("logits"), report.count("survived"),
                      len(harmless), len(harmless) - len(report.broken))  # fmt: skip
            table.add_row(report.architecture, *map(str, counts))
        out.print(table)
        for report in [] if quiet else reports:
            for outcome in report.survivors:
                show.line(out, f"{report.architecture}: unnoticed: {outcome.family}: {outcome.name}")
            for outcome in report.broken:
                show.line(out, f"{report.architecture}: harmless, but it breaks: {outcome.name}")


def _lead(values: Mapping[str, float | None]) -> str:
    proved, measured = values["proved"], values["measured"]
    words = f"proved {proved:.2f}" if proved is not None else "not proved"
    return words + (
        f" (measured {measured:.2f})" if measured is not None else " (not measured: Transformers is missing)"
    )
