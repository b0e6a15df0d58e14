"""One rank-one softmax head: the contexts' numbers are irrational, and the proof is by enclosures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from byheart.certify import certify
from byheart.compile import memorize
from byheart.errors import AssumptionError
from byheart.ir.layers import Attention, Kind
from tests.build.table1.grid import THIN, letters, proved


@pytest.mark.parametrize("task", ["next-token", "seq-to-seq"])
@pytest.mark.parametrize(("N", "n", "d", "C"), THIN[:2])
def test_rows_are_memorized(task, N, n, d, C):
    memory = proved("ks24", N, n, d, C, task)
    (attention,) = memory.network.attention_layers
    assert attention.kind is Kind.SOFTMAX and attention.head_width == 1
    assert "enclosures" in memory.certificate.arithmetic
    assert memory.size.width <= max(d, len(memory.dataset.contexts) - 1)


def test_rows_with_equal_sums_are_told_apart():
    """The mean alone would not do it: all rows have the same sum of tokens."""
    rows = [[(1.0,), (6.0,)], [(2.0,), (5.0,)], [(3.0,), (4.0,)]]
    labels = [[0, 1], [1, 0], [1, 1]]
    memory = memorize(rows, labels, task="seq-to-seq", construction="ks24", positions=False, progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels


def test_a_zero_token_breaks_the_assumption():
    with pytest.raises(AssumptionError) as caught:
        memorize([[(1.0,)], [(0.0,)]], [0, 1], construction="ks24", positions=False, progress=False)
    assert caught.value.assumption == "no token is the zero vector" and caught.value.rows == (1,)


def test_symbols_need_no_such_care():
    rows, labels = letters(30)
    memory = memorize(rows, labels, construction="ks24", progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels


def test_a_head_of_the_wrong_temperature_is_refuted():
    rows = ["ab", "cb", "db", "eb", "fb", "gb"]  # one last token: only the head can tell the rows apart
    memory = memorize(rows, [0, 1, 0, 1, 0, 1], construction="ks24", positions=False, progress=False)
    assert memory.certificate.verdict == "proved"
    place = next(k for k, layer in enumerate(memory.network.layers) if isinstance(layer, Attention))
    head = memory.network.layers[place].heads[0]
    swapped = Attention(Kind.SOFTMAX, memory.network.layers[place].pattern, (replace(head, query=head.key),))
    layers = (*memory.network.layers[:place], swapped, *memory.network.layers[place + 1 :])
    certificate = certify(replace(memory.network, layers=layers), memory.dataset, memory.claim)
    assert certificate.verdict == "refuted" and certificate.witness is not None
