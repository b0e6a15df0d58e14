"""Engines that round in the worst direction that the error model allows, beside the bounds of the second checker.

Every simulator takes the program, or a mutant of it, as a module, and reports whether its bounds hold the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

U, F, SMALL = 2.0**-24, 2.0**-20, 2.0**-126
Simulator = Callable[[ModuleType], bool]


def holds(box: object, values: np.ndarray) -> bool:
    """Whether every value lies inside."""
    return bool((box.lo <= values).all() and (values <= box.hi).all())  # type: ignore[attr-defined]


def shape(c: ModuleType, **options: object) -> object:
    base = {"family": "llama", "vocab": 1, "hidden": 8, "layers": 1, "heads": 1, "kv": 1, "width": 8, "units": 5,
            "positions": 8, "eps": 1e-5, "act": "silu", "tied": False}  # fmt: skip
    return c.Shape(**(base | options))


def point(c: ModuleType, *values: float) -> object:
    return c.form(c.exactly(np.array([values])))


def sums(c: ModuleType) -> bool:
    """A large term first: every later addition errs by u of it. Products below the normal range are flushed."""
    weight = np.r_[1.0, np.full(63, 2.0**-30)][None]
    box = c.linear(point(c, *np.ones(64)), c.Linear(weight), None).box()
    tiny = c.linear(point(c, *np.full(64, 2.0**-63)), c.Linear(np.full((1, 64), 0.99 * 2.0**-63)), None).box()
    return holds(box, weight.sum() * (1 + U) ** 63) and holds(tiny, np.zeros(1))


def stores(c: ModuleType) -> bool:
    """Just above a tie, normal and below the normal range; kept in float32, or flushed."""
    good = holds(c.rounded32(c.exactly(np.array([1 + 3 * U]))), np.array([1 + 4 * U]))
    good = good and holds(c.rounded32(c.exactly(np.array([SMALL / 2]))), np.zeros(1))
    for name, low, step in (("bfloat16", 1.0, 2.0**-7), ("float16", 2.0**-18, 2.0**-24)):
        kind, top = c.TYPES[name], low + 2.5 * step * (1 + 2.0**-12)
        units = c.Units(
            np.array([[(low + top) / 2]]), np.array([[(top - low) / 2]]), (), np.zeros((1, 1)), np.zeros((1, 1))
        )
        good = good and holds(c.stored_units(units, kind).box(), kind.nearest(np.array([top])))
        either = c.maybe(c.exactly(np.array([top])), kind)
        good = good and holds(either, kind.nearest(np.array([top]))) and holds(either, np.array([top]))
    return good


def biased_stores(c: ModuleType) -> bool:
    """A unit is stored before its bias and after it."""
    kind, rng = c.TYPES["bfloat16"], np.random.default_rng(1)
    good = True
    for _ in range(300):
        weight, bias = kind.nearest(rng.standard_normal((2, 1))), kind.nearest(rng.standard_normal(2) * 0.1)
        mid = rng.standard_normal()
        x = c.Form(np.array([[mid]]), np.array([[2.0**-12]]))
        box = c.inner_units(x, c.Linear(weight, bias), kind, True, True).box()
        for value in (mid - 2.0**-12, mid + 2.0**-12):
            good = good and holds(box, kind.nearest(kind.nearest(weight[:, 0] * value) + bias))
    return good


def roots(c: ModuleType) -> bool:
    """A sum of squares in the worst order, eps to float32, rsqrt by 2^-20; the variance in one pass."""
    good = True
    for values, eps in ((np.ones(512), 1e-5), (np.full(4, 1e-9), 1e-5)):
        box = c.inverse_root(c.exactly(values[None]), eps, None)
        for sign in (-1, 1):
            square = (values**2).mean() * (1 - sign * U * (len(values) + 2)) + eps * (1 - sign * 2.0**-23)
            good = good and holds(box, np.array([[(1 + sign * F) / np.sqrt(square)]]))
    centred = np.where(np.arange(64) % 2, 1.0, -1.0)
    box = c.inverse_root(c.exactly(centred[None]), 1e-5, np.array([100.0]))
    return good and holds(box, np.array([[1 / np.sqrt(1 + 1e-5 - 64 * U * 1e4)]]))


def norms(c: ModuleType) -> bool:
    """A mean in the worst order; a product that is flushed; a stream that is stored by itself and after the weight."""
    one, two = shape(c, family="gpt2", hidden=64), shape(c, hidden=8)
    x = 100 + np.r_[0.0, 0.0, np.where(np.arange(62) % 2, 1.0, -1.0)]
    box = c.normed(c.exactly(x[None]), (np.ones(64), np.zeros(64)), one, c.TYPES["float32"], False).box()
    centred = x - x.mean() * (1 + 62 * U)
    good = holds(box[:, 0], centred[:1])  # where nothing but the mean errs
    tiny = np.r_[np.ones(7), 0.9 * SMALL]
    box = c.normed(c.exactly(tiny[None]), (np.ones(8), None), two, c.TYPES["float32"], False).box()
    good = good and holds(box[0, 7], np.zeros(1))
    rng, kind = np.random.default_rng(2), c.TYPES["bfloat16"]
    for _ in range(200):
        x, weight = rng.standard_normal(8), kind.nearest(rng.uniform(0.5, 2, 8))
        wide = 10.0 ** rng.uniform(-7, -1)
        box = c.normed(c.Box(x[None] - wide, x[None] + wide), (weight, None), two, kind, True).box()
        for y in (x - wide, x + wide, x):
            y = y / np.sqrt((y * y).mean() + 1e-5)
            good = good and holds(box, kind.nearest(kind.nearest(y) * weight)) and holds(box, kind.nearest(y * weight))
            good = good and holds(box, kind.nearest(y) * weight)
    return good


def activations(c: ModuleType) -> bool:
    """Functions by 2^-20, the halves of gelu below zero, the argument of a scaled sigmoid, the line's curvature."""
    good = True
    for kind, x, error in (("silu", 3.0, F), ("silu", -9.0, F), ("glu", 2.0, F), ("glu", -40.0, 2 * U * c.ALPHA * 40)):
        value = c.curve(kind, np.array([x]))
        good = good and holds(c.activated(kind, c.exactly(np.array([x]))), value * (1 + error))
    for kind in ("gelu", "tanh"):
        value = c.curve(kind, np.array([-4.0]))
        good = good and holds(c.activated(kind, c.exactly(np.array([-4.0]))), value - 2.0**-21 * 4)
    for kind, mid in (("silu", 0.0), ("gelu", 0.0), ("glu", 0.0)):
        units = c.Units(np.array([[mid]]), np.array([[0.1]]), (), np.zeros((1, 1)), np.zeros((1, 1)))
        value, slope, error = c.bent(kind, units)
        points = mid + np.linspace(-0.1, 0.1, 21)
        good = good and bool((np.abs(c.curve(kind, points) - value - slope * (points - mid)) <= error).all())
    return good


