"""One training run from start to finish: the engine, the stopping rule, the record.

>>> import numpy as np
>>> from byheart.lab.config import Training, Uniform
>>> from byheart.lab.problem import Sequences
>>> problem = Sequences("tiny", np.eye(3), np.array([[0, 1], [2, 1]]), np.array([0, 1]), classes=2, read=0)
>>> outcome = train(problem, Uniform(blocks=1), Training(epochs=400, rate=0.03), Goal(loss=0.01), engine="stacked")
>>> outcome.state, outcome.accuracy
('memorized', 1.0)
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from byheart.errors import MissingExtraError, OptionError
from byheart.lab.config import DecoderModel, Model, Training, Uniform
from byheart.lab.engines.weights import Weights, grown, initial_uniform
from byheart.lab.problem import Documents, Problem, Sequences

ENGINES = ("auto", "kernel", "stacked", "compiled", "decoder", "readable")
# Engines of earlier versions, which studies name in their records -> what trains them now.
FORMER = {"wide": "kernel", "attending": "kernel"}
MEMORIZED, EXHAUSTED, HOPELESS, PRUNED, DIVERGED = "memorized", "exhausted", "hopeless", "pruned", "diverged"
_CHUNK = 32  # epochs between two looks at the curve
_POINTS = 200  # of the curve that a record keeps
_WORDS = 1000  # distinct tokens up to which `auto` keeps a table of all their scores


class TrainingEngine(Protocol):
    """The interface of an engine: `epochs(k)` runs k steps and returns (k, 2), loss and accuracy before each."""

    def epochs(self, count: int) -> npt.NDArray[np.float64]: ...


@runtime_checkable
class Growing(TrainingEngine, Protocol):
    """An engine whose weights can be taken out, so that a larger network starts from them."""

    def learned(self) -> Weights: ...


@dataclass(frozen=True)
class Goal:
    """When a run is over.

    Memorized: the loss falls below `loss`, or with `accuracy` every answer is correct; documents are memorized when the
    loss exceeds their entropy by less than the fraction `loss` of it, as Madden et al. measure. Hopeless: within
    `patience` (a share of all epochs) the best loss did not fall by a hundredth. `bars`: (epoch, loss) that a run must
    not exceed, the medians of earlier trials (Optuna's median rule). With `full` only a diverged run ends early.
    """

    loss: float = 0.01
    accuracy: bool = False
    patience: float = 0.35
    full: bool = False
    bars: tuple[tuple[int, float], ...] = ()

    def reached(self, losses: npt.NDArray[np.float64], accuracies: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        right = accuracies == 1.0 if self.accuracy else np.zeros(len(losses), dtype=bool)
        return np.asarray((losses < self.loss) | right, dtype=np.bool_)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. `loss` and `accuracy` are the best; `curve` is (epoch, loss, accuracy), thinned."""

    state: str
    loss: float
    accuracy: float
    epochs: int
    curve: tuple[tuple[int, float, float], ...]
    seconds: float
    starts: int = 1

    @property
    def memorized(self) -> bool:
        return self.state == MEMORIZED


def train(problem: Problem, model: Model, training: Training, goal: Goal, engine: str = "auto") -> Outcome:
    """Train until the goal is reached, the run is hopeless or the epochs are over. Deterministic for a seed.

    With several `starts`, a run that misses the goal is followed by another one from other weights; the best is
    returned, with the number of starts and the seconds of all. With `before`, smaller networks are trained first; loss,
    accuracy, epochs and curve are those of the last network alone, the seconds those of all.
    """
    found: list[Outcome] = []
    while len(found) < training.starts and not (found and found[-1].memorized):
        found.append(_train(problem, model, replace(training, seed=training.seed + len(found)), goal, engine))
    best = min(found, key=lambda outcome: (not outcome.memorized, outcome.loss))
    return replace(best, starts=len(found), seconds=sum(outcome.seconds for outcome in found))


def _train(problem: Problem, model: Model, training: Training, goal: Goal, engine: str) -> Outcome:
    if isinstance(problem, Documents) and problem.entropy > 0:
        goal = replace(goal, loss=(1 + goal.loss) * problem.entropy)
    if not training.before:
        return _run(make_engine(engine, problem, model, training), training, goal)
    if not (isinstance(problem, Sequences) and isinstance(model, Uniform)):
        raise OptionError("only models of eq. (165) grow from smaller ones")
    return _grow(problem, model, training, goal, engine)[0]


@lru_cache(maxsize=256)  # the stages of the trials of one problem
def _grow(problem: Sequences, model: Uniform, training: Training, goal: Goal, engine: str) -> tuple[Outcome, Weights]:
    """The outcome of a network that grew from smaller ones, and weights that a larger one may start from.

    These are the last ones, or the first if the run ended worse than it began. Kept, because all sizes of a figure
    grow from the same smaller networks.
    """
    start, seconds = initial_uniform(model, problem, training.seed, identity=training.identity), 0.0
    if training.before:
        smaller = replace(training, before=training.before[:-1])
        outcome, small = _grow(problem, replace(model, blocks=training.before[-1]), smaller, goal, engine)
        start, seconds = grown(small, model, problem, training.seed), outcome.seconds
    for attempt in range(1 + (training.retries if training.before else 0)):
        plan = replace(training, rate=training.rate / 2**attempt)
        runner = make_engine(engine, problem, model, plan, start)
        assert isinstance(runner, Growing)
        outcome = _run(runner, plan, goal)
        seconds += outcome.seconds
        if outcome.curve[-1][1] <= outcome.curve[0][1]:  # False for NaN
            return replace(outcome, seconds=seconds), runner.learned()
    return replace(outcome, seconds=seconds), start


def _run(runner: TrainingEngine, training: Training, goal: Goal) -> Outcome:
    started = time.perf_counter()
    curve = np.empty((0, 2))
    state = EXHAUSTED
    while len(curve) < training.epochs and state == EXHAUSTED:
        fresh = runner.epochs(min(_CHUNK, training.epochs - len(curve)))
        curve = np.concatenate([curve, fresh])
        state, curve = _judge(curve, len(fresh), training, goal)
    if goal.full and state == EXHAUSTED and goal.reached(curve[:, 0], curve[:, 1]).any():
        state = MEMORIZED
    finite = curve[np.isfinite(curve[:, 0])]
    return Outcome(
        state=state,
        loss=float(finite[:, 0].min()) if len(finite) else float("inf"),
        accuracy=float(finite[:, 1].max()) if len(finite) else 0.0,
        epochs=len(curve),
        curve=_thinned(curve),
        seconds=time.perf_counter() - started,
    )


def _judge(
    curve: npt.NDArray[np.float64], fresh: int, training: Training, goal: Goal
) -> tuple[str, npt.NDArray[np.float64]]:
    """The state after another chunk, and the curve cut where the run ended."""
    start = len(curve) - fresh
    losses, accuracies = curve[start:, 0], curve[start:, 1]
    bad = ~np.isfinite(losses)
    if bad.any():
        return DIVERGED, curve[: start + int(bad.argmax()) + 1]
    if goal.full:
        return EXHAUSTED, curve
    done = goal.reached(losses, accuracies)
    if done.any():
        return MEMORIZED, curve[: start + int(done.argmax()) + 1]
    best = np.minimum.accumulate(curve[:, 0])
    if any(start <= epoch < len(curve) and best[epoch] > bar for epoch, bar in goal.bars):
        return PRUNED, curve
    waited = round(goal.patience * training.epochs)
    if len(curve) > waited and best[-1] > 0.99 * best[-1 - waited]:
        return HOPELESS, curve
    return EXHAUSTED, curve


def _thinned(curve: npt.NDArray[np.float64]) -> tuple[tuple[int, float, float], ...]:
    """At most `_POINTS` epochs, evenly, always with the last."""
    stride = max(1, -(-len(curve) // _POINTS))
    kept = sorted({*range(0, len(curve), stride), len(curve) - 1})
    return tuple((k, _rounded(curve[k, 0]), _rounded(curve[k, 1])) for k in kept)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def make_engine(
    name: str, problem: Problem, model: Model, training: Training, start: Weights | None = None
) -> TrainingEngine:
    """Return the engine of that name; `auto` selects the fastest that fits (on a CPU). `start`: given weights."""
    name = FORMER.get(name, name)
    if name not in ENGINES:
        raise OptionError(f"unknown engine {name!r}; known: {', '.join(ENGINES)}")
    if isinstance(problem, Sequences) and isinstance(model, Uniform):
        few = model.attention == "uniform" or problem.tokens <= _WORDS
        if name == "kernel" or (name == "auto" and few):
            from byheart.lab.engines.kernel import KernelEngine

            return KernelEngine(problem, model, training, start=start)
        if training.precision != "float32":
            raise OptionError(f"the {name} engine computes in float32, not {training.precision}; use --engine kernel")
        if start is not None:
            raise OptionError(f"the {name} engine does not grow networks; use --engine kernel")
        if name in ("auto", "stacked", "compiled"):
            _torch()
            from byheart.lab.engines.pytorch import StackedEngine

            return StackedEngine(problem, model, training, compiled=name == "compiled")
    if isinstance(problem, Documents) and isinstance(model, DecoderModel) and name in ("auto", "decoder"):
        _torch()
        from byheart.lab.engines.pytorch import DecoderEngine

        return DecoderEngine(problem, model, training)
    if name == "readable":
        _torch()
        from byheart.lab.engines.readable import ReadableEngine

        return ReadableEngine(problem, model, training)
    raise OptionError(f"the {name} engine does not train a {model.kind} model on {type(problem).__name__.lower()}")


def _torch() -> None:
    """One thread per process: a second one gains nothing at these sizes and costs much on a busy machine."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("training with PyTorch", "lab") from error
    torch.set_num_threads(1)
