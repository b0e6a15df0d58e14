"""Conflict policies: what is kept, what is skipped, and that it is reported."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

import byheart
from byheart.data.dataset.settle import settle
from byheart.errors import ConflictError, DataError, OptionError

ROWS = ["ab", "ab", "ba", "ab", "cd", "cd"]
LABELS = [0, 1, 5, 1, 3, 3]


@pytest.mark.parametrize(
    ("policy", "kept"), [("first", [0, 2, 4, 5]), ("majority", [1, 2, 3, 4, 5]), ("drop", [2, 4, 5])]
)
def test_policies(policy, kept):
    settled = settle(ROWS, LABELS, policy=policy)
    assert settled.dataset.label_values() == [LABELS[i] for i in kept]
    assert sorted({*range(6)} - {*settled.left_out}) == kept
    assert settled.as_dict() == {"policy": policy, "contexts": 1, "rows_left_out": 6 - len(kept)}
    assert "1 context had several labels" in settled.note


def test_without_conflicts_nothing_happens():
    settled = settle(ROWS[1:3], LABELS[1:3], policy="drop")
    assert settled.left_out == () and settled.note == "" and settled.dataset.N == 2


def test_errors():
    with pytest.raises(ConflictError):
        settle(ROWS, LABELS)
    with pytest.raises(OptionError, match="error, first, majority, drop"):
        settle(ROWS, LABELS, policy="last")
    with pytest.raises(DataError, match="leaves no row"):
        settle(["ab", "ab"], [0, 1], policy="drop")


def test_the_error_offers_positions():
    with pytest.raises(ConflictError, match="turn positions on"):
        settle(["abc", "bac"], [0, 1], positions=False)
    assert settle(["abc", "bac"], [0, 1], positions=True).dataset.N == 2


def test_rows_with_a_label_per_token():
    rows, labels = ["ab", "ac", "ab"], ["xy", "zy", "xy"]
    settled = settle(rows, [list(y) for y in labels], task="causal", policy="first")
    assert settled.left_out == (1,)
    settled = settle(rows[1:], [list(y) for y in labels[1:]], task="causal", policy="first")
    assert settled.left_out == (1,), "the second row contradicts the first at its first token"
    settled = settle(["aa"], [[0, 0]], task="seq-to-seq", positions=False)
    with pytest.raises(DataError, match="leaves no row"):
        settle(["aa"], [[0, 1]], task="seq-to-seq", positions=False, policy="first")


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "ab", "ba"]), st.integers(0, 2)), min_size=1, max_size=12))
def test_against_a_plain_count(pairs):
    votes = defaultdict(list)
    for row, label in pairs:
        votes[row].append(label)
    rows, labels = zip(*pairs, strict=True)
    first = settle(rows, labels, policy="first").dataset
    assert dict(zip(map("".join, first.sequences()), first.label_values(), strict=True)) == {
        row: found[0] for row, found in votes.items()
    }
    most = settle(rows, labels, policy="majority").dataset
    for row, label in zip(map("".join, most.sequences()), most.label_values(), strict=True):
        assert Counter(votes[row])[label] == max(Counter(votes[row]).values())


def test_a_memory_remembers_its_policy(tmp_path):
    memory = byheart.memorize(ROWS, LABELS, conflicts="majority", construction="ks25", progress=False)
    assert memory.predict(["ab", "cd"]) == [1, 3]
    assert "skipped" in memory.notes[-1]
    memory.save(tmp_path / "m")
    assert byheart.load(tmp_path / "m").selection.conflicts == "majority"
