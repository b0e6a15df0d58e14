"""deploy(): export a table as an ONNX file that maps the table's own cells to labels.

read (data/read/cells) -> account of rows (data/read/account) -> lookup (export/onnx_lookup), or network: cells to codes
by size (data/tokens/front), build and prove (construction native), one graph (export/onnx_table) -> every row evaluated
in ONNX Runtime -> written. Reading, types, refusals and the account of rows are the same for both forms.
"""

from __future__ import annotations

import itertools
import json
import math
import shlex
import time
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
from byheart.data.read.columns import numbering_flag, row_number_words
from byheart.data.read.sources import Limits
from byheart.data.tokens.front import Front
from byheart.data.tokens.row_keys import RowKeys
from byheart.data.wording import quote
from byheart.errors import BuildError, DataError, ExportError, MissingLibraryError, OptionError
from byheart.export.hashed_table import MOST_CHECK_BITS
from byheart.export.onnx_hashed import HashedLookup, build_hashed_model
from byheart.export.onnx_joined import JoinedLookup, build_joined_model, read_table_file
from byheart.export.onnx_lookup import TableLookup, build_lookup_model, lookup_record
from byheart.export.onnx_table import RECORD, GraphLabels, TableSignature, build_table_model
from byheart.export.targets.onnx import libraries, open_session
from byheart.files import check_target, write_atomically
from byheart.ir.decoder_network import DecoderNetwork
from byheart.memory.memorize import USUAL_BITS, memorize_dataset
from byheart.memory.memory import Memory
from byheart.memory.table_plan import EXACT, WAYS, TablePlan, plan_fronts, plan_lookup
from byheart.notebook import card
from byheart.progress import SILENT, Progress, console_progress, timed, warn_left_out
from byheart.version import __version__

FORMS = ("auto", "lookup", "network")
UNKNOWN_MODES = (EXACT, "approximate")
# A network of this many rows builds in about a second; larger ones are timed on a sample of this size.
MOST_COMPARED = 500
# Rows at a time.
_BATCH = 4096
_OUTSIDE = 1000  # rows outside the table that are evaluated before the file is written
# Joined rows are taken where they make a file smaller by this factor. They take 1.4 times as long for one row and up to
# twice as long for a batch, so tables of postal codes (1.25) stay as they are; those of countries (1.5) are joined.
MUCH_SMALLER = 1.3
# For timing a query.
_TIMED_SECONDS = 0.05


@dataclass(frozen=True)
class Cost:
    """What one form of the same table costs: bytes of the file and seconds of one query.

    `estimated`: the bytes are the planner's estimate. `timed_rows`: the query was timed on a model of so many rows.
    """

    form: str
    bytes: int
    seconds: float
    estimated: bool = False
    timed_rows: int = 0

    def line(self) -> str:
        """One line for people."""
        size = f"about {self.bytes:,} bytes (estimated)" if self.estimated else f"{self.bytes:,} bytes"
        where = f" on {self.timed_rows:,} of the rows" if self.timed_rows else ""
        return f"{self.form}: {size}, {self.seconds * 1e6:,.1f} µs per query (measured{where})"


