"""deploy(): from a table to an ONNX file that takes the table's own cells and says the label, straight down.

read (data/read/cells) -> account of rows (data/read/account) -> how cells become codes, by size (data/tokens/front)
-> build and prove (construction native) -> one graph (export/onnx_table) -> asked every row in ONNX Runtime -> written.
"""

from __future__ import annotations

import itertools
import json
import math
import shlex
import warnings
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.certify import Verdict
from byheart.data.dataset.dataset import load
from byheart.data.read.account import Account, TableProblem, settle_cells
from byheart.data.read.cells import CellTable, CellType, read_cells, row_number_columns
from byheart.data.read.sources import Limits
from byheart.data.tokens.front import Front
from byheart.data.tokens.row_keys import RowKeys
from byheart.data.wording import quote
from byheart.errors import BuildError, DataError, ExportError, OptionError
from byheart.export.onnx_table import GraphLabels, Signature, build_table_model
from byheart.export.targets.onnx import libraries, open_session
from byheart.files import check_target, write_atomically
from byheart.ir.decoder_network import DecoderNetwork
from byheart.memory.memorize import memorize_dataset
from byheart.memory.memory import Memory
from byheart.memory.table_plan import WAYS, TablePlan, plan_fronts
from byheart.progress import SILENT, Progress, console_progress, timed, warn_left_out
from byheart.version import __version__

_BATCH = 4096
_STRANGERS = 1000


@dataclass(frozen=True)
class Deployment:
    """What `deploy` made: the certified memory of codes, the graph's front, and what is in the file.

    `sizes` are bytes of the file by what they are for; `alternatives` what other choices (ways to cut texts, unknown
    rows not recognised) were estimated to take; `strangers` how many rows outside of the table were asked, and how many
    of them the model took for known. `exact_unknown`: no row outside of the table is ever taken for a known one.
    """

    memory: Memory
    front: Front
    answers: GraphLabels
    signature: Signature
    account: Account
    sizes: dict[str, int]
    alternatives: dict[str, int]
    strangers: tuple[int, int]
    example: dict[str, list[Any]]
    label: str
    exact_unknown: bool = False
    remarks: tuple[str, ...] = ()
    model: bytes = field(default=b"", repr=False)
    file: str = "model.onnx"

    def snippet(self) -> str:
        """Three lines of Python that ask the model for the first row of the table."""
        return (
            "import onnxruntime\n"
            f"session = onnxruntime.InferenceSession({self.file!r})\n"
            f"{self.signature.label}, {self.signature.known} = session.run(None, {_as_code(self.example)})"
        )

    def summary(self) -> dict[str, Any]:
        """What `deploy --json` prints."""
        found = self.memory.summary()
        names = ("construction", "verdict", "N", "C", "contexts", "parameters", "nonzero", "width", "depth", "blocks")
        inputs = {column.name: f"{column.type} as {column.cutting.name}" for column in self.front.columns}
        return {
            "file": self.file,
            **{name: found[name] for name in names},
            "abstain_bits": self.memory.options["abstain_bits"],
            "dtype": self.memory.options["dtype"],
            "bytes": self.sizes,
            "columns": inputs,
            "inputs": list(self.signature.inputs),
            "outputs": [self.signature.label, self.signature.known],
            "label": self.label,
            "label_type": self.answers.type.value,
            "unknown": None if self.answers.type is CellType.NUMBER else self.answers.unknown,
            "rows": self.account.as_dict(),
            "alternatives_bytes": self.alternatives,
            "unknown_is_exact": self.exact_unknown,
            "strangers_asked": self.strangers[0],
            "strangers_taken_for_known": self.strangers[1],
            "remarks": list(self.remarks),
            "build_seconds": found["build_seconds"],
            "certify_seconds": found["certify_seconds"],
        }


