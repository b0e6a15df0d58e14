"""memorize(): from rows to a certified memory, straight down.

read (data/read) -> settle (data/dataset) -> build (build) -> guarantee (theory) -> certify (certify) -> Memory.
docs/walkthrough.md follows one row through it.

Code is compiled on first use and then kept on disk; a user who waits for it sees why (`first_use`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byheart.certify import FRACTION, EvaluationPlan, RowSubset, certify
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.settle import Settled, settle, settle_table
from byheart.data.missing import Present, settle_missing
from byheart.data.read.options import Selection
from byheart.data.read.table import Table, read
from byheart.data.task import Task, as_task
from byheart.data.tokens.tokenizer import PLAIN
from byheart.errors import DataError, OptionError, TokenRoomError
from byheart.exact.number import Dyadic
from byheart.ir.size import Claim
from byheart.memory.documents import as_table
from byheart.memory.memory import Memory
from byheart.progress import SILENT, Progress, console_progress, warn_left_out
from byheart.theory.guarantees import guarantee

if TYPE_CHECKING:
    from byheart.build import Recipe

NAMES = (
    "the numbers have too many digits for the float type: they are taken as names, {:,} different ones, and any other "
    "number is unknown"
)
USUAL_BITS = 16  # an unknown row is accepted once in 65,536 times
WORDS = "building; the first time, code is compiled (some seconds)"


def first_use(chosen: Recipe, progress: Progress) -> AbstractContextManager[Any]:
    """A stage around the first building, which takes longer than all others; nothing once the code is there."""
    return nullcontext() if all(map(_is_kept, chosen.kernels())) else progress.stage(WORDS)


def _is_kept(kernel: Any) -> bool:
    """Whether a file of numba's index is there; True where numba keeps nothing, because then every run waits."""
    stats = getattr(kernel, "stats", None)
    folder = getattr(stats, "cache_path", None)
    return folder is None or any(Path(folder).glob(f"*.{kernel.__name__}-*.nbi"))


def memorize(
    sequences: Any,
    labels: Sequence[Any] | None = None,
    *,
    label: str | None = None,
    task: str | None = None,
    construction: str = "compact",
    positions: bool = True,
    conflicts: str = "error",
    missing: str = "error",
    seed: int = 0,
    progress: bool | Progress = True,
    **options: Any,
) -> Memory:
    """Compute a Transformer that gives every sequence its label, and certify it.

    Rows of texts, decimals or other cells are a table: rows outside it are refused (`abstain_bits=16`) where the
    construction has this option. Rows of whole numbers or vectors are those of the theorems and get some label.

    A label may be a `Distribution` over classes, for constructions that store these (`madden24`). Sequences without
    labels are documents for them: texts, or lists of tokens, whose next-token distributions are counted.

    Args:
        sequences: N rows of tokens, texts, a data frame, or a table of `byheart.read`, which has labels and task.
        labels: One of C classes per row (per token where the task labels every token).
        label: The label's column, if `sequences` is a data frame.
        task: `next-token` (default), `seq-to-seq`, `set` or `causal`.
        construction: What to build.
        positions: Whether a symbol is a token together with its position.
        conflicts: Policy for equal inputs with different labels: `error`, `first`, `majority` or `drop`.
        missing: Policy for None and NaN: `error`, `drop` or `label`.
        seed: The seed of every random choice.
        progress: Whether, or where, to show progress.
        **options: Options of the construction; for every construction `executor`, where rows are evaluated (and built
            from, where that can be done in parts), and `resume`, a file that keeps the finished parts of an
            interrupted build and proof.

    Returns:
        The memory. The verdict is `memory.certificate.verdict`; nothing is rounded anywhere.

    Raises:
        DataError: Rows cannot be used, or contradict each other.
        OptionError: An option is unknown or has no meaning here.
        BuildError: No network was found.

    >>> memory = memorize(["cat", "act", "dog"], [3, 1, 4], construction="ks25", progress=False)
    >>> memory.certificate.verdict.value, memory.predict(["act"])
    ('proved', [1])
    """
    reporter = progress if not isinstance(progress, bool) else console_progress() if progress else SILENT
    if labels is not None and isinstance(sequences, Iterable) and not hasattr(sequences, "__len__"):
        sequences = list(sequences)
    if _is_table(sequences, labels, label):
        options = refusing_unknown(construction, task or getattr(sequences, "task", None), options)
    table = _table(sequences, labels, label, task, missing, construction, options)
    present = table.missing if table is not None else _present(sequences, labels, task, missing)

    def settled_rows(named: bool) -> Settled:
        how: dict[str, Any] = {"positions": positions, "policy": conflicts, "named": named}
        with reporter.stage("comparing rows"):
            if table is not None:
                return settle_table(table, task=task, **how)
            return settle(present.sequences, present.labels, task=task or "next-token", **how)

    settled = settled_rows(False)
    warn_left_out("rows", {f"conflicts={settled.policy}": len(settled.left_out)})
    counts = {f"conflicts={settled.policy}": len(settled.left_out), f"missing={present.policy}": present.left_out}
    counts |= {} if table is None else dict(table.left_out)
    left_out = {why: count for why, count in counts.items() if count}
    building = {"construction": construction, "seed": seed, "progress": reporter, "left_out": left_out, **options}
    note = ""
    try:
        memory = memorize_dataset(settled.dataset, **building)
    except TokenRoomError:
        names = settled_rows(True)
        symbols = names.dataset.encoder.symbols
        if symbols is None or names.left_out != settled.left_out:
            raise
        settled, note = names, NAMES.format(len(symbols))
        memory = memorize_dataset(settled.dataset, **building)
    return _with_origin(memory, settled, table, (present.note, note))


