"""LayerNorm's mean is one number: a simulator whose mean errs as much as float32 allows stays inside the bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byheart.checkpoints.proof.bounds import Bounds, Normed, SymbolPart
from byheart.checkpoints.proof.decoder import Norm
from byheart.checkpoints.proof.storage import FUNCTION_ERROR, U32, storage

FLOAT32 = storage("float32")


def fields(count: int) -> list[tuple[Bounds, np.ndarray]]:
    """Fields of a few symbols, most of whose channels add up to the same for every symbol, and a value inside each."""
    random, found = np.random.default_rng(8), []
    for _ in range(count):
        n, symbols = int(random.integers(8, 200)), int(random.integers(2, 6))
        shift, owned = random.uniform(-3, 3), np.sort(random.choice(n, n // 2, replace=False))
        signs = random.permuted(np.tile(np.where(np.arange(len(owned)) % 2, -1.0, 1.0), (symbols, 1)), axis=1)
        wide = np.exp(random.uniform(-20, -2, (symbols, len(owned))))
        low = np.where(np.isin(np.arange(n), owned), 0.0, shift + random.standard_normal(n))
        high = low + np.where(np.isin(np.arange(n), owned), 0.0, np.exp(random.uniform(-20, -2, n)))
        part = SymbolPart((0, 0), owned, shift + signs - wide, shift + signs + wide)
        value = random.uniform(low, high)
        row = int(random.integers(symbols))
        value[owned] += random.uniform(part.lo[row], part.hi[row])
        found.append((Bounds(low, high, (part,)), value))
    return found


def engines(value: np.ndarray, norm: Norm) -> list[np.ndarray]:
    """Normed values whose mean, difference, root and products err by as much as they may, up or down."""
    found = []
    for a, b, c in np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T:
        error = a * len(value) * U32 * np.abs(value).sum()
        mean = (value.sum() + error) / len(value) * (1 + a * U32)
        apart = (value - mean) * (1 + b * U32)
        root = (1 + c * FUNCTION_ERROR) / np.sqrt((apart**2).mean() * (1 - c * (len(value) + 2) * U32) + norm.eps)
        found.append(apart * root * (1 + c * U32) * norm.weight)
    return found


def forms(normed: Normed, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of weight times the normed stream, as products.py and attention.py use them."""
    assert normed.near is not None
    low, high = normed.near.hull()
    middle, radius = (low + high) / 2, (high - low) / 2
    spread = np.abs(weight) @ radius + normed.drifted(weight)
    ends = np.stack([(weight @ middle + s * spread) * f for s in (-1, 1) for f in normed.factor])
    return ends.min(0), ends.max(0)


def normed(field: Bounds, seed: int) -> tuple[Normed, Norm, np.ndarray]:
    random = np.random.default_rng(seed)
    norm = Norm("norm", random.uniform(0.25, 2.0, field.size), None, 1e-5, True)
    weight = random.choice([-1.0, 1.0], (16, field.size)) / norm.weight
    weight[:, -1] -= weight @ norm.weight / norm.weight[-1]  # the mean's error moves no row
    return field.norm(norm, FLOAT32, False), norm, weight


def outside(drift: float, mean: float = 1.0) -> tuple[int, int]:
    """How many simulated forms leave their bounds, of rows that the mean moves and of rows that it does not."""
    moved = balanced = 0
    for seed, (field, value) in enumerate(fields(60)):
        found, norm, weight = normed(field, seed)
        assert found.drift is not None
        found = replace(found, drift=drift * found.drift)
        both = np.concatenate([np.ones((1, field.size)), weight])
        low, high = forms(found, both)
        for engine in engines(value, norm):
            sums = both @ engine
            size = np.abs(both) @ np.abs(engine) * 2.0**-18  # roundings that the callers add
            left = (sums < low - size) | (sums > high + size)
            moved, balanced = moved + int(left[0]), balanced + int(left[1:].sum())
    return moved, balanced


def test_forms_of_a_normed_stream_stay_inside() -> None:
    assert outside(1.0) == (0, 0)


def test_what_the_error_of_the_mean_moves_is_not_forgotten() -> None:
    """A mean that is known up to 2 percent: rows that add up channels leave bounds without the drift."""
    value = np.tile([3.0, 1.0], 50)
    wide = Bounds(value - 0.02, value + 0.02)
    norm = Norm("norm", np.ones(100), None, 1e-5, True)
    found = wide.norm(norm, FLOAT32, False)
    assert found.near is not None and found.drift is not None and found.drift.min() > 0.019
    shifted = (value + 0.02 - 2.0) / np.sqrt(1 + 1e-5)  # an engine whose mean is at one end, values at the other
    low, high = forms(found, np.ones((1, 100)))
    assert low[0] <= shifted.sum() <= high[0]
    low, high = forms(replace(found, drift=np.zeros(100), near=Bounds(value - 2.0, value - 2.0)), np.ones((1, 100)))
    assert not low[0] <= shifted.sum() <= high[0]


def test_a_balanced_row_does_not_see_the_error_of_the_mean() -> None:
    value = np.tile([3.0, 1.0], 50)
    part = SymbolPart((0, 0), np.arange(100), np.stack([value - 0.3, value]), np.stack([value - 0.3, value]))
    field = Bounds(np.zeros(100), np.zeros(100), (part,))  # the symbol moves all channels alike
    found = field.norm(Norm("norm", np.ones(100), None, 1e-5, True), FLOAT32, False)
    row = np.tile([1.0, -1.0], 50)[None, :]
    assert found.kept is not None and found.drifted(row)[0] < 1e-9 < 0.1 < found.drifted(np.ones((1, 100)))[0]


@pytest.mark.parametrize("seed", range(4))
def test_the_variance_encloses_every_mean_that_float32_computes(seed: int) -> None:
    for field, value in fields(40)[seed::4]:
        low, high = field.variance()
        error = field.size * U32 * np.abs(value).sum()
        for end in (-1, 1):
            mean = (value.sum() + end * error) / field.size
            square = ((value - mean) ** 2).sum()
            assert low <= square <= high


def test_the_variance_is_narrower_than_channel_by_channel() -> None:
    """What four channels do to the mean moves all channels alike, and hardly changes the sum of squares around it."""
    value, width = np.tile([1.25, -0.75], 500), np.where(np.arange(1000) < 4, 0.25, 0.0)
    field = Bounds(value - width, value + width)
    low, high = field.variance()
    exact = 1000 + np.array([-1, 1]) * (2 * 0.25 * 4) + 4 * 0.25**2  # each of the four may be nearer or farther
    wide = field.energy(field.mean())
    assert wide[0] < low <= exact[0] and exact[1] <= high < wide[1]
    assert high - low < 0.7 * (wide[1] - wide[0])
