"""Attention heads that copy: softmax is one-hot, up to a proved leak, whatever the input is.

*Rotary heads.* When q and k do not depend on the input, the score at distance d is

    s(d) = scale * Re sum_f Q_f conj(K_f) exp(i theta_f d),      Q_f = q_f + i q_{f + F/2}

plus errors. Errors of the rotated query are common to all keys, so in s(o) - s(d) they meet only the difference of two
rotated keys, of length |K_f| |1 - exp(i theta_f (o - d))|; errors of keys are independent. A rotated pair errs by
(2 sqrt(2) + 1) u |Q|: cos and sin stored, two products stored, one sum stored (sqrt(2) is the largest ratio of (|a c| + |b s|, |a s| + |b c|)
to (a, b)); when one of the two is exactly zero, by 2 u |Q|.

*Heads over learned positions.* q and k are tabulated by position, so all pairs are scored.

Every distance that a query can see is compared, also at the start of a sequence, where a head with offset o reads position 0 from all t < o.
A head that is not one-hot is enclosed by the hull of its values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.certify.checkpoint import decoder as d
from byheart.certify.checkpoint.config import Rotary, Shape, Undecided
from byheart.certify.checkpoint.fields import (
    POSITION,
    TOKEN,
    Field,
    Part,
    constant,
    fold,
    linear,
    magnitude,
    merged,
    norm_factor,
    scaled,
    settle,
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

CONSTANT_QUERY = 2.0**-4  # a query or key may vary with the input by this share of its largest entry and still count as constant
LARGEST_LEAK = 2.0**-4


@dataclass(frozen=True)
class Copy:
    """A head that reads position max(0, t - offset): `gap` nats before any other, `leak` of the weight elsewhere."""

    offset: int
    gap: float
    leak: float


@dataclass(frozen=True)
class Reach:
    """What inputs are quantified over: lengths up to `length`; `once` are tokens that stand at position 0 or nowhere."""

    length: int
    once: frozenset[int] = frozenset()


def attend(n: Field, attention: d.Attention, shape: Shape, reach: Reach, store: Storage, where: str) -> tuple[Field, list[Copy]]:
    """The output of the attention block as a field, and what its heads do."""
    q, k = linear(n, attention.q, store), linear(n, attention.k, store)
    v = linear(n, attention.v, store)
    size, copies = shape.head_dim, []
    lo, hi = np.zeros(shape.heads * size), np.zeros(shape.heads * size)
    parts: list[Part] = []
    for head in range(shape.heads):
        columns = np.arange(head * size, (head + 1) * size)
        if not attention.o.weight[:, columns].any():
            continue
        group = head // (shape.heads // shape.kv_heads)
        rows = np.arange(group * size, (group + 1) * size)
        query = _head_norm(q.rows(columns), attention.q_norm, store)
        key, value = _head_norm(k.rows(rows), attention.k_norm, store), v.rows(rows)
        copy = one_hot(query, key, shape, reach, store)
        if copy is None:
            out = blended(query, key, value, shape, reach)
        else:
            copies.append(copy)
            out = copied(value, copy, store)
        out = settle(out, store)
        lo[columns], hi[columns] = out.lo, out.hi
        parts += [Part(p.key, columns[p.channels], p.lo, p.hi) for p in out.parts]
    del where
    return linear(Field(lo, hi, merged(parts)), attention.o, store), copies


def _head_norm(field: Field, norm: d.Norm | None, store: Storage) -> Field:
    if norm is None:
        return field
    return scaled(field, norm_factor(field, norm.eps, None), norm, store)


def one_hot(q: Field, k: Field, shape: Shape, reach: Reach, store: Storage) -> Copy | None:
    """The distance that this head reads, proved; None if it does not read one distance whatever the input is."""
    fixed_q, fixed_k = _constant(q), _constant(k)
    if fixed_q is not None and fixed_k is not None and shape.rotary is not None:
        return _rotary_copy(fixed_q, fixed_k, shape.rotary, shape, reach, store)
    if shape.rotary is None and {p.key for f in (q, k) for p in f.parts} <= {(POSITION, 0)}:
        return _position_copy(q, k, shape, reach, store)
    return None


def _constant(field: Field) -> Field | None:
    folded = fold(field, CONSTANT_QUERY * float(magnitude(*field.hull()).max(initial=0.0)))
    return None if folded.parts else folded


def _rotation_error(first: Array, second: Array, store: Storage) -> Array:
    """Length of the error of a rotated pair, by what is stored: see the module's text. Second order: the factor 1 + 8 u."""
    u = store.unit + 2 * U32
    length = np.hypot(first, second)
    both = (first > 0) & (second > 0)
    return np.where(both, (2 * np.sqrt(2) + 1) * u, 2 * u) * length * (1 + 8 * u) + 4 * store.tiny


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
        return wave, np.hypot(radius[:half], radius[half : 2 * half]) + turned + angle, np.hypot(size[:half], size[half : 2 * half])

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
    # the scaled score is stored; a scale that is no power of two may round a scaled query and an unscaled score as well
    exact_scale = np.log2(scale) == np.rint(np.log2(scale))
    stores = (1 if exact_scale else 2) * (store.unit + 2 * U32)
    common = (0.0 if exact_scale else store.unit) * size_q + error_q

    def gaps(wanted: int, others: Array) -> Array:
        chord = 2 * np.abs(np.sin(np.outer(others - wanted, theta) / 2))  # (others, F)
        error = (chord * size_k + 2 * error_k) @ common + 2 * (size_q @ error_k)
        error = error + sums + (others + wanted) * drift.sum()
        error = scale * error * (1 + 2.0**-20) + OWN * (1 + scale * total)
        error = error + stores * (abs(score[wanted]) + np.abs(score[others]) + 2 * error) + 2 * store.tiny
        return np.asarray(score[wanted] - score[others] - error)

    return _best(score, gaps)


