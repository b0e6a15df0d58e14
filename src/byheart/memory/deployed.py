"""A deployed ONNX file, read again: predictions and a verdict from the file alone.

The file's record (metadata `byheart.table`) has what its inputs and outputs lack: the name of the label column, the
columns of a matrix, and how the table was read. A lookup is proved: its graph is compared with the graph of the tables
that it contains, and these tables with the rows of the data. A network is measured: ONNX Runtime evaluates every row.

>>> from byheart.memory.deploy import deploy
>>> table = {"animal": ["cat", "dog", "cow"], "sound": ["meow", "woof", "moo"]}
>>> file = DeployedModel.of(deploy(table, progress=False).model)
>>> file.predict([["cow", "owl"]]), file.verify(table).verdict
(['moo', unknown], 'proved')
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from byheart.data.read.account import Account, settle_cells
from byheart.data.read.cells import CellTable, CellType, Column, read_cells, typed_column
from byheart.data.read.columns import choose_column, open_records
from byheart.data.read.sources import Limits, TextForm
from byheart.data.values import UNKNOWN
from byheart.data.wording import quote
from byheart.errors import DataError, FileFormatError
from byheart.export.lookup.files import read_table_file
from byheart.export.lookup.hashed import HashedLookup
from byheart.export.onnx_table import RECORD, ROWS, tensor
from byheart.export.targets.onnx import libraries, open_session
from byheart.files import read_bytes
from byheart.progress import SILENT, Progress

LARGEST = 1 << 31  # bytes
MEASURED = "measured"
# Rows at a time.
_BATCH = 4096
_FIRST_BYTE = b"\x08"  # field 1 of a ModelProto, its version


def is_onnx(path: str | Path) -> bool:
    """Whether a file is an ONNX model, by its ending or its first byte."""
    file = Path(path)
    if file.suffix.lower() == ".onnx":
        return True
    try:
        with file.open("rb") as opened:
            return opened.read(1) == _FIRST_BYTE
    except OSError:
        return False


@dataclass(frozen=True)
class DeployedCheck:
    """The verdict about a deployed file on the rows of a table.

    Attributes:
        verdict: `proved`: the file contains exactly these rows with these labels; `measured`: ONNX Runtime returned
            every row's label; `refuted`: some row differs, or the file contains other rows.
        reason: What was found, in one sentence.
        account: What became of every row of the data.
        agree: Rows that got their label.
        differ: Rows that did not.
        extra: Rows that the file contains and the data lacks; 0 where the file does not list its rows.
    """

    verdict: str
    reason: str
    account: Account
    agree: int
    differ: int
    extra: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The fields of `verify --json`."""
        counts = self.account.counts()
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "rows": self.account.rows,
            "asked": self.agree + self.differ,
            "agree": self.agree,
            "differ": self.differ,
            "extra": self.extra,
            "left_out": sum(counts.values()),
            "left_out_by": counts,
        }


