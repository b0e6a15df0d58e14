from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.build.ks25.sequence_ids.multiset_separation import distinguishing_tokens, largest_weight, token_weights
from byheart.build.ks25.sequence_ids.multisets import Multisets
from byheart.build.shared.projection import Constants
from byheart.errors import BuildError
from tests.build.ks25.sequence_ids.test_distinguishing_tokens import distinct, index_of


def check(multisets: Multisets, constants: Constants, seed: int = 0) -> np.ndarray:
    tokens = distinguishing_tokens(multisets)
    weights, sums = token_weights(multisets, tokens, constants, seed)
    assert len(set(sums.tolist())) == multisets.size
    assert all(1 <= w <= largest_weight(multisets.size) for w in weights)
    by_token = dict(zip(tokens, weights, strict=True))
    for row in range(0, multisets.size, max(1, multisets.size // 50)):
        found = zip(*(part.tolist() for part in multisets.of_row(row)), strict=True)
        assert sums[row] == sum(count * by_token.get(token, 0) for token, count in found)
    return sums


@pytest.mark.parametrize("constants", Constants)
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=1, max_size=25))
def test_sums_are_distinct(constants: Constants, rows: list[list[int]]) -> None:
    check(Multisets.of(index_of(distinct(rows))), constants)


def test_the_shift_of_the_paper_breaks_separation() -> None:
    """h separates {p} and {q, q} (7 and 0); h + 7 does not (14 and 14), because the multisets differ in size."""
    h, shift = {"p": 7, "q": 0}, 7
    one, other = ["p"], ["q", "q"]
    assert sum(h[x] for x in one) != sum(h[x] for x in other)
    assert sum(h[x] + shift for x in one) == sum(h[x] + shift for x in other)
    multisets = Multisets.of(np.array([[0, -1], [1, 1]]))
    for constants in Constants:
        weights, sums = token_weights(multisets, (0, 1), constants)
        assert sums[0] != sums[1] and min(weights) >= 1


@pytest.mark.parametrize("constants", Constants)
@pytest.mark.parametrize("size,n,vocabulary", [(1500, 8, 12_000), (1500, 8, 50)])
def test_large(size: int, n: int, vocabulary: int, constants: Constants) -> None:
    rng = random.Random(0)
    rows = distinct([[rng.randrange(vocabulary) for _ in range(n)] for _ in range(size)])
    check(Multisets.of(np.array(rows)), constants)


def test_own_tokens_are_numbered() -> None:
    """One token per sequence that no other has: the sums are 0, 1, 2, … instead of spreading over N^2/2."""
    sums = check(Multisets.of(np.arange(4000).reshape(1000, 4)), Constants.MEASURED)
    assert sums.max() == 999


def test_same_seed_same_weights() -> None:
    multisets = Multisets.of(np.array(distinct([[i % 7, i % 5, i % 3] for i in range(60)])))
    tokens = distinguishing_tokens(multisets)
    assert (
        token_weights(multisets, tokens, Constants.PAPER, 3)[0]
        == token_weights(multisets, tokens, Constants.PAPER, 3)[0]
    )


def test_tokens_that_do_not_distinguish_are_refused() -> None:
    with pytest.raises(BuildError, match="distinguishing_tokens"):
        token_weights(Multisets.of(np.array([[0, 1], [0, 2]])), (0,), Constants.MEASURED)
