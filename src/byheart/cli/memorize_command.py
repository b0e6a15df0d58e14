"""byheart memorize: data to a certified memory in a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from byheart.certify import Verdict
from byheart.cli import show
from byheart.cli.data_options import data_options, dataset_of, output_options, parse_options, progress_for, read
from byheart.compiler.memorize import memorize_dataset
from byheart.data.task import Task


@click.command()
@click.argument("data", metavar="DATA")
@click.option("-o", "--output", metavar="FILE", help="Where to write the memory (default: DATA's name with .byheart).")
@click.option("--task", type=click.Choice([t.value for t in Task]), default="next-token", show_default=True)
@click.option("--construction", default="compact", show_default=True, help="See `byheart constructions`.")
@click.option("--option", "pairs", multiple=True, metavar="KEY=VALUE", help="A construction's own option; repeatable.")
@click.option(
    "--positions/--no-positions",
    default=True,
    show_default=True,
    help="On: the order of the tokens matters. Off: rows are bags of tokens with a last one.",
)
@click.option("--seed", default=0, show_default=True)
@data_options
@output_options
def memorize(
    data: str,
    output: str | None,
    task: str,
    construction: str,
    pairs: tuple[str, ...],
    positions: bool,
    seed: int,
    sequence_column: str | None,
    label_column: str | None,
    tokens: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Build a Transformer that knows DATA by heart, certify it, and save it.

    DATA is a CSV or JSON Lines file, or - for standard input.

    \b
      byheart memorize names.csv -o names.byheart
      byheart memorize names.csv --construction ks25 --option form=residual
    """
    table = read(data, sequence_column, label_column, tokens, Task(task))
    dataset = dataset_of(table, Task(task), positions)
    progress = progress_for(as_json, quiet)
    memory = memorize_dataset(dataset, construction=construction, seed=seed, progress=progress, **parse_options(pairs))
    memory = replace(memory, tokens=table.tokens)
    path = Path(output or ("memory" if data == "-" else Path(data).stem) + ("" if output else ".byheart"))
    memory.save(path)
    if as_json:
        show.print_json({**memory.summary(), "file": str(path), "columns": table.columns})
    else:
        out = show.console()
        out.print(f"read {dataset.N:,} rows of at most {dataset.n} tokens, {dataset.C:,} classes ({table.note})")
        out.print(show.size_table(memory))
        for note in memory.notes:
            out.print(f"note: {note}")
        out.print(show.verdict_line(memory))
        out.print(f"saved to {path}")
    return 0 if memory.certificate.verdict is Verdict.PROVED else 1
