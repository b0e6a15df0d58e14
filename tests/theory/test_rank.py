"""Theorems 2 and 3, and the counterexamples to their assumption as the paper words it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byheart.errors import OptionError
from byheart.ir.decoder import Activation
from byheart.theory.rank import analytic_rank, polynomial_rank

GENERIC = [Fraction(p, 7) for p in (2, 3, 5, 11, 13, 17)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.integers(0, 7), st.integers(-5, 5).filter(bool), min_size=1, max_size=5),
    st.integers(1, 5),
    st.lists(st.integers(1, 12), min_size=1, max_size=5, unique=True),
)
@example({1: 1, 3: 1}, 3, [1, 2])
@example({0: 1, 1: 2, 3: 1}, 3, [1, 2, 3])
def test_polynomials_with_positive_numbers(coefficients: dict[int, int], m: int, b: list[int]) -> None:
    facts = polynomial_rank(coefficients, GENERIC[:m], b)
    assert facts.assumption and facts.holds, facts


def test_nonzero_and_distinct_is_not_enough() -> None:
    odd = polynomial_rank({1: 1, 3: 1}, GENERIC[:3], [1, -1])
    assert (odd.rank, odd.guaranteed, odd.assumption) == (1, 2, False)
    lacunary = polynomial_rank({0: 1, 1: 2, 3: 1}, GENERIC[:4], [1, 2, -3])
    assert (lacunary.rank, lacunary.guaranteed) == (2, 3)


@pytest.mark.parametrize("activation", list(Activation))
@pytest.mark.parametrize(("m", "n"), [(1, 1), (6, 4), (4, 4), (3, 6)])
def test_analytic_activations(activation: Activation, m: int, n: int) -> None:
    a = [0.11, 0.23, 0.37, 0.41, 0.59, 0.71]
    assert analytic_rank(activation, a[:m], [0.25 * (j + 1) for j in range(n)]).holds


def test_odd_activation_and_opposite_numbers() -> None:
    assert analytic_rank(Activation.TANH, [0.1, 0.2, 0.3], [0.5, -0.5]).rank == 1


def test_too_many_columns() -> None:
    with pytest.raises(OptionError, match="too many"):
        polynomial_rank({k: 1 for k in range(12)}, list(range(1, 13)), list(range(1, 31)))
