"""byheart deploy: export a table as an ONNX model in one command."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import click

from byheart.cli import show
from byheart.cli.data_options import evaluation_plan, executor_options, is_verbose, output_options, progress_for
from byheart.data.dataset.conflicts import POLICIES
from byheart.data.missing import POLICIES as MISSING
from byheart.data.read.account import Account
from byheart.data.read.cells import CellType
from byheart.data.read.options import UNEVEN
from byheart.data.read.sources import Limits
from byheart.errors import OptionError
from byheart.files import check_target, write_atomically
from byheart.memory.deploy import FORMS, UNKNOWN_MODES, Deployment, deploy
from byheart.memory.table_plan import WAYS

MOST_PLACES = 200  # of skipped rows on the screen; a file has the rest
STDOUT = "-"


@click.command("deploy")
@click.argument("data", metavar="TABLE", type=click.Path())
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Where to write it (default: TABLE's name.onnx); - writes to standard output.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMS),
    default="auto",
    show_default=True,
    help="A lookup (tables in standard operators), a computed Transformer, or whichever serves you better.",
)
@click.option(
    "--unknown",
    type=click.Choice(UNKNOWN_MODES),
    help="Rows outside the table: never accepted, or accepted once in 2^B times by a smaller file without a list of "
    "rows.  [default: exact]",
)
@click.option(
    "--label",
    "--label-column",
    "label",
    metavar="NAME",
    help="The label column (default: guessed, and printed).",
)
@click.option(
    "--input",
    "--sequence-column",
    "columns",
    metavar="NAME",
    multiple=True,
    help="An input column (default: all others).",
)
@click.option("--drop", metavar="NAME", multiple=True, help="A column to skip.")
@click.option(
    "--keep", metavar="NAME", multiple=True, help="A column that numbers the rows and is an input nevertheless."
)
@click.option("--text", "texts", metavar="NAME", multiple=True, help="Read a column of numbers as texts.")
@click.option(
    "--missing",
    type=click.Choice(MISSING),
    default="error",
    show_default=True,
    help="Rows with an empty cell: refuse them, skip them, or treat an empty cell as a separate value.",
)
@click.option(
    "--conflicts",
    type=click.Choice(POLICIES),
    default="error",
    show_default=True,
    help="Equal inputs with different labels: refuse them, keep the first, keep the most frequent label, or drop all.",
)
@click.option(
    "--uneven",
    type=click.Choice(UNEVEN),
    default="error",
    show_default=True,
    help="Lines with more or fewer cells than there are columns: refuse them, or skip them.",
)
@click.option(
    "--tokens",
    type=click.Choice(["auto", *WAYS]),
    default="auto",
    show_default=True,
    help="How a network tokenizes texts; auto: so that the file is smallest.",
)
@click.option(
    "--abstain-bits",
    type=click.IntRange(0, 32),
    metavar="B",
    help="With --unknown approximate: a row outside the table is accepted once in 2^B times; 0 makes the smallest file "
    "(default: 16).",
)
@click.option("--dtype", type=click.Choice(["float64", "float32"]), default="float64", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether a CSV file begins with the names of its columns (default: it does; refused if it looks like a row).",
)
@click.option("--encoding", metavar="NAME", help="The encoding of a text file, for example cp1252 (default: UTF-8).")
@click.option("--max-rows", type=click.IntRange(1), metavar="N", help="Read the first N rows only.")
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    metavar="B",
    default=Limits.max_bytes,
    show_default=True,
    help="What a compressed file may unpack to.",
)
@click.option("--left-out", metavar="FILE", type=click.Path(), help="Write every skipped row, with the reason, as CSV.")
@executor_options
@output_options
def command(
    data: str,
    output: str | None,
    form: str,
    unknown: str | None,
    label: str | None,
    columns: tuple[str, ...],
    drop: tuple[str, ...],
    keep: tuple[str, ...],
    texts: tuple[str, ...],
    missing: str,
    conflicts: str,
    uneven: str,
    tokens: str,
    abstain_bits: int | None,
    dtype: str,
    seed: int,
    header: bool | None,
    encoding: str | None,
    max_rows: int | None,
    max_bytes: int,
    left_out: str | None,
    executor: str | None,
    resume: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Export TABLE as an ONNX model that maps cells to labels.

    TABLE is a CSV, TSV, JSON Lines, Parquet or Arrow file (also .gz or .zst), the folder of a Hugging Face data set, or
    - for standard input. The model needs nothing but ONNX Runtime: its inputs are texts and numbers as the table has
    them, and its second output reports whether the row is in the table. `byheart verify MODEL TABLE` proves it again.

    Exit status: 0 written, 2 the table cannot be used as it is, 130 interrupted.

    \b
      byheart deploy codes.csv -o codes.onnx
      byheart deploy codes.csv --unknown approximate -o codes.onnx
      byheart deploy people.csv --label country --drop id --missing drop --conflicts first -o people.onnx
    """
    name = "memory" if data == "-" else Path(data.removesuffix("/")).name.split(".")[0]
    path = None if output == STDOUT else Path(output or f"{name}.onnx")
    if path is None and as_json:
        raise OptionError("-o - and --json both write to standard output; give one of them")
    target = None if left_out is None else check_target(Path(left_out))
    made = deploy(
        data,
        path,
        form=form,
        unknown=unknown,
        label=label,
        columns=columns,
        drop=drop,
        keep=keep,
        texts=texts,
        missing=missing,
        conflicts=conflicts,
        uneven=uneven,
        tokens=tokens,
        abstain_bits=abstain_bits,
        dtype=dtype,
        seed=seed,
        header=header,
        encoding=encoding,
        limits=Limits(max_rows, max_bytes),
        row_numbers="error",
        executor=evaluation_plan(executor, resume).executor,
        resume=resume,
        compare=not quiet,
        progress=progress_for(as_json, quiet),
    )
    listed = _write_left_out(made.account, target, path)
    if path is None:
        click.echo(made.model, nl=False)
        return 0
    if as_json:
        show.print_json({**made.summary(), "left_out_file": None if listed is None else str(listed)})
        return 0
    _print(made, listed, quiet)
    return 0


