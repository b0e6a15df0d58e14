"""byheart deploy: a table to an ONNX file that takes the table's own cells, in one command."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import click

from byheart.cli import show
from byheart.cli.data_options import asked_by, asking_options, is_verbose, output_options, progress_for
from byheart.data.missing import POLICIES as MISSING
from byheart.data.read.account import UNEVEN, Account
from byheart.data.read.cells import CellType
from byheart.data.read.options import POLICIES
from byheart.data.read.sources import Limits
from byheart.files import check_target, write_atomically
from byheart.memory.deploy import Deployment, deploy
from byheart.memory.table_plan import WAYS

MOST_PLACES = 200  # of left-out rows on the screen; a file has the rest


@click.command("deploy")
@click.argument("data", metavar="TABLE", type=click.Path())
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(), help="Where to write it (default: TABLE's name.onnx)."
)
@click.option(
    "--label",
    "--label-column",
    "label",
    metavar="NAME",
    help="The column to answer with (default: guessed, and shown).",
)
@click.option(
    "--input",
    "--sequence-column",
    "columns",
    metavar="NAME",
    multiple=True,
    help="An input column (default: all others).",
)
@click.option("--drop", metavar="NAME", multiple=True, help="A column to leave out.")
@click.option(
    "--keep", metavar="NAME", multiple=True, help="A column that numbers the rows and is an input all the same."
)
@click.option(
    "--text", "texts", metavar="NAME", multiple=True, help="Read a column of numbers as texts, as they stand."
)
@click.option(
    "--missing",
    type=click.Choice(MISSING),
    default="error",
    show_default=True,
    help="Rows with an empty cell: refuse them, leave them out, or treat an empty cell as a value of its own.",
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
    help="Lines with more or fewer cells than there are columns: refuse them, or leave them out.",
)
@click.option(
    "--tokens",
    type=click.Choice(["auto", *WAYS]),
    default="auto",
    show_default=True,
    help="How texts are cut; auto takes what makes the smallest file.",
)
@click.option(
    "--abstain-bits",
    type=click.IntRange(0, 32),
    metavar="B",
    help="A row that is not in the table is answered by some label once in 2^B times, in a smaller file; 0 makes the "
    "smallest (default: never).",
)
@click.option("--dtype", type=click.Choice(["float64", "float32"]), default="float64", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether a CSV file begins with the names of its columns (default: it does; asked if it looks like a row).",
)
@click.option("--encoding", metavar="NAME", help="How a text file is written, for example cp1252 (default: UTF-8).")
@click.option("--max-rows", type=click.IntRange(1), metavar="N", help="Read the first N rows only.")
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    metavar="B",
    default=Limits.max_bytes,
    show_default=True,
    help="What a compressed file may unpack to.",
)
@click.option(
    "--left-out", metavar="FILE", type=click.Path(), help="Write every row that was left out, with the reason, as CSV."
)
@asking_options
@output_options
def command(
    data: str,
    output: str | None,
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
    """Make an ONNX model of TABLE that takes its cells and says the label: built, proved, and asked every row.

    TABLE is a CSV, TSV, JSON Lines, Parquet or Arrow file (also .gz or .zst), the folder of a Hugging Face data set, or
    - for standard input. The model needs nothing but ONNX Runtime: it takes texts and numbers as the table has them,
    and its second output says whether it knows the row.

    Exit status: 0 written, 2 the table cannot be used as it is, 130 interrupted.

    \b
      byheart deploy codes.csv -o codes.onnx
      byheart deploy people.csv --label country --drop id --missing drop --conflicts first -o people.onnx
    """
    path = Path(output or ("memory" if data == "-" else Path(data.removesuffix("/")).name.split(".")[0]) + ".onnx")
    target = None if left_out is None else check_target(Path(left_out))
    made = deploy(
        data,
        path,
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
        executor=asked_by(executor, resume).executor,
        resume=resume,
        progress=progress_for(as_json, quiet),
    )
    listed = _write_left_out(made.account, target, path)
    if as_json:
        show.print_json({**made.summary(), "left_out_file": None if listed is None else str(listed)})
        return 0
    _print(made, listed, quiet)
    return 0


def _write_left_out(account: Account, wanted: Path | None, model: Path) -> Path | None:
    """A file with every row that was left out: where the user wants it, or where the screen would not show them all."""
    if wanted is None and all(len(part.numbers) <= MOST_PLACES for part in account.left_out):
        return None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([account.unit, "reason", "flag"])
    for part in account.left_out:
        writer.writerows([number, part.reason, part.flag] for number in part.numbers)
    path = wanted or model.with_suffix(".left-out.csv")
    write_atomically(path, text.getvalue().encode())
    return path


def _print(made: Deployment, listed: Path | None, quiet: bool) -> None:
    out = show.console()
    for line in made.account.lines(MOST_PLACES):
        show.line(out, line)
    if listed is not None:
        show.line(out, f"every row that was left out is in {listed}")
    if not quiet:
        for line in _about(made):
            show.line(out, line)
    show.line(out, _verdict(made))
    if quiet:
        return
    show.line(out, f"wrote {made.file}; ask it:")
    for line in made.snippet().splitlines():
        show.line(out, f"  {line}")
    show.line(out, _unknown_words(made))
    if is_verbose():
        for step, seconds in made.memory.seconds.items():
            click.echo(f"{step}: {seconds:.1f} s", err=True)


def _about(made: Deployment) -> list[str]:
    """Columns, sizes and what other choices would take."""
    ways: dict[str, list[str]] = {}
    for column in made.front.columns:
        ways.setdefault(f"{column.type.value}s as {column.cutting.name}", []).append(repr(column.name))
    lines = [f"input: {', '.join(_few(names))} ({how})" for how, names in ways.items()]
    kinds = made.answers.type.value if len(made.answers.labels) == 1 else f"different {made.answers.type.value}s"
    lines.append(f"label: {made.label!r} ({len(made.answers.labels):,} {kinds})")
    lines += [f"note: {remark}" for remark in made.remarks]
    sizes = made.sizes
    parts = ", ".join(f"{name} {count:,}" for name, count in sizes.items() if name != "file" and count)
    lines.append(f"{made.memory.size.parameters:,} parameters; the file has {sizes['file']:,} bytes: {parts}")
    cuttings = {name: count for name, count in made.alternatives.items() if name in WAYS}
    if len(cuttings) > 1:
        others = ", ".join(f"{name} {count:,}" for name, count in cuttings.items())
        lines.append(f"texts are cut so that the file is smallest; estimates in bytes: {others} (--tokens)")
    return lines


def _few(names: list[str], most: int = 8) -> list[str]:
    return names if len(names) <= most else [*names[:most], f"… ({len(names):,} in all)"]


def _verdict(made: Deployment) -> str:
    asked, taken = made.strangers
    strange = f"; of {asked:,} rows that are not in it, {asked - taken:,} are answered as unknown" if asked else ""
    dtype = made.memory.options["dtype"]
    shown = f"exact in any order: {dtype}" in made.memory.certificate.proofs
    held = f", and {dtype} holds every value in any order of evaluation" if shown else ""
    return (
        f"proved: every known row gets its label in exact arithmetic{held}; "
        f"ONNX Runtime gave every row its label{strange}"
    )


def _unknown_words(made: Deployment) -> str:
    bits = made.memory.options["abstain_bits"]
    unknown = "NaN" if made.answers.type is CellType.NUMBER else repr(made.answers.unknown)
    answer = f"a row that is not known: {made.signature.known} False, {made.signature.label} {unknown}"
    flags = [(flag, count) for flag, count in made.alternatives.items() if flag.startswith("--")]
    others = [f"{flag} about {count:,} bytes" for flag, count in flags if count < made.sizes["file"]]
    smaller = f" (a smaller file that answers some of them: {', '.join(others)})" if others else ""
    if made.exact_unknown:
        return f"{answer}; no row that is not in the table is ever answered by a label{smaller}"
    often = f"about one in 2^{bits}" if bits else "most"
    return f"{answer}; {often} of the rows that are not in the table are answered by some label{smaller}"