@dataclass(frozen=True, repr=False)
class Deployment:
    """The result of `deploy`: the model, how cells become its inputs, and the checks that it passed.

    Attributes:
        form: `lookup` or `network`.
        memory: The certified network of codes; None for a lookup.
        front: How cells become codes.
        answers: The labels, and the value that an unknown row gets.
        signature: The names of inputs and outputs.
        account: What became of every row of the source.
        sizes: Bytes of the file by purpose.
        alternatives: Estimated bytes of other tokenizations and of other ways to recognise unknown rows.
        outside: How many rows outside the table were evaluated, and how many of them were accepted as known.
        example: The first short row, as the inputs of the model.
        label: The name of the label column.
        exact_unknown: Rows outside the table never get a label.
        check_bits: Bits by which a hashed lookup recognises unknown rows.
        costs: Bytes and query time of this form and of the other one, where both were measured.
        remarks: The guesses about the table.
        reading: The columns in one line.
        model: The bytes of the file.
        file: Its name.

    >>> made = deploy({"code": ["A1", "B2"], "place": ["Rome", "Oslo"]}, progress=False)
    >>> made.form, made.verdict, made.account.kept, made.exact_unknown
    ('lookup', 'proved', 2, True)
    """

    form: str
    memory: Memory | None
    front: Front
    answers: GraphLabels
    signature: TableSignature
    account: Account
    sizes: dict[str, int]
    alternatives: dict[str, int]
    outside: tuple[int, int]
    example: dict[str, list[Any]]
    label: str
    exact_unknown: bool = False
    check_bits: int = 0
    costs: tuple[Cost, ...] = ()
    remarks: tuple[str, ...] = ()
    reading: str = ""
    model: bytes = field(default=b"", repr=False)
    file: str = "model.onnx"

    def __repr__(self) -> str:
        """One line: a table may have a million rows."""
        known, size = self.account.kept, self.sizes["file"]
        return f"<Deployment as {self.form}: {known:,} rows, {len(self.answers.labels):,} labels, {size:,} bytes>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        facts = [
            ("inputs", ", ".join(self.signature.inputs[:8])),
            ("label", f"{self.label} ({len(self.answers.labels):,} different)"),
            ("unknown rows", "always recognised" if self.exact_unknown else f"recognised up to 2^-{self.abstain_bits}"),
            ("file", self.file),
        ]
        rows = [(name, count) for name, count in self.sizes.items() if count]
        title = f"{self.account.kept:,} rows as a {self.form}: {self.verdict}"
        return card(title, facts, columns=("bytes", ""), rows=rows, tone="good")

    @property
    def verdict(self) -> str:
        """`proved`: nothing else is returned."""
        return Verdict.PROVED.value if self.memory is None else self.memory.certificate.verdict.value

    @property
    def abstain_bits(self) -> int:
        """Bits by which unknown rows are recognised; 0 for a list of the rows."""
        return self.check_bits if self.memory is None else int(self.memory.options["abstain_bits"])

    def snippet(self) -> str:
        """Three lines of Python that query the model for the first row of the table."""
        return (
            "import onnxruntime\n"
            f"session = onnxruntime.InferenceSession({self.file!r})\n"
            f"{self.signature.label}, {self.signature.known} = session.run(None, {_as_code(self.example)})"
        )

    def summary(self) -> dict[str, Any]:
        """The fields of `deploy --json`."""
        inputs = {column.name: f"{column.type} as {column.cutting.name}" for column in self.front.columns}
        return {
            "file": self.file,
            "as": self.form,
            **self._built(),
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
            "outside_evaluated": self.outside[0],
            "false_accepts": self.outside[1],
            "costs": [
                {
                    "as": cost.form,
                    "bytes": cost.bytes,
                    "estimated": cost.estimated,
                    "query_microseconds": round(cost.seconds * 1e6, 2),
                    "timed_rows": cost.timed_rows or self.account.kept,
                }
                for cost in self.costs
            ],
            "remarks": list(self.remarks),
        }

    def _built(self) -> dict[str, Any]:
        """The numbers of the network, or those of them that a lookup has."""
        if self.memory is None:
            return {
                "construction": None,
                "verdict": self.verdict,
                "N": self.account.kept,
                "C": len(self.answers.labels),
                "contexts": self.account.kept - self.account.repeated,
                "parameters": 0,
                "nonzero": 0,
            }
        found = self.memory.summary()
        names = ("construction", "verdict", "N", "C", "contexts", "parameters", "nonzero", "width", "depth", "blocks")
        seconds = ("build_seconds", "certify_seconds")
        options = {"abstain_bits": self.abstain_bits, "dtype": self.memory.options["dtype"]}
        return {name: found[name] for name in (*names, *seconds)} | options


