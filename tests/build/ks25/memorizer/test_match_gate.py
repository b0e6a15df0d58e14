from __future__ import annotations

import random
from fractions import Fraction

from tests.build.ks25.memorizer.lemmas import match_gate, measured
from tests.naive import run


def test_gate_lets_the_label_through_only_on_a_match() -> None:
    rng = random.Random(1)
    for _ in range(500):
        bits = rng.randint(1, 6)
        label, key, x = rng.randrange(2**bits), rng.randint(0, 40), Fraction(rng.randint(0, 400), 8)
        gadget = match_gate(bits)
        (value,) = run(gadget, [x, key, label])
        if key <= x <= key + 1:
            assert value == label
        elif x > key + Fraction(3, 2) or x < key - Fraction(1, 2):
            assert value == 0
        assert measured(gadget) == (3, 2, bits + 2)
