"""Reported faults of attention kernels, caches and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.decoder import StockAttention
from byheart.checkpoints.suite.machine import HIDDEN, Cache, Tensor
from byheart.checkpoints.suite.mutants._base import Mutant
from byheart.checkpoints.suite.mutants.reported._base import (
    ALL,
    DECODING,
    EVERYWHERE,
    LAST,
    Chunked,
    Watched,
    faults,
)

FAMILY = "attention"
BLOCK = 16  # tokens of a block of a paged cache


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    yield from _kernels(decoder)
    yield from _masks(decoder)
    yield from _caches(decoder)
    yield from _heads(decoder)
    yield from _batches(decoder)


def _kernels(decoder: StockDecoder) -> Iterator[Mutant]:
    def padded_keys(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        s = scores.shape[-1]
        extra = -s % 64
        zeros = scores.new_zeros(*scores.shape[:-1], extra)
        more = torch.cat([seen, seen.new_ones(*seen.shape[:-1], extra)], -1)
        return step(torch.cat([scores, zeros], -1), more)[..., :s]

    def averaged(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        splits = zip(scores.split(256, -1), seen.split(256, -1), strict=True)
        parts = [(step(some, shown), shown.any(-1, keepdim=True).to(scores.dtype)) for some, shown in splits]
        return torch.cat([part * filled for part, filled in parts], -1) / sum(filled for _, filled in parts)

    def not_rescaled(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        hidden = scores.to(m.wide).masked_fill(~seen, HIDDEN)
        tops = torch.stack([part.amax(-1) for part in hidden.split(64, -1)], -1).cummax(-1).values
        e = (hidden - tops.repeat_interleave(64, -1)[..., : hidden.shape[-1]]).exp() * seen
        return (e / e.sum(-1, keepdim=True)).to(m.dtype)

    def sink(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        zero, one = scores.new_zeros(*scores.shape[:-1], 1), seen.new_ones(*seen.shape[:-1], 1)
        return step(torch.cat([scores, zero], -1), torch.cat([seen, one], -1))[..., :-1]

    def alibi(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        heads, q, s = scores.shape
        distance = (torch.arange(s)[None] - torch.arange(s - q, s)[:, None]).to(scores)
        slopes = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)[:, None, None].to(scores)
        return step(scores + slopes * distance, seen)

    def dropout(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        weights = step(scores, seen)
        kept = torch.rand(weights.shape, generator=torch.Generator().manual_seed(0)) > 0.01
        return weights * kept / 0.99

    def sparse(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        weights = step(scores, seen)
        return weights * (weights > 1e-3)

    def top_64(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        hidden = scores.masked_fill(~seen, HIDDEN)
        if hidden.shape[-1] <= 64:
            return step(scores, seen)
        return step(scores, seen & (hidden >= hidden.topk(64, -1).values[..., -1:]))

    for name, change in {
        "keys padded with zeros to blocks of 64": padded_keys,
        "splits of 256 keys averaged": averaged,
        "online softmax without rescaling": not_rescaled,
        "a sink in the denominator": sink,
        "ALiBi added": alibi,
        "attention capped at 50": lambda m, step, s, seen: step(50 * torch.tanh(s / 50), seen),
        "attention capped at 30": lambda m, step, s, seen: step(30 * torch.tanh(s / 30), seen),
        "dropout of 1 % left on": dropout,
        "weights below a thousandth dropped": sparse,
        "only the 64 best keys": top_64,
    }.items():
        yield from faults(decoder, name, FAMILY, ALL, weights=change)
    yield from faults(decoder, "scale a tenth too large", FAMILY, ALL, scale=lambda m, step, a: 1.1 * step(a))
    if len(decoder.layers) > 1:
        divided = faults(
            decoder, "scale divided by the layer's number", FAMILY, scale=lambda m, step, a: step(a) / (m.depth + 1)
        )
        yield from divided


def _masks(decoder: StockDecoder) -> Iterator[Mutant]:
    window = decoder.shape.window

    def upper_left(m: Watched, step: Any, rows: Tensor, columns: Tensor, real: Tensor, window: Any) -> Tensor:
        later = m.start > 0 and m.count > 1
        return step(rows - m.start, columns, real, window) if later else step(rows, columns, real, window)

    def one_more(m: Watched, step: Any, rows: Tensor, columns: Tensor, real: Tensor, window: Any) -> Tensor:
        return step(rows + int(m.start > 0 and m.count > 1), columns, real, window)

    def also(shown: Any) -> Any:
        return lambda m, step, rows, columns, *rest: step(rows, columns, *rest) & shown(m, rows, columns)

    def shifted(m: Watched, rows: Tensor, columns: Tensor) -> Tensor:
        return (rows < 256) | (columns == 0) | (columns >= 128)

    def truncated(m: Watched, rows: Tensor, columns: Tensor) -> Tensor:
        lost = max(0, m.count - 512)
        return (columns >= lost) | (rows < lost)

    yield from faults(decoder, "later chunks masked from the upper left", FAMILY, machine=Chunked, visible=upper_left)
    yield from faults(decoder, "later chunks see one future token", FAMILY, machine=Chunked, visible=one_more)
    masks: list[tuple[str, tuple[str, ...], Any]] = [
        ("the current token is not seen", (DECODING,), lambda m, r, c: (c < r) | (r == 0)),
        ("a window of 64", (LAST, DECODING), lambda m, r, c: r - c < 64),
        ("local chunks of 512", (EVERYWHERE, LAST), lambda m, r, c: r // 512 == c // 512),
        ("cache length rounded down to 16", (DECODING,), lambda m, r, c: (c < c.shape[-1] // 16 * 16) | (c == r)),
        ("prompts cut to 512", (EVERYWHERE,), truncated),
        ("a hole after the cached prefix", (EVERYWHERE, LAST), lambda m, r, c: (c != BLOCK) | (r <= BLOCK)),
    ]
    if window is None:
        masks += [
            ("a window of 512", (EVERYWHERE, LAST), lambda m, r, c: r - c < 512),
            ("older half of 256 forgotten", (EVERYWHERE,), shifted),
            ("first token forgotten", (DECODING,), lambda m, r, c: (c > 0) | (r < 128)),
        ]
    for name, scopes, shown in masks:
        if decoder.shape.positions > 512 or "512" not in name:  # else no text is long enough to show it
            yield from faults(decoder, name, FAMILY, scopes, visible=also(shown))
    if window is not None and not decoder.shape.kinds:
        yield from faults(
            decoder, "window only in every second layer", FAMILY,
            visible=lambda m, step, r, c, real, window: step(r, c, real, None if m.depth % 2 else window),
        )  # fmt: skip


def _caches(decoder: StockDecoder) -> Iterator[Mutant]:
    def layer_before(m: Watched, step: Any, k: Tensor, v: Tensor, depth: int, cache: Cache) -> Any:
        step(k, v, depth, cache)
        return cache.keys[max(0, depth - 1)], cache.values[max(0, depth - 1)]

    def coarse(m: Watched, step: Any, k: Tensor, v: Tensor, depth: int, cache: Cache) -> Any:
        def rounded(x: Tensor) -> Tensor:
            size = x.abs().amax().clamp(min=1e-6) / 7
            return (x / size).round() * size

        k, v = step(k, v, depth, cache)
        return rounded(k), rounded(v)

    def blocks(m: Watched, step: Any, k: Tensor, v: Tensor, depth: int, cache: Cache) -> Any:
        k, v = step(k, v, depth, cache)
        if v.shape[1] < 4 * BLOCK:
            return k, v
        parts = v.split(BLOCK, 1)
        return k, torch.cat([*parts[:2], parts[3], parts[2], *parts[4:]], 1)

    def twice(m: Watched, step: Any, scores: Tensor, seen: Tensor) -> Tensor:
        double = torch.zeros(scores.shape[-1], dtype=scores.dtype)
        double[255:256] = 0.6931472
        return step(scores + double, seen)

    if len(decoder.layers) > 1:
        yield from faults(
            decoder, "reads the cache of the layer before", FAMILY, (LAST, DECODING), remember=layer_before
        )
    yield from faults(decoder, "a cache in 4 bits, one scale for all", FAMILY, ALL, remember=coarse)
    yield from faults(decoder, "two blocks of values exchanged", FAMILY, ALL, remember=blocks)
    yield from faults(decoder, "the last entry of a chunk twice", FAMILY, (EVERYWHERE, LAST), weights=twice)
    yield from faults(decoder, "a prefix of another prompt", FAMILY, machine=Collided)
    yield from faults(decoder, "a rejected draft stays in the cache", FAMILY, machine=Drafted)
    yield from faults(
        decoder, "positions after a rejected draft", FAMILY, machine=Watched,
        positions=lambda m, step, real, start: step(real, start) + int(m.decoding and start > 24),
    )  # fmt: skip


class Collided(Watched):
    """The first block of every prompt comes from the cache, where another prompt left it."""

    def run(self, ids: Sequence[int], cache: Cache | None = None, padding: int = 0) -> Tensor:
        cache = Cache(len(self.decoder.layers)) if cache is None else cache
        if len(cache) or len(ids) <= BLOCK:
            return super().run(ids, cache, padding)
        right = super().run(ids[:BLOCK], None, padding)
        super().run(list(reversed(ids[:BLOCK])), cache, padding)
        return torch.cat([right, super().run(ids[BLOCK:], cache, 0)])


class Drafted(Watched):
    """After the first decoded token a draft was tried; its entry stays, positions continue as if it had not been."""

    drafts = 0

    def run(self, ids: Sequence[int], cache: Cache | None = None, padding: int = 0) -> Tensor:
        if cache is None or not len(cache):
            self.drafts = 0
        elif len(ids) == 1 and not self.drafts:
            logits = super().run(ids, cache, padding)
            super().run([(ids[0] + 1) % self.decoder.shape.vocabulary], cache, padding)
            self.drafts = 1
            return logits
        return super().run(ids, cache, padding)

    def positions(self, real: Tensor, start: int) -> Tensor:
        return super().positions(real, start) - self.drafts


def _heads(decoder: StockDecoder) -> Iterator[Mutant]:
    heads, groups = decoder.shape.heads, decoder.shape.kv_heads

    def interleaved(m: Watched, step: Any, x: Tensor, a: StockAttention) -> Tensor:
        return x.repeat(heads // groups, 1, 1)

    def last_reads_first(m: Watched, step: Any, x: Tensor, a: StockAttention) -> Tensor:
        shared = step(x, a)
        return torch.cat([shared[:-1], shared[:1]])

    if 1 < groups < heads:
        yield from faults(decoder, "groups dealt out in turn", FAMILY, ALL, share=interleaved)
    if groups > 1:
        yield from faults(decoder, "the last head reads the first group", FAMILY, ALL, share=last_reads_first)
    yield from faults(
        decoder, "the last head is silent", FAMILY, ALL, join=lambda m, step, x: step(torch.cat([x[:-1], 0 * x[-1:]]))
    )


def _batches(decoder: StockDecoder) -> Iterator[Mutant]:
    def attended(m: Watched, step: Any, rows: Tensor, columns: Tensor, real: Tensor, window: Any) -> Tensor:
        return step(rows, columns, torch.ones_like(real), window)

    def one_attended(m: Watched, step: Any, rows: Tensor, columns: Tensor, real: Tensor, window: Any) -> Tensor:
        return step(rows, columns, torch.cat([real[1:], real[-1:]]), window)

    yield from faults(decoder, "padding is seen", "batch", ALL, visible=attended)
    yield from faults(decoder, "the neighbour's last token is seen", "batch", ALL, visible=one_attended)
    yield from faults(
        decoder, "every row decodes at the longest row's position", "batch", (DECODING,),
        positions=lambda m, step, real, start: torch.arange(start, len(real)),
    )  # fmt: skip
    yield from faults(
        decoder, "logits of the row's second last token", "batch",
        run=lambda m, step, ids, cache=None, padding=0: step(ids, cache, padding).roll(1 if padding else 0, 0),
    )  # fmt: skip
