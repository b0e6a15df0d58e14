"""The next trial, as a pure function of the finished ones.

There is no scheduler: every worker computes the same plan from the same results and claims the first trial that no
other worker has. That is why a study survives the death of any worker, and why resuming is the same as continuing.

Learning rates are proposed by Optuna's TPE, in batches, with the same answer on every machine: a proposal depends
on the experiment's seed, the cell and the results of *earlier batches* of that cell, never on the worker or other
running trials. Workers need no leader, and an interrupted study continues exactly as it would have.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from byheart.errors import MissingExtraError
from byheart.lab.config import PRECISIONS, Training
from byheart.lab.engines.training import Goal
from byheart.lab.study.experiment import Experiment, Space, TrialRecord

Verdicts = Callable[[int], bool | None]  # size -> memorized, not memorized, or not known yet


@dataclass(frozen=True)
class Trial:
    """One training run that the experiment needs. `key` names it in the study."""

    problem: int
    size: int
    number: int
    training: Training
    goal: Goal

    @property
    def key(self) -> str:
        return trial_key(self.problem, self.size, self.number)


def trial_key(problem: int, size: int, number: int) -> str:
    return f"p{problem}-s{size}-t{number}"


class Planner:
    """Plans one experiment; remembers proposals, which never change once their batch is known."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self._batches: dict[tuple[int, int, int], list[Trial]] = {}

    def needed(self, finished: Mapping[str, TrialRecord]) -> list[Trial]:
        """Every trial that can be trained now and is not finished, most useful first; empty: all is done."""
        experiment = self.experiment
        wanted: list[Trial] = []
        for problem in range(len(experiment.problems)):
            if experiment.kind == "minimum":
                size = next_size(experiment, lambda s, p=problem: self.verdict(p, s, finished))  # type: ignore[misc]
                cells = [] if size is None else [size]
            else:
                cells = list(reversed(experiment.sizes))  # the long ones first, so that no core waits at the end
            for size in cells:
                wanted += [t for t in self._cell(problem, size, finished) if t.key not in finished]
        if experiment.kind == "grid":  # hours of work: cheap trials first, for early results
            wanted.sort(key=lambda trial: experiment.place(trial.problem) ** 2 * (100 + trial.size))
        return wanted

    def verdict(self, problem: int, size: int, finished: Mapping[str, TrialRecord]) -> bool | None:
        """Has a trial of this cell memorized? None while trials are missing that could still change the answer."""
        if self._cell(problem, size, finished):
            return None
        return any(record.outcome.memorized for record in self.records(problem, size, finished))

    def minimum(self, problem: int, finished: Mapping[str, TrialRecord]) -> int | None:
        """The smallest size that memorized, or None."""
        sizes = [s for s in self.experiment.sizes if self.verdict(problem, s, finished)]
        return min(sizes, default=None)

    def records(self, problem: int, size: int, finished: Mapping[str, TrialRecord]) -> list[TrialRecord]:
        keys = (trial_key(problem, size, number) for number in range(self.experiment.trials))
        return [finished[key] for key in keys if key in finished]

    def _cell(self, problem: int, size: int, finished: Mapping[str, TrialRecord]) -> list[Trial]:
        """The first batch of the cell that is not finished; empty when the cell is decided."""
        experiment = self.experiment
        for start in range(0, experiment.trials, experiment.batch):
            batch = self._batch(problem, size, start, finished)
            if any(trial.key not in finished for trial in batch):
                return batch
            if experiment.kind == "minimum" and any(finished[trial.key].outcome.memorized for trial in batch):
                return []
        return []

    def _batch(self, problem: int, size: int, start: int, finished: Mapping[str, TrialRecord]) -> list[Trial]:
        place = (problem, size, start)
        if place not in self._batches:
            experiment = self.experiment
            before = [finished[trial_key(problem, size, number)] for number in range(start)]
            earlier = [Result(r.training.rate, r.training.warmup, r.outcome.loss, r.outcome.curve) for r in before]
            if experiment.space.grow:  # all sizes of a trial are one network that grows: one size's result is no guide
                earlier = []
            count = min(experiment.batch, experiment.trials - start)
            goal = Goal(
                loss=experiment.loss,
                accuracy=experiment.accuracy,
                full=experiment.full,
                # A network that has grown first loses the smaller one's fit, and recovers it when the rate falls;
                # and a cell of a grid is one run, which is not repeated.
                patience=1.0 if experiment.space.grow or experiment.kind == "grid" else Goal.patience,
                bars=bars(experiment, earlier),
            )
            self._batches[place] = [
                Trial(problem, size, start + i, training, goal)
                for i, training in enumerate(propose(experiment, (problem, size), earlier, count, start))
            ]
        return self._batches[place]