def stored_steps(c: ModuleType) -> bool:
    """A sigmoid, its argument and the product stored, in an MLP of one gate and in a convolution."""
    kind, rng = c.TYPES["bfloat16"], np.random.default_rng(3)
    x = kind.nearest(np.r_[rng.uniform(-12, 12, 4000), rng.uniform(-3, 0, 4000)])[None]
    share = kind.nearest(1 / (1 + np.exp(-x)))
    good = holds(c.silu_steps(c.exactly(x), kind), kind.nearest(x * share))
    for name in ("silu", "glu"):
        units = c.Units(x, 0 * x, (), 0 * x, 0 * x)
        value, slope, error = c.bent(name, units)
        error = error + c._steps(name, units, value, slope, shape(c, act=name), kind)
        inner = kind.nearest(c.ALPHA * x) if name == "glu" else x
        act = kind.nearest(x * kind.nearest(1 / (1 + np.exp(-inner))))
        good = good and bool((np.abs(act - value) <= error).all())
    return good


def products(c: ModuleType) -> bool:
    """Units that fire in the worst order, units that are lost beside them, and errors of gate and up together."""
    s, kind = shape(c, act="relu"), c.TYPES["float32"]
    for count, small, lost in ((255, 2.0**-5.9, False), (63, 0.99 * 2.0**-25, True)):
        gate = np.r_[1.0, np.full(count, small)][:, None]
        expert = (c.Linear(gate), c.Linear(np.ones((count + 1, 1))), c.Linear(np.ones((1, count + 1))))
        box = c.mlp_way(point(c, 1.0), expert, s, kind, (False, False, False)).box()
        partial = np.cumsum(gate[:, 0])
        seen = 1.0 if lost else partial[-1] + U * partial[1:].sum()
        if not holds(box, np.array([seen])):
            return False
    wide = c.Form(np.array([[1.0]]), np.array([[0.3]]))
    expert = (c.Linear(np.ones((1, 1))), c.Linear(np.ones((1, 1))), c.Linear(np.ones((1, 1))))
    box = c.mlp_way(wide, expert, s, kind, (False, False, False)).box()
    return holds(box, np.array([1.3**2])) and holds(box, np.array([0.7**2]))


