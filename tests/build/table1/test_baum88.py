"""Baum's threshold network: bands between hyperplanes, and what happens when rows are not in general position."""

from __future__ import annotations

import pytest

from byheart.build.table1.baum88 import SpannedPoints, bands
from byheart.exact.number import Values
from byheart.ir.layers import Embedding, Threshold
from byheart.memory import memorize
from tests.build.table1.grid import THIN, proved


@pytest.mark.parametrize(("N", "n", "d", "C"), THIN)
def test_rows_are_memorized(N, n, d, C):
    proved("baum88", N, n, d, C)


def test_two_units_for_every_nd_rows_of_the_smaller_class():
    memory = proved("baum88", 100, 2, 5, 2)
    (hidden,) = [layer for layer in memory.network.layers if isinstance(layer, Threshold)]
    smaller = min(memory.dataset.labels.tolist().count(c) for c in (0, 1))
    assert hidden.width_out == 2 * -(-smaller // 10)
    assert memory.size.parameters == hidden.width_out * (10 + 2) + 1


def test_bands_hold_what_is_wanted_and_nothing_else():
    points = Values.of([[i * i * 7 % 23, i * i * i % 29, 5 * i % 11] for i in range(20)])
    found, met = bands(SpannedPoints.of(points), [1, 4, 6, 9, 13])
    assert met == ()
    assert sorted(k for band in found for k in band.members) == [1, 4, 6, 9, 13] and len(found) == 2
    for band in found:
        inside = [
            k
            for k in range(20)
            if band.low <= sum(w * int(x) for w, x in zip(band.weight, points.numerators[k], strict=True)) < band.high
        ]
        assert tuple(inside) == band.members


def test_rows_that_are_not_in_general_position_are_named_and_cost_more_units():
    rows = [[(float(k), 2.0 * k)] for k in range(9)]  # one dimension: a hyperplane is a point
    memory = memorize(rows, [k % 2 for k in range(9)], construction="baum88", progress=False)
    assert memory.certificate.verdict == "proved" and memory.size.width == 8  # the span counts, not n·d
    square = [[(float(a), float(b))] for a in range(3) for b in range(3)]
    labels = [1 if (a, b) in ((0, 0), (2, 2)) else 0 for a in range(3) for b in range(3)]
    memory = memorize(square, labels, construction="baum88", progress=False)  # (1, 1) is between (0, 0) and (2, 2)
    assert memory.certificate.verdict == "proved" and memory.size.width == 4 and memory.predict(square) == labels
    assert any("rows are in general position (rows 4 " in note for note in memory.notes)


def test_strings_are_never_in_general_position_and_are_memorized_all_the_same():
    rows = [a + b + c for a in "abcde" for b in "abcde" for c in "abcde"]
    labels = [(7 * k * k + k // 3) % 5 % 2 for k in range(125)]
    memory = memorize(rows, labels, construction="baum88", progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels
    assert any("not assumed" in note for note in memory.notes)
    assert "rows are in general position" not in memory.claim.assumptions


def test_symbols_get_a_generic_embedding_and_the_notes_say_so():
    rows = ["abc", "bca", "cab", "aab", "bbc"]
    memory = memorize(rows, [0, 1, 0, 1, 1], construction="baum88", progress=False, embedding=5)
    table = memory.network.layers[0]
    assert isinstance(table, Embedding) and table.width_out == 5 and table.vocabulary == 4
    assert any("embedding of dimension 5" in note for note in memory.notes)
    assert memory.certificate.verdict == "proved"
