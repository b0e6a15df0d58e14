"""Theorems 4 and 6: generic attention and averaging distinguish all contexts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from byheart.build.madden24.fit import attention_numbers, average_numbers, draw_separating, injectivity
from byheart.errors import BuildError


def all_contexts(omega: int, longest: int) -> np.ndarray:
    rows = [c + (-1,) * (longest - len(c)) for t in range(1, longest + 1) for c in product(range(omega), repeat=t)]
    return np.array(rows, dtype=np.int64)


@pytest.mark.parametrize("mixing", [attention_numbers, average_numbers])
@pytest.mark.parametrize(("omega", "longest"), [(2, 7), (5, 4), (20, 2), (1, 9)])
def test_every_context_has_its_own_number(mixing, omega: int, longest: int) -> None:
    tokens = all_contexts(omega, longest)
    draw = draw_separating(tokens, omega, mixing, seed=0)
    assert draw.injectivity.holds
    assert len(np.unique(draw.numbers)) == len(tokens) and (draw.numbers != 0).all()


def test_attention_by_hand() -> None:
    z, u = np.array([1.0, 2.0]), np.array([0.5, 0.25])
    x = np.array([1.5, 2.25])
    shares = np.exp(x * 2.25)
    expected = (x @ shares) / shares.sum()
    assert attention_numbers(z, u, np.array([[0, 1]]))[0] == pytest.approx(expected, rel=1e-14)
    assert attention_numbers(z, u, np.array([[1, -1]]))[0] == pytest.approx(2.5)


def test_special_weights_are_not_generic() -> None:
    tokens = np.array([[0, 1], [1, 0]])
    same = average_numbers(np.array([1.0, 2.0]), np.array([1.0, 1.0]), tokens)
    assert injectivity(same).smallest_gap == 0 and not injectivity(same).holds
    with pytest.raises(BuildError, match="do not separate 2 contexts"):
        draw_separating(tokens, 2, lambda z, u, t: np.ones(len(t)), seed=0)