def experts(c: ModuleType) -> bool:
    """Parts in random orders, partial sums stored at random; largest parts near a tie."""
    kind, rng = c.TYPES["bfloat16"], np.random.default_rng(4)
    good = True
    for number in range(300):
        count = int(rng.integers(2, 9))
        parts = rng.standard_normal(count) * 10.0 ** rng.uniform(-6, 0, count)
        if number % 2:
            parts[0] = 1 + 2.0**-8 * (1 + rng.choice([-1, 1]) * 2.0**-20)
            parts[1:] = kind.nearest(2.0**-8 * rng.standard_normal(count - 1) * 10.0 ** rng.uniform(-4, -1))
        box = c.partial_sums([c.exactly(np.array([[p]])) for p in parts], kind)
        for order in (np.arange(count), rng.permutation(count)):
            total = 0.0
            for p in parts[order]:
                total = float(np.float32(total + p))
                total = float(kind.nearest(np.array(total))) if rng.random() < 0.6 else total
            good = good and holds(box, np.array([[total]]))
    return good


def routers(c: ModuleType) -> bool:
    """Weights from exponentials by 2^-20; logits closer than their stores may be exchanged."""
    s, x = shape(c, experts=3, used=2), point(c, 1.0)
    _, share = c.route(x, c.Linear(np.array([[2.0**-6], [2.0**-6], [-9.0]])), s, c.TYPES["float32"], False)
    good = holds(share[0, :1], np.array([(1 + F) / ((1 + F) + (1 - F))]))
    try:
        c.route(point(c, 100.0), c.Linear(np.array([[4.0], [1.0], [0.999]])), s, c.TYPES["bfloat16"], True)
        good = False
    except c.NotProved:
        pass
    d = shape(c, experts=4, used=2, groups=2, chosen_groups=1, routed=2.5)
    router = c.Linear(np.array([[3.0], [3.0], [-9.0], [-9.0]]))
    _, share = c.route_groups(x, router, np.zeros(4), d, c.TYPES["float32"])
    good = good and holds(share[0, :1], np.array([2.5 * (1 + F) * (1 + 4 * U) / ((1 + F) + (1 - F))]))
    try:
        one = shape(c, experts=4, used=1)
        c.route_groups(x, c.Linear(np.array([[8.0], [7.997], [-9.0], [-9.0]])), np.zeros(4), one, c.TYPES["float32"])
    except c.NotProved:
        return good
    return False


def rotations(c: ModuleType) -> bool:
    """Inverse frequencies by 2^-22, angles to float32, cosines by 2^-22."""
    rope = c.Rope(np.ones(1), np.full(1, 2.0**-22))
    x = c.exactly(np.tile([1.0, 0.0], (200, 1, 1)))
    box = c.rotate(x, rope, c.TYPES["float32"])
    t = np.arange(200) * (1 + 2.0**-22) * (1 + U)
    seen = np.stack([np.cos(t) - 2.0**-22 * (1 - 2.0**-6), np.sin(t) + 2.0**-22 * (1 - 2.0**-6)], -1)[:, None]
    seen = np.where(np.abs(seen) > 1, np.stack([np.cos(t), np.sin(t)], -1)[:, None], seen)
    return holds(box, seen)


