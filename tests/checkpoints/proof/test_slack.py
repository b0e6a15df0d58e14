"""Error terms: a simulator rounds as badly as the error model allows and stays inside; without a term it does not.

Every check is named like its term. `test_without_a_term_its_check_fails` is the mutation gate for removed terms; the
slow test also halves them and compares the table of docs/checkpoints-proof.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from byheart.checkpoints.proof import rounding as r
from byheart.checkpoints.proof.attention import copied
from byheart.checkpoints.proof.bounds import Bounds, SymbolPart
from byheart.checkpoints.proof.copying import Copy
from byheart.checkpoints.proof.decoder import Linear
from byheart.checkpoints.proof.slack import SLACKS, weakened
from byheart.checkpoints.proof.storage import FREQUENCY_ERROR, FUNCTION_ERROR, TRIG_ERROR, U32, in_float32, storage
from byheart.checkpoints.proof.units import enclose, sigmoid, sum_error, value, variants
from tests.checkpoints.proof import padding_simulators, state_simulators
from tests.checkpoints.proof.state_simulators import rng, steep, worst_sum

TYPES = ("bfloat16", "float16")
F = FUNCTION_ERROR
ONE = np.ones(1)


def inside(lo: float, exact: Fraction, hi: float) -> bool:
    return Fraction(float(lo)) <= exact <= Fraction(float(hi))


def own_arithmetic() -> None:
    for a, b in rng(1).standard_normal((1000, 2)):
        found = Bounds(a * ONE, a * ONE).add(Bounds(b * ONE, b * ONE))
        assert inside(found.lo[0], Fraction(a) + Fraction(b), found.hi[0])
    # Operations in a row, each of which rounds a number just above a tie up.
    total, exact = np.ones(1), Fraction(1)
    for _ in range(31):
        total, exact = total + 2.0**-53 * (1 + 2.0**-20), exact + Fraction(2.0**-53 * (1 + 2.0**-20))
    lo, hi = r.widened(total, total)
    assert inside(lo[0], exact, hi[0])


def rounding_in_float32() -> None:
    for a, b in rng(2).standard_normal((1000, 2)):
        lo, hi = in_float32(a * b * ONE, a * b * ONE)
        for sign in (-1, 1):
            assert inside(lo[0], Fraction(a) * Fraction(b) * (1 + sign * Fraction(1, 2**24)), hi[0])


def underflow_in_float32() -> None:
    for x in 2.0**-126 * rng(3).uniform(0.01, 1, 1000) * np.array([1, -1] * 500):
        lo, hi = in_float32(x * ONE, x * ONE)
        assert lo[0] <= 0 <= hi[0]
        assert lo[0] <= np.floor(x * 2.0**149) * 2.0**-149 and np.ceil(x * 2.0**149) * 2.0**-149 <= hi[0]


def sum_of_a_linear_map() -> None:
    random = rng(4)
    for _ in range(500):
        x = steep(random, 8, 40)
        # Float32 is the type, so no store hides the sum's own error.
        found = Bounds(x, x).matmul(Linear("w", np.ones((1, len(x))), None), storage("float32"))
        assert found.lo[0] <= worst_sum(x, False) and worst_sum(x, True) <= found.hi[0]


def underflow_of_products() -> None:
    for n in range(1, 200):
        product = 2.0**-126 * (1 - 2.0**-20)
        assert n * product <= r.dot(np.array(n), np.array(n * product))


def sum_of_a_unit() -> None:
    random = rng(5)
    for _ in range(500):
        x = steep(random)
        error = sum_error(Linear("w", x[None, :], None), np.ones(len(x)))
        for up in (False, True):
            assert abs(worst_sum(x, up) - x.sum()) <= error.at(np.array([0]), np.array([x.sum()]))[0]


def inputs_of_a_sum() -> None:
    """One term: a kept input of two roundings, the norm's bias, the product."""
    for x in np.exp(rng(6).uniform(-20, 20, 1000)):
        assert x * ((1 + U32) ** 4 - 1) <= r.partial_dot(np.array(1), np.array(x), np.array(x))


def inputs_of_a_value() -> None:
    """One term: the normed input (four roundings), the product, the head's weighted sum."""
    for x in np.exp(rng(7).uniform(-20, 20, 1000)):
        assert x * ((1 + U32) ** 6 - 1) <= r.kept_values(np.array(1), np.array(x))


