"""byheart lab: train the networks of the papers and measure how much they memorize."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich import box
from rich.live import Live
from rich.table import Table

from byheart.cli import show
from byheart.cli.brief_help import BriefCommand
from byheart.cli.lab_output import publish
from byheart.errors import OptionError
from byheart.lab import results
from byheart.lab.presets import PRESETS, SCALES, experiment_of
from byheart.lab.study.experiment import TrialRecord
from byheart.lab.study.run import (
    DataPlace,
    Settings,
    default_processes,
    look,
    read_settings,
    resume_run,
    start_run,
    work_here,
)
from byheart.lab.study.storage import check_database, hidden
from byheart.lab.study.study import Study, open_study
from byheart.progress import SILENT, console_progress

F = TypeVar("F", bound=Callable[..., Any])


def _processes(command: F) -> F:
    words = "Trials at a time (default: one per core for run and worker, as before for resume)."
    return click.option("--processes", type=click.IntRange(min=1), help=words)(command)


def _output(command: F) -> F:
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")(command)
    return click.option("--quiet", is_flag=True, help="Print nothing while training.")(command)


def _data(command: F) -> F:
    folder = "Folder with mnli.jsonl, imdb.jsonl, tinystories.jsonl (default: $BYHEART_DATA, data, ../shared/data)."
    command = click.option("--data-folder", metavar="FOLDER", help=folder)(command)
    return click.option("--data", metavar="FILE", help="JSON Lines file to use instead of the preset's own.")(command)


def _executor(command: F) -> F:
    words = "processes, threads, serial, dask[:ADDRESS], or module:function that gives a concurrent.futures.Executor."
    return click.option("--executor", default="processes", show_default=True, help=words)(command)


def _heartbeat(command: F) -> F:
    words = "Seconds between signs of life in a database; one that is silent for three of them counts as dead."
    return click.option("--heartbeat", type=click.IntRange(min=1), default=30, show_default=True, help=words)(command)


class _BriefGroup(click.Group):
    """A group whose commands have brief help."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return None if found is None else BriefCommand.of(found)


@click.group("lab", cls=_BriefGroup)
def command() -> None:
    """Measure how much trained networks memorize, with the papers' experiments.

    \b
      byheart lab run ks25-fig1 --scale small --output fig1     train, tabulate, draw
      byheart lab status fig1                                   how far it is
      byheart lab resume fig1                                   after an interruption
      byheart lab worker --storage postgresql://host/studies    help from another machine
    """


PRESET_LINES = "\n".join(["\b", "Presets:", *(f"  {name:20}  {preset.title}" for name, preset in PRESETS.items())])


@command.command(epilog=PRESET_LINES)
@click.argument("preset")
@click.option("--scale", default="small", show_default=True, help=f"One of {', '.join(SCALES)}.")
@click.option("--output", metavar="FOLDER", help="Where the study, tables and pictures go (default: PRESET-SCALE).")
@click.option("--storage", metavar="URL", help="Keep the study in a database that workers share: postgresql://…")
@click.option("--embedding", metavar="KIND", help="Words as fixed:D (random vectors of dimension D) or trained.")
@click.option("--engine", default="auto", show_default=True, help="What trains: auto, kernel, stacked, compiled, …")
@click.option("--seed", default=0, show_default=True)
@click.option("--plots/--no-plots", default=True, help="Draw pictures and the page at the end, besides tables.")
@click.option("--constructed/--no-constructed", default=True, help="Build the same data for comparison.")
@_processes
@_executor
@_data
@_heartbeat
@_output
def run(
    preset: str,
    scale: str,
    output: str | None,
    storage: str | None,
    embedding: str | None,
    engine: str,
    seed: int,
    plots: bool,
    constructed: bool,
    processes: int | None,
    executor: str,
    data: str | None,
    data_folder: str | None,
    heartbeat: int,
    quiet: bool,
    as_json: bool,
) -> int:
    """Run PRESET, an experiment of a paper; the list is below.

    A folder that already contains the run is resumed.

    \b
      byheart lab run ks25-fig1 --scale small --output fig1
    """
    experiment = experiment_of(preset, scale, seed, _embedding(embedding), engine)
    folder = Path(output or f"{preset}-{scale}")
    place = DataPlace(data, data_folder)
    options = {"storage": storage, "data": place, "executor": executor, "processes": processes, "heartbeat": heartbeat}
    on_record = _teller(quiet or as_json)
    study = _kept(folder, lambda: start_run(folder, experiment, on_record=on_record, **options))  # type: ignore[arg-type]
    return _report(folder, study, place, plots, constructed, as_json, quiet)


