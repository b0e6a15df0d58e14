"""How many bits any memory needs: it must have at least as many states as there are labellings.

The argument of KS25's Remarks 4.4 and 4.6. W parameters of B bits each (sign and binary point included) have 2^(WB)
states, so W·B ≥ log2(number of labellings).

    >>> total_bits(1000, 10), total_bits(1000, 10, zeros=4000)
    (3322, 6926)
"""

from __future__ import annotations

from fractions import Fraction
from math import comb

from byheart.errors import OptionError
from byheart.paper import Ref, implements
from byheart.theory.lower import check_counts
from byheart.theory.rounding import ceil, log2_down, log2_up, power_at_least

TEST = "tests/theory/test_bits.py"
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
