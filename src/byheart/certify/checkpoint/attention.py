"""Attention heads that copy: softmax is one-hot, up to a proved leak, whatever the input is.

*Rotary heads.* When q and k do not depend on the input, the score at distance d is

    s(d) = scale * Re sum_f Q_f conj(K_f) exp(i theta_f d),      Q_f = q_f + i q_{f + F/2}

plus errors. Errors of the rotated query are common to all keys, so in s(o) - s(d) they meet only the difference of two
rotated keys, of length |K_f| |1 - exp(i theta_f (o - d))|; errors of keys are independent. A pair (a, b) turned by an
angle is (a c - b s, a s + b c). Storing c, s and the four products moves it by at most 2 u times (|a c| + |b s|, |a
s| + |b c|), whose length is at most |a| + |b|. Storing the two sums moves it by u times its length; but adding a
small number to a stored one errs by at most the small one, so also by at most 2 min(|a|, |b|).

*Heads over learned positions.* q and k are tabulated by position, so all pairs are scored.

Every distance that a query can see is compared, also at the start of a sequence, where a head with offset o reads
position 0 from all t < o, or, if it `stays`, its own position t. A head that is not one-hot is enclosed by the hull of
its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from byheart.certify.checkpoint import decoder as d
from byheart.certify.checkpoint.config import Rotary, Shape, Undecided
from byheart.certify.checkpoint.fields import (
    POSITION,
    START,
    STARTS,
    TOKEN,
    Field,
    Normed,
    SymbolPart,
    add,
    constant,
    fold,
    linear,
    magnitude,
    merged,
    moved_back,
    norm_factor,
    scaled,
    settle,
    times,
)
from byheart.certify.checkpoint.storage import (
    FREQUENCY_ERROR,
    FUNCTION_ERROR,
    OWN,
    TRIG_ERROR,
    U32,
    Array,
    Storage,
    gamma,
)

LARGEST_LEAK = 2.0**-4
POSITION_BLOCK = 256
NEGLIGIBLE = 2.0**-12  # what a head that mixes may add to the stream without being looked at


@dataclass(frozen=True)
class Copy:
    """A head that reads position t - offset, and where there is none 0, or, if it `stays`, t: `gap` nats before any
    other, `leak` of the weight elsewhere."""

    offset: int
    gap: float
    leak: float
    stays: bool = False


class NeedsStart(Undecided):
    """The proof may go through if a token that begins texts stands only at the beginning."""


@dataclass(frozen=True)
class Reach:
    """The inputs that are quantified over: lengths up to `length`; tokens of `once` stand at position 0 or nowhere."""

    length: int
    once: frozenset[int] = frozenset()


def attend(
    n: Normed, attention: d.StockAttention, shape: Shape, reach: Reach, store: Storage
) -> tuple[Field, list[Copy]]:
    """The output of the attention block as a field, and what its heads do."""
    q, k = linear(n.whole, attention.q, store), linear(n.whole, attention.k, store)
    whole = linear(n.whole, attention.v, store)
    copies: list[Copy] = []
    known: dict[bytes, Copy | None] = {}  # heads with equal weights look at the same place
    # Columns of o, rows of v, and what the head does with the values.
    plans: list[tuple[Array, Array, Copy | Field]] = []
    for head in range(shape.heads):
        columns = np.arange(head * shape.head_dim, (head + 1) * shape.head_dim)
        if not attention.o.weight[:, columns].any():
            continue
        group = head // (shape.heads // shape.kv_heads)
        rows = np.arange(group * shape.head_dim, (group + 1) * shape.head_dim)
        query = _head_norm(q.rows(columns), attention.q_norm, store)
        key = _head_norm(k.rows(rows), attention.k_norm, store)
        looks = _bytes(attention.q, columns) + _bytes(attention.k, rows)
        if looks not in known:
            known[looks] = one_hot(query, key, shape, reach, store)
        copy, read = known[looks], attention.o.weight[:, columns].any(0)
        columns, rows = columns[read], rows[read]  # a group's other values are other heads' matter
        if copy is None:
            mixed = blended(query, key, whole.rows(rows), attention.o.weight[:, columns], shape, reach, store)
            plans.append((columns, rows, settle(mixed, store)))
        else:
            copies.append(copy)
            plans.append((columns, rows, copy))
    if n.kept is None:
        return _stored_output(whole, attention, plans, store), copies
    return settle(_kept_output(n, n.kept, attention, plans, store), store), copies


def _bytes(layer: d.Linear, rows: Array) -> bytes:
    kept = (layer.weight[rows],) if layer.bias is None else (layer.weight[rows], layer.bias[rows])
    return b"".join(bytes(part.tobytes()) for part in kept)


def _stored_output(
    v: Field, attention: d.StockAttention, plans: list[tuple[Array, Array, Copy | Field]], store: Storage
) -> Field:
    """The normed stream was stored: values and the heads' outputs are kept or stored, each by itself."""
    size = attention.o.weight.shape[1]
    lo, hi, parts = np.zeros(size), np.zeros(size), []
    for columns, rows, plan in plans:
        out = plan if isinstance(plan, Field) else settle(copied(v.rows(rows), plan, store), store)
        lo[columns], hi[columns] = out.lo, out.hi
        parts += [SymbolPart(p.key, columns[p.channels], p.lo, p.hi) for p in out.parts]
    return linear(Field(lo, hi, merged(parts)), attention.o, store)


