"""Gated DeltaNet as bounds: heads that forget, heads that latch, heads that average.

    S[t] = d S[t-1] + beta k (v - k (d S[t-1])),      y = q S[t] / sqrt(key)

For keys of length 1 and beta, d in [0, 1], a step contracts, so |S[t]| <= d |S[t-1]| + beta |v| in every column, and
|S[t]|^2 <= |S[t-1]|^2 + |v|^2.

*A head that forgets*: d <= e^-40. y = beta (q k) v[t] / sqrt(key), plus d / (1 - d) times the largest value.

*Keys in a few directions.* Let every key be c_i + e, with c_i one of a few orthonormal vectors and |e| <= eta. Then
S = sum over i of c_i sigma_i + R, where sigma_i takes in values whose key has the direction i:

    sigma_i <- (1 - beta) d sigma_i + beta v - beta d (c_i R + e S),      R <- d R + beta e (v - k d S)

By induction over positions, sigma_i is a combination of values with weights >= 0, up to |R| + eta |S|, and
|R| <= eta (sum of beta) (|v| + |S|), where the sum runs over as many steps as last: all of them, or 1 / (1 - d). So, if
no q c_i is negative, y = A m + error: m is a mean of values, A > 0. A is at least the least beta times the least q c_i;
where nothing decays and there is one direction, A never falls, so what was written at position 0 counts: a *latch*.

The norm by head divides A out. Its output is then a mean of values, normed: known for a latch, whose value is
constant, and a hull otherwise. For any other head, the normed output is at most sqrt(value) long.

The state is kept in float32 between steps; so is the gate of the norm, from its stored logit on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof import state_rounding as states
from byheart.checkpoints.proof.attention import head_norm
from byheart.checkpoints.proof.bounds import Bounds, Normed, constant, magnitude
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.convolution import apart, at_place, convolved, farthest, side_by_side
from byheart.checkpoints.proof.copying import Reach, tabulated
from byheart.checkpoints.proof.decoder import DeltaNet, Norm
from byheart.checkpoints.proof.storage import Array, Interval, Storage, finite
from byheart.checkpoints.proof.units import enclose

CHUNK = 64  # places that an engine takes at a time, at most
LENGTH_EPS = 1e-6  # that engines add to the squared length of a query or key, or do not
FORGETS = math.exp(-40.0)
NARROW = 2.0**-6  # relative: scales that lie closer together are taken for one number
DIRECTIONS = 4  # of keys
ALIKE = 2.0**-5  # distance of keys of one direction, at most
LONGEST = 1 + 2.0**-10  # of a query or key that was divided by its length
NOTHING = 1e-30  # values below this are a place that is not there
LEAST_EPS = 1e-18
LOST = 1e-20  # the output of a state with such values alone is less than this


@dataclass(frozen=True)
class _Writes:
    """What one head writes and keeps: shares and decays by place, the last one for all later places."""

    beta: Interval  # (places,)
    decay: Interval  # over all places
    count: Array  # (places,) how many positions each place means
    loose: float  # relative: by how much products of decays are off in a chunk

    @property
    def lasting(self) -> float:
        """What is written adds up to this at most, as far as it lasts."""
        every = float((self.beta[1] * self.count).sum())
        rest = 1 - self.decay[1]
        return min(every, float(self.beta[1].max() / rest)) if rest > 0 else every

    @property
    def steps(self) -> float:
        """As many steps round the state; none where nothing decays."""
        if self.decay[0] == 1:
            return 0.0
        rest = 1 - self.decay[1]
        return min(float(self.count.sum()), float(1 / rest)) if rest > 0 else float(self.count.sum())


def delta_net(n: Normed, mixer: DeltaNet, symbols: int, reach: Reach, store: Storage) -> Bounds:
    """What a layer of Gated DeltaNet adds to the stream."""
    if not mixer.norm.eps >= LEAST_EPS:
        raise Undecided(f"{mixer.norm.name}: eps = {mixer.norm.eps:.3g}: a state that is empty may be divided by zero")
    parts = [n.whole.matmul(layer, store) for layer in (mixer.q, mixer.k, mixer.v)]
    z, b, a = (n.whole.matmul(layer, store) for layer in (mixer.z, mixer.b, mixer.a))
    q, k, v = apart(convolved(side_by_side(*parts), mixer.convolution, symbols, store), parts)
    for field in (q, k):  # engines divide by a length: the root of an infinite sum makes a key 0
        lengths = (field.largest() ** 2).reshape(mixer.key_heads, -1).sum(1)
        finite("the squared length of a query or key", lengths)
    first = farthest(b, a)
    writes = _writes(mixer, b, a, first, reach, store)
    key, value = q.size // mixer.key_heads, v.size // mixer.heads
    out = []
    for head in range(mixer.heads):
        group = head // (mixer.heads // mixer.key_heads)
        shared, own = np.arange(group * key, (group + 1) * key), np.arange(head * value, (head + 1) * value)
        found = _head(q.rows(shared), k.rows(shared), v.rows(own), writes[head], mixer.norm, store)
        out.append(found.times(*enclose("silu", *z.rows(own).hull())).store(store))
    return side_by_side(*out).matmul(mixer.o, store)


def _writes(
    mixer: DeltaNet, b: Bounds, a: Bounds, first: int, reach: Reach, store: Storage
) -> list[_Writes]:  # fmt: skip
    """How much every head writes and keeps, by place."""
    rate = np.exp(mixer.decay)
    beta, decay, loose = [], [], np.zeros(mixer.heads)
    for place in range(first + 1):
        beta.append(store.maybe(*states.sigmoids(*at_place(b, place, first))))
        lo, hi = at_place(a, place, first)
        step = states.softplus(*rounding.widened(lo + mixer.step, hi + mixer.step))
        low, high = states.exponents(rate, *step)
        finite("the exponents of a chunk", high * CHUNK)
        decay.append(states.decays(low, high, CHUNK))
        loose = np.maximum(loose, states.loose_decays(high, CHUNK))
    shares = np.stack([x[0] for x in beta]), np.stack([x[1] for x in beta])  # (places, heads)
    least, most = np.min([x[0] for x in decay], axis=0), np.max([x[1] for x in decay], axis=0)
    count = np.r_[np.ones(first), max(1, reach.length - first)]
    return [
        _Writes((shares[0][:, h], shares[1][:, h]), (float(least[h]), float(most[h])), count, float(loose[h]))
        for h in range(mixer.heads)
    ]


def _head(q: Bounds, k: Bounds, v: Bounds, writes: _Writes, norm: Norm, store: Storage) -> Bounds:
    """The normed output of one head."""
    size, chunk = q.size, CHUNK
    largest = v.largest()
    most = float(largest.max(initial=0.0))
    bound = _largest_state(most, writes)
    finite("a state", np.array(bound * 4 * chunk))
    finite("the output of a state", np.array(2 * bound), store.largest)
    anything = _anything(v, norm, store)
    if writes.decay[1] <= FORGETS:
        query, key = _ray(q.hull()), _ray(k.hull())
        if query is None or key is None:
            return anything
        found = _forgetful(query, key, v, writes, store)
        return anything if found is None else _tighter(_normed(found, norm, store), anything)
    directions = _directions(k)
    query = _ray(q.hull())
    if directions is None or query is None:
        return anything
    centres, away = directions
    root = math.sqrt(len(centres))
    state = 1.125 * root * most  # checked below
    # In a chunk, what was written before counts once more in each sum.
    again = 1 + 2 * writes.lasting
    read = (states.state_read(size, chunk) + writes.loose) * again
    written = writes.lasting * (most + state)
    moved = states.state_steps(size, chunk, again, written) + writes.loose * written
    moved += states.state_drift(size, chunk, writes.steps, state)
    rest = away * written + moved
    if not root * (most + rest + away * state) + rest <= state:
        return anything
    values = _hull_of_rows(v)
    if len(centres) == 1 and writes.decay[0] == 1 and not values[2]:
        # After the first write, the state shows what is written next: only the difference is added.
        first = float(writes.beta[1][0])
        differs = float((values[1] - values[0]).max()) + (1 - float(writes.beta[0][0])) * most + rest + away * state
        rest = min(rest, away * (first * most + (writes.lasting - first) * differs) + moved)
    shown = np.array([query.along(c) for c in centres])
    if shown[:, 0].min() < 0:
        return anything
    error = float(np.abs(shown).max(1).sum()) * (rest + away * state) + LONGEST * (rest + read * state)
    least = float(writes.beta[0].min() * shown[:, 0].min())
    if len(centres) == 1 and writes.decay[0] == 1 and not values[2]:
        least = max(least, float(writes.beta[0][0] * shown[0, 0]))
    highest = float(shown[:, 1].sum())
    if not least > 0:
        return anything
    return _tighter(_mean(values, (least, highest), error, size, norm, store), anything)


def _largest_state(most: float, writes: _Writes) -> float:
    """The length of a column of the state, at most; roundings move it by less than its own length."""
    rest, count = 1 - writes.decay[1], float(writes.count.sum())
    growth = math.exp(min(count * states.state_drift(1, CHUNK, 1.0, 1.0), 700.0))
    steady = most / rest if rest > 0 else math.inf
    return min(most * math.sqrt(count), steady) * 2 * growth


@dataclass(frozen=True)
class _Ray:
    """A vector divided by its length: a direction, and the angle by which it may be off."""

    middle: Array
    angle: float

    def along(self, other: Array, angle: float = 0.0) -> tuple[float, float]:
        """Bounds of the product with a vector of length 1, which may be off by an angle as well."""
        exact, wide = math.acos(min(1.0, max(-1.0, float(self.middle @ other)))), self.angle + angle
        slack = states.unit_length(len(other)) + float(rounding.own(8.0 * len(other)))
        return math.cos(min(math.pi, exact + wide)) - 2 * slack, math.cos(max(0.0, exact - wide)) + 2 * slack

    def away(self, other: Array) -> float:
        """The distance from a vector of length 1, at most."""
        apart = float(np.linalg.norm(self.middle - other))
        return apart + self.angle + states.unit_length(len(other)) + float(rounding.own(8.0 * len(other)))


def _ray(ends: Interval) -> _Ray | None:
    """The direction of a vector; None where it may be zero, or shorter than what engines add to its length."""
    middle, radius = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    size, off = float(np.linalg.norm(middle)), float(np.linalg.norm(radius))
    if not (size - off) ** 2 > LENGTH_EPS * 2.0**24 or off > size / 2:
        return None
    return _Ray(middle / size, math.asin(off / size) + float(rounding.own(8.0)))


def _forgetful(query: _Ray, key: _Ray, v: Bounds, writes: _Writes, store: Storage) -> Bounds | None:
    """Only the newest write is left: the value, times what the query sees of the key, times the share."""
    size = len(query.middle)
    low, high = query.along(key.middle, key.angle)
    scale, error = size**-0.5, states.state_read(size, CHUNK) * LONGEST
    if low - error <= 0:
        return None
    share = float(writes.beta[0].min()) * scale, float(writes.beta[1].max()) * scale
    leak = 2 * writes.decay[1] * float(v.largest().max(initial=0.0)) * LONGEST * scale
    return v.times((low - error) * share[0], (high + error) * share[1]).widen(np.full(v.size, leak)).store(store)


def _normed(y: Bounds, norm: Norm, store: Storage) -> Bounds:
    return head_norm(y.store(None), norm, store)


def _mean(
    values: tuple[Array, Array, bool], scale: tuple[float, float], error: float, size: int, norm: Norm, store: Storage
) -> Bounds:
    """A mean of values times an unknown scale, normed: the scale counts beside the norm's epsilon alone."""
    lo, hi, absent = values
    off = error / scale[0]
    lo, hi = lo - off, hi + off
    shown = constant(lo, hi)
    if scale[1] <= scale[0] * (1 + NARROW):
        narrow = shown.times(scale[0] * size**-0.5, scale[1] * size**-0.5).store(store)
        direct = narrow.norm_stepwise(norm, store).hull()
    else:
        direct = np.full(len(lo), -np.inf), np.full(len(lo), np.inf)
    small = rounding.shared_store(np.zeros(len(lo)), store) / (scale[0] * size**-0.5)
    stored = rounding.shared_store(magnitude(lo, hi), store) + small
    wide = constant(lo - stored, hi + stored)
    eps = [norm.eps * size / s**2 for s in (scale[1], scale[0])]
    least, most = wide.norm_factor(eps[1], None)[0], wide.norm_factor(eps[0], None)[1]
    found = wide.times(least, most).store(store).times(norm.weight, norm.weight).store(store)
    low, high = np.maximum(found.lo, direct[0]), np.minimum(found.hi, direct[1])
    if absent:
        low, high = np.minimum(low, -LOST), np.maximum(high, LOST)
    return constant(low, high)


