"""Which learning rates to try next: Optuna's TPE, asked in batches, the same answer on every machine.

A proposal depends on the experiment's seed, the cell and the results of *earlier batches* of that cell, never on who
asks or what else is running. So many workers need no leader, and an interrupted study goes on exactly as it would have.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from byheart.errors import MissingExtraError
from byheart.lab.config import Training
from byheart.lab.study.experiment import Experiment, Space

_CHECKPOINTS = (0.25, 0.5, 0.75)  # shares of the epochs at which the median rule looks
_ENOUGH = 3  # finished trials before it prunes


@dataclass(frozen=True)
class Result:
    """What proposals need to know of a finished trial."""

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


def propose(experiment: Experiment, cell: tuple[int, int], earlier: Sequence[Result], count: int) -> list[Training]:
    """The next `count` trainings of a cell, given the results of its earlier batches."""
    space, seed, done = experiment.space, experiment.seed, len(earlier)
    if space.fixed:
        points = [(space.rate[0], space.warmup[0])] * count
    else:
        points = _ask(space, stable_seed(seed, cell, done), earlier, count)
    return [
        Training(
            epochs=experiment.epochs,
            rate=rate,
            warmup=warmup,
            shape=space.shape,
            decay=space.decay,
            beta2=space.beta2,
            clip=space.clip,
            seed=stable_seed(seed, cell, done + i, "weights"),
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
    asked = [study.ask(distributions).params for _ in range(count)]
    return [(_short(p["rate"]), _short(p["warmup"])) for p in asked]


def _short(value: float) -> float:
    """Four digits: nobody tunes finer, and tables stay readable."""
    return float(f"{value:.4g}")


def import_optuna() -> Any:
    """Optuna, quiet, or the error that says how to install it."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("the laboratory's studies", "lab") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
