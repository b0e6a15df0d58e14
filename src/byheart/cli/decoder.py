"""byheart decoder: the short form of `memorize --construction madden24`, with text from what was built."""

from __future__ import annotations

from pathlib import Path

import click

from byheart.build.madden24.fit import MixerKind
from byheart.certify import Verdict
from byheart.cli import show
from byheart.cli.data_options import output_options, progress_for
from byheart.cli.memorize import print_memory
from byheart.compile.documents import read_documents_table
from byheart.compile.generate import generate, knows
from byheart.compile.memorize import memorize
from byheart.data.read.options import ReadOptions
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import SIMPLE
from byheart.errors import OptionError
from byheart.files import check_target
from byheart.ir.decoder import Activation
from byheart.theory.promises.madden24 import CLOSED_FORM, LOW_RANK, SIZE


@click.command("decoder")
@click.argument("docs", metavar="DOCS")
@click.option("-o", "--output", metavar="FILE", help="Where to write the memory; without it nothing is kept.")
@click.option(
    "--sequence-column", "--column", "column", metavar="NAME", help="Column with the text (guessed if not given)."
)
@click.option(
    "--where", "conditions", multiple=True, metavar="COLUMN=VALUE", help="Only rows with this value; repeatable."
)
@click.option(
    "--max-rows", "--max-documents", "max_rows", type=click.IntRange(1), help="Read only the first N documents."
)
@click.option(
    "--max-length", type=click.IntRange(2), default=10, show_default=True, help="Cut documents to this many tokens."
)
@click.option(
    "--tokens",
    type=click.Choice(SIMPLE),
    default="wordpunct",
    show_default=True,
    help="How a text is cut into tokens, as --tokens of the other commands.",
)
@click.option(
    "--mixer", type=click.Choice([choice.value for choice in MixerKind]), default="attention", show_default=True
)
@click.option(
    "--activation", type=click.Choice([choice.value for choice in Activation]), default="tanh", show_default=True
)
@click.option(
    "--objective",
    type=click.Choice([CLOSED_FORM, LOW_RANK, SIZE]),
    default=CLOSED_FORM,
    show_default=True,
    help="One neuron for each context; shared outputs of low rank; or the fewest parameters, in a deeper network.",
)
@click.option("--gap", type=float, default=0.01, show_default=True, help="Part of the entropy that the gap may be.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--prompt", metavar="TEXT", help="Continue this text.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0: the likeliest token; 1: sample.")
@output_options
def command(
    docs: str,
    output: str | None,
    column: str | None,
    conditions: tuple[str, ...],
    max_rows: int | None,
    max_length: int,
    tokens: str,
    mixer: str,
    activation: str,
    objective: str,
    gap: float,
    seed: int,
    prompt: str | None,
    temperature: float,
    as_json: bool,
    quiet: bool,
) -> int:
    """Build a one-layer decoder that knows the next-token distributions of DOCS, and prove its gap to the entropy.

    The same as `byheart memorize DOCS --construction madden24 --max-length 10`, which has more options. The file that
    -o writes is a memory like others: `verify`, `predict`, `recite --prompt` and `report` take it.

    DOCS is JSON Lines, a JSON list, CSV, TSV or Parquet with a text column, or plain text with one document on each
    line, each also as .gz or .zst. Rows {"context": "a cat", "next": {"sat": 0.7, "ran": 0.3}} give distributions
    instead.

    \b
      byheart decoder stories.jsonl --max-rows 1000 -o stories.byheart
      byheart decoder stories.jsonl --max-rows 1000 --objective size
      byheart recite stories.byheart --prompt "Once upon" --temperature 1
      byheart verify stories.byheart stories.jsonl --max-rows 1000 --max-length 10
    """
    progress = progress_for(as_json, quiet)
    if output is not None:
        check_target(Path(output))
    columns = (column,) if column else ()
    reading = ReadOptions(columns, tokens=tokens, task=Task.CAUSAL, max_length=max_length, max_rows=max_rows)
    table = read_documents_table(docs, reading, where=_where(conditions))
    memory = memorize(
        table,
        construction="madden24" if mixer == MixerKind.ATTENTION else "madden24-average",
        activation=activation,
        objective=objective,
        gap=gap,
        seed=seed,
        progress=progress,
    )
    text = None if prompt is None else generate(memory, prompt, temperature=temperature, seed=seed)
    promised = None if prompt is None else knows(memory, prompt)
    if output is not None:
        memory.save(Path(output))
    if as_json:
        show.print_json({**memory.summary(), "file": output, "text": text, "prompt_known": promised})
    else:
        print_memory(memory, table.note, None if output is None else Path(output), quiet)
        if text is not None:
            show.line(show.console(), str(text))
        if promised is False and not quiet:
            click.echo("the prompt is not a memorized context: nothing is proved about this continuation", err=True)
    return 0 if memory.certificate.verdict is Verdict.PROVED else 1


def _where(conditions: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals or not name:
            raise OptionError(f"--where {condition!r} must be COLUMN=VALUE, for example --where source=v1-train")
        found[name] = value
    return found
