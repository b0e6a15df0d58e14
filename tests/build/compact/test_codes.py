"""Codes of tokens: what the blocks compute, exactly, and that they distinguish rows with few parameters."""

from __future__ import annotations

import random

import numpy as np
import pytest

import byheart
from byheart.build.compact.codes import Draft, token_line
from byheart.build.compact.construction import TRAP_BIT
from byheart.build.compact.tokens import context_ids, hash_tokens
from byheart.build.fold import build_label_memory
from byheart.build.fold.block import run_blocks
from byheart.data.dataset.dataset import load
from byheart.progress import SILENT


def rows_in_any_order(count: int, n: int, vocabulary: int, seed: int) -> list[tuple[int, ...]]:
    """A third random rows, the others permutations and changes of one token."""
    rng = random.Random(f"order {seed}")
    base = [[rng.randrange(vocabulary) for _ in range(n)] for _ in range(count // 3)]
    found = {tuple(row) for row in base}
    while len(found) < count:
        row = list(rng.choice(base))
        if rng.random() < 0.5:
            rng.shuffle(row)
        else:
            row[rng.randrange(n)] = rng.randrange(vocabulary)
        found.add(tuple(row))
    return sorted(found)


@pytest.mark.parametrize(
    "draft",
    [
        Draft("plain", 0, 5),
        Draft("bends", 3, 4),
        Draft("bends", 3, 4, extra=2),
        Draft("bends", 2, 40),
        Draft("folds", 4, 9),
        Draft("folds", 4, 70),
        Draft("table", 0, 9),
    ],
)
def test_blocks_compute_the_codes(draft: Draft) -> None:
    """Words or long numbers, the blocks make the same of every token, in exact arithmetic."""
    line = token_line(load(["abcd", "dcba", "bbda"], [0, 1, 1]), random.Random(0))
    for seed in range(5):
        codes = draft.draw(line, random.Random(seed))
        assert [run_blocks(codes.blocks, codes.scale * t) for t in line.values.tolist()] == codes.values.tolist()
        assert min(codes.values.tolist()) >= 0
        assert sum(block.parameters for block in codes.blocks) <= draft.parameters(line)


@pytest.mark.parametrize(
    ("rows", "vocabulary", "n", "most"),
    [
        (1000, 10, 4, 205),
        (1000, 50_000, 2, 205),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(1000, 4, 6, 205), (1000, 30, 4, 205), (1000, 30, 32, 205), (10_000, 20, 4, 570)]
        ),
    ],
)
def test_few_symbols_in_any_order(rows: int, vocabulary: int, n: int, most: int) -> None:
    """Folds of equal slopes took up to 20 of themselves, 246 parameters, to distinguish rows of 10 symbols."""
    made = rows_in_any_order(rows, n, vocabulary, seed=41)
    rng = random.Random(41)
    memory = byheart.memorize(made, [rng.randrange(2) for _ in made], positions=True, progress=False)
    assert memory.certificate.verdict == "proved"
    assert memory.size.parameters <= most


def test_factors_that_cannot_help_are_not_drawn() -> None:
    """Without blocks a permuted row has the same sum, whatever it is multiplied by; a hundred draws showed it again."""
    dataset = load(rows_in_any_order(300, 4, 5000, seed=1), [0, 1] * 150, positions=True)
    found, ids = hash_tokens(dataset, shallow=False, thorough=False, bit_price=TRAP_BIT, seed=0, progress=SILENT)
    assert found.blocks and len(found.blocks) <= 3
    assert found.draws <= 24 * len(found.blocks)
    assert len(set(ids)) == len(ids) == 300


def test_long_ids_with_equal_last_words_differ() -> None:
    """They were taken for equal: powers of two from 2^64 on were hashed by folds, at three times the parameters."""
    dataset = load([[[1 << i]] for i in range(100)], [0, 1] * 50)
    codes = np.array([1 << i for i in range(100)], dtype=object)
    points = dataset.contexts.point.tolist()
    assert context_ids(dataset, codes, 2, None) == [3 << p for p in points]
    codes[70] = codes[80]
    assert context_ids(dataset, codes, 2, None) is None


LONE = {
    "powers of two": lambda i: 1 << i,
    "negative": lambda i: -(1 << i),
    "mirrored": lambda i: (1 << 100) - (1 << i),
    "floats": lambda i: 2.0**-i,
}


@pytest.mark.parametrize("name", LONE)
def test_lone_numbers_cost_what_their_label_memory_costs(name: str) -> None:
    """E_in has three numbers (the position, always the same, has one) and attention two."""
    labels = [random.Random(7).getrandbits(100) >> i & 1 for i in range(100)]
    alone = min(
        build_label_memory([1 << i for i in order], labels, 2).parameters for order in (range(100), range(99, -1, -1))
    )
    memory = byheart.memorize([[[LONE[name](i)]] for i in range(100)], labels, progress=False)
    assert memory.certificate.verdict == "proved"
    assert memory.size.parameters <= alone + 5 + 3