def inputs_of_an_output() -> None:
    for x in np.exp(rng(8).uniform(-20, 20, 1000)):
        assert x * ((1 + U32) ** 4 - 1) <= r.kept_output(np.array(1), np.array(x))


def bias_of_a_value() -> None:
    """Added to the value, weighted by the softmax, multiplied by the last matrix: three roundings."""
    for x in np.exp(rng(9).uniform(-20, 20, 1000)):
        assert x * ((1 + U32) ** 3 - 1) <= r.offset_error(np.array(x))


def mean_of_a_norm() -> None:
    random = rng(10)
    for _ in range(500):
        x = steep(random)
        low, high = Bounds(x, x).mean()
        assert low <= worst_sum(x, False) / len(x) and worst_sum(x, True) / len(x) <= high


def sum_of_squares() -> None:
    random = rng(11)
    for n in random.integers(300, 3000, 500):
        square = float(np.exp(random.uniform(-5, 5)))
        low, high = r.inverse_root(n * square * ONE, n * square * ONE, int(n), 1e-6, None)
        for sign, end in ((1, low), (-1, high)):
            root = 1 / np.sqrt(square * (1 + sign * U32) ** (n + 2) + 1e-6)
            assert root >= end[0] if sign > 0 else root <= end[0]


def variance_in_one_pass() -> None:
    """E[x^2] - mean^2 with both sums rounded apart; a mean far larger than the spread."""
    for n in rng(12).integers(16, 1000, 500):
        mean, variance = 100.0, 50.0
        low, high = r.inverse_root(n * variance * ONE, n * variance * ONE, int(n), 1e-6, mean * ONE)
        for sign, end in ((1, low), (-1, high)):
            first = (variance + mean**2) * (1 + sign * U32) ** n
            second = mean**2 * (1 - sign * U32) ** (2 * n)
            root = 1 / np.sqrt(first - second + 1e-6)
            assert root >= end[0] if sign > 0 else root <= end[0]


def epsilon_of_a_norm() -> None:
    """eps is rounded to float32, and so is the sum with it; rsqrt errs in the same direction."""
    for eps in np.exp(rng(13).uniform(-30, 0, 1000)):
        low, high = r.inverse_root(eps * 2.0**-60 * ONE, eps * 2.0**-60 * ONE, 1, eps, None)
        for sign, end in ((1, low), (-1, high)):
            root = (1 - sign * F) / np.sqrt(eps * (1 + sign * U32) ** 2 * (1 + sign * 2.0**-40))
            assert root >= end[0] if sign > 0 else root <= end[0]


def root_of_a_norm() -> None:
    random = rng(14)
    for _ in range(1000):
        x = random.standard_normal(int(random.integers(1, 4))) * np.exp(random.uniform(-3, 10))
        low, high = Bounds(x, x).norm_factor(1e-6, None)
        exact = 1 / np.sqrt((x**2).mean() + 1e-6)
        assert low <= exact * (1 - F) and exact * (1 + F) <= high


def underflow_of_a_norm() -> None:
    """Three results in a row are flushed to zero, each just below the normal range."""
    for weight, factor in np.exp(rng(39).uniform(-5, 5, (1000, 2))):
        lost = 2.0**-126 * (factor * weight + weight + 1) * (1 - 2.0**-20)
        assert lost <= r.norm_underflow(np.array([weight]), float(factor))[0] * factor * weight


def store_of_a_shared_channel() -> None:
    random = rng(15)
    for name in TYPES:
        store = storage(name)
        for exponent in random.integers(-24, 10, 1000):
            # One ulp from a tie: half a unit above a power of two, the largest relative error of a store.
            tie = 2.0 ** int(exponent) * (1 + store.unit * (1 - 2.0**-20))
            share = float(random.random())
            parts = [SymbolPart((0, o), np.arange(1), np.array([[v]]), np.array([[v]]))
                     for o, v in ((0, tie * share), (1, tie * (1 - share)))]  # fmt: skip
            found = Bounds(np.zeros(1), np.zeros(1), tuple(parts)).store(store)
            lo, hi = found.hull()
            assert lo[0] <= store.nearest(np.array([tie]))[0] <= hi[0] and lo[0] <= tie <= hi[0]


def stores_of_a_normed_channel() -> None:
    for name in TYPES:
        u, tiny = storage(name).unit, storage(name).tiny
        for x in np.exp(rng(16).uniform(-20, 5, 1000)):
            error = max(x * ((1 + u) ** 3 - 1), 3 * tiny)
            assert error <= r.shared_norm(np.array(x), ONE, storage(name))[0]


