"""What KS25's theorems guarantee about whole networks."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from math import isqrt, log2, pi, sqrt

import pytest

import byheart
from byheart.errors import OptionError
from byheart.theory import theorems
from byheart.theory.rounding import PI_UP
from byheart.theory.theorems import transformer, worst_case
from byheart.theory.upper import PointSet, feed_forward_memory, groups

FORMS = ("plain", "residual")


def test_next_token_is_two_memories_and_attention() -> None:
    N, n, d, C, r2, delta2 = 300, 8, 4, 10, Fraction(49, 4), Fraction(1, 4)
    guarantee = transformer(worst_case(N, n, d, C, r_squared=r2, delta_squared=delta2))
    r, delta = 3.5, 0.5
    R1 = 20 * r * (n * N) ** 2 / delta * sqrt(pi * d)
    R2 = 400 * sqrt(3 * d) * n**3 * r * N**5 / delta * pi
    m, K = groups(N)
    C_phi = N * (N - 1) // 2 + 1
    expected = 1
    for R, largest in ((R1, C_phi), (R2, C)):
        M = max(int(R).bit_length(), largest.bit_length())
        expected += 2 + (3 * m + 2) + (3 * K * M + 2 * K + 2)
    assert guarantee.depth == expected and guarantee.width == 14
    assert guarantee.max_bits == (K + 1) * int(R2).bit_length()


def test_deep_sets_use_their_own_range() -> None:
    N, M, d, C = 100, 6, 2, 3
    guarantee = theorems.deep_set(worst_case(N, M, d, C))
    rho = PointSet(N, 1, 16 * M**2 * N**6 * PI_UP, 1)
    assert rho.key_bits == int(80 * M * N**5 * pi).bit_length()
    phi = PointSet(N * M, d, 1, 1)
    assert guarantee.depth == (
        feed_forward_memory(phi, N, theorems.token_labels(N)).depth + feed_forward_memory(rho, N, C).depth
    )
    assert guarantee.width == 12 and theorems.deep_set(worst_case(N, M, d, C), "residual").width == 12


def test_embedding_table_is_counted() -> None:
    small, large = (theorems.with_embedding(worst_case(100, 4, 1, 5), omega) for omega in (50, 5050))
    # 3·5000 more entries; larger keys cost some layers as well
    assert large.parameters - small.parameters >= 3 * 5000
    R = 200 * sqrt(3) * 4**2 * 100**5 * 50 * pi
    assert PointSet(100, 3, 100 * 4**2 * 100**6 * 50**2 * PI_UP, Fraction(1, 16)).key_bits == int(R).bit_length()


@pytest.mark.parametrize("form", FORMS)
def test_growth_is_the_papers_message(form: str) -> None:
    """Next-token: √N up to logarithms, nearly flat in n. Seq-to-seq: √(nN)."""
    by_count = [transformer(worst_case(N, 8, 4, 2), form).parameters for N in (10**4, 10**6)]
    exponent = log2(by_count[1] / by_count[0]) / log2(100)
    assert 0.5 < exponent < 0.65
    by_length = [transformer(worst_case(1000, n, 4, 2), form).parameters for n in (8, 1024)]
    assert by_length[1] < 1.6 * by_length[0]
    both = [transformer(worst_case(1000, n, 4, 2, every_token=True), form).parameters for n in (8, 1024)]
    assert 0.4 < log2(both[1] / both[0]) / log2(128) < 0.65


@pytest.mark.parametrize("form", FORMS)
def test_limited_bits(form: str) -> None:
    N = 256
    found = {B: theorems.limited_bits(worst_case(N, 4, 2, 3), B, form) for B in (1, 2, 4, 8, 16)}
    assert all(p.width <= 15 for p in found.values())
    bits = [p.max_bits for p in found.values()]
    assert bits == sorted(bits) and bits[0] < bits[-1]
    with pytest.raises(OptionError, match="at most 16"):
        theorems.limited_bits(worst_case(N, 4, 2, 3), 17, form)
    with pytest.raises(OptionError, match="B = 0"):
        theorems.limited_bits(worst_case(N, 4, 2, 3), 0, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("N", "n", "d", "C"), [(1, 1, 1, 1), (1, 5, 3, 1), (2, 1, 1, 2), (3, 1024, 16, 10)])
def test_smallest_cases(form: str, N: int, n: int, d: int, C: int) -> None:
    for guarantee in (
        transformer(worst_case(N, n, d, C), form),
        transformer(worst_case(N, n, d, C, every_token=True), form),
        theorems.sparse(worst_case(N, n, d, C), form),
        theorems.deep_set(worst_case(N, n, d, C), form),
        theorems.with_embedding(worst_case(N, n, d, C), 7, form),
        theorems.limited_bits(worst_case(N, n, d, C), 1, form),
    ):
        assert min(guarantee.width, guarantee.depth, guarantee.parameters, guarantee.max_bits) > 0
        assert guarantee.width <= 15


def test_fewer_contexts_cost_less() -> None:
    setting = worst_case(100, 16, 2, 4, every_token=True)
    full = transformer(setting)
    assert transformer(replace(setting, contexts=400)).depth < full.depth
    assert transformer(replace(setting, points=30)).depth < full.depth
    assert theorems.sparse(setting).depth == full.depth + 2


def test_huge() -> None:
    guarantee = transformer(worst_case(10**12, 1000, 768, 50000))
    assert isqrt(10**12) < guarantee.depth < 10**9


def test_bad_counts() -> None:
    with pytest.raises(OptionError, match="n = 0"):
        worst_case(10, 0, 1, 2)
    with pytest.raises(OptionError, match="contexts = 0"):
        worst_case(10, 2, 1, 2, contexts=0)


@pytest.mark.parametrize("form", FORMS)
def test_d_enters_linearly_in_the_input_map_and_by_logarithms_elsewhere(form: str) -> None:
    """Remark 4.3: Õ(d + √N)."""
    found = {d: theorems.input_and_rest(worst_case(10**4, 8, d, 2), form) for d in (1, 4, 64, 4096, 4**9)}
    assert all(entrance == found[1][0] * d for d, (entrance, _) in found.items())
    rest = [rest for _, rest in found.values()]
    # √d in R: a bit more per key for every factor 4 of d, so equal steps of the logarithm cost about the same
    step = rest[1] - rest[0]
    assert rest == sorted(rest) and rest[-1] - rest[0] <= 10 * step and rest[-1] < 2 * rest[0]


@pytest.mark.parametrize(("task", "n"), [("next-token", 8), ("seq-to-seq", 8)])
def test_total_bits_of_built_networks_grow_like_their_labels(task: str, n: int) -> None:
    """Remarks 4.4 and 4.6: Õ(N) bits in all (Õ(nN)), at most what is guaranteed and at least what is needed."""
    rng, held, needed = random.Random(5), [], []
    per_token = task == "seq-to-seq"
    for N in (8, 16, 32, 64) if per_token else (50, 100, 200, 400):
        rows = [[[rng.randrange(1024) / 1024 for _ in range(4)] for _ in range(n)] for _ in range(N)]
        labels = [[rng.randrange(4) for _ in range(n)] if per_token else rng.randrange(4) for _ in range(N)]
        memory = byheart.memorize(rows, labels, task=task, construction="ks25", positions=False, progress=False)
        assert memory.certificate.verdict.value == "proved"
        guaranteed = memory.certificate.guaranteed
        assert memory.size.total_bits <= guaranteed["parameters"] * guaranteed["max_bits"]
        needed.append(byheart.lower_bound(task=task, N=N, n=n, C=4).total_bits)
        held.append(memory.size.total_bits)
    assert all(bits >= least for bits, least in zip(held, needed, strict=True))
    exponent = log2(held[-1] / held[0]) / log2(needed[-1] / needed[0])
    assert 0.9 < exponent < 1.2  # proportional to the labels, up to logarithms


def test_guaranteed_total_bits_are_linear_up_to_logarithms() -> None:
    """Parameters times bits, for N up to 10^12: at most 3,000·N·(log2 N)², and the quotient falls."""
    found = []
    for N in (10**3, 10**4, 10**6, 10**9, 10**12):
        guarantee = transformer(worst_case(N, 8, 4, 2, r_squared=1, delta_squared=1), "residual")
        assert guarantee.total_bits == guarantee.parameters * guarantee.max_bits
        found.append(guarantee.total_bits / (N * log2(N) ** 2))
    assert found == sorted(found, reverse=True) and found[0] < 3000
