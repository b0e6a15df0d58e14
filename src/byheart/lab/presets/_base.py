"""Presets: a figure of a paper as an experiment, at three scales.

`paper` repeats the paper; `small` shows the effect in about ten minutes on two cores; `medium` lies between. What
a paper does not specify (vectors of words, ranges of the tuned values) is chosen here; listed in docs/lab-results.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from byheart.errors import OptionError
from byheart.lab.engines.training import ENGINES, FORMER
from byheart.lab.problem import DRAWN, ProblemSpec
from byheart.lab.study.experiment import Experiment, Space

SCALES = ("small", "medium", "paper")
# Full-batch steps on a stream of two numbers explode without a short gradient; with it fifty blocks train.
TUNED = Space(rate=(3e-3, 6e-2), warmup=(0.0, 0.2), beta2=0.99, clip=0.1)
# Settings that train deep stacks in the papers' 1000 epochs: blocks that start as the identity, slower steps for stacks
# that are deep (and most for the one that all tokens share), a long warmup.
DEEP = Space(
    rate=(0.02, 0.1),
    warmup=(0.2, 0.4),
    beta2=0.95,
    clip=0.3,
    identity=True,
    slowdown=0.25,
    token_slowdown=1.0,
    starts=8,
)
# For curves over sizes: every size starts from the next smaller one, and both stacks learn alike.
GROWING = replace(
    DEEP, rate=(0.025, 0.05), warmup=(0.1, 0.3), token_slowdown=0.25, starts=1, grow=True, calm=0.5, retries=3
)
LEAST = replace(GROWING, rate=(0.03, 0.08), retries=0)  # the least size: many small steps, which need no second try
# The same where every token has a label: then the blocks before attention have as much to learn as those after it.
ATTENDING = replace(LEAST, rate=(0.04, 0.08), warmup=(0.15, 0.3), token_slowdown=0.0, retries=1)
# Widths of the vectors of words at the scale of the paper. E_in has two numbers for each, so that they decide how much
# is left to the blocks: with 704 for N = 3000 rows of IMDb, or 640 for 1700 of MultiNLI, one block is enough.
WIDTHS = {"ks25-fig1": 704, "ks25-fig2": 640, "ks25-fig3": 384}
STAGES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)  # sizes through which networks grow there
LONG_STAGES = (*STAGES, 20, 24, 28, 32)
LADDER = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)


@dataclass(frozen=True)
class Preset:
    """A figure of a paper.

    Attributes:
        name: Its name.
        title: Its description.
        build: Scale -> experiment.
    """

    name: str
    title: str
    build: Callable[[str], Experiment]


PRESETS: dict[str, Preset] = {}


def preset(name: str, title: str) -> Callable[[Callable[[str], Experiment]], Callable[[str], Experiment]]:
    """Register the decorated function, scale -> experiment, as a preset.

    Args:
        name: Its name.
        title: Its description.
    """

    def add(build: Callable[[str], Experiment]) -> Callable[[str], Experiment]:
        PRESETS[name] = Preset(name, title, build)
        return build

    return add


def experiment_of(
    name: str, scale: str = "small", seed: int = 0, d: int | str | None = "preset", engine: str = "auto"
) -> Experiment:
    """Build the experiment of a preset.

    Args:
        name: The preset.
        scale: `small`, `medium` or `paper`.
        seed: The seed of every random choice.
        d: Dimension of the words' fixed vectors, None for trained ones, `preset` for the preset's own.
        engine: What trains.

    Raises:
        OptionError: A name is unknown, or `d` has no meaning for the preset.

    >>> from byheart.lab import presets
    >>> presets.experiment_of("ks25-fig1", "paper").sizes
    (1, 10, 20, 30, 40, 50)
    """
    if name not in PRESETS:
        raise OptionError(f"unknown preset {name!r}; known: {', '.join(PRESETS)}")
    if engine not in (*ENGINES, *FORMER):
        raise OptionError(f"unknown engine {engine!r}; known: {', '.join(ENGINES)}")
    if scale not in SCALES:
        raise OptionError(f"unknown scale {scale!r}; known: {', '.join(SCALES)}")
    experiment = PRESETS[name].build(scale)
    if d != "preset":
        if experiment.problems[0].source in (*DRAWN, "tinystories"):
            raise OptionError(f"--embedding has no meaning for {name}: its tokens are not words with fixed vectors")
        problems = tuple(replace(spec, d=d) for spec in experiment.problems)  # type: ignore[arg-type]
        experiment = replace(experiment, problems=problems)
    return replace(experiment, seed=seed, engine=engine)


def curves(name: str, scale: str, spec: ProblemSpec, sizes: tuple[int, ...], epochs: int, trials: int) -> Experiment:
    return Experiment(
        preset=name,
        scale=scale,
        kind="curves",
        axis="N",
        problems=(spec,),
        sizes=sizes,
        epochs=epochs,
        trials=trials,
        space=GROWING if scale == "paper" else TUNED,
        full=True,
    )