def _kept_output(
    n: Normed, kept: Field, attention: d.StockAttention, plans: list[tuple[Array, Array, Copy | Field]], store: Storage
) -> Field:
    """The normed stream was kept in float32, and so are values and the heads' outputs: all values of one position
    share the norm's factor, so a head's contribution is that factor times a combination in which equal terms cancel."""
    weight, bias = attention.v.weight, attention.v.bias
    size = magnitude(*n.whole.hull())
    plain = linear(kept, d.Linear(attention.v.name, weight, None), None)
    error = (gamma(((weight != 0) & (size > 0)).sum(1)) + 16 * U32) * (np.abs(weight) @ size) / n.factor[0]
    plain = Field(plain.lo - error, plain.hi + error, plain.parts)
    offset = np.zeros(len(weight)) if bias is None else bias
    offset = offset if n.bias is None else offset + weight @ n.bias
    fields, total = [], np.zeros(len(attention.o.weight))
    for columns, rows, plan in plans:
        part = d.Linear(attention.o.name, attention.o.weight[:, columns], None)
        if isinstance(plan, Field):
            fields.append(linear(plan, part, None))
            bound = magnitude(*plan.hull())
        else:
            value = plain.rows(rows)
            bound = magnitude(*value.hull()) * n.factor[1] + np.abs(offset[rows])
            slack = (3 * plan.leak * (1 + 2 * store.unit) + FUNCTION_ERROR) * bound
            out = times(linear(shifted(value, plan), part, None), n.factor)
            extra = np.abs(part.weight) @ (slack + 4 * U32 * np.abs(offset[rows]))
            constant_part = part.weight @ offset[rows]
            fields.append(Field(out.lo + constant_part - extra, out.hi + constant_part + extra, out.parts))
        total = total + np.abs(part.weight) @ bound
    terms = (attention.o.weight != 0).sum(1)
    zero = np.zeros(len(total))
    result = add(Field(zero, zero), *fields)
    error = (gamma(terms) + 8 * U32) * total
    result = Field(result.lo - error, result.hi + error, result.parts)
    return result if attention.o.bias is None else add(result, constant(attention.o.bias))


def _head_norm(field: Field, norm: d.Norm | None, store: Storage) -> Field:
    """RMSNorm over one head's query or key, symbol by symbol where it depends on one symbol."""
    if norm is None:
        return field
    if len(field.parts) != 1:
        return scaled(field, norm_factor(field, norm.eps, None), norm, store)
    (part,) = field.parts
    lo, hi = tabulated(field)
    rows = [
        scaled(row, norm_factor(row, norm.eps, None), norm, store)
        for row in (Field(a, b) for a, b in zip(lo, hi, strict=True))
    ]
    low, high = np.stack([r.lo for r in rows]), np.stack([r.hi for r in rows])
    zero = np.zeros(field.size)
    return fold(Field(zero, zero, (SymbolPart(part.key, np.arange(field.size), low, high),)), 0.0)