def _best(score: Array, gaps: object) -> Copy | None:
    offset = int(np.argmax(score))
    least, leak = np.inf, 0.0
    for last in range(offset + 1):  # the first queries see only distances up to their position
        visible = len(score) if last == offset else last + 1
        others = np.delete(np.arange(visible), last)
        if not len(others):
            continue
        found = gaps(last, others)  # type: ignore[operator]
        least = min(least, float(found.min()))
        with np.errstate(over="ignore"):
            leak = max(leak, float(np.exp(-found).sum()) * (1 + 2 * FUNCTION_ERROR))
        if not leak <= LARGEST_LEAK:
            return None
    return Copy(offset, least, leak)


def _position_copy(q: Field, k: Field, shape: Shape, reach: Reach, store: Storage) -> Copy | None:
    """All pairs of positions. The query's slack meets the difference of two keys, by Cauchy and Schwarz."""
    q_lo, q_hi = _tabulated(q, reach.length)
    k_lo, k_hi = _tabulated(k, reach.length)
    q_mid, q_rad, k_mid, k_rad = (q_lo + q_hi) / 2, (q_hi - q_lo) / 2, (k_lo + k_hi) / 2, (k_hi - k_lo) / 2
    scale, t = shape.head_dim**-0.5, np.arange(reach.length)
    score = scale * (q_mid @ k_mid.T)
    seen = t[None, :] <= t[:, None]
    best = np.where(seen, score, -np.inf).argmax(1)
    offset = int(t[-1] - best[-1])
    if not np.array_equal(best, np.maximum(0, t - offset)):
        return None
    q_size, k_size = np.abs(q_mid) + q_rad, np.abs(k_mid) + k_rad
    length = np.linalg.norm(k_mid, axis=1)
    gram = k_mid @ k_mid.T
    chord = np.sqrt(np.maximum(length[:, None] ** 2 + length[None, :] ** 2 - 2 * gram, 0.0) + 1e-9 * length.max() ** 2)
    exact_scale = np.log2(scale) == np.rint(np.log2(scale))
    common = np.linalg.norm(q_rad, axis=1) + (0.0 if exact_scale else store.unit) * np.linalg.norm(q_size, axis=1)
    key_part = q_size @ k_rad.T  # (t, s)
    sums = float(gamma(shape.head_dim + 2)) * (q_size @ k_size.T)
    rows, wanted = t, best
    error = common[:, None] * chord[wanted] + key_part + key_part[rows, wanted][:, None] + sums + sums[rows, wanted][:, None]
    error = scale * error * (1 + 2.0**-20) + OWN
    stores = (1 if exact_scale else 2) * (store.unit + 2 * U32)
    error = error + stores * (np.abs(score) + np.abs(score[rows, wanted])[:, None] + 2 * error) + 2 * store.tiny
    gap = score[rows, wanted][:, None] - score - error
    others = seen & (t[None, :] != wanted[:, None])
    least = float(gap[others].min(initial=np.inf))
    with np.errstate(over="ignore"):
        leak = float(np.where(others, np.exp(-gap), 0.0).sum(1).max()) * (1 + 2 * FUNCTION_ERROR)
    return Copy(offset, least, leak) if leak <= LARGEST_LEAK else None


def _tabulated(field: Field, length: int) -> tuple[Array, Array]:
    lo, hi = np.tile(field.lo, (length, 1)), np.tile(field.hi, (length, 1))
    for part in field.parts:
        lo[:, part.channels] += part.lo[:length]
        hi[:, part.channels] += part.hi[:length]
    return lo, hi


