"""Problems and experiments that train in a blink."""

import json

import numpy as np

from byheart.lab.problem import SQUARED_ERROR, Documents, ProblemSpec, Sequences
from byheart.lab.study.experiment import Experiment, Space


def words_problem(vectors: bool = True, N: int = 60, seed: int = 0) -> Sequences:
    """Sequences that share words, so that the fast engines have something to share."""
    draw = np.random.default_rng(seed)
    index = draw.integers(0, 25, (N, 5))
    index[0, 0] = 24  # every word occurs
    points = draw.standard_normal((25, 4)) if vectors else None
    return Sequences("words", points, index, draw.integers(0, 3, N), classes=3, read=0)


def signs_problem(N: int = 30, n: int = 4) -> Sequences:
    draw = np.random.default_rng(1)
    labels = draw.choice(np.array([-1, 1]), N)
    index = np.arange(N * n).reshape(N, n)
    return Sequences("signs", draw.random((N * n, 3)), index, labels, classes=2, read=n - 1, loss=SQUARED_ERROR)


def stories() -> Documents:
    tokens = np.array([[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 5, -1], [6, 1, 2, 3]])
    return Documents("stories", tokens, vocabulary=7)


def search(**changes: object) -> Experiment:
    """The least number of blocks for two tiny random problems."""
    plain: dict[str, object] = {
        "preset": "tiny",
        "scale": "small",
        "kind": "minimum",
        "axis": "N",
        "problems": (ProblemSpec("random", 8, 3, 4), ProblemSpec("random", 16, 3, 4)),
        "sizes": (1, 2, 3, 4, 6, 8),
        "epochs": 300,
        "trials": 4,
        "space": Space(rate=(5e-3, 5e-2), warmup=(0.0, 0.2), beta2=0.99, clip=0.1),
        "first": 3,
    }
    return Experiment(**{**plain, **changes})  # type: ignore[arg-type]


def write_rows(folder, N: int = 40):
    """A mnli.jsonl of made-up premises in `folder`."""
    draw = np.random.default_rng(0)
    rows = [
        {"premise": " ".join(f"word{k}" for k in draw.integers(0, 30, 6)), "label": int(draw.integers(0, 3))}
        for _ in range(N)
    ]
    (folder / "mnli.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder
