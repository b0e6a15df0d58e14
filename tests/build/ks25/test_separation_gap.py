"""The gap in the proof of KS25's Lemma B.2, and its repair: every step that docs/errata.md states, in exact arithmetic.

Two sequences of one length can have restrictions of different sizes. Lemma B.2 shifts its integers to make them
positive, which adds shift·|m| to the sum of a multiset m, and sums that differed can become equal.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from math import isqrt
from pathlib import Path

import numpy as np
import pytest

import byheart
from byheart.build.ks25.sequence_ids import Multisets, distinguishing_tokens, largest_weight, token_weights
from byheart.build.shared.projection import Constants
from byheart.theory.rounding import PI_DOWN, PI_UP

P, Q, Z = 0, 1, 2
ROWS = {"two tokens": [(P, Z), (Q, Q), (Z, Z)], "three tokens, one last token": [(P, Z, Z), (Q, Q, Z), (Z, Z, Z)]}
CHOSEN = (P, Q)
N, SIZE = 3, len(CHOSEN)
DIRECTION = (Fraction(351, 449), Fraction(-280, 449))
ROUNDED_UP = (Fraction(4, 5), Fraction(-3, 5))  # collides where the shift is rounded up instead of down


def restricted(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The counts of the chosen tokens in each sequence."""
    return [tuple(row.count(token) for token in CHOSEN) for row in rows]


