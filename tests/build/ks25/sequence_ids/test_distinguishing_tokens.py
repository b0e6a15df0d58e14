from __future__ import annotations

import random
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.build.ks25.sequence_ids.multiset_separation import distinguishing_tokens
from byheart.build.ks25.sequence_ids.multisets import Multisets
from byheart.errors import BuildError


def index_of(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int64)


def distinct(rows: list[list[int]]) -> list[list[int]]:
    return [list(key) for key in sorted({tuple(sorted(row)) for row in rows})]


def restricted(rows: list[list[int]], tokens: tuple[int, ...]) -> set[tuple[int, ...]]:
    return {tuple(Counter(row)[token] for token in tokens) for row in rows}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=1, max_size=25))
def test_counts_of_the_tokens_tell_all_apart(rows: list[list[int]]) -> None:
    rows = distinct(rows)
    tokens = distinguishing_tokens(Multisets.of(index_of(rows)))
    assert len(tokens) <= len(rows) - 1  # one fewer than the paper's N
    assert len(restricted(rows, tokens)) == len(rows)


def test_one_multiset_needs_no_token() -> None:
    assert distinguishing_tokens(Multisets.of(np.array([[3, 1]]))) == ()


def test_equal_multisets_are_refused() -> None:
    with pytest.raises(BuildError, match="equal"):
        distinguishing_tokens(Multisets.of(np.array([[1, 2], [2, 1]])))


@pytest.mark.parametrize("size,n,vocabulary", [(4000, 8, 32_000), (4000, 8, 50), (300, 1024, 256)])
def test_fast(size: int, n: int, vocabulary: int) -> None:
    rng = random.Random(0)
    rows = distinct([[rng.randrange(vocabulary) for _ in range(n)] for _ in range(size)])
    multisets = Multisets.of(np.array(rows))
    start = time.perf_counter()
    tokens = distinguishing_tokens(multisets)
    assert time.perf_counter() - start < 5
    assert len(tokens) < len(rows)
    place = {token: i for i, token in enumerate(tokens)}
    kept = {tuple((place[t], c) for t, c in sorted(Counter(row).items()) if t in place) for row in rows}
    assert len(kept) == len(rows)
