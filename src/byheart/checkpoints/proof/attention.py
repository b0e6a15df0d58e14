"""The output of an attention block as a field: heads that copy, and heads that mix.

A head that reads one distance, whatever the input is (`copying.one_hot`), shows the symbols of that place; one that
does not is enclosed by the hull of its values. A sink takes a share of the weights and adds nothing: what is left is
enclosed by the hull times the share of the places, so a head whose sink leads all scores is silent.
"""

from __future__ import annotations

import math

import numpy as np

from byheart.checkpoints.proof import decoder as d
from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import (
    POSITION,
    START,
    STARTS,
    TOKEN,
    Bounds,
    Normed,
    SymbolPart,
    constant,
    either,
    interval_product,
    magnitude,
    merged,
    moved_back,
)
from byheart.checkpoints.proof.caps import capped
from byheart.checkpoints.proof.config import Rotary, Shape, Undecided
from byheart.checkpoints.proof.copying import (
    PLAIN,
    Copy,
    HeadScores,
    Reach,
    best_copy,
    folded,
    one_hot,
    rotated_error,
    tabulated,
)
from byheart.checkpoints.proof.latents import absorbed_size, mixed_first, projected
from byheart.checkpoints.proof.state_rounding import sigmoids
from byheart.checkpoints.proof.storage import Array, Interval, Storage, finite

LARGEST_SCORE = 300.0  # of a head that mixes positions: its exponentials and their sums are finite in float64
NEGLIGIBLE = 2.0**-12  # what a head that mixes may add to the stream without being looked at


class NeedsStart(Undecided):
    """The proof may go through if a token that begins texts occurs only at the beginning."""


def attend(
    n: Normed, attention: d.StockAttention, shape: Shape, reach: Reach, store: Storage
) -> tuple[Bounds, list[Copy]]:
    """The output of the attention block as a field, and what its heads do."""
    if attention.latents is None:
        q, k, whole = (n.whole.matmul(layer, store) for layer in (attention.q, attention.k, attention.v))
        read = n
    else:
        q, k, whole, read = projected(n, attention, attention.latents, shape, store)
    # Kernels add the weighted values, or latents, before they divide by the softmax's sum.
    seen = min(reach.length, shape.window or reach.length)
    mixed = whole.largest() if attention.latents is None else np.r_[whole.largest(), read.whole.largest()]
    finite(f"{attention.v.name}: a sum of values before the softmax divides it", seen * mixed)
    q_norm, k_norm = attention.q_norm, attention.k_norm
    if attention.all_heads:
        q, k, q_norm, k_norm = head_norm(q, q_norm, store), head_norm(k, k_norm, store), None, None
    copies: list[Copy] = []
    known: dict[tuple[bytes, HeadScores], Copy | None] = {}  # heads with equal weights look at the same place
    # Columns of o, rows of v, and what the head does with the values.
    plans: list[tuple[Array, Array, Copy | Bounds]] = []
    for head in range(shape.heads):
        columns = np.arange(head * shape.head_dim, (head + 1) * shape.head_dim)
        group = head // (shape.heads // shape.kv_heads)
        rows = np.arange(group * shape.head_dim, (group + 1) * shape.head_dim)
        query = magnified(head_norm(q.rows(columns), q_norm, store), shape.rotary)
        key = magnified(head_norm(k.rows(rows), k_norm, store), shape.rotary)
        # Before the question whether anything reads the head: an infinite score is NaN times zero all the same.
        finite_scores(query, key, shape, store, f"head {head}")
        beside = HeadScores(
            None if attention.sinks is None else float(attention.sinks[head]),
            absorbed_size(query, read, attention, shape, group, store),
        )
        looks = _bytes(attention.q, columns) + _bytes(attention.k, _plain_rows(attention, shape, group))
        if attention.all_heads and attention.q_norm is not None and attention.k_norm is not None:
            # One norm over all heads: heads with equal matrices may differ in their parts of its weight.
            looks += attention.q_norm.weight[columns].tobytes() + attention.k_norm.weight[rows].tobytes()
        columns, rows = (np.arange(i * shape.value_size, (i + 1) * shape.value_size) for i in (head, group))
        reads = attention.o.weight[:, columns].any(0)
        columns, rows = columns[reads], rows[reads]  # a group's other values are other heads' matter
        if not len(columns):
            continue
        if (looks, beside) not in known:
            find = one_hot if shape.score_cap is None else _capped_copy
            known[looks, beside] = find(query, key, shape, reach, store, beside)
        copy = known[looks, beside]
        if copy is None:
            values = whole.rows(rows)
            mixed = blended(query, key, values, attention.o.weight[:, columns], shape, reach, store, beside)
            if attention.latents is not None:
                mixed = mixed_first(mixed, read.whole, attention.v.weight[rows], reach.length, store)
            plans.append((columns, rows, mixed.store(store)))
        else:
            copies.append(copy)
            plans.append((columns, rows, copy))
    # With adapters and gates the kept form is enclosed like a stored one: each value by itself.
    alone = attention.v.adapter is not None or attention.o.adapter is not None or attention.gate is not None
    if read.kept is None or alone:
        gates = None
        if attention.gate is not None:
            gates = store.maybe(*sigmoids(*n.whole.matmul(attention.gate, store).hull()))
        return _stored_output(whole, read, attention, plans, store, gates), copies
    return _kept_output(read, read.kept if read.near is None else read.near, attention, plans).store(store), copies