def leak_of_a_copy() -> None:
    """Others weigh `leak`, their sum is rounded up by as much; storing doubles twice what the copied weight lacks, and
    each other weight; adding a small term errs by the term."""
    random = rng(17)
    for _ in range(1000):
        leak = float(np.exp(random.uniform(-20, -5)))
        table = np.array([[-1.0], [1.0]]) * np.exp(random.uniform(-5, 5))
        field = Bounds(np.zeros(1), np.zeros(1), (SymbolPart((0, 0), np.arange(1), table, table),))
        found = copied(field, Copy(1, 1.0, leak))
        weight = 1 - 2 * (1 - 1 / (1 + 2 * leak))
        others = 2 * leak / (1 + 2 * leak)
        shown = table[1, 0] * (weight - others - others) * (1 - F)
        assert found.lo[0] + found.parts[0].lo[1, 0] <= shown


def softmax_of_a_copy() -> None:
    for size in np.exp(rng(18).uniform(-20, 20, 1000)):
        assert size * F <= r.leak_error(0.0, np.array(size)) * (1 + 2.0**-40)


def sums_of_a_mixture() -> None:
    """n equal weights: the sum of exponentials and that of the weighted values are rounded apart."""
    for n in rng(19).integers(2000, 200_000, 1000):
        wrong = (1 + U32) ** n / (1 - U32) ** (n - 1)
        assert wrong - 1 <= r.mixture_error(int(n), ONE, storage("float32"))[0]


def stored_weights_of_a_mixture() -> None:
    for name in TYPES:
        store = storage(name)
        for n in (1, 2, 100, 20_000, 131_072):
            error = n * max(store.unit / n, store.tiny)
            assert error <= r.mixture_error(n, ONE, store)[0]


def softmax_of_a_mixture() -> None:
    """Half of the places show 1, half -1; exponentials err in the direction of their value, the divisions too."""
    for n in (2, 4, 8):
        sign = np.array([1.0] * (n // 2) + [-1.0] * (n // 2))
        e = (1 + sign * F) / n
        shown = (e / e.sum() * (1 + sign * F) * sign).sum()
        assert abs(shown) <= r.mixture_error(n, ONE, storage("float32"))[0]


def share_of_a_softmax() -> None:
    for x in np.exp(rng(20).uniform(0, 20, 1000)):
        p = np.array([1 / (1 + x)])
        low, high = r.softmax_share(p, p)
        for sign in (-1, 1):
            shown = (1 + sign * F) / (1 + x * (1 - sign * F) / (1 + sign * F))
            assert low[0] <= shown <= high[0]


def exponentials_of_a_head() -> None:
    for x in np.exp(rng(21).uniform(-20, 0, 1000)):
        assert x * (1 + F) / (1 - F) * (1 - 2.0**-38) <= r.spilled(float(x))


def rotated(a: float, b: float, angle: float, errors: np.ndarray, u: float) -> np.ndarray:
    """(a c - b s, a s + b c) with a relative error of u, in the given directions, at every store. A sum of two stored
    numbers errs by at most the smaller one, since the larger one is representable."""
    c, s = np.cos(angle) * (1 + u * errors[:, 0]), np.sin(angle) * (1 + u * errors[:, 1])
    p = np.stack([a * c, b * s, a * s, b * c], 1) * (1 + u * errors[:, 2:6])
    sums = np.stack([p[:, 0] - p[:, 1], p[:, 2] + p[:, 3]], 1)
    small = np.minimum(np.abs(p[:, [0, 2]]), np.abs(p[:, [1, 3]]))
    return np.asarray(sums + errors[:, 6:] * np.minimum(u * np.abs(sums), small))


def rotation(pairs: list[tuple[float, float]]) -> None:
    signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1).T
    for name in TYPES:
        store = storage(name)
        for a, b in pairs:
            bound = float(r.rotation_error(np.array([abs(a)]), np.array([abs(b)]), store)[0])
            for angle in (0.0, np.pi / 4, np.pi / 2, 2.0, 2.5):
                exact = np.array([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)])
                assert np.linalg.norm(rotated(a, b, angle, signs, store.unit) - exact, axis=1).max() <= bound


def stores_of_a_rotation() -> None:
    rotation([(1.0, 0.0), (0.0, 3.0), (1.0, 1e-6), (1.0, 1.0), (1.0, -1.0), (5.0, 4.0)])


