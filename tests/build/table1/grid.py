"""Random data for the rows of Table 1, and the grid on which all of them must be proved."""

from __future__ import annotations

import itertools
import random
from typing import Any

from byheart.memory.compare.comparison import random_dataset
from byheart.memory.memorize import memorize_dataset
from byheart.memory.memory import Memory

THIN = [(1, 2, 2, 2), (10, 4, 2, 5), (60, 2, 8, 2)]  # N, n, d, C
FULL = list(itertools.product((1, 10, 100, 400), (2, 4, 8), (2, 8), (2, 5)))


def proved(name: str, N: int, n: int, d: int, C: int, task: str = "next-token", **options: Any) -> Memory:
    memory = memorize_dataset(random_dataset(N, n, d, C, task), construction=name, progress=False, **options)
    assert memory.certificate.verdict == "proved", memory.certificate.reason
    return memory


def letters(N: int, seed: int = 0, lengths: tuple[int, int] = (2, 4)) -> tuple[list[str], list[str]]:
    """Strings of letters with labels, as in a table of airports: codes with countries."""
    rng = random.Random(seed)
    names: dict[str, str] = {}
    while len(names) < N:
        names["".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.randint(*lengths)))] = rng.choice(
            ["de", "fr", "jp", "us"]
        )
    return list(names), list(names.values())
