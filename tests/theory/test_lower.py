"""Theorems 4.2 and 4.3 with explicit constants: their inequalities, the numbers, the information bound."""

from __future__ import annotations

import random
from fractions import Fraction
from math import comb, lgamma, log, log2

import pytest

from byheart.errors import OptionError
from byheart.memory import memorize
from byheart.theory import lower_bound
from byheart.theory.capacity import Architecture
from byheart.theory.lower import (
    any_chain_parameters,
    bits_per_parameter,
    bounded_depth_parameters,
    close_points_parameters,
    general_position_parameters,
    input_parameters,
    log2_binomial_down,
    next_token_parameters,
    next_token_root,
    quadratic_parameters,
    seq_to_seq_parameters,
    seq_to_seq_root,
    sign_vectors,
    total_bits,
)
from byheart.theory.rounding import E_DOWN, E_UP


def random_architectures(count: int, seed: int = 0) -> list[Architecture]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        d, m, s, H, q = (rng.randint(1, rng.choice([1, 2, 5, 20])) for _ in range(5))
        found.append(Architecture(d, m, s, H, q, rng.randint(1, rng.choice([1, 3, 30, 300]))))
    return found


def test_inequalities_of_theorem_4_2() -> None:
    """W̄′ as a sum, W̄′ ≤ W′ + (W′+3)²/12, and Σ M·D ≤ (4/3)·N·W̄′."""
    for a in random_architectures(4000):
        P, W, total = a.block_without_scores, a.parameters_without_scores, a.summed_without_scores
        layers = range(1, a.L + 1)
        assert total == W + sum(a.m * a.d + (layer - 1) * P + 2 * a.m * a.s * a.H + (a.m + 1) * a.q for layer in layers)
        assert 12 * total <= 12 * W + (W + 3) ** 2
        assert 3 * (4 * a.L + 2 + 2 * a.q * a.L * (a.L + 1)) <= 4 * total
        assert a.parameters >= W


def test_inequalities_of_theorem_4_3() -> None:
    """W̄ as the sum (91), W̄ ≤ W + W²/8, and Σ M·D ≤ n³·N·W̄."""
    for index, a in enumerate(random_architectures(4000, seed=1)):
        n, W, total = 1 + index % 6, a.parameters, a.summed
        layers = range(1, a.L + 1)
        assert total == W + sum(
            2 * (a.m * a.d + (layer - 1) * a.block) + 4 * a.m * a.s * a.H + (a.m + 1) * a.q for layer in layers
        )
        assert 8 * total <= 8 * W + W * W
        products = sum(n**3 * a.H * (8 * layer - 4) + n * a.q * 4 * layer for layer in layers)
        assert n * (4 * a.L + 2) + products <= n**3 * total


def test_inequalities_behind_any_chain() -> None:
    """Chains of layers with at least two parameters per unit: W̄ ≤ W(W+6)/4 and q_l·D_l ≤ W_l²/2."""
    rng = random.Random(2)
    for _ in range(2000):
        before, degree, summed = rng.randint(1, 5), 1, 0
        for _ in range(rng.randint(1, rng.choice([2, 10, 60]))):
            if rng.random() < 0.2:  # attention on equal tokens: linear, two matrices
                before, degree = before + 2 * rng.randint(1, 4), degree + 2
            units = rng.randint(1, rng.choice([1, 2, 9]))
            before += units * rng.randint(2, 6)
            degree += 1
            assert 2 * units * degree <= before * before and degree <= before
            summed += before
            if rng.random() < 0.5:  # the second matrix of a residual block
                before, degree = before + units + 1, degree + 1
        W = before + rng.randint(0, 3)
        assert 4 * (summed + W) <= W * (W + 6)


def test_known_numbers() -> None:
    assert [round(float(next_token_root(N)), 1) for N in (10**3, 10**4)] == [20.7, 72.8]
    assert round(float(next_token_root(10**6))) == 687
    assert [next_token_parameters(N) for N in (10**3, 10**4, 10**6)] == [21, 73, 687]
    assert float(seq_to_seq_root(1000, 8)) == pytest.approx(48.5, abs=0.5)


@pytest.mark.parametrize("N", [1, 2, 3, 10, 97, 1000, 10**4, 10**6, 10**12])
@pytest.mark.parametrize("C", [2, 3, 16, 1000])
def test_next_token_number_is_the_ceiling_of_a_true_bound(N: int, C: int) -> None:
    W = next_token_parameters(N, C)
    assert max(next_token_root(N, C), 1) + Fraction(1, 10**6) > W - 1
    if W > 1:
        # one parameter fewer violates N·log2 C ≤ (W + (W+3)²/12)·log2(32e(C−1)N/3), in floats
        load = N * log2(C) / log2(float(32 * E_UP * (C - 1) * N / 3))
        assert load * (1 + 1e-9) > (W - 1) + (W + 2) ** 2 / 12
        load = N * log2(C) / log2(float(32 * E_DOWN * (C - 1) * N / 3))
        assert load * (1 - 1e-9) <= W + (W + 3) ** 2 / 12


