"""Faults of newer blocks: layers of several kinds, norms over all heads, multipliers, scaled rotary positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from byheart.checkpoints.formats.stock import StockDecoder, frequencies
from byheart.checkpoints.proof.config import LayerKind, Rotary
from byheart.checkpoints.suite.machine import Tensor
from byheart.checkpoints.suite.mutants._base import Mutant, changed, wrapped

KINDS, SCALES, NORMS, POSITIONS = "attention", "wiring", "norms", "positions"  # families of mutants


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    """All faults that the decoder's own blocks make possible.

    Args:
        decoder: The network that is to be broken.

    Yields:
        Mutants; none for an architecture without these blocks.
    """
    yield from _kinds(decoder)
    yield from _multipliers(decoder)
    yield from _all_heads(decoder)
    yield from _scaled_rope(decoder)
    yield from _caps(decoder)


def _caps(decoder: StockDecoder) -> Iterator[Mutant]:
    """Caps of scores and logits: dropped, other ones, and before the scale."""
    shape = decoder.shape
    for name, words in (("score_cap", "scores"), ("logit_cap", "logits")):
        cap = getattr(shape, name)
        if cap is None:
            continue
        others = {"dropped": None, "of 30": 30.0, "of 50": 50.0, "1.1 times": 1.1 * cap}
        for kind, value in others.items():
            if value != cap:
                other: Any = {name: value}
                yield Mutant(f"cap of {words} {kind}", SCALES, changed(decoder, shape=replace(shape, **other)))
        yield _step(
            decoder, SCALES, f"cap of {words} cuts instead of bending",
            cap=lambda step, x, cap, at, words=words: x.clamp(-cap, cap) if at == words else step(x, cap, at),
        )  # fmt: skip
    if shape.score_cap is not None:
        scale = decoder.score_scale
        yield _step(
            decoder, SCALES, "scores capped before they are scaled",
            cap=lambda step, x, cap, at: scale * step(x / scale, cap, at) if at == "scores" else step(x, cap, at),
        )  # fmt: skip


def _kinds(decoder: StockDecoder) -> Iterator[Mutant]:
    shape, kinds = decoder.shape, decoder.shape.kinds
    if not kinds:
        return

    def with_kinds(name: str, change: Callable[[LayerKind], LayerKind]) -> Iterator[Mutant]:
        changed_kinds = tuple(map(change, kinds))
        if changed_kinds != kinds:
            yield Mutant(name, KINDS, changed(decoder, shape=replace(shape, kinds=changed_kinds)))

    windows = {kind.window for kind in kinds}
    rotated = [kind.rotary for kind in kinds if kind.rotary is not None]
    yield from with_kinds("no layer slides", lambda kind: replace(kind, window=None))
    window = max((w for w in windows if w is not None), default=None)
    if window is not None:
        yield from with_kinds("every layer slides", lambda kind: replace(kind, window=window))
        for by in (-1, 1):
            yield from with_kinds(
                f"the window of sliding layers is {'one longer' if by > 0 else 'one shorter'}",
                lambda kind, by=by: replace(kind, window=None if kind.window is None else kind.window + by),
            )
    for number, rotary in enumerate(dict.fromkeys(rotated)):
        yield from with_kinds(
            f"every rotated layer has the base of kind {number}",
            lambda kind, rotary=rotary: replace(kind, rotary=None if kind.rotary is None else rotary),
        )
    yield from with_kinds(
        "layers without positions are rotated",
        lambda kind: replace(kind, rotary=rotated[0]) if kind.rotary is None else kind,
    )
    if len(set(kinds)) > 1:
        turned = kinds[1:] + kinds[:1]
        yield Mutant("kinds of layers shifted by one", KINDS, changed(decoder, shape=replace(shape, kinds=turned)))


def _multipliers(decoder: StockDecoder) -> Iterator[Mutant]:
    shape = decoder.shape
    for name in ("embedding_scale", "residual_scale", "logit_scale"):
        if getattr(shape, name) != 1:
            words = name.replace("_", " ")
            one: Any = {name: 1.0}
            yield Mutant(f"{words} ignored", SCALES, changed(decoder, shape=replace(shape, **one)))
            near: Any = {name: 1.05 * getattr(shape, name)}
            yield Mutant(f"{words} 1.05 times", SCALES, changed(decoder, shape=replace(shape, **near)))
    if shape.residual_scale != 1:
        for branch in ("attention", "mlp"):
            yield _step(
                decoder, SCALES, f"residual scale ignored after the {branch}",
                add=lambda step, h, b, at, branch=branch: h + b if at == branch else step(h, b, at),
            )  # fmt: skip
        yield _step(
            decoder, SCALES, "residual scale also applied to the stream",
            add=lambda step, h, b, at: step(h * shape.residual_scale, b, at),
        )  # fmt: skip
    if shape.score_scale is not None:
        plain = replace(shape, score_scale=None)
        yield Mutant("scores scaled by the head's dimension", SCALES, changed(decoder, shape=plain))


def _all_heads(decoder: StockDecoder) -> Iterator[Mutant]:
    if not decoder.layers[0].attention.all_heads:
        return
    d = decoder.shape.head_dim

    def each_head(step: Callable[..., Tensor], wide: Tensor, norm: Any, at: str) -> Tensor:
        if at not in ("q", "k"):
            return step(wide, norm, at)
        by_head = wide.reshape(*wide.shape[:-1], -1, d).pow(2).mean(-1, keepdim=True)
        return (by_head + norm.eps).sqrt().expand(*by_head.shape[:-1], d).reshape(wide.shape)

    yield _step(decoder, NORMS, "norms of queries and keys by head, not over all heads", size=each_head)
    for part in ("q", "k"):
        yield _step(
            decoder, NORMS, f"norm of all {part} skipped",
            norm=lambda step, x, norm, at, part=part: x if at == part else step(x, norm, at),
        )  # fmt: skip


def _scaled_rope(decoder: StockDecoder) -> Iterator[Mutant]:
    rotary = decoder.shape.rotary
    if rotary is None or rotary.scaling is None:
        return
    plain = replace(rotary, scaling=None)

    def of(other: Rotary) -> Callable[..., Tensor]:
        return lambda step, _: torch.from_numpy(frequencies(other))

    yield _step(decoder, POSITIONS, "rope scaling ignored", frequencies=of(plain), rotary_gain=lambda step, _: 1.0)
    yield _step(decoder, POSITIONS, "frequencies of rope scaling ignored", frequencies=of(plain))
    if rotary.scaling.kind != "linear":
        factor = rotary.scaling.factor
        yield _step(
            decoder, POSITIONS, "every frequency divided by the factor",
            frequencies=lambda step, _: torch.from_numpy(frequencies(plain)) / factor,
        )  # fmt: skip
    if rotary.scaling.kind == "longrope":
        longer = replace(rotary, scaling=replace(rotary.scaling, divisors=rotary.scaling.beyond))
        yield _step(decoder, POSITIONS, "longrope's numbers of long texts", frequencies=of(longer))
    if rotary.gain != 1:
        yield _step(decoder, POSITIONS, "the factor of cos and sin missing", rotary_gain=lambda step, _: 1.0)
        yield _step(decoder, POSITIONS, "the factor of cos and sin twice", rotary_gain=lambda step, r: step(r) ** 2)


def _step(decoder: StockDecoder, family: str, name: str, **steps: Callable[..., Any]) -> Mutant:
    return Mutant(name, family, wrapped(decoder, **steps))