def underflow_of_a_rotation() -> None:
    """Four products below the normal range, each off by `tiny`."""
    for name in TYPES:
        store = storage(name)
        for size in (0.0, 0.1, 1.0, 4.0):
            pair = np.array([size * store.tiny])
            assert np.hypot(2 * store.tiny, 2 * store.tiny) <= r.rotation_error(pair, pair, store)[0]


def rounding_of_an_angle() -> None:
    for length in (1, 100, 4096, 131_072):
        for theta in (1.0, 0.1, 1e-3):
            angle = length * theta * U32
            moved = 2 * np.sin(angle / 2) + np.sqrt(2) * TRIG_ERROR
            assert moved <= r.angle_error(length, np.array(theta), np.array(1.0))


def cosine_and_sine() -> None:
    for size in np.exp(rng(22).uniform(-20, 20, 1000)):
        assert np.sqrt(2) * TRIG_ERROR * size <= r.angle_error(1, np.array(0.0), np.array(size))


def inverse_frequency() -> None:
    for distance in rng(23).integers(1, 131_072, 1000):
        for theta in (1.0, 1e-2):
            moved = abs(np.sin(distance * theta * (1 + FREQUENCY_ERROR) - distance * theta))
            assert moved <= r.frequency_error(distance, np.array(theta)) * (1 + 2.0**-20) + 2.0**-50


def grid_of_distances() -> None:
    for start, step in rng(60).uniform(0, 4, (1000, 2)):
        grid = np.array([start, start + step])
        # A score that moves by its slope: from both ends to the middle.
        top = 1.0 + 0.7 * step / 2
        assert top <= 1.0 + r.grid_error(0.7, float(grid[1] - grid[0])) + 1e-12


def sum_of_a_score() -> None:
    random = rng(24)
    for head in (16, 64, 128, 256):
        for _ in range(100):
            x = steep(random, head, head + 1)
            assert abs(worst_sum(x, True) - x.sum()) <= r.score_sum(head, x.sum())


def store_of_a_score() -> None:
    for name in TYPES:
        store = storage(name)
        for size, count in ((64, 1), (80, 2)):
            stores, _ = r.score_stores(size**-0.5, store)
            assert (1 + store.unit) ** count - 1 <= stores * (1 + store.unit)


def underflow_of_a_score() -> None:
    for name in TYPES:
        store = storage(name)
        for k in (1, 3, 5):  # halfway between two multiples of the least positive number
            exact = np.array([k * store.tiny])
            assert abs(store.nearest(exact) - exact)[0] <= r.score_underflow(store)


def score_of_a_masked_row() -> None:
    """Query and key rotated (three stores each), the score stored and scaled."""
    for name in TYPES:
        store = storage(name)
        assert (1 + store.unit) ** 8 - 1 <= r.masked_score(1.0, store)


def checker_in_single_precision() -> None:
    random = rng(25)
    for head in (16, 64, 256):
        q, k = random.standard_normal((100, head)), random.standard_normal((100, head))
        single = q.astype(np.float32) @ k.astype(np.float32).T
        size = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k, axis=1)
        assert (np.abs(single - q @ k.T) <= r.single_precision(head) * size).all()
    # The worst order: every partial sum is rounded up by nearly half a unit.
    total, small = np.float32(1), np.float32(2.0**-24 * (1 + 2.0**-20))
    for _ in range(511):
        total += small
    exact = 1 + 511 * float(small)
    assert float(total) - exact <= r.single_precision(512) * exact


def near_ties(name: str, low: float, high: float) -> np.ndarray:
    """Numbers halfway between two neighbours of a type."""
    store = storage(name)
    grid = np.unique(store.nearest(np.linspace(low, high, 4000)))
    return np.asarray((grid[1:] + grid[:-1]) / 2)


def sigmoid_() -> None:
    """The exact sigmoid lies just below a tie; the computed one, off by 2^-20, just above it."""
    for name in TYPES:
        store = storage(name)
        ties = near_ties(name, 0.01, 0.99)
        exact = ties * (1 - 0.75 * F)
        x = np.log(exact / (1 - exact))
        shown = x * store.nearest(sigmoid(x) * (1 + F))
        lo, hi = variants("silu", x, x, store, False)[1]
        assert ((lo <= shown) & (shown <= hi)).all()