def tabulated(field: Field) -> tuple[Array, Array]:
    """All values of a field that depends on one symbol, or on none: one row per symbol."""
    symbols = len(field.parts[0].lo) if field.parts else 1
    lo, hi = np.tile(field.lo, (symbols, 1)), np.tile(field.hi, (symbols, 1))
    for part in field.parts:
        lo[:, part.channels] += part.lo
        hi[:, part.channels] += part.hi
    return lo, hi


def one_hot(q: Field, k: Field, shape: Shape, reach: Reach, store: Storage) -> Copy | None:
    """The distance that this head reads, proved; None if it does not read one distance whatever the input is."""
    if shape.rotary is not None:
        return _rotary_copy(folded(q), folded(k), shape.rotary, shape, reach, store)
    return _position_copy(folded(q, POSITION), folded(k, POSITION), shape, reach, store)


def folded(field: Field, kept: int | None = None) -> Field:
    """All parts but those of one signal replaced by their hull: a query or key that should not depend on the input."""
    lo, hi = field.lo.copy(), field.hi.copy()
    for part in field.parts:
        if part.key[0] != kept:
            lo[part.channels] += part.lo.min(0)
            hi[part.channels] += part.hi.max(0)
    return Field(lo, hi, tuple(p for p in field.parts if p.key[0] == kept))


def _rotation_error(first: Array, second: Array, store: Storage) -> Array:
    """Length of the error of a rotated pair (a, b), by what is stored: see the module's text. Second order: the
    factor 1 + 8 u.
    """
    u = store.unit + 2 * U32
    products = 2 * u * (first + second)
    total = np.minimum(u * np.hypot(first, second), 2 * np.minimum(first, second))
    return np.asarray((products + total) * (1 + 8 * u) + 4 * store.tiny)


def _score_stores(scale: float, store: Storage) -> tuple[float, float]:
    """Relative errors of a stored score and of a scaled query. A power of two scales without error; otherwise a score
    may be stored before and after scaling, or the query be scaled and stored."""
    exact = np.log2(scale) == np.rint(np.log2(scale))
    u = store.unit + 2 * U32
    return (u, 0.0) if exact else (2 * u, u)


def _rotary_copy(q: Field, k: Field, rotary: Rotary, shape: Shape, reach: Reach, store: Storage) -> Copy | None:
    half = rotary.dims // 2
    theta = rotary.theta ** (-2 * np.arange(half) / rotary.dims)
    scale = shape.head_dim**-0.5
    longest = reach.length if shape.window is None else min(reach.length, shape.window)

    def pairs(f: Field) -> tuple[Array, Array, Array]:
        middle, radius = (f.lo + f.hi) / 2, (f.hi - f.lo) / 2
        size = magnitude(f.lo, f.hi)
        turned = _rotation_error(size[:half], size[half : 2 * half], store)
        # cos and sin at an angle that was rounded to float32, by their implementations
        angle = (reach.length * theta * 2 * U32 + TRIG_ERROR) * 2 * (size[:half] + size[half : 2 * half])
        wave = middle[:half] + 1j * middle[half : 2 * half]
        return (
            wave,
            np.hypot(radius[:half], radius[half : 2 * half]) + turned + angle,
            np.hypot(size[:half], size[half : 2 * half]),
        )

    wave_q, error_q, size_q = pairs(q)
    wave_k, error_k, size_k = pairs(k)
    distance = np.arange(longest)
    wave = wave_q * np.conj(wave_k)
    angle = np.outer(distance, theta)
    score = scale * (np.cos(angle) @ wave.real - np.sin(angle) @ wave.imag)  # (D,), the same for every input
    rest = slice(2 * half, None)  # dimensions that are not rotated add the same to every score, up to their slack
    plain_q, plain_k = magnitude(q.lo[rest], q.hi[rest]), magnitude(k.lo[rest], k.hi[rest])
    plain = plain_q @ (k.hi[rest] - k.lo[rest])
    total = size_q @ size_k + plain_q @ plain_k
    sums = 2 * float(gamma(shape.head_dim + 2)) * total + plain
    drift = FREQUENCY_ERROR * (size_q * size_k * theta)
    stores, scaling = _score_stores(scale, store)
    common = error_q + scaling * size_q

    def gaps(wanted: int, others: Array) -> Array:
        chord = 2 * np.abs(np.sin(np.outer(others - wanted, theta) / 2))  # (others, F)
        error = (chord * size_k + 2 * error_k) @ common + 2 * (size_q @ error_k)
        error = error + sums + (others + wanted) * drift.sum()
        error = scale * error * (1 + 2.0**-20) + OWN * (1 + scale * total)
        error = error + stores * (abs(score[wanted]) + np.abs(score[others]) + 2 * error) + 2 * store.tiny
        return np.asarray(score[wanted] - score[others] - error)

    return _best(score, gaps)


def _best(score: Array, gaps: Callable[[int, Array], Array]) -> Copy | None:
    """The copy that scores by distance make: at the start of a sequence each query sees its first few distances."""
    offset = int(np.argmax(score))
    # While the offset is out of sight: the farthest distance wins for every query, or distance 0 does. In the latter
    # case the last such query sees all the distances that the others see.
    stays = offset > 1 and int(np.argmax(score[:offset])) == 0
    pairs = [(offset, np.delete(np.arange(len(score)), offset))]
    pairs += [(0, np.arange(1, offset))] if stays else [(last, np.arange(last)) for last in range(1, offset)]
    least, leak = np.inf, 0.0
    for wanted, others in pairs:
        if not len(others):
            continue
        found = gaps(wanted, others)
        least = min(least, float(found.min()))
        with np.errstate(over="ignore"):
            leak = max(leak, float(np.exp(-found).sum()) * (1 + 2 * FUNCTION_ERROR))
        if not leak <= LARGEST_LEAK:
            return None
    return Copy(offset, least, leak, stays)


def _position_copy(q: Field, k: Field, shape: Shape, reach: Reach, store: Storage) -> Copy | None:
    """All pairs of positions, a block of queries at a time. The query's slack meets the difference of two keys, and
    all slacks are taken by their lengths (Cauchy and Schwarz), so that two matrix products per block suffice."""
    q_lo, q_hi = _by_position(q, reach.length)
    k_lo, k_hi = _by_position(k, reach.length)
    q_mid, k_mid = (q_lo + q_hi) / 2, (k_lo + k_hi) / 2
    q_rad, k_rad = (np.linalg.norm((hi - lo) / 2, axis=1) for lo, hi in ((q_lo, q_hi), (k_lo, k_hi)))
    q_len, k_len = np.linalg.norm(q_mid, axis=1), np.linalg.norm(k_mid, axis=1)
    scale, t = shape.head_dim**-0.5, np.arange(reach.length)
    offset = int(t[-1] - (q_mid[-1] @ k_mid.T).argmax())
    blind = offset - 1  # the last query that does not see so far back
    stays = offset > 1 and int((q_mid[blind] @ k_mid[:offset].T).argmax()) == blind
    wanted = np.where(t >= offset, t - offset, t if stays else 0)
    stores, scaling = _score_stores(scale, store)
    common = (q_rad + scaling * (q_len + q_rad)) * (1 + 2.0**-20)
    key_most, rad_most = float((k_len + k_rad).max()), float(k_rad.max())
    sums = float(gamma(shape.head_dim + 2)) * (q_len + q_rad) * key_most
    fixed = (
        scale * (2 * (q_len + q_rad) * rad_most + 2 * sums) * (1 + 2.0**-20)
        + OWN * (1 + scale * q_len * key_most)
        + 2 * store.tiny
    )
    single = 2.0**-24 * (shape.head_dim + 64)  # what single precision, in which the matrices are computed, adds
    fixed = fixed + single * (scale * (q_len + q_rad) * key_most * 4 + 4 * scale * common * key_most)
    fixed = fixed + scale * common * math.sqrt(8 * single) * key_most  # of the root, where two keys are alike
    keys, queries = k_mid.astype(np.float32), (scale * q_mid).astype(np.float32)
    long = (k_len**2).astype(np.float32)
    least, leak = np.inf, 0.0
    for first in range(0, reach.length, POSITION_BLOCK):
        rows = t[first : first + POSITION_BLOCK]
        seen = keys[: rows[-1] + 1]
        score, chord = queries[rows] @ seen.T, keys[wanted[rows]] @ seen.T
        chord *= -2
        chord += long[wanted[rows], None] + long[None, : rows[-1] + 1]
        np.sqrt(np.maximum(chord, 0.0, out=chord), out=chord)
        chord *= ((1 + 2 * stores) * scale * common[rows]).astype(np.float32)[:, None]
        best = score[np.arange(len(rows)), wanted[rows]].astype(np.float64)
        # score_wanted - score - error - stores (|score_wanted| + |score| + 2 error), for all keys that the query sees
        chord += score
        chord += np.float32(stores) * np.abs(score)
        ahead = best - stores * np.abs(best) - (1 + 2 * stores) * fixed[rows]
        gap = np.subtract(ahead.astype(np.float32)[:, None], chord, out=chord)
        gap[(t[None, : rows[-1] + 1] > rows[:, None]) | (t[None, : rows[-1] + 1] == wanted[rows, None])] = np.inf
        least = min(least, float(gap.min()))
        with np.errstate(over="ignore"):
            spilt = np.exp(np.negative(gap, out=gap), out=gap).sum(1, dtype=np.float64).max()
        leak = max(leak, float(spilt) * (1 + 2.0**-10) + 1e-30)
        if not leak <= LARGEST_LEAK:
            return None
    return Copy(offset, least, leak, stays)


