"""The pieces of the error model against engines and against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.checkpoints.proof.bounds import Bounds, SymbolPart
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.mlp import overlap
from byheart.checkpoints.proof.storage import storage
from byheart.checkpoints.proof.units import ANY, SumError, enclose, largest_below, sum_error, tail, value

KINDS = ("silu", "gelu", "gelu_tanh", "relu")


def test_rounding_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(20_000) * np.exp(rng.uniform(-95, 80, 20_000))).astype(np.float32)
    for name in ("bfloat16", "float16"):
        expected = torch.tensor(x).to(getattr(torch, name)).double().numpy()
        assert np.array_equal(storage(name).nearest(x.astype(float)), expected)


@given(st.floats(-40, 40), st.floats(0, 3), st.sampled_from(KINDS), st.floats(0, 1))
def test_activations_are_enclosed(low: float, width: float, kind: str, where: float) -> None:
    lo, hi = np.array([low]), np.array([low + width])
    x = lo + where * (hi - lo)
    y = value(kind, x)
    found = enclose(kind, lo, hi)
    assert found[0][0] <= y[0] <= found[1][0]
    assert abs(y[0]) <= largest_below(kind, hi)[0]
    bent = tail(kind, lo, hi)
    assert bent[0][0] - 1e-12 <= y[0] - x[0] <= bent[1][0] + 1e-12


def some_field(rng: np.random.Generator, size: int = 12) -> Bounds:
    lo = rng.standard_normal(size)
    parts = []
    for key, symbols in (((0, 0), 5), ((0, 2), 5), ((3, 1), 4)):
        channels = np.sort(rng.choice(size, 5, replace=False))
        low = rng.standard_normal((symbols, 5))
        parts.append(SymbolPart(key, channels, low, low + 1e-3 * rng.random((symbols, 5))))
    return Bounds(lo, lo + 1e-3 * rng.random(size), tuple(parts))


def sample(field: Bounds, rng: np.random.Generator, symbols: dict[tuple[int, int], int]) -> np.ndarray:
    x = field.lo + rng.random(field.size) * (field.hi - field.lo)
    for part in field.parts:
        low, high = part.lo[symbols[part.key]], part.hi[symbols[part.key]]
        x[part.channels] += low + rng.random(len(low)) * (high - low)
    return x


def inside(field: Bounds, x: np.ndarray, symbols: dict[tuple[int, int], int]) -> bool:
    lo, hi = field.lo.copy(), field.hi.copy()
    for part in field.parts:
        lo[part.channels] += part.lo[symbols[part.key]]
        hi[part.channels] += part.hi[symbols[part.key]]
    return bool(((lo <= x) & (x <= hi)).all())


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("centred", [False, True])
def test_fields_enclose_what_engines_compute(name: str, centred: bool) -> None:
    """Linear maps, norms, sums and stores of sampled vectors lie in the fields, however they are rounded."""
    rng, store = np.random.default_rng(3), storage(name)
    for _ in range(40):
        field = some_field(rng)
        symbols = {(0, 0): int(rng.integers(5)), (0, 2): int(rng.integers(5)), (3, 1): int(rng.integers(4))}
        x = sample(field, rng, symbols)
        assert inside(field.store(store), store.nearest(x), symbols)
        assert inside(field.store(store), x, symbols)
        assert inside(field.fold(0.5), x, symbols)
        weight, bias = rng.standard_normal((7, 12)), rng.standard_normal(7)
        y = (weight.astype(np.float32) @ x.astype(np.float32)).astype(float)
        mapped = field.matmul(Linear("w", weight.astype(np.float32).astype(float), bias), store)
        assert inside(mapped, store.nearest(store.nearest(y) + bias), symbols)
        assert inside(field.add(field), x + x, symbols)
        norm = Norm("n", rng.standard_normal(12), rng.standard_normal(12) if centred else None, 1e-5, centred)
        shifted = x - x.mean() if centred else x
        unit = shifted / np.sqrt((shifted**2).mean() + 1e-5)
        shift = norm.bias if norm.bias is not None else 0.0
        kept = field.norm(norm, store, stored=False).whole
        assert inside(kept, unit * norm.weight + shift, symbols)
        once = field.norm(norm, store, stored=True).whole
        assert inside(once, store.nearest(store.nearest(unit) * norm.weight + shift), symbols)
        assert inside(once, store.nearest(unit * norm.weight + shift), symbols)


@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=40), st.randoms())
def test_sums_in_any_order(terms: list[float], random: object) -> None:
    """A float32 sum in a shuffled order errs by at most the stated bound."""
    x = np.array(terms, dtype=np.float32)
    exact = float(np.sum(x.astype(np.float64)))
    order = list(range(len(x)))
    random.shuffle(order)  # type: ignore[attr-defined]
    total = np.float32(0)
    for i in order:
        total = np.float32(total + x[i])
    error = sum_error(Linear("w", x.astype(float)[None, :], None), np.ones(len(x)))
    assert abs(float(total) - exact) <= error.at(np.array([0]), np.array([abs(exact)]))[0]


def test_exact_rows_have_no_error() -> None:
    weight = np.array([[1.0, -0.5, 2.0], [1.0, 1 / 3, 2.0]])
    field = Bounds(np.array([0.5, 1.0, -4.0]), np.array([0.5, 1.0, -4.0]))
    found: SumError = sum_error(Linear("w", weight, None), np.array([0.5, 1.0, 4.0]), field)
    assert found.exact.tolist() == [True, False]


def test_overlapping_windows() -> None:
    assert not overlap(np.array([[1, ANY], [2, 5], [2, 6]]))
    assert overlap(np.array([[1, ANY], [ANY, 5]]))
    assert overlap(np.array([[1, ANY], [1, 5]]))
