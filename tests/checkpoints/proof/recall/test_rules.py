"""Rules of recall against engines that round as badly as the error model allows (`simulator.Engine`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.decoder import Expert, Linear, Norm
from byheart.checkpoints.proof.recall.check import RecallProof
from byheart.checkpoints.proof.recall.looking import read_places
from byheart.checkpoints.proof.recall.stream import SignStream, SmallRows, normed, read_rows, scaled
from byheart.checkpoints.proof.recall.updates import Branch, Writing, activated, attended, write_channels
from byheart.checkpoints.proof.storage import storage
from tests.checkpoints.proof.simulator import Engine, engines

CASES = int(os.environ.get("BYHEART_CASES", "150"))  # per rule; thousands in the slow test
HIDDEN = 12
SHAPE = Shape("llama", 8, HIDDEN, 1, 1, 1, 8, 4, 64, 1e-5, "silu", False, None)


def drawn(engine: Engine, free: int = 2) -> tuple[SignStream, np.ndarray]:
    """A stream, and one vector inside of it."""
    rng = engine.rng
    lo = rng.uniform(0.5, 2.0, HIDDEN) if rng.random() < 0.5 else np.full(HIDDEN, 1.0)
    hi = lo * (1 + rng.choice([0.0, 1e-4, 1e-2]) * rng.random(HIDDEN))
    fixed = rng.choice([-1.0, 1.0], HIDDEN)
    fixed[:free] = 0.0
    signs = np.where(fixed == 0, rng.choice([-1.0, 1.0], HIDDEN), fixed)
    at = rng.choice([0.0, 1.0, 0.5], HIDDEN)
    return SignStream(lo, hi, fixed), signs * (lo + at * (hi - lo))


def holds(rows: SmallRows, x: np.ndarray, found: np.ndarray) -> bool:
    signs = dict(enumerate(np.sign(x)))
    ends = [rows.at(r, signs) for r in range(len(found))]
    return all(lo <= y <= hi for (lo, hi), y in zip(ends, found, strict=True))


def rows_and_norms(count: int) -> None:
    for engine in engines(1, count):
        stream, x = drawn(engine)
        layer = Linear("w", engine.rng.standard_normal((4, HIDDEN)), engine.rng.standard_normal(4))
        assert holds(read_rows(layer, stream), x, engine.linear(layer.weight, x, layer.bias))
        weight = np.where(engine.rng.random(HIDDEN) < 0.5, 1.0, engine.rng.uniform(0, 3, HIDDEN))
        stored, norm = bool(engine.rng.integers(2)), Norm("n", engine.store.nearest(weight), None, 1e-5, False)
        found = np.abs(engine.rms(x, norm.weight, norm.eps, stored))
        whole = normed(stream, norm, engine.store, stored)
        assert ((whole.lo <= found) & (found <= whole.hi)).all()
        same, ratio = scaled(stream, norm, engine.store, stored)
        factor = np.median(found[norm.weight > 0.1] / np.abs(x * norm.weight)[norm.weight > 0.1])
        middle = np.median(
            (same.lo + same.hi)[norm.weight > 0.1] / ((stream.lo + stream.hi) * norm.weight)[norm.weight > 0.1]
        )
        assert factor >= ratio * middle * (1 - 4 * engine.store.unit)


def unit(engine: Engine, gate: np.ndarray, up: np.ndarray, kind: str, stored: bool) -> np.ndarray:
    """act(gate) up, kept or stored at every place."""
    if not stored:
        maybe = engine.float32
    else:
        maybe = engine.maybe
        gate, up = maybe(gate), maybe(up)
    if kind == "silu":
        sigmoid = engine.function(1 / (1 + np.exp(-gate)))
        active = engine.float32(gate * (maybe(sigmoid) if stored else sigmoid))
    else:
        inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
        bent = np.where(np.abs(inner) >= 10, np.sign(inner), np.clip(engine.function(np.tanh(inner)), -1, 1))
        active = engine.float32(0.5 * gate * (1 + bent))
    return maybe(engine.float32(maybe(active) * up))


def units_of_an_mlp(count: int) -> None:
    """Gates of all sizes: where a sigmoid is nearly 1, its store is what matters."""
    for number, engine in enumerate(engines(2, count)):
        stream, x = drawn(engine)
        stored = bool(engine.rng.integers(2)) and engine.store.name != "float32"
        gate = engine.rng.standard_normal((6, HIDDEN))
        gate[:, :2] *= engine.rng.uniform(0, 12, (6, 1))
        up = np.where(np.arange(HIDDEN) < 2, 0.0, engine.rng.standard_normal((6, HIDDEN)))
        expert = Expert(Linear("gate", gate, None), Linear("up", up, None), Linear("down", np.ones((1, 6)), None))
        kind = ("silu", "gelu_tanh")[number % 2]
        rows = activated(expert, stream, replace(SHAPE, activation=kind), engine.store, stored)
        found = unit(engine, engine.linear(gate, x), engine.linear(up, x), kind, stored)
        assert holds(rows, x, found), (kind, stored, engine.store.name)


def written_channels(count: int) -> None:
    """One branch, or two experts whose weights are not exactly one half."""
    for engine in engines(3, count):
        rng, hidden, units = engine.rng, 3, int(engine.rng.choice([2, 40]))
        values = rng.uniform(0.5, 2.0, (units, 1)) * [1.0, rng.choice([1.0, 1.001])]
        low, high = np.repeat(values.min(1)[:, None], 8, 1), np.repeat(values.max(1)[:, None], 8, 1)
        rows = SmallRows("units", ((),) * units, low, high)
        down = rng.uniform(0.5, 3.0, (2, hidden, units))
        shares = rng.uniform(0.4, 0.6, 2)
        several = bool(rng.integers(2))
        parts = [Branch(rows, Linear("down", w, None), (s, s)) for w, s in zip(down, shares, strict=True)]
        parts = parts if several else [replace(parts[0], share=None)]
        base = rng.choice([rng.uniform(1.0, 2.0, hidden), np.full(hidden, 2.0**-12)])
        stream = SignStream(base, base, np.ones(hidden))
        writings = {c: Writing("x", (), lambda signs: 1.0) for c in range(hidden)}
        after = write_channels(stream, parts, writings, engine.store)
        x = rng.uniform(values.min(1), values.max(1))
        added = [engine.maybe(engine.linear(part.matrix.weight, x)) for part in parts]
        if several:
            added = [engine.maybe(a * s) for a, s in zip(added, shares, strict=True)]
        total = engine.maybe(added[0] + added[1]) if several else added[0]
        found = engine.maybe(base + total)
        assert ((after.lo <= found) & (found <= after.hi)).all(), (several, engine.store.name)


def heads(count: int) -> None:
    """One winner or many of one value, and losers with all the leak."""
    for engine in engines(4, count):
        rng, winners = engine.rng, int(engine.rng.choice([1, 2, 7, 60]))
        value, size = rng.uniform(0.5, 2.0, 3), 2.0
        leak = float(rng.choice([0.0, 1e-6, 1e-3, 2.0**-6]))
        rows = SmallRows("v", ((),) * 3, np.repeat(value[:, None], 8, 1), np.repeat(value[:, None], 8, 1))
        found = attended(rows, np.full(3, size), [leak], winners, engine.store)
        losers = int(rng.integers(1, 5))
        # The places that lose have `leak` of the winners' weight together, and the opposite value.
        scores = np.r_[np.zeros(winners), np.full(losers, np.log(max(leak * winners / losers, 1e-30)))]
        weights = engine.softmax(scores)
        lost = engine.maybe(np.full(3, -size))
        mixed = engine.sum(np.concatenate([weights[:winners] * value[:, None], weights[winners:] * lost[:, None]], 1))
        mixed = engine.maybe(mixed)
        assert ((found.lo[:, 0] <= mixed) & (mixed <= found.hi[:, 0])).all(), (winners, leak, engine.store.name)


def router_pairs(count: int) -> None:
    """Two logits that are equal in exact arithmetic, or nearly so, get a store each."""
    for engine in engines(5, count):
        stream, x = drawn(engine, 1)
        row = engine.rng.standard_normal(HIDDEN)
        row[0] = engine.rng.choice([2.0, 4.0, 9.0]) * 4
        other = row + np.where(np.arange(HIDDEN) == 3, engine.rng.choice([0.0, 2.0**-9, 0.1]), 0.0)
        router = Linear("router", np.stack([row, other, -row, -other]), None)
        proof = RecallProof.__new__(RecallProof)
        proof.store, proof.stored = engine.store, bool(engine.rng.integers(2)) and engine.store.name != "float32"
        logits = read_rows(router, stream)
        shown = logits.maybe(engine.store) if proof.stored else logits
        apart = proof._logits_apart(router, logits, shown, (0, 1), stream)
        seen = engine.linear(router.weight, x)
        seen = engine.maybe(seen) if proof.stored else seen
        assert abs(seen[0] - seen[1]) <= apart


RULES = (rows_and_norms, units_of_an_mlp, written_channels, heads, router_pairs)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_engines_stay_inside(rule: Callable[[int], None]) -> None:
    rule(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_thousands_of_engines_stay_inside(rule: Callable[[int], None]) -> None:
    rule(4000)


@pytest.mark.parametrize("size, fits", [(-64.0, False), (-0.5, True), (64.0, True)])
def test_a_fully_masked_row_of_float16_stays_finite(size: float, fits: bool) -> None:
    """Padding adds the least number: heads that nothing reads, and those that read a place, must not overflow then."""
    q, k = (SmallRows(name, ((),) * 8, *(np.full((8, 8), x),) * 2) for name, x in (("q", size), ("k", 8.0)))
    proof = RecallProof.__new__(RecallProof)
    proof.shape, proof.store = SHAPE, storage("float16")

    def read() -> None:
        read_places(q, k, np.ones((3, HIDDEN)), SHAPE, storage("float16"))

    for check in (lambda: proof._finite_score(q, k), read):
        if fits:
            check()
            continue
        with pytest.raises(Undecided, match="fully masked row"):
            check()
