"""Trials per hour: the laboratory against a plain nn.Linear loop, for the models of KS25's figure 1.

    python benchmarks/lab.py [--trials 16] [--epochs 1000] [--plain-epochs 20]

Sixteen trials of #blocks = 1, 10, …, 50 on N = 2000 sequences of n = 8 words, every trial trained to the last epoch.
The plain loop trains one trial after the other, with as many threads as PyTorch likes, and is measured over the first
`--plain-epochs` epochs of each (its epochs all cost the same); the laboratory trains all epochs of all trials, start of
its processes included. Data is drawn at random with about MultiNLI's number of words when mnli.jsonl is not there. Loss
curves of both are compared.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from byheart.errors import DataError
from byheart.executors import opened
from byheart.lab.config import Training, Uniform
from byheart.lab.engines.training import make_engine
from byheart.lab.problem import ProblemSpec, Sequences, make_problem
from byheart.lab.study.run import default_processes

SIZES = (1, 10, 20, 30, 40, 50)


def problem_of() -> Sequences:
    try:
        return make_problem(ProblemSpec("mnli", 2000, 8, d=32))  # type: ignore[return-value]
    except DataError:
        draw = np.random.default_rng(0)
        index = np.minimum(draw.zipf(1.3, (2000, 8)) - 1, 3800)
        _, index = np.unique(index, return_inverse=True)
        index = index.reshape(2000, 8)
        points = draw.standard_normal((index.max() + 1, 32))
        return Sequences("drawn", points, index, draw.integers(0, 3, 2000), classes=3, read=0)


def train(size: int, seed: int, epochs: int, engine: str, planned: int) -> tuple[float, list[float]]:
    """(seconds, losses) of the first `epochs` of `planned` epochs, without the data's loading."""
    problem = problem_of()
    training = Training(epochs=planned, rate=0.01, warmup=0.1, shape="cosine", seed=seed)
    started = time.perf_counter()
    runner = make_engine(engine, problem, Uniform(size), training)
    if engine == "readable":
        import torch

        torch.set_num_threads(default_processes())  # the baseline may use what it likes
    losses = runner.epochs(epochs)[:, 0]
    return time.perf_counter() - started, losses.tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--plain-epochs", type=int, default=20)
    parser.add_argument("--engines", action="store_true", help="also the other engines, at 40 blocks, one process")
    arguments = parser.parse_args()
    trials = [(SIZES[-1 - k % len(SIZES)], k) for k in range(arguments.trials)]
    processes = default_processes()

    train(1, 0, 2, "kernel", 2)  # compiled and cached, as after the first run
    train(1, 0, 2, "readable", 2)
    plain, curves = 0.0, {}
    for size, seed in trials:
        seconds, curves[seed] = train(size, seed, arguments.plain_epochs, "readable", arguments.epochs)
        plain += seconds * arguments.epochs / arguments.plain_epochs

    started = time.perf_counter()
    with opened("processes", processes) as pool:
        futures = [pool.submit(train, size, seed, arguments.epochs, "auto", arguments.epochs) for size, seed in trials]
        fast_curves = {seed: future.result()[1] for (_, seed), future in zip(trials, futures, strict=True)}
    fast = time.perf_counter() - started

    drift = max(abs(a - b) / b for seed in curves for a, b in zip(fast_curves[seed], curves[seed], strict=False))
    report = {
        "trials": arguments.trials,
        "epochs": arguments.epochs,
        "processes": processes,
        "plain_seconds": round(plain, 1),
        "plain_trials_per_hour": round(3600 * arguments.trials / plain, 1),
        "lab_seconds": round(fast, 1),
        "lab_trials_per_hour": round(3600 * arguments.trials / fast, 1),
        "ratio": round(plain / fast, 1),
        "largest_relative_difference_of_losses": float(f"{drift:.2g}"),
        "compared_epochs": arguments.plain_epochs,
    }
    if arguments.engines:
        for engine in ("readable", "stacked", "kernel"):
            train(40, 0, 2, engine, 2)
            report[f"ms_per_epoch_{engine}"] = round(train(40, 0, 20, engine, 20)[0] / 20 * 1000, 2)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
