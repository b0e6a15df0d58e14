"""Faults of latent attention: norms of latents, which dimensions turn, projections that are split, absorbed or scaled.

`Absorbed` is the form in which engines decode: queries are multiplied by the keys' projection, the cache holds latents
and one rotated key, and values are projected after the mixture. It is legitimate, so it must be survived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.decoder import Layer, StockAttention
from byheart.checkpoints.suite.machine import Cache, Tensor
from byheart.checkpoints.suite.mutants._base import Mutant
from byheart.checkpoints.suite.mutants.reported._base import ALL, DECODING, EVERYWHERE, Watched, faults, stored

FAMILY = "attention"
NORMS = ("latent", "query latent")


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    """All faults of latent attention; none for an architecture without it."""
    if decoder.layers[0].attention.latents is None:
        return
    yield Mutant("projections absorbed, latents cached", FAMILY, lambda: Absorbed(decoder), harmless=True)
    yield from _norms(decoder)
    yield from _rotations(decoder)
    yield from _projections(decoder)
    yield from _scales(decoder)
    yield from _caches(decoder)


class Absorbed(Watched):
    """Latents in the cache; projections of keys and values come before and after attention."""

    def attention(self, x: Tensor, attention: StockAttention, depth: int, positions: Tensor, cache: Cache) -> Tensor:
        latents, heads, rotary = attention.latents, self.shape.heads, self.rotary(depth)
        assert latents is not None and rotary is not None
        latent = self.norm(self.linear(x, latents.down), latents.norm, "latent")[None]  # (1, t, rank)
        queried = x if latents.q_down is None else self.linear(x, latents.q_down)
        q = self.heads(self.linear(self.maybe_norm(queried, latents.q_norm, "query latent"), attention.q), heads)
        turns, n = self.turns(rotary, positions), rotary.dims
        turned = self.rotate(self.linear(x, latents.k_turned)[None], *turns, "k")
        up = self.tensor(attention.k.weight).reshape(heads, -1, latent.shape[-1])
        query = torch.cat([self.rotate(q[..., :n], *turns, "q"), self.product(q[..., n:], up)], -1)
        keys, latent = self.remember(torch.cat([turned, latent], -1), latent, depth, cache)
        rows = torch.arange(len(cache) - q.shape[1], len(cache))
        wide = keys.expand(heads, -1, -1), latent.expand(heads, -1, -1)
        mixed = self.mix(query, *wide, rows, attention, depth, cache.real)
        down = self.tensor(attention.v.weight).reshape(heads, -1, latent.shape[-1]).transpose(1, 2)
        return self.linear(self.join(self.product(mixed, down)), attention.o)


def _norms(decoder: StockDecoder) -> Iterator[Mutant]:
    def both(m: Watched, step: Any, x: Tensor, attention: StockAttention) -> Any:
        """One norm over the latent and the rotated key."""
        latents = attention.latents
        assert latents is not None
        latent, turned = m.linear(x, latents.down), m.linear(x, latents.k_turned)
        size = m.size(torch.cat([latent, turned], -1), latents.norm, "latent")
        q, _, _ = step(x, attention)
        latent = latent / size * m.tensor(latents.norm.weight)
        k = m.keys_beside(turned / size, m.linear(latent, attention.k))
        return q, k, m.linear(latent, attention.v)

    for where in NORMS:
        yield from faults(
            decoder, f"norm of the {where} skipped", FAMILY, ALL,
            norm=lambda m, step, x, norm, at, where=where: x if at == where else step(x, norm, at),
        )  # fmt: skip
        yield from faults(
            decoder, f"weight of the {where}'s norm missing", FAMILY, ALL,
            norm=lambda m, step, x, norm, at, where=where: step(
                x, replace(norm, weight=norm.weight * 0 + 1) if at == where else norm, at
            ),
        )  # fmt: skip
        yield from faults(
            decoder, f"LayerNorm for the {where}", FAMILY, ALL,
            centred=lambda m, step, value, at, where=where: at == where or step(value, at),
        )  # fmt: skip
    yield from faults(
        decoder, "both latents' norms exchange their weights", FAMILY, norm=lambda m, step, x, norm, at: step(
            x, replace(norm, weight=norm.weight[::-1].copy()) if at in NORMS else norm, at
        ),
    )  # fmt: skip
    yield from faults(decoder, "one norm over latent and rotated key", FAMILY, ALL, projections=both)
    yield from faults(
        decoder, "epsilon of latents 1e-3", FAMILY, (EVERYWHERE,),
        size=lambda m, step, wide, norm, at: step(wide, replace(norm, eps=1e-3) if at in NORMS else norm, at),
    )  # fmt: skip


def _rotations(decoder: StockDecoder) -> Iterator[Mutant]:
    rotary = decoder.shape.rotary
    assert rotary is not None
    n = rotary.dims
    order = torch.arange(n).reshape(-1, 2).T.reshape(-1)  # halves as neighbours

    def other(m: Watched, step: Any, x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        """The stored order taken for the other one."""
        mixed = torch.cat([x[..., :n][..., torch.argsort(order)], x[..., n:]], -1)
        return step(mixed, cos, sin, which)

    def last(m: Watched, step: Any, x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        return torch.cat([x[..., :-n], step(x[..., -n:], cos, sin, which)], -1)

    def alone(part: str) -> Any:
        return lambda m, step, x, cos, sin, which: step(x, cos, sin, which) if which == part else x

    for name, change in {
        "rotated dimensions in the other order": other,
        "other dimensions rotated": last,
        "the shared key not rotated": alone("q"),
        "queries not rotated": alone("k"),
        "the shared key rotated back": lambda m, step, x, c, s, which: step(x, c, -s if which == "k" else s, which),
    }.items():
        yield from faults(decoder, name, "positions", ALL, rotate=change)


def _projections(decoder: StockDecoder) -> Iterator[Mutant]:
    shape = decoder.shape
    plain, value, heads = shape.head_dim - (shape.rotary.dims if shape.rotary else 0), shape.value_size, shape.heads

    def split(rows: Callable[[Any], tuple[Any, Any]]) -> Callable[[Layer], Layer]:
        """Rows of keys and values, taken from the stored matrix in another way."""

        def change(layer: Layer) -> Layer:
            a = layer.attention
            both = torch.cat([
                torch.from_numpy(a.k.weight.copy()).reshape(heads, plain, -1),
                torch.from_numpy(a.v.weight.copy()).reshape(heads, value, -1),
            ], 1)  # fmt: skip
            k, v = (x.reshape(-1, both.shape[-1]).numpy() for x in rows(both))
            return replace(layer, attention=replace(a, k=replace(a.k, weight=k), v=replace(a.v, weight=v)))

        return change

    def in_columns(x: Any) -> tuple[Any, Any]:
        turned = x.reshape(plain + value, heads, -1).transpose(0, 1)
        return turned[:, :plain], turned[:, plain:]

    def apart(x: Any) -> tuple[Any, Any]:
        flat = x.reshape(-1, x.shape[-1])
        return flat[: heads * plain].reshape(heads, plain, -1), flat[heads * plain :].reshape(heads, value, -1)

    for name, rows in {
        "values before keys in the projection": lambda x: (x[:, value:], x[:, :value]),
        "keys of the next head": lambda x: (x[:, :plain].roll(1, 0), x[:, plain:]),
        "values of the next head": lambda x: (x[:, :plain], x[:, plain:].roll(1, 0)),
        "heads in columns of the projection": in_columns,
        "all keys before all values in the projection": apart,
        "every head the first one's keys": lambda x: (x[:1, :plain].expand(heads, -1, -1), x[:, plain:]),
        "every head the first one's values": lambda x: (x[:, :plain], x[:1, plain:].expand(heads, -1, -1)),
    }.items():
        yield from stored(decoder, name, FAMILY, split(rows))

    def without(first: int, stop: int) -> Any:
        def change(m: Watched, step: Any, q: Tensor, *rest: Any) -> Tensor:
            return step(torch.cat([q[..., :first], 0 * q[..., first:stop], q[..., stop:]], -1), *rest)

        return change

    turned = shape.head_dim - plain
    yield from faults(decoder, "scores without the unrotated part", FAMILY, ALL, mix=without(turned, shape.head_dim))
    yield from faults(decoder, "scores without the rotated part", FAMILY, ALL, mix=without(0, turned))


def _scales(decoder: StockDecoder) -> Iterator[Mutant]:
    shape = decoder.shape
    turned = shape.rotary.dims if shape.rotary else 0
    gain = shape.scale * shape.head_dim**0.5  # yarn's, twice
    latent = shape.latent.rank if shape.latent else 0
    for name, factor in {
        "of the rotated dimensions alone": (shape.head_dim / turned) ** 0.5,
        "of the unrotated dimensions alone": (shape.head_dim / (shape.head_dim - turned)) ** 0.5,
        "of the value's dimensions": (shape.head_dim / shape.value_size) ** 0.5,
        "of latent and rotated dimensions": (shape.head_dim / (latent + turned)) ** 0.5,
        "without yarn's factor": 1 / gain,
        "with yarn's factor once": gain**-0.5,
        "with yarn's factor four times": gain,
    }.items():
        if abs(factor - 1) > 1e-6:
            yield from faults(
                decoder, f"scale {name}", FAMILY, ALL, scale=lambda m, step, a, factor=factor: factor * step(a)
            )
    yield from faults(
        decoder, "cos and sin multiplied by yarn's factor, too", "positions", ALL,
        rotary_gain=lambda m, step, r: step(r) * gain**0.5,
    )  # fmt: skip


def _caches(decoder: StockDecoder) -> Iterator[Mutant]:
    turned = decoder.shape.rotary.dims if decoder.shape.rotary else 0

    def kept(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Any:
        return lambda m, step, k, v, depth, cache: step(*change(k, v), depth, cache)

    def first_head(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The rotated key reaches the first head alone."""
        others = torch.cat([0 * k[1:, :, :turned], k[1:, :, turned:]], -1)
        return torch.cat([k[:1], others], 0), v

    def late(m: Watched, step: Any, k: Tensor, v: Tensor, depth: int, cache: Cache) -> Any:
        """The rotated part of the newest entry is the one before."""
        k, v = step(k, v, depth, cache)
        if m.decoding:
            newest = torch.cat([k[:, -2:-1, :turned], k[:, -1:, turned:]], -1)
            k = torch.cat([k[:, :-1], newest], 1)
        return k, v

    yield from faults(decoder, "the rotated key reaches one head", FAMILY, (EVERYWHERE,), remember=kept(first_head))
    yield from faults(decoder, "the cache's rotated key is the one before", FAMILY, (DECODING,), remember=late)
    yield Mutant("norms of latents missing where they are cached", FAMILY, lambda: _Unnormed(decoder))
    yield Mutant("latents of the token before, absorbed", FAMILY, lambda: _Shifted(decoder))
    yield from faults(
        decoder, "latents in fp8", "precision", harmless=True,
        norm=lambda m, step, x, norm, at: (
            step(x, norm, at).to(torch.float8_e4m3fn).to(x.dtype) if at == "latent" else step(x, norm, at)
        ),
    )  # fmt: skip


class _Unnormed(Absorbed):
    def norm(self, x: Tensor, norm: Any, where: str) -> Tensor:
        return x if where == "latent" else super().norm(x, norm, where)


class _Shifted(Absorbed):
    """While decoding, values come from a cache that is one entry later than its keys."""

    def remember(self, k: Tensor, v: Tensor, depth: int, cache: Cache) -> tuple[Tensor, Tensor]:
        k, v = super().remember(k, v, depth, cache)
        return (k, v.roll(1, 1)) if self.decoding else (k, v)
