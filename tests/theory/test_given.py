"""What given labels demand: changes along a line."""

from __future__ import annotations

import random
from itertools import pairwise

from byheart.data.dataset.dataset import load
from byheart.theory.given import given_label_bound, label_changes


def naive_changes(rows: list[list[int]], labels: list[int]) -> int:
    """Every pair of rows that differ in one place only, grouped by the other places."""
    best = 0
    for place in range(len(rows[0])):
        lines: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for row, label in zip(rows, labels, strict=True):
            lines.setdefault(tuple(row[:place] + row[place + 1 :]), []).append((row[place], label))
        for line in lines.values():
            ordered = [label for _, label in sorted(line)]
            best = max(best, sum(a != b for a, b in pairwise(ordered)))
    return best


def test_against_the_naive_count():
    rng = random.Random(0)
    for _ in range(30):
        rows = [list(t) for t in {(rng.randrange(9), rng.randrange(3), rng.randrange(2)) for _ in range(30)}]
        labels = [rng.randrange(3) for _ in rows]
        vectors = [[tuple(float(x) for x in row)] for row in rows]
        assert label_changes(load(vectors, labels, positions=False)) == naive_changes(rows, labels)


def test_alternating_labels_need_many_units_and_a_threshold_needs_none():
    points = [[float(k)] for k in range(1000)]
    alternating = given_label_bound(load(points, [k % 2 for k in range(1000)], positions=False))
    assert alternating is not None and alternating.value == 2 * 9  # 500 pieces of two classes each
    assert given_label_bound(load(points, [int(k > 500) for k in range(1000)], positions=False)) is None


def test_rows_of_different_lengths_are_not_on_one_line():
    assert label_changes(load([[1.0], [1.0, 2.0], [1.0, 3.0]], [0, 1, 0], positions=False)) == 1
