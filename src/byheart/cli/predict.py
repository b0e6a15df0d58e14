"""byheart predict: the labels of sequences or of rows."""

from __future__ import annotations

import sys
from typing import Any

import click

from byheart.cli import show
from byheart.cli.data_options import budget_options, load_limited, output_options, progress_for
from byheart.data.read.options import ReadOptions
from byheart.data.read.sources import STDIN, lines
from byheart.data.read.table import read_sequences, tokenize
from byheart.data.values import UNKNOWN
from byheart.data.wording import as_json_number, written
from byheart.export.request import unknown_mark
from byheart.memory.deployed import DeployedModel, cells_of_text, is_onnx
from byheart.progress import Progress


@click.command("predict")
@click.argument("file", metavar="FILE", type=click.Path())
@click.argument("sequences", nargs=-1, metavar="[SEQUENCE]...")
@click.option(
    "--input",
    "source",
    metavar="DATA",
    type=click.Path(allow_dash=True),
    help="Read the sequences from a file of any format that memorize takes, or - for lines.",
)
@click.option(
    "--sequence-column",
    "columns",
    metavar="NAME",
    multiple=True,
    help="Column of the sequences (default: as memorized).",
)
@budget_options
@output_options
def command(
    file: str, sequences: tuple[str, ...], source: str | None, columns: tuple[str, ...], as_json: bool, quiet: bool
) -> int:
    """Print the label of each SEQUENCE.

    FILE is a memory, evaluated in exact arithmetic (decoders: in float64, the likeliest label), or a deployed ONNX
    model. A SEQUENCE is tokenized as the memory's data was; a JSON list is read as the tokens, or as the cells of a
    deployed row. The label of an unknown sequence is printed as "unknown" ("<unknown>" where that is a label; null with
    --json, which lists these rows under "unknown").

    Exit status: 0 printed, 2 the file or a sequence cannot be used.

    \b
      byheart predict entities.byheart "amp;" "lt;"
      byheart predict codes.onnx "SW1A 1AA"
      cat names.txt | byheart predict names.byheart --input -
    """
    if source is None and not sequences:
        raise click.UsageError("give SEQUENCEs or --input DATA")
    if is_onnx(file):
        return _predict_deployed(file, sequences, source, columns, as_json, progress_for(as_json, quiet))
    memory = load_limited(file)
    rows: list[Any] = [tokenize(text, memory.tokens, number) for number, text in enumerate(sequences, start=1)]
    progress = progress_for(as_json, quiet)
    if source is not None:
        # an answer for every row: nothing is skipped here, whatever was skipped in the data
        missing = "label" if memory.selection.missing == "label" else "error"
        options = ReadOptions(sequence_columns=columns, tokens=memory.tokens, missing=missing)
        rows += read_sequences(source, options, like=memory.selection, progress=progress)
    found = memory.predict(rows, progress)
    if as_json:
        unknown = [row for row, label in enumerate(found) if _has_unknown(label)]  # null may also be a missing label
        answer = {"file": file, "labels": [_plain(label) for label in found], "unknown": unknown}
        show.print_json({**answer, "recognises_unknown": memory.abstains})
    else:
        mark = "unknown" if "unknown" not in map(written, memory.classes) else unknown_mark(memory.classes)
        for label in found:
            click.echo(_text(label, mark))
        if not (quiet or memory.abstains) and sys.stderr.isatty():  # for people; scripts have it in --json
            words = "rows that were never memorized get some label, too, unless a memory is built with abstain_bits"
            click.echo(f"note: {words} (--option abstain_bits=16; compact, native)", err=True)
    return 0


def _predict_deployed(
    file: str,
    sequences: tuple[str, ...],
    source: str | None,
    columns: tuple[str, ...],
    as_json: bool,
    progress: Progress,
) -> int:
    """The labels that a deployed ONNX file returns."""
    model = DeployedModel.load(file)
    rows = [cells_of_text(text, model.columns) for text in sequences]
    if source == STDIN:
        rows += [cells_of_text(line.rstrip("\r\n"), model.columns) for _, line in lines(STDIN) if line.strip()]
    elif source is not None:
        rows += map(list, model.read_rows(source, columns=columns, progress=progress))
    found = model.predict([list(cells) for cells in zip(*rows, strict=True)])
    if as_json:
        unknown = [row for row, label in enumerate(found) if label is UNKNOWN]
        answer = {"file": file, "labels": [_plain(label) for label in found], "unknown": unknown}
        show.print_json({**answer, "recognises_unknown": model.record.get("exact", True)})
    else:
        mark = "<unknown>" if any(label == "unknown" for label in found) else "unknown"
        for label in found:
            click.echo(_text(label, mark))
    return 0


def _has_unknown(label: Any) -> bool:
    return label is UNKNOWN or (isinstance(label, list) and any(part is UNKNOWN for part in label))


def _plain(label: Any) -> Any:
    if isinstance(label, list | tuple):
        return [_plain(part) for part in label]
    if type(label) is int:
        return as_json_number(label)
    return None if label is UNKNOWN else label if isinstance(label, str | float | bool | None) else str(label)


def _text(label: Any, mark: str) -> str:
    if label is UNKNOWN:
        return mark
    return " ".join(_text(part, mark) for part in label) if isinstance(label, list) else written(label)
