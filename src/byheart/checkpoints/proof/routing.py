"""Routers: which experts every symbol chooses, and with which weights.

A router's logits depend on one symbol, that of one key. For every symbol the choice must be certain: each chosen expert
beats each other one whatever the error is. Weights are intervals.

*Softmax.* Weights come from differences of logits, since all logits share their channels. Softmax over the chosen
logits is softmax over all of them divided by the sum of the chosen weights.

*Sigmoid* (DeepSeek-V3). The choice compares scores plus a correction, group by group: first the groups with the
largest sum of their two best, then the best experts inside them. Weights are the scores without the correction, divided
by their sum, times a factor. Scores are enclosed one by one: they are bounded, so nothing is gained by differences.

Cost: tables of symbols by experts, and by pairs of experts for softmax.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof import decoder as d
from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import Bounds, Key, Normed, SymbolPart, interval_product, magnitude, scaled
from byheart.checkpoints.proof.config import RouterRule, Shape, Undecided
from byheart.checkpoints.proof.storage import Array, Interval, Storage, in_float32
from byheart.checkpoints.proof.units import sigmoid, sum_error

HARDLY = 2.0**-3  # of the largest effect of a symbol on a logit: a smaller one is folded
SMALLEST_SCORES = 2.0**-13  # engines add 1e-20 to the sum of the chosen scores, or make it 6.1e-5 at least


@dataclass(frozen=True)
class ExpertChoice:
    """Which experts a symbol chooses, with which weights: [lo, hi] is 0 for experts that are not chosen."""

    key: Key
    lo: Array  # (S, experts)
    hi: Array

    def weighted(self, expert: int, lo: Array, hi: Array, store: Storage) -> SymbolPart:
        """An expert's output in [lo, hi] (channels,) times its weight, by symbol, stored or not."""
        rows = interval_product((lo[None, :], hi[None, :]), (self.lo[:, [expert]], self.hi[:, [expert]]))
        return SymbolPart(self.key, np.arange(len(lo)), *store.maybe(*rows))

    def summed(self, parts: list[SymbolPart], size: int) -> tuple[Array, Array, list[SymbolPart]]:
        """The sum of all experts' weighted outputs, in float32."""
        lo, hi = sum(p.lo for p in parts), sum(p.hi for p in parts)
        slack = rounding.expert_sum(len(parts), np.add.reduce([magnitude(p.lo, p.hi) for p in parts]))
        return np.zeros(size), np.zeros(size), [SymbolPart(self.key, np.arange(size), lo - slack, hi + slack)]


def route(n: Normed, mlp: d.Mlp, shape: Shape, store: Storage) -> ExpertChoice | None:
    """Which experts every symbol chooses; None without a router."""
    if mlp.router is None:
        return None
    kept = n.kept is not None
    logits = n.whole.matmul(mlp.router, None if kept else store, share=HARDLY)
    spread = max((float(part.spread().max(initial=0.0)) for part in logits.parts), default=0.0)
    logits = logits.fold(HARDLY * spread)  # a row that reads next to nothing depends on next to nothing
    if len(logits.parts) != 1:
        raise Undecided(f"{mlp.router.name}: the choice of experts depends on {len(logits.parts)} symbols")
    key = logits.parts[0].key
    lo, hi = _table(logits, key)
    if shape.routing.scoring == "softmax":
        weights = _by_softmax(n, mlp.router, key, (lo, hi), shape.experts_used, store)
    else:
        weights = _by_sigmoid(mlp, (lo, hi), shape.routing, shape.experts_used, store)
    return ExpertChoice(key, *weights)


def _uncertain(router: d.Linear) -> Undecided:
    return Undecided(f"{router.name}: the choice of experts is not certain for every input")


def _by_softmax(n: Normed, router: d.Linear, key: Key, logits: Interval, used: int, store: Storage) -> Interval:
    lo, hi = logits
    apart_lo, apart_hi = _logit_differences(n, router, key, lo, hi, store)
    order = np.argsort(-(lo + hi), axis=1)
    inside, outside = order[:, :used], order[:, used:]
    rows = np.arange(len(lo))[:, None]
    for column in outside.T:
        if (apart_lo[rows, inside, column[:, None]] <= 0).any():
            raise _uncertain(router)
    low, high = np.zeros_like(lo), np.zeros_like(hi)
    for column in inside.T:
        own = column[:, None]
        rest = inside != own
        least = np.where(rest, np.exp(apart_lo[rows, inside, own]), 0.0).sum(1)
        most = np.where(rest, np.exp(apart_hi[rows, inside, own]), 0.0).sum(1)
        low[rows[:, 0], column], high[rows[:, 0], column] = store.maybe(*rounding.router_weights(least, most))
    return low, high


