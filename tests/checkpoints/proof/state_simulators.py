"""Recurrent layers that round as badly as the error model allows: one check per term of `state_rounding`.

`test_slack` runs them; a check is named like its term.
"""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.proof import state_rounding as r
from byheart.checkpoints.proof.storage import FUNCTION_ERROR as F
from byheart.checkpoints.proof.storage import U32

SIZES = ((16, 64), (64, 64), (128, 256))  # of a key or state, and of a chunk


def rng(number: int) -> np.random.Generator:
    return np.random.default_rng([25, number])


def worst_sum(products: np.ndarray, up: bool) -> float:
    """The largest terms first, every product and every partial sum rounded by u in one direction."""
    sign = 1.0 if up else -1.0
    terms = np.sort(np.abs(products))[::-1] * (1 + sign * U32)
    total = terms[0]
    for term in terms[1:]:
        total = (total + term) * (1 + sign * U32)
    return float(total)


def steep(random: np.random.Generator, low: int = 24, high: int = 80) -> np.ndarray:
    """Many small terms after one that dominates: every partial sum is almost the total."""
    x = np.exp(random.uniform(-30, 3, int(random.integers(low, high))))
    x[0] = x.max() * 64
    return np.asarray(x)


def softplus() -> None:
    x = rng(80).uniform(-20, 30, 2000)
    lo, hi = r.softplus(x, x)
    for sign in (-1, 1):
        shown = np.logaddexp(0.0, x) * (1 + sign * F) * (1 + sign * F) * (1 - sign * U32)
        assert ((lo <= shown) & (shown <= hi)).all()


def softplus_by_a_sum() -> None:
    """1 + e^x in float32 loses e^x, or half a unit of 1."""
    x = rng(81).uniform(-20, -8, 4000)
    lo, hi = r.softplus(x, x)
    shown = np.log(np.float64(np.float32(1 + np.exp(x))))
    assert ((lo <= shown) & (shown <= hi)).all()


def sigmoid_of_a_write() -> None:
    x = rng(82).uniform(-30, 10, 2000)
    lo, hi = r.sigmoids(x, x)
    for sign in (-1, 1):
        shown = np.minimum(1 / (1 + np.exp(-x)) * (1 + sign * F), 1.0)
        assert ((lo <= shown) & (shown <= hi)).all()


def exponent_of_a_decay() -> None:
    rate, step = np.exp(rng(83).uniform(-5, 5, (2, 1000)))
    lo, hi = r.exponents(rate, step, step)
    for sign in (-1, 1):
        shown = rate * (1 + sign * F) * step * (1 + sign * U32) ** 2
        assert ((lo <= shown) & (shown <= hi)).all()


def sum_of_exponents() -> None:
    """Two sums side by side in a chunk, one rounded up and the other one down at every step: their difference."""
    for chunk in (64, 256):
        for size in (1.0, 160.0):
            first, second = 0.0, 0.0
            for _ in range(chunk - 1):
                first, second = (first + size) * (1 + U32), (second + size) * (1 - U32)
            shown = [np.exp(-x) for x in ((first + size) * (1 + U32) - second, (second + size) * (1 - U32) - first)]
            lo, hi = r.decays(np.full(1, size), np.full(1, size), chunk)
            assert lo[0] <= shown[0] and shown[1] <= hi[0]


def decay() -> None:
    x = rng(84).uniform(0.01, 0.5, 1000)
    lo, hi = r.decays(x, x, 1)
    for sign in (-1, 1):
        shown = np.exp(-x) * (1 + sign * F)
        assert ((lo <= shown) & (shown <= hi)).all()


def length_of_a_key() -> None:
    for size, _ in SIZES:
        x = np.sqrt(steep(rng(85), size, size + 1))
        for up in (False, True):
            sign = -1 if up else 1
            shown = (1 + sign * F) / np.sqrt(worst_sum(x * x, up)) * (1 + sign * U32) ** 2 * np.sqrt((x * x).sum())
            assert abs(shown - 1) <= r.unit_length(size)


def read_of_a_state() -> None:
    """The overlap of query and key, the triangular system, and the sum over the places of a chunk."""
    for size, chunk in SIZES:
        parts = [steep(rng(86 + k), n, n + 1) for k, n in enumerate((size, size, chunk, chunk))]
        exact = float(np.prod([x.sum() for x in parts]))
        for up in (False, True):
            shown = float(np.prod([worst_sum(x, up) for x in parts]))
            assert abs(shown - exact) <= r.state_read(size, chunk) * exact


def steps_of_a_state() -> None:
    """A write of a share of a state: what the key reads, the difference, and what is added."""
    for size, chunk in SIZES:
        parts = [steep(rng(90 + k), n, n + 1) for k, n in enumerate((size, chunk, chunk))]
        for share in (1e-6, 0.5, 1.0):
            exact = share * float(np.prod([x.sum() for x in parts]))
            shown = share * float(np.prod([worst_sum(x, True) for x in parts])) * (1 + U32) ** 3
            assert abs(shown - exact) <= r.state_steps(size, chunk, share, exact / share)


def drift_of_a_state() -> None:
    """The whole state is multiplied and added to at every step, in one place or by sums over a chunk and a key."""
    for steps in (1, 10, 1000):
        assert (1 + U32) ** (2 * steps) - 1 <= r.state_drift(1, 1, steps, 1.0)
        for size, chunk in SIZES:
            each = (1 + U32) ** (size + chunk + 2) - 1
            assert steps * each <= r.state_drift(size, chunk, steps, 1.0)


def sums_of_a_scan() -> None:
    for size, chunk in SIZES:
        parts = [steep(rng(94 + k), n, n + 1) for k, n in enumerate((size, chunk, chunk))]
        exact = float(np.prod([x.sum() for x in parts]))
        for up in (False, True):
            shown = float(np.prod([worst_sum(x, up) for x in parts]))
            assert abs(shown - exact) <= r.scan_sum(size, chunk, np.array(exact))
