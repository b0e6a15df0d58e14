"""byheart decoder: documents to a certified one-layer decoder, and text from it."""

from __future__ import annotations

import time

import click
from rich.table import Table

from byheart.certify import Verdict
from byheart.cli import show
from byheart.cli.data_options import output_options, progress_for
from byheart.compiler.decoder_file import is_decoder_file, load_decoder, save_decoder
from byheart.compiler.distribution_table import smallest_table
from byheart.compiler.documents import DecoderMemory, memorize_documents
from byheart.constructions.decoder_fit import FLOOR, MixerKind, Shape
from byheart.constructions.madden24 import Features
from byheart.data.document_files import read_documents
from byheart.data.documents import Corpus, Tokenizer
from byheart.errors import OptionError
from byheart.ir.activation import Activation


@click.command()
@click.argument("docs", metavar="DOCS")
@click.option("-o", "--output", metavar="FILE", help="Where to write the decoder.")
@click.option("--column", metavar="NAME", help="Column with the text (guessed if not given).")
@click.option(
    "--where", "conditions", multiple=True, metavar="COLUMN=VALUE", help="Only rows with this value; repeatable."
)
@click.option("--max-documents", type=click.IntRange(1), help="Take the first so many documents.")
@click.option(
    "--max-length", type=click.IntRange(2), default=10, show_default=True, help="Truncate documents to so many tokens."
)
@click.option(
    "--tokenizer", type=click.Choice([choice.value for choice in Tokenizer]), default="words", show_default=True
)
@click.option(
    "--mixer", type=click.Choice([choice.value for choice in MixerKind]), default="attention", show_default=True
)
@click.option(
    "--activation", type=click.Choice([choice.value for choice in Activation]), default="tanh", show_default=True
)
@click.option(
    "--neurons", type=click.IntRange(1), help="Neurons (default: one for each context; fewer are polished by L-BFGS)."
)
@click.option(
    "--rank", type=click.IntRange(1), help="Share outputs: an output matrix of this rank, and steps only where needed."
)
@click.option("--smallest", is_flag=True, help="Find the smallest rank that keeps the gap.")
@click.option("--table", is_flag=True, help="Fewest parameters: an exact memory names distributions of a table.")
@click.option(
    "--effort", type=click.IntRange(1), default=1, show_default=True, help="How hard to look for the smallest."
)
@click.option("--dimension", type=click.IntRange(1), help="Embedding dimension (default: the construction's choice).")
@click.option("--heads", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--skip/--no-skip", default=False, show_default=True, help="Add the last token's vector behind the mixer."
)
@click.option(
    "--features",
    type=click.Choice([choice.value for choice in Features]),
    help="Where the neurons stand (default: by activation).",
)
@click.option(
    "--gap", "fraction", type=float, default=0.01, show_default=True, help="Part of the entropy that the gap may be."
)
@click.option("--floor", type=float, default=FLOOR, show_default=True, help="Stand-in for probability 0.")
@click.option("--seed", default=0, show_default=True)
@click.option("--prompt", metavar="TEXT", help="Continue this text.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0: the likeliest token; 1: sample.")
@output_options
def decoder(
    docs: str,
    output: str | None,
    column: str | None,
    conditions: tuple[str, ...],
    max_documents: int | None,
    max_length: int,
    tokenizer: str,
    mixer: str,
    activation: str,
    neurons: int | None,
    rank: int | None,
    smallest: bool,
    table: bool,
    effort: int,
    dimension: int | None,
    heads: int,
    skip: bool,
    features: str | None,
    fraction: float,
    floor: float,
    seed: int,
    prompt: str | None,
    temperature: float,
    as_json: bool,
    quiet: bool,
) -> int:
    """Build a one-layer decoder that knows the next-token distributions of DOCS, and prove its gap to the entropy.

    DOCS is JSON Lines with a text column, a JSON list, or plain text with one document on each line. A decoder file
    that `-o` wrote is taken too: then `--prompt` continues a text.

    \b
      byheart decoder stories.jsonl --max-documents 1000 -o stories.decoder
      byheart decoder stories.jsonl --max-documents 1000 --smallest
      byheart decoder stories.decoder --prompt "Once upon" --temperature 1
    """
    if is_decoder_file(docs):
        memory = load_decoder(docs)
        if prompt is None:
            raise OptionError(f"{docs} is a decoder already; continue a text with --prompt, or give documents")
    else:
        texts = read_documents(docs, column=column, where=_where(conditions), limit=max_documents)
        if table:
            if output or prompt or neurons or rank or smallest:
                raise OptionError(
                    "--table reports sizes and proof; it goes with none of -o, --prompt, --neurons, --rank, --smallest"
                )
            return _with_table(texts, Tokenizer.named(tokenizer), max_length, fraction, effort, seed, as_json, quiet)
        memory = memorize_documents(
            texts, tokenizer=Tokenizer.named(tokenizer), max_length=max_length, neurons=neurons, rank=rank,
            shape=Shape(MixerKind.named(mixer), Activation.named(activation), dimension, heads, skip),
            find_smallest=smallest,
            effort=effort, features=None if features is None else Features.named(features), fraction=fraction,
            floor=floor, seed=seed, progress=progress_for(as_json, quiet),
        )  # fmt: skip
        if output is not None:
            save_decoder(memory, output)
    text = None if prompt is None else memory.generate(prompt, temperature=temperature, seed=seed)
    if as_json:
        show.print_json({**memory.summary(), "file": output, "text": text})
    else:
        _show(memory, output, text, fresh=not is_decoder_file(docs))
    return 0 if memory.certificate.verdict is Verdict.PROVED else 1