def next_size(experiment: Experiment, verdict: Verdicts) -> int | None:
    """The next size to try: from `first`, doubling while it fails or halving while it memorizes, then bisecting.

    None when the smallest memorizing size is bracketed (or even the largest fails).
    """
    sizes = experiment.sizes
    low, high = -1, len(sizes)  # indices known to fail and to memorize; the ends are only assumed
    place = min(range(len(sizes)), key=lambda i: abs(sizes[i] - experiment.first))
    while high - low > 1:
        known = verdict(sizes[place])
        if known is None:
            return sizes[place]
        low, high = (low, place) if known else (place, high)
        if high == len(sizes):
            place = min(len(sizes) - 1, 2 * place + 1)
        elif low == -1:
            place = place // 2
        else:
            place = (low + high) // 2
    return None


_CHECKPOINTS = (0.25, 0.5, 0.75)  # shares of the epochs at which the median rule looks
_ENOUGH = 3  # finished trials before it prunes


@dataclass(frozen=True)
class Result:
    """The facts of a finished trial that proposals need."""

    rate: float
    warmup: float
    loss: float
    curve: tuple[tuple[int, float, float], ...]


def stable_seed(*parts: object) -> int:
    """A seed of 31 bits from any values: the same on every machine and in every run.

    >>> stable_seed("a", 1) == stable_seed("a", 1) != stable_seed("a", 2)
    True
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big") >> 1


def propose(
    experiment: Experiment, cell: tuple[int, int], earlier: Sequence[Result], count: int, done: int | None = None
) -> list[Training]:
    """The next `count` trainings of a cell after `done` others, given the results of its earlier batches."""
    space, seed, done = experiment.space, experiment.seed, len(earlier) if done is None else done
    problem, size = cell
    same = experiment.problems.index(experiment.problems[problem])  # variants of a problem have equal draws
    draws: tuple[int, int] = (same, size)
    before: tuple[int, ...] = ()
    if space.grow:  # a larger network continues where the smaller one ended: equal draws for all sizes, too
        draws, before = (same, 0), tuple(other for other in experiment.sizes if other < size)
    if space.fixed:
        points = [(space.rate[0], space.warmup[0])] * count
    else:
        points = _ask(space, stable_seed(seed, draws, done), earlier, count)
    return [
        Training(
            epochs=experiment.epochs,
            rate=rate,
            warmup=warmup,
            shape=space.shape,
            decay=space.decay,
            beta2=space.beta2,
            clip=space.clip,
            identity=space.identity,
            slowdown=space.slowdown,
            token_slowdown=space.token_slowdown,
            summed=space.summed,
            precision=variant if (variant := experiment.variant(problem)) in PRECISIONS else space.precision,
            starts=space.starts,
            before=before,
            calm=space.calm,
            retries=space.retries,
            seed=stable_seed(seed, draws, done + i, "weights"),
        )
        for i, (rate, warmup) in enumerate(points)
    ]


def bars(experiment: Experiment, earlier: Sequence[Result]) -> tuple[tuple[int, float], ...]:
    """Losses that a run must not exceed: at each checkpoint the median of the earlier trials' best."""
    if len(earlier) < _ENOUGH or experiment.full:
        return ()
    found = []
    for share in _CHECKPOINTS:
        epoch = round(share * experiment.epochs)
        best = [min((loss for k, loss, _ in r.curve if k <= epoch), default=float("inf")) for r in earlier]
        found.append((epoch, median(best)))
    return tuple(found)


def _ask(space: Space, seed: int, earlier: Sequence[Result], count: int) -> list[tuple[float, float]]:
    optuna = import_optuna()
    distributions = {
        "rate": optuna.distributions.FloatDistribution(*space.rate, log=True),
        "warmup": optuna.distributions.FloatDistribution(*space.warmup),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls TPE's options experimental
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=4, constant_liar=True)
    study = optuna.create_study(sampler=sampler)
    for result in earlier:
        study.add_trial(
            optuna.trial.create_trial(
                params={"rate": result.rate, "warmup": result.warmup},
                distributions=distributions,
                value=min(result.loss, 1e6),
            )
        )
    queried = [study.ask(distributions).params for _ in range(count)]
    return [(_short(p["rate"]), _short(p["warmup"])) for p in queried]


def _short(value: float) -> float:
    """Four digits: finer tuning gains nothing, and tables stay readable."""
    return float(f"{value:.4g}")


def import_optuna() -> Any:
    """Optuna, quiet, or the error with the installation command."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("the laboratory's studies", "lab") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
