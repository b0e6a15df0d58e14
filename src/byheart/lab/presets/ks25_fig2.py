"""KS25, Figure 2."""

from __future__ import annotations

from byheart.lab.presets._base import curves, preset
from byheart.lab.sources import ProblemSpec
from byheart.lab.study.experiment import Experiment


@preset("ks25-fig2", "Training on IMDb: more blocks, less loss")
def experiment(scale: str) -> Experiment:
    """Loss and accuracy while training on IMDb, N = 3000, n = 8, #blocks = 1, 10, …, 40."""
    N, d, epochs, trials = {
        "small": (800, 32, 15000, 8),
        "medium": (1500, 64, 20000, 16),
        "paper": (3000, 256, 1000, 2),
    }[scale]
    return curves("ks25-fig2", scale, ProblemSpec("imdb", N, 8, d), (1, 10, 20, 30, 40), epochs, trials)
