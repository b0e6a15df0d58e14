from __future__ import annotations

import random
from fractions import Fraction

from byheart.build.ks25.memorizer.match_gate import match, match_gate
from byheart.build.shared.promise import measured
from tests.naive import run


def test_match() -> None:
    rng = random.Random(0)
    gadget = match()
    for _ in range(300):
        key, x = rng.randint(0, 40), Fraction(rng.randint(0, 400), 8)
        (value,) = run(gadget.layers, [x, key])
        if key <= x <= key + 1:
            assert value == 1
        elif x > key + Fraction(3, 2) or x < key - Fraction(1, 2):
            assert value == 0
    assert measured(gadget.layers) == gadget.promise


def test_gate_lets_the_label_through_only_on_a_match() -> None:
    rng = random.Random(1)
    for _ in range(500):
        bits = rng.randint(1, 6)
        label, key, x = rng.randrange(2**bits), rng.randint(0, 40), Fraction(rng.randint(0, 400), 8)
        gadget = match_gate(bits)
        (value,) = run(gadget.layers, [x, key, label])
        if key <= x <= key + 1:
            assert value == label
        elif x > key + Fraction(3, 2) or x < key - Fraction(1, 2):
            assert value == 0
        assert measured(gadget.layers) == gadget.promise