def ceiling(square: Fraction) -> int:
    """⌈√square⌉."""
    root = isqrt(square.numerator // square.denominator)
    return root if root * root >= square else root + 1


def scaled(factor: Fraction, rounding: str) -> int:
    """factor·N²|S|√π rounded up or down; both enclosures of π must agree."""
    size = abs(factor) * N**2 * SIZE
    up = {ceiling(size**2 * pi) for pi in (PI_DOWN, PI_UP)}
    assert len(up) == 1, "π is not known precisely enough"
    (magnitude,) = up
    upwards = (rounding == "up") == (factor > 0)
    return (1 if factor > 0 else -1) * (magnitude if upwards else magnitude - 1)


def integers(direction: tuple[Fraction, Fraction], rounding: str = "down") -> list[int]:
    """f = h + shift of the paper's proof: h rounds N²|S|√π·v up, the shift is 2N²|S|√π rounded."""
    shift = scaled(Fraction(2), rounding)
    return [scaled(v, "up") + shift for v in direction]


def admissible(direction: tuple[Fraction, Fraction], counts: list[tuple[int, ...]]) -> bool:
    """Eq. (20): |v·Δ| ≥ N⁻²·√(8/π|S|)·‖Δ‖ for every two counts, squared; |v·Δ| ≤ ‖Δ‖ holds for unit vectors."""
    for one, other in combinations(counts, 2):
        difference = [a - b for a, b in zip(one, other, strict=True)]
        projected = sum(v * x for v, x in zip(direction, difference, strict=True))
        least = Fraction(8 * sum(x * x for x in difference), N**4 * SIZE) / PI_DOWN
        if projected**2 < least:
            return False
    return True


def sums(counts: list[tuple[int, ...]], weights: list[int]) -> list[int]:
    return [sum(c * w for c, w in zip(row, weights, strict=True)) for row in counts]


@pytest.mark.parametrize("name", ROWS)
def test_the_printed_proof_gives_two_multisets_one_sum(name):
    counts = restricted(ROWS[name])
    assert counts == [(1, 0), (0, 2), (0, 0)] and len(set(counts)) == N, "Lemma B.1 allows A = {p, q}"
    assert sum(v * v for v in DIRECTION) == 1 and admissible(DIRECTION, counts)
    h = [scaled(v, "up") for v in DIRECTION]
    assert h == [25, -19] and len(set(sums(counts, h))) == N, "without the shift the sums differ"
    f = integers(DIRECTION)
    assert f == [88, 44] and all(1 <= value <= ceiling(Fraction((4 * N**2 * SIZE) ** 2) * PI_DOWN) for value in f)
    assert sums(counts, f) == [88, 88, 0]


def test_a_shift_that_is_rounded_up_does_not_close_the_gap():
    """The text shows neither floor nor ceiling clearly, so both readings have a counterexample."""
    counts = restricted(ROWS["two tokens"])
    assert sum(v * v for v in ROUNDED_UP) == 1 and admissible(ROUNDED_UP, counts)
    assert [scaled(v, "up") for v in ROUNDED_UP] == [26, -19] and integers(ROUNDED_UP, "up") == [90, 45]
    assert sums(counts, integers(ROUNDED_UP, "up")) == [90, 90, 0]
    assert len(set(sums(counts, integers(ROUNDED_UP)))) == len(set(sums(counts, integers(DIRECTION, "up")))) == N


def test_the_direction_as_it_was_reported():
    """(0.7792, −0.6268) has norm 1.00002; scaled to norm 1 it gives the same integers."""
    direction = np.array([0.7792, -0.6268])
    direction /= np.linalg.norm(direction)
    size = N**2 * SIZE * np.sqrt(np.pi)
    assert [int(np.ceil(size * v)) + int(2 * size) for v in direction] == [88, 44]


def rational_directions(steps: int) -> list[tuple[Fraction, Fraction]]:
    """Unit vectors with rational coordinates in all four quadrants, from t = k/steps."""
    halves = [Fraction(k, steps) for k in range(1, steps)]
    circle = [((1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)) for t in halves]
    return [(a * x, b * y) for (x, y), a, b in product(circle, (1, -1), (1, -1))]


@pytest.mark.parametrize("rounding", ["down", "up"])
def test_collisions_are_rare_but_not_an_accident(rounding):
    """Whichever way the shift is rounded, some admissible directions collide and most do not."""
    counts = restricted(ROWS["two tokens"])
    allowed = [v for v in rational_directions(300) if admissible(v, counts)]
    colliding = [v for v in allowed if len(set(sums(counts, integers(v, rounding)))) < N]
    assert 0 < len(colliding) < len(allowed) / 50


def test_the_shares_on_the_page_are_counted():
    """400,000 directions, evenly spaced, in floating point: the percentages of docs/errata.md."""
    counts = np.array(restricted(ROWS["two tokens"]), dtype=float)
    angles = 2 * np.pi * np.arange(400_000) / 400_000
    directions, size = np.stack([np.cos(angles), np.sin(angles)], axis=1), N**2 * SIZE * np.sqrt(np.pi)
    differences = np.array([one - other for one, other in combinations(counts, 2)])
    least = np.sqrt(8 / (np.pi * SIZE)) / N**2 * np.linalg.norm(differences, axis=1)
    allowed = directions[(np.abs(directions @ differences.T) >= least).all(axis=1)]
    page = (Path(__file__).parents[3] / "docs" / "errata.md").read_text(encoding="utf-8")
    for rounded in (np.floor, np.ceil):
        f = np.ceil(size * allowed) + rounded(2 * size)
        share = 100 * np.mean((f @ differences.T == 0).any(axis=1))
        assert f"{share:.2f} %" in page


def test_with_one_last_token_the_contexts_collide_too():
    """Eq. (55): equal last tokens and equal sums are one context, so no label memory can give two labels."""
    rows = ROWS["three tokens, one last token"]
    phi = dict(zip(CHOSEN, integers(DIRECTION), strict=True))
    contexts = [(phi.get(row[-1], 0), row[-1], sum(phi.get(token, 0) for token in row)) for row in rows]
    assert contexts[0] == contexts[1] and sorted(rows[0]) != sorted(rows[1])


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("constants", Constants)
def test_the_repair_separates_them(name, constants):
    multisets = Multisets.of(np.array(ROWS[name]))
    assert len(distinguishing_tokens(multisets)) <= N - 1
    weights, found = token_weights(multisets, CHOSEN, constants)
    assert len(set(found.tolist())) == N and all(1 <= weight <= largest_weight(N) for weight in weights)


def test_the_theorem_holds_for_the_counterexample():
    """All labellings, positions off, in both forms: the repaired network is proved."""
    rows = [["pqz"[token] for token in row] for row in ROWS["three tokens, one last token"]]
    for labels in ([0, 1, 0], [0, 1, 2]):
        for form in ("plain", "residual"):
            options = {"form": form, "constants": "paper", "positions": False, "progress": False}
            memory = byheart.memorize(rows, labels, construction="ks25", **options)
            assert memory.certificate.verdict == "proved" and list(memory.predict(rows)) == labels


def test_the_constants_of_the_theorems_cover_the_repaired_integers():
    """N(N−1)/2 + 1 is below C_φ and below Theorem E.1's range, whose R covers its outputs with r = δ = 1."""
    for count, omega, n in product(range(1, 25), range(1, 60), (1, 2, 5)):
        few = min(omega, count)
        printed = ceiling(Fraction((4 * count**2 * few) ** 2) * PI_UP)  # ⌈4N²√π·min{ω, N}⌉
        assert largest_weight(count) <= printed, (count, omega)
        # ‖(f, x, mean)‖ ≤ 2⌈4N²√π·min{ω, N}⌉ + ω, and R/(20·N²·n·√(3π)) = 10·n·N³·ω·√π
        assert (2 * printed + omega) ** 2 <= (10 * n * count**3 * omega) ** 2 * PI_DOWN, (count, omega, n)


def test_lemma_b2_holds_as_it_is_stated():
    """The repaired integers times ⌈√|S|⌉ keep the stated range and separation, for every N and |S| of a grid."""
    for count, size in product(range(1, 40), range(1, 60)):
        stretched = largest_weight(count) * ceiling(Fraction(size))
        assert stretched <= isqrt(int(16 * count**4 * size**2 * PI_DOWN)), (count, size)


def test_eq_55_needs_the_maximum():
    """The printed minimum is 0 for permutations with different last tokens (equal means), and for different multisets
    with one last token (equal F)."""
    found = byheart.contextual_mapping(["pq", "qp"])
    assert found.certificate.verdict == "proved"
    assert found.sequence_ids[0] == found.sequence_ids[1], "the difference of means, and the printed minimum, is 0"
    assert found.context_ids[0][1] != found.context_ids[1][1], "the last tokens separate the contexts all the same"
    found = byheart.contextual_mapping(["pq", "qq"])
    assert found.certificate.verdict == "proved" and found.sequence_ids[0] != found.sequence_ids[1]
    assert found.context_ids[0][1] != found.context_ids[1][1], "one last token, one F: the sums separate the contexts"
