"""KS25, the table of sequence lengths."""

from __future__ import annotations

from byheart.lab.presets._base import LADDER, TUNED, preset
from byheart.lab.sources import ProblemSpec
from byheart.lab.study.experiment import Experiment


@preset("ks25-length", "The least number of blocks that memorizes sequences of length n")
def experiment(scale: str) -> Experiment:
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
