"""Rows of padding that are rounded as badly as the error model allows: one check per term of their rules.

`test_slack` runs them; a check is named like its term.
"""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.proof import rounding as r
from byheart.checkpoints.proof.storage import U32, storage
from byheart.checkpoints.proof.units import variants
from tests.checkpoints.proof.state_simulators import rng, steep, worst_sum

TYPES = ("bfloat16", "float16")


def stores_of_a_padding_row() -> None:
    """Every rounding moves the number away from zero by a whole unit, or by half a step below the normal range."""
    for name in TYPES:
        store = storage(name)
        for size in np.exp(rng(90).uniform(-30, 8, 1000)):
            for count in (1, 2, 3, 4):
                shown = size * (1 + store.unit) ** count
                assert shown - size <= r.padding_stores(count, np.array(size), store)
                assert count * store.tiny <= r.padding_stores(count, np.array(0.0), store)


def sum_of_a_padding_row() -> None:
    random = rng(91)
    for _ in range(500):
        x = steep(random, 8, 40)
        error = r.padding_sum(np.array(len(x)), x.sum())
        assert x.sum() - error <= worst_sum(x, False) and worst_sum(x, True) <= x.sum() + error


def floor_of_a_padding_row() -> None:
    """A stored chain of tensors leaves half of a store of tanh times its argument, an activation in one step leaves
    the error of 1 + erf."""
    for name in TYPES:
        store = storage(name)
        for x in rng(92).uniform(-10, -5, 1000):
            exact = 2 / np.e * np.exp(x / 2) * (1 + 2.0**-4)
            left = -x / 2 * store.unit
            assert left <= exact + r.padding_floor(np.ones(1), store, True)[0]
            for low, high in variants("gelu_tanh", np.array([x]), np.array([x]), store, True):
                assert max(-low[0], high[0]) <= exact + r.padding_floor(np.ones(1), store, True)[0]
    assert r.padding_floor(np.ones(1), storage("float32"), False)[0] > 2.0**-14


def variance_of_a_padding_row() -> None:
    """E[x^2] - mean^2 with both sums rounded apart; a mean far larger than the spread."""
    for count in rng(93).integers(16, 1000, 500):
        mean, variance = 100.0, 50.0
        first = (variance + mean**2) * (1 - U32) ** count
        second = mean**2 * (1 + U32) ** (2 * count)
        assert variance - (first - second) <= r.padding_variance(int(count), variance, mean)