def _with_table(
    texts: list[str],
    tokenizer: Tokenizer,
    max_length: int,
    fraction: float,
    effort: int,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> int:
    """Builds, proves and reports the memory with a table of distributions."""
    started = time.perf_counter()
    contexts = Corpus.of_texts(texts, tokenizer, max_length).contexts()
    progress = progress_for(as_json, quiet)
    found = smallest_table(contexts, fraction=fraction, effort=effort, seed=seed, progress=progress)
    certificate = found.certificate
    report = {
        "construction": "compact with a table of distributions",
        "contexts": contexts.count,
        "vocabulary": contexts.vocabulary_size,
        "entropy": certificate.entropy,
        "cross_entropy": certificate.entropy + certificate.gap_upper,
        "gap": certificate.gap_upper,
        "parameters": found.parameters,
        "parameters_per_context": found.parameters / contexts.count,
        "memory_parameters": found.memory.size.parameters,
        "distributions": len(found.coordinates),
        "rank": found.rank,
        "max_bits": found.memory.size.max_bits,
        "condition_number": None,
        "verdict": certificate.verdict.value,
        "reason": certificate.reason,
        "seconds": time.perf_counter() - started,
    }
    if as_json:
        show.print_json(report)
    else:
        for name, value in report.items():
            click.echo(
                f"{name.replace('_', ' '):24}{value:,.6g}"
                if isinstance(value, float)
                else f"{name.replace('_', ' '):24}{value}"
            )
    return 0 if certificate.verdict is Verdict.PROVED else 1


def _where(conditions: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals or not name:
            raise OptionError(f"--where {condition!r} must be COLUMN=VALUE, for example --where source=v1-train")
        found[name] = value
    return found


def _show(memory: DecoderMemory, output: str | None, text: str | None, fresh: bool) -> None:
    out = show.console()
    if fresh:
        out.print(_table(memory))
        out.print(f"{memory.certificate.verdict.value}: {memory.certificate.reason} ({memory.certificate.arithmetic})")
    if output is not None:
        out.print(f"saved to {output}")
    if text is not None:
        out.print(text, markup=False)


def _table(memory: DecoderMemory) -> Table:
    found = memory.summary()
    relative = "" if found["relative_gap"] is None else f"  ({found['relative_gap']:.3g} of the entropy)"
    table = Table(
        title=f"{found['construction']}: one-layer decoder, {found['activation']}",
        title_justify="left",
        show_header=False,
    )
    for meaning, value in (
        ("contexts", f"{found['contexts']:,}"),
        ("vocabulary", f"{found['vocabulary']:,}"),
        ("entropy 𝓗", f"{found['entropy']:.6f} nats"),
        ("cross-entropy 𝓛", f"{found['cross_entropy']:.6f} nats"),
        ("gap 𝓛 - 𝓗", f"{found['gap']:.3g} nats{relative}"),
        ("of it for zero probabilities", f"{found['floor_excess']:.3g} nats"),
        ("neurons", f"{found['neurons']:,}"),
        ("parameters", f"{found['parameters']:,}  ({found['parameters_per_context']:.2f} for each context)"),
        ("condition number", f"{found['condition_number']:.3g}"),
        ("residual", f"{found['residual']:.3g}"),
        ("largest weight, norm of V", f"{found['largest_weight']:.3g}, {found['output_norm']:.3g}"),
        ("labels proved", f"{found['labels_proved']:,} of {found['contexts']:,}"),
        ("seconds", f"{found['build_seconds']:.2f} to build, {found['certify_seconds']:.2f} to prove"),
    ):
        table.add_row(meaning, value)
    for note in found["notes"]:
        table.add_row("note", note)
    return table
