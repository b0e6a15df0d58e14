"""byheart memorize: data to a certified memory in a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from byheart.certify import Verdict
from byheart.cli import show
from byheart.cli.data_options import data_options, dataset_of, output_options, parse_options, progress_for, read, read_book
from byheart.compiler.memorize import memorize_dataset
from byheart.compiler.text import memorize_text
from byheart.data.sources import suffixes
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
@click.option("--page-length", type=int, metavar="L", help="Characters per page of a memorized text.")
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
    page_length: int | None,
    sequence_column: str | None,
    label_column: str | None,
    tokens: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Build a Transformer that knows DATA by heart, certify it, and save it.

    DATA is a CSV or JSON Lines file, or - for standard input. A plain text (.txt) with --task causal becomes a
    language model that recites it.

    \b
      byheart memorize names.csv -o names.byheart
      byheart memorize names.csv --construction ks25 --option form=residual
      byheart memorize book.txt --task causal -o book.byheart
    """
    progress, options = progress_for(as_json, quiet), parse_options(pairs)
    columns: dict[str, str] = {}
    if Task(task) is Task.CAUSAL and suffixes(data)[0] == ".txt":
        text = read_book(data, tokens)
        memory = memorize_text(
            text, page_length=page_length, construction=construction, seed=seed, progress=progress, **options
        )
        note = f"a text of {len(text):,} {memory.tokens}"
    else:
        table = read(data, sequence_column, label_column, tokens, Task(task))
        dataset = dataset_of(table, Task(task), positions)
        memory = memorize_dataset(dataset, construction=construction, seed=seed, progress=progress, **options)
        memory, columns, note = replace(memory, tokens=table.tokens), table.columns, table.note
    path = Path(output or ("memory" if data == "-" else Path(data).stem) + ("" if output else ".byheart"))
    memory.save(path)
    if as_json:
        show.print_json({**memory.summary(), "file": str(path), "columns": columns})
    else:
        out = show.console()
        told = memory.summary()
        out.print(f"read {told['N']:,} rows of at most {told['n']} tokens, {told['C']:,} classes ({note})")
        out.print(show.size_table(memory))
        for note in memory.notes:
            out.print(f"note: {note}")
        out.print(show.verdict_line(memory))
        out.print(f"saved to {path}")
    return 0 if memory.certificate.verdict is Verdict.PROVED else 1
