"""Kim's rounds: 2n attention layers that list a row's tokens from the largest down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from byheart.build.table1.kim23 import ranked_row
from byheart.certify import certify
from byheart.exact import dyadic
from byheart.ir.layers import Attention, Matrix
from byheart.memory import memorize
from tests.build.table1.grid import THIN, letters, proved


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


@pytest.mark.parametrize("task", ["next-token", "seq-to-seq"])
def test_softmax_is_sharp_enough_and_proved_by_enclosures(task):
    memory = proved("kim23", 12, 3, 2, 3, task, attention="softmax")
    assert "enclosures" in memory.certificate.arithmetic
    assert memory.predict(memory.dataset.sequences()) == memory.dataset.label_values()


def test_what_softmax_leaves_on_the_stream_is_not_doubled_into_the_label():
    """Pinned: with as many folds as 60 rows of 8 letters take, 2 to 10 of them came out wrong."""
    rows, labels = letters(60, lengths=(8, 8))
    memory = memorize(rows, labels, construction="kim23", attention="softmax", progress=False)
    assert memory.certificate.verdict == "proved"


def test_blunt_softmax_is_not_proved():
    memory = proved("kim23", 12, 3, 2, 3, "seq-to-seq", attention="softmax")
    layers = [_blunt(layer) if isinstance(layer, Attention) else layer for layer in memory.network.layers]
    certificate = certify(replace(memory.network, layers=tuple(layers)), memory.dataset, memory.claim)
    assert certificate.verdict == "refuted"


def _blunt(layer: Attention) -> Attention:
    """The same head with scores so small that it averages."""
    (head,) = layer.heads
    if head.query is None:
        return layer
    small = Matrix(tuple(tuple((j, dyadic(1, -40)) for j, _ in row) for row in head.query.rows), head.query.columns)
    return replace(layer, heads=(replace(head, query=small),))


def test_ranking_lists_values_and_counts():
    assert ranked_row([4, 4, 4], 3) == [4, 3, 0, 0, 0, 0]


def test_letters_with_positions():
    rows, labels = letters(40)
    memory = memorize(rows, labels, construction="kim23", progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels


def test_the_certificate_counts_attention_layers_of_a_kind():
    memory = proved("kim23", 5, 3, 2, 2)
    assert "(3 layers)" in memory.certificate.arithmetic and memory.certificate.arithmetic.count("uniform") == 1