@pytest.mark.parametrize(("N", "n"), [(1, 1), (10, 1), (1000, 8), (10**4, 64), (10**6, 1024), (10**12, 3)])
def test_seq_to_seq_number_is_the_ceiling_of_a_true_bound(N: int, n: int) -> None:
    W = seq_to_seq_parameters(N, n)
    load = n * N / log2(float(8 * E_UP) * n**3 * N)
    assert load * (1 - 1e-9) <= W + W * W / 8
    if W > 1:
        assert load * (1 + 1e-9) > (W - 1) + (W - 1) ** 2 / 8
    paper = (n * N / (9 * log2(48 * float(E_UP) * n * N))) ** 0.5
    assert paper <= W  # the explicit constant is better than the paper's


def test_monotone_in_everything() -> None:
    counts = [1, 2, 5, 20, 100, 1000, 10**5, 10**8, 10**12]
    for C in (2, 10):
        for function in (next_token_parameters, any_chain_parameters):
            found = [function(N, C) for N in counts]
            assert found == sorted(found)
        lengths = [seq_to_seq_parameters(1000, n, C) for n in (1, 2, 8, 64, 1024)]
        assert lengths == sorted(lengths)
    for N in counts:
        by_classes = [next_token_parameters(N, C) for C in (1, 2, 3, 10, 100)]
        assert by_classes == sorted(by_classes)


def test_nothing_to_tell_apart() -> None:
    assert next_token_parameters(10**6, 1) == seq_to_seq_parameters(10**6, 8, 1) == any_chain_parameters(10**6, 1) == 1
    assert next_token_parameters(1) == 1 == seq_to_seq_parameters(1, 1)


def test_sign_vectors_covers_small_cases() -> None:
    """One polynomial of degree D in one variable has at most 2D + 1 sign cells; M linear ones at most 2M + 1."""
    for M in range(1, 40):
        assert sign_vectors(M, 1, 1) >= log2(2 * M + 1) - 1e-12
    assert sign_vectors(1, 3, 7) < 2  # more variables than polynomials: three signs


@pytest.mark.parametrize("bad", [0, -5, 2.5, "10", True])
def test_bad_counts(bad: object) -> None:
    with pytest.raises(OptionError, match="N = "):
        next_token_parameters(bad)  # type: ignore[arg-type]


def test_the_order_itself_never_fades() -> None:
    """Theorem 4.2 states Ω(√N): the form with a logarithm falls below any multiple of √N, this one does not."""
    for exponent in (4, 16, 64, 256, 512):
        N = 10**exponent
        W = quadratic_parameters(N)
        assert 8 * W * (W + 1) >= N > 8 * (W - 1) * W
        assert 9 * W * W >= N  # at least √N/3
    assert quadratic_parameters(10**4) < next_token_parameters(10**4)
    assert quadratic_parameters(10**30) > next_token_parameters(10**30)


def test_operations_are_at_most_twice_the_parameters() -> None:
    """The count of Goldberg and Jerrum's theorem, for random architectures of eq. (4)."""
    rng = random.Random(5)
    for _ in range(2000):
        d, m, s, H, q, L = (rng.randint(1, 9) for _ in range(6))
        attention = H * (s * (2 * m - 1) + m * (2 * s - 1) + m)
        feed_forward = q * (2 * m - 1) + q + 2 * q + m * (2 * q - 1) + m + m
        operations = m * (2 * d - 1) + L * (attention + feed_forward) + (2 * m - 1) + 2
        assert operations <= 2 * Architecture(d, m, s, H, q, L).parameters_without_scores


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


def test_sontags_bound_is_not_mixed_with_bounds_for_separated_points() -> None:
    """It speaks about points however close together, so a memory of separated rows may be far below it."""
    found = lower_bound(task="next-token", N=10**4, n=8, d=4, C=2)
    close = next(b for b in found.bounds if b.scope == "any points")
    assert close.value == 5000 and "any δ" in close.assumptions[0]
    assert found.strongest("parameters").value < 100


