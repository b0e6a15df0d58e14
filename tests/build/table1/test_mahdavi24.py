"""Attention without a feed-forward layer: random heads, outputs by a linear system, proof by enclosures."""

from __future__ import annotations

import pytest

from byheart.build.table1.mahdavi24 import head_count
from byheart.compile import memorize
from byheart.errors import AssumptionError
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