def refusing_unknown(construction: str, task: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a table's memory: it recognises rows outside the table unless `abstain_bits` is given.

    A head that is chosen by its name (`head=sign`) returns a class for every row.

    >>> refusing_unknown("compact", None, {}), refusing_unknown("compact", None, {"abstain_bits": 0})
    ({'abstain_bits': 16}, {'abstain_bits': 0})
    >>> refusing_unknown("compact", None, {"head": "sign"}), refusing_unknown("ks25", None, {})
    ({'head': 'sign'}, {})
    """
    from byheart.build import recipe

    labels_rows = as_task(task or Task.NEXT_TOKEN) is Task.NEXT_TOKEN
    can_abstain = any(option.name == "abstain_bits" for option in recipe(construction).options)
    can_abstain &= options.get("head") in (None, "value")
    return ({"abstain_bits": USUAL_BITS} if can_abstain and labels_rows else {}) | dict(options)


def _is_table(sequences: Any, labels: Any, label: str | None) -> bool:
    """Whether rows are those of a table: a frame, a file, or labelled rows of texts, decimals and other cells.

    Rows of whole numbers (token ids) or of vectors are the sequences of the theorems, whose networks return a label for
    any input.
    """
    if labels is None:
        return label is not None or isinstance(sequences, Table)
    return _have_cells(sequences)


def _have_cells(rows: Any) -> bool:
    """Whether a row has a token that is neither a whole number nor a vector of numbers.

    >>> [_have_cells(rows) for rows in (["cat", "act"], [["a", 1]], [[0.5, 1]], [[True]])]
    [True, True, True, True]
    >>> [_have_cells(rows) for rows in ([[3, 1], [4]], [[(0.5, 1.0)]])]
    [False, False]
    """
    if isinstance(rows, np.ndarray) and rows.dtype.kind != "O":
        return rows.dtype.kind not in "iu" and (rows.ndim < 3 or rows.dtype.kind != "f")
    return any(_has_cells(row) for row in rows) if isinstance(rows, Iterable) else False


def _has_cells(row: Any) -> bool:
    if isinstance(row, np.ndarray) and row.dtype.kind != "O":
        return row.dtype.kind not in "iu" and (row.ndim < 2 or row.dtype.kind != "f")
    if not isinstance(row, list | tuple | np.ndarray):
        return not _is_whole(row)
    return any(not _is_whole(token) and not _is_vector(token) for token in row)


def _is_whole(token: Any) -> bool:
    return isinstance(token, int | np.integer) and not isinstance(token, bool)


def _is_vector(token: Any) -> bool:
    """Whether a token is a vector, or an exact number, which no table holds."""
    if isinstance(token, np.ndarray):
        return token.ndim == 1 and token.dtype.kind in "iuf"
    numbers = int | float | np.integer | np.floating | Dyadic | Fraction
    if isinstance(token, list | tuple):
        return all(isinstance(part, numbers) for part in token)
    return isinstance(token, Dyadic | Fraction)


def _present(sequences: Any, labels: Any, task: str | None, missing: str) -> Present:
    """Bare rows without missing values, or with None in their place."""
    per_token = task is not None and as_task(task).labels_per_token
    present = settle_missing(sequences, () if labels is None else labels, missing, per_token=per_token)
    warn_left_out("rows", {f"missing={present.policy}": present.left_out})
    return present


def _table(
    sequences: Any,
    labels: Any,
    label: str | None,
    task: str | None,
    missing: str,
    construction: str,
    options: Mapping[str, Any],
) -> Table | None:
    """The table that was given, that a frame and the name of its label column make, or that documents are; None for
    bare sequences with labels."""
    from byheart.build import recipe

    if label is not None and not isinstance(sequences, Table):
        if labels is not None:
            raise DataError("give `labels`, or `label`, the column of a data frame that holds them; not both")
        plan = recipe(construction).planning(options)
        table = read(sequences, label=label, task=task or Task.NEXT_TOKEN, missing=missing, planning=plan)
        for name in table.numbering:
            others = f"sequence_column=[…] of byheart.read, or a frame without {name!r}"
            warnings.warn(f"column {name!r} numbers the rows, so that a query needs the number; {others}", stacklevel=3)
        return table
    if isinstance(sequences, Table):
        if labels is not None or label is not None:
            raise DataError("a table has its own labels; omit `labels`, or give table.sequences")
        return sequences
    if labels is None:
        chosen = recipe(construction)
        if chosen.texts:
            raise chosen.takes_texts
        if chosen.distributions:
            return as_table(sequences)
        others = 'memorize(byheart.read(FILE)), or memorize(frame, label="column")'
        raise DataError(f"labels are missing: memorize(sequences, labels), {others}")
    return None


def _with_origin(memory: Memory, settled: Settled, table: Table | None, remarks: tuple[str, ...]) -> Memory:
    """The memory with how its rows were read and what was skipped."""
    notes = (*memory.notes, *filter(None, (settled.note, *remarks)))
    selection = replace(table.selection if table else Selection(), conflicts=settled.policy)
    tokens = table.tokens if table else PLAIN
    return replace(memory, notes=notes, selection=selection, tokens=tokens, conflicts=settled.as_dict())


def _with_plan(chosen: Recipe, options: dict[str, Any]) -> tuple[EvaluationPlan, dict[str, Any]]:
    """How the proof asks its rows, and the options that are left for the builder.

    `executor` and `resume` are for every construction: all of them ask their rows on the executor and keep seals of an
    interrupted proof; those that also build in parts have options of these names, and a journal beside the seals.
    """
    executor, resume = options.get("executor"), options.get("resume")
    names = {option.name for option in chosen.options}
    left = {name: value for name, value in options.items() if name in names or name not in ("executor", "resume")}
    return EvaluationPlan(executor, None if resume is None else Path(f"{resume}.seals")), left


def memorize_dataset(
    dataset: Dataset,
    *,
    construction: str = "compact",
    seed: int = 0,
    progress: bool | Progress = True,
    left_out: Mapping[str, int] | None = None,
    **options: Any,
) -> Memory:
    """Memorize a data set that is already loaded.

    Args:
        dataset: The rows.
        construction: What to build.
        seed: The seed of every random choice.
        progress: Whether, or where, to show progress.
        left_out: Why rows of the source are not in the data set -> how many.
        **options: Options of the construction, and `executor` and `resume`.

    Returns:
        The memory with its certificate.
    """
    from byheart.build import recipe  # builders and their compiled code are loaded only to build

    reporter = progress if not isinstance(progress, bool) else console_progress() if progress else SILENT
    chosen = recipe(construction)
    plan, options = _with_plan(chosen, options)
    started = time.perf_counter()
    with first_use(chosen, reporter):
        built = chosen.build(dataset, seed=seed, progress=reporter, options=options)
    finished = time.perf_counter()
    resolved = dict(built.options) or chosen.resolve(options)
    try:
        claim = guarantee(construction, dataset, resolved)
    except OptionError:  # a construction that was registered from outside, with no function for its guarantee
        claim = Claim(chosen.ref)
    subset = RowSubset(left_out=left_out or {})
    fraction = resolved.get("gap", FRACTION)
    certificate = certify(built.network, dataset, claim, reporter, subset=subset, fraction=fraction, plan=plan)
    return Memory(
        construction=construction,
        options=resolved,
        seed=seed,
        network=built.network,
        encoder=dataset.encoder,
        classes=dataset.classes,
        claim=claim,
        certificate=certificate,
        notes=built.notes,
        dataset=dataset,
        facts=built.facts,
        seconds={"build": finished - started, "certify": time.perf_counter() - finished},
    )
