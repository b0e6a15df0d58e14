"""byheart recite: a memorized text, recited.

byheart recite DIR: a checkpoint folder, recited by a real engine.
"""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from byheart.checkpoints import engines
from byheart.checkpoints.engines import Recitation
from byheart.cli import show
from byheart.cli.data_options import budget_options, load_limited, output_options, progress_for
from byheart.errors import OptionError
from byheart.files import check_target, write_atomically
from byheart.ir.decoder_network import DecoderNetwork
from byheart.memory import Memory
from byheart.memory.generate import generate, is_known
from byheart.memory.text import page_count, recite


def recite_folder(
    folder: str, engine: str, dtype: str | None, settings: tuple[str, ...], as_json: bool, quiet: bool
) -> int:
    """Run the engine and print its results; 0 if every answer is correct, else 1."""
    recitation = engines.recite(folder, engine, dtype=dtype, options=_pairs(settings))
    if as_json:
        show.print_json(recitation.to_json())
    elif quiet:
        click.echo("recited" if recitation.passed else "not recited")
    else:
        _print(recitation)
    return 0 if recitation.passed else 1


def _pairs(settings: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise OptionError(f"--option {setting!r}: write KEY=VALUE")
        pairs[name] = value
    return pairs


def _print(recitation: Recitation) -> None:
    out = show.console()
    chosen = ", ".join(f"{name} {value}" for name, value in recitation.options.items())
    title = f"{recitation.engine} {recitation.version}, {recitation.dtype}" + (f", {chosen}" if chosen else "")
    table = Table(title=title, title_justify="left")
    for heading, justify in (
        ("", "left"),
        ("queried", "right"),
        ("correct", "right"),
        ("least margin (nats)", "right"),
    ):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for check in recitation.checks:
        shown = "" if check.margin is None else f"{check.margin:.3f}"
        table.add_row(check.name, f"{check.asked:,}", f"{check.right:,}", shown)
    out.print(table)
    for check in recitation.checks:
        if check.wrong is not None:
            show.line(out, f"{check.name}: {check.wrong}")
    show.line(out, "recited" if recitation.passed else "not recited")


@click.command("recite")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--page", type=int, metavar="K", help="Only page K, counted from 0.")
@click.option("--prompt", metavar="TEXT", help="Continue TEXT, to the end of its page.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="Above 0: sample from distributions.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the samples.")
@click.option("-o", "--output", metavar="OUT", type=click.Path(), help="Write to a file instead of standard output.")
@click.option("--engine", metavar="NAME", help="For a checkpoint folder: the engine that recites [transformers].")
@click.option("--dtype", metavar="TYPE", help="The type that the engine computes in or reads [its first].")
@click.option("--option", "settings", metavar="KEY=VALUE", multiple=True, help="A setting of the engine.")
@budget_options
@output_options
def command(
    file: str,
    page: int | None,
    prompt: str | None,
    temperature: float,
    seed: int,
    output: str | None,
    engine: str | None,
    dtype: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> int:
    """Recite the text that the memory in FILE stores, byte for byte.

    A memory of distributions continues --prompt, greedily or sampled; the output includes the prompt.

    FILE may be a checkpoint folder (export --to huggingface, fixture): a real engine then answers every prefix and
    decodes greedily, and its answers are compared with what was memorized.

    \b
      byheart memorize book.txt --task causal -o book.byheart
      byheart recite book.byheart > again.txt
      byheart recite stories.byheart --prompt "Once upon" --temperature 1
      byheart recite tiny-qwen3 --engine llama.cpp --dtype Q8_0 --option flash=on
    """
    if Path(file).is_dir():
        return recite_folder(file, engine or "transformers", dtype, settings, as_json, quiet)
    if engine is not None or dtype is not None or settings:
        raise click.UsageError("--engine, --dtype and --option are for checkpoint folders; this is a file")
    memory = load_limited(file)
    if isinstance(memory.network, DecoderNetwork):
        return _generate(memory, file, prompt, temperature, seed, as_json)
    if temperature:
        raise OptionError("--temperature: this memory has one label per context, nothing can be sampled")
    if page is not None and prompt is not None:
        raise click.UsageError("give --page or --prompt, not both")
    if output is not None:
        check_target(Path(output))
    recited = recite(memory, prompt if prompt is not None else page, progress_for(as_json, quiet))
    text = recited if isinstance(recited, str) else "".join(map(str, recited))
    data = text.encode("latin-1" if memory.tokens.kind == "bytes" else "utf-8")
    if output is not None:
        write_atomically(Path(output), data)
    if as_json:
        show.print_json({"file": file, "pages": page_count(memory), "characters": len(text), "text": text})
    elif output is None:
        click.echo(data, nl=False)
    return 0


def _generate(memory: Memory, file: str, prompt: str | None, temperature: float, seed: int, as_json: bool) -> int:
    if prompt is None:
        raise OptionError("a memory of distributions has no one text to recite; give it a --prompt TEXT to continue")
    text, guaranteed = generate(memory, prompt, temperature=temperature, seed=seed), is_known(memory, prompt)
    if as_json:
        show.print_json({"file": file, "text": text, "prompt_known": guaranteed})
        return 0
    click.echo(text)
    if not guaranteed:
        click.echo("the prompt is not a memorized context: nothing is proved about this continuation", err=True)
    return 0
