"""byheart verify: a saved memory proved anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from byheart.certify import Certificate, Verdict
from byheart.cli import show
from byheart.cli.data_options import DataFlags, data_options, output_options, progress_for
from byheart.compile import load
from byheart.compile.verify import verify_rows


@click.command("verify")
@click.argument("file", metavar="FILE", type=click.Path())
@click.argument("data", metavar="DATA", type=click.Path())
@data_options
@output_options
def command(
    file: str,
    data: str,
    flags: DataFlags,
    as_json: bool,
    quiet: bool,
) -> int:
    """Prove again that the memory in FILE knows DATA, from nothing but the weights.

    Exit status 0 only when every label is reproduced, every promise holds, and DATA is the data that FILE was made of;
    1 when that is refuted, 2 when FILE or DATA cannot be read. Columns and tokens are those that FILE was made with.

    \b
      byheart verify names.byheart names.csv
      byheart verify names.byheart renamed.csv --sequence-column first --label-column country --json
    """
    memory, progress = load(file), progress_for(as_json, quiet)
    table = flags.read_again(data, memory, progress)
    if flags.conflicts is not None:
        memory = replace(memory, selection=replace(memory.selection, conflicts=flags.conflicts))
    certificate = verify_rows(memory, table.sequences, table.labels, progress)
    if as_json:
        show.print_json({"file": file, "construction": memory.construction, **_plain(certificate)})
    else:
        show.line(show.console(), f"{certificate.verdict.value}: {certificate.reason}")
    return 0 if certificate.verdict is Verdict.PROVED else 1


def _plain(certificate: Certificate) -> dict[str, Any]:
    return certificate.as_dict()
