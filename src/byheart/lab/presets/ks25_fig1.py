"""KS25, Figure 1."""

from __future__ import annotations

from byheart.lab.presets._base import curves, preset
from byheart.lab.sources import ProblemSpec
from byheart.lab.study.experiment import Experiment


@preset("ks25-fig1", "Training on MultiNLI: more blocks, less loss")
def experiment(scale: str) -> Experiment:
    """Loss and accuracy while training on MultiNLI, N = 2000, n = 8, #blocks = 1, 10, …, 50."""
    N, d, epochs, trials = {
        "small": (600, 32, 15000, 8),
        "medium": (1000, 64, 20000, 16),
        "paper": (2000, 256, 1000, 2),
    }[scale]
    return curves("ks25-fig1", scale, ProblemSpec("mnli", N, 8, d), (1, 10, 20, 30, 40, 50), epochs, trials)