def _by_position(field: Field, length: int) -> tuple[Array, Array]:
    lo, hi = tabulated(field)
    return (lo[:length], hi[:length]) if len(lo) > 1 else (np.tile(lo, (length, 1)), np.tile(hi, (length, 1)))


def shifted(value: Field, copy: Copy) -> Field:
    """The field as it stands at the copied position."""
    if any(p.key[0] in (POSITION, START) for p in value.parts):
        raise Undecided("a value depends on its position")
    try:
        keys = [(p.key[0], moved_back(p.key[1], copy.offset, copy.stays)) for p in value.parts]
    except ValueError as reason:
        raise Undecided(str(reason)) from None
    parts = (SymbolPart(key, p.channels, p.lo, p.hi) for key, p in zip(keys, value.parts, strict=True))
    return Field(value.lo, value.hi, tuple(parts))


def copied(value: Field, copy: Copy, store: Storage) -> Field:
    """The value at the copied position, and `leak` of anything else; the weights may be stored too."""
    lo, hi = value.hull()
    # The stored weight of the copied position is at least 1 - 2 leak (1 itself is representable), all others weigh at
    # most leak (1 + u).
    slack = (3 * copy.leak * (1 + 2 * store.unit) + FUNCTION_ERROR) * magnitude(lo, hi)
    moved = shifted(value, copy)
    return Field(moved.lo - slack, moved.hi + slack, moved.parts)


def blended(q: Field, k: Field, value: Field, o: Array, shape: Shape, reach: Reach, store: Storage) -> Field:
    """A head that mixes positions: softmax is a convex combination, so its output is in the hull of the values.

    When a token of `once` (BOS) stands at position 0 or nowhere, its weight at position t is known better: t other
    positions compete with it. The output is then a function of START, which says whether BOS stands at the start and
    how far back that is.
    """
    lo, hi = value.hull()
    # stored weights need not add up to 1: each may be off by the unit
    slack = (store.unit + 8 * FUNCTION_ERROR) * magnitude(lo, hi) + store.tiny
    crude = constant(lo - slack, hi + slack)
    if float((np.abs(o) @ (hi - lo)).max(initial=0.0)) <= NEGLIGIBLE:
        return crude
    if not reach.once:
        raise NeedsStart("a head mixes positions, and what it sees is not bounded for every input")
    if not {p.key for p in (*k.parts, *value.parts)} <= {(TOKEN, 0)}:
        return crude
    special, ordinary = _tokens_apart(value, reach)
    share_lo, share_hi = _shares(folded(q), k, shape, reach, store)
    low, high = ordinary
    # p in [share_lo, share_hi] of the special value, the rest of ordinary ones: linear in p, so extremes are at the
    # ends
    ends_lo = [low + p[:, None] * (special[0] - low) for p in (share_lo, share_hi)]
    ends_hi = [high + p[:, None] * (special[1] - high) for p in (share_lo, share_hi)]
    rows_lo, rows_hi = np.minimum(*ends_lo) - slack, np.maximum(*ends_hi) + slack
    return Field(
        np.zeros(value.size), np.zeros(value.size), (SymbolPart((START, 0), np.arange(value.size), rows_lo, rows_hi),)
    )


