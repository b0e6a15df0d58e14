"""Steps are solved by differences: the same weights and condition numbers as by factorization."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.build.madden24.neurons import solve, solve_staircase, steps_between
from byheart.errors import BuildError
from byheart.ir.decoder import Activation

SATURATING = [Activation.TANH, Activation.SIGMOID, Activation.ARCTAN]


@pytest.mark.parametrize("activation", SATURATING)
@pytest.mark.parametrize("count", [1, 2, 3, 40, 700])
def test_against_factorization(activation: Activation, count: int) -> None:
    rng = np.random.default_rng(count)
    numbers = np.sort(rng.uniform(0, 1, count))
    features = steps_between(numbers, activation).features(numbers)
    targets = rng.normal(0, 10, (count, 7))
    found = solve_staircase(lambda rows: features[rows], targets, *activation.step)
    slow = solve(features, targets)
    assert np.abs(found.weights - slow.weights).max() < 1e-9
    assert np.abs(features @ found.weights - targets).max() < 1e-10 and found.residual < 1e-10
    assert found.condition == pytest.approx(np.linalg.cond(features), rel=1e-3)


def test_targets_of_any_size() -> None:
    numbers = np.arange(6.0)
    neurons = steps_between(numbers, Activation.TANH)
    for scale in (0.0, 1e-30, 1e6):
        targets = np.full((6, 2), scale)
        found = solve_staircase(lambda rows: neurons.features(numbers[rows]), targets, -1.0, 1.0)
        assert np.allclose(neurons.features(numbers) @ found.weights, targets, rtol=1e-14, atol=0)


def test_features_that_are_no_staircase() -> None:
    features = np.random.default_rng(0).normal(size=(5, 5))
    with pytest.raises(BuildError, match="do not reach"):
        solve_staircase(lambda rows: features[rows], np.eye(5), -1.0, 1.0)
