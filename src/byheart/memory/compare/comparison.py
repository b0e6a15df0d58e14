"""Every construction that applies to a data set, side by side: Table 1 of KS25, measured.

>>> found = compare(["ab", "ba", "bb"], [0, 1, 1], constructions=["vardi22", "nilsson65"])
>>> [(row.construction, row.verdict) for row in found.rows[:2]]
[('nilsson65', 'proved'), ('vardi22', 'proved')]

Baselines are listed too, what a practitioner would do without a network (a Python dict, a sorted array, the least
that labels need), and predictions for rows that are not built: formulas from `byheart.theory`, marked as such.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import isqrt
from typing import TYPE_CHECKING, Any

from byheart.data.dataset.dataset import Dataset, load, numbered
from byheart.data.dataset.settle import settle_table
from byheart.data.read.table import Table
from byheart.data.task import Task
from byheart.errors import AssumptionError, BuildError, ByheartError, DataError, OptionError
from byheart.memory.compare.rows import INFORMATION, CompareRow, Comparison, Floor
from byheart.memory.compare.worker import Worker
from byheart.memory.size_rows import given_sentences, lower_bound_sentence, worst_case_bounds
from byheart.progress import SILENT, Progress
from byheart.theory import Bound, Problem, lower_bounds, upper_bounds

if TYPE_CHECKING:
    from byheart.build import Recipe


def baselines(dataset: Dataset) -> list[CompareRow]:
    """Bits of a dict from rows to labels, of a sorted array that is searched, and of the labels alone."""
    return [
        _baseline_row(
            "python dict", 8 * _dict_bytes(dataset), "a dict from rows to labels, as Python stores it", "exact lookup"
        ),
        _baseline_row(
            "sorted array", _array_bits(dataset), "distinct rows and labels, packed and searched", "exact lookup"
        ),
        _baseline_row(
            INFORMATION, _label_bits(dataset), "labels·log2 C: the labels alone, inputs for free", "no lookup"
        ),
    ]


def _baseline_row(name: str, bits: int, reason: str, kind: str) -> CompareRow:
    return CompareRow(name, "baseline", reason, summary=kind, total_bits=bits)


def _dict_bytes(dataset: Dataset) -> int:
    """The table, and its keys: rows as text (symbols) or as bytes of float64 (vectors)."""
    if dataset.encoder.symbols is None:
        size = 8 * dataset.encoder.dimension
        keys = {bytes(8) + row.tobytes() for row in dataset.inputs.index}  # rows of point numbers: as many, as distinct
        one = sys.getsizeof(bytes(size * dataset.n))
        table = dict.fromkeys(keys)
        return sys.getsizeof(table) + one * len(table)
    texts = dict.fromkeys("\x1f".join(map(str, row)) for row in dataset.sequences())
    return sys.getsizeof(texts) + sum(sys.getsizeof(text) for text in texts)


def _array_bits(dataset: Dataset) -> int:
    """Distinct rows times (bits of a row + bits of its labels)."""
    symbols = dataset.encoder.symbols
    token = 64 * dataset.encoder.dimension if symbols is None else max(1, len(symbols).bit_length())
    distinct = len({row.tobytes() for row in dataset.inputs.index})
    per_row = dataset.n if dataset.encoder.task.labels_per_token else 1
    label = max(1, (dataset.C - 1).bit_length())
    return distinct * (dataset.n * token + per_row * label)


def _label_bits(dataset: Dataset) -> int:
    return math.ceil(len(dataset.contexts) * math.log2(dataset.C)) if dataset.C > 1 else 0


@dataclass(frozen=True)
class Prediction:
    """Sizes by formula; those that the formula does not speak about are None."""

    sizes: dict[str, int]
    theorem: str
    formula: str
    proved: bool


def problem_of(dataset: Dataset) -> Problem:
    """The problem of this data set, for the bounds."""
    found = dataset.separation
    r = isqrt(max(1, -(-found.r_squared.numerator // found.r_squared.denominator))) + 1
    delta = found.delta_squared or 1
    small = min(1.0, float(delta) ** 0.5)
    return Problem(
        dataset.encoder.task,
        N=dataset.N,
        n=dataset.n,
        d=dataset.d,
        C=dataset.C,
        omega=None if dataset.encoder.symbols is None else max(2, len(dataset.encoder.symbols)),
        r=r,
        delta=small if small > 0 else 1,
        contexts=max(1, len(dataset.contexts)),
    )


def listed() -> dict[str, Recipe]:
    """Name -> everything that can be compared, in the order of tables."""
    from byheart.build import recipes  # loads every builder

    return recipes()


def prediction(construction: str, problem: Problem) -> Prediction | None:
    """The formula's numbers, or None where no formula speaks about the construction and task.

    >>> prediction("nilsson65", Problem("next-token", N=100, n=4, d=4)).sizes
    {'parameters': 1783}
    """
    wanted = listed()[construction].formula
    found = [bound for bound in upper_bounds(problem) if bound.name == wanted]
    if not found:
        return None
    first: Bound = next((bound for bound in found if bound.quantity == "parameters"), found[0])
    return Prediction({b.quantity: b.value for b in found}, str(first.ref), first.formula, first.proved)


def predicted_row(construction: str, problem: Problem, why: str) -> CompareRow:
    """A row that the formula fills, with the reason why nothing was built."""
    found, entry = prediction(construction, problem), listed()[construction]
    if found is None:
        reason = f"{why}; no formula covers {construction} for {problem.task}"
        return CompareRow(construction, "predicted", reason, str(entry.ref), entry.summary)
    kind = "its theorem's formula" if found.proved else "its order of growth or an estimate, not a theorem's count"
    return CompareRow(
        construction,
        "predicted",
        f"{why}; by {kind}: {found.formula}",
        str(entry.ref),
        entry.summary,
        **found.sizes,  # type: ignore[arg-type]  # names of sizes
    )


def floors(problem: Problem) -> tuple[Floor, ...]:
    """The lower bounds on memories of labels of separated rows, strongest first within each quantity."""
    found = [b for b in lower_bounds(problem) if b.kind == "lower" and b.scope == "labels"]
    found = [b for b in found if b.quantity in ("parameters", "total_bits")]
    found.sort(key=lambda b: (b.quantity, -b.value))
    return tuple(Floor(b.name, b.quantity, b.value, str(b.ref), b.assumptions) for b in found)


LARGEST = 30_000_000  # parameters by formula from which nothing is built
PATIENCE = 2  # time-outs in a row after which larger data sets are predicted
GRID = 1024  # random vectors are multiples of 1/1024: short numbers, as real data has them


def compare(
    data: Dataset | Table | Sequence[Any],
    labels: Sequence[Any] | None = None,
    *,
    task: str | None = None,
    positions: bool = True,
    constructions: Sequence[str] | None = None,
    time_limit: float | None = None,
    memory_gb: float | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Comparison:
    """Build and certify every construction for the data's task, and add baselines.

    Args:
        data: Sequences, a table of `byheart.read`, or a data set, as for `memorize`.
        labels: One label per sequence; None where `data` has labels.
        task: `next-token`, `seq-to-seq`, `set` or `causal`; None: as the data suggests.
        positions: Whether token and position together are the symbol.
        constructions: Names to build; None: all for the task.
        time_limit: Seconds per construction, in a separate process. A build that is not finished in time or memory is
            predicted by its formula and marked. None: everything is built here, without a limit.
        memory_gb: Limit of memory of that process.
        seed: Equal seeds give equal weights.
        progress: Where progress is reported.

    Returns:
        A `Comparison` with one row per construction and baseline.

    Raises:
        DataError: If the data cannot be memorized.
        OptionError: If a construction or an option does not exist.

    >>> found = compare(["sun", "moon"], ["day", "night"], constructions=["ks25", "vardi22"])
    >>> {row.construction: row.verdict for row in found.rows if row.verdict != "baseline"}
    {'vardi22': 'proved', 'ks25': 'proved'}
    """
    dataset = _loaded(data, labels, task, positions)
    problem = problem_of(dataset)
    rows: list[CompareRow] = []
    names = applicable(dataset, constructions)
    with (
        progress.stage("comparing constructions", total=len(names)) as stage,
        Worker(memory_gb) if time_limit is not None else nullcontext() as worker,
    ):
        for name in names:
            rows.append(_row(dataset, name, seed, worker, time_limit or 0.0, problem))
            stage.advance()
    encoder = dataset.encoder
    return Comparison(
        task=str(encoder.task),
        positions=encoder.positions,
        N=dataset.N,
        n=dataset.n,
        d=dataset.d,
        C=dataset.C,
        contexts=len(dataset.contexts),
        rows=(*rows, *baselines(dataset)),
        floors=floors(problem),
        lower=_lower(dataset, problem),
    )


def _loaded(data: Any, labels: Sequence[Any] | None, task: str | None, positions: bool) -> Dataset:
    if isinstance(data, Dataset | Table) and labels is not None:
        raise DataError("a table or data set has its own labels; omit `labels`")
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Table):
        return settle_table(data, task=task, positions=positions).dataset
    if labels is None:
        raise DataError("labels are missing: compare(sequences, labels), or compare(byheart.read(FILE))")
    return load(data, labels, task=task or Task.NEXT_TOKEN, positions=positions)


def _lower(dataset: Dataset, problem: Problem) -> tuple[str, ...]:
    """The sentences that `memorize` shows for the same data."""
    if dataset.C < 2:  # one labelling, which no network fails on
        return tuple(given_sentences(dataset))
    found = worst_case_bounds(lower_bounds(problem))
    sentence = lower_bound_sentence(found["parameters"], problem.kind, dataset.N, len(dataset.contexts))
    return (sentence, *given_sentences(dataset))


def compare_growth(
    datasets: Sequence[Dataset],
    *,
    constructions: Sequence[str] | None = None,
    time_limit: float | None = None,
    memory_gb: float | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[Comparison]:
    """`compare` on data sets of growing size; a construction that was stopped twice in a row is not tried again."""
    late: dict[str, int] = {}  # how often in a row
    found: list[Comparison] = []
    for dataset in datasets:
        names = applicable(dataset, constructions)
        queried = [name for name in names if late.get(name, 0) < PATIENCE]
        part = compare(
            dataset, constructions=queried, time_limit=time_limit, memory_gb=memory_gb, seed=seed, progress=progress
        )
        problem = problem_of(dataset)
        skipped = [
            predicted_row(name, problem, "smaller data sets already took too long")
            for name in names
            if name not in queried
        ]
        for row in part.rows:
            late[row.construction] = late.get(row.construction, 0) + 1 if row.verdict == "predicted" else 0
        found.append(replace(part, rows=_in_order([*skipped, *part.rows], names)))
    return found


def _in_order(rows: list[CompareRow], names: list[str]) -> tuple[CompareRow, ...]:
    """Constructions in the table's order, then everything else as it came."""
    places = {name: place for place, name in enumerate(names)}
    return tuple(sorted(rows, key=lambda row: places.get(row.construction, len(places))))


