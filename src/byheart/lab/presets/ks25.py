"""KS25, Figures 1 to 3 and the table of sequence lengths."""

from __future__ import annotations

from dataclasses import replace

from byheart.lab.config import ATTENTIONS, PRECISIONS
from byheart.lab.presets._base import ATTENDING, DEEP, LADDER, LEAST, LONG_STAGES, STAGES, TUNED, WIDTHS, curves, preset
from byheart.lab.problem import ProblemSpec
from byheart.lab.study.experiment import Experiment


@preset("ks25-fig1", "Training on MultiNLI: more blocks, less loss")
def multinli_curves(scale: str) -> Experiment:
    """Loss and accuracy while training on MultiNLI, N = 2000, n = 8, #blocks = 1, 10, …, 50."""
    N, d, epochs, trials = {
        "small": (600, 32, 15000, 8),
        "medium": (1000, 64, 20000, 16),
        "paper": (2000, WIDTHS["ks25-fig1"], 1000, 2),
    }[scale]
    return curves("ks25-fig1", scale, ProblemSpec("mnli", N, 8, d), (1, 10, 20, 30, 40, 50), epochs, trials)


@preset("ks25-fig2", "Training on IMDb: more blocks, less loss")
def imdb_curves(scale: str) -> Experiment:
    """Loss and accuracy while training on IMDb, N = 3000, n = 8, #blocks = 1, 10, …, 40."""
    N, d, epochs, trials = {
        "small": (800, 32, 15000, 8),
        "medium": (1500, 64, 20000, 16),
        "paper": (3000, WIDTHS["ks25-fig2"], 1000, 2),
    }[scale]
    return curves("ks25-fig2", scale, ProblemSpec("imdb", N, 8, d), (1, 10, 20, 30, 40), epochs, trials)


@preset("ks25-fig3", "The least number of blocks that memorizes N rows of MultiNLI")
def least_blocks_by_rows(scale: str) -> Experiment:
    """The least #blocks that memorizes MultiNLI, N = 600, 700, …, 1700."""
    counts = {
        "small": tuple(range(100, 401, 50)),
        "medium": tuple(range(100, 601, 50)),
        "paper": tuple(range(600, 1701, 100)),
    }[scale]
    d = {"small": 16, "medium": 32, "paper": WIDTHS["ks25-fig3"]}[scale]
    epochs, trials, repeats = {"small": (15000, 6, 2), "medium": (20000, 10, 3), "paper": (1000, 10, 1)}[scale]
    return Experiment(
        preset="ks25-fig3",
        scale=scale,
        kind="minimum",
        axis="N",
        problems=tuple(ProblemSpec("mnli", N, 8, d, seed) for N in counts for seed in range(repeats)),
        sizes=STAGES if scale == "paper" else LADDER,
        epochs=epochs,
        trials=trials,
        space=LEAST if scale == "paper" else TUNED,
        first=STAGES[-1] if scale == "paper" else 4,  # a network that grows has been all smaller ones
    )


@preset("ks25-length", "The least number of blocks that memorizes sequences of length n")
def least_blocks_by_length(scale: str) -> Experiment:
    """The least #blocks that memorizes N = 500 random sequences of n = 10, 100, 1000 vectors."""
    return _by_length("ks25-length", scale, (10, 30, 100, 300, 1000) if scale == "small" else (10, 100, 1000))


@preset("ks25-length-longest", "The least number of blocks that memorizes sequences of 10,000 tokens")
def least_blocks_at_the_longest(scale: str) -> Experiment:
    """The last length of the same table, apart: at the scale of the paper it needs ten times as long as all others."""
    return _by_length("ks25-length-longest", scale, (3000,) if scale == "small" else (10000,))


def _by_length(name: str, scale: str, lengths: tuple[int, ...]) -> Experiment:
    """At the scale of the paper the stream is as wide as the tokens (m = 6): with m = 2 even sixteen blocks end at half
    the loss of a constant answer. Between the rates 0.06 and 0.14 nearly every run of two blocks memorizes, and none
    of one block; the search begins there and requests one trial at a time, because a long one needs minutes."""
    N, epochs, trials, repeats = {
        "small": (100, 8000, 6, 2),
        "medium": (200, 5000, 10, 2),
        "paper": (500, 1000, 4, 1),
    }[scale]
    return Experiment(
        preset=name,
        scale=scale,
        kind="minimum",
        axis="n",
        problems=tuple(ProblemSpec("random", N, n, 6, seed) for n in lengths for seed in range(repeats)),
        sizes=LADDER,
        epochs=epochs,
        trials=trials,
        space=replace(DEEP, rate=(0.06, 0.14), starts=1) if scale == "paper" else TUNED,
        batch=1 if scale == "paper" else 2,
        first=2 if scale == "paper" else 4,
        m=6 if scale == "paper" else 2,
    )


@preset("ks25-softmax", "Does softmax attention need fewer blocks when every token has a label?")
def least_blocks_by_attention(scale: str) -> Experiment:
    """KS25's open problem, trained: the least #blocks for N sequences of n tokens, nN labels, with uniform, softmax and
    hardmax attention, beside √(nN)."""
    N, lengths, epochs, trials, repeats = {
        "small": (16, (4, 8, 16), 1000, 4, 1),
        "medium": (32, (4, 8, 16, 32), 1000, 6, 1),
        "paper": (100, (5, 10, 20), 1000, 6, 1),
    }[scale]
    cells = [
        (ProblemSpec("contexts", N, n, 4, seed), attention)
        for attention in ATTENTIONS
        for n in lengths
        for seed in range(repeats)
    ]
    return Experiment(
        preset="ks25-softmax",
        scale=scale,
        kind="minimum",
        axis="n",
        problems=tuple(spec for spec, _ in cells),
        variants=tuple(attention for _, attention in cells),
        sizes=(stages := LONG_STAGES if scale == "paper" else STAGES),
        epochs=epochs,
        trials=trials,
        space=ATTENDING,
        first=stages[-1],
        m=4,
    )


@preset("ks25-precision", "The least number of blocks in float64, float32 and with weights of bfloat16")
def least_blocks_by_precision(scale: str) -> Experiment:
    """The sweep of Figure 3 in three precisions: does the jump come from parameters of few bits, as KS25 suspects?"""
    counts, d, epochs, trials = {
        "small": ((100, 200, 300, 400), 16, 4000, 4),
        "medium": (tuple(range(100, 601, 100)), 32, 20000, 10),
        "paper": ((1300, 1400, 1500, 1600, 1700), WIDTHS["ks25-fig3"], 1000, 10),  # where more than one is needed
    }[scale]
    return Experiment(
        preset="ks25-precision",
        scale=scale,
        kind="minimum",
        axis="N",
        problems=tuple(ProblemSpec("mnli", N, 8, d) for _ in PRECISIONS for N in counts),
        variants=tuple(precision for precision in PRECISIONS for _ in counts),
        sizes=STAGES if scale == "paper" else LADDER,
        epochs=epochs,
        trials=trials,
        space=LEAST if scale == "paper" else TUNED,
        first=STAGES[-1] if scale == "paper" else 4,
    )