def _plain_rows(attention: d.StockAttention, shape: Shape, group: int) -> Array:
    """The rows of the key's matrix that belong to one head: those of its unrotated part, with latents."""
    size = len(attention.k.weight) // shape.kv_heads
    return np.arange(group * size, (group + 1) * size)


def magnified(field: Bounds, rotary: Rotary | None) -> Bounds:
    """A query or key times what cos and sin are multiplied by, before its rotation: the rotation's rules then hold for
    the larger numbers."""
    if rotary is None or rotary.gain == 1:
        return field
    factor = np.where(np.arange(field.size) < rotary.dims, rotary.gain, 1.0)
    slack = rounding.multiplier(rotary.gain)
    return field.times(factor - slack, factor + slack)


def finite_scores(q: Bounds, k: Bounds, shape: Shape, store: Storage, name: str) -> None:
    """Rotated queries and keys, and their products before the scale, are finite at every distance. In float16, a
    fully masked row (padding) adds the type's least number to every score: the score at distance 0 must not push the
    sum beyond the range, or the row becomes NaN and spreads through masked values."""
    size_q, size_k = q.largest(), k.largest()
    half = 0 if shape.rotary is None else shape.rotary.dims // 2
    pairs = [np.hypot(s[:half], s[half : 2 * half]) for s in (size_q, size_k)]
    finite(f"{name}: a rotated query or key", np.concatenate(pairs), store.largest)
    total = pairs[0] @ pairs[1] + size_q[2 * half :] @ size_k[2 * half :]
    # A query may be scaled before the product or the product after it.
    finite(f"{name}: a score", np.asarray(total), store.largest)
    check_masked_row(name, own_score(q, k, shape), float(total) * shape.scale, store)


def check_masked_row(name: str, own: float, total: float, store: Storage) -> None:
    """Refuse a head whose score at distance 0 overflows where a mask adds the type's least number to all of a row.

    Args:
        name: the head, for messages.
        own: the least score at distance 0.
        total: the sum of the absolute values of its products, times the scale.
        store: the type.
    """
    room = store.largest * store.unit / 2
    own = own - rounding.masked_score(total, store)
    if not own > -room:
        raise Undecided(
            f"{name}: scores {own:.4g} at distance 0; in a fully masked row {store.name} adds {-store.largest:.5g},"
            f" which overflows below {-room:.4g}"
        )


def own_score(q: Bounds, k: Bounds, shape: Shape) -> float:
    """The least score of a position with itself: rotations cancel. Query and key depend on the same symbols."""
    scale = shape.scale
    keys = {p.key for p in (*q.parts, *k.parts)}
    if len(keys) == 1:
        rows = [_rows_of(f, next(iter(keys)), (*q.parts, *k.parts)) for f in (q, k)]
    else:
        rows = [tuple(end[None, :] for end in f.hull()) for f in (q, k)]
    (q_lo, q_hi), (k_lo, k_hi) = rows
    least = np.minimum.reduce([q_lo * k_lo, q_lo * k_hi, q_hi * k_lo, q_hi * k_hi]).sum(1)
    return float(scale * least.min())


def _rows_of(field: Bounds, key: tuple[int, int], parts: tuple[SymbolPart, ...]) -> tuple[Array, Array]:
    symbols = max(len(p.lo) for p in parts)
    lo, hi = tabulated(field)
    return np.broadcast_to(lo, (symbols, field.size)), np.broadcast_to(hi, (symbols, field.size))


