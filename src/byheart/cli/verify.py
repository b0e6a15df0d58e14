"""byheart verify: prove a saved memory again, evaluated as a user evaluates it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from byheart.certify import AT_ONCE, FRACTION, Certificate, EvaluationPlan, Verdict
from byheart.cli import show
from byheart.cli.data_options import (
    RECORDED,
    DataFlags,
    budget_options,
    data_options,
    evaluation_plan,
    executor_options,
    load_limited,
    output_options,
    progress_for,
    refuse_unused,
)
from byheart.data.dataset.targets import Target
from byheart.data.read.formats.delimited import is_made_up
from byheart.data.read.options import Selection
from byheart.data.read.sources import Limits, suffixes
from byheart.data.read.table import Table, read
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import SYNONYMS
from byheart.data.values import AUTO
from byheart.errors import OptionError
from byheart.memory import Memory
from byheart.memory.deployed import DeployedModel, is_onnx
from byheart.memory.documents import read_documents_table
from byheart.memory.text import page_count, rows_again
from byheart.memory.verify import Checked, VerifyOptions, check_rows
from byheart.progress import Progress


@click.command("verify")
@click.argument("file", metavar="FILE", type=click.Path())
@click.argument("data", metavar="[DATA]", required=False, type=click.Path())
@click.option("--part", is_flag=True, help="DATA is only a part of the memorized rows: prove their answers alone.")
@click.option(
    "--gap",
    type=float,
    default=FRACTION,
    show_default=True,
    help="For a memory of distributions: by what fraction of the entropy its cross-entropy may exceed it.",
)
@click.option(
    "--ambiguous",
    type=click.Choice(["distribution", "first", "majority"]),
    help="For a checkpoint folder: what prefixes with several continuations answer [distribution].",
)
@click.option(
    "--adapter",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="For a checkpoint folder: a PEFT adapter, merged or not.",
)
@click.option("--weight-column", metavar="NAME", help="For a checkpoint folder: how often each document occurs [1].")
@executor_options
@data_options(*RECORDED, "tokens")
@budget_options
@output_options
def command(
    file: str,
    data: str | None,
    part: bool,
    gap: float,
    ambiguous: str | None,
    adapter: str | None,
    weight_column: str | None,
    executor: str | None,
    resume: str | None,
    flags: DataFlags,
    as_json: bool,
    quiet: bool,
) -> int:
    """Prove again that FILE returns the label of every row of DATA.

    FILE is a memory, a deployed ONNX model or a checkpoint folder. Every row is evaluated with the file's own
    tokenizer, symbols, network and classes, and every answer is compared with DATA's own label by type and value. The
    file's record of its sizes and its bound is compared, never trusted.

    Exit status 0 only when every row of DATA gets its label and the construction's bound holds (with --part, the
    answers alone); 1 when not, 2 when FILE or DATA cannot be used. The verdict counts every skipped row. The columns of
    a memory are those of `memorize` and are printed; flags override them.

    \b
      byheart verify names.byheart names.csv
      byheart verify codes.onnx codes.csv                (a deployed table: proved from the file's own tables)
      byheart verify tiny-qwen3 poem.txt                 (a checkpoint folder: its margin, proved from its tensors)
      byheart verify tiny-qwen3                          (a fixture: its own documents; recall: every prompt)
      byheart verify tiny-lora/base --adapter tiny-lora/adapters/other
      byheart verify names.byheart renamed.csv --sequence-column first --label-column country --json
    """
    progress = progress_for(as_json, quiet)
    if Path(file).is_dir():
        from byheart.checkpoints.proof.recall import is_recall
        from byheart.cli.recital import verify_checkpoint

        if data is None and adapter is None and is_recall(file):
            return _verify_recall(file, as_json, quiet, progress)
        return verify_checkpoint(file, data, flags, as_json, quiet, progress, ambiguous, weight_column, adapter)
    if data is None:
        raise click.UsageError("Missing argument 'DATA': only checkpoint folders need none")
    if ambiguous or weight_column or adapter:
        raise OptionError("--ambiguous, --weight-column and --adapter apply to checkpoint folders only; omit them")
    if is_onnx(file):
        return _verify_deployed(file, data, part, flags, as_json, quiet, progress)
    memory = load_limited(file)
    plan = evaluation_plan(executor, resume)
    checked, table = check_data(memory, data, flags, progress, gap, part, plan)
    certificate = checked.certificate
    if as_json:
        show.print_json(as_plain(certificate, memory, file, table, flags))
    else:
        lines = show.certificate_lines(certificate)
        for line in lines[:1] if quiet else [*lines, *_queried(table, flags)]:
            show.line(show.console(), line)
    return 0 if certificate.verdict is Verdict.PROVED else 1


def _verify_recall(folder: str, as_json: bool, quiet: bool, progress: Progress) -> int:
    """A recall folder, whose function is total: every prompt is proved, so there is no DATA."""
    from byheart.checkpoints.proof.recall import certify_recall

    with progress.stage("proving"):
        certificate = certify_recall(folder)
    if as_json:
        show.print_json({"file": folder, **certificate.as_dict()})
    else:
        lines = certificate.lines()
        for line in lines[:1] if quiet else lines:
            show.line(show.console(), line)
    return 0 if certificate.verdict is Verdict.PROVED else 1


def _verify_deployed(
    file: str, data: str, part: bool, flags: DataFlags, as_json: bool, quiet: bool, progress: Progress
) -> int:
    """A deployed ONNX file against DATA; status 0 where it is proved, or measured without a difference."""
    used = ("sequence_columns", "label_column", "header", "encoding", "max_rows", "max_bytes")
    refuse_unused("a deployed model", *used, "missing", "uneven", "conflicts")
    model = DeployedModel.load(file)
    limits = None
    if flags.value("max_rows") is not None or flags.value("max_bytes") not in (None, Limits.max_bytes):
        limits = flags.options(Task.NEXT_TOKEN).limits
    checked = model.verify(
        data,
        missing=flags.value("missing"),
        uneven=flags.value("uneven"),
        conflicts=flags.conflicts,
        part=part,
        limits=limits,
        progress=progress,
        header=flags.value("header"),
        encoding=flags.value("encoding"),
        label=flags.value("label_column"),
        columns=flags.value("sequence_columns"),
    )
    names = {"inputs": [name for name, _ in model.columns], "label": model.label}
    if as_json:
        show.print_json({"file": file, "as": model.form, **checked.as_dict(), "columns": names})
    else:
        out = show.console()
        show.line(out, f"{checked.verdict}: {checked.reason}")
        if not quiet:
            counts = checked.account.counts()
            skipped = "".join(f", {count:,} skipped by {flag}" for flag, count in counts.items())
            show.line(
                out, f"{checked.account.rows:,} rows, {checked.agree:,} agree, {checked.differ:,} differ{skipped}"
            )
            inputs = ", ".join(map(repr, names["inputs"][:8]))
            show.line(out, f"evaluated: inputs {inputs}, label {model.label!r}, as the file records")
    return 1 if checked.verdict == Verdict.REFUTED.value else 0


def _queried(table: Table, flags: DataFlags) -> list[str]:
    """Which columns were evaluated; where no label was, which others might have contained one."""
    labels = [] if table.selection.label_column is not None else ["labels are the next tokens", table.unused]
    found = "; ".join(part for part in (table.choice, *labels) if part)
    return [f"evaluated: {found}; {_SOURCES[columns_from(flags)]}"] if table.choice else []


_SOURCES = {
    "file": "columns as FILE records (--sequence-column, --label-column for others)",
    "flags": "columns by flags",
}


def columns_from(flags: DataFlags) -> str:
    """Whether the columns of DATA are those that FILE records or the user's."""
    return "flags" if flags.value("sequence_columns") or flags.value("label_column") else "file"


def as_plain(certificate: Certificate, memory: Memory, file: str, table: Table, flags: DataFlags) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "file": file,
        "construction": memory.construction,
        **certificate.as_dict(),
        **({} if certificate.gap is None else certificate.gap.summary()),
        "left_out": sum(certificate.left_out.values()),
        "left_out_by": dict(certificate.left_out),
        "undecided": certificate.undecided,
        "same_data": certificate.fingerprint == memory.certificate.fingerprint,
        "remarks": list(certificate.remarks),
        "columns": table.columns,
        "columns_from": columns_from(flags),
        "recorded": {"verdict": memory.certificate.verdict.value, "guaranteed": dict(memory.claim.bounds)},
    }


