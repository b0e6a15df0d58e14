"""Rank and Kruskal rank of ψ(a bᵀ), the heart of Theorem 5, with proofs instead of tolerances.

For polynomial ψ everything is rational: the rank comes from elimination over fractions. For the analytic activations
the entries are balls, and a pivot or a determinant that excludes 0 proves independence.

A correction: the paper requires that b's entries are nonzero and distinct, and argues that minors of a Vandermonde
matrix with such roots do not vanish. With gaps in the exponents they do: ψ(x) = x + x³ and b = (1, -1) give ψ(a bᵀ) of
rank 1, and with exponents {0, 1, 3} already b = (1, 2, -3) is enough. For *positive* distinct entries generalized
Vandermonde minors are positive and the theorems hold; the constructions sample positive numbers.

    >>> [polynomial_rank({1: 1, 3: 1}, a=[1, 2, 3], b=[1, other]).rank for other in (2, -1)]
    [2, 1]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

from byheart.errors import OptionError
from byheart.exact.rigor import ball, precision
from byheart.ir.decoder import Activation
from byheart.paper import Ref, implements

Exact = int | Fraction
SUBSETS = 20_000  # how many sets of columns a Kruskal rank may look at


@dataclass(frozen=True)
class RankFacts:
    """The measured rank of ψ(a bᵀ), and the theorem's guarantee for generic a.

    `kruskal` is the largest k such that every k columns are independent. `assumption` states whether b is positive and
    distinct; the theorem speaks only then.
    """

    rank: int
    kruskal: int
    guaranteed: int
    assumption: bool

    @property
    def holds(self) -> bool:
        return self.rank == self.guaranteed and self.kruskal == self.guaranteed


@implements(
    Ref("M24", "Theorem 2"),
    statement="ψ(a bᵀ) of a polynomial ψ with k monomials has rank and Kruskal rank min(m, n, k) for generic a; "
    "b distinct and positive (nonzero, as the paper has it, is not enough)",
    test="tests/theory/test_rank.py",
)
def polynomial_rank(coefficients: Mapping[int, Exact], a: Sequence[Exact], b: Sequence[Exact]) -> RankFacts:
    """Exact rank and Kruskal rank of ψ(a bᵀ) for ψ(x) = Σ coefficients[k]·x^k.

    Notation: K = the exponents with a nonzero coefficient, m = len(a), n = len(b).
    """
    terms = {k: Fraction(c) for k, c in coefficients.items() if c}
    if any(k < 0 for k in terms):
        raise OptionError(f"exponents {sorted(terms)} must not be negative")
    rows = [[sum((c * (Fraction(x) * y) ** k for k, c in terms.items()), Fraction(0)) for y in b] for x in a]
    rank = _rank(rows)
    kruskal = next((k for k in range(rank, 0, -1) if all(_rank(s) == k for s in _columns(rows, k))), 0)
    return RankFacts(rank, kruskal, min(len(a), len(b), len(terms)), _positive(b))


@implements(
    Ref("M24", "Theorem 3"),
    statement="ψ(a bᵀ) of an analytic ψ that is not a polynomial has rank and Kruskal rank min(m, n) for generic a "
    "near 0; b distinct and positive",
    test="tests/theory/test_rank.py",
)
def analytic_rank(activation: Activation, a: Sequence[float], b: Sequence[float], bits: int = 256) -> RankFacts:
    """Proved lower bounds of rank and Kruskal rank of ψ(a bᵀ), by balls of `bits` bits.

    Numbers are taken as the exact dyadics they are. A bound below the guarantee means: not proved with this many bits,
    or a is not generic.
    """
    with precision(bits):
        rows = [[activation.ball(ball(x) * ball(y)) for y in b] for x in a]
        rank = _proved_rank(rows)
        kruskal = next((k for k in range(rank, 0, -1) if all(_proved_rank(s) >= k for s in _columns(rows, k))), 0)
    return RankFacts(rank, kruskal, min(len(a), len(b)), _positive(b))


def _positive(b: Sequence[Any]) -> bool:
    return all(y > 0 for y in b) and len(set(b)) == len(b)


def _columns(rows: list[list[Any]], k: int) -> list[list[list[Any]]]:
    """The matrix restricted to every set of k columns."""
    n = len(rows[0])
    if math.comb(n, k) > SUBSETS:
        raise OptionError(
            f"{math.comb(n, k)} sets of {k} among {n} columns are too many for a Kruskal rank; use fewer columns"
        )
    return [[[row[j] for j in chosen] for row in rows] for chosen in combinations(range(n), k)]


def _rank(rows: list[list[Fraction]]) -> int:
    """Gaussian elimination over fractions."""
    work, rank = [row[:] for row in rows], 0
    for column in range(len(work[0])):
        pivot = next((i for i in range(rank, len(work)) if work[i][column]), None)
        if pivot is None:
            continue
        work[rank], work[pivot] = work[pivot], work[rank]
        for i in range(rank + 1, len(work)):
            factor = work[i][column] / work[rank][column]
            work[i] = [x - factor * y for x, y in zip(work[i], work[rank], strict=True)]
        rank += 1
    return rank


def _proved_rank(rows: list[list[Any]]) -> int:
    """Elimination over balls with complete pivoting: the number of pivots that exclude 0."""
    work = [row[:] for row in rows]
    columns = list(range(len(work[0])))
    for rank in range(min(len(work), len(columns))):
        i, j = max(
            ((i, j) for i in range(rank, len(work)) for j in range(rank, len(columns))),
            key=lambda place: float(work[place[0]][place[1]].abs_lower()),
        )
        if not work[i][j].abs_lower() > 0:
            return rank
        work[rank], work[i] = work[i], work[rank]
        for row in work:
            row[rank], row[j] = row[j], row[rank]
        for i in range(rank + 1, len(work)):
            factor = work[i][rank] / work[rank][rank]
            work[i] = [x - factor * y for x, y in zip(work[i], work[rank], strict=True)]
    return min(len(work), len(columns))