def deploy(
    source: Any,
    path: str | Path | None = None,
    *,
    form: str = "auto",
    unknown: str | None = None,
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
    compare: bool = False,
    progress: bool | Progress = True,
) -> Deployment:
    """Export a table as an ONNX model that maps its cells to labels.

    The contents of a lookup are proved from the bytes of its file; a network is proved in exact arithmetic. Either way
    the model returns every row's label in ONNX Runtime before it is written.

    Args:
        source: A file, a data frame or a dictionary of columns.
        path: Where to write the model; None writes nothing.
        form: `lookup` (a graph of tables), `network` (a computed Transformer), or `auto`: a lookup, unless an option
            is given that changes a network alone (`tokens`, `dtype`).
        unknown: `exact` (default): rows outside the table never get a label. `approximate`: the file has no list of
            the rows, and one unknown row in 2^`abstain_bits` gets a label. A lookup then hashes its rows; `auto`
            lists them where that is smaller.
        label: The label column; by default one with a usual name, else the last one.
        columns: The input columns; by default all others except those of `drop`.
        drop: Columns to skip.
        keep: Columns that number the rows and are inputs nevertheless.
        texts: Columns of numbers to read as texts.
        missing: `error`, `drop` or `label`: what happens to rows with empty cells.
        conflicts: `error`, `first`, `majority` or `drop`: what happens to equal rows with different labels.
        uneven: `error` or `drop`: what happens to lines with too many or too few cells.
        tokens: How a network tokenizes texts: `auto` (by the size of the file), `characters`, `words` or `cells`.
        abstain_bits: Implies `unknown="approximate"`; default 16.
        dtype: The float type of a network.
        seed: The seed of a network.
        header: Whether a text file begins with the names of its columns.
        encoding: The encoding of a text file.
        limits: How much to read.
        row_numbers: `warn` about, or `error` for, a column that only numbers the rows.
        executor: Where the buckets of a network are solved.
        resume: A file that keeps the finished parts of an interrupted build.
        compare: Measure the other form too.
        progress: Whether, or where, to show progress.

    Returns:
        The model with its account of rows and its checks.

    Raises:
        TableError: The table needs a decision; the message names every flag.
        OptionError: The options contradict each other.
        BuildError: No network could be built.
        ExportError: A check of the written graph failed.

    >>> table = {"animal": ["cat", "dog", "cow"], "sound": ["meow", "woof", "moo"]}
    >>> made = deploy(table, progress=False)
    >>> made.form, made.answers.unknown
    ('lookup', '<unknown>')
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
    bits = _abstain_bits(form, unknown, abstain_bits)
    if form == "lookup":
        for name, given in (("tokens", tokens != "auto"), ("executor", executor), ("resume", resume)):
            if given:
                raise OptionError(f"{name} applies to networks only; omit it, or choose --as network")
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
        message = row_number_words(name).split(";")[0]
        warnings.warn(f"{message}; skip it with drop=[{name!r}], or accept it with keep=[{name!r}]", stacklevel=2)
    with reporter.stage("comparing rows"):
        kept, account = settle_cells(table, missing=missing, conflicts=conflicts, uneven=uneven)
        unnamed = "" in [column.name for column in kept.columns]
        kept = _named(kept)
        _check_texts(kept)
    warn_left_out("rows", account.counts())
    record = {
        name: value
        for name, value, usual in (
            ("header", header, None),
            ("encoding", encoding, None),
            ("max_rows", None if limits is None else limits.max_rows, None),
            ("missing", missing, "error"),
            ("conflicts", conflicts, "error"),
            ("uneven", uneven, "error"),
            ("unnamed", _free_name(table) if unnamed else None, None),
        )
        if value != usual
    }
    network = _NetworkOptions(tokens, bits, dtype, seed, executor, resume)
    job = _Job(kept, account, record, None if path is None else Path(path), reporter)
    chosen = _chosen_form(form, network)
    made = _export_lookup(job, bits, form) if chosen == "lookup" else _export_network(job, network)
    return replace(made, costs=_costs(made, job, network)) if compare else made


@dataclass(frozen=True)
class _NetworkOptions:
    """The options that only a network has; `bits` None: unknown rows are recognised exactly."""

    tokens: str
    bits: int | None
    dtype: str
    seed: int
    executor: Executor | None = None
    resume: str | Path | None = None

    @property
    def given(self) -> bool:
        return self.tokens != "auto" or self.dtype != "float64"


@dataclass(frozen=True)
class _Job:
    """The rows to export, and where to."""

    table: CellTable
    account: Account
    record: dict[str, Any]
    path: Path | None
    progress: Progress


def _abstain_bits(form: str, unknown: str | None, bits: int | None) -> int | None:
    """The bits by which unknown rows are recognised; None for exactly."""
    if form not in FORMS:
        raise OptionError(f"form={form!r} is not one of {', '.join(FORMS)}")
    if unknown is not None and unknown not in UNKNOWN_MODES:
        raise OptionError(f"unknown={unknown!r} is not one of {', '.join(UNKNOWN_MODES)}")
    if unknown == EXACT and bits is not None:
        raise OptionError("--abstain-bits recognises unknown rows approximately; omit --unknown exact")
    approximate = unknown == "approximate" or bits is not None
    return (USUAL_BITS if bits is None else bits) if approximate else None


def _chosen_form(form: str, network: _NetworkOptions) -> str:
    """`auto`: a lookup is smaller and faster than a network."""
    if form != "auto":
        return form
    return "network" if network.given else "lookup"


def _costs(made: Deployment, job: _Job, network: _NetworkOptions) -> tuple[Cost, ...]:
    """Bytes and query time of the form that was written, and of the other one."""
    own = Cost(made.form, made.sizes["file"], _query_seconds(made.model, made.example))
    if made.form == "network":
        written = _lookup_file(job, network.bits).written
        return own, Cost("lookup", len(written), _query_seconds(written, made.example))
    rows = min(len(job.table), MOST_COMPARED)
    sample = (
        job.table
        if rows == len(job.table)
        else job.table.take(np.linspace(0, len(job.table) - 1, rows, dtype=int).tolist())
    )
    silent = replace(job, table=sample, path=None, progress=SILENT)
    try:
        other = _export_network(silent, replace(network, executor=None, resume=None))
    except (BuildError, ExportError, MissingLibraryError):
        return (own,)
    seconds = _query_seconds(other.model, other.example)
    if sample is job.table:
        return own, Cost("network", other.sizes["file"], seconds)
    plans, _ = plan_fronts(job.table, network.tokens, network.bits, network.dtype)
    return own, Cost("network", plans[0].bytes, seconds, estimated=True, timed_rows=rows)


def _query_seconds(model: bytes, example: dict[str, list[Any]]) -> float:
    """Seconds of one query of one row: the best of five runs."""
    _, runtime = libraries()
    session = open_session(runtime, model)
    feeds = {name: _as_array(session, name, cells) for name, cells in example.items()}
    session.run(None, feeds)
    best = math.inf
    for _ in range(5):
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < _TIMED_SECONDS / 5:
            session.run(None, feeds)
            count += 1
        best = min(best, (time.perf_counter() - started) / count)
    return best


def _as_array(session: Any, name: str, cells: list[Any]) -> npt.NDArray[Any]:
    kinds = {
        "tensor(string)": object,
        "tensor(int64)": np.int64,
        "tensor(double)": np.float64,
        "tensor(bool)": np.bool_,
    }
    kind = next(part.type for part in session.get_inputs() if part.name == name)
    return np.array(cells, dtype=kinds[kind])


@dataclass(frozen=True)
class _LookupFile:
    """A lookup and its bytes; `bits` None: it lists the rows, else it hashes them."""

    front: Front
    lookup: TableLookup | JoinedLookup | HashedLookup
    bits: int | None
    written: bytes


def _lookup_file(job: _Job, bits: int | None) -> _LookupFile:
    """The lookup of the rows."""
    table = job.table
    labels = tuple(dict.fromkeys(table.label.cells))
    answers = GraphLabels.of(labels, table.label.type)
    number = {label: k for k, label in enumerate(labels)}
    classes = [number[label] for label in table.label.cells]
    cells = [column.cells for column in table.columns]
    front = plan_lookup(table)
    if bits is None:
        listed = TableLookup.of(front, cells, classes, answers)
        about = {RECORD: _record(job, front, answers, lookup_record(listed))}
        model = build_lookup_model(listed, about, table.label.name)
        file = _LookupFile(front, listed, None, bytes(model.SerializeToString()))
        matrix = TableSignature.of(front).matrix
        joined = JoinedLookup.of(front.named_types, matrix, cells, classes, answers)
        return file if joined is None else _smaller_file(job, file, joined)
    hashed = HashedLookup.of(front, cells, classes, answers, bits)
    about = {RECORD: _record(job, front, answers, hashed.record())}
    model = build_hashed_model(hashed, about, table.label.name)
    return _LookupFile(front, hashed, hashed.table.check_bits, bytes(model.SerializeToString()))


def _smaller_file(job: _Job, file: _LookupFile, joined: JoinedLookup) -> _LookupFile:
    """The lookup that joins the cells of a row where it is much smaller than the other one, else that one."""
    most = len(file.written) / MUCH_SMALLER
    if joined.stored_bytes > most:
        return file
    about = {RECORD: _record(job, file.front, joined.answers, joined.record())}
    written = bytes(build_joined_model(joined, about, job.table.label.name).SerializeToString())
    return _LookupFile(file.front, joined, None, written) if len(written) < most else file


def _chosen_lookup(job: _Job, bits: int | None, form: str) -> _LookupFile:
    """Without `--as lookup` a small table is listed where that takes fewer bytes than hashing it."""
    if bits is None or form == "lookup":
        return _lookup_file(job, bits)
    listed = _lookup_file(job, None)
    hashed = _lookup_file(job, bits) if bits <= MOST_CHECK_BITS else listed
    return hashed if len(hashed.written) < len(listed.written) else listed


def _record(job: _Job, front: Front, answers: GraphLabels, more: dict[str, Any]) -> str:
    """How the file's columns are read again: what `byheart verify` and `predict` take from it.

    Names and types that the graph's inputs and outputs have are not repeated: a small file would be a tenth longer.
    """
    found, label = more | ({"read": job.record} if job.record else {}), job.table.label
    if TableSignature.of(front).matrix is not None:
        found["columns"] = {name: type.value for name, type in front.named_types}
    if label.type is not answers.type:
        found["label"] = [label.name, label.type.value]
    elif "as" in found or not label.name:
        found["label"] = label.name
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


@timed("exporting")
def _export_lookup(job: _Job, bits: int | None, form: str) -> Deployment:
    """The lookup, proved from its bytes, evaluated on every row, and written if there is a path."""
    onnx, runtime = libraries()
    table, account = job.table, job.account
    with job.progress.stage("building the lookup"):
        file = _chosen_lookup(job, bits, form)
    front, answers, written = file.front, file.lookup.answers, file.written
    model = onnx.load_from_string(written)
    with job.progress.stage("proving the file's contents"):
        _prove_lookup(model, table, answers.type)
    signature = TableSignature.of(front)
    session = open_session(runtime, written)
    _recheck(session, front, signature, answers, table, job.progress)
    outside = _evaluate_outside(session, front, signature, table)
    if file.bits is None:
        _refuse_false_accepts(outside)
    if job.path is not None:
        write_atomically(job.path, written)
    return Deployment(
        form="lookup",
        memory=None,
        front=front,
        answers=answers,
        signature=signature,
        account=account,
        sizes=_sizes(model, len(written)),
        alternatives={},
        outside=outside,
        exact_unknown=file.bits is None,
        check_bits=file.bits or 0,
        label=table.label.name,
        example=_example(signature, front, table),
        remarks=table.remarks,
        reading=table.reading,
        model=written,
        file="model.onnx" if job.path is None else str(job.path),
    )


def _prove_lookup(model: Any, table: CellTable, label_type: CellType) -> None:
    """Read the file's tables again and compare them with the rows."""
    record = json.loads(next(part.value for part in model.metadata_props if part.key == RECORD))
    contents = read_table_file(model, [(column.name, column.type) for column in table.columns], label_type, record)
    labels = table.label.cells if table.label.type is label_type else list(map(int, table.label.cells))
    cells = [column.cells for column in table.columns]
    if isinstance(contents, HashedLookup):
        equal = contents.predict(cells) == labels
    elif isinstance(contents, TableLookup):
        # Every row is listed with its label, and the list has no other row: without a dictionary of a million tuples.
        places = contents.places(cells)
        equal = bool((places >= 0).all()) and len(np.unique(places)) == len(contents.classes)
        names, classes = contents.answers.labels, contents.classes[places].tolist()
        equal = equal and all(names[k] == label for k, label in zip(classes, labels, strict=True))
    else:
        equal = contents.rows() == dict(zip(zip(*cells, strict=True), labels, strict=True))
    if not equal:
        raise ExportError("the file's rows differ from the table's; nothing was written. Please report this")