def applicable(dataset: Dataset, wanted: Sequence[str] | None = None) -> list[str]:
    """The constructions for the data set's task, those of Table 1 first; unknown names are an OptionError."""
    from byheart.build import recipe

    task, known = dataset.encoder.task, listed()
    for name in wanted or ():
        if name not in known:
            raise recipe(name).takes_texts  # or the OptionError that lists the known ones
    fits = {name: task in entry.tasks for name, entry in known.items() if wanted is None or name in wanted}
    if wanted and not any(fits.values()):
        raise OptionError(f"{', '.join(wanted)}: no such construction builds the task {task}")
    return [name for name, fit in fits.items() if fit]


def subsets(dataset: Dataset, sizes: Sequence[int], seed: int = 0) -> list[Dataset]:
    """Random parts of the data set with these numbers of rows; the larger ones contain the smaller ones."""
    order = list(range(dataset.N))
    random.Random(seed).shuffle(order)
    return [dataset.subset(sorted(order[:size])) for size in sizes if size <= dataset.N]


def random_dataset(N: int, n: int, d: int, C: int, task: str = "next-token", seed: int = 0) -> Dataset:
    """N rows of n random vectors in R^d with random labels, without positions: the setting of KS25's theorems."""
    rng = random.Random(f"{seed} {N} {n} {d} {C}")
    rows = [[tuple(round(rng.gauss(0, 1) * GRID) / GRID for _ in range(d)) for _ in range(n)] for _ in range(N)]
    labels = [rng.randrange(C) if task in ("next-token", "set") else [rng.randrange(C) for _ in row] for row in rows]
    return load(rows, labels, task=task, positions=False)


