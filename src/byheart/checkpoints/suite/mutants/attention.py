"""Faults of attention: scale, softmax, heads and groups, masks, sliding windows, padding, the key-value cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.config import Shape
from byheart.checkpoints.proof.decoder import Layer
from byheart.checkpoints.suite.machine import Cache, Tensor
from byheart.checkpoints.suite.mutants._base import Mutant, each_layer, wrapped

FAMILY = "attention"


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    def mutant(name: str, *, harmless: bool = False, **steps: Callable[..., Any]) -> Mutant:
        return Mutant(name, FAMILY, wrapped(decoder, **steps), harmless)

    yield from _scales(mutant, decoder.shape)
    yield from _heads(mutant, decoder)
    yield from _masks(mutant, decoder.shape)
    yield from _cache(mutant, decoder.shape)
    yield from _quantized(mutant)


def _scales(mutant: Callable[..., Mutant], shape: Shape) -> Iterator[Mutant]:
    root = shape.head_dim**0.5
    for name, factor in (
        ("missing (times sqrt d)", root),
        ("twice (over sqrt d)", 1 / root),
        ("times 2", 2.0),
        ("times 1.5", 1.5),
        ("times 1.1", 1.1),
        ("over 1.1", 1 / 1.1),
        ("over 2", 0.5),
        ("1 / d instead of 1 / sqrt d", 1 / root),
        ("of a head twice as wide", 0.5**0.5),
        ("of the number of heads", (shape.head_dim / shape.heads) ** 0.5),
    ):
        yield mutant(f"scale {name}", scale=lambda step, attention, factor=factor: factor * step(attention))
    yield mutant("scores capped at 50 (softcap)", weights=lambda step, s, seen: step(50 * torch.tanh(s / 50), seen))
    yield mutant("scores capped at 20 (softcap)", weights=lambda step, s, seen: step(20 * torch.tanh(s / 20), seen))
    yield mutant("softmax to the base 2", weights=lambda step, s, seen: step(s * 0.6931472, seen))
    yield mutant("softmax with an extra 0 (sink)", weights=_sink)
    yield mutant("no softmax: linear weights", weights=lambda step, s, seen: (s * seen) / seen.sum(-1, keepdim=True))
    yield mutant("sigmoid instead of softmax", weights=lambda step, s, seen: torch.sigmoid(s) * seen)
    yield mutant("weights uniform", weights=lambda step, s, seen: step(0 * s, seen))
    yield mutant("weights not normalised after masking", weights=lambda step, s, seen: torch.softmax(s, -1) * seen)
    yield mutant(
        "scores in bfloat16", harmless=True, weights=lambda step, s, seen: step(s.bfloat16().to(s.dtype), seen)
    )
    yield mutant(
        "weights in bfloat16", harmless=True, weights=lambda step, s, seen: step(s, seen).bfloat16().to(s.dtype)
    )


def _sink(step: Callable[..., Tensor], scores: Tensor, seen: Tensor) -> Tensor:
    """One more entry of score 0 that is thrown away, as with attention sinks or `softmax1`."""
    zero = torch.zeros_like(scores[..., :1])
    wide = step(torch.cat([scores, zero], -1), torch.cat([seen, torch.ones_like(seen[..., :1])], -1))
    return wide[..., :-1]


def _heads(mutant: Callable[..., Mutant], decoder: StockDecoder) -> Iterator[Mutant]:
    heads, groups, d = decoder.shape.heads, decoder.shape.kv_heads, decoder.shape.head_dim
    yield mutant("heads reversed on output", join=lambda step, x: step(x.flip(0)))
    yield mutant("heads shifted by one on output", join=lambda step, x: step(x.roll(1, 0)))
    yield mutant("neighbouring heads exchanged", join=lambda step, x: step(x[_swapped(x.shape[0])]))
    yield mutant("heads interleaved on output", join=lambda step, x: x.permute(1, 2, 0).reshape(x.shape[1], -1))
    yield mutant("one head lost", join=lambda step, x: step(torch.cat([x[:1] * 0, x[1:]])))
    yield mutant("last head lost", join=lambda step, x: step(torch.cat([x[:-1], x[-1:] * 0])))
    yield mutant(
        "queries split as (d, heads)",
        heads=lambda step, x, count: x.reshape(len(x), d, count).permute(2, 0, 1) if count == heads else step(x, count),
    )
    if groups < heads:
        yield mutant(
            "key-value heads tiled, not repeated", share=lambda step, x, attention: x.repeat(heads // groups, 1, 1)
        )
        yield mutant("all queries use key-value head 0", share=lambda step, x, attention: x[:1].expand(heads, -1, -1))
        yield mutant("key-value heads reversed", share=lambda step, x, attention: step(x.flip(0), attention))
        yield mutant(
            "key-value heads averaged", share=lambda step, x, attention: x.mean(0, keepdim=True).expand(heads, -1, -1)
        )

    def swap(layer: Layer) -> Layer:
        a = layer.attention
        return replace(layer, attention=replace(a, k=a.v, v=a.k))

    def queries_as_keys(layer: Layer) -> Layer:
        a = layer.attention
        return replace(layer, attention=replace(a, q=replace(a.q, weight=a.k.weight, bias=a.k.bias)))

    yield Mutant("keys and values exchanged", FAMILY, each_layer(decoder, swap))
    if heads == groups:
        yield Mutant("queries from the keys' matrix", FAMILY, each_layer(decoder, queries_as_keys))
        yield Mutant(
            "queries and keys exchanged",
            FAMILY,
            each_layer(
                decoder,
                lambda layer: replace(
                    layer, attention=replace(layer.attention, q=layer.attention.k, k=layer.attention.q)
                ),
            ),
        )
    if decoder.layers[0].attention.q_norm is not None:
        yield mutant(
            "q and k norms missing", norm=lambda step, x, norm, where: x if where in "qk" else step(x, norm, where)
        )
        yield mutant("q norm missing", norm=lambda step, x, norm, where: x if where == "q" else step(x, norm, where))
        yield mutant("k norm missing", norm=lambda step, x, norm, where: x if where == "k" else step(x, norm, where))
        for part in ("q_norm", "k_norm"):
            yield Mutant(
                f"{part} weight missing",
                FAMILY,
                each_layer(
                    decoder,
                    lambda layer, part=part: replace(
                        layer,
                        attention=replace(
                            layer.attention,
                            **{
                                part: replace(
                                    getattr(layer.attention, part), weight=getattr(layer.attention, part).weight * 0 + 1
                                )
                            },
                        ),
                    ),
                ),
            )
        yield Mutant(
            "q and k norms exchanged",
            FAMILY,
            each_layer(
                decoder,
                lambda layer: replace(
                    layer,
                    attention=replace(layer.attention, q_norm=layer.attention.k_norm, k_norm=layer.attention.q_norm),
                ),
            ),
        )
        yield mutant("q and k norms over all heads", norm=_over_heads)
        yield mutant("q and k norms after the rotation", norm=_skip_heads, rotate=_norm_after(decoder))
    for depth in range(len(decoder.layers)):
        yield (
            Mutant(
                f"o bias added {'to none' if _bias(decoder, depth) is None else 'twice'} in layer {depth}",
                FAMILY,
                each_layer(decoder, _doubled_bias, only=depth),
            )
            if _bias(decoder, depth) is not None
            else Mutant(
                f"attention of layer {depth} forgets its output matrix's last column",
                FAMILY,
                each_layer(decoder, _lost_column, only=depth),
            )
        )


def _bias(decoder: StockDecoder, depth: int) -> Any:
    return decoder.layers[depth].attention.o.bias


def _doubled_bias(layer: Layer) -> Layer:
    o = layer.attention.o
    bias = None if o.bias is None else 2 * o.bias
    return replace(layer, attention=replace(layer.attention, o=replace(o, bias=bias)))


def _lost_column(layer: Layer) -> Layer:
    weight = layer.attention.o.weight.copy()
    sizes = abs(weight).max(0)
    used = sizes > (1e-3 if (sizes > 1e-3).any() else 1e-4)  # heads that only listen write little
    weight[:, used.nonzero()[0][-1]] = 0
    return replace(layer, attention=replace(layer.attention, o=replace(layer.attention.o, weight=weight)))


def _over_heads(step: Callable[..., Tensor], x: Tensor, norm: Any, where: str) -> Tensor:
    if where not in ("q", "k"):
        return step(x, norm, where)
    size = (x.pow(2).mean((0, 2), keepdim=True) + norm.eps).sqrt()
    return x / size * torch.from_numpy(norm.weight.copy())


def _skip_heads(step: Callable[..., Tensor], x: Tensor, norm: Any, where: str) -> Tensor:
    return x if where in ("q", "k") else step(x, norm, where)


def _norm_after(decoder: StockDecoder) -> Callable[..., Tensor]:
    attention = decoder.layers[0].attention

    def rotate(step: Callable[..., Tensor], x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        turned = step(x, cos, sin, which)
        norm = attention.q_norm if which == "q" else attention.k_norm
        assert norm is not None
        return turned / (turned.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * torch.from_numpy(norm.weight.copy())

    return rotate


def _swapped(count: int) -> list[int]:
    return [i ^ 1 if (i ^ 1) < count else i for i in range(count)]


def _masks(mutant: Callable[..., Mutant], shape: Shape) -> Iterator[Mutant]:
    def ahead(by: int) -> Callable[..., Tensor]:
        return lambda step, rows, columns, real, window: step(
            rows + by, columns, real, None if window is None else window + by
        )

    yield mutant("no causal mask", visible=ahead(10**6))
    yield mutant("mask one too far", visible=ahead(1))
    yield mutant(
        "mask hides the token itself",
        visible=lambda step, rows, columns, real, window: (
            step(rows, columns, real, window) & ((columns < rows) | (rows == 0))
        ),
    )
    yield mutant(
        "mask hides the first token",
        visible=lambda step, rows, columns, real, window: (
            step(rows, columns, real, window) & ((columns > 0) | (rows == 0))
        ),
    )
    yield mutant(
        "mask of the prompt is not causal while decoding is",
        visible=lambda step, rows, columns, real, window: (
            step(rows, columns, real, window) if len(rows) == 1 else real[None].expand(len(rows), -1)
        ),
    )
    yield mutant(
        "prompt of more than 32 tokens: chunks do not see each other",
        visible=lambda step, rows, columns, real, window: (
            step(rows, columns, real, window) & (rows // 32 == columns // 32)
        ),
    )
    for size in (s for s in (4, 8, 64) if shape.window is None or s < shape.window):
        yield mutant(
            f"a sliding window of {size} that the configuration does not have",
            visible=lambda step, rows, columns, real, window, size=size: step(rows, columns, real, size),
        )
    if shape.window is not None:
        for by in (-1, 1, 2):
            yield mutant(
                f"sliding window {by:+d}",
                visible=lambda step, rows, columns, real, window, by=by: step(
                    rows, columns, real, None if window is None else window + by
                ),
            )
        yield mutant(
            "sliding window ignored", visible=lambda step, rows, columns, real, window: step(rows, columns, real, None)
        )
        if not shape.kinds:  # else some layers see everything anyway: see blocks.py
            yield mutant(
                "sliding window in every other layer only",
                window=lambda step, depth: None if depth % 2 else step(depth),
            )
    everything = lambda step, rows, columns, real, window: step(rows, columns, torch.ones_like(real), window)  # noqa: E731
    yield mutant("left padding is attended to", visible=everything)


def _cache(mutant: Callable[..., Mutant], shape: Shape) -> Iterator[Mutant]:
    def late(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
        """Changes what is read while decoding, after the prompt."""

        def remember(step: Callable[..., Any], k: Tensor, v: Tensor, depth: int, cache: Cache) -> tuple[Tensor, Tensor]:
            keys, values = step(k, v, depth, cache)
            return change(keys, values) if keys.shape[1] > k.shape[1] else (keys, values)

        return remember

    def both(f: Callable[[Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
        return late(lambda k, v: (f(k), f(v)))

    def erase(x: Tensor, place: int) -> Tensor:
        return x.index_fill(1, torch.tensor([place % x.shape[1]]), 0.0)

    yield mutant(
        "cache: newest entry is the one before", remember=both(lambda x: torch.cat([x[:, :-1], x[:, -2:-1]], 1))
    )
    yield mutant("cache: newest entry missing (zero)", remember=both(lambda x: erase(x, -1)))
    yield mutant("cache: entry before the newest missing (zero)", remember=both(lambda x: erase(x, -2)))
    yield mutant("cache: oldest entry missing (zero)", remember=both(lambda x: erase(x, 0)))
    for back in (3, 4, 6):
        yield mutant(
            f"cache: entry {back} back missing (zero)", remember=both(lambda x, back=back: erase(x, -1 - back))
        )
    yield mutant("cache: values shifted by one against the keys", remember=late(lambda k, v: (k, v.roll(1, 1))))
    yield mutant(
        "cache: last two keys exchanged, not their values",
        remember=late(lambda k, v: (torch.cat([k[:, :-2], k[:, -1:], k[:, -2:-1]], 1), v)),
    )
    # Attention ignores the order of its entries, but masks go by places: a fault where several tokens are read
    # after a cache, where a batch is padded, and where there is a window.
    yield mutant("cache: entries in another order", remember=both(lambda x: x.roll(1, 1)))
    yield mutant("cache: only keys updated", remember=late(lambda k, v: (k, torch.cat([v[:, :-1], v[:, -2:-1]], 1))))
    yield mutant("cache: only values updated", remember=late(lambda k, v: (torch.cat([k[:, :-1], k[:, -2:-1]], 1), v)))
    yield mutant("cache: keys doubled", remember=late(lambda k, v: (2 * k, v)))
    yield mutant("cache: key-value heads exchanged", remember=both(lambda x: x.flip(0) if x.shape[0] > 1 else x + 1))
    yield mutant(
        "cache: every layer reads the first layer's",
        remember=lambda step, k, v, depth, cache: (
            lambda own: own if depth == 0 or own[0].shape[1] == k.shape[1] else (cache.keys[0], cache.values[0])
        )(step(k, v, depth, cache)),
    )
    yield mutant(
        "cache: a block of 16 lost",
        remember=both(
            lambda x: (
                torch.cat(
                    [x[:, :-16] * 0 if x.shape[1] < 33 else torch.cat([x[:, :-32], x[:, -32:-16] * 0], 1), x[:, -16:]],
                    1,
                )
                if x.shape[1] > 16
                else x
            )
        ),
    )


def _quantized(mutant: Callable[..., Mutant]) -> Iterator[Mutant]:
    def both(f: Callable[[Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
        return lambda step, k, v, depth, cache: step(f(k), f(v), depth, cache)

    def int8(x: Tensor) -> Tensor:
        size = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 127
        return (x / size).round() * size

    yield mutant(
        "keys and values in fp8 (e4m3)",
        harmless=True,
        remember=both(lambda x: (x / 4).to(torch.float8_e4m3fn).to(x.dtype) * 4),
    )
    yield mutant("keys and values in int8 per token", harmless=True, remember=both(int8))
    yield mutant("keys and values in bfloat16", harmless=True, remember=both(lambda x: x.bfloat16().to(x.dtype)))
    yield mutant("keys and values in float16", harmless=True, remember=both(lambda x: x.half().to(x.dtype)))