def _refuse_false_accepts(outside: tuple[int, int]) -> None:
    if outside[1]:
        raise ExportError(
            f"the model accepts {outside[1]} of {outside[0]} rows outside the table; nothing was written. Please "
            "report this together with the versions of onnx and onnxruntime"
        )


def _example(signature: TableSignature, front: Front, table: CellTable) -> dict[str, list[Any]]:
    row = _short_row(table)
    first = signature.feeds(front, [column.cells[row : row + 1] for column in table.columns])
    return {name: array.tolist() for name, array in first.items()}


def _refuse_row_numbers(table: CellTable, names: list[str], missing: str, conflicts: str, uneven: str) -> None:
    """Refuse these columns, together with what the table needs once they are kept or dropped as suggested."""
    cells = [column.cells for column in table.columns]
    flag = numbering_flag([column.name for column in table.columns], cells, table.label.cells, names)
    left = table
    if flag == "--drop":
        left = replace(table, columns=tuple(column for column in table.columns if column.name not in names))
    problems = [TableProblem(row_number_words(name), f"{flag} {shlex.quote(name)}") for name in names]
    settle_cells(left, missing=missing, conflicts=conflicts, uneven=uneven, problems=problems)


def _as_code(value: Any) -> str:
    """A value as a Python expression: NaN and infinity have no literals.

    >>> _as_code({"x": [0.5, math.nan]}), _as_code(-math.inf)
    ("{'x': [0.5, float('nan')]}", "float('-inf')")
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {_as_code(cells)}" for name, cells in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_as_code, value))}]"
    return f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)


def _free_name(table: CellTable) -> str:
    taken = {column.name for column in table.columns}
    return next(name for name in map("column {}".format, itertools.count(1)) if name not in taken)


def _named(table: CellTable) -> CellTable:
    """Every input of a graph needs a name, which the first column of many a table lacks."""
    taken = {column.name for column in table.columns}
    free = _free_name(table)
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


def _build(job: _Job, plans: list[TablePlan], network: _NetworkOptions) -> tuple[Memory, TablePlan]:
    """The memory of the first plan for which one can be built."""
    table = job.table
    labels: Any = table.label.cells
    if table.label.type is CellType.WHOLE:
        labels = np.array(labels, dtype=np.int64)
    options = {name: getattr(network, name) for name in ("executor", "resume")}
    divided = {name: value for name, value in options.items() if value is not None}
    refusal: BuildError | None = None
    for plan in plans:
        front = plan.front
        codes, known = front.encode([column.cells for column in table.columns])
        if not known.all():
            raise BuildError("a row of the table has a cell that its own front does not contain; please report this")
        rows = codes[:, :, None].astype(np.float64) if front.scalars else codes
        dataset = load(rows, labels, positions=False)
        try:
            memory = memorize_dataset(
                dataset,
                construction="native",
                seed=network.seed,
                progress=job.progress,
                left_out=job.account.counts(),
                abstain_bits=plan.abstain_bits,
                dtype=network.dtype,
                **divided,
            )
        except BuildError as error:
            refusal = refusal or error
            continue
        return memory, plan
    raise refusal or BuildError("this table cannot be tokenized")


def _export_network(job: _Job, options: _NetworkOptions) -> Deployment:
    """The network, proved, evaluated on every row, and written if there is a path."""
    plans, alternatives = plan_fronts(job.table, options.tokens, options.bits, options.dtype)
    memory, plan = _build(job, plans, options)
    if memory.certificate.verdict is not Verdict.PROVED:
        raise BuildError(f"the memory was not proved, so nothing is written: {memory.certificate.reason}")
    return _export(memory, plan, job, alternatives)


@timed("exporting")
def _export(memory: Memory, plan: TablePlan, job: _Job, alternatives: dict[str, int]) -> Deployment:
    """The graph of a network, evaluated on every row, and written if there is a path."""
    onnx, runtime = libraries()
    front, table, account = plan.front, job.table, job.account
    answers = GraphLabels.of(memory.classes, table.label.type)
    signature = TableSignature.of(front)
    if isinstance(memory.network, DecoderNetwork):
        raise ExportError("a decoder is not a memory of labels; deploy builds construction native")
    keys = RowKeys.of(front.sizes, _places(table, front)) if plan.listed else None
    model = build_table_model(front, memory.network, memory.encoder, memory.options["dtype"], answers, keys)
    session = open_session(runtime, model)
    _recheck(session, front, signature, answers, table, job.progress)
    outside = _evaluate_outside(session, front, signature, table)
    if plan.exact_unknown:
        _refuse_false_accepts(outside)
    about = _metadata(memory, front, answers, account)
    about[RECORD] = _record(job, front, answers, {"as": "network", "exact": plan.exact_unknown})
    onnx.helper.set_model_props(model, about)
    written = model.SerializeToString()
    if job.path is not None:
        write_atomically(job.path, written)
    return Deployment(
        form="network",
        memory=memory,
        front=front,
        answers=answers,
        signature=signature,
        account=account,
        sizes=_sizes(model, len(written)),
        alternatives=alternatives | plan.others,
        outside=outside,
        exact_unknown=plan.exact_unknown,
        label=table.label.name,
        example=_example(signature, front, table),
        remarks=table.remarks,
        reading=table.reading,
        model=written,
        file="model.onnx" if job.path is None else str(job.path),
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
    """Metadata of a network: its inputs, the proof and the checks.

    The memory's certificate proves that the float type represents every value in any order of evaluation.
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
    session: Any, front: Front, signature: TableSignature, answers: GraphLabels, table: CellTable, progress: Progress
) -> None:
    """Evaluate every row as a user will; an ExportError names the first that is unknown or has another label."""
    with progress.stage("evaluating every row in ONNX Runtime", total=len(table)) as stage:
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
                    f"the model returns {quote(label[wrong[0]])} for {table.unit} {table.numbers[row]} {quote(cells)}, "
                    f"whose label is {quote(table.label.cells[row])}; nothing was written. Please report this together "
                    "with the versions of onnx and onnxruntime"
                )
            stage.advance(len(label))


