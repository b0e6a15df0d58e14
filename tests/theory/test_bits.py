"""The information bound."""

from __future__ import annotations

from math import comb, lgamma, log, log2

import pytest

from byheart.errors import OptionError
from byheart.theory.bits import bits_per_parameter, log2_binomial_down, total_bits


@pytest.mark.parametrize(("labels", "C"), [(1, 2), (1000, 10), (17, 3), (10**4, 16), (300, 1), (10**12, 2)])
def test_bits_of_labels(labels: int, C: int) -> None:
    bits = total_bits(labels, C)
    assert bits == pytest.approx(labels * log2(C), abs=1)
    if labels < 10**5:
        assert 2**bits >= C**labels and (bits == 0 or 2 ** (bits - 1) < C**labels)


def test_forced_zeros_add_the_choice_of_points() -> None:
    assert 2 ** total_bits(10, 4, zeros=30) >= 4**10 * comb(40, 10)
    assert 2 ** (total_bits(10, 4, zeros=30) - 1) < 4**10 * comb(40, 10)
    assert total_bits(10, 1, zeros=0) == 0 and total_bits(10, 1, zeros=1) == 4  # log2 binom(11, 10)


@pytest.mark.parametrize(("V", "N"), [(20_001, 7), (10**6, 10**3), (10**6, 5 * 10**5), (10**12, 10**9), (30_000, 1)])
def test_large_binomials_are_approached_from_below(V: int, N: int) -> None:
    true = (lgamma(V + 1) - lgamma(N + 1) - lgamma(V - N + 1)) / log(2)
    found = float(log2_binomial_down(V, N))
    assert found <= true * (1 + 1e-9) + 1e-3
    assert found >= true * (1 - 1e-6) - 1


def test_small_binomials_are_exact() -> None:
    for V, N in [(5, 0), (5, 5), (10, 3), (2000, 700)]:
        assert float(log2_binomial_down(V, N)) == pytest.approx(log2(comb(V, N)))


def test_bits_of_a_parameter() -> None:
    assert bits_per_parameter(10**4, 2, 911) == 11
    assert bits_per_parameter(10, 1, 5) == 0


def test_bad_arguments() -> None:
    with pytest.raises(OptionError, match="zeros = -1"):
        total_bits(10, 2, zeros=-1)
    with pytest.raises(OptionError, match="labels = 0"):
        total_bits(0, 2)
    with pytest.raises(OptionError, match="binom"):
        log2_binomial_down(3, 4)