def scores(c: ModuleType) -> bool:
    """Score sums in the worst order, scores that are stored; softmax by 2^-20; a sink's differences that are stored."""
    good = True
    for name, width, size in (("float32", 64, 64.0), ("bfloat16", 8, 32.0)):
        kind, s = c.TYPES[name], shape(c, width=width)
        s.scale = 1.0  # type: ignore[attr-defined]
        q = np.full((2, width), size / width)
        k = np.stack([np.ones(width), np.ones(width) * (1 - 4 / size)])
        look = c.attend(c.exactly(q), c.exactly(k), c.exactly(np.ones((2, 1))), s, kind, None)
        exact = q[1] @ k.T
        error = (kind.unit if name == "bfloat16" else (width - 1) * U) * exact
        good = good and bool(look.leak[1] >= np.exp(exact[1] - exact[0] + 0.9 * error.sum()))
    kind, s = c.TYPES["bfloat16"], shape(c, width=1)
    s.scale = 1.0  # type: ignore[attr-defined]
    one, keys = c.exactly(np.ones((2, 1))), c.exactly(np.array([[0.0], [100.0]]))
    look = c.attend(one, keys, one, s, kind, None, 90.0)
    good = good and bool(look.leak[1] >= np.exp(-10 + 0.95 * kind.unit * 10 + 0.99 * kind.unit * 100))
    copied = c.Look(np.zeros(1, dtype=int), np.full(1, 0.05), c.exactly(np.zeros((1, 1))))
    values = c.exactly(np.array([[1.0], [-1.0]]))
    good = good and holds(c.seen_values(copied, values, c.TYPES["float32"]), np.array([[1 - 2 * 0.05]]))
    copied = c.Look(np.zeros(1, dtype=int), np.zeros(1), c.exactly(np.zeros((1, 1))))
    return good and holds(c.seen_values(copied, values, c.TYPES["float32"]), np.array([[1 + F]]))


def mixtures(c: ModuleType) -> bool:
    """Weights that are stored, exponentials by 2^-20, and sums in the worst order."""
    kind = c.TYPES["bfloat16"]
    flat = np.zeros(3)
    lo, hi = c.mixed(flat, flat, 0, c.exactly(np.ones((3, 1))), kind)
    good = holds(c.Box(lo, hi), 3 * kind.nearest(np.full(1, 1 / 3)))
    lo, hi = c.mixed(flat[:2], flat[:2], 0, c.exactly(np.array([[1.0], [-1.0]])), c.TYPES["float32"])
    good = good and holds(c.Box(lo, hi), np.array([((1 + F) * (1 + F) - (1 - F)) / 2]))
    many = np.zeros(4096)
    lo, hi = c.mixed(many, many, 0, c.exactly(np.ones((4096, 1))), c.TYPES["float32"])
    return good and holds(c.Box(lo, hi), np.array([1 + 6000 * U]))


def caps(c: ModuleType) -> bool:
    kind = c.TYPES["float32"]
    x, cap = np.array([-70.0, 3.0, 20.0]), 50.0
    return holds(c.capped(c.exactly(x), cap, kind), cap * np.tanh(x / cap) * (1 + F))


def masked(c: ModuleType) -> bool:
    """A score just above -16 at distance 0 may fall below it in float16: where query and key are stored, where a pair's
    products cancel, and where the score is stored."""
    kind, one = c.TYPES["float16"], shape(c, width=1)
    one.scale = 1.0  # type: ignore[attr-defined]
    cases = (
        (point(c, 4.0, 20.0, 20.0), point(c, -3.98, 20.0, -20.0), slice(0)),
        (point(c, 0.0, 100.0, 4.0), point(c, 100.0, 0.0, -3.95), slice(0, 2)),
        (point(c, 1.0), point(c, -15.965), slice(0)),
    )
    for q, k, turned in cases:
        try:
            c.masked_rows(q, k, one, kind, turned)
            return False
        except c.NotProved:
            pass
    return True