@command.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--storage", metavar="URL", help="The database's address again, if it needs a password.")
@click.option("--plots/--no-plots", default=True)
@click.option("--constructed/--no-constructed", default=True)
@_processes
@_output
def resume(
    folder: Path,
    storage: str | None,
    plots: bool,
    constructed: bool,
    processes: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Continue an interrupted run in FOLDER; finished trials are neither lost nor repeated.

    \b
      byheart lab resume fig1
    """
    on_record = _teller(quiet or as_json)
    study = _kept(folder, lambda: resume_run(folder, storage=storage, processes=processes, on_record=on_record))
    settings = read_settings(folder)
    place = DataPlace(settings.data, settings.data_folder)
    return _report(folder, study, place, plots, constructed, as_json, quiet)


@command.command()
@click.option("--storage", metavar="URL", required=True, help="The database that the run was started with.")
@click.option("--study", "name", metavar="NAME", help="Which study (default: the only one).")
@_processes
@_executor
@_data
@_heartbeat
@_output
def worker(
    storage: str,
    name: str | None,
    processes: int | None,
    executor: str,
    data: str | None,
    data_folder: str | None,
    heartbeat: int,
    quiet: bool,
    as_json: bool,
) -> int:
    """Help with a study in a shared database, on as many machines as you like, until it is done.

    \b
      byheart lab worker --storage postgresql://host/studies
    """
    study = open_study(check_database(storage), name, heartbeat)
    slots = default_processes() if processes is None else processes
    settings = Settings(study.name, hidden(storage), data, data_folder, executor, slots, heartbeat)
    done: list[TrialRecord] = []
    speak = _teller(quiet or as_json)

    def on_record(record: TrialRecord) -> None:
        done.append(record)
        speak(record)

    work_here(study, settings, alone=False, on_record=on_record)
    if as_json:
        show.print_json({"study": study.name, "trained": len(done), "keys": [record.key for record in done]})
    elif not quiet:
        click.echo(f"{study.name} is done; {len(done)} trials were trained here")
    return 0


@command.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--storage", metavar="URL", help="A database instead of a folder.")
@click.option("--study", "name", metavar="NAME")
@click.option("--watch", is_flag=True, help="Keep running, and refresh every two seconds until it is done.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def status(folder: Path | None, storage: str | None, name: str | None, watch: bool, as_json: bool) -> int:
    """How far the run in FOLDER, or the study in a database, is.

    \b
      byheart lab status fig1 --json
    """
    if folder is None and storage is None:
        raise click.UsageError("give a FOLDER or --storage URL")
    study = look(folder, storage) if folder is not None else open_study(check_database(str(storage)), name)
    if as_json:
        show.print_json({**results.plain_tables(study), "states": study.counts()})
        return 0
    with Live(_table(study), console=show.console(), auto_refresh=False) as live:
        while watch and not study.done():
            time.sleep(2)
            live.update(_table(study), refresh=True)
    click.echo(_states(study))
    return 0


@command.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--storage", metavar="URL", help="The database's address again, if it needs a password.")
@click.option("--constructed/--no-constructed", default=True, help="Build the same data for comparison.")
@click.option(
    "--output",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Where to write them (default: the same folder).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def plot(folder: Path, storage: str | None, constructed: bool, output: Path | None, as_json: bool) -> int:
    """Draw the run in FOLDER again: PNG, SVG and one HTML page that needs nothing else.

    \b
      byheart lab plot fig1
    """
    settings = read_settings(folder)
    place = DataPlace(settings.data, settings.data_folder)
    progress = SILENT if as_json else console_progress()
    target = output or folder
    names = publish(target, look(folder, storage), place, True, constructed, progress)
    if as_json:
        show.print_json({"folder": str(target), "files": names})
    else:
        click.echo("\n".join(str(target / name) for name in names))
    return 0


@command.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, metavar="FILE", help="A name that ends in .csv, .parquet or .jsonl.")
@click.option("--storage", metavar="URL", help="The database's address again, if it needs a password.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def export(folder: Path, output: str, storage: str | None, as_json: bool) -> int:
    """Every finished trial of FOLDER as one row: .csv and .parquet, or .jsonl with the curves.

    \b
      byheart lab export fig1 -o trials.csv
    """
    count = results.export_rows(look(folder, storage), Path(output))
    if as_json:
        show.print_json({"file": output, "rows": count})
    else:
        click.echo(f"{count} trials in {output}")
    return 0


def _embedding(text: str | None) -> int | str | None:
    if text is None:
        return "preset"
    if text == "trained":
        return None
    kind, _, dimension = text.partition(":")
    if kind != "fixed" or not dimension.isdigit() or int(dimension) < 1:
        raise OptionError(f"--embedding {text!r}: write fixed:32 (or another dimension) or trained")
    return int(dimension)


def _teller(quiet: bool) -> Callable[[TrialRecord], None]:
    def tell(record: TrialRecord) -> None:
        outcome = record.outcome
        click.echo(
            f"{record.problem.name}, size {record.model.size}: {outcome.state} after {outcome.epochs} epochs, "
            f"loss {outcome.loss:.4g}, accuracy {outcome.accuracy:.4f}, {outcome.seconds:.1f} s",
            err=True,
        )

    return (lambda record: None) if quiet else tell


def _kept(folder: Path, action: Callable[[], Study]) -> Study:
    try:
        return action()
    except KeyboardInterrupt:
        click.echo(f"byheart: interrupted; finished trials are kept: byheart lab resume {folder}", err=True)
        sys.exit(130)


def _report(
    folder: Path, study: Study, place: DataPlace, plots: bool, constructed: bool, as_json: bool, quiet: bool
) -> int:
    progress = SILENT if as_json or quiet else console_progress()
    names = publish(folder, study, place, plots, constructed, progress)
    if as_json:
        show.print_json({**results.plain_tables(study), "folder": str(folder), "files": names})
        return 0
    show.console().print(_table(study))
    for name in names:
        click.echo(str(folder / name) if not name.startswith("(") else name)
    return 0


def _table(study: Study) -> Table:
    """The least sizes of a search, or the best trial of every cell."""
    experiment, finished = study.experiment, study.finished()
    preset = PRESETS.get(experiment.preset)
    title = f"{preset.title if preset else experiment.preset} ({experiment.scale})"
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    unit = "#blocks" if experiment.model == "uniform" else "neurons"
    if experiment.kind == "minimum":
        for heading in ("problem", f"least {unit}", "parameters", "largest that failed"):
            grid.add_column(heading, justify="left" if heading == "problem" else "right", no_wrap=heading == "problem")
        for m in results.minima(experiment, finished):
            grid.add_row(m.problem, *(_cell(v) for v in (m.size, m.parameters, m.largest_failed)))
        return grid
    for heading in ("problem", unit, "parameters", "runs", "loss", "accuracy", "memorized"):
        grid.add_column(heading, justify="left" if heading == "problem" else "right", no_wrap=heading == "problem")
    for row in results.table(experiment, finished):
        numbers = (_cell(v) for v in (row.size, row.parameters, row.trials))
        grid.add_row(row.problem, *numbers, f"{row.loss:.4f}", f"{row.accuracy:.4f}", "yes" if row.memorized else "no")
    return grid


def _cell(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _states(study: Study) -> str:
    states = ", ".join(f"{count} {state}" for state, count in sorted(study.counts().items())) or "no trial yet"
    return f"{study.name}: {states}; " + ("done" if study.done() else "not done")
