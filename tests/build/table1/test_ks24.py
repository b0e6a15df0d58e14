"""One rank-one softmax head: the contexts' numbers are irrational, and the proof is by enclosures."""

from __future__ import annotations

import re
from dataclasses import replace
from math import exp, log, log2, pi

import pytest

from byheart.build.table1.ks24 import nearest_class
from byheart.certify import certify
from byheart.errors import AssumptionError
from byheart.ir.layers import Attention, Kind
from byheart.memory import memorize
from byheart.theory.table1 import boltzmann_separation
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
    rows = ["ab", "cb", "db", "eb", "fb", "gb"]  # one last token: only the head can distinguish the rows
    memory = memorize(rows, [0, 1, 0, 1, 0, 1], construction="ks24", positions=False, progress=False)
    assert memory.certificate.verdict == "proved"
    place = next(k for k, layer in enumerate(memory.network.layers) if isinstance(layer, Attention))
    head = memory.network.layers[place].heads[0]
    swapped = Attention(Kind.SOFTMAX, memory.network.layers[place].pattern, (replace(head, query=head.key),))
    layers = (*memory.network.layers[:place], swapped, *memory.network.layers[place + 1 :])
    certificate = certify(replace(memory.network, layers=layers), memory.dataset, memory.claim)
    assert certificate.verdict == "refuted" and certificate.witness is not None


def test_the_separation_is_told_beside_the_theorems():
    """After the head contexts are further apart than Theorem 2 guarantees: it is a bound for the worst tokens."""
    memory = proved("ks24", 6, 3, 2, 2)
    note = next(note for note in memory.notes if "apart after the head" in note)
    (guaranteed,) = re.findall(r"2\^(-[0-9.e+]+)", note)
    assert "at least 1 apart" in note and "2^-0" not in note  # 2^0 is called 1
    assert float(guaranteed) < 0


def test_theorem_2_as_quoted():
    """n = 2, d = 1, one word more than none: every factor by hand."""
    size = 2**4 * (2 * log(2) + 3) * pi
    delta = 2 * log(2) ** 2 / size * exp(-size / 4)
    assert boltzmann_separation(n=2, d=1, words=1, r_min=1, r_max=1, epsilon=1) == pytest.approx(log2(delta))


@pytest.mark.parametrize("classes", [1, 2, 7])
def test_the_largest_logit_names_the_nearest_class(classes):
    layer = nearest_class(classes)
    for number in (-3, 0, 0.4, 0.6, 1, 5.9, 40):
        logits = [
            row.get(0, 0) * number + bias for row, bias in zip(map(dict, layer.weight.rows), layer.bias, strict=True)
        ]
        assert logits.index(max(logits)) == min(range(classes), key=lambda c: (abs(c - number), c))