def measured_row(dataset: Dataset, name: str, seed: int) -> CompareRow:
    """One construction, built and certified here; an assumption that fails or an error becomes a row, too."""
    from byheart.build import SYMBOLS
    from byheart.memory.memorize import memorize_dataset

    entry = listed()[name]
    theorem, summary = str(entry.ref), entry.summary
    notes: tuple[str, ...] = ()
    try:
        if dataset.encoder.symbols is None and SYMBOLS in entry.assumptions:
            dataset = numbered(dataset)
            notes = (f"every vector is a separate symbol: {len(dataset.encoder.symbols or ()):,} ids in the table",)
        memory = memorize_dataset(dataset, construction=name, seed=seed, progress=False)
    except AssumptionError as error:
        return CompareRow(
            name, "assumption", str(error), theorem, summary, assumption=error.assumption, rows=error.rows
        )
    except OptionError as error:
        return CompareRow(name, "not applicable", str(error), theorem, summary)
    except BuildError as error:
        return CompareRow(name, "not built", str(error), theorem, summary)
    except (ByheartError, MemoryError) as error:
        return CompareRow(name, "failed", str(error) or type(error).__name__, theorem, summary)
    certificate = memory.certificate
    return CompareRow(
        name,
        certificate.verdict.value,
        certificate.reason,
        str(memory.claim.ref),
        summary,
        **memory.size.as_dict(),  # type: ignore[arg-type]  # names of sizes
        guaranteed=dict(certificate.guaranteed),
        build_seconds=round(memory.seconds["build"], 3),
        certify_seconds=round(memory.seconds["certify"], 3),
        arithmetic=certificate.arithmetic,
        notes=(*notes, *memory.notes),
        assumptions=memory.claim.assumptions,
    )


def _row(dataset: Dataset, name: str, seed: int, worker: Worker | None, seconds: float, problem: Problem) -> CompareRow:
    known = prediction(name, problem)
    if known is not None and known.proved is False and known.sizes["parameters"] > LARGEST:
        return predicted_row(name, problem, f"more than {LARGEST:,} parameters by formula")
    if worker is None:
        return measured_row(dataset, name, seed)
    found = worker.measure(dataset, name, seed, seconds)
    if isinstance(found, str):
        return predicted_row(name, problem, found)
    if found.verdict == "failed" and "MemoryError" in found.reason:
        return predicted_row(name, problem, "not enough memory")
    return found