def logits(c: ModuleType) -> bool:
    """Sums in the worst order against each other, and logits that are stored."""
    good = True
    for name, first, second in (("float32", 64.0, 0.0), ("bfloat16", 64.2, 63.4)):
        kind = c.TYPES[name]
        weight = np.stack([np.r_[one, np.full(63, 2.0**-24)] for one in (first, second)])
        network = c.Network(shape(c, hidden=64), weight, None, c.Linear(weight), (np.ones(64), None), [])
        found = c._gaps(network, point(c, *np.ones(64)), kind, [0])[0]
        engine = kind.nearest(np.array([first, second])) if name == "bfloat16" else np.array([64 * (1 - 63 * U), 0.0])
        good = good and found <= engine[0] - engine[1]
    return good


def time_steps(c: ModuleType) -> bool:
    """softplus by 2^-19, and as the logarithm of a rounded sum."""
    x = np.array([2.0, -16.7])
    box = c.softplus(c.exactly(x))
    return holds(box, np.array([np.logaddexp(0, 2.0) * (1 + 2 * F), 0.0]))


def convolutions(c: ModuleType) -> bool:
    """A sum over taps in the worst order; a sum that is stored before the bias."""
    kind, rng = c.TYPES["bfloat16"], np.random.default_rng(5)
    c.silu_steps = lambda x, kind: x
    taps = np.array([[2.0**-20, 2.0**-20, 2.0**-20, 1.0]])
    box = c.convolved(c.exactly(np.ones((4, 1))), taps, None, c.TYPES["float32"])
    good = holds(box[3], np.array([taps.sum() * (1 + U) ** 4]))
    x, bias = kind.nearest(rng.standard_normal((1, 500))), kind.nearest(rng.standard_normal(500) * 0.1)
    taps = kind.nearest(rng.standard_normal((500, 1)))
    box = c.convolved(c.exactly(x), taps, bias, kind)
    return good and holds(box, kind.nearest(kind.nearest(x * taps[:, 0]) + bias))


def decays(c: ModuleType) -> bool:
    """Decays of single steps by 2^-20 each; differences of sums over a chunk."""
    box, _ = c.decayed(c.exactly(np.full(60, 1e-6)), np.zeros(()))
    good = holds(box[59, 0], np.exp(-59e-6) * (1 + F) ** 59)
    power = np.r_[np.full(100, 50.0), 0.0, 0.0]
    box, _ = c.decayed(c.exactly(power), np.zeros(()))
    return good and holds(box[101, 100], np.exp(np.array(100 * U * 5000)))


def mamba_states(c: ModuleType) -> bool:
    """One head, step by step in bfloat16 and float16: every product is stored, and the state where it is read."""
    c.inner_norm = lambda x, *_: x
    rng, good = np.random.default_rng(6), True
    for name, low in (("bfloat16", 0.0), ("float16", -8.0)):
        kind, t = c.TYPES[name], c.StateShape(1, 1, 3, 2, 1)
        s = shape(c, family="bamba", hidden=11, state=t)
        into, places = np.eye(11), 12
        x = kind.nearest(rng.uniform(0.5, 4, (places, 11)))
        x[:, :2], x[:, 10] = 30.0, low
        if low:  # every product of a step is rounded down by nearly half a step of the type
            several = kind.nearest(np.linspace(0.006, 0.02, 2000))
            steps = kind.nearest(np.logaddexp(0, low)) * kind.nearest(several / (1 + np.exp(-several))) / 2.0**-24
            x[:, 4:7], x[:, 7:10] = several[np.abs(steps % 1 - 0.45) < 0.03][0], 60.0
        m = c.Recurrent(c.Linear(into), np.ones((8, 1)), None, np.zeros(1), np.full(1, -8.0), None, c.Linear(np.eye(2)),
                        np.zeros(1))  # fmt: skip
        box = c.mamba(c.form(c.exactly(x)), m, s, kind)
        silu = kind.nearest(x[:, 2:10] / (1 + np.exp(-x[:, 2:10])))
        v, b, read = silu[:, :2], silu[:, 2:5], silu[:, 5:]
        dt = kind.nearest(np.logaddexp(0, x[:, 10]))
        state = np.zeros((2, 3))
        for place in range(places):
            state = state * np.exp(-np.exp(-8.0) * dt[place])
            state = state + kind.nearest(kind.nearest(dt[place] * b[place]) * v[place][:, None])
            out = kind.nearest(kind.nearest(state) @ read[place]) * 30
            good = good and holds(c.Box(box.lo[place], box.hi[place]), kind.nearest(out))
    return good


