"""The figures of the papers as experiments, each at three scales.

`paper` is what the paper did; `small` shows the effect in about ten minutes on two cores; `medium` lies between. What
a paper does not say (vectors of words, ranges of the tuned values) is chosen here and said in docs/lab.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from byheart.errors import OptionError
from byheart.lab.engines.training import ENGINES
from byheart.lab.sources import ProblemSpec
from byheart.lab.study.experiment import Experiment, Space

SCALES = ("small", "medium", "paper")
# Full-batch steps on a stream of two numbers explode without a short gradient; with it fifty blocks train.
TUNED = Space(rate=(3e-3, 6e-2), warmup=(0.0, 0.2), beta2=0.99, clip=0.1)
LADDER = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)


@dataclass(frozen=True)
class Preset:
    """A figure: what it shows, and its experiment at each scale."""

    name: str
    title: str
    build: Callable[[str], Experiment]


def experiment_of(
    name: str, scale: str = "small", seed: int = 0, d: int | str | None = "preset", engine: str = "auto"
) -> Experiment:
    """The experiment of a preset. `d`: dimension of the words' fixed vectors, None for trained ones.

    >>> experiment_of("ks25-fig1", "paper").sizes
    (1, 10, 20, 30, 40, 50)
    """
    if name not in PRESETS:
        raise OptionError(f"unknown preset {name!r}; known: {', '.join(PRESETS)}")
    if engine not in ENGINES:
        raise OptionError(f"unknown engine {engine!r}; known: {', '.join(ENGINES)}")
    if scale not in SCALES:
        raise OptionError(f"unknown scale {scale!r}; known: {', '.join(SCALES)}")
    experiment = PRESETS[name].build(scale)
    if d != "preset":
        if experiment.problems[0].source in ("random", "tinystories"):
            raise OptionError(f"--embedding has no meaning for {name}: its tokens are not words with fixed vectors")
        problems = tuple(replace(spec, d=d) for spec in experiment.problems)  # type: ignore[arg-type]
        experiment = replace(experiment, problems=problems)
    return replace(experiment, seed=seed, engine=engine)


def _figure_1(scale: str) -> Experiment:
    """Loss and accuracy while training on MultiNLI, N = 2000, n = 8, #blocks = 1, 10, …, 50."""
    N, d, epochs, trials = {
        "small": (600, 32, 15000, 8),
        "medium": (1000, 64, 20000, 16),
        "paper": (2000, 256, 1000, 2),
    }[scale]
    return _curves("ks25-fig1", scale, ProblemSpec("mnli", N, 8, d), (1, 10, 20, 30, 40, 50), epochs, trials)


def _figure_2(scale: str) -> Experiment:
    """Loss and accuracy while training on IMDb, N = 3000, n = 8, #blocks = 1, 10, …, 40."""
    N, d, epochs, trials = {
        "small": (800, 32, 15000, 8),
        "medium": (1500, 64, 20000, 16),
        "paper": (3000, 256, 1000, 2),
    }[scale]
    return _curves("ks25-fig2", scale, ProblemSpec("imdb", N, 8, d), (1, 10, 20, 30, 40), epochs, trials)


def _curves(name: str, scale: str, spec: ProblemSpec, sizes: tuple[int, ...], epochs: int, trials: int) -> Experiment:
    return Experiment(
        preset=name,
        scale=scale,
        kind="curves",
        axis="N",
        problems=(spec,),
        sizes=sizes,
        epochs=epochs,
        trials=trials,
        space=TUNED,
        full=True,
    )


def _figure_3(scale: str) -> Experiment:
    """The least #blocks that memorizes MultiNLI, N = 600, 700, …, 1700."""
    counts = {
        "small": tuple(range(100, 401, 50)),
        "medium": tuple(range(100, 601, 50)),
        "paper": tuple(range(600, 1701, 100)),
    }[scale]
    d = {"small": 16, "medium": 32, "paper": 256}[scale]
    epochs, trials, repeats = {"small": (15000, 6, 2), "medium": (20000, 10, 3), "paper": (1000, 10, 1)}[scale]
    return Experiment(
        preset="ks25-fig3",
        scale=scale,
        kind="minimum",
        axis="N",
        problems=tuple(ProblemSpec("mnli", N, 8, d, seed) for N in counts for seed in range(repeats)),
        sizes=LADDER,
        epochs=epochs,
        trials=trials,
        space=TUNED,
        accuracy=True,
        first=4,
    )


def _length(scale: str) -> Experiment:
    """The least #blocks that memorizes N = 500 random sequences of n = 10, 100, 1000, 10000 vectors."""
    N, lengths, epochs, trials, repeats = {
        "small": (100, (10, 30, 100, 300, 1000), 8000, 6, 2),
        "medium": (200, (10, 100, 1000, 10000), 5000, 10, 2),
        "paper": (500, (10, 100, 1000, 10000), 1000, 10, 1),
    }[scale]
    return Experiment(
        preset="ks25-length",
        scale=scale,
        kind="minimum",
        axis="n",
        problems=tuple(ProblemSpec("random", N, n, 6, seed) for n in lengths for seed in range(repeats)),
        sizes=LADDER,
        epochs=epochs,
        trials=trials,
        space=TUNED,
        first=4,
    )


def _madden(scale: str) -> Experiment:
    """Gap to the entropy bound for 100 … 1000 documents of 10 words and m = 4 … 512 neurons."""
    documents, neurons, epochs, rate = {
        "small": ((100, 200, 300), (4, 8, 16, 32, 64), 6000, 3e-3),
        "medium": (tuple(range(100, 1001, 300)), (4, 8, 16, 32, 64, 128, 256), 5000, 2e-3),
        "paper": (tuple(range(100, 1001, 100)), (4, 8, 16, 32, 64, 128, 256, 512), 50000, 1e-4),
    }[scale]
    return Experiment(
        preset="madden24-fig1",
        scale=scale,
        kind="grid",
        axis="N",
        problems=tuple(ProblemSpec("tinystories", D, 10) for D in documents),
        sizes=neurons,
        epochs=epochs,
        trials=1,
        batch=1,
        space=Space(rate=(rate, rate), shape="constant" if scale == "paper" else "cosine"),
        model="decoder",
        full=True,
    )


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("ks25-fig1", "Training on MultiNLI: more blocks, less loss", _figure_1),
        Preset("ks25-fig2", "Training on IMDb: more blocks, less loss", _figure_2),
        Preset("ks25-fig3", "The least number of blocks that memorizes N rows of MultiNLI", _figure_3),
        Preset("ks25-length", "The least number of blocks that memorizes sequences of length n", _length),
        Preset("madden24-fig1", "A decoder on TinyStories: gap to the entropy against neurons", _madden),
    )
}
