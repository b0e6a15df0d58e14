"""Numbers for a few tokens, so that the sums of rows distinguish them."""

from __future__ import annotations

import random
import time
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.build.ks25 import sequence_ids
from byheart.build.ks25.memorizer import Fields, KeyTable
from byheart.build.ks25.sequence_ids import (
    Multisets,
    distinguishing_tokens,
    largest_weight,
    separate_multisets,
    token_weights,
)
from byheart.build.shared.projection import Constants
from byheart.errors import BuildError
from tests.build.ks25.lemmas import measured, memorizer, projection
from tests.build.shared.test_projection import cloud
from tests.naive import run


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
def test_tokens_fast(size: int, n: int, vocabulary: int) -> None:
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
def test_large_weights(size: int, n: int, vocabulary: int, constants: Constants) -> None:
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


@pytest.mark.parametrize("constants", Constants)
def test_the_network_gives_the_sums(constants: Constants) -> None:
    rng = random.Random(1)
    points = cloud(20, 2)
    rows = distinct([[rng.randrange(20) for _ in range(rng.randint(1, 4))] for _ in range(12)])
    code = separate_multisets(points, Fraction(1, 256), index_of(rows), constants)
    assert len(set(code.sums.tolist())) == len(rows)
    assert sum(label > 0 for label in code.labels) <= len(rows) - 1
    table = KeyTable.of(
        code.line.floors, code.labels, Fields(3, code.line.top.bit_length(), max(code.labels).bit_length())
    )
    stage1, stage23 = projection(code.line), memorizer(table)
    phi = [run(stage23, run(stage1, points.row(i))) for i in range(points.count)]
    assert phi == [[label] for label in code.labels]
    assert [sum(phi[k][0] for k in row) for row in rows] == code.sums.tolist()
    assert measured(stage23)[0] <= 12


def test_repeated_tokens_count_as_often_as_they_occur() -> None:
    """Without the multiplicity that eq. (47) lacks, {p} and {p, p} would have the same sum."""
    code = separate_multisets(cloud(2, 1), Fraction(1, 256), np.array([[0, -1], [0, 0]]), Constants.MEASURED)
    assert code.sums[1] == 2 * code.sums[0] != 0


def test_the_smallest_allowed_weight_is_that_of_trying_all():
    """Against the definition: the first v with different sums wherever (sum, count) differs."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        having = np.array(sorted({(int(a), int(b)) for a, b in rng.integers(1, 6, size=(6, 2))}), dtype=np.int64)
        others = np.unique(rng.integers(0, 30, size=8))
        kinds = np.concatenate([having, np.stack([others, np.zeros_like(others)], axis=1)])
        expected = next(v for v in range(1, 10**4) if len({int(s + v * c) for s, c in kinds}) == len(kinds))
        assert sequence_ids._smallest_allowed(having, kinds, 10**4) == expected


@pytest.mark.parametrize("limit", [0, 1 << 26])
def test_taken_sums_are_found_with_and_without_a_table(monkeypatch, limit):
    monkeypatch.setattr(sequence_ids, "LARGEST_TABLE", limit)
    taken = sequence_ids._Taken(np.array([3, 5, 9]))
    assert taken.any(np.array([1, 9, 100])) and not taken.any(np.array([1, 4, 100]))
    assert not sequence_ids._Taken(np.array([], dtype=np.int64)).any(np.array([0, 1]))
