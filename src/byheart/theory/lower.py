"""How many parameters and bits any memory needs: Theorems 4.2 and 4.3 of KS25 with our own constants.

All of them count sign patterns. A network with W parameters, divided into cells on which it is a polynomial of its
parameters, can produce only a limited number of labellings (Lemma B.4); it must be able to produce C^N of them.
Roots and logarithms are rounded so that the returned integer is a true lower bound.

    >>> [next_token_parameters(N) for N in (10**3, 10**4, 10**6)]
    [21, 73, 687]
    >>> seq_to_seq_parameters(N=1000, n=8)
    49

Bits: a memory must have at least as many states as there are labellings (KS25's Remarks 4.4 and 4.6). W parameters of B
bits each (sign and binary point included) have 2^(WB) states, so W·B ≥ log2(number of labellings).

    >>> total_bits(1000, 10), total_bits(1000, 10, zeros=4000)
    (3322, 6926)
"""

from __future__ import annotations

from fractions import Fraction
from math import comb, isqrt

from byheart.errors import OptionError
from byheart.paper import Ref, implements
from byheart.theory.rounding import E_UP, Exact, ceil, floor, log2_down, log2_up, power_at_least, root_down, sqrt_up

TEST = "tests/theory/test_lower.py"


@implements(
    Ref("KS25", "Lemma B.4"),
    statement="M polynomials of degree D in W variables have at most (8eMD/W)^W sign vectors; log2 of it, rounded up",
    test=TEST,
)
def sign_vectors(polynomials: int, degree: int, variables: int, digits: int = 64) -> Fraction:
    """An upper bound on log2 of the number of vectors of signs −, 0, +.

    With W > M, where the lemma does not apply, the 3^M vectors that exist at all.

    >>> float(sign_vectors(100, 2, 1)) < 12.1, float(sign_vectors(1, 1, 5)) < 1.6
    (True, True)
    """
    every = polynomials * log2_up(3, digits)
    if variables > polynomials:
        return every
    return min(every, variables * log2_up(8 * E_UP * polynomials * degree / variables, digits))


def next_token_root(N: int, C: int = 2) -> Fraction:
    """Return our form of Theorem 4.2 before rounding up to an integer: −9 + √(72 + 12T), never above the true value.

    >>> [round(float(next_token_root(N)), 1) for N in (10**3, 10**4, 10**6)]
    [20.7, 72.8, 686.8]
    """
    return root_down(72 + 12 * _next_token_load(N, C)) - 9


@implements(
    Ref("KS25", "Theorem 4.2"),
    statement="next-token: Ω(√N) parameters for every labelling of N constant sequences. The paper states the order; "
    "the constants of W ≥ −9 + √(72 + 12 N/log2(32eN/3)) are byheart's, by counting signs as Theorem 4.3 does",
    test=TEST,
)
@implements(Ref("KS25", "Theorem B.2"), statement="Theorem 4.2 restated; the constants are byheart's", test=TEST)
def next_token_parameters(N: int, C: int = 2) -> int:
    """Return the smallest W that our form of Theorem 4.2 allows, for any n and d.

    On sequences of equal tokens attention is linear and K, Q drop out: N ≤ W̄′·log2(32eN/3) with
    W̄′ ≤ W + (W+3)²/12. With C > 2 classes the last layer has C − 1 thresholds per sequence, and
    N·log2 C ≤ W̄′·log2(32e(C−1)N/3), a strengthening by the same proof.
    """
    if C == 1:
        return 1
    return max(1, sqrt_up(72 + 12 * _next_token_load(N, C)) - 9)


