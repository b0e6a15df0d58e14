"""The output of an attention block as a field: heads that copy, and heads that mix.

A head that reads one distance, whatever the input is (`copying.one_hot`), shows the symbols of that place; one that
does not is enclosed by the hull of its values.
"""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.proof import decoder as d
from byheart.checkpoints.proof.config import Rotary, Shape, Undecided
from byheart.checkpoints.proof.copying import Copy, Reach, folded, one_hot, rotation_error, score_stores, tabulated
from byheart.checkpoints.proof.fields import (
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
from byheart.checkpoints.proof.slack import term
from byheart.checkpoints.proof.storage import (
    FREQUENCY_ERROR,
    FUNCTION_ERROR,
    OWN,
    TRIG_ERROR,
    U32,
    Array,
    Storage,
    finite,
    gamma,
)

NEGLIGIBLE = 2.0**-12  # what a head that mixes may add to the stream without being looked at


class NeedsStart(Undecided):
    """The proof may go through if a token that begins texts stands only at the beginning."""


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
        group = head // (shape.heads // shape.kv_heads)
        rows = np.arange(group * shape.head_dim, (group + 1) * shape.head_dim)
        query = _head_norm(q.rows(columns), attention.q_norm, store)
        key = _head_norm(k.rows(rows), attention.k_norm, store)
        # Before the question whether anything reads the head: an infinite score is NaN times zero all the same.
        finite_scores(query, key, shape, store, f"head {head}")
        if not attention.o.weight[:, columns].any():
            continue
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


def finite_scores(q: Field, k: Field, shape: Shape, store: Storage, name: str) -> None:
    """Rotated queries and keys, and their products before the scale, are finite at every distance. In float16, a
    fully masked row (padding) adds the type's least number to every score: the score at distance 0 must not push the
    sum beyond the range, or the row becomes NaN and spreads through masked values."""
    size_q, size_k = magnitude(*q.hull()), magnitude(*k.hull())
    half = 0 if shape.rotary is None else shape.rotary.dims // 2
    pairs = [np.hypot(s[:half], s[half : 2 * half]) for s in (size_q, size_k)]
    finite(f"{name}: a rotated query or key", np.concatenate(pairs), store.largest)
    total = pairs[0] @ pairs[1] + size_q[2 * half :] @ size_k[2 * half :]
    # A query may be scaled before the product or the product after it.
    finite(f"{name}: a score", np.asarray(total), store.largest)
    room = store.largest * store.unit / 2
    own = own_score(q, k, shape) - 8 * (store.unit + 2 * U32) * float(total) * shape.head_dim**-0.5
    if not own > -room:
        raise Undecided(
            f"{name}: scores {own:.4g} at distance 0; in a fully masked row {store.name} adds {-store.largest:.5g},"
            f" which overflows below {-room:.4g}"
        )


def own_score(q: Field, k: Field, shape: Shape) -> float:
    """The least score of a position with itself: rotations cancel. Query and key depend on the same symbols."""
    scale = shape.head_dim**-0.5
    keys = {p.key for p in (*q.parts, *k.parts)}
    if len(keys) == 1:
        rows = [_rows_of(f, next(iter(keys)), (*q.parts, *k.parts)) for f in (q, k)]
    else:
        rows = [tuple(end[None, :] for end in f.hull()) for f in (q, k)]
    (q_lo, q_hi), (k_lo, k_hi) = rows
    least = np.minimum.reduce([q_lo * k_lo, q_lo * k_hi, q_hi * k_lo, q_hi * k_hi]).sum(1)
    return float(scale * least.min())


def _rows_of(field: Field, key: tuple[int, int], parts: tuple[SymbolPart, ...]) -> tuple[Array, Array]:
    symbols = max(len(p.lo) for p in parts)
    lo, hi = tabulated(field)
    return np.broadcast_to(lo, (symbols, field.size)), np.broadcast_to(hi, (symbols, field.size))


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
            slack = term("leak of a copy", (3 * plan.leak * (1 + 2 * store.unit) + FUNCTION_ERROR) * bound)
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
    slack = term("leak of a copy", (3 * copy.leak * (1 + 2 * store.unit) + FUNCTION_ERROR) * magnitude(lo, hi))
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
        rotation_error(s[:half], s[half : 2 * half], store) + turn * p for s, p in ((size_q, pair_q), (size_k, pair_k))
    )
    scale = shape.head_dim**-0.5
    stores, scaling = score_stores(scale, store)
    error_q = error_q + scaling * pair_q
    rounding = error_q @ pair_k + (pair_q + error_q) @ error_k + gamma(shape.head_dim + 2) * (pair_q @ pair_k)
    error = scale * (radius + rounding + gamma(shape.head_dim + 2) * (size_q[2 * half :] @ size_k[2 * half :]))
    score = scale * (score + plain)
    error = error + stores * (np.abs(score) + error) + OWN + store.tiny
    return score - error, score + error
