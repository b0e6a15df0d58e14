"""byheart compare: every construction on the same data, side by side.

A trained network beside the built ones: the laboratory looks for the smallest that memorizes, in limited time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from byheart.cli import show
from byheart.cli.data_options import DataFlags, data_options, output_options, progress_for
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import MissingExtraError, OptionError
from byheart.files import write_atomically
from byheart.memory.compare.comparison import compare_growth, random_dataset, subsets
from byheart.memory.compare.rows import CompareRow, Comparison, csv_table, gentle_bits, gentle_growth, growth_exponents

# Blocks that are tried in turn.
BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)
EPOCHS, RATE = 2000, 0.01


def with_trained(comparison: Comparison, dataset: Dataset, seconds: float, seed: int) -> Comparison:
    """The comparison with one more row, before the baselines."""
    rows = list(comparison.rows)
    place = next((k for k, row in enumerate(rows) if row.verdict == "baseline"), len(rows))
    rows.insert(place, trained_row(dataset, seconds, seed))
    return replace(comparison, rows=tuple(rows))


def trained_row(dataset: Dataset, seconds: float, seed: int) -> CompareRow:
    """KS25's trained network with more and more blocks until one memorizes every row, or the time is up."""
    if dataset.encoder.task is not Task.NEXT_TOKEN:
        raise OptionError(f"--trained trains for one label per row, not for {dataset.encoder.task}")
    try:
        from byheart.lab.config import Training, Uniform
        from byheart.lab.engines.training import Goal, train
        from byheart.lab.problem import Sequences
    except ImportError as error:
        raise MissingExtraError("training a network", "lab") from error
    points = dataset.inputs.points
    vectors = np.array([[x / points.denominator for x in row] for row in points.numerators], dtype=np.float64)
    vectors = (vectors - vectors.mean(axis=0)) / np.where(vectors.std(axis=0) > 0, vectors.std(axis=0), 1.0)
    table = None if dataset.encoder.symbols is not None else vectors
    problem = Sequences("compare", table, dataset.inputs.index, dataset.labels, max(2, dataset.C), read=dataset.n - 1)
    started, best = time.perf_counter(), 0.0
    for blocks in BLOCKS:
        model = Uniform(blocks=blocks, m=4, q=16)
        plan = Training(epochs=EPOCHS, rate=RATE, warmup=0.05, clip=1.0, seed=seed)
        outcome = train(problem, model, plan, Goal(accuracy=True))
        best = max(best, outcome.accuracy)
        spent = time.perf_counter() - started
        if outcome.memorized or outcome.accuracy == 1.0:
            size = model.parameters(problem)
            sentence = f"memorized after {outcome.epochs} epochs with {blocks} blocks on either side; checked in floats"
            return CompareRow(
                "trained", "trained", sentence, "KS25, Equation (165)", "found by gradient descent",
                parameters=size, nonzero=size, max_bits=32, total_bits=32 * size, width=model.q, depth=2 * blocks + 1,
                attention_layers=1, build_seconds=round(spent, 3),
            )  # fmt: skip
        if spent > seconds:
            break
    tried = f"no network of up to {blocks} blocks memorized all rows in {seconds:g} seconds"
    sentence = f"{tried}; the best had {best:.1%} correct"
    return CompareRow("trained", "not found", sentence, "KS25, Equation (165)", "searched for by gradient descent")


COLUMNS = (
    ("parameters", "parameters"),
    ("nonzero", "nonzero"),
    ("max_bits", "max bits"),
    ("total_bits", "total bits"),
    ("depth", "depth"),
    ("width", "width"),
    ("attention_layers", "attention"),
)
DISPENSABLE = ("max_bits", "width", "nonzero", "depth", "attention_layers", "total_bits")  # the first goes first


@click.command("compare")
@click.argument("data", metavar="[DATA]", required=False)
@click.option("--task", type=click.Choice([t.value for t in Task]), default="next-token", show_default=True)
@click.option("--positions/--no-positions", default=True, show_default=True, help="Whether the order matters.")
@click.option("--construction", "constructions", multiple=True, help="Only this one; repeatable.")
@click.option("--grid", metavar="N=100,300,…", help="Random data of these sizes, or growing parts of DATA.")
@click.option("--n", "n", type=click.IntRange(1), default=8, show_default=True, help="Tokens per row of random data.")
@click.option("--d", "d", type=click.IntRange(1), default=8, show_default=True, help="Dimension of random tokens.")
@click.option("--C", "classes", type=click.IntRange(1), default=2, show_default=True, help="Classes of random data.")
@click.option(
    "--time-limit", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Seconds per construction."
)
@click.option("--memory-gb", type=click.FloatRange(0.5), default=8.0, show_default=True, help="GiB per construction.")
@click.option("--csv", "csv_file", metavar="FILE", help="Write the rows as CSV.")
@click.option("--html", "html_file", metavar="FILE", help="Write a page with the table and log-log plots.")
@click.option("--trained", is_flag=True, help="Also train a network on the data (needs byheart[lab]).")
@click.option("--seed", default=0, show_default=True)
@data_options()
@output_options
def command(
    data: str | None,
    task: str,
    positions: bool,
    constructions: tuple[str, ...],
    grid: str | None,
    n: int,
    d: int,
    classes: int,
    time_limit: float,
    memory_gb: float,
    csv_file: str | None,
    html_file: str | None,
    trained: bool,
    seed: int,
    flags: DataFlags,
    as_json: bool,
    quiet: bool,
) -> int:
    """Build every construction for DATA (or random data), certify each, and show their sizes side by side.

    \b
      byheart compare names.csv
      byheart compare names.csv --html names.html
      byheart compare --grid N=100,300,1000 --n 8 --d 8
    """
    if data is None and grid is None:
        raise OptionError("give DATA, or --grid N=100,300 for random data")
    sizes = parse_grid(grid) if grid else None
    if data is None:
        datasets = [random_dataset(size, n, d, classes, task, seed) for size in sizes or []]
    else:
        dataset = flags.settle(flags.read(data, Task(task)), Task(task), positions).dataset
        datasets = _parts(dataset, sizes, html_file is not None, seed)
    progress = progress_for(as_json, quiet)
    found = compare_growth(
        datasets,
        constructions=constructions or None,
        time_limit=time_limit,
        memory_gb=memory_gb,
        seed=seed,
        progress=progress,
    )
    if trained:
        found[-1] = with_trained(found[-1], datasets[-1], time_limit, seed)
    if csv_file:
        write_atomically(Path(csv_file), csv_table(found).encode("utf-8"))
    if html_file:
        from byheart.report.compare_page import write

        write(found, Path(html_file))
    if as_json:
        grown = growth_exponents(found)
        fields = {**found[-1].as_dict(), "grid": [part.as_dict() for part in found], "exponents": grown}
        show.print_json({**fields, "csv": csv_file, "html": html_file})
    else:
        _print(found)
        for name, path in (("rows", csv_file), ("page", html_file)):
            if path:
                show.console().print(f"{name} written to {path}")
    return 0 if all(part.all_proved for part in found) else 1


