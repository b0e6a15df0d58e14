"""byheart verify: a saved memory proved anew."""

from __future__ import annotations

from typing import Any

import click

from byheart.certify import Certificate, Verdict
from byheart.cli import show
from byheart.cli.data_options import data_options, output_options, progress_for, read
from byheart.compiler import load
from byheart.compiler.verify import verify_rows


@click.command()
@click.argument("file", metavar="FILE")
@click.argument("data", metavar="DATA")
@data_options
@output_options
def verify(
    file: str,
    data: str,
    sequence_column: str | None,
    label_column: str | None,
    tokens: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Prove again that the memory in FILE knows DATA, from nothing but the weights.

    Exit status 0 only when every label is reproduced, every promise holds, and DATA is the data that FILE was made of.
    """
    memory = load(file)
    table = read(data, sequence_column, label_column, memory.tokens if tokens == "auto" else tokens, memory.task)
    certificate = verify_rows(memory, table.sequences, table.labels, progress_for(as_json, quiet))
    if as_json:
        show.print_json({"file": file, "construction": memory.construction, **_plain(certificate)})
    else:
        show.console().print(f"{certificate.verdict.value}: {certificate.reason}")
    return 0 if certificate.verdict is Verdict.PROVED else 1


def _plain(certificate: Certificate) -> dict[str, Any]:
    return certificate.as_dict()