def tanh_of_a_chain() -> None:
    """gelu_new on every float16 number of a range, each step stored, tanh off by 2^-20 in both directions."""
    store = storage("float16")
    x = np.unique(np.linspace(-5, 5, 60_000).astype(np.float16)).astype(np.float64)
    cube = store.nearest(x**3)
    inner = store.nearest(x + store.nearest(0.044715 * cube))
    inner = store.nearest(np.sqrt(2 / np.pi) * inner)
    lo, hi = variants("gelu_tanh", x, x, store, True)[1]
    for sign in (-1, 1):
        bent = store.nearest(np.clip(np.tanh(inner) * (1 + sign * F), -1, 1))
        shown = store.nearest(0.5 * x) * store.nearest(1 + bent)
        assert ((lo <= shown) & (shown <= hi)).all()


def silu() -> None:
    x = rng(26).uniform(-30, 30, 1000)
    lo, hi = enclose("silu", x, x)
    for sign in (-1, 1):
        shown = value("silu", x) * (1 + sign * F) * (1 + sign * U32)
        assert ((lo <= shown) & (shown <= hi)).all()


def gelu() -> None:
    for kind in ("gelu", "gelu_tanh"):
        x = rng(27).uniform(-5.9, 8, 1000)
        lo, hi = enclose(kind, x, x)
        bent = 2 * value(kind, x) / x - 1  # erf or tanh
        for sign in (-1, 1):
            shown = 0.5 * x * (1 + bent * (1 + sign * F)) * (1 + sign * U32)
            assert ((lo <= shown) & (shown <= hi)).all()
        # Far below zero an engine returns 0, and so does the exact function up to its size.
        far = np.linspace(-40, -6 if kind == "gelu_tanh" else -8.5, 500)
        lo, hi = enclose(kind, far, far)
        assert ((lo <= value(kind, far)) & (hi >= 0)).all()


def interior_of_an_activation() -> None:
    """Inside an interval whose ends are exact: far below zero, and zero."""
    for kind, exact in (("gelu", 8.49), ("gelu_tanh", 5.9)):
        lo, hi = enclose(kind, np.array([-20.0]), np.array([0.0]))
        x = np.linspace(-exact, -4, 100)
        bent = 2 * value(kind, x) / x - 1
        for sign in (-1, 1):
            shown = 0.5 * x * (1 + bent * (1 + sign * F))
            assert ((lo <= shown) & (shown <= hi)).all()


def stores_of_a_product() -> None:
    """Gate, sigmoid, activation and up are stored; where silu is the identity, only gate and up."""
    for name in TYPES:
        u = storage(name).unit
        g = np.concatenate([np.linspace(0.01, 20, 2000), [40.0]])
        stored = g * (1 + u)
        shown = stored * sigmoid(stored) * (1 + u) ** 3
        assert (shown / value("silu", g) - 1 <= r.product_error(np.array(4.3), storage(name))).all()
        assert (1 + u) ** 2 - 1 <= r.product_error(np.array(2.1), storage(name))


def functions_of_a_product() -> None:
    """The activation in one step; gate (whose error grows by 1.3), up, activation and product rounded to float32."""
    assert r.product_error(np.array(0.0), storage("float32")) >= (1 + F) * (1 + U32) ** 5 - 1


def store_of_a_silent_input() -> None:
    for name in TYPES:
        for top in -np.exp(rng(28).uniform(-3, 5, 1000)):
            assert top * (1 - storage(name).unit) <= r.silent_input(np.array(top), storage(name))


def stores_of_a_silent_unit() -> None:
    for name in TYPES:
        for size in np.exp(rng(29).uniform(0, 5, 1000)):
            assert size * (1 + storage(name).unit) ** 4 <= r.silent_product(np.array(size), 1.0, storage(name))


def underflow_of_a_silent_unit() -> None:
    """silu in float16, every step stored, far below zero: a sigmoid near 2^-25 may double."""
    store = storage("float16")
    for up in (1.0, 30.0):
        x = np.linspace(-19, -10, 20_000)
        stored = store.nearest(store.nearest(x * store.nearest(sigmoid(x))) * up)
        bound = r.silent_product(np.abs(value("silu", x)) * up, up, store)
        assert (np.abs(stored) <= bound).all()


def sum_of_fired_units() -> None:
    random = rng(30)
    for n in random.integers(16, 64, 200):
        x = steep(random, int(n), int(n) + 1)
        assert abs(worst_sum(x, True) - x.sum()) <= r.fired_sum(int(n), x.sum())


