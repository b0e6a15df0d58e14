"""Attention without a feed-forward layer: random heads, outputs by a linear system, proof by enclosures."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from byheart.build.table1.mahdavi24 import PRIME, assumption_notes, head_count, independent
from byheart.errors import AssumptionError
from byheart.exact.number import Values
from byheart.memory import memorize
from tests.build.table1.grid import THIN, letters, proved


@pytest.mark.parametrize(("N", "n", "d", "C"), THIN)
def test_rows_are_memorized(N, n, d, C):
    memory = proved("mahdavi24", N, n, d, C)
    assert memory.network.feed_forward == (memory.network.layers[0], memory.network.layers[-1])  # E_in and E_out
    assert len(memory.network.attention_layers[0].heads) == head_count(N, n, d)


def test_as_many_heads_as_the_theorem_says():
    assert head_count(1 + 5 * 7, 8, 8) == 5 and head_count(2 + 5 * 7, 8, 8) == 6


def test_rows_of_one_token_need_independent_tokens():
    rows = [[(float(k), 1.0)] for k in range(6)]
    with pytest.raises(AssumptionError, match="linearly dependent") as caught:
        memorize(rows, [0, 1, 0, 1, 0, 1], construction="mahdavi24", positions=False, progress=False)
    assert caught.value.rows


def test_letters_with_positions():
    rows, labels = letters(30)
    memory = memorize(rows, labels, construction="mahdavi24", progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels
    assert any("embedding of dimension" in note for note in memory.notes)


def test_independence_is_decided_exactly():
    rng = np.random.default_rng(0)
    for _ in range(60):
        rows = rng.integers(-3, 4, (3, 4))
        if rng.integers(2):
            rows[2] = rows[0] - 2 * rows[1]
        exact = any(round(float(np.linalg.det(rows[:, list(c)]))) for c in combinations(range(4), 3))
        assert independent(rows.tolist()) == exact
    assert independent([[PRIME, 1], [0, PRIME]])  # zero modulo the prime, not over the rationals


def test_the_theorems_assumptions_are_checked_on_the_data():
    """General vectors keep both; a repeated query breaks the first, a dependent row the second."""
    rng = np.random.default_rng(1)
    points = Values.of(rng.integers(-50, 50, (40, 5)).tolist())
    index = np.arange(40).reshape(10, 4)
    (holds,) = assumption_notes(points, index)
    assert "hold on this data" in holds
    alike = index.copy()
    alike[7, -1] = alike[2, -1]
    assert any("rows 2 and 7 end alike" in note for note in assumption_notes(points, alike))
    twice = index.copy()
    twice[3, 0] = twice[3, 1]
    assert any("Assumption 2; row 3" in note for note in assumption_notes(points, twice))
    flat = Values.of(
        [[*row[:4].tolist(), 0] if k % 4 == 3 else row.tolist() for k, row in enumerate(points.numerators)]
    )
    three = Values.of(
        [[*row[:3].tolist(), 0, 0] if k % 4 == 3 else row.tolist() for k, row in enumerate(points.numerators)]
    )
    assert "hold" in assumption_notes(flat, index)[0]  # four dimensions are enough for n = 4 queries
    assert any("every 4 queries" in note for note in assumption_notes(three, index))
    (long,) = assumption_notes(points, np.arange(36).reshape(6, 6))
    assert "always dependent" in long


def test_of_many_sets_of_queries_all_pairs_and_a_sample_are_checked():
    rng = np.random.default_rng(1)
    points = Values.of(rng.integers(-50, 50, (240, 6)).tolist())
    (note,) = assumption_notes(points, np.arange(240).reshape(60, 4))
    assert "no two of 60 queries are proportional (all pairs), and 1,000 sampled of about 10^6 sets" in note


@pytest.mark.parametrize("factor", [1, -1, 7, -30])
def test_one_proportional_pair_among_many_rows_is_found(factor):
    """A sample of 1,000 of the 10^8 sets of 4 queries out of 300 meets one pair once in eight times."""
    rng = np.random.default_rng(3)
    vectors = rng.integers(-(10**6), 10**6, (1200, 5))
    index = np.arange(1200).reshape(300, 4)
    vectors[index[211, -1]] = factor * vectors[index[17, -1]]
    vectors = vectors.astype(object)
    (note,) = assumption_notes(Values.of((3 * vectors).tolist(), 7), index)
    assert note.startswith("not true of this data, and not assumed: every 4 queries are independent")
    assert "Assumption 1; rows 17, 211" in note


def test_pairs_decide_where_rows_have_two_tokens():
    rng = np.random.default_rng(4)
    points = Values.of(rng.integers(-(10**6), 10**6, (400, 3)).tolist())
    (note,) = assumption_notes(points, np.arange(400).reshape(200, 2))  # 19,900 pairs, all of them looked at
    assert "hold on this data" in note


def test_what_holds_is_told():
    printed = " ".join(proved("mahdavi24", 12, 4, 6, 2).notes)
    assert "MA24's assumptions" in printed
    rows, labels = letters(30)
    memory = memorize(rows, labels, construction="mahdavi24", progress=False)
    assert "not true of this data, and not assumed" in " ".join(memory.notes)  # letters end alike


@pytest.mark.parametrize("constant", [0, 1, -40])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_constant_coordinate_does_no_harm(constant, seed):
    """A spread of zero once made its weights so large that rounding left nothing of the others."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.integers(-9, 9, size=(12, 3, 4)), np.full((12, 3, 1), constant)], axis=2)
    labels = rng.integers(0, 3, 12).tolist()
    memory = memorize(rows.tolist(), labels, construction="mahdavi24", positions=False, seed=seed, progress=False)
    assert memory.certificate.verdict.value == "proved"


def test_coordinates_of_very_different_sizes():
    rng = np.random.default_rng(0)
    rows = rng.integers(-99, 99, size=(30, 2, 3)).astype(float)
    rows[:, :, 0] *= 1e-200
    memory = memorize(rows.tolist(), rng.integers(0, 2, 30).tolist(), construction="mahdavi24", progress=False)
    assert memory.certificate.verdict.value == "proved"


def test_rows_of_one_token_are_guaranteed_nothing():
    rows, labels = [[[1, 2]], [[2, 4]], [[5, 7]], [[-1, 3]], [[2, 2]]], [0, 1, 0, 1, 1]
    with pytest.raises(AssumptionError, match="guarantees nothing for rows of one") as caught:
        memorize(rows, labels, construction="mahdavi24", positions=False, progress=False)
    assert "hold on this data" not in str(caught.value)
