"""One table of small data sets that feeds every construction's tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any

from byheart.data.task import Task


@dataclass(frozen=True)
class Case:
    """Rows with labels that are consistent for `task`, with positions on or off."""

    name: str
    task: Task
    positions: bool
    sequences: list[Any]
    labels: list[Any]

    def __str__(self) -> str:
        return f"{self.task}-{self.name}-{'positions' if self.positions else 'bags'}"


def labelled(name: str, task: Task, positions: bool, rows: list[Any], label: Callable[[random.Random], Any]) -> Case:
    """Gives every context of `rows` its own label, drawn once."""
    rng = random.Random(f"{name}{task}{positions}")
    table: dict[Any, Any] = {}

    def of(row: Any, k: int, stop: int) -> Any:
        seen = tuple(row[:stop])
        bag = seen if positions else tuple(sorted(seen))
        if task is Task.CAUSAL and not positions:  # attention without positions sees proportions, not counts
            shared = gcd(*(bag.count(token) for token in bag))
            bag = tuple(token for k, token in enumerate(bag) if k % shared == 0)
        key = (bag,) if task is Task.SET else (row[k], bag, k if positions and task is Task.SEQ_TO_SEQ else 0)
        if key not in table:
            table[key] = label(rng)
        return table[key]

    labels: list[Any] = []
    for row in rows:
        n = len(row)
        if task is Task.CAUSAL:
            labels.append([of(row, k, k + 1) for k in range(n)])
        elif task is Task.SEQ_TO_SEQ:
            labels.append([of(row, k, n) for k in range(n)])
        else:
            labels.append(of(row, n - 1, n))
    return Case(name, task, positions, rows, labels)


def random_rows(rng: random.Random, N: int, n: int, vocabulary: int) -> list[list[int]]:
    """A third random rows, a third permutations and a third one-token edits of others, with repeats."""
    rows = [[rng.randrange(vocabulary) for _ in range(n)] for _ in range(max(1, N // 3))]
    while len(rows) < N:
        row = list(rng.choice(rows))
        if rng.random() < 0.5:
            rng.shuffle(row)
        else:
            row[rng.randrange(n)] = rng.randrange(vocabulary)
        rows.append(row)
    return rows


def cases(task: Task) -> Iterator[Case]:
    rng = random.Random(f"cases of {task}")
    binary, many = (lambda r: r.randrange(2)), (lambda r: r.choice(["red", "green", "blue", "grey", "pink"]))
    for positions in (False, True) if task is not Task.SET else (False,):
        yield labelled("one row", task, positions, [[3, 1, 2]], binary)
        yield labelled("one token", task, positions, [[k] for k in range(7)], many)
        yield labelled("one class", task, positions, random_rows(rng, 6, 3, 4), lambda r: "same")
        yield labelled("symbols", task, positions, random_rows(rng, 40, 5, 9), many)
        vectors = [tuple(rng.randint(-8, 8) / 4 for _ in range(3)) for _ in range(6)]
        rows = [[rng.choice(vectors) for _ in range(3)] for _ in range(15)]
        yield labelled("vectors", task, positions, rows, binary)
    if task is not Task.SET:
        words = ["a", "ab", "abc", "b", "ca", "cab", "bac"]
        yield labelled("ragged words", task, True, words, binary)
    else:
        yield labelled("ragged sets", task, False, [[1], [1, 1], [2, 1], [2, 2, 2, 1], [3]], many)
