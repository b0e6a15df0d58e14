"""One implementation of conflict policies, against the plain definition of each, for tables and for rows of tokens."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.data.dataset.conflicts import Conflicts

ROWS = st.lists(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 2)), min_size=2, max_size=2), min_size=1, max_size=9
)


def plainly(rows: list[list[tuple[int, int]]], policy: str) -> list[bool]:
    """The definitions, label by label."""
    pairs = [[(g, label) for g, label in row if g >= 0] for row in rows]
    torn = {g for row in pairs for g, a in row if any((g, b) in other for other in pairs for b in range(3) if b != a)}
    if policy == "drop":
        return [not any(g in torn for g, _ in row) for row in pairs]
    if policy == "majority":
        counts: dict[int, Counter[int]] = {}
        for row in pairs:
            for g, label in row:
                counts.setdefault(g, Counter())[label] += 1
        winner = {g: max(votes, key=lambda label: votes[label]) for g, votes in counts.items()}
        return [all(label == winner[g] for g, label in row) for row in pairs]
    kept: list[bool] = []
    settled: dict[int, int] = {}
    for row in pairs:
        own: dict[int, int] = {}
        kept.append(all(own.setdefault(g, settled.get(g, label)) == label for g, label in row))
        if kept[-1]:
            settled |= own
    return kept


@pytest.mark.parametrize("policy", ["first", "majority", "drop"])
@given(rows=ROWS)
def test_policies_are_their_definitions(policy, rows):
    found = np.array(rows, dtype=np.int64)
    conflicts = Conflicts.of(found[:, :, 0], found[:, :, 1])
    assert conflicts.keep(policy).tolist() == plainly(rows, policy)


def test_the_label_of_a_group_is_its_first_one():
    conflicts = Conflicts.of(np.array([[2, 0], [0, -1]]), np.array([[5, 6], [7, 9]]))
    assert conflicts.first.tolist() == [6, -1, 5] and conflicts.torn.tolist() == [True, False, False]
    assert conflicts.places.tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize("policy", ["error", "first", "majority", "drop"])
def test_without_conflicts_every_row_is_kept(policy):
    conflicts = Conflicts.of(np.array([[0], [1], [0], [-1]]), np.array([[5], [6], [5], [0]]))
    assert conflicts.keep(policy).all()
