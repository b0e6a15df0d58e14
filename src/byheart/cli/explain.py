"""byheart explain: one page on which a Transformer is built and evaluated, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from byheart.certify import Verdict
from byheart.cli import show
from byheart.cli.data_options import (
    DataFlags,
    construction_options,
    data_options,
    open_page,
    output_options,
    page_options,
    parse_options,
    progress_for,
)
from byheart.data.task import Task
from byheart.files import check_target, write_atomically
from byheart.memory.memorize import memorize
from byheart.report.live_page import check_size, five_words, render


@click.command("explain")
@click.argument("data", metavar="[DATA]", type=click.Path(), required=False)
@page_options("explain.html")
@construction_options
@data_options(
    "sequence_columns", "label_column", "tokens", "header", "encoding", "label_type", "missing", "max_rows", "conflicts"
)
@output_options
def command(
    data: str | None,
    output: str,
    construction: str,
    pairs: tuple[str, ...],
    seed: int,
    opened: bool,
    flags: DataFlags,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write one self-contained page on which a Transformer is built and evaluated, step by step, in the browser.

    The words and labels on it can be changed. It starts with those of DATA (a table of up to 300 short texts), and
    then shows byheart's own memory of them too; without DATA, with five words.

    \b
      byheart explain --open
      byheart explain animals.csv -o animals.html
    """
    page = check_target(Path(output))
    progress, options = progress_for(as_json, quiet), parse_options(pairs)
    building: dict[str, Any] = {"construction": construction, "seed": seed, "progress": progress, **options}
    if data is None:
        memory = five_words(building)
    else:
        table = flags.read(data, Task.NEXT_TOKEN, progress)
        check_size("rows", len(table.sequences))
        memory = memorize(table, conflicts=flags.conflicts or "error", **building)
    with progress.stage("writing the page"):
        write_atomically(page, render(memory).encode("utf-8"))
    if as_json:
        show.print_json({**memory.summary(), "page": output})
    elif not quiet:
        click.echo(f"wrote {output} ({memory.certificate.count_words})")
    if opened:
        open_page(page)
    return 0 if memory.certificate.verdict is Verdict.PROVED else 1
