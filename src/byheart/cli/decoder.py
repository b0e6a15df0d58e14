"""byheart decoder: documents to a certified one-layer decoder, and text from it."""

from __future__ import annotations

import click

from byheart.build.madden24.construction import Features
from byheart.build.madden24.fit import MixerKind, Shape
from byheart.certify import Verdict
from byheart.cli import show
from byheart.cli.data_options import output_options, progress_for
from byheart.cli.decoder_output import show_memory, show_report, table_report
from byheart.compile.decoder_file import is_decoder_file, load_decoder, save_decoder
from byheart.compile.distribution_table import smallest_table
from byheart.compile.documents import DecoderMemory, contexts_of, memorize_documents
from byheart.data.dataset.documents import Document
from byheart.data.read.documents import GivenDistributions, read_source
from byheart.data.tokens.tokenizer import SIMPLE, Tokenizer
from byheart.errors import OptionError
from byheart.ir.activation import Activation
from byheart.progress import Progress


@click.command("decoder")
@click.argument("docs", metavar="DOCS")
@click.option("-o", "--output", metavar="FILE", help="Where to write the decoder.")
@click.option("--column", metavar="NAME", help="Column with the text (guessed if not given).")
@click.option(
    "--where", "conditions", multiple=True, metavar="COLUMN=VALUE", help="Only rows with this value; repeatable."
)
@click.option("--max-documents", type=click.IntRange(1), help="Read only this many documents, from the first on.")
@click.option(
    "--max-length", type=click.IntRange(2), default=10, show_default=True, help="Cut documents to this many tokens."
)
@click.option(
    "--tokens",
    "--tokenizer",
    "tokenizer",
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
    "--neurons",
    type=click.IntRange(1),
    help="Neurons (default: one for each context; fewer are polished by L-BFGS, more have weight 0).",
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
@click.option("--skip/--no-skip", default=False, show_default=True, help="Add the last token's vector after the mixer.")
@click.option(
    "--features",
    type=click.Choice([choice.value for choice in Features]),
    help="Where the neurons stand (default: by activation).",
)
@click.option(
    "--gap", "fraction", type=float, default=0.01, show_default=True, help="Part of the entropy that the gap may be."
)
@click.option(
    "--floor",
    type=float,
    help="Stand-in for probability 0 (default: 2^-30, less where that would cost more than 10^-5 of the entropy).",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--prompt", metavar="TEXT", help="Continue this text.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0: the likeliest token; 1: sample.")
@click.option("--verify", "proof", metavar="DOCS", help="Prove a decoder file again, against these documents.")
@output_options
def command(
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
    floor: float | None,
    seed: int,
    prompt: str | None,
    temperature: float,
    proof: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Build a one-layer decoder that knows the next-token distributions of DOCS, and prove its gap to the entropy.

    DOCS is JSON Lines, a JSON list, CSV, TSV or Parquet with a text column, or plain text with one document on each
    line, each also as .gz or .zst. Rows {"context": "a cat", "next": {"sat": 0.7, "ran": 0.3}} give distributions
    instead. A decoder file that `-o` wrote is taken too: then `--prompt` continues a text, `--verify` proves it again,
    and without both its numbers are shown.

    \b
      byheart decoder stories.jsonl --max-documents 1000 -o stories.decoder
      byheart decoder stories.jsonl --max-documents 1000 --smallest
      byheart decoder stories.decoder --prompt "Once upon" --temperature 1
      byheart decoder stories.decoder --verify stories.jsonl --max-documents 1000
    """
    progress = progress_for(as_json, quiet)

    def read(path: str) -> list[Document] | GivenDistributions:
        return read_source(path, column=column, where=_where(conditions), limit=max_documents)

    if is_decoder_file(docs):
        if output is not None:
            raise OptionError(f"{docs} is a decoder already; -o writes what is made of documents")
        memory = load_decoder(docs)
        if proof is not None:
            return _verify(memory, docs, read(proof), fraction, as_json, progress)
    elif proof is not None:
        raise OptionError(f"--verify proves a decoder file again, and {docs} is not one; give the file that -o wrote")
    elif table:
        if output or prompt or neurons or rank or smallest:
            raise OptionError(
                "--table reports sizes and proof; do not combine it with -o, --prompt, --neurons, --rank, --smallest"
            )
        contexts, _ = contexts_of(read(docs), Tokenizer(tokenizer), max_length)
        report = table_report(smallest_table, contexts, fraction, effort, seed, progress)
        show_report(report, as_json, quiet)
        return 0 if report["verdict"] == Verdict.PROVED else 1
    else:
        memory = memorize_documents(
            read(docs), tokenizer=Tokenizer(tokenizer), max_length=max_length, neurons=neurons, rank=rank,
            shape=Shape(MixerKind.named(mixer), Activation.named(activation), dimension, heads, skip),
            find_smallest=smallest, effort=effort, features=None if features is None else Features.named(features),
            fraction=fraction, floor=floor, seed=seed, progress=progress,
        )  # fmt: skip
        if output is not None:
            save_decoder(memory, output)
    text = None if prompt is None else memory.generate(prompt, temperature=temperature, seed=seed)
    promised = None if prompt is None else memory.knows_text(prompt)
    if as_json:
        show.print_json({**memory.summary(), "file": output, "text": text, "prompt_known": promised})
    else:
        show_memory(memory, output, text, promised, fresh=not is_decoder_file(docs), quiet=quiet)
    return 0 if memory.certificate.verdict is Verdict.PROVED else 1


def _verify(
    memory: DecoderMemory,
    file: str,
    documents: list[Document] | GivenDistributions,
    fraction: float,
    as_json: bool,
    progress: Progress,
) -> int:
    """Exit status 0 only if the gap is proved and the documents are those of the file."""
    certificate = memory.verify(documents, fraction=fraction, progress=progress)
    same = certificate.fingerprint == memory.certificate.fingerprint
    if as_json:
        show.print_json({"file": file, **certificate.as_dict(), "same_data": same})
    else:
        show.line(show.console(), f"{certificate.verdict.value}: {certificate.reason} ({certificate.arithmetic})")
        if not same:
            show.line(show.console(), f"these are not the documents that {file} was made of")
    return 0 if certificate.verdict is Verdict.PROVED and same else 1


def _where(conditions: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals or not name:
            raise OptionError(f"--where {condition!r} must be COLUMN=VALUE, for example --where source=v1-train")
        found[name] = value
    return found