def deploy(
    source: Any,
    path: str | Path | None = None,
    *,
    label: str | None = None,
    columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    texts: Sequence[str] = (),
    missing: str = "error",
    conflicts: str = "error",
    uneven: str = "error",
    tokens: str = "auto",
    abstain_bits: int | None = None,
    dtype: str = "float64",
    seed: int = 0,
    header: bool | None = None,
    encoding: str | None = None,
    limits: Limits | None = None,
    row_numbers: str = "warn",
    executor: Executor | None = None,
    resume: str | Path | None = None,
    progress: bool | Progress = True,
) -> Deployment:
    """A table (a file, a data frame, a dictionary of columns) as an ONNX model that says the label of every row.

    `label` names the label's column (else one with a usual name, else the last), `columns` the inputs (else all others
    but those of `drop`). Columns of numbers are taken as numbers, those of `texts` as texts whatever they look like.
    `missing`, `conflicts` and `uneven` say what to do about empty cells, equal rows with different labels and lines
    with too many or too few cells; `header` and `encoding` how a text file is written; `tokens` how texts are cut:
    `auto` (by the size of the result), `characters`, `words` or `cells`. A row that is not in the table is answered by
    `known` = False, always; with `abstain_bits` b, once in 2^b times by some label, in a smaller file. A column that
    numbers the rows is kept with a warning unless `keep` names it; `row_numbers="error"` refuses it. `executor` and
    `resume` are those of `memorize`: where buckets are solved and rows are asked, and what keeps an interrupted proof.

    The memory is proved, and the model gives every row its label in ONNX Runtime before it is written.

    >>> table = {"animal": ["cat", "dog", "cow"], "says": ["meow", "woof", "moo"]}
    >>> made = deploy(table, progress=False)
    >>> made.memory.certificate.verdict.value, made.answers.unknown
    ('proved', '<unknown>')
    >>> print(made.snippet())
    import onnxruntime
    session = onnxruntime.InferenceSession('model.onnx')
    label, known = session.run(None, {'animal': ['cat']})
    """
    reporter = progress if not isinstance(progress, bool) else console_progress() if progress else SILENT
    libraries()  # before anything long begins
    if path is not None:
        check_target(Path(path))
    if row_numbers not in ("warn", "error"):
        raise OptionError(f"row_numbers={row_numbers!r} is not one of warn, error")
    if tokens != "auto" and tokens not in WAYS:
        raise OptionError(f"tokens={tokens!r} is not one of auto, {', '.join(WAYS)}")
    table = read_cells(
        source,
        label=label,
        columns=columns,
        drop=drop,
        texts=texts,
        header=header,
        encoding=encoding,
        limits=limits,
        progress=reporter,
    )
    numbering = row_number_columns(table.columns, keep) if len(table.columns) > 1 and not columns else []
    if numbering and row_numbers == "error":
        _refuse_row_numbers(table, numbering, missing, conflicts, uneven)
    for name in numbering:
        remedy = f"leave it out with drop=[{name!r}], or say keep=[{name!r}]"
        warnings.warn(f"{_numbering_words(name)}; {remedy}", stacklevel=2)
    with reporter.stage("comparing rows"):
        kept, account = settle_cells(table, missing=missing, conflicts=conflicts, uneven=uneven)
        kept = _named(kept)
        _check_texts(kept)
    warn_left_out("rows", account.counts())
    plans, alternatives = plan_fronts(kept, tokens, abstain_bits, dtype)
    divided = {name: value for name, value in (("executor", executor), ("resume", resume)) if value is not None}
    memory, plan = _build(kept, plans, account, dtype, seed, reporter, divided)
    if memory.certificate.verdict is not Verdict.PROVED:
        raise BuildError(f"the memory was not proved, so nothing is written: {memory.certificate.reason}")
    return _export(memory, plan, kept, account, alternatives, path, reporter)


def _numbering_words(name: str) -> str:
    return f"column {name!r} numbers the rows (no value repeats), so that a question would need the number of its row"


def _refuse_row_numbers(table: CellTable, names: list[str], missing: str, conflicts: str, uneven: str) -> None:
    """Asks about these columns, and says in the same message what the table needs once they are gone."""
    problems = []
    for name in names:
        flag = f"--drop {shlex.quote(name)}"
        words = f"{_numbering_words(name)}; say {flag} to leave it out, or --keep {shlex.quote(name)}"
        problems.append(TableProblem(words, flag))
    rest = tuple(column for column in table.columns if column.name not in names)
    table = replace(table, columns=rest or table.columns)
    settle_cells(table, missing=missing, conflicts=conflicts, uneven=uneven, problems=problems)