def _evaluate_outside(session: Any, front: Front, signature: TableSignature, table: CellTable) -> tuple[int, int]:
    """Evaluate rows outside the table, each with the beginning of one row and the end of another, or next to a row.

    Returns how many were evaluated, and how many were accepted as known: about one in 2^abstain_bits is expected.
    """
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, len(table), (2 * _OUTSIDE, 2)).tolist()
    drawn: dict[tuple[Any, ...], None] = {}
    for one, two in pairs:
        cells = [(column.cells[one], column.cells[two]) for column in table.columns]
        cut = int(rng.integers(0, len(cells)))
        row = [a if k < cut else b for k, (a, b) in enumerate(cells)]
        a, b = cells[cut]
        if len(cells) == 1:
            row[cut] = _neither(a, b)
        drawn[tuple(row)] = None
    for known_row in zip(*(column.cells for column in table.columns), strict=True):
        drawn.pop(known_row, None)
    rows = list(drawn)[:_OUTSIDE]
    if not rows:
        return 0, 0
    feeds = signature.feeds(front, list(zip(*rows, strict=True)))
    known: npt.NDArray[np.bool_] = session.run([signature.known], feeds)[0]
    return len(rows), int(known.sum())


def _neither(a: Any, b: Any) -> Any:
    """A cell made of two: the beginning of one text and the end of another, or the number after the first.

    >>> _neither("abcd", "wxyz"), _neither(7, 9), _neither(0.5, None), _neither(True, False)
    ('abyz', 8, 0.5000000000000001, False)
    """
    if isinstance(a, str) and isinstance(b, str):
        return a[: len(a) // 2] + b[len(b) // 2 :]
    if isinstance(a, float):
        return math.nextafter(a, math.inf)
    return a + 1 if type(a) is int and a < (1 << 63) - 1 else b


def _sizes(model: Any, total: int) -> dict[str, int]:
    """Bytes of the file by what they are for."""
    graph = model.graph
    made = {name: node for node in graph.node for name in node.output}
    final = made[graph.output[0].name]  # returns the label, or selects it by the class of the row
    chosen = final.input[0] if final.op_type == "Gather" else ""
    rows = made.get(final.input[1]) if final.op_type == "Gather" else final
    kinds = {1, 11, 10}  # float, double, float16: the weights
    weights = sum(part.ByteSize() for part in graph.initializer if part.data_type in kinds and part.name != chosen)
    labels = sum(part.ByteSize() for part in graph.initializer if part.name == chosen)
    cells = sum(node.ByteSize() for node in graph.node if node.op_type in ("LabelEncoder", "RegexFullMatch"))
    lists = [node for node in graph.node if node is rows or node.output[0].startswith("row_places")]
    listed = sum(node.ByteSize() for node in lists if node.op_type == "LabelEncoder")
    rest = total - weights - labels - cells
    found = {"weights": weights, "cells": cells - listed, "list of rows": listed, "labels": labels}
    return {**found, "graph and metadata": rest, "file": total}
