"""Faults of attention sinks, of clamped gates, and of yarn's further settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from byheart.checkpoints.formats.stock import StockDecoder, frequencies
from byheart.checkpoints.proof.decoder import Expert, Layer
from byheart.checkpoints.proof.ropes import RopeScaling
from byheart.checkpoints.suite.machine import HIDDEN, Tensor
from byheart.checkpoints.suite.mutants._base import Mutant
from byheart.checkpoints.suite.mutants.reported._base import ALL, EVERYWHERE, LAST, Watched, faults, stored

ATTENTION, MLP, POSITIONS = "attention", "mlp", "positions"


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    """All faults of these blocks; none for an architecture without them."""
    if decoder.layers[0].attention.sinks is not None:
        yield from _sinks(decoder)
    if decoder.shape.clamp is not None:
        yield from _clamps(decoder, decoder.shape.clamp)
    yield from _yarn(decoder)


def _sinks(decoder: StockDecoder) -> Iterator[Mutant]:
    d, groups = decoder.shape.head_dim, decoder.shape.kv_heads
    per = decoder.shape.heads // groups

    def of(change: Any) -> Any:
        return lambda m, step, scores, seen, sinks: step(scores, seen, change(sinks))

    def ignored(m: Watched, step: Any, scores: Tensor, seen: Tensor, sinks: Tensor) -> Any:
        return step(scores, seen, torch.full_like(sinks, HIDDEN))

    def in_kind(slides: bool) -> Any:
        def change(m: Watched, step: Any, scores: Tensor, seen: Tensor, sinks: Tensor) -> Any:
            own = (m.shape.at(m.depth).window is not None) == slides
            return ignored(m, step, scores, seen, sinks) if own else step(scores, seen, sinks)

        return change

    def first_too(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        weights = step(scores, seen)
        first = weights[..., :1] + weights[..., -1:]
        return torch.cat([first, weights[..., 1:]], -1)

    def spread(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        weights = step(scores, seen)
        return weights / weights[..., :-1].sum(-1, keepdim=True).clamp(min=1e-30)

    def unscaled_scores(m: Watched, step: Any, scores: Tensor, seen: Tensor, sinks: Tensor) -> Any:
        scores, seen = step(scores, seen, sinks)
        return torch.cat([scores[..., :-1], scores[..., -1:].clamp(min=-10.0)], -1), seen

    for name, change in {
        "sinks ignored": ignored,
        "sinks times the scale": of(lambda s: s * d**-0.5),
        "sinks over the scale": of(lambda s: s * d**0.5),
        "sinks as zero": of(torch.zeros_like),
        "sinks negated": of(torch.neg),
        "sinks 5 % too large": of(lambda s: 1.05 * s),
        "sinks of the neighbouring head": of(lambda s: s.roll(1, 0)),
        "sinks of the head before in the group": of(lambda s: s.reshape(groups, per).roll(1, 1).reshape(-1)),
        "one sink for every group": of(lambda s: s.reshape(groups, per)[:, :1].expand(-1, per).reshape(-1)),
        "sinks interleaved by group": of(lambda s: s.reshape(groups, per).T.reshape(-1)),
        "sinks exponentiated before": of(lambda s: s.exp().clamp(max=1e4)),
        "sinks of the first layer": lambda m, step, scores, seen, sinks: step(
            scores, seen, m.tensor(decoder.layers[0].attention.sinks)
        ),
        "sinks cut at -10": unscaled_scores,
    }.items():
        yield from faults(decoder, name, ATTENTION, ALL, with_sink=change)
    yield from faults(decoder, "a sink's weight goes to the first token", ATTENTION, ALL, weights=first_too)
    yield from faults(decoder, "weights divided again without the sink", ATTENTION, ALL, weights=spread)
    for slides, kind in ((True, "sliding"), (False, "full")):
        yield from faults(decoder, f"sinks ignored in {kind} layers", ATTENTION, with_sink=in_kind(slides))
    yield from faults(
        decoder, "sinks in bfloat16", ATTENTION, harmless=True, with_sink=of(lambda s: s.bfloat16().to(s.dtype))
    )


def _clamps(decoder: StockDecoder, limit: float) -> Iterator[Mutant]:
    for name, change in {
        "gates not clamped": lambda g, u: (g, u.clamp(-limit, limit) + 1),
        "up not clamped": lambda g, u: (g.clamp(max=limit), u + 1),
        "nothing clamped": lambda g, u: (g, u + 1),
        "gates clamped on both sides at 1": lambda g, u: (g.clamp(-1.0, limit), u.clamp(-limit, limit) + 1),
        "up clamped from above alone": lambda g, u: (g.clamp(max=limit), u.clamp(max=limit) + 1),
        "up clamped from below alone": lambda g, u: (g.clamp(max=limit), u.clamp(min=-limit) + 1),
        "1 added before up is clamped": lambda g, u: (g.clamp(max=limit), (u + 1).clamp(-limit, limit)),
        "1 not added to up": lambda g, u: (g.clamp(max=limit), u.clamp(-limit, limit)),
        "1 added to gates": lambda g, u: (g.clamp(max=limit) + 1, u.clamp(-limit, limit)),
        "1 subtracted from up": lambda g, u: (g.clamp(max=limit), u.clamp(-limit, limit) - 1),
        "clamped at 6": lambda g, u: (g.clamp(max=6.0), u.clamp(-6.0, 6.0) + 1),
        "clamped at 10": lambda g, u: (g.clamp(max=10.0), u.clamp(-10.0, 10.0) + 1),
        "gate and up exchanged before the clamp": lambda g, u: (u.clamp(max=limit), g.clamp(-limit, limit) + 1),
    }.items():
        yield from faults(
            decoder, name, MLP, ALL, clamped=lambda m, step, gate, up, most, change=change: change(gate, up)
        )
    yield from faults(
        decoder, "gates clamped below at -7, too", MLP, harmless=True,
        clamped=lambda m, step, gate, up, most: step(gate.clamp(min=-limit), up, most),
    )  # fmt: skip
    for slope in (1.0, 1.5, 1.8):
        yield from faults(
            decoder, f"sigmoid({slope} x) in the gate", MLP, ALL,
            activate=lambda m, step, x, kind, slope=slope: x * torch.sigmoid(slope * x),
        )  # fmt: skip
    yield from stored(decoder, "gate and up read as halves, not in turn", MLP, _in_halves)
    for part in ("gate", "up", "down"):
        yield from stored(decoder, f"biases of {part} belong to the next expert", MLP, _next_bias(part))


def _in_halves(layer: Layer) -> Layer:
    """Rows alternate, g0 u0 g1 u1 ...; read as halves, the first rows are gates."""

    def halves(expert: Expert) -> Expert:
        assert expert.up is not None
        gate, up, count = expert.gate, expert.up, len(expert.gate.weight)

        def mixed(a: Any, b: Any) -> tuple[Any, Any]:
            both = torch.stack([torch.from_numpy(a), torch.from_numpy(b)], 1).flatten(0, 1).numpy()
            return both[:count], both[count:]

        weights, biases = mixed(gate.weight, up.weight), mixed(gate.bias, up.bias)
        return replace(
            expert, gate=replace(gate, weight=weights[0], bias=biases[0]),
            up=replace(up, weight=weights[1], bias=biases[1]),
        )  # fmt: skip

    return replace(layer, mlp=replace(layer.mlp, experts=tuple(map(halves, layer.mlp.experts))))


def _next_bias(part: str) -> Any:
    def change(layer: Layer) -> Layer:
        own = layer.mlp.experts
        others = (*own[1:], own[0])
        found = tuple(
            replace(expert, **{part: replace(getattr(expert, part), bias=getattr(other, part).bias)})
            for expert, other in zip(own, others, strict=True)
        )
        return replace(layer, mlp=replace(layer.mlp, experts=found))

    return change


def _yarn(decoder: StockDecoder) -> Iterator[Mutant]:
    rotary = decoder.shape.rotary
    if rotary is None or rotary.scaling is None or rotary.scaling.kind != "yarn":
        return
    scaling = rotary.scaling
    others: dict[str, RopeScaling] = {
        "yarn's ramp between 16 turns and 2": replace(scaling, turns=(16.0, 2.0)),
        "yarn's ramp ends at whole numbers": replace(scaling, truncated=True),
        "yarn's ramp does not end at whole numbers": replace(scaling, truncated=False),
        "yarn's original positions are the reach": replace(scaling, original=int(scaling.original * scaling.factor)),
        "yarn's factor is a quarter": replace(scaling, factor=max(scaling.factor / 4, 1.0)),
    }
    for name, other in others.items():
        wrong = frequencies(replace(rotary, scaling=other))
        if other != scaling and (wrong != frequencies(rotary)).any():
            yield from faults(
                decoder, name, POSITIONS, (EVERYWHERE, LAST),
                frequencies=lambda m, step, r, wrong=wrong: torch.from_numpy(wrong).to(m.wide),
            )  # fmt: skip
