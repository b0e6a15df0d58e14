"""The router of a mixture of experts: which experts a symbol chooses, and with which weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.certify.checkpoint import decoder as d
from byheart.certify.checkpoint.config import Shape, Undecided
from byheart.certify.checkpoint.fields import Field, Key, Normed, Part, linear, magnitude
from byheart.certify.checkpoint.products import times
from byheart.certify.checkpoint.storage import FUNCTION_ERROR, U32, Array, Interval, Storage
from byheart.certify.checkpoint.units import sum_error


@dataclass(frozen=True)
class Routing:
    """Which experts a symbol chooses, with which weights: [lo, hi] is 0 for experts that are not chosen."""

    key: Key
    lo: Array  # (S, experts)
    hi: Array

    def weighted(self, expert: int, lo: Array, hi: Array, store: Storage) -> Part:
        low, high = store.maybe(lo, hi)
        rows = times((low[None, :], high[None, :]), (self.lo[:, [expert]], self.hi[:, [expert]]))
        return Part(self.key, np.arange(len(lo)), *store.maybe(*rows))

    def summed(self, parts: list[Part], size: int) -> tuple[Array, Array, list[Part]]:
        lo, hi = sum(p.lo for p in parts), sum(p.hi for p in parts)
        slack = 4 * U32 * np.maximum(np.abs(lo), np.abs(hi))
        return np.zeros(size), np.zeros(size), [Part(self.key, np.arange(size), lo - slack, hi + slack)]


def route(n: Normed, mlp: d.Mlp, shape: Shape, store: Storage) -> Routing | None:
    """Which experts every symbol chooses. Weights come from differences of logits, since channels are shared."""
    if mlp.router is None:
        return None
    kept = n.kept is not None
    logits = linear(n.whole, mlp.router, None if kept else store, share=2.0**-3)
    if len(logits.parts) != 1:
        raise Undecided(f"{mlp.router.name}: the choice of experts depends on {len(logits.parts)} symbols")
    key = logits.parts[0].key
    lo, hi = _table(logits, key)
    apart_lo, apart_hi = _logit_differences(n, mlp.router, key, lo, hi, kept, store)
    order = np.argsort(-(lo + hi), axis=1)
    inside, outside = order[:, : shape.experts_used], order[:, shape.experts_used :]
    rows = np.arange(len(lo))[:, None]
    for column in outside.T:
        if (apart_lo[rows, inside, column[:, None]] <= 0).any():
            raise Undecided(f"{mlp.router.name}: the choice of experts is not certain for every input")
    low, high = np.zeros_like(lo), np.zeros_like(hi)
    for column in inside.T:
        own = column[:, None]
        rest = inside != own
        wide = 8 * FUNCTION_ERROR  # softmax and the division by the sum of the chosen ones are computed in float32
        least = np.where(rest, np.exp(apart_lo[rows, inside, own]), 0.0).sum(1) * (1 - wide)
        most = np.where(rest, np.exp(apart_hi[rows, inside, own]), 0.0).sum(1) * (1 + wide)
        ends = store.maybe((1 - FUNCTION_ERROR) / (1 + most), (1 + FUNCTION_ERROR) / (1 + least))
        low[rows[:, 0], column], high[rows[:, 0], column] = ends
    return Routing(key, low, high)


def _logit_differences(
    n: Normed, router: d.Linear, key: Key, lo: Array, hi: Array, kept: bool, store: Storage
) -> Interval:
    """logit_i - logit_j for all experts and symbols: (S, experts, experts)."""
    weight, count = router.weight, len(router.weight)
    difference = (weight[:, None, :] - weight[None, :, :]).reshape(count * count, -1)
    field = linear(n.whole, d.Linear(router.name, difference, None), None, share=2.0**-3)
    size = magnitude(*n.whole.hull())
    sums = sum_error(router, size).most()
    largest = np.maximum(np.abs(lo), np.abs(hi)).max(0)
    error = sums + (0.0 if kept else store.unit) * (largest + sums)
    wide = (error[:, None] + error[None, :]).reshape(-1)
    field = Field(field.lo - wide, field.hi + wide, field.parts)
    low, high = (x.reshape(-1, count, count) for x in _table(field, key, len(lo)))
    return np.maximum(low, lo[:, :, None] - hi[:, None, :]), np.minimum(high, hi[:, :, None] - lo[:, None, :])


def _table(field: Field, key: Key, symbols: int | None = None) -> Interval:
    """Values by the symbol of one key, all other parts replaced by their hull."""
    rows = symbols or next(len(p.lo) for p in field.parts if p.key == key)
    lo, hi = np.tile(field.lo, (rows, 1)), np.tile(field.hi, (rows, 1))
    for part in field.parts:
        lo[:, part.channels] += part.lo if part.key == key else part.lo.min(0)
        hi[:, part.channels] += part.hi if part.key == key else part.hi.max(0)
    return lo, hi
