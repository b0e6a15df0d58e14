"""Rules of the domain against engines that round as badly as the error model allows (`simulator.Engine`).

Every check draws fields with symbols, points inside them, and sizes from the least numbers of a type to its largest;
the default suite runs some hundred engines per rule, the slow one thousands.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from byheart.checkpoints.proof.attention import copied
from byheart.checkpoints.proof.bounds import TOKEN, Bounds, SymbolPart
from byheart.checkpoints.proof.config import Rotary, Shape, Undecided
from byheart.checkpoints.proof.copying import Reach, one_hot
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.mlp import KnownWindows
from byheart.checkpoints.proof.network import CheckpointProgram
from byheart.checkpoints.proof.routing import route
from byheart.checkpoints.proof.storage import Storage
from byheart.checkpoints.proof.units import enclose, variants
from tests.checkpoints.proof.simulator import Engine, engines

CASES = int(os.environ.get("BYHEART_CASES", "150"))
SIZE, SYMBOLS = 10, 3
SHAPE = Shape("llama", 7, SIZE, 1, 1, 1, SIZE, 4, 64, 1e-5, "silu", False, Rotary(1e4, SIZE))
Array = np.ndarray


def width(engine: Engine, size: Array) -> Array:
    """How wide intervals are, relative to their numbers: not at all, a few units, or much."""
    return np.asarray(size * engine.rng.choice([0.0, 0.0, 2.0**-22, 2.0**-9, 0.1]) * engine.rng.random(size.shape))


def extreme(engine: Engine, shape: tuple[int, ...]) -> Array:
    """Numbers of one size; some are zero, one ulp from a tie, or below the normal range."""
    rng, store = engine.rng, engine.store
    top = 12 if store.name == "float16" else 50
    x = rng.standard_normal(shape) * 2.0 ** rng.choice([0, 0, 0, -3, top, -13, -20, -60 if top == 50 else -24])
    near = np.asarray(store.nearest(x))
    tie = near + np.abs(near) * store.unit * rng.choice([1.0, 1 - 2.0**-20, 1 + 2.0**-20])
    return np.where(rng.random(shape) < 0.3, near, np.where(rng.random(shape) < 0.3, tie, x)) * (
        rng.random(shape) < 0.9
    )


def drawn(engine: Engine, values: Callable[[Engine, tuple[int, ...]], Array] = extreme) -> tuple[Bounds, int, Array]:
    """A field with one symbol, a symbol, and a vector inside."""
    rng = engine.rng
    base, part = values(engine, (SIZE,)), values(engine, (SYMBOLS, SIZE))
    channels = np.sort(rng.permutation(SIZE)[: int(rng.integers(1, SIZE + 1))])
    part = part[:, channels]
    base[channels] = np.where(rng.random(len(channels)) < 0.5, 0.0, base[channels])
    wide, spread = width(engine, np.abs(base)), width(engine, np.abs(part))
    field = Bounds(base - wide, base + wide, (SymbolPart((TOKEN, 0), channels, part - spread, part + spread),))
    symbol = int(rng.integers(SYMBOLS))
    x = base + wide * rng.choice([-1.0, 0.0, 1.0], SIZE)
    x[channels] += part[symbol] + spread[symbol] * rng.choice([-1.0, 0.0, 1.0], len(channels))
    return field, symbol, x


def moderate(engine: Engine, shape: tuple[int, ...]) -> Array:
    return np.asarray(engine.rng.standard_normal(shape) * np.exp(engine.rng.uniform(-2, 2, shape)))


def inside(field: Bounds, symbol: int, x: Array) -> bool:
    lo, hi = field.lo.copy(), field.hi.copy()
    for part in field.parts:
        lo[part.channels] += part.lo[symbol]
        hi[part.channels] += part.hi[symbol]
    return bool(((lo <= x) & (x <= hi)).all())


def stores(count: int) -> None:
    for engine in engines(21, count):
        field, symbol, x = drawn(engine)
        assert inside(field.store(engine.store), symbol, engine.maybe(x)), engine.store.name


def sums(count: int) -> None:
    """Two vectors of one symbol that cancel, or not."""
    for engine in engines(22, count):
        field, symbol, x = drawn(engine)
        assert inside(field.add(field), symbol, x + x)
        sign = Bounds(-field.hi, -field.lo, tuple(SymbolPart(p.key, p.channels, -p.hi, -p.lo) for p in field.parts))
        found = field.add(sign).store(engine.store)
        assert inside(found, symbol, engine.maybe(x - x))


def linear_maps(count: int) -> None:
    for engine in engines(23, count):
        field, symbol, x = drawn(engine)
        weight = np.asarray(engine.store.nearest(moderate(engine, (6, SIZE)) * (engine.rng.random((6, SIZE)) < 0.7)))
        bias = None if engine.rng.random() < 0.5 else np.asarray(engine.store.nearest(moderate(engine, (6,))))
        try:
            found = field.matmul(Linear("w", weight, bias), engine.store)
        except Undecided:  # beyond the range
            continue
        shown = engine.maybe(engine.linear(weight, x))
        shown = shown if bias is None else engine.maybe(shown + bias)
        assert inside(found, symbol, shown), (engine.store.name, bias is None)


def norms(count: int) -> None:
    """RMSNorm and LayerNorm, in one pass or two, in both kinds of engines."""
    for number, engine in enumerate(engines(24, count)):
        rng, centred = engine.rng, number % 2 == 1
        field, symbol, x = drawn(engine, moderate)
        weight = np.where(rng.random(SIZE) < 0.3, 1.0, np.asarray(engine.store.nearest(rng.uniform(-2, 2, SIZE))))
        bias = np.asarray(engine.store.nearest(moderate(engine, (SIZE,)))) if centred else None
        stored = bool(rng.integers(2)) and engine.store.name != "float32"
        try:
            found = field.norm(Norm("n", weight, bias, 1e-5, centred), engine.store, stored)
        except Undecided:
            continue
        y = x
        if centred:
            mean = engine.float32(engine.sum(x) / SIZE)
            y = engine.float32(x - mean)
        factor = engine.function(1 / np.sqrt(engine.mean_square(y) + 1e-5))
        y = engine.float32(y * factor)
        y = engine.stored(y) if stored and rng.random() < 0.5 and bias is None else y
        y = engine.float32(y * weight)
        y = y if bias is None else engine.float32(y + bias)
        y = engine.stored(y) if stored else y
        assert inside(found.whole, symbol, y), (centred, stored, engine.store.name)
        if found.kept is not None and not centred:  # the form that shares the factor
            lo, hi = found.factor
            assert lo <= float(factor) <= hi


def activations(count: int) -> None:
    for engine in engines(25, count):
        lo = engine.rng.uniform(-25, 12, 40)
        hi = lo + width(engine, np.abs(lo))
        x = lo + (hi - lo) * engine.rng.choice([0.0, 0.5, 1.0], 40)
        for kind in ("silu", "gelu", "gelu_tanh", "relu"):
            shown = activated(engine, kind, x, False)
            ends = enclose(kind, lo, hi)
            assert ((ends[0] <= shown) & (shown <= ends[1])).all(), kind
            ways = [engine.store.maybe(*way) for way in variants(kind, lo, hi, engine.store, False)]
            shown = engine.maybe(activated(engine, kind, x, engine.store.name != "float32"))
            low, high = np.minimum.reduce([w[0] for w in ways]), np.maximum.reduce([w[1] for w in ways])
            assert ((low <= shown) & (shown <= high)).all(), kind


def activated(engine: Engine, kind: str, x: Array, stored: bool) -> Array:
    """silu with a sigmoid that may be stored; gelu with 1 + erf or 1 + tanh in one step, exactly 0 far below zero."""
    if kind == "relu":
        return np.maximum(x, 0.0)
    if kind == "silu":
        sigmoid = engine.function(1 / (1 + np.exp(-x)))
        return engine.float32(x * (engine.maybe(sigmoid) if stored else sigmoid))
    inner = x / np.sqrt(2) if kind == "gelu" else np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    inner = engine.float32(engine.float32(inner))
    bent = np.tanh(inner) if kind == "gelu_tanh" else np.vectorize(math.erf)(inner)
    bent = np.where(np.abs(inner) >= (10 if kind == "gelu_tanh" else 6), np.sign(inner), engine.function(bent))
    return engine.float32(engine.float32(0.5 * x) * engine.float32(1 + np.clip(bent, -1, 1)))


def copies(count: int) -> None:
    """Rotated queries and keys, stored scores, softmax: a head reads the value at its distance, up to the leak."""
    places, shown = 12, 0
    for engine in engines(26, count):
        rng, store, half = engine.rng, engine.store, SIZE // 2
        target, theta = int(rng.integers(4)), 1e4 ** (-np.arange(half) / half)
        size = rng.uniform(3, 9, half)
        wave = size * np.exp(1j * rng.uniform(0, 6, half))
        query, key = (
            np.asarray(store.nearest(np.r_[w.real, w.imag])) for w in (wave * np.exp(-1j * theta * target), wave)
        )
        q, k = Bounds(query, query), Bounds(key, key)
        copy = one_hot(q, k, SHAPE, Reach(places), store)
        if copy is None:
            continue
        shown += 1
        table = moderate(engine, (SYMBOLS, 2))
        value = Bounds(-np.ones(2), np.ones(2), (SymbolPart((TOKEN, 0), np.arange(2), table, table),))
        field = copied(value, copy).store(store)
        angles = engine.float32(np.outer(np.arange(places), theta))
        keys = np.stack([engine.turned(key, angle) for angle in angles])
        for t in (places - 1, int(rng.integers(places))):
            turned = engine.turned(query, angles[t])
            scores = engine.maybe(engine.sum(engine.float32(keys[: t + 1] * turned)))
            scores = engine.maybe(scores * SHAPE.scale)
            weights = engine.softmax(scores)
            symbols = rng.integers(SYMBOLS, size=t + 1)
            values = rng.choice([-1.0, 1.0, 0.3], (t + 1, 2)) + table[symbols]
            out = engine.maybe(engine.sum((weights[:, None] * values).T))
            at = t - copy.offset if t >= copy.offset else t if copy.stays else 0
            assert inside(field, int(symbols[at]), out), (store.name, copy)
    assert shown > count / 4


def routers(count: int) -> None:
    """Softmax of stored logits: who is chosen, and with which weight."""
    shown = 0
    for engine in engines(27, count):
        rng, store = engine.rng, engine.store
        x = moderate(engine, (SYMBOLS, SIZE))
        field = Bounds(np.zeros(SIZE), np.zeros(SIZE), (SymbolPart((TOKEN, 0), np.arange(SIZE), x, x),))
        stored = store.name != "float32"
        normed = field.norm(Norm("n", np.ones(SIZE), None, 1e-5, False), store, stored)
        weight = np.asarray(store.nearest(rng.standard_normal((4, SIZE)) * 2))
        mlp = type("M", (), {"router": Linear("router", weight, None), "correction": None})()
        try:
            choice = route(normed, mlp, replace(SHAPE, experts=4, experts_used=2), store)
        except Undecided:
            continue
        shown += 1
        assert choice is not None
        for symbol in range(SYMBOLS):
            y = engine.rms(x[symbol], np.ones(SIZE), 1e-5, stored)
            logits = engine.linear(weight, y)
            logits = engine.maybe(logits) if stored else logits
            chosen = np.argsort(-logits)[:2]
            assert set(chosen) == set(np.flatnonzero(choice.hi[symbol] > 0))
            shares = engine.function(np.exp(logits - logits.max()))
            shares = engine.float32(shares / engine.sum(shares))[chosen]
            shares = engine.maybe(engine.float32(shares / engine.sum(shares)))
            assert (choice.lo[symbol, chosen] <= shares).all() and (shares <= choice.hi[symbol, chosen]).all()
    assert shown > count / 15


def heads(count: int) -> None:
    """The last norm and the logits: no difference of two stored logits is below the proved margin."""
    for engine in engines(28, count):
        field, symbol, x = drawn(engine, moderate)
        head = Linear("head", np.asarray(engine.store.nearest(moderate(engine, (7, SIZE)))), None)
        norm = Norm("n", np.asarray(engine.store.nearest(engine.rng.uniform(0.5, 2, SIZE))), None, 1e-5, False)
        stored = bool(engine.rng.integers(2)) and engine.store.name != "float32"
        program = program_of(field, norm, head, engine.store, stored)
        try:
            proved = program.logits({(TOKEN, 0): np.array([symbol])})
        except Undecided:
            continue
        y = engine.rms(x, norm.weight, norm.eps, stored)
        logits = engine.maybe(engine.linear(head.weight, y))
        for token in range(7):
            lead = proved.margin(token)[0]
            others = np.delete(np.arange(7), token)
            assert (logits[token] - logits[others] >= lead[others]).all(), (engine.store.name, stored)


def program_of(field: Bounds, norm: Norm, head: Linear, store: Storage, stored: bool) -> CheckpointProgram:
    none = np.zeros(0, dtype=int)
    tables = {1: KnownWindows((), np.zeros((0, 0), dtype=int), none, none)}
    return CheckpointProgram(SHAPE, store, Reach(8), tables, (), field, norm, head, stored)


RULES = (stores, sums, linear_maps, norms, activations, copies, routers, heads)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_engines_stay_inside(rule: Callable[[int], None]) -> None:
    rule(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_thousands_of_engines_stay_inside(rule: Callable[[int], None]) -> None:
    rule(5000)