def _bytes(layer: d.Linear, rows: Array) -> bytes:
    kept = (layer.weight[rows],) if layer.bias is None else (layer.weight[rows], layer.bias[rows])
    if layer.adapter is not None:  # equal merged rows may err differently
        kept = (*kept, layer.adapter.base[rows], layer.adapter.b[rows])
    return b"".join(bytes(part.tobytes()) for part in kept)


def _stored_output(
    v: Bounds, read: Normed, attention: d.StockAttention, plans: list[tuple[Array, Array, Copy | Bounds]],
    store: Storage, gates: Interval | None,
) -> Bounds:  # fmt: skip
    """The normed stream was stored: values and the heads' outputs are kept or stored, each by itself. With latents,
    engines may also mix these, store the mixture, and project it then."""
    size = attention.o.weight.shape[1]
    lo, hi, parts = np.zeros(size), np.zeros(size), []
    for columns, rows, plan in plans:
        out = plan if isinstance(plan, Bounds) else copied(v.rows(rows), plan).store(store)
        if attention.latents is not None and not isinstance(plan, Bounds):
            projection = d.Linear(attention.v.name, attention.v.weight[rows], None)
            out = either(out, copied(read.whole, plan).store(store).matmul(projection, store))
        lo[columns], hi[columns] = out.lo, out.hi
        parts += [SymbolPart(p.key, columns[p.channels], p.lo, p.hi) for p in out.parts]
    mixed = Bounds(lo, hi, merged(parts))
    return (mixed if gates is None else mixed.times(*gates).store(store)).matmul(attention.o, store)


def _kept_output(
    n: Normed, kept: Bounds, attention: d.StockAttention, plans: list[tuple[Array, Array, Copy | Bounds]]
) -> Bounds:
    """The normed stream was kept in float32, and so are values and the heads' outputs: all values of one position
    share the norm's factor, so a head's contribution is that factor times a combination in which equal terms cancel."""
    weight, bias = attention.v.weight, attention.v.bias
    size = n.whole.largest()
    terms, total = ((weight != 0) & (size > 0)).sum(1), np.abs(weight) @ size
    plain = kept.matmul(d.Linear(attention.v.name, weight, None), None).widen(n.drifted(weight))
    plain = plain.widen(rounding.kept_values(terms, total) / n.factor[0])
    offset = np.zeros(len(weight)) if bias is None else bias
    offset = offset if n.bias is None else offset + weight @ n.bias
    outputs, total = [], np.zeros(len(attention.o.weight))
    for columns, rows, plan in plans:
        part = d.Linear(attention.o.name, attention.o.weight[:, columns], None)
        if isinstance(plan, Bounds):
            outputs.append(plan.matmul(part, None))
            bound = plan.largest()
        else:
            value = plain.rows(rows)
            bound = value.largest() * n.factor[1] + np.abs(offset[rows])
            if attention.latents is not None:  # what leaks may be mixed before it is projected
                bound = np.abs(weight[rows]) @ size
            slack = rounding.leak_error(plan.leak, bound) + rounding.offset_error(np.abs(offset[rows]))
            out = shifted(value, plan).matmul(part, None).times(*n.factor).add(constant(part.weight @ offset[rows]))
            outputs.append(out.widen(np.abs(part.weight) @ slack))
        total = total + np.abs(part.weight) @ bound
    result = constant(np.zeros(len(total))).add(*outputs)
    result = result.widen(rounding.kept_output((attention.o.weight != 0).sum(1), total))
    return result if attention.o.bias is None else result.add(constant(attention.o.bias))


def head_norm(field: Bounds, norm: d.Norm | None, store: Storage) -> Bounds:
    """RMSNorm over one head's query or key, or over those of all heads, symbol by symbol where it depends on one."""
    if norm is None:
        return field
    if len(field.parts) != 1:
        return field.norm_stepwise(norm, store)
    (part,) = field.parts
    # Few symbols differ in their queries or keys: the norm of equal rows is computed once.
    distinct, which = np.unique(np.concatenate(tabulated(field), axis=1), axis=0, return_inverse=True)
    n = field.size
    rows = [Bounds(row[:n], row[n:]).norm_stepwise(norm, store) for row in distinct]
    low, high = (np.stack(ends)[which.reshape(-1)] for ends in ([r.lo for r in rows], [r.hi for r in rows]))
    zero = np.zeros(field.size)
    return Bounds(zero, zero, (SymbolPart(part.key, np.arange(field.size), low, high),)).fold(0.0)


