"""Faults of routers with sigmoids, corrections and groups, and of an expert that serves every token."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.decoder import Layer, Mlp
from byheart.checkpoints.suite.machine import Tensor
from byheart.checkpoints.suite.mutants._base import Mutant, changed
from byheart.checkpoints.suite.mutants.reported._base import ALL, Watched, faults, stored

FAMILY = "mlp"


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    """All faults of these blocks; none for an architecture without them."""
    if decoder.shape.routing.scoring == "sigmoid":
        yield from _choices(decoder)
        yield from _shares(decoder)
    if decoder.shape.shared_units:
        yield from _shared(decoder)


def _choices(decoder: StockDecoder) -> Iterator[Mutant]:
    rule, used = decoder.shape.routing, decoder.shape.experts_used

    def corrected(m: Watched, scores: Tensor, mlp: Mlp) -> Tensor:
        return scores + m.tensor(mlp.correction, wide=True)

    def filled(number: float, count: int = rule.groups_used) -> Any:
        def choose(m: Watched, step: Any, scores: Tensor, mlp: Mlp) -> Tensor:
            groups = corrected(m, scores, mlp).reshape(len(scores), rule.groups, -1)
            best = m.group_scores(groups).topk(count, -1).indices
            wins = torch.zeros_like(groups[..., 0]).scatter(-1, best, 1.0).bool()
            return groups.masked_fill(~wins[..., None], number).reshape(scores.shape).topk(used, -1).indices

        return choose

    def by_scores(m: Watched, step: Any, scores: Tensor, mlp: Mlp) -> Tensor:
        """Groups are judged with the correction, experts inside them without."""
        groups = corrected(m, scores, mlp).reshape(len(scores), rule.groups, -1)
        best = m.group_scores(groups).topk(rule.groups_used, -1).indices
        wins = torch.zeros_like(groups[..., 0]).scatter(-1, best, 1.0).bool()
        plain = scores.reshape(groups.shape).masked_fill(~wins[..., None], -math.inf)
        return plain.reshape(scores.shape).topk(used, -1).indices

    def in_turn(m: Watched, step: Any, scores: Tensor, mlp: Mlp) -> Tensor:
        """Expert e belongs to group e modulo the number of groups."""
        order = torch.arange(scores.shape[-1]).reshape(-1, rule.groups).T.reshape(-1)
        turned = replace(mlp, correction=mlp.correction[order.numpy()])
        return order[step(scores[..., order], turned)]

    for name, change in {
        "correction not in the choice": lambda m, step, s, mlp: step(s, replace(mlp, correction=None)),
        "correction subtracted": lambda m, step, s, mlp: step(s, replace(mlp, correction=-mlp.correction)),
        "correction of the next expert": lambda m, step, s, mlp: step(
            s, replace(mlp, correction=torch.from_numpy(mlp.correction).roll(1).numpy())
        ),
        "correction for groups alone": by_scores,
        "groups ignored": lambda m, step, s, mlp: corrected(m, s, mlp).topk(used, -1).indices,
        "one group": filled(-math.inf, 1),
        "three groups": filled(-math.inf, rule.groups_used + 1),
        "experts of groups that lose score 0": filled(0.0),
        "groups in turn, not in a row": in_turn,
        "one expert fewer": lambda m, step, s, mlp: step(s, mlp)[..., :-1],
        "the least likely experts": lambda m, step, s, mlp: step(-s, mlp),
    }.items():
        yield from faults(decoder, f"choice of experts: {name}", FAMILY, ALL, choose=change)
    for name, change in {
        "their best expert": lambda m, step, groups: groups.amax(-1),
        "the sum of all experts": lambda m, step, groups: groups.sum(-1),
        "the mean of three": lambda m, step, groups: groups.topk(3, -1).values.mean(-1),
    }.items():
        yield from faults(decoder, f"groups judged by {name}", FAMILY, ALL, group_scores=change)


def _shares(decoder: StockDecoder) -> Iterator[Mutant]:
    factor = decoder.shape.routing.factor

    def with_scores(change: Any) -> Any:
        def route(m: Watched, step: Any, logits: Tensor, mlp: Mlp) -> Any:
            chosen, shares = step(logits, mlp)
            return chosen, change(m, logits, mlp, chosen, shares)

        return route

    def corrected(m: Watched, logits: Tensor, mlp: Mlp, chosen: Tensor, shares: Tensor) -> Tensor:
        scores = (torch.sigmoid(logits) + m.tensor(mlp.correction)).gather(-1, chosen)
        return factor * scores / scores.sum(-1, keepdim=True)

    def softmax_choice(m: Watched, step: Any, logits: Tensor, mlp: Mlp) -> Any:
        scores = torch.softmax(logits.to(m.wide), -1)
        chosen = m.choose(scores, mlp)
        shares = scores.gather(-1, chosen)
        return chosen, (factor * shares / shares.sum(-1, keepdim=True)).to(logits.dtype)

    for name, change in {
        "of corrected scores": corrected,
        "not divided by their sum": lambda m, lo, mlp, c, s: factor * torch.sigmoid(lo).gather(-1, c),
        "divided by the sum of all": lambda m, lo, mlp, c, s: (
            factor * torch.sigmoid(lo).gather(-1, c) / torch.sigmoid(lo).sum(-1, keepdim=True)
        ),
        "without the factor": lambda m, lo, mlp, c, s: s / factor,
        "with the factor twice": lambda m, lo, mlp, c, s: s * factor,
        "with a factor of 1 % more": lambda m, lo, mlp, c, s: 1.01 * s,
        "of the neighbour": lambda m, lo, mlp, c, s: s.roll(1, -1),
        "sorted": lambda m, lo, mlp, c, s: s.sort(-1).values,
        "all equal": lambda m, lo, mlp, c, s: s.mean(-1, keepdim=True).expand_as(s),
        "by softmax of the chosen": lambda m, lo, mlp, c, s: factor * torch.softmax(lo.gather(-1, c), -1),
        "squared": lambda m, lo, mlp, c, s: s**2,
    }.items():
        yield from faults(decoder, f"weights of experts: {name}", FAMILY, ALL, route=with_scores(change))
    yield from faults(decoder, "softmax instead of sigmoid, choice and weights", FAMILY, ALL, route=softmax_choice)
    yield from faults(
        decoder, "the router in bfloat16", "precision", harmless=True,
        route=lambda m, step, logits, mlp: step(logits.bfloat16().to(logits.dtype), mlp),
    )  # fmt: skip


def _shared(decoder: StockDecoder) -> Iterator[Mutant]:
    factor, used = decoder.shape.routing.factor, decoder.shape.experts_used
    for name, change in {
        "missing": lambda m, step, x, expert: torch.zeros_like(x),
        "twice": lambda m, step, x, expert: 2 * step(x, expert),
        "times the factor": lambda m, step, x, expert: factor * step(x, expert),
        "over the number of experts": lambda m, step, x, expert: step(x, expert) / (used + 1),
        "by a sigmoid gate of 0": lambda m, step, x, expert: step(x, expert) / 2,
    }.items():
        yield from faults(decoder, f"the shared expert {name}", FAMILY, ALL, shared=change)
    yield from faults(decoder, "the shared expert is the first routed one", FAMILY, ALL, mlp=_first_again)
    yield from stored(decoder, "two experts exchanged", FAMILY, lambda layer: _turned(layer, 1))
    yield from stored(decoder, "experts in groups exchanged", FAMILY, lambda layer: _turned(layer, 4))
    first = next((layer.mlp for layer in decoder.layers if layer.mlp.shared is not None), None)
    if decoder.shape.dense_layers and first is not None:
        layers = tuple(replace(layer, mlp=first) for layer in decoder.layers)
        yield Mutant("every layer has the experts of the first with any", FAMILY, changed(decoder, layers=layers))


def _first_again(m: Watched, step: Any, x: Tensor, mlp: Mlp) -> Tensor:
    return step(x, replace(mlp, shared=mlp.experts[0]) if mlp.shared is not None else mlp)


def _turned(layer: Layer, by: int) -> Layer:
    experts = layer.mlp.experts
    if len(experts) <= by:
        return layer
    return replace(layer, mlp=replace(layer.mlp, experts=(*experts[by : 2 * by], *experts[:by], *experts[2 * by :])))