def check_data(
    memory: Memory,
    data: str,
    flags: DataFlags,
    progress: Progress,
    gap: float = FRACTION,
    part: bool = False,
    plan: EvaluationPlan = AT_ONCE,
) -> tuple[Checked, Table]:
    """The verdict about everything in DATA, apart from the rows that flags skip."""
    table = read_rows_given(memory, data, flags, progress)
    options = VerifyOptions(flags.value("max_rows"), flags.conflicts, table.not_here, gap, part)

    def place(row: int) -> str:
        return f"row {row}" if table.places is None else f"row {row} ({table.places(row)})"

    checked = check_rows(memory, table.sequences, table.labels, progress, options=options, place=place, plan=plan)
    return checked, table


def read_rows_given(memory: Memory, data: str, flags: DataFlags, progress: Progress) -> Table:
    """All rows of DATA, tokenized by the memory's own tokenizer and read as FILE records; flags override the record.

    Columns, header and encoding are taken from FILE and printed. What decides the comparison itself is not: rows that
    are skipped, labels beyond a length, types of labels, and labels in another column than FILE's.
    """
    kind, _, _ = flags.tokens.partition(":")
    if flags.tokens != "auto" and SYNONYMS.get(kind, kind) != memory.tokens.kind:
        raise OptionError(f"--tokens {flags.tokens}: the memory tokenizes texts into {memory.tokens} itself; omit it")
    then = memory.selection
    options = replace(flags.options(memory.task, recorded(then)), max_rows=None)
    if memory.target is Target.DISTRIBUTION:
        tokens = replace(memory.tokens, max_length=options.max_length, pad=None)  # the user sets the limit
        columns = options.sequence_columns or then.sequence_columns
        options = replace(options, tokens=AUTO, sequence_columns=columns)
        return read_documents_table(data, options, tokenizer=tokens, unlabelled=not flags.value("sequence_columns"))
    if page_count(memory) and suffixes(data)[0] == ".txt":
        text = DataFlags({**flags.given, "tokens": memory.tokens.kind}).read_text(data)
        return Table(*rows_again(memory, text), memory.tokens, task=memory.task)
    # The memory truncates its inputs itself; without a flag the reader must not truncate DATA's labels.
    whole = replace(memory.tokens, max_length=None, pad=None)
    table = read(data, replace(options, tokens=whole), like=then, progress=progress)
    if flags.value("label_type") is None and then.label_type != AUTO:
        raise OptionError(
            f"FILE was built from labels read as {then.label_type}; DATA's labels are taken as they are unless you "
            f"give --label-type {then.label_type}"
        )
    return table


def recorded(selection: Selection) -> dict[str, Any]:
    """Return how rows were read when the memory was built, as fields of `ReadOptions`; columns are for the reader."""
    names = [*selection.sequence_columns, *([selection.label_column] if selection.label_column else [])]
    # Files of formats 1 and 2 record no header, but names that were made up because there was none.
    header = False if selection.header is None and names and all(map(is_made_up, names)) else selection.header
    found = {
        "header": header,
        "encoding": selection.encoding,
        "missing": "label" if selection.missing == "label" else None,
    }
    return {name: value for name, value in found.items() if value is not None}