def delta_states(c: ModuleType) -> bool:
    """Keys, values, writes and decays at the ends of their intervals; sums that err; lost digits of exponents."""
    rng, good = np.random.default_rng(7), True
    for loose in (1e-3, 0.0):
        k = rng.standard_normal((40, 1, 6))
        k = k / np.sqrt((k * k).sum(-1, keepdims=True)) * 0.99
        v, q = rng.uniform(0.5, 1, (40, 1, 3)), rng.standard_normal((40, 1, 6)) / 4
        power, beta = rng.uniform(0, 0.05, (40, 1)), rng.uniform(0.1, 0.9, (40, 1))
        parts = [(q, loose), (k, loose), (v, loose), (power, loose / 10), (beta, loose)]
        boxes = [c.Box(x - e, x + e) for x, e in parts]
        box = c.delta_rule(*boxes, np.zeros(1))
        for _ in range(30):
            sign = rng.choice([-1.0, 1.0], 5)
            q1, k1, v1, p1, b1 = (x + e * s for (x, e), s in zip(parts, sign, strict=True))
            state = np.zeros((6, 3))
            for t in range(40):
                state = state * np.exp(-p1[t]) * (1 + 2 * F)
                state = state + np.outer(k1[t, 0], b1[t] * (v1[t, 0] - k1[t, 0] @ state)) * (1 + 8 * U)
                good = good and holds(box[t, 0], q1[t, 0] @ state / np.sqrt(6))
    # A key, and a query, that is off by itself.
    first, second = np.array([[[1.0, 0.0]]]), np.array([[[0.0, 1.0]]])
    k, off = np.concatenate([first, first]), np.array([[[0.0, 0.0]], [[0.0, 0.01]]])
    v, power, beta = np.array([[[1000.0]], [[0.0]]]), np.full((2, 1), 1e-9), np.ones((2, 1))
    rest = [c.exactly(x) for x in (v, power, beta)]
    box = c.delta_rule(c.exactly(np.concatenate([second, second])), c.Box(k - off, k + off), *rest, np.zeros(1))
    good = good and holds(box[1], np.full((1, 1), -10 / np.sqrt(2)))
    box = c.delta_rule(c.Box(k[:1] * 0.99, k[:1] * 1.01), c.exactly(k[:1]), *(part[:1] for part in rest), np.zeros(1))
    good = good and holds(box[0], np.full((1, 1), 1010 / np.sqrt(2)))
    # One write that is read in the worst order.
    one = np.zeros((1, 1, 64))
    one[..., 0] = 1.0
    ends = [c.exactly(x) for x in (one, one, np.ones((1, 1, 1)), np.full((1, 1), 1e-9), np.ones((1, 1)))]
    good = good and holds(c.delta_rule(*ends, np.zeros(1)), np.full((1, 1, 1), (1 + 128 * U) / 8))
    # A large exponent, then none: a chunk's difference of sums loses digits of what lasts.
    many = np.zeros((90, 1, 64))
    many[..., 0] = 1.0
    power = np.r_[np.full(60, 50.0), np.zeros(30)][:, None]
    beta = np.r_[np.ones(60), np.zeros(30)][:, None]
    ends = [c.exactly(x) for x in (many, many, np.ones((90, 1, 1)), power, beta)]
    return good and holds(c.delta_rule(*ends, np.zeros(1))[89], np.full((1, 1), np.exp(60 * U * 3000) / 8))


def lengths(c: ModuleType) -> bool:
    x = np.ones((1, 64))
    box = c.of_length_one(c.exactly(x))
    return holds(box, x / np.sqrt(64 * (1 - 64 * U) + 1e-6) * (1 + 2 * F)) and holds(
        box, x / np.sqrt(64 * (1 + 64 * U) + 1e-6) * (1 - 2 * F)
    )