def _tokens_apart(field: Field, reach: Reach) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The range of a field for tokens of `once`, and for all others."""
    lo, hi = tabulated(field)
    if not field.parts:
        return (lo[0], hi[0]), (lo[0], hi[0])
    inside = np.isin(np.arange(len(lo)), list(reach.once))
    return (lo[inside].min(0), hi[inside].max(0)), (lo[~inside].min(0), hi[~inside].max(0))


def _shares(q: Field, k: Field, shape: Shape, reach: Reach, store: Storage) -> tuple[Array, Array]:
    """Bounds of the softmax weight of BOS for every symbol of START."""
    special, ordinary = _tokens_apart(k, reach)
    top, bottom = (_scores(q, *key, shape, shape.rotary or Rotary(1.0, 0), reach, store) for key in (special, ordinary))
    lo, hi = np.zeros(STARTS + 2), np.zeros(STARTS + 2)
    lo[0] = hi[0] = 1.0
    # The others stand at distances 0 ... t - 1, each with its own score.
    least, most = (np.cumsum(np.exp(np.minimum(end[:STARTS], 700.0))) for end in bottom)
    for t in range(1, STARTS):
        lo[t] = 1 / (1 + most[t - 1] * np.exp(-top[0][t]))
        hi[t] = 1 / (1 + least[t - 1] * np.exp(-top[1][t]))
    if reach.length > STARTS:
        hi[STARTS] = 1 / (1 + least[-1] * np.exp(-top[1][STARTS:].max()))
    return lo * (1 - 4 * FUNCTION_ERROR), np.minimum(hi * (1 + 4 * FUNCTION_ERROR), 1.0)


def _scores(
    q: Field, lo: Array, hi: Array, shape: Shape, rotary: Rotary, reach: Reach, store: Storage
) -> tuple[Array, Array]:
    """Bounds of the score at every distance, for a key in [lo, hi]."""
    half = rotary.dims // 2
    theta = rotary.theta ** (-2 * np.arange(half) / max(rotary.dims, 1))
    size_q, size_k = magnitude(q.lo, q.hi), magnitude(lo, hi)
    middle_q, middle_k = (q.lo + q.hi) / 2, (lo + hi) / 2
    radius = ((q.hi - q.lo) / 2) @ size_k + size_q @ ((hi - lo) / 2)
    wave = (middle_q[:half] + 1j * middle_q[half : 2 * half]) * np.conj(
        middle_k[:half] + 1j * middle_k[half : 2 * half]
    )
    distance = np.arange(max(reach.length, STARTS))
    angle = np.outer(distance, theta)
    score = np.cos(angle) @ wave.real - np.sin(angle) @ wave.imag
    plain = middle_q[2 * half :] @ middle_k[2 * half :]
    pair_q, pair_k = (np.hypot(s[:half], s[half : 2 * half]) for s in (size_q, size_k))
    turn = (reach.length * theta * 4 * U32 + TRIG_ERROR + distance.max() * theta * FREQUENCY_ERROR) * 4
    error_q, error_k = (
        _rotation_error(s[:half], s[half : 2 * half], store) + turn * p for s, p in ((size_q, pair_q), (size_k, pair_k))
    )
    scale = shape.head_dim**-0.5
    stores, scaling = _score_stores(scale, store)
    error_q = error_q + scaling * pair_q
    rounding = error_q @ pair_k + (pair_q + error_q) @ error_k + gamma(shape.head_dim + 2) * (pair_q @ pair_k)
    error = scale * (radius + rounding + gamma(shape.head_dim + 2) * (size_q[2 * half :] @ size_k[2 * half :]))
    score = scale * (score + plain)
    error = error + stores * (np.abs(score) + error) + OWN + store.tiny
    return score - error, score + error
