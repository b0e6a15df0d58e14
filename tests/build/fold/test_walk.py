"""Walks: sums of marks from binary digits, cells of labels, and the normal distribution behind their prices."""

from math import erf, log2, sqrt

import numpy as np
import pytest

from byheart.build.fold.walk import cells_of, normal, walks


@pytest.mark.parametrize("folds", [3, 8, 13, 70])
def test_marks_are_added_where_digits_change(folds):
    """A rising digit subtracts its mark, a falling one adds it; the digit before the first is 0."""
    rng = np.random.default_rng(folds)
    marks = rng.integers(1, 50, folds)
    z = [0, 1, (1 << folds) - 1, *(int.from_bytes(rng.bytes(9), "big") % (1 << folds) for _ in range(20))]
    for number, found in zip(z, walks(z, marks).tolist(), strict=True):
        total, before, wanted = 0, 0, []
        for place in range(folds):
            digit = number >> (folds - 1 - place) & 1
            total += int(marks[place]) * (before - digit)
            before = digit
            wanted.append(total)
        assert found == wanted


def test_the_normal_distribution_is_interpolated_closely():
    for x in (-7.3, -1.0, 0.0, 0.4321, 2.5):
        assert float(normal(np.array(x))) == pytest.approx(0.5 * (1 + erf(x / sqrt(2))), abs=1e-7)


def test_a_label_costs_at_least_its_entropy():
    for shares in ((0.5, 0.5), (0.9, 0.1), (0.25,) * 4):
        entropy = -sum(share * log2(share) for share in shares)
        opened, closed = cells_of(shares, False), cells_of(shares, True)
        assert entropy <= opened[0] < closed[0], "cells closed on both sides leave some of the walk unused"


def test_two_even_labels_share_the_walk_exactly():
    assert cells_of((0.5, 0.5), False)[0] == pytest.approx(1, abs=1e-6)
