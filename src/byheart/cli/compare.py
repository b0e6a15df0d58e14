"""byheart compare: every construction on the same data, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from byheart.cli import show
from byheart.cli.data_options import DataFlags, data_options, output_options, progress_for
from byheart.compile.compare.comparison import compare_growth, random_dataset, subsets
from byheart.compile.compare.rows import CompareRow, Comparison, csv_table, growth_exponents
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.files import write_atomically

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
@click.option("--time-limit", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Seconds per row.")
@click.option("--memory-gb", type=click.FloatRange(0.5), default=8.0, show_default=True, help="Memory per row.")
@click.option("--csv", "csv_file", metavar="FILE", help="Write the rows as CSV.")
@click.option("--html", "html_file", metavar="FILE", help="Write a page with the table and log-log plots.")
@click.option("--trained", is_flag=True, help="Also train a network on the data (needs byheart[lab]).")
@click.option("--seed", default=0, show_default=True)
@data_options
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
        from byheart.cli.compare_trained import with_trained

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
    """The data set alone, or growing parts of it where a grid or a plot is asked for."""
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
        for name, slope in sorted(growth_exponents(found).items()):
            out.print(f"{name}: parameters grow like N^{slope:.2f}")


def _print_table(out: Console, comparison: Comparison) -> None:
    """All columns in a pipe or a wide terminal; in a narrow one those that fit, because cut numbers help nobody."""
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
    """The rows of one data set, without the columns that are left out."""
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
