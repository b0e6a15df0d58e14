"""Forty-two more faults, kept apart from the table: an estimate for faults that are not on any list.

They were written down before the listeners (`hosts/listening.py`) were designed, though their results were
seen while listeners were tuned, so the estimate is optimistic. A fault that moves from `survived` to detected by a
change for its sake must move to the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from byheart.checkpoints.formats.stock import StockDecoder, frequencies
from byheart.checkpoints.proof.decoder import Layer, Mlp, Norm, StockAttention
from byheart.checkpoints.suite.machine import Cache, Tensor
from byheart.checkpoints.suite.mutants._base import Mutant, changed, each_layer, wrapped
from byheart.checkpoints.suite.mutants.layers import norms_of

FAMILY = "held out"


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    """Those of the list that exist for this decoder."""

    def mutant(name: str, **steps: Callable[..., Any]) -> Mutant:
        return Mutant(name, FAMILY, wrapped(decoder, **steps))

    if decoder.shape.rotary is not None:
        yield from _rotary(mutant, decoder)
    yield from _attention(mutant, decoder)
    yield from _caches(mutant)
    yield from _norms(mutant, decoder)
    yield from _branches(mutant, decoder)


def _rotary(mutant: Callable[..., Mutant], decoder: StockDecoder) -> Iterator[Mutant]:
    rotary = decoder.shape.rotary
    assert rotary is not None
    dims = rotary.dims
    stretched = 2 ** (dims / (dims - 2))
    half = torch.arange(dims // 2)
    bases = (("base 0.95 times", 0.95), ("base 1.2 times", 1.2), ("NTK-aware base for twice the length", stretched))
    for name, factor in bases:
        other = replace(rotary, theta=factor * rotary.theta)
        yield mutant(name, frequencies=lambda step, r, other=other: torch.from_numpy(frequencies(other)))
    yield mutant("queries rotated one place on", rotate=_ahead)
    yield mutant("YaRN's factor 1.0693 on cos and sin", turns=lambda step, *a: tuple(1.0693 * x for x in step(*a)))
    yield mutant("last frequency not rotated", frequencies=lambda step, r: step(r) * (half < dims // 2 - 1))
    yield mutant("two middle frequencies exchanged", frequencies=lambda step, r: step(r)[_exchanged(dims // 2)])
    yield mutant("rotary table of 256 rows, wrapped", positions=lambda step, real, start: step(real, start) % 256)
    yield mutant(
        "rotary table of 256 rows, clamped", positions=lambda step, real, start: step(real, start).clamp(max=255)
    )
    yield mutant("positions restart in every chunk of 64", positions=_restart)


def _ahead(step: Callable[..., Tensor], x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
    if which != "q" or cos.shape[0] == 1:
        return step(x, cos, sin, which)
    return step(x, torch.cat([cos[1:], cos[-1:]]), torch.cat([sin[1:], sin[-1:]]), which)


def _exchanged(count: int) -> list[int]:
    order = list(range(count))
    order[count // 2], order[count // 2 + 1] = order[count // 2 + 1], order[count // 2]
    return order


def _restart(step: Callable[..., Tensor], real: Tensor, start: int) -> Tensor:
    return step(real, start) % 64


def _attention(mutant: Callable[..., Mutant], decoder: StockDecoder) -> Iterator[Mutant]:
    d, last = decoder.shape.head_dim, len(decoder.layers) - 1
    root = (d / (d + 16)) ** 0.5
    yield mutant("scale of the hidden size per head plus 16", scale=lambda step, a: root * step(a))
    yield mutant("scale divided by the layer's number", attention=_scaled_by_layer)
    yield mutant(
        "scale 1.2 times in the last layer",
        attention=lambda step, x, a, depth, *rest: step(
            x, _louder_queries(a, 1.2) if depth == last else a, depth, *rest
        ),
    )
    yield mutant("ALiBi slopes added", weights=_alibi)
    yield mutant(
        "sink of score -2",
        weights=lambda step, s, seen: step(
            torch.cat([s, torch.full_like(s[..., :1], -2.0)], -1), torch.cat([seen, torch.ones_like(seen[..., :1])], -1)
        )[..., :-1],
    )
    yield mutant("scores capped at 30 (softcap)", weights=lambda step, s, seen: step(30 * torch.tanh(s / 30), seen))
    yield mutant("weights add up to 0.99", weights=lambda step, s, seen: 0.99 * step(s, seen))
    yield mutant("only the 32 largest weights kept", weights=_largest)
    yield mutant(
        "weights below 1/64 set to 0", weights=lambda step, s, seen: (lambda w: w * (w > 1 / 64))(step(s, seen))
    )
    yield mutant(
        "local window of 96 in the last layer",
        window=lambda step, depth: min(96, step(depth) or 96) if depth == last else step(depth),
    )
    yield mutant("first token hidden in the last layer", attention=_hide_first(last))
    yield mutant(
        "values rounded to 4 bits", remember=lambda step, k, v, depth, cache: step(k, _four_bits(v), depth, cache)
    )
    yield mutant(
        "heads exchanged in the last layer only",
        attention=lambda step, x, a, depth, *rest: step(
            x, replace(a, o=replace(a.o, weight=_rolled(a.o.weight, d))) if depth == last else a, depth, *rest
        ),
    )


def _louder_queries(a: StockAttention, factor: float) -> StockAttention:
    """Queries times a factor, after their norm where they have one."""
    if a.q_norm is not None:
        return replace(a, q_norm=replace(a.q_norm, weight=factor * a.q_norm.weight))
    bias = None if a.q.bias is None else factor * a.q.bias
    return replace(a, q=replace(a.q, weight=factor * a.q.weight, bias=bias))


def _rolled(weight: Any, by: int) -> Any:
    return np.roll(weight, by, 1).copy()


def _scaled_by_layer(step: Callable[..., Tensor], x: Tensor, a: Any, depth: int, *rest: Any) -> Tensor:
    return step(x, _louder_queries(a, 1 / (depth + 1)), depth, *rest)


def _alibi(step: Callable[..., Tensor], scores: Tensor, seen: Tensor) -> Tensor:
    heads, t, s = scores.shape
    slopes = torch.tensor([2.0 ** (-8 * (h + 1) / heads) for h in range(heads)])[:, None, None]
    distance = torch.arange(s - t, s)[:, None] - torch.arange(s)[None]
    return step(scores - slopes * distance, seen)


def _largest(step: Callable[..., Tensor], scores: Tensor, seen: Tensor) -> Tensor:
    weights = step(scores, seen)
    if weights.shape[-1] <= 32:
        return weights
    least = weights.topk(32, -1).values[..., -1:]
    kept = weights * (weights >= least)
    return kept / kept.sum(-1, keepdim=True)


def _hide_first(last: int) -> Callable[..., Tensor]:
    def attention(
        step: Callable[..., Tensor], x: Tensor, a: Any, depth: int, positions: Tensor, cache: Cache
    ) -> Tensor:
        if depth != last or not bool(cache.real[0]) or len(cache) < 2:
            return step(x, a, depth, positions, cache)
        cache.real[0] = False
        try:
            return step(x, a, depth, positions, cache)
        finally:
            cache.real[0] = True

    return attention


def _four_bits(x: Tensor) -> Tensor:
    size = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 5  # 5 steps: a whole is not a step of a half
    return (x / size).round() * size


def _caches(mutant: Callable[..., Mutant]) -> Iterator[Mutant]:
    def late(change: Callable[[Tensor], Tensor], least: int) -> Callable[..., tuple[Tensor, Tensor]]:
        def remember(step: Callable[..., Any], k: Tensor, v: Tensor, depth: int, cache: Cache) -> tuple[Tensor, Tensor]:
            keys, values = step(k, v, depth, cache)
            decoding = least < keys.shape[1] > k.shape[1]
            return (change(keys), change(values)) if decoding else (keys, values)

        return remember

    yield mutant(
        "cache: the four oldest entries are the fifth",
        remember=late(lambda x: torch.cat([x[:, 4:5].expand(-1, 4, -1), x[:, 4:]], 1), 5),
    )
    yield mutant(
        "cache: entries 5 and 6 back exchanged with zeros",
        remember=late(lambda x: torch.cat([x[:, :-7], 0 * x[:, -7:-5], x[:, -5:]], 1), 8),
    )
    yield mutant(
        "cache: entry 5 back is a copy of entry 6 back",
        remember=late(lambda x: torch.cat([x[:, :-6], x[:, -7:-6], x[:, -5:]], 1), 8),
    )
    yield mutant(
        "cache: last layer's values one decode step old",
        remember=lambda step, k, v, depth, cache: (
            lambda kv: (
                kv
                if depth == 0 or kv[0].shape[1] == k.shape[1]
                else (kv[0], torch.cat([kv[1][:, :-1], kv[1][:, -2:-1]], 1))
            )
        )(step(k, v, depth, cache)),
    )


def _norms(mutant: Callable[..., Mutant], decoder: StockDecoder) -> Iterator[Mutant]:
    last, hidden = len(decoder.layers) - 1, decoder.shape.hidden
    yield mutant(
        "norm over the first half of the channels",
        size=lambda step, wide, norm, at: (
            step(wide, norm, at)
            if at in "qk"
            else (wide[..., : hidden // 2].pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()
        ),
    )
    yield mutant(
        "eps ten times too large in the final norm",
        size=lambda step, wide, norm, at: step(wide, replace(norm, eps=10 * norm.eps) if at == "final" else norm, at),
    )
    yield Mutant(
        "norm weights at most 1",
        FAMILY,
        changed(
            decoder,
            layers=tuple(
                _with_norms(layer, _clipped, [name for name, _ in norms_of(layer)]) for layer in decoder.layers
            ),
        ),
    )
    yield Mutant(
        "weight of the last attention norm 1.1 times",
        FAMILY,
        each_layer(decoder, _louder_norm, only=last),
    )
    yield mutant(
        "final norm applied twice",
        norm=lambda step, x, norm, at: step(step(x, norm, at), norm, at) if at == "final" else step(x, norm, at),
    )
    yield mutant(
        "mean of the channels added again",
        norm=lambda step, x, norm, at: (
            step(x, norm, at) if at in "qk" else step(x, norm, at) + 0.5 * x.mean(-1, keepdim=True)
        ),
    )


def _louder_norm(layer: Layer) -> Layer:
    return _with_norms(layer, _louder, [norms_of(layer)[0][0]])


def _with_norms(layer: Layer, change: Callable[[Norm], Norm], names: list[str]) -> Layer:
    changes: dict[str, Any] = {name: change(getattr(layer, name)) for name in names}
    return replace(layer, **changes)


def _clipped(norm: Norm) -> Norm:
    return replace(norm, weight=np.clip(norm.weight, -1.0, 1.0))


def _louder(norm: Norm) -> Norm:
    return replace(norm, weight=1.1 * norm.weight, bias=None if norm.bias is None else 1.1 * norm.bias)


def _branches(mutant: Callable[..., Mutant], decoder: StockDecoder) -> Iterator[Mutant]:
    last, vocabulary = len(decoder.layers) - 1, len(decoder.embedding)
    yield mutant("activation of 1.02 x", activate=lambda step, x, kind: step(1.02 * x, kind))
    yield mutant("activation times 1.01", activate=lambda step, x, kind: 1.01 * step(x, kind))
    yield mutant("pre-activation limited to [-7, 7]", activate=lambda step, x, kind: step(x.clamp(-7, 7), kind))
    yield Mutant("down projection of the last layer 1.05 times", FAMILY, each_layer(decoder, _louder_down, only=last))
    yield Mutant("two units of layer 0 write each other's word", FAMILY, each_layer(decoder, _exchanged_units, only=0))
    yield mutant(
        "attention branch 1.02 times", add=lambda step, h, b, at: step(h, 1.02 * b if at == "attention" else b, at)
    )
    yield mutant("residual 0.99 times", add=lambda step, h, b, at: step(0.99 * h, b, at))
    table = decoder.embedding.copy()
    table[:vocabulary] = np.roll(table, 7, 0)
    yield Mutant("embedding rows seven places on", FAMILY, changed(decoder, embedding=table))
    yield mutant(
        "a bias of 0.05 on every third logit", head=lambda step, x: step(x) + 0.05 * (torch.arange(vocabulary) % 3 == 0)
    )


def _louder_down(layer: Layer) -> Layer:
    return replace(layer, mlp=_each_down(layer.mlp, lambda weight: 1.05 * weight))


def _exchanged_units(layer: Layer) -> Layer:
    def exchange(weight: Any) -> Any:
        found = weight.copy()
        found[:, [2, 3]] = weight[:, [3, 2]]
        return found

    return replace(layer, mlp=_each_down(layer.mlp, exchange))


def _each_down(mlp: Mlp, change: Callable[[Any], Any]) -> Mlp:
    return replace(
        mlp, experts=tuple(replace(e, down=replace(e.down, weight=change(e.down.weight))) for e in mlp.experts)
    )
