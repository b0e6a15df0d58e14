from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tests.build.ks25.memorizer.lemmas import extract_bits, measured, within
from tests.naive import run


def psi(z: Fraction, times: int) -> Fraction:
    for _ in range(times):
        z = 2 * z if 2 * z <= 1 else 2 - 2 * z
    return z


def starts(word: int, length: int) -> tuple[Fraction, Fraction]:
    return Fraction(word, 2**length) + Fraction(1, 2 ** (length + 1)), Fraction(word, 2**length) + Fraction(
        1, 2 ** (length + 2)
    )


@pytest.mark.parametrize("length,first,last", [(1, 1, 1), (4, 1, 4), (4, 2, 3), (9, 3, 3), (24, 5, 17), (70, 1, 5)])
def test_bits_and_trajectories(length: int, first: int, last: int) -> None:
    """i = j is among the cases: the paper's i < j would forbid labels of one bit."""
    rng = random.Random(length)
    gadget = extract_bits(length, first, last)
    for word in {0, 2**length - 1, *(rng.randrange(2**length) for _ in range(20))}:
        z1, z2 = starts(word, length)
        found = run(gadget, [psi(z1, first - 1), psi(z2, first - 1)])
        bits = word >> (length - last) & (1 << (last - first + 1)) - 1
        assert found == [psi(z1, last), psi(z2, last), bits]


def test_promise_is_met_exactly_in_depth() -> None:
    for length, first, last in ((4, 1, 4), (24, 5, 17), (3, 2, 2)):
        gadget = extract_bits(length, first, last)
        depth = 3 * (last - first + 1)
        assert within(gadget, width=5, depth=depth, bits=length + 2) and measured(gadget)[1] == depth
