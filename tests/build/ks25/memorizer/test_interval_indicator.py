from __future__ import annotations

import random
from fractions import Fraction

from tests.build.ks25.memorizer.lemmas import interval_indicator, measured
from tests.naive import run


def test_one_inside_zero_half_a_step_outside() -> None:
    rng = random.Random(0)
    for _ in range(50):
        first = rng.randint(0, 50)
        last = first + rng.randint(1, 50)
        gadget = interval_indicator(first, last)
        for x in (Fraction(rng.randint(-400, 1600), 8) for _ in range(20)):
            (value,) = run(gadget, [x])
            if first <= x <= last:
                assert value == 1
            elif x > last + Fraction(1, 2) or x < first - Fraction(1, 2):
                assert value == 0


def test_promise() -> None:
    for first, last in ((0, 1), (3, 5), (100, 1023)):
        gadget = interval_indicator(first, last)
        assert measured(gadget) == (2, 2, max(2, last.bit_length()))