@implements(
    Ref("GJ95", "quadratic VC dimension"),
    statement="VC dimension O(W²), so every labelling of N points needs Ω(√N) parameters: W ≥ (√(1 + N/2) − 1)/2 for "
    "KS25's Transformers on equal tokens",
    test=TEST,
)
@implements(
    Ref("KS25", "Theorem 4.2"),
    statement="next-token, the order Ω(√N) itself: W ≥ (√(1 + N/2) − 1)/2, from VC dimension ≤ 4W(t + 2)",
    test=TEST,
)
def quadratic_parameters(N: int) -> int:
    """Theorem 4.2's Ω(√N) with a constant that does not fade: √(N/8), by Goldberg and Jerrum's theorem.

    A class of functions with W real parameters whose answers take at most t additions, multiplications and comparisons
    has VC dimension at most 4W(t + 2) (Goldberg and Jerrum 1995; Anthony and Bartlett 1999, Theorem 8.4). On a
    sequence of equal tokens a network of eq. (4) takes

        E_in                    m(2d − 1)
        attention, per block    H(s(2m − 1) + m(2s − 1) + m)  ≤ 2 · 2msH          (K and Q drop out)
        feed-forward            2mq + 2q + 2mq + m            ≤ 2 · (2mq + q + m)  (a ReLU: a jump and a product)
        E_out, threshold        2m + 1

    operations, together at most 2W. So N ≤ 4W(2W + 2), and (2W + 1)² ≥ 1 + N/2. Theorem 4.2's other form is larger
    up to about N = 3·10^27, because it counts the layers' signs with their own parameters, but pays a logarithm of N.

    >>> quadratic_parameters(10**4), quadratic_parameters(10**6)
    (35, 354)
    """
    check_counts(N=N)
    # W ≥ (√(1 + N/2) − 1)/2: the least W with 8W(W + 1) ≥ N
    W = isqrt(N // 8)
    while 8 * W * (W + 1) < N:
        W += 1
    return max(1, W)


@implements(
    Ref("S97", "Theorem 1"),
    statement="shattering every set of N points in general position needs (N - 1)/2 parameters",
    test=TEST,
    partly="cited, not proved here",
)
def general_position_parameters(N: int) -> int:
    """Sontag's bound for points that may lie arbitrarily close together: W ≥ (N − 1)/2.

    It holds for networks of ReLU, sigmoid and threshold units and any fixed shape. KS25, like this library, requires
    every labelling of points that are at least δ apart, so √N is possible. Where δ is exponentially small in N,
    linearly many are needed again: `close_points_parameters`.

    >>> [general_position_parameters(N) for N in (1, 2, 3, 1000)]
    [1, 1, 1, 500]
    """
    check_counts(N=N)
    return max(1, N // 2)


@implements(
    Ref("SI24", "Theorem 1"),
    statement="where δ is exponentially small in N, memorizing every N points at distance δ needs Ω(N) parameters; "
    "with our own proof and constants, as a number for any N and r/δ",
    test=TEST,
)
def close_points_parameters(N: int, spread_squared: Exact) -> int:
    """Bound the parameters of one shape of network for every labelling of *every* N points of norm r that are δ apart.

    Notation: spread_squared = (r/δ)², W parameters, U ≤ W/2 hidden units (each has a weight and a bias),
    V = ⌊2r/δ⌋ + 1 points on a line, δ apart; rows are sequences of equal tokens there, on which attention is
    linear.

    The statement is Siegel's, proof and constants are ours. Choose p = ⌊N/2⌋ of the ⌊V/2⌋ disjoint neighbouring
    pairs on the line and label the left point 0 and the right point 1. For each of the binom(⌊V/2⌋, p) choices some
    parameters make the output cross the threshold inside every chosen pair. Along the line the output has at most
    2^U linear pieces, each of which crosses once, so one pattern of signs on all V points serves at most binom(2^U,
    p) choices. Hence there are at least (⌊V/2⌋/2^U)^p patterns. On the other hand the patterns are determined by the
    signs of V·(U + 1)·2^U polynomials of degree at most W in W variables (one for each point, unit and state of the
    units before), so Lemma B.4 allows (8e·V·(U + 1)·2^U)^W of them:

        p·(log2⌊V/2⌋ − W/2) ≤ W·(log2 V + W/2 + log2(W/2 + 1) + log2 8e)

    As δ falls, this tends to W ≥ N/2, Sontag's bound; for r/δ polynomial in N it gives nothing beyond √N.

    >>> [close_points_parameters(1000, 4**k) for k in (10, 100, 1000, 10**5)]
    [19, 120, 348, 498]
    """
    check_counts(N=N)
    V = isqrt(max(0, floor(4 * Fraction(spread_squared)))) + 1
    p = min(N, V) // 2
    if p == 0:
        return 1
    inside, every, constant = log2_down(max(1, V // 2)), log2_up(V), log2_up(8 * E_UP)

    def may(W: int) -> bool:
        units = W // 2
        return p * (inside - units) <= W * (every + units + log2_up(units + 1, 40) + constant)

    low, high = 0, N + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if may(middle) else (middle, high)
    return high


def seq_to_seq_root(N: int, n: int, C: int = 2, labels: int | None = None) -> Fraction:
    """Theorem 4.3's bound before it is rounded up to an integer: 4(√(1 + T/2) − 1)."""
    return 4 * (root_down(1 + _seq_to_seq_load(N, n, C, labels) / 2) - 1)


@implements(
    Ref("KS25", "Theorem 4.3"),
    statement="seq-to-seq, hardmax: W ≥ 4(√(1 + T/2) − 1), T = nN/log2(8en³N), for every labelling of nN tokens. "
    "The paper states the order, and its proof nN ≤ 9W²·log2(48enN); these constants are byheart's",
    test=TEST,
)
@implements(Ref("KS25", "Theorem B.3"), statement="Theorem 4.3 restated; the constants are byheart's", test=TEST)
def seq_to_seq_parameters(N: int, n: int, C: int = 2, labels: int | None = None) -> int:
    """The smallest W that Theorem 4.3 allows: nN ≤ W̄·log2(8en³N) and W̄ ≤ W + W²/8 (the paper: 48e and 3W²).

    A causal mask removes comparisons from eq. (78), so the bound holds for causal attention as well. Where only
    `labels` of the nN tokens have separate labels, these replace nN on the left.
    """
    if C == 1:
        return 1
    # W + W²/8 ≥ T  ⟺  (W + 4)² ≥ 16 + 8T
    return max(1, sqrt_up(16 + 8 * _seq_to_seq_load(N, n, C, labels)) - 4)


@implements(
    Ref("KS25", "Remark 4.3"),
    statement="the dependence on d is unavoidable: a network that distinguishes all tokens of dimension d, which enter "
    "as vectors, has at least d + 1 parameters",
    test=TEST,
)
def input_parameters(d: int) -> int:
    """d + 1: a weight for every number of a token, and one to answer with.

    The first matrix has a column for each of the d numbers. A column of zeros makes two tokens that differ in this
    number alone the same token, so a shape that serves all data sets has at least one weight per column, and E_out
    has one more. A feed-forward network that reads a row of n tokens as one vector has d·n columns, and needs d·n + 1
    parameters for the same reason; a Transformer shares its weights among tokens.

    >>> input_parameters(768)
    769
    """
    check_counts(d=d)
    return d + 1


@implements(
    Ref("V22", "bounded depth"),
    statement="Õ(N/L) is optimal: with L hidden layers, (L + 1)·W·log2(8eN(C−1)W²) ≥ N·log2 C parameters W are needed, "
    "from the VC dimension O(WL log W) of Bartlett et al. 2019",
    test=TEST,
)
def bounded_depth_parameters(N: int, depth: int, C: int = 2) -> int:
    """The least number of parameters of a chain of `depth` hidden layers that stores every labelling of N points.

    Layer by layer, the cells of the layers before are divided by the signs of at most N·W polynomials of degree at
    most W in at most W variables, so Lemma B.4 allows (8eNW²)^W times as many cells, and as often for the answer.

    >>> [bounded_depth_parameters(10**6, L) for L in (1, 10, 100, 1000)]
    [9824, 1966, 246, 30]
    """
    check_counts(N=N, depth=depth, C=C)
    if C == 1:
        return 1
    need = N * log2_down(C)

    def may(W: int) -> bool:
        return W > N or (depth + 1) * W * log2_up(8 * E_UP * N * (C - 1) * W * W, 40) >= need

    low, high = 0, N + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if may(middle) else (middle, high)
    return high


def any_chain_parameters(N: int, C: int = 2) -> int:
    """The least number of parameters of *any* chain of layers that stores every labelling of N separate points.

    Theorem 4.2 counts attention in every block, as eq. (4) has it. A network whose blocks have no attention
    (`compact`, `native`, the plain form, deep sets) stores fewer numbers per layer, so the constant is smaller:
    with at least two parameters per hidden unit, W̄ ≤ W(W+6)/4, no degree above the number of parameters before it,
    N·log2 C ≤ W̄·log2(4eN·max(W, 2(C−1))). Where every token has a label and attention is uniform, N is the number
    of all labels, because uniform attention is linear in the whole sequence.

    >>> any_chain_parameters(10**4), any_chain_parameters(10**6)
    (40, 352)
    """
    if C == 1:
        return 1
    need = N * log2_down(C)

    def may(W: int) -> bool:
        # 40 digits: the search evaluates this dozens of times
        return W > N or Fraction(W * (W + 6), 4) * log2_up(4 * E_UP * N * max(W, 2 * (C - 1)), 40) >= need

    low, high = 0, N + 1  # low is impossible, high is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if may(middle) else (middle, high)
    return high


def _next_token_load(N: int, C: int) -> Fraction:
    """T = N·log2 C/log2(32e(C−1)N/3), rounded down."""
    check_counts(N=N, C=C)
    return _load(N, C, 32 * E_UP * (C - 1) * N / 3)


def _seq_to_seq_load(N: int, n: int, C: int, labels: int | None) -> Fraction:
    """T = nN·log2 C/log2(8e(C−1)n³N), rounded down."""
    check_counts(N=N, n=n, C=C, labels=labels)
    return _load(n * N if labels is None else labels, C, 8 * E_UP * (C - 1) * n**3 * N)


def _load(labels: int, C: int, patterns: Exact) -> Fraction:
    return labels * log2_down(C) / log2_up(patterns) if C > 1 else Fraction(0)


def check_counts(**counts: int | None) -> None:
    """An OptionError for a count that is not a positive integer."""
    for name, value in counts.items():
        if value is not None and (type(value) is not int or value < 1):
            raise OptionError(f"{name} = {value!r}: give an integer of at least 1")


# Up to it binomials are exact; beyond, they are bounded.
_EXACT_BINOMIAL = 20_000


@implements(
    Ref("KS25", "Remark 4.4"), statement="N labels of C classes need N·log2 C bits, whatever the network", test=TEST
)
@implements(Ref("KS25", "Remark 4.6"), statement="nN labels need nN·log2 C bits", test=TEST)
def total_bits(labels: int, C: int, zeros: int = 0) -> int:
    """⌈labels·log2 C⌉; with `zeros` further points that must answer 0, any of which could have been labelled,
    log2 binom(labels + zeros, labels) more."""
    check_counts(labels=labels, C=C)
    if zeros < 0:
        raise OptionError(f"zeros = {zeros}: give 0 or more")
    if not zeros:
        return power_at_least(C, labels)
    digits = 64 + labels.bit_length()
    return ceil(labels * log2_down(C, digits) + log2_binomial_down(labels + zeros, labels))


def bits_per_parameter(labels: int, C: int, parameters: int) -> int:
    """The least bits of a parameter when there are W of them: ⌈labels·log2 C / W⌉.

    >>> bits_per_parameter(10**4, 16, 2238)
    18
    """
    check_counts(parameters=parameters)
    return -(-total_bits(labels, C) // parameters)


def log2_binomial_down(V: int, N: int) -> Fraction:
    """A fraction at most log2 binom(V, N): exact digits for small V, else
    binom(V, N) ≥ √(V/(8N(V−N))) · 2^(V·h(N/V)).

    >>> float(log2_binomial_down(10, 5)) == __import__("math").log2(252)
    True
    """
    if not 0 <= N <= V:
        raise OptionError(f"binom({V}, {N}): need 0 <= N <= V")
    if N in (0, V):
        return Fraction(0)
    if V <= _EXACT_BINOMIAL:
        return log2_down(comb(V, N))
    digits = 64 + V.bit_length()  # the three products below cancel to a much smaller number
    entropy = V * log2_down(V, digits) - N * log2_up(N, digits) - (V - N) * log2_up(V - N, digits)
    return max(Fraction(0), entropy - log2_up(Fraction(8 * N * (V - N), V)) / 2)
