"""The other rows of KS25's Table 1, and byheart's own, as formulas that give numbers.

Where a paper states its count, the row is that count. Where it states only an order, the row is our reconstruction
or the order with constant 1, marked by `proved` = False.

    >>> [row.name for row in rows(Problem("next-token", N=100, n=4, d=8))][:3]
    ['Nilsson 1965', 'Baum 1988', 'Park 2021']

How large byheart's own memories are expected to become are estimates, checked against builds, not theorems.

    >>> abs(compact_estimate(10**4, 2) - 527) < 20, abs(native_estimate(10**5, 2) - 17319) < 2500
    (True, True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, e, floor, log, log2, pi, sqrt

from byheart.data.task import Task
from byheart.paper import Ref
from byheart.theory.guarantees.table1 import park_parameters
from byheart.theory.madden import averaging_parameters, decoder_parameters
from byheart.theory.problem import Problem
from byheart.theory.theorems import HEAD
from byheart.theory.upper import STREAM, PointSet, dense_blocks, feed_forward_memory

_WARM_UP = 30  # hash steps before bits are used
_BUCKETS = 16  # buckets that one selector block distinguishes
_WORD = 44  # longest word that float64 scans exactly


def compact_estimate(entries: int, classes: int) -> int:
    """Dense parameters of the label memory: the smaller of traps and walk, at the rates of a beam of 80 and 200.

    m groups and L folds cost 3m + 4L; a group of n ids needs n·log2 C = rate·L. The walk folds the length of ids too.
    """
    bits = log2(max(classes, 2))
    groups = sqrt(4 / 3 * entries * bits / 1.65)
    traps = 2 * sqrt(12 * entries * bits / (1.72 - 0.1 * (bits - 1))) + 5 + 5 * (classes if classes > 2 else 0)
    tail = max(2.0, 2 * log2(entries + 1) + 4 - log2(groups + 1))
    width = log2(entries / groups + 2)
    reading = min(2.0 * classes, 4 * (bits + width + 3) + 2)
    walk = 2 * sqrt(12 * entries * (bits + 0.1) / 1.64) + 2 * tail + 4 * width + reading
    return ceil(min(traps, walk) if classes <= 16 else walk)


def compact_transformer_estimate(contexts: int, classes: int) -> int:
    """The whole one-number Transformer: some folds that hash tokens, attention, the memory, E_in and E_out."""
    return compact_estimate(contexts, classes) + ceil(2 * log2(contexts + 1)) + 6


def native_estimate(entries: int, classes: int) -> int:
    """Dense parameters of the float64-native memory: hash chain, selector of 2^g buckets, a scan of Z words.

    A bucket must hold its mean load and about three deviations in Z words of at most 44 levels.
    """
    c = max(1, ceil(log2(max(classes, 2))))
    best = None
    for g in range(max(1, ceil(log2(entries + 1))) + 1):
        mean = entries / 2**g
        load = mean + 3.1 * sqrt(mean)
        words = max(1, ceil(load / (_WORD - 1)))
        levels = floor(load / words) + 2
        stream = 2 + c * words
        chain = (_WARM_UP + g) * (4 * stream + 2 + stream)
        selector = ceil(2**g / _BUCKETS) * (2 * stream * (_BUCKETS + 1) + _BUCKETS + 1 + stream)
        scan = words * levels * ((2 + c) * (2 * stream + 1) + stream)
        dense = chain + selector + scan
        best = dense if best is None else min(best, dense)
    return best or 1


_ONE_LABEL = (Task.NEXT_TOKEN,)
_PER_TOKEN = (Task.SEQ_TO_SEQ,)
_ALL = tuple(Task)


@dataclass(frozen=True)
class FormulaRow:
    """A construction of the literature: its tasks, its number of parameters, its formula, its assumptions."""

    name: str
    ref: Ref
    tasks: tuple[Task, ...]
    formula: str
    assumptions: tuple[str, ...]
    proved: bool
    parameters: Callable[[Problem], int | None]  # None where the construction does not apply


def rows(problem: Problem) -> list[FormulaRow]:
    """The rows that apply to the problem's task and numbers."""
    return [row for row in TABLE if problem.kind in row.tasks and row.parameters(problem) is not None]


def _nilsson(p: Problem) -> int:
    return (p.N - 1) * (p.d * p.n + 2) + 1


