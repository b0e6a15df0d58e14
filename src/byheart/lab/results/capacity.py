"""The least size that memorizes your own problems: the search of the presets, for arrays instead of files.

>>> from byheart.lab.sources import ProblemSpec, make_problem
>>> problems = [make_problem(ProblemSpec("random", N, n=3, d=4)) for N in (4, 12)]
>>> [least.size is not None for least in capacity(problems, sizes=(1, 2, 4, 8), epochs=600, trials=4)]
[True, True]
"""

from __future__ import annotations

from collections.abc import Sequence

from byheart.errors import OptionError
from byheart.lab.engines.training import train
from byheart.lab.presets import LADDER, TUNED
from byheart.lab.problem import Sequences
from byheart.lab.results.summary import Finished, Minimum, minima
from byheart.lab.sources import ProblemSpec
from byheart.lab.study.experiment import Experiment, Space
from byheart.lab.study.planner import Planner
from byheart.lab.study.record import Record, machine, versions


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
    label right. Learning rate and warmup are tuned within `space`, `trials` at most for each size. In this process; for
    many cores or machines write an `Experiment` and `start_run` it.
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
        problem, model = problems[trial.problem], experiment.model_of(trial.size)
        finished[trial.key] = Record(
            key=trial.key,
            problem=experiment.problems[trial.problem],
            fingerprint=problem.fingerprint,
            model=model,
            parameters=model.parameters(problem),  # type: ignore[arg-type]
            training=trial.training,
            engine=experiment.engine,
            outcome=train(problem, model, trial.training, trial.goal),
            versions=versions(),
            machine=machine(),
        )
    return minima(experiment, finished)