def _as_code(value: Any) -> str:
    """A value as Python reads it back: NaN and infinity have no literals.

    >>> _as_code({"x": [0.5, math.nan]}), _as_code(-math.inf)
    ("{'x': [0.5, float('nan')]}", "float('-inf')")
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {_as_code(cells)}" for name, cells in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_as_code, value))}]"
    return f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)


def _named(table: CellTable) -> CellTable:
    """Every input of a graph needs a name, which the first column of many a table lacks."""
    taken = {column.name for column in table.columns}
    free = next(name for name in map("column {}".format, itertools.count(1)) if name not in taken)
    columns = tuple(column if column.name else replace(column, name=free) for column in table.columns)
    told = () if "" not in taken else (f"the column without a name is the input {free!r}",)
    return replace(table, columns=columns, remarks=(*table.remarks, *told))


def _check_texts(table: CellTable) -> None:
    """Texts that ONNX cannot hold: halves of surrogate pairs, which are not Unicode."""
    for column in (*table.columns, table.label):
        if column.type is CellType.TEXT:
            for cell, number in zip(column.cells, table.numbers, strict=True):
                if not cell.isascii() and any("\ud800" <= letter <= "\udfff" for letter in cell):
                    raise DataError(
                        f"{table.unit} {number}: {quote(cell)} in {column.name!r} is not Unicode, which ONNX needs"
                    )


def _build(
    table: CellTable,
    plans: list[TablePlan],
    account: Account,
    dtype: str,
    seed: int,
    progress: Progress,
    divided: dict[str, Any],
) -> tuple[Memory, TablePlan]:
    """The memory of the first plan for which one can be built."""
    labels: Any = table.label.cells
    if table.label.type is CellType.WHOLE:
        labels = np.array(labels, dtype=np.int64)
    refusal: BuildError | None = None
    for plan in plans:
        front = plan.front
        codes, known = front.encode([column.cells for column in table.columns])
        if not known.all():
            raise BuildError("a row of the table is not known to the front that was made of it; please report this")
        rows = codes[:, :, None].astype(np.float64) if front.scalars else codes
        dataset = load(rows, labels, positions=False)
        try:
            memory = memorize_dataset(
                dataset,
                construction="native",
                seed=seed,
                progress=progress,
                left_out=account.counts(),
                abstain_bits=plan.abstain_bits,
                dtype=dtype,
                **divided,
            )
        except BuildError as error:
            refusal = refusal or error
            continue
        return memory, plan
    raise refusal or BuildError("there is no way to cut this table")


@timed("exporting")
def _export(
    memory: Memory,
    plan: TablePlan,
    table: CellTable,
    account: Account,
    alternatives: dict[str, int],
    path: str | Path | None,
    progress: Progress,
) -> Deployment:
    """The graph, asked every row, and written if there is a path."""
    onnx, runtime = libraries()
    front = plan.front
    answers = GraphLabels.of(memory.classes, table.label.type)
    signature = Signature.of(front)
    if isinstance(memory.network, DecoderNetwork):
        raise ExportError("a decoder is not a memory of labels; deploy builds construction native")
    keys = RowKeys.of(front.sizes, _places(table, front)) if plan.listed else None
    model = build_table_model(front, memory.network, memory.encoder, memory.options["dtype"], answers, keys)
    session = open_session(runtime, model)
    _recheck(session, front, signature, answers, table, progress)
    strangers = _ask_strangers(session, front, signature, table)
    if plan.exact_unknown and strangers[1]:
        raise ExportError(
            f"the model knows {strangers[1]} of {strangers[0]} rows that are not in the table; nothing was written. "
            "Please report this together with the versions of onnx and onnxruntime"
        )
    about = _metadata(memory, front, answers, account)
    onnx.helper.set_model_props(model, about)
    written = model.SerializeToString()
    if path is not None:
        write_atomically(Path(path), written)
    row = _short_row(table)
    first = signature.feeds(front, [column.cells[row : row + 1] for column in table.columns])
    return Deployment(
        memory=memory,
        front=front,
        answers=answers,
        signature=signature,
        account=account,
        sizes=_sizes(model, len(written)),
        alternatives=alternatives | plan.others,
        strangers=strangers,
        exact_unknown=plan.exact_unknown,
        label=table.label.name,
        example={name: array.tolist() for name, array in first.items()},
        remarks=table.remarks,
        model=written,
        file="model.onnx" if path is None else str(path),
    )


def _places(table: CellTable, front: Front) -> npt.NDArray[np.int64]:
    """The codes of the rows (N, places), counted from 0 at every place."""
    codes, _ = front.encode([column.cells for column in table.columns])
    return np.asarray(codes - np.array(front.first_codes))


def _short_row(table: CellTable) -> int:
    """The first row that fits on a line or two of an example; the shortest where there is none."""
    lengths = (sum(len(str(column.cells[row])) for column in table.columns) for row in range(len(table)))
    found = list(itertools.islice(lengths, 1000))
    return next((row for row, length in enumerate(found) if length <= 100), found.index(min(found)))


def _metadata(memory: Memory, front: Front, answers: GraphLabels, account: Account) -> dict[str, str]:
    """What travels with the model: its inputs, the proof, and what it was checked with.

    That the float type holds every value in any order is a property that the memory's certificate proves.
    """
    structured = {
        "input": {column.name: column.type.value for column in front.columns},
        "unknown": str(answers.unknown),
        "construction": memory.construction,
        "options": dict(memory.options),
        "seed": memory.seed,
        "proved": dict(memory.certificate.proofs),
        "certificate": memory.certificate.as_dict(),
        "left_out": account.counts(),
    }
    return {
        "byheart.version": __version__,
        "byheart.dtype": str(memory.options["dtype"]),
        "byheart.parameters": str(memory.size.parameters),
        "byheart.checked": f"every row of the table ({account.kept}), cells in and label out, in ONNX Runtime",
        **{f"byheart.{name}": json.dumps(value, default=str) for name, value in structured.items()},
    }


def _recheck(
    session: Any, front: Front, signature: Signature, answers: GraphLabels, table: CellTable, progress: Progress
) -> None:
    """Every row must be known and have its label, as the user will ask for it; an ExportError names the first that
    is not."""
    with progress.stage("asking every row in ONNX Runtime", total=len(table)) as stage:
        for start in range(0, len(table), _BATCH):
            part = slice(start, start + _BATCH)
            feeds = signature.feeds(front, [column.cells[part] for column in table.columns])
            label, known = session.run([signature.label, signature.known], feeds)
            expected = np.array(table.label.cells[part], dtype=answers.array().dtype)
            wrong = np.flatnonzero(~(known & (label == expected)))
            if wrong.size:
                row = start + int(wrong[0])
                cells = [column.cells[row] for column in table.columns]
                raise ExportError(
                    f"the model answers {quote(label[wrong[0]])} for {table.unit} {table.numbers[row]} {quote(cells)}, "
                    f"whose label is {quote(table.label.cells[row])}; nothing was written. Please report this together "
                    "with the versions of onnx and onnxruntime"
                )
            stage.advance(len(label))


def _ask_strangers(session: Any, front: Front, signature: Signature, table: CellTable) -> tuple[int, int]:
    """Rows put together from the beginning of one row and the end of another, where they are not in the table.

    Returns how many were asked, and how many were taken for known ones: about one in 2^abstain_bits is expected.
    """
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, len(table), (2 * _STRANGERS, 2)).tolist()
    drawn: dict[tuple[Any, ...], None] = {}
    for one, two in pairs:
        cells = [(column.cells[one], column.cells[two]) for column in table.columns]
        cut = int(rng.integers(0, len(cells)))
        row = [a if k < cut else b for k, (a, b) in enumerate(cells)]
        a, b = cells[cut]
        if isinstance(a, str) and isinstance(b, str) and len(cells) == 1:
            row[cut] = a[: len(a) // 2] + b[len(b) // 2 :]
        drawn[tuple(row)] = None
    for known_row in zip(*(column.cells for column in table.columns), strict=True):
        drawn.pop(known_row, None)
    rows = list(drawn)[:_STRANGERS]
    if not rows:
        return 0, 0
    feeds = signature.feeds(front, list(zip(*rows, strict=True)))
    known: npt.NDArray[np.bool_] = session.run([signature.known], feeds)[0]
    return len(rows), int(known.sum())


def _sizes(model: Any, total: int) -> dict[str, int]:
    """Bytes of the file by what they are for."""
    kinds = {1, 11, 10}  # float, double, float16: the weights
    weights = sum(
        part.ByteSize() for part in model.graph.initializer if part.data_type in kinds and part.name != "labels"
    )
    labels = sum(part.ByteSize() for part in model.graph.initializer if part.name.startswith("labels"))
    cells = sum(node.ByteSize() for node in model.graph.node if node.op_type in ("LabelEncoder", "RegexFullMatch"))
    listed = sum(node.ByteSize() for node in model.graph.node if node.output[0].startswith("row_places"))
    rest = total - weights - labels - cells
    found = {"weights": weights, "cells": cells - listed, "list of rows": listed, "labels": labels}
    return {**found, "graph and proof": rest, "file": total}
