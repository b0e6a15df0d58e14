"""byheart memorize: data to a certified memory in a file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from byheart.certify import Verdict
from byheart.cli import show
from byheart.cli.data_options import (
    DataFlags,
    construction_options,
    data_options,
    evaluation_plan,
    executor_options,
    output_options,
    parse_options,
    progress_for,
    refuse_unused,
)
from byheart.data.read.columns import row_number_words
from byheart.data.read.sources import suffixes
from byheart.data.read.table import Table
from byheart.data.task import Task
from byheart.errors import OptionError, TableError
from byheart.export.targets import targets
from byheart.files import check_target
from byheart.memory import Memory
from byheart.memory.documents import read_documents_table
from byheart.memory.memorize import USUAL_BITS, memorize, refusing_unknown
from byheart.memory.size_rows import abstention_price, lower_sentences
from byheart.memory.text import memorize_text

_WORTH_A_LINE = 1000  # bytes of the tables of symbols and labels
BOOK_TOKENS = ("auto", "characters", "bytes")  # of a text that is recited as a whole
# The flags that each kind of data uses; others are refused.
CUT = ("tokens", "max_bytes")
RECITAL_TABLE = (*CUT, "sequence_columns", "max_rows", "missing", "header", "encoding")
DOCUMENTS = (*RECITAL_TABLE, "max_length", "token_type", "label_column", "pad", "seed")
TABLE = (*DOCUMENTS, "label_type", "uneven", "conflicts", "task", "positions", "drop", "keep")


@click.command("memorize")
@click.argument("data", metavar="DATA", type=click.Path())
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Where to write it (default: DATA.byheart).")
@click.option(
    "--task",
    metavar="TASK",
    type=click.Choice([t.value for t in Task]),
    help="next-token, seq-to-seq, set or causal: rows, tokens, sets or prefixes are labelled.  [default: next-token; "
    "causal for documents]",
)
@construction_options
@click.option(
    "--positions/--no-positions",
    default=True,
    show_default=True,
    help="On: the order of the tokens matters. Off: rows are bags of tokens with a last one.",
)
@click.option(
    "--for",
    "purpose",
    metavar="TARGET",
    type=click.Choice(sorted(targets())),
    help=f"Build what can be exported to {', '.join(sorted(targets()))}. Picks a construction that floats hold "
    "(native), with abstain_bits=16 so that unknown rows are recognised, and refuses others at once.",
)
@executor_options
@click.option("--page-length", type=int, metavar="L", help="Characters per page of a memorized text.")
@data_options()
@output_options
def command(
    data: str,
    output: str | None,
    task: str | None,
    construction: str,
    pairs: tuple[str, ...],
    positions: bool,
    purpose: str | None,
    executor: str | None,
    resume: str | None,
    seed: int,
    page_length: int | None,
    flags: DataFlags,
    as_json: bool,
    quiet: bool,
) -> int:
    """Build a Transformer that stores DATA exactly, certify it, and save it.

    DATA is a CSV, TSV, JSON Lines, Parquet, Arrow, .npy, .npz or text file (also .gz or .zst), the folder of a Hugging
    Face data set (hf:NAME for one from the hub), or - for standard input. A text (.txt) with --task causal becomes a
    language model that recites it; with --tokens words and the like, every line of it is a separate row.

    For a construction of distributions (madden24), DATA is documents unless --task or --label-column is given:
    every prefix has the distribution of the tokens that follow it, or the one that rows {"context": "a cat", "next":
    {"sat": 0.7, "ran": 0.3}} give.

    Exit status: 0 proved, 1 not proved, 2 the input cannot be used, 130 interrupted.

    \b
      byheart memorize names.csv -o names.byheart
      byheart memorize names.csv --sequence-column first --label-column country
      byheart memorize reviews.parquet --tokens bpe:500 --max-length 32
      byheart memorize names.csv --construction ks25 --option form=residual --json
      byheart memorize book.txt --task causal -o book.byheart      (then: byheart recite book.byheart)
      byheart memorize poem.txt --construction recital             (then: byheart export --to huggingface)
      byheart memorize stories.jsonl --construction madden24 --max-length 10
    """
    from byheart.build import recipe  # builders are loaded only to build

    path = Path(output or ("memory" if data == "-" else Path(data.removesuffix("/")).name.split(".")[0]) + ".byheart")
    check_target(path)
    if purpose is not None:
        construction = _for_export(purpose, construction)
    chosen = recipe(construction)
    options: dict[str, Any] = dict(parse_options(pairs))
    if purpose is not None and any(option.name == "abstain_bits" for option in chosen.options):
        options.setdefault("abstain_bits", str(USUAL_BITS))
    controls: dict[str, Any] = {}
    if chosen.texts:
        from byheart.cli.recital import controls_of, memorize_texts, split_controls

        controls, options = split_controls(options, seed)
    chosen.require()
    resolved = chosen.resolve(options)  # before anything long begins
    plan = evaluation_plan(executor, resume)
    options |= {name: value for name, value in (("executor", plan.executor), ("resume", resume)) if value is not None}
    if chosen.texts:
        if executor is not None or resume is not None:
            raise OptionError(f"--executor and --resume are for rows; {construction} is built from texts in one go")
        alike = () if task not in (None, Task.CAUSAL) else ("task",)
        refuse_unused("a recital", "seed", *alike, *(CUT if suffixes(data)[0] == ".txt" else RECITAL_TABLE))
        resolved |= controls_of(controls, data, flags)
        return memorize_texts(data, path, flags, resolved, progress_for(as_json, quiet), as_json, quiet)
    progress = progress_for(as_json, quiet)
    building: dict[str, Any] = {"construction": construction, "seed": seed, "progress": progress, **options}
    facts: dict[str, Any] = {}
    reading = ""
    if chosen.distributions and task is None and flags.value("label_column") is None:
        refuse_unused("documents", *DOCUMENTS, *(("positions",) if positions else ()))
        table = read_documents_table(data, flags.options(Task.CAUSAL))
        memory = memorize(table, **building)
        facts = {"columns": table.columns, "shortened": table.shortened}
        note = table.note
    elif Task(task or Task.NEXT_TOKEN) is Task.CAUSAL and suffixes(data)[0] == ".txt" and flags.tokens in BOOK_TOKENS:
        refuse_unused("one long text", *CUT, "task", "seed", "page_length", *(("positions",) if positions else ()))
        text = flags.read_text(data)
        memory = memorize_text(text, page_length=page_length, **building)
        note = f"a text of {len(text):,} {memory.tokens}"
    else:
        refuse_unused("rows of a table", *TABLE)
        resolved |= refusing_unknown(construction, task, options)
        table = flags.read(data, Task(task or Task.NEXT_TOKEN), progress, chosen.planning(resolved))
        _refuse_row_numbers(table)
        memory = memorize(table, positions=positions, conflicts=flags.conflicts or "error", **building)
        facts = {"columns": table.columns, "conflicts": memory.conflicts, "shortened": table.shortened}
        facts["missing"] = table.missing.as_dict()
        note, reading = table.note, table.reading
    memory.save(path)
    if resume is not None and any(option.name == "resume" for option in chosen.options):
        from byheart.build.fold.segments import is_journal

        if is_journal(resume):  # all of it is done
            Path(resume).unlink(missing_ok=True)
    if as_json:
        show.print_json({**memory.summary(), "file": str(path), **facts})
    else:
        print_memory(memory, note, path, quiet, reading)
    return 0 if memory.certificate.verdict is Verdict.PROVED else 1


def _refuse_row_numbers(table: Table) -> None:
    """Refuse columns that only number the rows, as `deploy` does, and suggest the same remedy."""
    if not table.numbering:
        return
    problems = [row_number_words(name) for name in table.numbering]
    flags = [f"{table.numbering_flag or '--drop'} {shlex.quote(name)}" for name in table.numbering]
    raise TableError("the table cannot be read as it is:", problems, flags)


def unknown_line(memory: Memory) -> str:
    """What rows outside the table get, and the price of recognising them."""
    bits = int(memory.options.get("abstain_bits") or 0)
    if not bits or memory.task is not Task.NEXT_TOKEN:
        return ""
    price = abstention_price(memory)
    words = ""
    if price is not None:
        where = "" if price.rows == memory.certificate.asked else f" of {price.rows:,} of the rows"
        words = f" that needs {price.extra:,} of {price.parameters:,} parameters{where} (measured);"
    often = f"rows outside the table are unknown, except about one in 2^{bits}"
    return f"{often} (abstain_bits={bits});{words} --option abstain_bits=0 builds without it"


def _for_export(purpose: str, construction: str) -> str:
    """The construction that can be exported, before anything is built."""
    from byheart.build import recipe, recipes

    if recipe(construction).floats:
        return construction
    source = click.get_current_context().get_parameter_source("construction")
    if source is ParameterSource.DEFAULT:
        return next(name for name, found in recipes().items() if found.floats)
    raise OptionError(f"--for {purpose}: the numbers of {construction} are longer than floats; omit --construction")


def print_memory(memory: Memory, note: str, path: Path | None, quiet: bool, reading: str = "") -> None:
    """What was read, the sizes, the verdict, and where it is (None: nowhere)."""
    out = show.console()
    if not quiet:
        if reading:
            show.line(out, reading)
        found = memory.summary()
        counts = f"{found['N']:,} rows of at most {found['n']} tokens, {found['C']:,} classes"
        show.line(out, f"read {counts} ({note})")
        out.print(show.size_table(memory))
        if memory.certificate.gap is not None:
            out.print(show.gap_table(memory))
        if memory.table_bytes["symbols"] + memory.table_bytes["labels"] > _WORTH_A_LINE:
            tables = f"{found['symbols']:,} symbols, {found['C']:,} labels"
            bytes = " and ".join(f"{count:,}" for count in memory.table_bytes.values())
            show.line(out, f"shipped beside the weights: tables of {tables}, {bytes} bytes")
        for sentence in lower_sentences(memory):
            show.line(out, sentence)
        for remark in memory.notes:
            show.line(out, f"note: {remark}")
        if line := unknown_line(memory):
            show.line(out, line)
    show.line(out, show.verdict_line(memory))
    if not quiet and path is not None:
        show.line(out, f"saved to {path}")