def parse_grid(text: str) -> list[int]:
    """`N=100,300,1000` as sizes in ascending order.

    >>> parse_grid("N=300,100")
    [100, 300]
    """
    name, equals, values = text.partition("=")
    try:
        sizes = sorted({int(value) for value in (values if equals else name).split(",")})
    except ValueError:
        sizes = []
    if (equals and name.strip() != "N") or not sizes or sizes[0] < 1:
        raise OptionError(f"--grid {text!r} must list sizes, for example --grid N=100,300,1000")
    return sizes


def _parts(dataset: Dataset, sizes: list[int] | None, plotted: bool, seed: int) -> list[Dataset]:
    """The data set alone, or growing parts of it where a grid or a plot is requested."""
    if sizes is None:
        sizes = [dataset.N >> shift for shift in (3, 2, 1) if dataset.N >> shift >= 8] if plotted else []
    parts = subsets(dataset, [size for size in sizes if size < dataset.N], seed)
    return [*parts, dataset] if not sizes or max(sizes) >= dataset.N or plotted else parts


def _print(found: list[Comparison]) -> None:
    out = show.console()
    for comparison in found:
        _print_table(out, comparison)
        for row in comparison.rows:
            if row.verdict in ("assumption", "refuted", "undecided", "failed", "not built", "not found"):
                out.print(f"{row.construction}: {row.reason}")
            for note in row.waived:
                out.print(f"{row.construction}: {note}")
        for sentence in comparison.lower:
            out.print(sentence)
    if len(found) > 1:
        _print_growth(out, found)


def _print_growth(out: Console, found: list[Comparison]) -> None:
    """The slopes of parameters and bits, and why one may be below what is needed as N grows."""
    for quantity, reasons in (("parameters", gentle_growth(found)), ("total_bits", gentle_bits(found))):
        for name, slope in sorted(growth_exponents(found, quantity).items()):
            why = f" ({reasons[name]})" if name in reasons else ""
            out.print(f"{name}: {quantity.removeprefix('total_')} grow like N^{slope:.2f}{why}")


def _print_table(out: Console, comparison: Comparison) -> None:
    """All columns in a pipe or a wide terminal; in a narrow one those that fit, truncated numbers are useless."""
    left_out: list[str] = []
    table = comparison_table(comparison)
    while out.is_terminal and len(left_out) < len(DISPENSABLE) and _width(out, table) > out.width:
        left_out.append(DISPENSABLE[len(left_out)])
        table = comparison_table(comparison, left_out)
    if not out.is_terminal:
        out = show.console(width=max(out.width, _width(out, table)))
    out.print(table)
    if left_out:
        headings = ", ".join(dict(COLUMNS)[field] for field in left_out)
        out.print(f"this terminal is too narrow for: {headings}; --csv FILE, --html FILE and --json have all columns")


def _width(out: Console, table: Table) -> int:
    return Measurement.get(out, out.options.update(max_width=1000), table).maximum


def comparison_table(comparison: Comparison, left_out: Sequence[str] = ()) -> Table:
    """The rows of one data set, without the omitted columns."""
    c = comparison
    title = f"{c.task}: N = {c.N:,} rows of {c.n} tokens, d = {c.d}, C = {c.C}, {c.contexts:,} contexts"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("construction", no_wrap=True)
    shown = [(field, heading) for field, heading in COLUMNS if field not in left_out]
    for _, heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in c.rows:
        table.add_row(row.construction, *(_cell(row, field) for field, _ in shown), _seconds(row), _verdict(row))
    return table


def _cell(row: CompareRow, field: str) -> str:
    value = getattr(row, field)
    return "" if value is None else f"{'~' if row.verdict == 'predicted' else ''}{value:,}"


def _seconds(row: CompareRow) -> str:
    return "" if row.build_seconds is None else f"{row.build_seconds + (row.certify_seconds or 0):.1f}"


def _verdict(row: CompareRow) -> str:
    if row.verdict == "proved" and "enclosures" in row.arithmetic:
        return "proved by balls"
    if row.verdict == "assumption":
        return f"needs: {row.assumption}"
    return row.verdict
