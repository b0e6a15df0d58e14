"""M24, Figure 1."""

from __future__ import annotations

from byheart.lab.presets._base import preset
from byheart.lab.problem import ProblemSpec
from byheart.lab.study.experiment import Experiment, Space


@preset("madden24-fig1", "A decoder on TinyStories: gap to the entropy against neurons")
def gap_by_neurons(scale: str) -> Experiment:
    """Gap to the entropy bound for 100 … 1000 documents of 10 words and m = 4 … 512 neurons.

    `paper` follows the authors' public code (`Decoder`, `problem`): Adam on the sum of the losses, 50,000 steps of
    the full batch at rate 10⁻⁴. The other scales take fewer steps at a higher rate that falls.
    """
    return _grid("madden24-fig1", scale, full=True)


@preset("madden24-threshold", "The same decoders, each trained until its gap is below one percent of the entropy")
def least_neurons(scale: str) -> Experiment:
    """The right half of the figure in a fraction of the time: how many parameters come below one percent. A run that
    does so ends there; all others take all their steps."""
    return _grid("madden24-threshold", scale, full=False)


def _grid(name: str, scale: str, full: bool) -> Experiment:
    documents, neurons, epochs, rate = {
        "small": ((100, 200, 300), (4, 8, 16, 32, 64), 6000, 3e-3),
        "medium": (tuple(range(100, 1001, 300)), (4, 8, 16, 32, 64, 128, 256), 5000, 2e-3),
        "paper": (tuple(range(100, 1001, 100)), (4, 8, 16, 32, 64, 128, 256, 512), 50000, 1e-4),
    }[scale]
    return Experiment(
        preset=name,
        scale=scale,
        kind="grid",
        axis="N",
        problems=tuple(ProblemSpec("tinystories", D, 10) for D in documents),
        sizes=neurons,
        epochs=epochs,
        trials=1,
        batch=1,
        space=Space(rate=(rate, rate), shape="constant" if scale == "paper" else "cosine", summed=True),
        model="decoder",
        full=full,
    )
