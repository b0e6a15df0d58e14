"""Error terms: a simulator rounds as badly as the error model allows and stays inside; without a term it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from byheart.checkpoints.proof.attention import copied
from byheart.checkpoints.proof.bounds import Bounds, SymbolPart
from byheart.checkpoints.proof.copying import Copy
from byheart.checkpoints.proof.decoder import Linear
from byheart.checkpoints.proof.rounding import rotation_error, score_stores
from byheart.checkpoints.proof.slack import SLACKS, weakened
from byheart.checkpoints.proof.storage import FUNCTION_ERROR, U32, storage
from byheart.checkpoints.proof.units import sum_error

TYPES = ("bfloat16", "float16")


def worst_sum(products: np.ndarray, up: bool) -> float:
    """The largest terms first, every product and every partial sum rounded by u in one direction."""
    sign = 1.0 if up else -1.0
    terms = np.sort(np.abs(products))[::-1] * (1 + sign * U32)
    total = terms[0]
    for value in terms[1:]:
        total = (total + value) * (1 + sign * U32)
    return float(total)


def sum_of_a_linear_map() -> None:
    rng = np.random.default_rng(1)
    for _ in range(1000):
        n = int(rng.integers(8, 40))
        x = np.exp(rng.uniform(-30, 3, n))
        x[0] = x.max() * 64
        field, weight = Bounds(x, x), np.ones((1, n))
        for up in (False, True):
            # Float32 is the type, so no store hides the sum's own error.
            found = field.matmul(Linear("w", weight, None), storage("float32"))
            assert found.lo[0] <= worst_sum(x, up) <= found.hi[0]


def sum_of_a_unit() -> None:
    rng = np.random.default_rng(2)
    for _ in range(1000):
        n = int(rng.integers(24, 80))
        x = np.exp(rng.uniform(-30, 3, n))
        x[0] = x.max() * 64
        error = sum_error(Linear("w", x[None, :], None), np.ones(n))
        for up in (False, True):
            assert abs(worst_sum(x, up) - x.sum()) <= error.at(np.array([0]), np.array([x.sum()]))[0]


def store_of_a_shared_channel() -> None:
    rng = np.random.default_rng(3)
    for name in TYPES:
        store = storage(name)
        for exponent in rng.integers(-10, 10, 1000):
            # One ulp from a tie: half a unit above a power of two, the largest relative error of a store.
            tie = 2.0 ** int(exponent) * (1 + store.unit * (1 - 2.0**-20))
            share = float(rng.random())
            parts = [SymbolPart((0, o), np.arange(1), np.array([[v]]), np.array([[v]]))
                     for o, v in ((0, tie * share), (1, tie * (1 - share)))]  # fmt: skip
            found = Bounds(np.zeros(1), np.zeros(1), tuple(parts)).store(store)
            lo, hi = found.hull()
            assert lo[0] <= store.nearest(np.array([tie]))[0] <= hi[0] and lo[0] <= tie <= hi[0]


def root_of_a_norm() -> None:
    rng = np.random.default_rng(4)
    for _ in range(1000):
        x = rng.standard_normal(int(rng.integers(1, 4))) * np.exp(rng.uniform(-3, 10))
        low, high = Bounds(x, x).norm_factor(1e-6, None)
        exact = 1 / np.sqrt((x**2).mean() + 1e-6)
        assert low <= exact * (1 - FUNCTION_ERROR) and exact * (1 + FUNCTION_ERROR) <= high


def leak_of_a_copy() -> None:
    rng = np.random.default_rng(5)
    for name in TYPES:
        store = storage(name)
        for _ in range(1000):
            leak = float(np.exp(rng.uniform(-20, -3)))
            table = np.array([[-1.0], [1.0]]) * np.exp(rng.uniform(-5, 5))
            value = Bounds(np.zeros(1), np.zeros(1), (SymbolPart((0, 0), np.arange(1), table, table),))
            found = copied(value, Copy(1, 1.0, leak))
            # The wanted weight loses 2 leak, all others together weigh leak (1 + u): at the opposite value.
            shown = table[1, 0] * (1 - 2 * leak) - table[1, 0] * leak * (1 + store.unit)
            assert found.lo[0] + found.parts[0].lo[1, 0] <= shown


def rotated(a: float, b: float, angle: float, errors: np.ndarray, u: float) -> np.ndarray:
    """(a c - b s, a s + b c) with a relative error of u, in the given directions, at every store. A sum of two stored
    numbers errs by at most the smaller one, since the larger one is representable."""
    c, s = np.cos(angle) * (1 + u * errors[0]), np.sin(angle) * (1 + u * errors[1])
    p = np.array([a * c, b * s, a * s, b * c]) * (1 + u * errors[2:6])
    sums = np.array([p[0] - p[1], p[2] + p[3]])
    small = np.minimum(np.abs(p[[0, 2]]), np.abs(p[[1, 3]]))
    return np.asarray(sums + errors[6:] * np.minimum(u * np.abs(sums), small))


def rotation(pairs: list[tuple[float, float]]) -> None:
    for name in TYPES:
        store = storage(name)
        u = store.unit
        for a, b in pairs:
            bound = float(rotation_error(np.array([abs(a)]), np.array([abs(b)]), store)[0])
            for angle in (0.0, np.pi / 4, np.pi / 2, 2.0, 2.5):
                exact = np.array([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)])
                signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1).T
                worst = max(float(np.linalg.norm(rotated(a, b, angle, e, u) - exact)) for e in signs)
                assert worst <= bound


def products_of_a_rotation() -> None:
    rotation([(1.0, 0.0), (0.0, 3.0), (1.0, 1e-6)])


def sums_of_a_rotation() -> None:
    rotation([(1.0, 1.0), (1.0, -1.0), (5.0, 4.0)])


def store_of_a_score() -> None:
    for name in TYPES:
        store = storage(name)
        for size, count in ((64, 1), (80, 2)):
            stores, _ = score_stores(size**-0.5, store)
            assert (1 + store.unit) ** count - 1 <= stores * (1 + store.unit)


CHECKS: dict[str, Callable[[], None]] = {
    slack.name: globals()[slack.name.replace(" ", "_")] for slack in SLACKS if slack.name.replace(" ", "_") in globals()
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_simulator_stays_inside(name: str) -> None:
    CHECKS[name]()


def mutants() -> dict[str, tuple[bool, bool]]:
    """Per term: whether its check fails without it, and with half of it."""
    found: dict[str, list[bool]] = {}
    for name, check in CHECKS.items():
        for factor in (0.0, 0.5):
            with weakened(name, factor):
                try:
                    check()
                    found.setdefault(name, []).append(False)
                except AssertionError:
                    found.setdefault(name, []).append(True)
    return {name: (removed, halved) for name, (removed, halved) in found.items()}


@pytest.mark.slow
def test_no_mutant_of_an_error_term_survives() -> None:
    """The mutation gate; its table is in docs/checkpoints-proof.md, with the registry's names in its order."""
    found = mutants()
    page = (Path(__file__).parents[3] / "docs" / "checkpoints-proof.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ") and "caught" in line]
    assert rows == [slack.name for slack in SLACKS]
    for name, (removed, halved) in found.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        assert removed, f"nothing notices that {name!r} is gone"
        assert row.rstrip().endswith(f"| caught | {'caught' if halved else 'survives'} |"), (name, halved)


if __name__ == "__main__":
    for term_name, caught in mutants().items():
        print(term_name, *("caught" if c else "survives" for c in caught))
