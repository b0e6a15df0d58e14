"""byheart report: one page about a memory."""

from __future__ import annotations

from pathlib import Path

import click

from byheart.cli import show
from byheart.cli.data_options import data_options, dataset_of, read
from byheart.compiler import load
from byheart.errors import DataError
from byheart.report import write


@click.command()
@click.argument("file", metavar="FILE")
@click.argument("data", metavar="[DATA]", required=False)
@click.option(
    "-o", "--output", metavar="PAGE", default="report.html", show_default=True, help="Where to write the page."
)
@data_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def report(
    file: str,
    data: str | None,
    output: str,
    sequence_column: str | None,
    label_column: str | None,
    tokens: str,
    as_json: bool,
) -> int:
    """Write one self-contained page about the memory in FILE; with DATA, memorized rows can be chosen on it.

    \b
      byheart report table.byheart table.csv -o report.html
    """
    memory = load(file)
    dataset = None
    if data is not None:
        table = read(data, sequence_column, label_column, memory.tokens if tokens == "auto" else tokens, memory.task)
        dataset = dataset_of(table, memory.task, memory.encoder.positions)
        if dataset.fingerprint != memory.certificate.fingerprint:
            raise DataError(f"{data} is not the data that {file} was made of; `byheart verify` names the difference")
    write(memory, Path(output), dataset)
    if as_json:
        show.print_json({**memory.summary(), "page": output})
    else:
        click.echo(f"wrote {output}")
    return 0
