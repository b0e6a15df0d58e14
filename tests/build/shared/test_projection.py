from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from byheart.build.shared.projection import Constants, KeyLine, project
from byheart.errors import BuildError
from byheart.exact.number import Values
from tests.build.ks25.lemmas import measured, projection
from tests.naive import run


def cloud(count: int, d: int, seed: int = 0, grid: int = 16, span: int = 64) -> Values:
    rng = random.Random(seed)
    found: set[tuple[int, ...]] = set()
    while len(found) < count:
        found.add(tuple(rng.randint(-span * grid, span * grid) for _ in range(d)))
    return Values.of(sorted(found), grid)


def check(line: KeyLine, points: Values) -> None:
    keys = [Fraction(n, line.denominator) for n in line.numerators]
    assert min(keys) >= 2 and line.gap >= 2 and len(keys) == points.count
    layers = projection(line)
    for i in range(0, points.count, max(1, points.count // 7)):
        assert run(layers, points.row(i)) == [keys[i]]
    assert measured(layers) <= (1, 2, line.bits)


@pytest.mark.parametrize("constants", Constants)
@pytest.mark.parametrize("count,d", [(1, 1), (1, 3), (2, 1), (2, 2), (9, 1), (30, 2), (60, 4), (100, 16)])
def test_apart_and_within_the_paper_range(count: int, d: int, constants: Constants) -> None:
    points = cloud(count, d, seed=count)
    delta2 = Fraction(1, 256)
    line = project(points, delta2, constants)
    check(line, points)
    r = max(1.0, max(math.sqrt(sum(x * x for x in points.row(i))) for i in range(count)))
    assert line.top <= 20 * r * count**2 * math.sqrt(math.pi * d) / math.sqrt(delta2)
    assert line.bits <= max(2, math.log2(3 * d * r * count**2 * math.sqrt(math.pi) / math.sqrt(delta2))) or (
        constants is Constants.MEASURED and line.bits <= 2 * line.top.bit_length()
    )


def test_measured_needs_fewer_bits_than_the_paper() -> None:
    points = cloud(200, 4)
    paper, found = (project(points, Fraction(1, 256), c).top.bit_length() for c in Constants)
    assert found <= paper - 6


def test_symbols_with_positions_are_digits_of_a_number() -> None:
    points = Values.of([[code, place] for code in range(26) for place in range(8)])
    assert project(points, Fraction(1), Constants.MEASURED).top == 2 * 26 * 8


def test_far_away_and_tiny() -> None:
    for points, delta2 in (
        (Values.of([[2**70], [2**70 + 1]]), Fraction(1)),
        (Values.of([[1, 0], [2, 0], [0, 2**40]], 2**600), Fraction(1, 2**1200)),
        (Values.of([[0], [1], [2**1100]], 2**500), Fraction(1, 2**1000)),
    ):
        for constants in Constants:
            check(project(points, delta2, constants), points)


def test_same_seed_same_line() -> None:
    points = cloud(40, 3)
    assert project(points, Fraction(1, 256), Constants.MEASURED, 5) == project(
        points, Fraction(1, 256), Constants.MEASURED, 5
    )


def test_equal_points_are_refused() -> None:
    with pytest.raises(BuildError, match="apart"):
        project(Values.of([[1], [1]]), Fraction(1), Constants.PAPER)


def test_many_tokens() -> None:
    points = cloud(16_000, 16)
    line = project(points, Fraction(1, 256), Constants.MEASURED)
    check(line, points)