def _write_left_out(account: Account, wanted: Path | None, model: Path | None) -> Path | None:
    """Write every skipped row: where the user wants it, or beside the model where there are too many to print."""
    few = all(len(part.numbers) <= MOST_PLACES for part in account.left_out)
    target = wanted or (None if few or model is None else model.with_suffix(".left-out.csv"))
    if target is None:
        return None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([account.unit, "reason", "flag"])
    for part in account.left_out:
        writer.writerows([number, part.reason, part.flag] for number in part.numbers)
    write_atomically(target, text.getvalue().encode())
    return target


def _print(made: Deployment, listed: Path | None, quiet: bool) -> None:
    if quiet:
        return
    out = show.console()
    for line in made.account.lines(MOST_PLACES):
        show.line(out, line)
    if listed is not None:
        show.line(out, f"every skipped row is listed in {listed}")
    for line in _about(made):
        show.line(out, line)
    show.line(out, _verdict(made))
    for line in _cost_lines(made):
        show.line(out, line)
    show.line(out, f"wrote {made.file}; query it:")
    for line in made.snippet().splitlines():
        show.line(out, f"  {line}")
    show.line(out, _unknown_line(made))
    if is_verbose() and made.memory is not None:
        for step, seconds in made.memory.seconds.items():
            click.echo(f"{step}: {seconds:.1f} s", err=True)


def _cost_lines(made: Deployment) -> list[str]:
    """One line for the file that was written, one for the other form."""
    if not made.costs:
        return []
    other = {"lookup": "network", "network": "lookup"}[made.form]
    lines = [f"written as {made.costs[0].line()}"]
    return lines + [f"the same rows as {cost.line()}; --as {other} writes it" for cost in made.costs[1:]]


def _about(made: Deployment) -> list[str]:
    """Columns, sizes, and the sizes of other choices."""
    lines = [made.reading] if made.reading else []
    lines += [f"note: {remark}" for remark in made.remarks]
    sizes = made.sizes
    parts = ", ".join(f"{name} {count:,}" for name, count in sizes.items() if name != "file" and count)
    network = "" if made.memory is None else f"{made.memory.size.parameters:,} parameters; "
    lines.append(f"{network}the file has {sizes['file']:,} bytes: {parts}")
    tokenized = {name: count for name, count in made.alternatives.items() if name in WAYS}
    if len(tokenized) > 1:
        others = ", ".join(f"{name} {count:,}" for name, count in tokenized.items())
        lines.append(f"texts are tokenized so that the file is smallest; estimates in bytes: {others} (--tokens)")
    return lines


def _verdict(made: Deployment) -> str:
    evaluated, accepted = made.outside
    outside = f"; {evaluated - accepted:,} of {evaluated:,} rows outside the table were unknown" if evaluated else ""
    measured = f"ONNX Runtime returned every row's label{outside}"
    if made.memory is None:
        different = made.account.kept - made.account.repeated
        contents = "contains exactly the table's" if made.exact_unknown else "returns the label of the table's"
        return f"proved from the file: it {contents} {different:,} different rows; {measured}"
    dtype = made.memory.options["dtype"]
    shown = f"exact in any order: {dtype}" in made.memory.certificate.proofs
    exact = f", and {dtype} represents every value in any order of evaluation" if shown else ""
    return f"proved: every known row gets its label in exact arithmetic{exact}; {measured}"


def _unknown_line(made: Deployment) -> str:
    unknown = "NaN" if made.answers.type is CellType.NUMBER else repr(made.answers.unknown)
    answer = f"an unknown row: {made.signature.known} False, {made.signature.label} {unknown}"
    flags = [(flag, count) for flag, count in made.alternatives.items() if flag.startswith("--")]
    others = [f"{flag} about {count:,} bytes" for flag, count in flags if count < made.sizes["file"]]
    smaller = f" (a smaller file that accepts some of them: {', '.join(others)})" if others else ""
    if made.exact_unknown:
        return f"{answer}; rows outside the table never get a label{smaller}"
    often = f"about one in 2^{made.abstain_bits}" if made.abstain_bits else "most"
    return f"{answer}; {often} of the rows outside the table get some label{smaller}"