def shifted(value: Bounds, copy: Copy) -> Bounds:
    """The field at the copied position."""
    if any(p.key[0] in (POSITION, START) for p in value.parts):
        raise Undecided("a value depends on its position")
    try:
        keys = [(p.key[0], moved_back(p.key[1], copy.offset, copy.stays)) for p in value.parts]
    except ValueError as reason:
        raise Undecided(str(reason)) from None
    parts = (SymbolPart(key, p.channels, p.lo, p.hi) for key, p in zip(keys, value.parts, strict=True))
    return Bounds(value.lo, value.hi, tuple(parts))


def copied(value: Bounds, copy: Copy) -> Bounds:
    """The value at the copied position, and `leak` of anything else; the weights may be stored too."""
    return shifted(value, copy).widen(rounding.leak_error(copy.leak, value.largest()))


def _capped_copy(
    q: Bounds, k: Bounds, shape: Shape, reach: Reach, store: Storage, beside: HeadScores
) -> Copy | None:  # fmt: skip
    """The distance that a head with capped scores reads: scores are compared after the cap, each with its own error."""
    if shape.rotary is None or beside != PLAIN:
        raise Undecided("scores are capped without rotation, or with sinks")
    key = folded(k)
    lo, hi = _scores(folded(q), key.lo, key.hi, shape, shape.rotary, reach, store)
    seen = reach.length if shape.window is None else min(reach.length, shape.window)
    lo, hi = lo[:seen], hi[:seen]
    return best_copy((lo + hi) / 2, lambda wanted, others: lo[wanted] - hi[others], lambda wanted: math.inf)


def blended(
    q: Bounds, k: Bounds, value: Bounds, o: Array, shape: Shape, reach: Reach, store: Storage,
    beside: HeadScores = PLAIN,
) -> Bounds:  # fmt: skip
    """A head that mixes positions: softmax is a convex combination, so its output is in the hull of the values.

    When a token of `once` (BOS) is at position 0 or absent, its weight at position t is known better: t other
    positions compete with it. The output is then a function of START, which is whether BOS is at the start and
    how far back that is. With a sink, the weights of all places add up to less than 1.
    """
    lo, hi = value.hull()
    most = 1.0 if beside.sink is None else _places_share(q, k, shape, reach, store, beside)
    slack = rounding.mixture_error(reach.length, magnitude(lo, hi), store, most)
    if beside.sink is not None:
        lo, hi = np.minimum(lo, 0.0) * most, np.maximum(hi, 0.0) * most
    crude = constant(lo - slack, hi + slack)
    if float((np.abs(o) @ (hi - lo)).max(initial=0.0)) <= NEGLIGIBLE:
        return crude
    if not reach.once:
        raise NeedsStart("a head mixes positions, and what it sees is not bounded for every input")
    if not {p.key for p in (*k.parts, *value.parts)} <= {(TOKEN, 0)}:
        return crude
    special, ordinary = _tokens_apart(value, reach)
    (share_lo, share_hi), others = _shares(folded(q), k, shape, reach, store, beside)
    low, high = ordinary
    if beside.sink is None:
        # p in [share_lo, share_hi] of the special value, the rest of ordinary ones: linear in p, so extremes are at
        # the ends
        ends_lo = [low + p[:, None] * (special[0] - low) for p in (share_lo, share_hi)]
        ends_hi = [high + p[:, None] * (special[1] - high) for p in (share_lo, share_hi)]
        rows_lo, rows_hi = np.minimum(*ends_lo), np.maximum(*ends_hi)
    else:
        first = interval_product((share_lo[:, None], share_hi[:, None]), special)
        rest = interval_product((others[0][:, None], others[1][:, None]), ordinary)
        rows_lo, rows_hi = first[0] + rest[0], first[1] + rest[1]
    part = SymbolPart((START, 0), np.arange(value.size), rows_lo - slack, rows_hi + slack)
    return Bounds(np.zeros(value.size), np.zeros(value.size), (part,))


def _places_share(
    q: Bounds, k: Bounds, shape: Shape, reach: Reach, store: Storage, beside: HeadScores
) -> float:  # fmt: skip
    """What all places weigh together beside a sink, at most."""
    assert beside.sink is not None
    key = folded(k)
    top = _scores(folded(q), key.lo, key.hi, shape, shape.rotary or Rotary(1.0, 0), reach, store, beside)[1]
    seen = min(reach.length, shape.window or reach.length)
    total = float(np.exp(np.minimum(top[:seen] - beside.sink, 700.0)).sum())
    return float(rounding.softmax_share(np.zeros(1), np.array([total / (1 + total)]))[1][0])