def test_every_number_of_a_token_needs_a_weight() -> None:
    """Remark 4.3: the bound is among the others."""
    found = next(b for b in lower_bound(N=10, d=300).bounds if b.ref.label == "Remark 4.3")
    assert found.value == 301 and found.scope == "labels"


def test_a_network_on_the_whole_row_needs_a_weight_for_each_of_its_numbers() -> None:
    """After Remark 4.3: d·n parameters for a feed-forward network, which longer rows do not cost a Transformer."""
    rng = random.Random(0)
    sizes = {}
    for n in (2, 40):
        rows = [[[rng.randrange(64) / 64 for _ in range(4)] for _ in range(n)] for _ in range(12)]
        for construction in ("nilsson65", "ks25"):
            memory = memorize(
                rows, [k % 2 for k in range(12)], construction=construction, positions=False, progress=False
            )
            sizes[construction, n] = memory.size.parameters
    assert sizes["nilsson65", 40] >= input_parameters(4 * 40) and sizes["nilsson65", 2] >= input_parameters(4 * 2)
    assert sizes["nilsson65", 40] > 8 * sizes["nilsson65", 2] and sizes["ks25", 40] < 2 * sizes["ks25", 2]


def test_close_points_need_linearly_many_parameters() -> None:
    """Ω(N) where δ is exponentially small, at most Sontag's N/2, nothing new where r/δ is polynomial in N."""
    for N in (10, 100, 1000, 10**4):
        found = [close_points_parameters(N, Fraction(4) ** (c * N)) for c in (1, 4, 64)]
        assert found == sorted(found) and found[0] >= 0.3 * N and found[-1] <= general_position_parameters(N) + 1
    assert close_points_parameters(10**6, Fraction(10**12) ** 2) < next_token_parameters(10**6)
    assert close_points_parameters(1, 1) == close_points_parameters(50, Fraction(1, 100)) == 1


@pytest.mark.parametrize(("N", "bits"), [(40, 20), (400, 100), (2000, 2500)])
def test_close_points_formula(N: int, bits: int) -> None:
    """The returned W keeps the inequality and W − 1 breaks it, in floats."""
    V = 2 * 2**bits + 1

    def slack(W: int) -> float:
        logs = log2(V) + W // 2 + log2(W // 2 + 1) + log2(8 * 2.718281828459045)
        return W * logs - N // 2 * (log2(V // 2) - W // 2)

    W = close_points_parameters(N, 4**bits)
    assert slack(W) >= -1e-6 and slack(W - 1) < 0


def test_a_line_of_pieces_crosses_no_more_often_than_it_has_pieces() -> None:
    """The counting step, on a small class: the patterns of one ReLU network with two units along a grid."""
    rng, V = random.Random(0), 24
    patterns = set()
    for _ in range(4000):
        a, b, c, d, e, f, g = (rng.uniform(-2, 2) for _ in range(7))
        values = [e * max(0, a * x + b) + f * max(0, c * x + d) + g for x in (k / V for k in range(V))]
        patterns.add(tuple(value >= 0 for value in values))
    assert max(sum(not p[2 * j] and p[2 * j + 1] for j in range(V // 2)) for p in patterns) <= 4
    # p = 3 crossings of that kind would need N = 6 points' labels from 7 parameters: the bound does not exclude it
    assert close_points_parameters(6, Fraction(V, 2) ** 2) <= 7


def test_your_data_makes_the_root_impossible() -> None:
    """The bound is about points however they lie: it is listed, and never the strongest for separated rows."""
    found = lower_bound(N=1000, d=1, r=1, delta=Fraction(1, 2**400))
    close = next(b for b in found.bounds if b.ref.paper == "SI24")
    assert close.value > 10 * found.strongest("parameters").value and close.scope == "any points"
    assert next(b for b in lower_bound(N=1000, d=1).bounds if b.ref.paper == "SI24").value < 30


def test_bounded_depth_is_a_trade_of_depth_for_parameters() -> None:
    """N/L up to logarithms, and never more than what is built with that depth."""
    for L in (1, 4, 16, 64):
        W = bounded_depth_parameters(10**6, L)
        assert (L + 1) * W * log2(8 * 2.71829 * 10**6 * W * W) >= 10**6 - 1
        assert (L + 1) * (W - 1) * log2(8 * 2.71828 * 10**6 * (W - 1) ** 2) < 10**6 + 1
    assert bounded_depth_parameters(10**6, 10, C=1) == 1 < bounded_depth_parameters(10**6, 10, C=4)
    size = memorize([[k] for k in range(60)], [k % 2 for k in range(60)], construction="vardi22", depth=20).size
    assert size.depth <= 20 and size.nonzero >= bounded_depth_parameters(60, 20)