def _hull_of_rows(v: Bounds) -> tuple[Array, Array, bool]:
    """The hull of values that are there; whether there may be none."""
    if len({part.key for part in v.parts}) > 1:
        return *v.hull(), True
    lo, hi = tabulated(v)
    nothing = (magnitude(lo, hi) <= NOTHING).all(1)
    if nothing.all():
        return lo.min(0), hi.max(0), True
    return lo[~nothing].min(0), hi[~nothing].max(0), bool(nothing.any())


def _anything(v: Bounds, norm: Norm, store: Storage) -> Bounds:
    """The normed output of a head, whatever its state is: no longer than the root of its size, before the weights."""
    length = np.full(v.size, math.sqrt(v.size) * (1 + NARROW))
    return constant(-length, length).times(norm.weight, norm.weight).store(store)


def _tighter(found: Bounds, other: Bounds) -> Bounds:
    """Bounds that both hold, where neither depends on a symbol."""
    if found.parts:
        return found
    return constant(np.maximum(found.lo, other.lo), np.minimum(found.hi, other.hi))


def _directions(k: Bounds) -> tuple[list[Array], float] | None:
    """Orthonormal directions of which every key is nearly one, and how far it is from that at most."""
    if len({part.key for part in k.parts}) > 1:
        lo, hi = (end[None, :] for end in k.hull())
    else:
        lo, hi = tabulated(k)
    distinct = np.unique(np.concatenate([lo, hi], 1), axis=0)
    rays = [_ray((row[: k.size], row[k.size :])) for row in distinct]
    centres: list[Array] = []
    for ray in rays:
        if ray is None:
            return None
        if all(ray.away(c) > ALIKE for c in centres):
            centres.append(ray.middle)
    if not centres or len(centres) > DIRECTIONS:
        return None
    basis = _orthonormal(centres)
    return basis, max(min(ray.away(c) for c in basis) for ray in rays if ray is not None)


def _orthonormal(vectors: list[Array]) -> list[Array]:
    found: list[Array] = []
    for vector in vectors:
        rest = vector - sum(((vector @ c) * c for c in found), np.zeros_like(vector))
        found.append(rest / max(float(np.linalg.norm(rest)), ALIKE))  # the distance of keys from it determines the rest
    return found
