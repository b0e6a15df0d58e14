"""Kim's rounds: 2n attention layers that list a row's tokens from the largest down."""

from __future__ import annotations

import pytest

from byheart.compiler import memorize
from byheart.gadgets.ranked_tokens import ranked_row
from tests.table1.grid import THIN, letters, proved


@pytest.mark.parametrize("task", ["next-token", "seq-to-seq"])
@pytest.mark.parametrize(("N", "n", "d", "C"), THIN)
def test_rows_are_memorized(task, N, n, d, C):
    memory = proved("kim23", N, n, d, C, task)
    assert memory.size.attention_layers == 2 * n == memory.claim.bounds["attention_layers"]


def test_tokens_that_repeat_are_counted():
    rows = [["a", "a", "b"], ["a", "b", "b"], ["b", "b", "b"], ["a", "a", "a"]]
    labels = [[0, 0, 1], [2, 3, 3], [4, 4, 4], [5, 5, 5]]
    memory = memorize(rows, labels, task="seq-to-seq", construction="kim23", positions=False, progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels


def test_ranking_lists_values_and_counts():
    assert ranked_row([4, 4, 4], 3) == [4, 3, 0, 0, 0, 0]


def test_letters_with_positions():
    rows, labels = letters(40)
    memory = memorize(rows, labels, construction="kim23", progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels
