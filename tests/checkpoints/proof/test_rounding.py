"""Operations of `Bounds` hold what an engine computes that rounds as it likes: random and extreme vectors, every type.

The engine here is independent of the rules: it multiplies each result of float32 by 1 - u, 1 or 1 + u, may flush what
is below the normal range, adds in a random order, and stores a tensor or not.
"""

from __future__ import annotations

import numpy as np
import pytest

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import Bounds
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.storage import Storage, storage
from tests.checkpoints.proof.test_arithmetic import inside, sample, some_field

U = 2.0**-24
# Subnormal in float16 and in float32, ordinary, near the largest float16 and near the largest square of float32.
SCALES = (2.0**-140, 2.0**-128, 2.0**-24, 2.0**-15, 1.0, 2.0**9, 2.0**13, 2.0**61, 2.0**120)


class RoundingEngine:
    """Rounds in sampled directions."""

    def __init__(self, rng: np.random.Generator, store: Storage) -> None:
        self.rng, self.store = rng, store
        self.narrow = bool(rng.integers(2))

    def single(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x) * (1 + U * self.rng.integers(-1, 2, np.shape(x)))
        return np.where((np.abs(x) < 2.0**-126) & (self.rng.random(np.shape(x)) < 0.5), 0.0, x)

    def tensor(self, x: np.ndarray) -> np.ndarray:
        x = self.single(x)
        return self.store.nearest(x) if self.rng.integers(2) else x

    def total(self, terms: np.ndarray) -> np.ndarray:
        """Sums of rows, in one random order."""
        found = np.zeros(terms.shape[:-1])
        for index in self.rng.permutation(terms.shape[-1]):
            found = self.single(found + terms[..., index])
        return found

    def matmul(self, x: np.ndarray, layer: Linear) -> np.ndarray:
        found = self.tensor(self.total(self.single(layer.weight * x)))
        return found if layer.bias is None else self.tensor(found + layer.bias)

    def norm(self, x: np.ndarray, norm: Norm, stored: bool) -> np.ndarray:
        n = len(x)
        mean = self.single(self.total(x) / n) if norm.centred else 0.0
        if norm.centred and self.rng.integers(2):  # in one pass
            square = self.single(self.total(self.single(x * x)) / n) - self.single(np.asarray(mean * mean))
            x = self.single(x - mean)
        else:
            x = self.single(x - mean)
            square = self.single(self.total(self.single(x * x)) / n)
        root = (1 + 2.0**-20 * self.rng.integers(-1, 2)) / np.sqrt(
            self.single(square + self.single(np.array(norm.eps)))
        )
        found = self.single(x * root)
        first = bool(self.rng.integers(2))
        found = self.store.nearest(found) if stored and first else found
        found = self.single(found * norm.weight) if not (stored and first) else found * norm.weight
        last = stored and (norm.bias is not None or not first or bool(self.rng.integers(2)))
        found = found if norm.bias is None else self.single(found + norm.bias)
        return self.store.nearest(found) if last else found


def scaled_field(rng: np.random.Generator, scale: float) -> Bounds:
    field = some_field(rng)
    parts = tuple(type(p)(p.key, p.channels, p.lo * scale, p.hi * scale) for p in field.parts)
    lo, hi = field.lo * scale, field.hi * scale
    lo[:2] = hi[:2] = 0.0
    return Bounds(lo, hi, parts)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_whatever_an_engine_rounds_stays_inside(name: str) -> None:
    store, rng, cases = storage(name), np.random.default_rng(77), 0
    for scale in SCALES:
        for _ in range(60):
            engine, field = RoundingEngine(rng, store), scaled_field(rng, scale)
            symbols = {(0, 0): int(rng.integers(5)), (0, 2): int(rng.integers(5)), (3, 1): int(rng.integers(4))}
            x = sample(field, rng, symbols)
            bias = rng.standard_normal(7).astype(np.float32).astype(float) if rng.integers(2) else None
            layer = Linear("w", rng.standard_normal((7, 12)).astype(np.float32).astype(float), bias)
            centred = bool(rng.integers(2))
            shift = rng.standard_normal(12).astype(np.float32).astype(float) if centred else None
            norm = Norm("n", store.nearest(rng.standard_normal(12)), shift, 1e-5, centred)
            try:
                with np.errstate(all="ignore"):
                    found = [
                        (field.store(store), engine.tensor(x)),
                        (field.matmul(layer, store), engine.matmul(x, layer)),
                        (field.add(field).store(store), engine.tensor(x + x)),
                        (field.norm(norm, store, False).whole, engine.norm(x, norm, False)),
                    ]
                    if name != "float32":  # in which nothing is stored in another type
                        found.append((field.norm(norm, store, True).whole, engine.norm(x, norm, True)))
            except Undecided:
                continue
            for number, (bounds, value) in enumerate(found):
                assert inside(bounds, value, symbols), (scale, number, centred)
                cases += 1
    assert cases > 700


def test_a_power_of_two_scales_scores_without_error() -> None:
    assert rounding.score_stores(0.125, storage("bfloat16"))[1] == 0.0
    assert rounding.score_stores(80**-0.5, storage("bfloat16"))[1] > 0.0
