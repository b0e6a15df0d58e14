"""deploy(): export a table as an ONNX file that maps the table's own cells to labels.

read (data/read/cells) -> account of rows (data/read/account) -> lookup (lookup.py), or network (network.py): cells to
codes by size (data/tokens/front), build and prove (construction native), one graph (export/onnx_table) -> every row
evaluated in ONNX Runtime (evaluation.py) -> written. Reading, types, refusals and the account of rows are the same for
both forms.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

from byheart.data.read.account import TableProblem, settle_cells
from byheart.data.read.cells import CellTable, read_cells, row_number_columns
from byheart.data.read.columns import numbering_flag, row_number_words
from byheart.data.read.sources import Limits
from byheart.errors import OptionError
from byheart.export.targets.onnx import libraries
from byheart.files import check_target
from byheart.memory.deploy.costs import costs
from byheart.memory.deploy.deployment import Deployment
from byheart.memory.deploy.job import DeployJob, NetworkOptions, check_texts, free_name, named
from byheart.memory.deploy.lookup import export_lookup
from byheart.memory.deploy.network import export_network
from byheart.memory.memorize import USUAL_BITS
from byheart.memory.table_plan import EXACT, WAYS
from byheart.progress import SILENT, Progress, console_progress, warn_left_out

FORMS = ("auto", "lookup", "network")
UNKNOWN_MODES = (EXACT, "approximate")


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
        kept = named(kept)
        check_texts(kept)
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
            ("unnamed", free_name(table) if unnamed else None, None),
        )
        if value != usual
    }
    network = NetworkOptions(tokens, bits, dtype, seed, executor, resume)
    job = DeployJob(kept, account, record, None if path is None else Path(path), reporter)
    chosen = _chosen_form(form, network)
    made = export_lookup(job, bits, form) if chosen == "lookup" else export_network(job, network)
    return replace(made, costs=costs(made, job, network)) if compare else made


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


def _chosen_form(form: str, network: NetworkOptions) -> str:
    """`auto`: a lookup is smaller and faster than a network."""
    if form != "auto":
        return form
    return "network" if network.given else "lookup"


def _refuse_row_numbers(table: CellTable, names: list[str], missing: str, conflicts: str, uneven: str) -> None:
    """Refuse these columns, together with what the table needs once they are kept or dropped as suggested."""
    cells = [column.cells for column in table.columns]
    flag = numbering_flag([column.name for column in table.columns], cells, table.label.cells, names)
    left = table
    if flag == "--drop":
        left = replace(table, columns=tuple(column for column in table.columns if column.name not in names))
    problems = [TableProblem(row_number_words(name), f"{flag} {shlex.quote(name)}") for name in names]
    settle_cells(left, missing=missing, conflicts=conflicts, uneven=uneven, problems=problems)