def _logit_differences(n: Normed, router: d.Linear, key: Key, lo: Array, hi: Array, store: Storage) -> Interval:
    """logit_i - logit_j for all experts and symbols: (S, experts, experts)."""
    weight, count = router.weight, len(router.weight)
    difference = (weight[:, None, :] - weight[None, :, :]).reshape(count * count, -1)
    bias = None if router.bias is None else (router.bias[:, None] - router.bias[None, :]).reshape(-1)
    field = n.whole.matmul(d.Linear(router.name, difference, bias), None, share=HARDLY)
    sums = sum_error(router, n.whole.largest()).most()
    # By symbol: the logits of experts that a symbol does not choose are larger, and so are their errors.
    error = np.broadcast_to(sums, lo.shape)
    if n.kept is None:
        error = rounding.router_logit(sums, magnitude(lo, hi), router.bias, store)
    wide = error[:, :, None] + error[:, None, :]
    low, high = (x.reshape(-1, count, count) for x in _table(field, key, len(lo)))
    low, high = low - wide, high + wide
    return np.maximum(low, lo[:, :, None] - hi[:, None, :]), np.minimum(high, hi[:, :, None] - lo[:, None, :])


def _by_sigmoid(mlp: d.Mlp, logits: Interval, rule: RouterRule, used: int, store: Storage) -> Interval:
    assert mlp.router is not None
    wide = rounding.sigmoid_error()
    lo, hi = store.maybe(*in_float32(sigmoid(logits[0]) * (1 - wide), sigmoid(logits[1]) * (1 + wide)))
    shift = np.zeros(lo.shape[1]) if mlp.correction is None else mlp.correction
    low, high = store.maybe(lo + shift, hi + shift)
    allowed = _best_groups(mlp.router, (low, high), rule, store)
    middle = np.where(allowed, low + high, -np.inf)
    chosen = np.zeros_like(allowed)
    np.put_along_axis(chosen, np.argsort(-middle, axis=1)[:, :used], True, axis=1)
    worst, rival = np.where(chosen, low, np.inf).min(1), np.where(allowed & ~chosen, high, -np.inf).max(1)
    if (chosen & ~allowed).any() or (worst <= rival).any():
        raise _uncertain(mlp.router)
    lo, hi = np.where(chosen, lo, 0.0), np.where(chosen, hi, 0.0)
    if not (lo.sum(1) > SMALLEST_SCORES).all():
        raise Undecided(f"{mlp.router.name}: scores may be so small that what engines add to their sum matters")
    with np.errstate(divide="ignore", invalid="ignore"):
        least = (lo.sum(1, keepdims=True) - lo) / hi
        most = (hi.sum(1, keepdims=True) - hi) / lo
    shares = store.maybe(*rounding.router_weights(least, most))
    slack = rounding.multiplier(rule.factor)
    found = store.maybe(*scaled(*shares, np.float64(rule.factor - slack), np.float64(rule.factor + slack)))
    return np.where(chosen, found[0], 0.0), np.where(chosen, found[1], 0.0)


def _best_groups(router: d.Linear, scores: Interval, rule: RouterRule, store: Storage) -> Array:
    """Which experts are in a group that wins, by symbol: (S, experts)."""
    low, high = scores
    if rule.groups_used == rule.groups:
        return np.ones(low.shape, dtype=bool)
    # The two best are at least as large as the two largest lower ends, and at most as large as the largest upper ends.
    apart = [np.sort(end.reshape(len(end), rule.groups, -1), axis=2)[:, :, -2:].sum(2) for end in (low, high)]
    least, most = store.maybe(*in_float32(*apart))
    order = np.argsort(-(least + most), axis=1)
    best, others = order[:, : rule.groups_used], order[:, rule.groups_used :]
    if (np.take_along_axis(least, best, 1).min(1) <= np.take_along_axis(most, others, 1).max(1)).any():
        raise _uncertain(router)
    wins = np.zeros(least.shape, dtype=bool)
    np.put_along_axis(wins, best, True, axis=1)
    return np.repeat(wins, low.shape[1] // rule.groups, axis=1)


def _table(field: Bounds, key: Key, symbols: int | None = None) -> Interval:
    """Values by the symbol of one key, all other parts replaced by their hull."""
    rows = symbols or next(len(p.lo) for p in field.parts if p.key == key)
    lo, hi = np.tile(field.lo, (rows, 1)), np.tile(field.hi, (rows, 1))
    for part in field.parts:
        lo[:, part.channels] += part.lo if part.key == key else part.lo.min(0)
        hi[:, part.channels] += part.hi if part.key == key else part.hi.max(0)
    return lo, hi
