"""Random rows for the grids of N, n, d and C, with repeated and permuted rows among them."""

from __future__ import annotations

import random
from typing import Any

from byheart.memory import Memory, memorize

Token = Any


def tokens(rng: random.Random, count: int, d: int) -> list[Token]:
    """Different vectors of quarters for d > 0, symbols for d = 0."""
    if d == 0:
        return list(range(count))
    found: dict[tuple[float, ...], None] = {}
    while len(found) < count:
        found[tuple(rng.randint(-9000, 9000) / 4 for _ in range(d))] = None
    return list(found)


def rows(seed: int, N: int, n: int, d: int, ragged: bool = False) -> list[list[Token]]:
    """Half of the rows are new; the others repeat or permute one of them or change a token."""
    rng = random.Random(f"{seed} {N} {n} {d}")
    pool = tokens(rng, max(2, n * N // 2), d)
    found: list[list[Token]] = []
    while len(found) < N:
        if found and rng.random() < 0.5:
            row = list(rng.choice(found))
            rng.shuffle(row)
            if rng.random() < 0.5:
                row[rng.randrange(len(row))] = rng.choice(pool)
        else:
            row = [rng.choice(pool) for _ in range(rng.randint(1, n) if ragged else n)]
        found.append(row)
    return found


def labels(found: list[list[Token]], C: int, task: str, positions: bool = False) -> list[Any]:
    """One label for each context, all C of them used if there are enough contexts."""
    rng = random.Random(f"{len(found)} {C}")
    table: dict[Any, int] = {}

    def label(row: list[Token], k: int) -> int:
        bag = tuple(row) if positions else tuple(sorted(row))
        key = bag if task == "set" else (bag, k if positions else row[k])
        return table.setdefault(key, len(table) if len(table) < C else rng.randrange(C))

    if task == "seq-to-seq":
        return [[label(row, k) for k in range(len(row))] for row in found]
    return [label(row, len(row) - 1) for row in found]


def memory(
    construction: str, N: int, n: int, d: int, C: int, *, task: str = "next-token", seed: int = 0, **options: Any
) -> Memory:
    """Built and certified; the caller looks at the verdict."""
    found = rows(seed, N, n, d, ragged=task == "set")
    return memorize(
        found,
        labels(found, C, task),
        task=task,
        construction=construction,
        positions=False,
        seed=seed,
        progress=False,
        **options,
    )


def check(found: Memory) -> None:
    """Proved, and the guarantee names width, depth, parameters and bits."""
    assert found.certificate.verdict == "proved", found.certificate.reason
    assert set(found.claim.bounds) == {"width", "depth", "parameters", "max_bits"}
    assert not found.claim.broken_by(found.size)
