"""byheart report: one page about a memory."""

from __future__ import annotations

from pathlib import Path

import click

from byheart.cli import show
from byheart.cli.data_options import DataFlags, data_options
from byheart.compiler import load
from byheart.errors import DataError
from byheart.report import write


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.argument("data", metavar="[DATA]", type=click.Path(), required=False)
@click.option(
    "-o", "--output", metavar="PAGE", default="report.html", show_default=True, help="Where to write the page."
)
@data_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def report(
    file: str,
    data: str | None,
    output: str,
    flags: DataFlags,
    as_json: bool,
) -> int:
    """Write one self-contained page about the memory in FILE; with DATA, memorized rows can be chosen on it.

    \b
      byheart report table.byheart table.csv -o report.html
    """
    memory = load(file)
    dataset = None if data is None else flags.dataset_again(data, memory)
    if dataset is not None and dataset.fingerprint != memory.certificate.fingerprint:
        raise DataError(f"{data} is not the data that {file} was made of; `byheart verify` says what differs")
    write(memory, Path(output), dataset)
    if as_json:
        show.print_json({**memory.summary(), "page": output})
    else:
        click.echo(f"wrote {output}")
    return 0
