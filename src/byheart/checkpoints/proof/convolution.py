"""A causal convolution: what a recurrent layer sees of the last places, as bounds.

    y_c[t] = silu(sum over j of w_cj x_c[t - taps + 1 + j] + b_c),      x_c[s] = 0 for s < 0

A channel with one tap at distance o shows x_c at position t - o, and *nothing* (0, so silu(b_c)) where t < o: its part
has the key (TOKEN, absent(o)), whose last row is that. What else a channel sees (other taps, other symbols) is replaced
by its hull, which for a tap at a distance includes 0. So every channel of the result depends on one symbol at most,
and the activation is taken row by row.

Engines run a whole prompt or one token beside the last inputs, which they keep; both add up the same products.

Cost: one table of symbols by channels for every distance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import (
    TOKEN,
    Bounds,
    Key,
    SymbolPart,
    absent,
    interval_product,
    is_absent,
    lookback,
    magnitude,
    merged,
)
from byheart.checkpoints.proof.decoder import Convolution
from byheart.checkpoints.proof.storage import Array, Interval, Storage, finite
from byheart.checkpoints.proof.units import variants


def convolved(x: Bounds, convolution: Convolution, symbols: int, store: Storage) -> Bounds:
    """The activated output of a convolution over `x`, stored or kept at every step.

    Args:
        x: The channels before it.
        convolution: Its taps and biases.
        symbols: How many tokens there are.
        store: The type.
    """
    weight, taps = convolution.weight, convolution.weight.shape[1]
    bias = np.zeros(x.size) if convolution.bias is None else convolution.bias
    size, hull = x.largest(), x.hull()
    total = np.abs(weight).sum(1) * size + np.abs(bias)
    finite(f"{convolution.name}: a sum", total, store.largest)
    chosen = np.abs(weight).argmax(1)  # the tap that is followed symbol by symbol
    rest_lo, rest_hi, loud = np.zeros(x.size), np.zeros(x.size), np.zeros(x.size)
    for tap in range(taps):
        lo, hi = interval_product(hull, (weight[:, tap], weight[:, tap]))
        if tap < taps - 1:  # there may be no such place
            lo, hi = np.minimum(lo, 0.0), np.maximum(hi, 0.0)
        other = chosen != tap
        rest_lo, rest_hi = rest_lo + np.where(other, lo, 0.0), rest_hi + np.where(other, hi, 0.0)
        loud = loud + np.where(other, np.abs(weight[:, tap]) * size, 0.0)
    terms = (weight != 0).sum(1) + (bias != 0)
    lo, hi, parts = np.zeros(x.size), np.zeros(x.size), []
    for tap, key, channels in _groups(x, chosen):
        distance = taps - 1 - tap
        seen = _shifted(x, key, channels, distance, symbols)
        w = weight[channels, tap]
        low, high = interval_product(seen[1], (w, w))
        error = rounding.dot(terms[channels], magnitude(low, high) + loud[channels] + np.abs(bias[channels]))
        sums = low + rest_lo[channels] - error, high + rest_hi[channels] + error
        low, high = _activated(sums, bias[channels], store)
        if seen[0] is None:
            lo[channels], hi[channels] = low[0], high[0]
        else:
            parts.append(SymbolPart(seen[0], channels, low, high))
    return Bounds(lo, hi, merged(parts))


def _groups(x: Bounds, chosen: Array) -> list[tuple[int, Key | None, Array]]:
    """Channels with one tap and one part in common: (tap, the part that moves the channel most, channels)."""
    widest, owner = np.zeros(x.size), np.full(x.size, -1)
    for number, part in enumerate(x.parts):
        spread = part.spread()
        more = spread > widest[part.channels]
        owner[part.channels[more]], widest[part.channels[more]] = number, spread[more]
    found = []
    for tap, number in np.unique(np.stack([chosen, owner], 1), axis=0):
        key = None if number < 0 else x.parts[number].key
        found.append((int(tap), key, np.flatnonzero((chosen == tap) & (owner == number))))
    return found


def _shifted(
    x: Bounds, key: Key | None, channels: Array, distance: int, symbols: int
) -> tuple[Key | None, Interval]:  # fmt: skip
    """Some channels at a distance: the key of what they depend on, and their rows, the last for "nothing" there."""
    folded = _others_folded(x.rows(channels), key)
    kept = next(iter(folded.parts), None)
    lo, hi = folded.lo[None, :], folded.hi[None, :]
    if kept is not None:
        wide_lo, wide_hi = np.zeros((len(kept.lo), len(channels))), np.zeros((len(kept.lo), len(channels)))
        wide_lo[:, kept.channels], wide_hi[:, kept.channels] = kept.lo, kept.hi
        lo, hi = rounding.widened(lo + wide_lo, hi + wide_hi)
    if not distance:
        return key if kept is not None else None, (lo, hi)
    if kept is None or key is None or (key[1] and not is_absent(key[1])):
        # Constant, or of a symbol that shows the first place: nothing is known but that the place is there or not.
        lo, hi = lo.min(0, keepdims=True), hi.max(0, keepdims=True)
        rows = np.zeros((symbols, 1))
        return (TOKEN, absent(distance)), _with_nothing(lo + rows, hi + rows)
    if not key[1]:
        return (key[0], absent(distance)), _with_nothing(lo, hi)
    # The place is there, but what it saw may not be: one symbol for both.
    low, high = _with_nothing(lo[:-1], hi[:-1])
    low[-1], high[-1] = np.minimum(lo[-1], 0.0), np.maximum(hi[-1], 0.0)
    return (key[0], absent(lookback(key[1]) + distance)), (low, high)


def _others_folded(x: Bounds, key: Key | None) -> Bounds:
    """All parts but those of one key replaced by their hull."""
    lo, hi = x.lo.copy(), x.hi.copy()
    for part in x.parts:
        if part.key != key:
            lo[part.channels] += part.lo.min(0)
            hi[part.channels] += part.hi.max(0)
    return Bounds(*rounding.widened(lo, hi), tuple(part for part in x.parts if part.key == key))


def _with_nothing(lo: Array, hi: Array) -> Interval:
    none = np.zeros((1, lo.shape[1]))
    return np.concatenate([lo, none]), np.concatenate([hi, none])


def _activated(sums: Interval, bias: Array, store: Storage) -> Interval:
    """silu of a sum and its bias; the sum may be stored before the bias is added, and after."""
    once = store.maybe(sums[0] + bias, sums[1] + bias)
    first = store.maybe(*sums)
    twice = store.maybe(first[0] + bias, first[1] + bias)
    inner = np.minimum(once[0], twice[0]), np.maximum(once[1], twice[1])
    found = [store.maybe(*ends) for ends in variants("silu", *inner, store, False)]
    return np.minimum.reduce([x[0] for x in found]), np.maximum.reduce([x[1] for x in found])


def at_place(x: Bounds, place: int, first: int) -> Interval:
    """The hull of bounds at one place; `place` = `first` means that one and all after it."""
    lo, hi = x.lo.copy(), x.hi.copy()
    for part in x.parts:
        rows = slice(None)
        if is_absent(part.key[1]):
            there = place >= lookback(part.key[1])
            rows = slice(0, -1) if there else slice(-1, None) if place < first else slice(None)
        lo[part.channels] += part.lo[rows].min(0)
        hi[part.channels] += part.hi[rows].max(0)
    return rounding.widened(lo, hi)


def farthest(*fields: Bounds) -> int:
    """The farthest offset at which something may be absent."""
    offsets = [lookback(part.key[1]) for field in fields for part in field.parts if is_absent(part.key[1])]
    return max(offsets, default=0)


def side_by_side(*fields: Bounds) -> Bounds:
    """The channels of several bounds, one after the other."""
    starts = np.cumsum([0, *(f.size for f in fields)])
    parts = [
        SymbolPart(p.key, start + p.channels, p.lo, p.hi)
        for f, start in zip(fields, starts[:-1], strict=True) for p in f.parts
    ]  # fmt: skip
    return Bounds(np.concatenate([f.lo for f in fields]), np.concatenate([f.hi for f in fields]), _joined(parts))


def _joined(parts: list[SymbolPart]) -> tuple[SymbolPart, ...]:
    """Parts of one key with their own channels, as one."""
    by_key: dict[tuple[int, int], list[SymbolPart]] = {}
    for part in parts:
        by_key.setdefault(part.key, []).append(part)
    return tuple(
        SymbolPart(
            key, np.concatenate([p.channels for p in group]), np.concatenate([p.lo for p in group], 1),
            np.concatenate([p.hi for p in group], 1),
        )
        for key, group in by_key.items()
    )  # fmt: skip


def apart(field: Bounds, like: Sequence[Bounds]) -> list[Bounds]:
    """The channels of `field` as bounds of the same sizes as those that were set side by side."""
    ends = np.cumsum([part.size for part in like])
    return [field.rows(np.arange(end - part.size, end)) for part, end in zip(like, ends, strict=True)]