def silent_units() -> None:
    """Small terms are added to a large one: each addition errs by the term itself."""
    for size in np.exp(rng(31).uniform(-20, 5, 1000)):
        assert 2 * size <= r.silent_sum(np.array(size))


def weights_of_a_router() -> None:
    """Exponentials in opposite directions, a fast division by their sum, sums, and the division by the chosen ones'."""
    for x in np.exp(rng(32).uniform(-5, 5, 1000)):
        low, high = r.router_weights(np.array(x), np.array(x))
        for sign, end in ((1, low), (-1, high)):
            other = x * (1 + sign * F) ** 2 / (1 - sign * F) * (1 + sign * U32) ** 2
            shown = (1 - sign * F) / (1 + other)
            assert shown >= end if sign > 0 else shown <= end


def store_of_a_routers_logit() -> None:
    for name in TYPES:
        for logit in np.exp(rng(33).uniform(-3, 5, 1000)):
            store, sums = storage(name), np.array(0.0)
            assert store.unit * logit <= r.router_logit(sums, np.array(logit), None, store)
            # With a bias of the other sign, what is stored first is larger than the logit.
            bias = -2 * logit
            assert store.unit * (logit - bias + logit) <= r.router_logit(sums, np.array(logit), np.array(bias), store)


def sum_of_experts() -> None:
    random = rng(34)
    for n in (2, 4, 8):
        x = np.sort(random.random(n))[::-1] * np.array([1e6] + [1.0] * (n - 1))
        assert abs(worst_sum(x, True) - x.sum()) <= r.expert_sum(n, x.sum())


def centring_of_the_last_norm() -> None:
    for x, mean in np.exp(rng(35).uniform(-5, 5, (1000, 2))):
        assert (x + mean) * ((1 + U32) ** 2 - 1) <= r.centred_error(np.array(x + mean))


def sum_of_a_logit() -> None:
    random = rng(36)
    for _ in range(500):
        x = steep(random)
        total = np.array(x.sum())
        assert abs(worst_sum(x, True) - x.sum()) <= r.logit_sum(np.array(len(x)), total, total, len(x), False)


def inputs_of_a_logit() -> None:
    """One term: centring, factor, weight and bias of the last norm, and the product, in float32."""
    for x in np.exp(rng(37).uniform(-20, 20, 1000)):
        assert x * ((1 + U32) ** 6 - 1) <= r.logit_sum(np.array(1), np.array(x), np.array(x), 1, True)


def store_of_a_logit() -> None:
    for name in TYPES:
        store = storage(name)
        for a, b in np.exp(rng(38).uniform(-3, 5, (1000, 2))):
            assert store.unit * (a + b) <= r.logit_store(np.array(a), np.array(b), store)


def multiplier() -> None:
    for scale in np.exp(rng(39).uniform(-3, 3, 1000)):
        nearest = np.float32(scale)
        for towards in (-np.inf, np.inf):
            neighbour = float(np.nextafter(nearest, np.float32(towards)))
            assert abs(neighbour - float(nearest)) <= r.multiplier(float(scale))


def partial_sums_of_experts() -> None:
    """Each addend after the first lies just below half a step: every stored partial sum loses it."""
    for name in TYPES:
        store = storage(name)
        for used in range(3, 9):
            for exponent in range(-4, 5):
                small = store.nearest(np.array([store.unit * (1 - 2 * store.unit)]))[0]
                addends = 2.0**exponent * np.array([1.0, *[small] * (used - 2), small])
                stored = addends[0]
                for addend in addends[1:-1]:
                    stored = store.nearest(np.array([stored + addend]))[0]
                sizes = addends[:, None, None]
                assert abs(stored + addends[-1] - addends.sum()) <= r.summed_experts(sizes, np.zeros(1), used, store)[0]


def store_of_a_shifted_score() -> None:
    """The difference from the largest score lies just below half a step of the type."""
    for name in TYPES:
        store = storage(name)
        for exponent in rng(61).integers(-4, 6, 1000):
            spread = 2.0 ** int(exponent) * (1 + store.unit * (1 - 2.0**-20))
            assert abs(store.nearest(np.array([spread]))[0] - spread) <= r.shifted_score(spread, store)