@dataclass(frozen=True, eq=False)
class DeployedModel:
    """A deployed file.

    Attributes:
        form: `lookup` or `network`.
        columns: Names and types of the inputs.
        label: The name of the label column.
        label_type: The type of the labels.
        record: The file's whole record.
        data: The bytes of the file.
    """

    form: str
    columns: tuple[tuple[str, CellType], ...]
    label: str
    label_type: CellType
    record: dict[str, Any]
    data: bytes = field(repr=False)

    @staticmethod
    def load(path: str | Path) -> DeployedModel:
        """Read a file that `byheart deploy` wrote.

        Raises:
            FileFormatError: The file is no ONNX model, or has no record of byheart.
        """
        data = read_bytes(Path(path), LARGEST)
        try:
            return DeployedModel.of(data)
        except FileFormatError as error:
            raise FileFormatError(f"{path}: {error}") from None

    @staticmethod
    def of(data: bytes) -> DeployedModel:
        """The model of a file's bytes."""
        onnx, _ = libraries()
        try:
            model = onnx.load_from_string(data)
        except Exception:
            raise FileFormatError("this is not an ONNX model; copy it again") from None
        about = {part.key: part.value for part in model.metadata_props}
        if RECORD not in about:
            raise FileFormatError("this ONNX model has no record of byheart; give a file that `byheart deploy` wrote")
        try:
            record = json.loads(about[RECORD])
            form, read = record.get("as", "lookup"), record.setdefault("read", {})
            columns = _columns(onnx, model.graph, record)
            label, kind = _label(onnx, model.graph, record)
            if form not in ("lookup", "network") or not columns or not isinstance(read, dict):
                raise ValueError("a field has an unknown value")
            return DeployedModel(form, columns, label, kind, record, data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(f"its record is damaged ({error}); copy or deploy it again") from None

    @cached_property
    def _session(self) -> Any:
        _, runtime = libraries()
        try:
            return open_session(runtime, self.data)
        except Exception as error:
            raise FileFormatError(f"ONNX Runtime refuses the model: {str(error)[:200]}") from None

    def predict(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """The label of every row of cells, column by column; UNKNOWN for a row outside the table.

        Raises:
            DataError: A cell does not have its column's type.
        """
        if len(columns) != len(self.columns):
            names = ", ".join(repr(name) for name, _ in self.columns)
            raise DataError(f"a row has {len(columns)} cells, but the model has {len(self.columns)} inputs: {names}")
        found: list[Any] = []
        for start in range(0, len(columns[0]), _BATCH):
            labels, known = self._run([cells[start : start + _BATCH] for cells in columns])
            found += [label if there else UNKNOWN for label, there in zip(labels, known, strict=True)]
        return found

    def _run(self, columns: Sequence[Sequence[Any]]) -> tuple[list[Any], list[bool]]:
        inputs = [part.name for part in self._session.get_inputs()]
        try:
            if inputs == [ROWS] and (len(self.columns) > 1 or self.columns[0][0] != ROWS):
                kinds = {kind for _, kind in self.columns}
                kind = CellType.NUMBER if len(kinds) > 1 else kinds.pop()
                feeds = {ROWS: np.stack([tensor(cells, kind) for cells in columns], axis=1)}
            else:
                pairs = zip(self.columns, columns, strict=True)
                feeds = {name: tensor(cells, kind) for (name, kind), cells in pairs}
            label, known = self._session.run(None, feeds)[:2]
        except Exception as error:
            kinds_named = ", ".join(f"{name!r} ({kind})" for name, kind in self.columns)
            raise DataError(f"the model's inputs are {kinds_named}: {str(error)[:200]}") from None
        return label.tolist(), known.tolist()

    def read(
        self, source: Any, *, limits: Limits | None = None, progress: Progress = SILENT, **given: Any
    ) -> CellTable:
        """The rows of a table as the file's own table was read; `given` overrides header, encoding, label, columns."""
        then = self.record["read"]
        unnamed = then.get("unnamed")
        names = [("" if name == unnamed else name) for name, _ in self.columns]
        texts = [name for name, (_, kind) in zip(names, self.columns, strict=True) if kind is CellType.TEXT]
        label = given.get("label") or self.label
        columns = list(given.get("columns") or names)
        if given.get("columns"):
            texts = [name for name, (_, kind) in zip(columns, self.columns, strict=False) if kind is CellType.TEXT]
        texts += [label] if self.label_type is CellType.TEXT else []
        header = then.get("header") if given.get("header") is None else given["header"]
        table = read_cells(
            source,
            label=label,
            columns=columns,
            texts=texts,
            header=True if header is None else header,
            encoding=given.get("encoding") or then.get("encoding"),
            limits=limits or Limits(max_rows=then.get("max_rows")),
            progress=progress,
        )
        kinds = [kind for _, kind in self.columns]
        if len(kinds) != len(table.columns):
            raise DataError(f"the model has {len(kinds)} inputs, the data has {len(table.columns)} input columns")
        typed = tuple(_as_type(column, kind) for column, kind in zip(table.columns, kinds, strict=True))
        return replace(table, columns=typed, label=_as_type(table.label, self.label_type))

    def read_rows(
        self, source: Any, *, columns: Sequence[str] = (), progress: Progress = SILENT
    ) -> list[tuple[Any, ...]]:
        """The input cells of every row of a table, which need not have a label column."""
        then = self.record["read"]
        records = open_records(source, Limits(), TextForm(then.get("header") is not False, then.get("encoding")))
        names = list(columns) or [("" if name == then.get("unnamed") else name) for name, _ in self.columns]
        for name in names:
            choose_column(records, name, (), "input", ())
        found: list[list[Any]] = [list(row) for _, row in records.select(tuple(names))]
        kinds = [kind for _, kind in self.columns]
        typed = [
            _as_type(typed_column(name, list(cells), keep_text=kind is CellType.TEXT), kind).cells
            for name, cells, kind in zip(names, zip(*found, strict=True), kinds, strict=True)
        ]
        return list(zip(*typed, strict=True))

    def verify(
        self,
        source: Any,
        *,
        missing: str | None = None,
        conflicts: str | None = None,
        uneven: str | None = None,
        part: bool = False,
        limits: Limits | None = None,
        progress: Progress = SILENT,
        **given: Any,
    ) -> DeployedCheck:
        """Check the file against a table, without the code that built it.

        Args:
            source: The table.
            missing: What happens to rows with empty cells; by default as the file records. So for `conflicts` and
                `uneven`. Every skipped row is counted.
            conflicts: As `missing`, for equal rows with different labels.
            uneven: As `missing`, for lines with too many or too few cells.
            part: The table is only a part of the file's rows.
            limits: How much to read.
            progress: Where to show progress.
            **given: `header`, `encoding`, `label`, `columns` in place of the file's own.

        Returns:
            The verdict, and how many rows agree.
        """
        then = self.record["read"]
        table, account = settle_cells(
            self.read(source, limits=limits, progress=progress, **given),
            missing=missing or then.get("missing", "error"),
            conflicts=conflicts or then.get("conflicts", "error"),
            uneven=uneven or then.get("uneven", "error"),
        )
        cells = [column.cells for column in table.columns]
        with progress.stage("evaluating every row in ONNX Runtime"):
            found = self.predict(cells)
        wrong = [row for row, label in enumerate(found) if label is UNKNOWN or label != table.label.cells[row]]
        agree = len(found) - len(wrong)
        if wrong:
            row = wrong[0]
            given_label, label = quote(table.label.cells[row]), found[row]
            words = "unknown" if label is UNKNOWN else quote(label)
            reason = f"{table.unit} {table.numbers[row]} is labelled {given_label}, but the model returns {words}"
            return DeployedCheck("refuted", reason, account, agree, len(wrong))
        if self.form == "network":
            reason = f"ONNX Runtime returned the label of all {agree:,} rows"
            return DeployedCheck(MEASURED, reason, account, agree, 0)
        return self._prove(table, account, agree, part)

    def _prove(self, table: CellTable, account: Account, agree: int, part: bool) -> DeployedCheck:
        """Compare the tables in the file with the rows: both ways, so that no other row is known."""
        onnx, _ = libraries()
        model = onnx.load_from_string(self.data)
        lookup = read_table_file(model, self.columns, _stored_type(self.label_type), self.record)
        if isinstance(lookup, HashedLookup):
            return self._prove_hashed(lookup, table, account, agree)
        contents = lookup.rows()
        rows = dict(zip(zip(*(column.cells for column in table.columns), strict=True), table.label.cells, strict=True))
        odd = [row for row, label in rows.items() if row not in contents or contents[row] != label]
        if odd:
            reason = f"the file's tables do not contain {quote(list(odd[0]))} with its label"
            return DeployedCheck("refuted", reason, account, agree, len(odd))
        extra = len(contents) - len(rows)
        if extra and not part:
            other = next(row for row in contents if row not in rows)
            reason = f"the file contains {extra:,} rows that the data lacks, such as {quote(list(other))}"
            remedy = "--part accepts a part of its rows"
            return DeployedCheck("refuted", f"{reason}; {remedy}", account, agree, 0, extra)
        exactly = "exactly" if not extra else "among others"
        reason = f"the file contains {exactly} these {len(rows):,} different rows, each with its label"
        return DeployedCheck("proved", reason, account, agree, 0, extra)

    def _prove_hashed(self, lookup: HashedLookup, table: CellTable, account: Account, agree: int) -> DeployedCheck:
        """Evaluate the hashed table in the file on every row. It has no list of rows, so others are not compared."""
        found = lookup.predict([column.cells for column in table.columns])
        odd = [row for row, label in enumerate(found) if label != table.label.cells[row]]
        if odd:
            row = quote([column.cells[odd[0]] for column in table.columns])
            reason = f"the file's table does not give {row} its label"
            return DeployedCheck("refuted", reason, account, agree, len(odd))
        bits = lookup.table.check_bits
        others = f"the file does not list rows: about one other row in 2^{bits} gets a label"
        return DeployedCheck("proved", f"each of {agree:,} rows has its label; {others}", account, agree, 0)


def _tensor_type(onnx: Any, part: Any) -> CellType:
    """The type of cells that a tensor of the graph holds."""
    kinds = onnx.TensorProto
    types = {
        kinds.STRING: CellType.TEXT, kinds.INT64: CellType.WHOLE,
        kinds.DOUBLE: CellType.NUMBER, kinds.BOOL: CellType.TRUTH,
    }  # fmt: skip
    return types[part.type.tensor_type.elem_type]


def _columns(onnx: Any, graph: Any, record: dict[str, Any]) -> tuple[tuple[str, CellType], ...]:
    """Names and types of the columns: the record's for a matrix, else those of the graph's inputs."""
    if "columns" in record:
        return tuple((str(name), CellType(kind)) for name, kind in record["columns"].items())
    return tuple((part.name, _tensor_type(onnx, part)) for part in graph.input)


def _label(onnx: Any, graph: Any, record: dict[str, Any]) -> tuple[str, CellType]:
    """Name and type of the label column: the graph's name; truth values, which are stored as numbers, are recorded."""
    found = record.get("label", graph.name)
    if isinstance(found, str):
        return found, _tensor_type(onnx, graph.output[0])
    name, kind = found
    return str(name), CellType(kind)


def _stored_type(kind: CellType) -> CellType:
    """Truth values are stored as 0 and 1."""
    return CellType.WHOLE if kind is CellType.TRUTH else kind


def _as_type(column: Column, kind: CellType) -> Column:
    """The column as the file's type, where every cell keeps its value."""
    cells = column.cells
    if column.type is kind or all(cell is None for cell in cells):
        return replace(column, type=kind)
    if kind is CellType.NUMBER and column.type is CellType.WHOLE and all(abs(cell) < 1 << 53 for cell in cells):
        return replace(column, type=kind, cells=[float(cell) for cell in cells])
    whole = kind is CellType.WHOLE and column.type is CellType.NUMBER
    if whole and all(cell is not None and cell.is_integer() for cell in cells):
        return replace(column, type=kind, cells=[int(cell) for cell in cells])
    if kind is CellType.WHOLE and column.type is CellType.TRUTH:
        return replace(column, type=kind, cells=[int(cell) for cell in cells])
    raise DataError(f"column {column.name!r} holds {column.type.value}s here and {kind.value}s in the file")


def cells_of_text(text: str, columns: Sequence[tuple[str, CellType]]) -> list[Any]:
    """One row from the command line: the cell itself for one column, a JSON list or object for several.

    >>> cells_of_text("00501", [("zip", CellType.TEXT)]), cells_of_text("[1, 2.5]", [("a", CellType.WHOLE), ("b",
    ...               CellType.NUMBER)])
    (['00501'], [1, 2.5])
    """
    if len(columns) == 1:
        name, kind = columns[0]
        return [_parsed(text, name, kind)]
    try:
        row = json.loads(text)
    except ValueError:
        row = None
    if isinstance(row, dict):
        lacking = [name for name, _ in columns if name not in row]
        if lacking:
            raise DataError(f"{quote(text)} has no {lacking[0]!r}; the inputs are {', '.join(n for n, _ in columns)}")
        row = [row[name] for name, _ in columns]
    if not isinstance(row, list) or len(row) != len(columns):
        names = ", ".join(name for name, _ in columns)
        raise DataError(f"{quote(text)} is not a JSON list of {len(columns)} cells ({names}); quote it for the shell")
    return [
        _parsed(cell, name, kind) if isinstance(cell, str) else _of_kind(cell, name, kind)
        for cell, (name, kind) in zip(row, columns, strict=True)
    ]


def _of_kind(cell: Any, name: str, kind: CellType) -> Any:
    """A cell of JSON other than a text, where the column can hold it: `true` is not 1, and 1 is not "1"."""
    held = {CellType.TEXT: (), CellType.TRUTH: (bool,)}.get(kind, (int, float))
    if cell is None or type(cell) in held:
        return cell
    remedy = "; write it in quotes" if kind is CellType.TEXT else ""
    raise DataError(f"{json.dumps(cell)} is not a {kind.value}, as the column {name!r} has{remedy}")


def _parsed(text: str, name: str, kind: CellType) -> Any:
    try:
        if kind is CellType.WHOLE:
            return int(text)
        if kind is CellType.NUMBER:
            return float(text)
    except ValueError:
        raise DataError(f"{quote(text)} is not a {kind.value}, as the column {name!r} has") from None
    if kind is CellType.TRUTH:
        if text.lower() not in ("true", "false", "1", "0"):
            raise DataError(f"{quote(text)} is not a truth value, as the column {name!r} has")
        return text.lower() in ("true", "1")
    return text
