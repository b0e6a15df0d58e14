"""byheart suite: every case of every kind in one engine, as a table, JSON, JUnit XML and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from byheart.cli import show
from byheart.cli.data_options import output_options, progress_for
from byheart.errors import OptionError
from byheart.files import check_target
from byheart.progress import Progress

DEFAULT_TYPES = ("float32", "bfloat16", "float16")


@click.command("suite")
@click.argument("folders", metavar="[DIR]...", nargs=-1, type=click.Path(exists=True, file_okay=False))
@click.option("--engine", metavar="NAME", help="The engine that runs the cases [transformers].")
@click.option("--url", metavar="URL", help="An OpenAI-compatible server on this machine that serves DIR.")
@click.option("--arch", "architectures", metavar="NAME", multiple=True, help="Architecture; several, or all [llama].")
@click.option("--kind", "kinds", metavar="NAME", multiple=True, help="Kind of fixture; several, or all [all].")
@click.option("--dtype", "types", metavar="TYPE", multiple=True, help="Type that the engine computes in; several.")
@click.option("--option", "settings", metavar="KEY=VALUE", multiple=True, help="A setting of the engine.")
@click.option("--only", metavar="TEXT", default="", help="Run the cases with this text in their id.")
@click.option("--coarse", is_flag=True, help="Skip sensors: cache, weights or products have few bits.")
@click.option("--requests", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Load: at most.")
@click.option("--concurrency", type=click.IntRange(1, 256), default=8, show_default=True, help="Load: at once.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=60.0, show_default=True, help="Load: at most.")
@click.option("--junit", "junit_path", metavar="FILE", type=click.Path(), help="Write JUnit XML.")
@click.option("--html", "html_path", metavar="FILE", type=click.Path(), help="Write one HTML page.")
@output_options
def command(
    folders: tuple[str, ...],
    engine: str | None,
    url: str | None,
    architectures: tuple[str, ...],
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    settings: tuple[str, ...],
    only: str,
    coarse: bool,
    requests: int,
    concurrency: int,
    seconds: float,
    junit_path: str | None,
    html_path: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run every case of the fixtures in DIR, or of cached ones, in an engine.

    Exit status: 0 every case that ran is correct, 1 a case is incorrect or not one ran, 2 bad input.

    \b
      byheart suite --arch llama
      byheart suite --engine llama.cpp --dtype F16 --kind recital --junit suite.xml --html suite.html
      byheart suite --url http://127.0.0.1:8000 tiny-qwen3 --requests 500 --concurrency 16
    """
    if url is not None and (engine is not None or types or settings or not folders):
        raise click.UsageError("--url needs the folders that the server serves, and no --engine, --dtype or --option")
    for path in (junit_path, html_path):
        if path is not None:
            check_target(Path(path))
    progress = progress_for(as_json, quiet)
    chosen = [Path(folder) for folder in folders] or _cached(architectures, kinds, progress)
    from byheart.checkpoints.suite.report import write_reports
    from byheart.checkpoints.suite.runner import run_suite

    if url is not None:
        from byheart.checkpoints.suite.server import ServerAdapter, loopback

        address = loopback(url)
        report = run_suite(
            chosen, lambda _: lambda folder: ServerAdapter(folder, address), ("served",), engine=address, only=only,
            coarse=coarse, progress=progress,
        )  # fmt: skip
        load = _drive(chosen, address, only, coarse, requests, concurrency, seconds)
    else:
        report, load = _run(chosen, engine or "transformers", types, settings, only, coarse, progress), None
    write_reports(report, junit_path, html_path)
    passed = report.verdict == "correct" and (load is None or load.passed)
    if as_json:
        show.print_json(report.to_json() | ({} if load is None else {"load": load.to_json()}))
    elif quiet:
        click.echo("correct" if passed else "incorrect" if report.verdict != "skipped" else "skipped")
    else:
        _print(report, load)
    return 0 if passed else 1


def _cached(architectures: Sequence[str], kinds: Sequence[str], progress: Progress) -> list[Path]:
    """The cached fixtures; with `all`, a kind that does not support an architecture is skipped."""
    from byheart.checkpoints.hosts._base import hosts
    from byheart.checkpoints.suite import kinds as registry
    from byheart.checkpoints.suite.cases import cached_fixture

    every = "all" in kinds or not kinds
    known = registry.kinds()
    everything = "all" in architectures
    given = [a.replace("_", "-").lower() for a in architectures or ("llama",)]
    names = list(hosts(every=True)) if everything else given
    found = []
    for architecture in names:
        for kind in list(known) if every else kinds:
            try:
                found.append(cached_fixture(kind, architecture, progress=progress))
            except OptionError:
                if not every or kind == "recital":
                    raise
    return found


def _run(
    folders: Sequence[Path],
    engine: str,
    types: Sequence[str],
    settings: Sequence[str],
    only: str,
    coarse: bool,
    progress: Progress,
) -> Any:
    from byheart.checkpoints.engines._base import find
    from byheart.checkpoints.suite.adapters import engine_adapter
    from byheart.checkpoints.suite.runner import run_suite
    from byheart.cli.recite import _pairs

    chosen, options = find(engine), _pairs(tuple(settings))
    types = types or [t for t in DEFAULT_TYPES if t in chosen.types] or chosen.types[:1]
    openers = {dtype: engine_adapter(engine, dtype, options) for dtype in types}
    return run_suite(
        folders, lambda dtype: openers[dtype], list(types), engine=engine, version=str(chosen.version), only=only,
        coarse=coarse, progress=progress,
    )  # fmt: skip


def _drive(
    folders: Sequence[Path], url: str, only: str, coarse: bool, requests: int, concurrency: int, seconds: float
) -> Any:
    """The load: all cases of the folders, and the serving cases of those that recite."""
    from byheart.checkpoints.suite.runner import all_cases
    from byheart.checkpoints.suite.server import ServerAdapter, drive

    every = [case for folder in folders for case in all_cases(folder) if only in case.id]
    chosen = [case for case in every if not (coarse and case.sensor)]
    adapter = ServerAdapter(folders[0], url)
    return drive(adapter, chosen, requests=requests, concurrency=concurrency, seconds=seconds)


def _print(report: Any, load: Any) -> None:
    from byheart.checkpoints.suite.report import HEADINGS, table_rows

    out = show.console()
    table = Table(title=f"{report.engine} {report.version}".strip(), title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in HEADINGS[:3] + HEADINGS[-1:] else "right")
    for row in table_rows(report):
        table.add_row(*row)
    out.print(table)
    for row, result in report.results:
        if result.status == "correct" and result.reason:
            show.line(out, f"{result.case.name}: {result.reason}")
        if not result.passed:
            show.line(out, f"{result.case.id} ({row.dtype}): {result.first or result.reason}")
            if result.first is not None and result.reason:
                show.line(out, f"  {result.reason}")
    if load is not None:
        figures = load.to_json()
        show.line(
            out,
            f"load: {load.correct} of {load.requests} answers correct, {load.concurrency} at once, "
            f"{load.seconds:.1f} s, median {figures['median_seconds']} s",
        )
        for message in figures["first_incorrect"]:
            show.line(out, f"load: {message}")
    show.line(out, report.verdict)
