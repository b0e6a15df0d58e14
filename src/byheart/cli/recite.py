"""byheart recite: a memorized text, said again."""

from __future__ import annotations

from pathlib import Path

import click

from byheart.cli import show
from byheart.cli.data_options import budget_options, load_limited, output_options, progress_for
from byheart.compile.text import page_count, recite
from byheart.files import check_target, write_atomically


@click.command("recite")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--page", type=int, metavar="K", help="Only page K, counted from 0.")
@click.option("--prompt", metavar="TEXT", help="Go on after TEXT, to the end of its page.")
@click.option("-o", "--output", metavar="OUT", type=click.Path(), help="Write to a file instead of standard output.")
@budget_options
@output_options
def command(file: str, page: int | None, prompt: str | None, output: str | None, as_json: bool, quiet: bool) -> int:
    """Recite the text that the memory in FILE knows, byte for byte.

    \b
      byheart memorize book.txt --task causal -o book.byheart
      byheart recite book.byheart > again.txt
    """
    memory = load_limited(file)
    if page is not None and prompt is not None:
        raise click.UsageError("give --page or --prompt, not both")
    if output is not None:
        check_target(Path(output))
    said = recite(memory, prompt if prompt is not None else page, progress_for(as_json, quiet))
    text = said if isinstance(said, str) else "".join(map(str, said))
    data = text.encode("latin-1" if memory.tokens.kind == "bytes" else "utf-8")
    if output is not None:
        write_atomically(Path(output), data)
    if as_json:
        show.print_json({"file": file, "pages": page_count(memory), "characters": len(text), "text": text})
    elif output is None:
        click.echo(data, nl=False)
    return 0
