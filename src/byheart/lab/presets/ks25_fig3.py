"""KS25, Figure 3."""

from __future__ import annotations

from byheart.lab.presets._base import LADDER, TUNED, preset
from byheart.lab.sources import ProblemSpec
from byheart.lab.study.experiment import Experiment


@preset("ks25-fig3", "The least number of blocks that memorizes N rows of MultiNLI")
def experiment(scale: str) -> Experiment:
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