def _tokens_apart(field: Bounds, reach: Reach) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The range of a field for tokens of `once`, and for all others."""
    lo, hi = tabulated(field)
    if not field.parts:
        return (lo[0], hi[0]), (lo[0], hi[0])
    inside = np.isin(np.arange(len(lo)), list(reach.once))
    return (lo[inside].min(0), hi[inside].max(0)), (lo[~inside].min(0), hi[~inside].max(0))


def _shares(
    q: Bounds, k: Bounds, shape: Shape, reach: Reach, store: Storage, beside: HeadScores
) -> tuple[Interval, Interval]:  # fmt: skip
    """Bounds of the softmax weight of BOS for every symbol of START, and of what all other places weigh together.

    The others are at distances 0 ... t - 1, each with its own score, as far as the window goes.
    """
    special, ordinary = _tokens_apart(k, reach)
    top, bottom = (
        _scores(q, *key, shape, shape.rotary or Rotary(1.0, 0), reach, store, beside) for key in (special, ordinary)
    )
    largest = max(float(magnitude(*ends).max()) for ends in (top, bottom))
    if not max(largest, beside.sink or 0.0) <= LARGEST_SCORE:
        raise Undecided(f"a head that mixes positions has scores up to {largest:.4g}, beyond {LARGEST_SCORE:g}")
    window = min(STARTS, shape.window or STARTS)  # BOS is in sight at positions before this
    sink = 0.0 if beside.sink is None else math.exp(beside.sink)
    first_lo, first_hi = (np.exp(end[:window]) for end in top)
    # What the others add up to by position, before the division: nothing at position 0.
    least, most = (np.cumsum(np.r_[0.0, np.exp(end[:window])]) for end in bottom)
    lo, hi = np.zeros(STARTS + 2), np.zeros(STARTS + 2)
    lo[:window] = first_lo / (first_lo + most[:-1] + sink)
    hi[:window] = first_hi / (first_hi + least[:-1] + sink)
    rest_lo, rest_hi = np.zeros(STARTS + 2), np.ones(STARTS + 2)
    rest_lo[:window] = least[:-1] / (first_hi + least[:-1] + sink)
    rest_hi[:window] = most[:-1] / (first_lo + most[:-1] + sink)
    rest_lo[window:STARTS] = least[-1] / (least[-1] + sink)
    rest_hi[window:STARTS] = most[-1] / (most[-1] + sink)
    later = 0.0
    if reach.length > STARTS and (shape.window is None or shape.window > STARTS):
        farthest = min(reach.length, shape.window or reach.length)
        later = float(np.exp(float(top[1][STARTS:farthest].max())))
    hi[STARTS] = later / (later + least[-1] + sink)
    rest_lo[STARTS] = least[-1] / (later + least[-1] + sink)
    rest_lo[STARTS + 1] = least[1] / (least[1] + sink)  # without BOS, at least one place is seen: the own one
    return rounding.softmax_share(lo, hi), rounding.softmax_share(rest_lo, rest_hi)


def _scores(
    q: Bounds, lo: Array, hi: Array, shape: Shape, rotary: Rotary, reach: Reach, store: Storage,
    beside: HeadScores = PLAIN,
) -> tuple[Array, Array]:  # fmt: skip
    """Bounds of the score at every distance, for a key in [lo, hi]."""
    half = rotary.dims // 2
    theta = rotary.frequencies
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
    error_q, error_k = (
        rotated_error(s[:half], s[half : 2 * half], reach.length, theta, store) for s in (size_q, size_k)
    )
    drift = rounding.frequency_error(distance.max() * rotary.uncertainty, theta) @ (pair_q * pair_k)
    scale = shape.scale
    stores, scaling = rounding.score_stores(scale, store)
    error_q = error_q + scaling * pair_q
    total = pair_q @ pair_k + size_q[2 * half :] @ size_k[2 * half :]
    error = error_q @ pair_k + (pair_q + error_q) @ error_k + drift + rounding.score_sum(shape.head_dim, total)
    error = error + beside.absorbed
    # Also a scaled query's part that is not rotated is stored.
    error = scale * (radius + error + scaling * total) + rounding.own(1 + scale * total)
    score = scale * (score + plain)
    error = error + stores * (np.abs(score) + error) + rounding.score_underflow(store)
    if beside.sink is not None:  # the largest of all scores is subtracted first
        spread = max(float((score + error).max()), beside.sink) - min(float((score - error).min()), beside.sink)
        error = error + beside.shifted(np.array(spread), store)
    if shape.score_cap is not None:
        return capped((score - error, score + error), shape.score_cap, store)
    return score - error, score + error
