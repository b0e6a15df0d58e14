"""Results of a study: one row per cell, the least sizes, and files for other programs.

The table contains nothing that depends on when or where a trial ran, so a resumed run's equals an uninterrupted one's.

`capacity` finds the least size that memorizes your own problems: the search of the presets, for arrays instead of
files.

>>> from byheart.lab.problem import ProblemSpec, make_problem
>>> problems = [make_problem(ProblemSpec("random", N, n=3, d=4)) for N in (4, 12)]
>>> [least.size is not None for least in capacity(problems, sizes=(1, 2, 4, 8), epochs=600, trials=4)]
[True, True]

`fit_growth` fits the growth of the least size by least squares with a bootstrapped confidence: √N, N and log n.

>>> fit = fit_growth([100, 400, 900, 1600], [11, 21, 31, 41], "root")
>>> round(fit.slope, 6), round(fit.offset, 6), round(fit.explained, 6)
(1.0, 1.0, 1.0)
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import log, log2
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import MissingExtraError, OptionError
from byheart.lab.presets import LADDER, TUNED
from byheart.lab.problem import CROSS_ENTROPY, Problem, ProblemSpec, Sequences
from byheart.lab.study.experiment import Experiment, Space, TrialRecord
from byheart.lab.study.planner import Planner
from byheart.lab.study.run import train_on
from byheart.lab.study.study import Study

Finished = dict[str, TrialRecord]


@dataclass(frozen=True)
class Row:
    """A cell of the table: one size on one problem, its best trial."""

    problem: str
    x: int  # N or n, whichever varies
    seed: int
    size: int  # blocks, or neurons of a decoder
    parameters: int
    trials: int
    memorized: bool
    loss: float
    accuracy: float
    epochs: int
    rate: float
    warmup: float


@dataclass(frozen=True)
class Minimum:
    """The least size that memorized a problem; None when no size on the ladder did, or the search is not over."""

    problem: str
    x: int
    seed: int
    size: int | None
    parameters: int | None
    largest_failed: int | None


def table(experiment: Experiment, finished: Finished) -> list[Row]:
    """One row per cell that has a finished trial, in the order of problems and sizes."""
    planner = Planner(experiment)
    rows = []
    for problem, spec in enumerate(experiment.problems):
        for size in experiment.sizes:
            records = planner.records(problem, size, finished)
            if not records:
                continue
            best = best_record(records)
            rows.append(
                Row(
                    problem=experiment.title(problem),
                    x=experiment.place(problem),
                    seed=spec.seed,
                    size=size,
                    parameters=best.parameters,
                    trials=len(records),
                    memorized=any(record.outcome.memorized for record in records),
                    loss=best.outcome.loss,
                    accuracy=best.outcome.accuracy,
                    epochs=best.outcome.epochs,
                    rate=best.training.rate,
                    warmup=best.training.warmup,
                )
            )
    return rows


def best_record(records: list[TrialRecord]) -> TrialRecord:
    """A memorizing trial before any other, then the least loss, then the first."""
    return min(records, key=lambda r: (not r.outcome.memorized, r.outcome.loss, r.key))


def minima(experiment: Experiment, finished: Finished) -> list[Minimum]:
    """The least size for every problem (of a `minimum` experiment)."""
    planner = Planner(experiment)
    found = []
    for problem, spec in enumerate(experiment.problems):
        size = planner.minimum(problem, finished)
        failed = [s for s in experiment.sizes if planner.verdict(problem, s, finished) is False]
        records = planner.records(problem, size, finished) if size is not None else []
        found.append(
            Minimum(
                problem=experiment.title(problem),
                x=experiment.place(problem),
                seed=spec.seed,
                size=size,
                parameters=records[0].parameters if records else None,
                largest_failed=max((s for s in failed if size is None or s < size), default=None),
            )
        )
    return found


def stored_bits(problem: Problem, loss: float, accuracy: float) -> float | None:
    """Return the bits of labels that a network with this loss stores: N·log2 C less the remaining uncertainty.

    With squared error only correct and incorrect signs are counted. None for documents, whose next tokens are not
    labels.

    >>> import numpy as np
    >>> problem = Sequences("tiny", None, np.array([[0], [1]]), np.array([0, 1]), classes=2, read=0)
    >>> stored_bits(problem, loss=0.0, accuracy=1.0), round(stored_bits(problem, loss=log(2), accuracy=0.5), 9)
    (2.0, 0.0)
    """
    if not isinstance(problem, Sequences):
        return None
    if problem.loss == CROSS_ENTROPY:
        return max(0.0, problem.label_bits - problem.asked * loss / log(2))
    wrong = min(max(1 - accuracy, 0.0), 0.5)
    doubt = 0.0 if wrong == 0 else -wrong * log2(wrong) - (1 - wrong) * log2(1 - wrong)
    return problem.asked * (1 - doubt)


def plain_tables(study: Study) -> dict[str, Any]:
    """Everything the command line prints, as plain values."""
    finished = study.finished()
    experiment = study.experiment
    return {
        "study": study.name,
        "preset": experiment.preset,
        "scale": experiment.scale,
        "kind": experiment.kind,
        "finished": len(finished),
        "done": study.done(),
        "rows": [asdict(row) for row in table(experiment, finished)],
        "minima": [asdict(m) for m in minima(experiment, finished)] if experiment.kind == "minimum" else [],
        "seconds_of_training": round(sum(r.outcome.seconds for r in finished.values()), 3),
    }


def export_rows(study: Study, path: Path) -> int:
    """Write one row per finished trial: .csv, .parquet, or .jsonl with the whole record and its curve."""
    if not path.parent.is_dir():
        raise OptionError(f"cannot write {path}: there is no folder {path.parent}")
    finished = study.finished()
    records = [finished[key] for key in sorted(finished, key=_order)]
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(r.as_plain()) + "\n" for r in records), encoding="utf-8")
    elif suffix == ".csv":
        rows = [flat(record) for record in records]
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else ["key"])
            writer.writeheader()
            writer.writerows(rows)
    elif suffix == ".parquet":
        _write_parquet([flat(record) for record in records], path)
    else:
        raise OptionError(f"cannot export to {path.name!r}; end the name in .csv, .parquet or .jsonl")
    return len(records)


def flat(record: TrialRecord) -> dict[str, Any]:
    """A record as one row of a table, without its curve."""
    spec, training, outcome = record.problem, record.training, record.outcome
    return {
        "key": record.key,
        "source": spec.source,
        "N": spec.N,
        "n": spec.n,
        "d": spec.d,
        "data_seed": spec.seed,
        "fingerprint": record.fingerprint,
        "model": record.model.kind,
        "size": record.model.size,
        "parameters": record.parameters,
        "rate": training.rate,
        "warmup": training.warmup,
        "shape": training.shape,
        "decay": training.decay,
        "planned_epochs": training.epochs,
        "seed": training.seed,
        "state": outcome.state,
        "memorized": outcome.memorized,
        "loss": outcome.loss,
        "accuracy": outcome.accuracy,
        "epochs": outcome.epochs,
        "starts": outcome.starts,
        "seconds": outcome.seconds,
        "engine": record.engine,
        "machine": record.machine,
        **{f"version_{name}": version for name, version in record.versions.items()},
    }


def _order(key: str) -> tuple[int, ...]:
    return tuple(int(part[1:]) for part in key.split("-"))


def _write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("exporting Parquet", "data") from None
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def capacity(
    problems: Sequence[Sequences],
    *,
    sizes: Sequence[int] = LADDER,
    epochs: int = 4000,
    trials: int = 4,
    loss: float = 0.01,
    accuracy: bool = False,
    space: Space = TUNED,
    first: int = 4,
    seed: int = 0,
) -> list[Minimum]:
    """For every problem the least #blocks of eq. (165) that memorizes it: loss below `loss`, or with `accuracy` every
    label correct. Learning rate and warmup are tuned within `space`, `trials` at most for each size. In this process;
    for many cores or machines write an `Experiment` and `start_run` it.
    """
    if not problems:
        raise OptionError("capacity needs at least one problem")
    experiment = Experiment(
        preset="capacity",
        scale="own",
        kind="minimum",
        axis="N",
        problems=tuple(ProblemSpec("random", p.N, p.n, p.d, seed=place) for place, p in enumerate(problems)),
        sizes=tuple(sizes),
        epochs=epochs,
        trials=trials,
        space=space,
        loss=loss,
        accuracy=accuracy,
        first=first,
        seed=seed,
    )
    planner, finished = Planner(experiment), Finished()
    while needed := planner.needed(finished):
        trial = needed[0]
        finished[trial.key] = train_on(problems[trial.problem], experiment, trial)
    return minima(experiment, finished)


Array = npt.NDArray[np.float64]
SCALES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "root": ("√N", np.sqrt),
    "linear": ("N", lambda x: x),
    "logarithm": ("log10 n", np.log10),
}
# Of the bootstrap.
_RESAMPLES = 2000


@dataclass(frozen=True)
class GrowthFit:
    """size ≈ offset + slope·g(x). `explained`: the share of the variance (R²); slopes: 95 % of the bootstrap."""

    scale: str
    slope: float
    offset: float
    explained: float
    slopes: tuple[float, float]
    draws: tuple[tuple[float, float], ...]  # (offset, slope) of resamples, for a band

    @property
    def label(self) -> str:
        name = SCALES[self.scale][0]
        if abs(self.slope) < 1e-9:
            return f"{self.offset:.3g}, whatever {name[-1]}"
        return f"{self.offset:.2g} + {self.slope:.3g}·{name}, R² = {self.explained:.2f}"

    def at(self, x: Sequence[float]) -> Array:
        return self.offset + self.slope * SCALES[self.scale][1](np.asarray(x, dtype=float))

    def band(self, x: Sequence[float]) -> tuple[Array, Array]:
        """Between these lie 95 % of the resampled fits."""
        g = SCALES[self.scale][1](np.asarray(x, dtype=float))
        lines = np.array([offset + slope * g for offset, slope in self.draws])
        low, high = np.percentile(lines, [2.5, 97.5], axis=0)
        return low, high


def fit_growth(x: Sequence[float], y: Sequence[float], scale: str, seed: int = 0) -> GrowthFit:
    """The least-squares line of y against g(x); needs two different x."""
    if scale not in SCALES:
        raise OptionError(f"unknown scale {scale!r}; known: {', '.join(SCALES)}")
    places, values = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    g = SCALES[scale][1](places)
    if len(np.unique(g)) < 2:
        raise OptionError("a fit needs at least two different x")
    offset, slope = _line(g, values)
    spread = float(((values - values.mean()) ** 2).sum())
    rest = float(((values - offset - slope * g) ** 2).sum())
    draws = _bootstrap(g, values, seed)
    low, high = np.percentile([slope for _, slope in draws], [2.5, 97.5])
    explained = 1.0 if rest < 1e-12 else (1 - rest / spread if spread else 0.0)
    return GrowthFit(scale, slope, offset, explained, (float(low), float(high)), draws)


def _bootstrap(g: Array, values: Array, seed: int) -> tuple[tuple[float, float], ...]:
    draw = np.random.default_rng(seed)
    found: list[tuple[float, float]] = []
    while len(found) < _RESAMPLES:
        pick = draw.integers(len(g), size=len(g))
        if len(np.unique(g[pick])) > 1:
            found.append(_line(g[pick], values[pick]))
    return tuple(found)


def _line(g: Array, values: Array) -> tuple[float, float]:
    centre = g - g.mean()
    slope = float(centre @ values / (centre @ centre))
    return float(values.mean() - slope * g.mean()), slope
