"""The sums of Lemmas C.1 and F.1 as numbers."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, log2, pi, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.errors import OptionError
from byheart.theory import theorems
from byheart.theory.upper import (
    Guarantee,
    PointSet,
    dense_blocks,
    explicit_memory,
    feed_forward_memory,
    groups,
    input_map,
    label_bits,
    limited_memory,
)


@given(st.integers(min_value=2, max_value=10**7))
def test_groups_hold_all_entries(N: int) -> None:
    m, K = groups(N)
    assert m * K >= N and m >= -(-N // K)
    assert m == pytest.approx(sqrt(N * log2(N)), abs=1.001) and m >= sqrt(N * log2(N)) - 1e-6


def test_groups_of_one_entry() -> None:
    assert groups(1) == (1, 1)  # the paper divides by log 1


@given(
    st.integers(1, 10**6),
    st.integers(1, 64),
    st.fractions(Fraction(1, 100), 10**6),
    st.fractions(Fraction(1, 10**6), 100),
)
def test_key_bits_never_round_down(V: int, d: int, r: Fraction, delta: Fraction) -> None:
    cloud = PointSet(V, d, r * r, delta * delta)
    R = 20 * max(float(r), 1) * V**2 / min(float(delta), 1) * sqrt(pi * d)
    assert 2**cloud.key_bits > R * (1 - 1e-12)
    assert 2 ** (cloud.key_bits - 1) <= R * (1 + 1e-12)
    projection = 3 * d * max(float(r), 1) * V**2 / min(float(delta), 1) * sqrt(pi)
    assert cloud.projection_bits == pytest.approx(log2(projection), abs=1.001)


def test_depth_and_bits_are_eqs_110_and_111() -> None:
    cloud = PointSet(800, 3, Fraction(25, 4), Fraction(1, 9))
    N, C = 300, 10
    m, K = groups(N)
    rho, c = cloud.key_bits, label_bits(C)
    guarantee = feed_forward_memory(cloud, N, C)
    M = max(rho, c)
    assert guarantee.width == 12
    assert guarantee.depth == 2 + (3 * m + 2) + (3 * K * M + 2 * K + 2)
    assert guarantee.max_bits == max(cloud.projection_bits, K * M + rho, K * M + 2)
    assert guarantee.parameters == guarantee.depth * 12 * 13 + 12 * cloud.dimension
    assert guarantee.total_bits == guarantee.parameters * guarantee.max_bits


def test_residual_form() -> None:
    cloud = PointSet(800, 3, 4, 1)
    m, K = groups(300)
    M = max(cloud.key_bits, 4)
    narrow = feed_forward_memory(cloud, 300, 10, form="residual")
    wide = feed_forward_memory(cloud, 300, 10, form="residual", width=14)
    assert (narrow.width, narrow.depth) == (12, 1 + m + K * (M + 1) + 3)
    assert (wide.width, wide.depth) == (14, 1 + m + K * M + 3)
    assert wide.parameters == dense_blocks(wide.depth) + 10 * 3 == 304 * wide.depth + 30
    assert explicit_memory(1, 1, 1, 1, form="residual", width=14).depth == 1 + 1 + 3 + 3  # at least three bits


@pytest.mark.parametrize("form", ["plain", "residual"])
def test_limited_bits_trade_depth_for_bits(form: str) -> None:
    cloud = PointSet(4096, 2, 100, 1)
    found = [limited_memory(cloud, 1024, 4, B, form=form) for B in (1, 2, 4, 8, 16, 32)]
    assert [p.max_bits for p in found] == sorted(p.max_bits for p in found)
    assert [p.depth for p in found] == sorted((p.depth for p in found), reverse=True)
    assert all(p.width <= 13 for p in found)
    whole = feed_forward_memory(cloud, 1024, 4, form=form)
    assert found[-1].max_bits == whole.max_bits and found[-1].depth - whole.depth in (0, 1)


def test_monotone_in_entries_points_and_labels() -> None:
    """Not in every single step of N (K is rounded), but over every doubling."""
    depths = [feed_forward_memory(PointSet(10**6, 2, 1, 1), 2**k, 5).depth for k in range(20)]
    assert depths == sorted(depths)
    depths = [feed_forward_memory(PointSet(V, 2, 1, 1), 100, 5).depth for V in (100, 1000, 10**6)]
    assert depths == sorted(depths)
    depths = [feed_forward_memory(PointSet(100, 2, 1, 1), 100, C).depth for C in (1, 10**3, 10**9, 10**18)]
    assert depths == sorted(depths)


def test_huge_numbers() -> None:
    guarantee = feed_forward_memory(PointSet(10**15, 1000, 10**12, Fraction(1, 10**12)), 10**12, 10**6)
    assert guarantee.depth > 10**6 and guarantee.width == 12


def test_guarantees_compose() -> None:
    whole = Guarantee(3, 2, 10, 5).then(Guarantee(7, 1, 1, 9), Guarantee(1, 0, 2, 1))
    assert whole == Guarantee(7, 3, 13, 9)
    assert whole.times(3) == Guarantee(7, 9, 39, 9)
    assert input_map(5, "residual").parameters == 50


def test_bad_arguments() -> None:
    with pytest.raises(OptionError, match="at least one"):
        groups(0)
    with pytest.raises(OptionError, match="δ² = 0"):
        PointSet(3, 1, 1, 0)
    with pytest.raises(OptionError, match="unknown form 'deep'"):
        feed_forward_memory(PointSet(3, 1, 1, 1), 3, 2, form="deep")
    with pytest.raises(OptionError, match="B = 0"):
        limited_memory(PointSet(3, 1, 1, 1), 3, 2, 0)
    with pytest.raises(OptionError, match="largest label 0"):
        feed_forward_memory(PointSet(3, 1, 1, 1), 3, 0)


def test_ceil_of_entries() -> None:
    """Five chunks of four hold seventeen entries."""
    cloud = PointSet(17, 1, 1, 1)
    one, many = limited_memory(cloud, 4, 2, 2), limited_memory(cloud, 17, 2, 2)
    assert many.depth - 3 == ceil(17 / 4) * (one.depth - 3)


def test_footnote_2_takes_the_logarithm_of_n_under_the_root() -> None:
    """The balanced memory stays below a constant times √(N log(nN)), where Lemma C.1's grows with log n."""
    for n in (2**8, 2**64, 2**512):
        s = theorems.worst_case(N=10_000, n=n, d=4, C=2)
        root = (s.N * (s.n * s.N).bit_length()) ** 0.5
        assert theorems.transformer(s, balanced=True).depth < 40 * root
    assert theorems.transformer(s).depth > 80 * root