def absorbed_score() -> None:
    """Two sums in a row that are rounded in one direction, with a store between them."""
    random = rng(62)
    for name in (*TYPES, "float32"):
        store = storage(name)
        for rank in (32, 64, 512):
            for _ in range(50):
                inner, outer = steep(random, rank, rank + 1), steep(random, rank, rank + 1)
                first = worst_sum(inner, True) * (1 + store.unit)
                error = first * worst_sum(outer, True) - inner.sum() * outer.sum()
                assert error <= r.absorbed_score(rank, inner.sum() * outer.sum(), store)


def store_of_a_mixed_latent() -> None:
    for name in TYPES:
        store = storage(name)
        for size in np.exp(rng(63).uniform(-25, 5, 1000)):
            tie = max(2.0 ** np.floor(np.log2(size)) * (1 + store.unit * (1 - 2.0**-20)), store.tiny * (1 - 2.0**-20))
            exact = np.array([tie])
            assert abs(store.nearest(exact) - exact)[0] <= r.absorbed_value(exact, store)[0]


def argument_of_a_scaled_sigmoid() -> None:
    """Constant and product are rounded in one direction; then exp, sum, division and product as for silu."""
    x = rng(64).uniform(-50, 5, 4000)
    lo, hi = enclose("quick_gelu", x, x)
    for sign in (-1, 1):
        inner = 1.702 * x * (1 + sign * U32) ** 2
        shown = x * sigmoid(inner) * (1 + np.sign(x) * sign * F) * (1 + np.sign(x) * sign * U32)
        assert ((lo <= shown) & (shown <= hi)).all()


def stores_of_an_adapter() -> None:
    """W x, A x, its multiple, B (A x) and its multiple are stored, each just above a tie, in one direction."""
    random = rng(70)
    for name in TYPES:
        store = storage(name)
        for whole, added, scale in np.exp(random.uniform(-4, 4, (1000, 3))):
            error = whole * store.unit + added * ((1 + store.unit) ** 4 - 1) + store.tiny
            found = r.adapter_stores(np.array(whole), np.array(added), float(scale), ONE, np.array(4), store)
            assert error <= found[0]


def check_of(name: str) -> Callable[[], None]:
    function = {"sigmoid": "sigmoid_"}.get(name, name.replace(" ", "_").replace("'", ""))
    simulators = globals(), vars(state_simulators), vars(padding_simulators)
    found = next(names[function] for names in simulators if function in names)
    assert callable(found)
    return found  # type: ignore[no-any-return]


CHECKS: dict[str, Callable[[], None]] = {slack.name: check_of(slack.name) for slack in SLACKS}


def fails(name: str, factor: float) -> bool:
    with weakened(name, factor):
        try:
            CHECKS[name]()
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("name", CHECKS)
def test_the_simulator_stays_inside(name: str) -> None:
    CHECKS[name]()


@pytest.mark.parametrize("name", CHECKS)
def test_without_a_term_its_check_fails(name: str) -> None:
    assert fails(name, 0.0), f"nothing detects that {name!r} is removed"


def test_constants_of_the_error_model_stay_in_the_rules() -> None:
    """A bare error term outside `rounding.py` would escape the gate."""
    folder = Path(r.__file__).parent
    constants = re.compile(r"_ERROR\b|UNDERFLOW|\bU32\b|\bOWN\b|gamma\(|store\.unit\b|\.tiny\b")
    allowed = {"rounding.py", "state_rounding.py", "storage.py", "slack.py"}
    for path in folder.rglob("*.py"):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if path.name not in allowed]
        found = [line for line in lines if constants.search(line.split("#")[0])]
        # Thresholds that choose between two sound ways, and the room above the least number of a type.
        bare = [line for line in found if "flat = " not in line and "room = " not in line]
        assert not bare, (path.name, bare)


@pytest.mark.slow
def test_the_table_of_mutants_is_that_of_the_page() -> None:
    """docs/checkpoints-proof.md has the registry's names in its order, and what halving each term does."""
    page = (Path(__file__).parents[3] / "docs" / "checkpoints-proof.md").read_text(encoding="utf-8")
    assert table() in page


def table() -> str:
    rows = ["| term | formula | derivation | removed | halved |", "|---|---|---|---|---|"]
    for slack in SLACKS:
        removed, halved = ("caught" if fails(slack.name, factor) else "survives" for factor in (0.0, 0.5))
        formula, why = (text.replace("|", "\\|") for text in (slack.formula, slack.why))
        rows.append(f"| {slack.name} | {formula} | {why} | {removed} | {halved} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