def _baum(p: Problem) -> int | None:
    if p.C > 2:
        return None
    width = p.d * p.n
    hidden = 2 * -(-(p.N // 2) // width)
    return hidden * (width + 1) + hidden + 1


def _park(p: Problem) -> int:
    return park_parameters(PointSet(p.N, p.d * p.n, p.n * p.r_squared, p.delta_squared), p.C)


def _vardi(p: Problem) -> int:
    flat = PointSet(p.N, p.d * p.n, p.n * p.r_squared, p.delta_squared)
    return feed_forward_memory(flat, p.N, p.C).parameters


def _mahdavi(p: Problem) -> int | None:
    rank = min(p.n, p.d)
    if rank < 2:
        return None
    heads = -(-max(p.N - 1, 1) // (rank - 1))
    return heads * 4 * p.d * p.d


def _boltzmann(p: Problem) -> int:
    hidden = max(p.n * p.N - 1, 1)
    return 4 * p.d * p.d + 2 * p.d * hidden + hidden + p.d


def _kim(p: Problem) -> int:
    rounds = 2 * p.n * (4 * HEAD * STREAM + dense_blocks(1))
    ids = PointSet(p.n * p.N, 1, 4 * p.r_squared * p.n**4 * p.N**4, p.delta_squared)
    return rounds + feed_forward_memory(ids, p.n * p.N, p.C).parameters + STREAM * p.d


def _madden(p: Problem) -> int | None:
    return None if p.omega is None or p.omega < 2 else decoder_parameters(p.labels, p.omega, p.n)


def _madden_average(p: Problem) -> int | None:
    return None if p.omega is None or p.omega < 2 else averaging_parameters(p.labels, p.omega, p.n)


_SEPARATED = "tokens are (r, δ)-separated"
_FLAT = "a feed-forward network on the flattened sequence of d·n numbers"
_OWN = "an estimate from measured builds, not a theorem; the built network is certified"

TABLE: tuple[FormulaRow, ...] = (
    FormulaRow("Nilsson 1965", Ref("N65", "one hidden layer"), _ONE_LABEL, "(N−1)(dn+2) + 1", (_FLAT,), True, _nilsson),
    FormulaRow(
        "Baum 1988",
        Ref("B88", "Theorem 1"),
        _ONE_LABEL,
        "h(dn+1) + h + 1, h = 2⌈⌊N/2⌋/(dn)⌉ threshold units",
        (_FLAT, "two classes", "points in general position", "threshold units"),
        True,
        _baum,
    ),
    FormulaRow(
        "Park 2021",
        Ref("P21", "Theorem 1"),
        _ONE_LABEL,
        "10 per group, word and halving, 12 per layer that reads a word, + dn; order N^(2/3) + log(r/δ)",
        (_FLAT, _SEPARATED, "our reconstruction; the paper states the order"),
        False,
        _park,
    ),
    FormulaRow(
        "Vardi 2022",
        Ref("V22", "Theorem 3.1"),
        _ONE_LABEL,
        "Lemma C.1's sum on sequences as points of dimension dn: 12·13 per layer, 12·dn for the input",
        (_FLAT, _SEPARATED),
        True,
        _vardi,
    ),
    FormulaRow(
        "Kim 2023",
        Ref("K23", "Theorem 3.1"),
        _PER_TOKEN,
        "2n blocks of attention + Lemma C.1's sum on nN contexts, Õ(n + √(nN))",
        (_SEPARATED, "our reconstruction; the paper states the order"),
        False,
        _kim,
    ),
    FormulaRow(
        "Mahdavi 2024",
        Ref("MA24", "Theorem 1"),
        _ONE_LABEL,
        "4d²·⌈(N−1)/(min(n,d)−1)⌉, O(d²N/n)",
        (
            "linearly independent tokens",
            "unlimited precision",
            "n ≥ 2 and d ≥ 2",
            "our count; the paper states the order",
        ),
        False,
        _mahdavi,
    ),
    FormulaRow(
        "Kajitsuka and Sato 2024",
        Ref("KS24", "Theorem 1"),
        _PER_TOKEN,
        "4d² + (2d+1)(nN−1) + d, O(dnN + d²)",
        (_SEPARATED, "one softmax head; parameters of unlimited precision", "our reconstruction"),
        False,
        _boltzmann,
    ),
    FormulaRow(
        "Madden 2024, attention",
        Ref("M24", "Theorem 5"),
        (Task.NEXT_TOKEN, Task.CAUSAL),
        "ωm + m(d+1) + 2m₀(d₀+d₁)d + (ω+T)d, m = contexts, d = m₀ = d₀ = d₁ = 1",
        ("stores arbitrary next-token distributions over ω tokens", "analytic activation", "unlimited precision"),
        True,
        _madden,
    ),
    FormulaRow(
        "Madden 2024, averaging",
        Ref("M24", "Theorem 7"),
        (Task.NEXT_TOKEN, Task.CAUSAL),
        "dω + T + dm + m + mω, m = contexts, d = 1",
        ("stores arbitrary next-token distributions over ω tokens", "analytic activation", "unlimited precision"),
        True,
        _madden_average,
    ),
    FormulaRow(
        "byheart compact",
        Ref("byheart", "compact"),
        _ALL,
        "3m + 4L + folds of the hash + 6, m·L·rate = contexts·log2 C",
        ("integers of any length", _OWN),
        False,
        lambda p: compact_transformer_estimate(p.labels, p.C),
    ),
    FormulaRow(
        "byheart native",
        Ref("byheart", "native"),
        _ALL,
        "hash chain + selector of 2^g buckets + scan of Z words",
        ("every weight and every value is exact in float64", _OWN),
        False,
        lambda p: native_estimate(p.labels, p.C),
    ),
)


def boltzmann_separation(n: int, d: int, words: int, r_min: float, r_max: float, epsilon: float) -> float:
    """log2 of the δ that KS24's Theorem 2 guarantees: a head of rank one is an (r, δ)-contextual mapping.

    Tokens of norm r_min to r_max that are ε apart, |V| = `words` of them, n different ones in a row:

        δ = 2 (ln n)² ε² r_min / (r_max² S) · exp(−S r_max² / (4 ε r_min)),   S = (|V| + 1)⁴ (2 ln n + 3) π d

    Quoted, not proved here (the paper was not available when this was written), so it is shown and nothing rests on it.

    >>> round(boltzmann_separation(n=8, d=4, words=10, r_min=1, r_max=2, epsilon=0.5))
    -3800431
    """
    size = (words + 1) ** 4 * (2 * log(n) + 3) * pi * d
    front = log2(2 * log(n) ** 2 * epsilon**2 * r_min / (r_max**2 * size))
    return front - size * r_max**2 / (4 * epsilon * r_min) * log2(e)