def copied(value: Field, copy: Copy, store: Storage) -> Field:
    """The value at the copied position, and `leak` of anything else; the weights may be stored too."""
    lo, hi = value.hull()
    # The stored weight of the copied position is at least 1 - 2 leak (1 itself is representable), all others weigh at most leak (1 + u).
    slack = (3 * copy.leak * (1 + 2 * store.unit) + FUNCTION_ERROR) * magnitude(lo, hi)
    parts = tuple(Part((p.key[0], p.key[1] + copy.offset), p.channels, p.lo, p.hi) for p in value.parts if p.key[0] != POSITION)
    if len(parts) < len(value.parts):
        raise Undecided("a value depends on its position")
    return Field(value.lo - slack, value.hi + slack, parts)


def blended(q: Field, k: Field, value: Field, shape: Shape, reach: Reach) -> Field:
    """A head that mixes positions: softmax is a convex combination, so its output is in the hull of the values.

    When tokens of `once` (BOS) stand at position 0 or nowhere, they get a bounded share of any later position: at least the
    query's own position competes. The output is then a function of the current token, with a wide interval.
    """
    lo, hi = value.hull()
    slack = 2.0**-18 * magnitude(lo, hi)
    crude = constant(lo - slack, hi + slack)
    if not reach.once or {p.key for f in (k, value) for p in f.parts} != {(TOKEN, 0)} or len(reach.once) > 1:
        return crude
    fixed = _constant(q)
    if fixed is None or shape.rotary is None:
        return crude
    special = next(iter(reach.once))
    share = _share_of_special(fixed, k, special, shape, reach)
    (part,) = value.parts
    table_lo, table_hi = np.tile(value.lo, (len(part.lo), 1)), np.tile(value.hi, (len(part.lo), 1))
    table_lo[:, part.channels] += part.lo
    table_hi[:, part.channels] += part.hi
    ordinary = np.arange(len(part.lo)) != special
    low, high = table_lo[ordinary].min(0), table_hi[ordinary].max(0)
    out_lo = np.minimum(low, low + share * (table_lo[special] - low))
    out_hi = np.maximum(high, high + share * (table_hi[special] - high))
    rows_lo, rows_hi = np.tile(out_lo, (len(part.lo), 1)), np.tile(out_hi, (len(part.lo), 1))
    rows_lo[special], rows_hi[special] = table_lo[special], table_hi[special]  # at position 0 nothing else is visible
    channels = np.arange(value.size)
    return Field(np.zeros(value.size), np.zeros(value.size), (Part((TOKEN, 0), channels, rows_lo - slack, rows_hi + slack),))


def _share_of_special(q: Field, k: Field, special: int, shape: Shape, reach: Reach) -> float:
    """Largest softmax weight of the special token at position 0, seen from a later position with another token."""
    assert shape.rotary is not None
    half = shape.rotary.dims // 2
    size_q = magnitude(q.lo, q.hi)
    (part,) = k.parts
    lo, hi = np.tile(k.lo, (len(part.lo), 1)), np.tile(k.hi, (len(part.lo), 1))
    lo[:, part.channels] += part.lo
    hi[:, part.channels] += part.hi
    middle, radius = (lo + hi) / 2, (hi - lo) / 2
    theta = shape.rotary.theta ** (-2 * np.arange(half) / shape.rotary.dims)
    wave_q = (q.lo[:half] + q.hi[:half]) / 2 + 0.5j * (q.lo[half : 2 * half] + q.hi[half : 2 * half])
    wave = wave_q * np.conj(middle[:, :half] + 1j * middle[:, half : 2 * half])  # (S, F)
    angle = np.outer(theta, np.arange(reach.length))
    scale = shape.head_dim**-0.5
    error = radius @ size_q + magnitude(lo, hi) @ ((q.hi - q.lo) / 2)
    # every rounding on the way, relative to the absolute sum: pairs, trigonometry, sums, stores
    slack = scale * (error + 2.0**-4 * (magnitude(lo, hi) @ size_q))
    if 2 * half < shape.head_dim:
        slack = slack + scale * (magnitude(lo, hi)[:, 2 * half :] @ size_q[2 * half :])
    top = scale * (wave[special].real @ np.cos(angle) - wave[special].imag @ np.sin(angle)).max() + slack[special]
    own = scale * wave.real.sum(1) - slack  # distance 0
    least = np.delete(own, special).min()
    return float(1 / (1 + np.exp(np.minimum(least - top, 700.0)))) * (1 + FUNCTION_ERROR)
