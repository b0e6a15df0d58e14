"""Mamba-2 as bounds: what passes through, and what a state adds to it.

    h[t] = e^(-A dt) h[t-1] + dt x b,      y = h[t] c + skip x

so y = skip x[t] + sum over s <= t of (c[t] b[s]) w_s x[s] with w_s = dt_s times the decays after s. The w_s of all
places but the first few add up to at most

    their number times the largest dt,      and      e^(A dt) / A

(A dt e^(-A T) is below e^(A dt) times its integral),

so a head whose dt is next to 0 (softplus(-30)) shows x alone: a window. A *latch* has a large dt at the first places
alone, by what is absent there, and A next to 0: then the first writes are summed one by one, and the
rest is an error. Any other head lies in the hull of what its state can hold.

Gate and norm come after, in float32: the norm's factor is bounded by the energy of all its heads.

Engines run the scan in chunks in float32, or step by step, where dt, dt b, dt b x, the state that is read, its product
with c and the sum may all be stored.
"""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.proof import state_rounding as states
from byheart.checkpoints.proof.bounds import Bounds, Normed, constant, interval_product, magnitude
from byheart.checkpoints.proof.convolution import apart, at_place, convolved, farthest, side_by_side
from byheart.checkpoints.proof.copying import Reach
from byheart.checkpoints.proof.decoder import Mamba2
from byheart.checkpoints.proof.storage import Interval, Storage, finite
from byheart.checkpoints.proof.units import enclose

CHUNK = 256  # places that an engine takes at a time, at most


def mamba2(n: Normed, mixer: Mamba2, symbols: int, reach: Reach, store: Storage) -> Bounds:
    """What a layer of Mamba-2 adds to the stream."""
    parts = [n.whole.matmul(layer, store) for layer in (mixer.x, mixer.b, mixer.c)]
    z, dt = n.whole.matmul(mixer.z, store), n.whole.matmul(mixer.dt, store)
    x, b, c = apart(convolved(side_by_side(*parts), mixer.convolution, symbols, store), parts)
    dim, size = x.size // mixer.heads, b.size // mixer.groups
    first = farthest(dt)
    steps = _steps(mixer, dt, first, store)
    out = []
    for head in range(mixer.heads):
        group = head // (mixer.heads // mixer.groups)
        own, shared = np.arange(head * dim, (head + 1) * dim), np.arange(group * size, (group + 1) * size)
        value = x.rows(own)
        rate = float(np.exp(mixer.decay[head]))
        mine = [(float(lo[head]), float(hi[head])) for lo, hi in steps]
        held = _held(mine, b.rows(shared).hull(), c.rows(shared).hull(), value, rate, reach, store)
        passed = value.times(mixer.skip[head], mixer.skip[head]).store(store)
        out.append(passed.add(constant(*held)).store(store))
    y = side_by_side(*out)
    gates = enclose("silu", *z.hull())
    finite("a gated value", y.largest() * magnitude(*gates))
    gated = y.times(*gates)
    return _normed(gated, mixer, store).matmul(mixer.o, store)


def _normed(gated: Bounds, mixer: Mamba2, store: Storage) -> Bounds:
    norm = mixer.norm
    if norm is None:
        return gated.store(store)
    size = gated.size // mixer.norm_groups
    found = []
    for group in range(mixer.norm_groups):
        index = np.arange(group * size, (group + 1) * size)
        part = gated.rows(index)
        normed = part.times(*part.norm_factor(norm.eps, None)).store(store)
        found.append(normed.times(norm.weight[index], norm.weight[index]).store(store))
    return side_by_side(*found)


def _steps(mixer: Mamba2, dt: Bounds, first: int, store: Storage) -> list[Interval]:
    """The time steps of all heads, by place."""
    found = []
    for place in range(first + 1):
        lo, hi = at_place(dt, place, first)
        shifted = store.maybe(lo + mixer.step, hi + mixer.step)
        found.append(store.maybe(*states.softplus(*shifted)))
    return found


def _held(
    steps: list[Interval], b: Interval, c: Interval, value: Bounds, rate: float, reach: Reach, store: Storage
) -> Interval:  # fmt: skip
    """Bounds of h c of one head at any place, channel by channel; `steps` are its time steps by place."""
    first, chunk, size = len(steps) - 1, CHUNK, len(b[0])
    lo, hi = (np.array([step[end] for step in steps]) for end in (0, 1))
    low, high = states.exponents(np.float64(rate), lo, hi)
    finite("the exponents of a chunk", high * chunk)
    # Scans multiply in another order than steps: what one factor makes small may be infinite without it.
    finite("a value times its time step", hi.max() * value.largest())
    finite("a key times its time step", hi.max() * magnitude(*b), store.largest)
    finite("a product of a key and a query", magnitude(*b) @ magnitude(*c))
    later = max(1, reach.length - first)
    total = float(high[:-1].sum() + high[-1] * later)
    still = 2 * total <= states.NEARLY_ZERO  # nothing ever decays
    least = 1.0 if still else float(states.decays(np.zeros(1), np.array([total]), chunk)[0][0])
    loose = 1.0 if still else 1 + float(states.loose_decays(high, chunk).max())
    state, most = (np.zeros((size, value.size)), np.zeros((size, value.size))), np.zeros((size, value.size))
    for place in range(first):
        added = _written((lo[place], hi[place]), b, at_place(value, place, first), store)
        kept = interval_product(added, (np.float64(least / loose), np.float64(loose)))
        if place:  # it may not have come yet
            kept = np.minimum(kept[0], 0.0), np.maximum(kept[1], 0.0)
        state, most = (state[0] + kept[0], state[1] + kept[1]), most + magnitude(*kept)
    added = _written((lo[-1], hi[-1]), b, at_place(value, first, first), store)
    # Each write is rounded when it is added to a larger state: by itself, at most.
    lasting = 2 * loose * _lasting(hi[-1], later, rate, high[-1])
    rest = np.minimum(added[0] * lasting, 0.0), np.maximum(added[1] * lasting, 0.0)
    most = most + magnitude(*rest)
    drift = 0.0 if still else states.state_drift(1, chunk, _steps_kept(low[-1], later), 1.0)
    low, high = store.maybe(state[0] + rest[0] - drift * most, state[1] + rest[1] + drift * most)
    finite("a state", np.maximum(most, magnitude(low, high)), store.largest)
    finite("what a state shows", (magnitude(*c)[:, None] * most).sum(0))
    products = interval_product((low, high), (c[0][:, None], c[1][:, None]))
    error = states.scan_sum(size, chunk, (magnitude(*c)[:, None] * most).sum(0))
    return store.maybe(products[0].sum(0) - error, products[1].sum(0) + error)


def _written(step: Interval, b: Interval, x: Interval, store: Storage) -> Interval:
    """dt b x, (state, channels), every product stored or kept."""
    scaled = store.maybe(*interval_product(step, b))
    return store.maybe(*interval_product((scaled[0][:, None], scaled[1][:, None]), x))


def _lasting(step: float, count: int, rate: float, exponent: float) -> float:
    """What the decays leave of all later time steps, relative to one: each is `step` at most."""
    decayed = np.exp(min(exponent, 700.0)) / rate / step if rate > 0 and step > 0 else np.inf
    return float(min(count, decayed))


def _steps_kept(exponent: float, count: int) -> float:
    """As many steps round what is kept."""
    rest = -np.expm1(-exponent)
    return float(min(count, 1 / rest)) if rest > 0 else float(count)
