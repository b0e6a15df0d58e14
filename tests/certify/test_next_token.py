"""What decides a gap and a label, piece by piece: enclosures compared, shares, most frequent tokens."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.certify.balls.arb import ArbBalls
from byheart.certify.balls.floats import FloatBalls
from byheart.certify.next_token import _beyond, _most_frequent, _pairs, _Row
from byheart.data.dataset.targets import Distributions

flint = pytest.importorskip("flint")


def test_arb_compares_with_every_other_logit() -> None:
    """One chosen logit is above all others, ends included; equal ones are not above each other."""
    rows = [["2", "1", "0"], ["2", "3", "0"], ["2", "2", "0"], ["2 +/- 0.5", "1 +/- 0.6", "0"]]
    found = ArbBalls(np.array([[flint.arb(x) for x in row] for row in rows], dtype=object))
    chosen = np.array([[True, False, False]] * 4)
    assert found.above(chosen).tolist() == [True, False, False, False]
    assert found.compared(chosen).tolist() == [1, -1, 0, 0]


def test_floats_become_the_same_balls_in_arb() -> None:
    known, wide, unknown = FloatBalls(np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.5, np.inf])).as_arb()
    assert known == 1 and wide.overlaps(flint.arb("1.4")) and not wide.overlaps(flint.arb("1.6"))
    assert not unknown.is_finite()


def contexts() -> Distributions:
    """Two contexts: the first continues as 0 (twice) or 1, the second as 1."""
    tokens = np.array([[0], [1]])
    return Distributions(2, tokens, np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([2.0, 1.0, 1.0]))


def test_only_the_most_frequent_tokens_may_win() -> None:
    found = contexts()
    assert [_most_frequent(found, pairs).tolist() for pairs in _pairs(found)] == [[0], [1]]


def test_contexts_beyond_their_share_are_those_above_it_for_certain() -> None:
    """Weights 3 and 1: shares of 0.3 and 0.1."""
    for gaps, beyond in (((0.29, 0.09), [False, False]), ((0.31, 0.11), [True, True])):
        rows = [_Row(flint.arb(gap), 0) for gap in gaps]
        assert _beyond(rows, contexts(), 0.1).tolist() == beyond
    assert _beyond([_Row(flint.arb("nan"), 0)] * 2, contexts(), 0.1).tolist() == [False, False]
