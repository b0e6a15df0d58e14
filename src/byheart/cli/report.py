"""byheart report: one page about a memory."""

from __future__ import annotations

from pathlib import Path

import click

from byheart.certify import Verdict
from byheart.cli import show
from byheart.cli.data_options import (
    RECORDED,
    DataFlags,
    budget_options,
    data_options,
    load_limited,
    open_page,
    output_options,
    page_options,
    progress_for,
)
from byheart.cli.verify import check_data
from byheart.errors import DataError
from byheart.files import check_target
from byheart.report import write


@click.command("report")
@click.argument("file", metavar="FILE", type=click.Path())
@click.argument("data", metavar="[DATA]", type=click.Path(), required=False)
@page_options("report.html")
@data_options(*RECORDED)
@budget_options
@output_options
def command(
    file: str,
    data: str | None,
    output: str,
    opened: bool,
    flags: DataFlags,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write one self-contained page about the memory in FILE; with DATA, memorized rows can be chosen on it.

    With DATA the memory is verified as `byheart verify` does it, and nothing is written unless it is proved. Without,
    the page states that FILE's own verdict is recorded and was not checked.

    \b
      byheart report table.byheart table.csv -o report.html
      byheart report table.byheart table.csv --open
    """
    page = check_target(Path(output))
    memory, progress = load_limited(file), progress_for(as_json, quiet)
    dataset = None
    if data is not None:
        checked, _ = check_data(memory, data, flags, progress)
        memory, dataset = checked.renew(memory), checked.asked
        if checked.certificate.verdict is not Verdict.PROVED:
            reason = f"{checked.certificate.reason} ({checked.certificate.count_words})"
            raise DataError(f"{data} is not the data that {file} was built from, or the file was changed: {reason}")
    with progress.stage("writing the page"):
        write(memory, page, dataset, file=Path(file).name, data=Path(data).name if data else "DATA")
    if as_json:
        show.print_json({**memory.summary(), "page": output})
    elif not quiet:
        click.echo(f"wrote {output} ({memory.verdict_words})")
    if opened:
        open_page(page)
    return 0
