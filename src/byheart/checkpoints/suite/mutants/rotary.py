"""Faults of positions: rotary layout, base, scaling and precision; learned tables that are shifted or missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from byheart.checkpoints.formats.stock import StockDecoder, frequencies
from byheart.checkpoints.proof.config import Rotary
from byheart.checkpoints.suite.machine import Tensor
from byheart.checkpoints.suite.mutants._base import Mutant, changed, wrapped

FAMILY = "positions"


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    def mutant(name: str, *, harmless: bool = False, **steps: Callable[..., Any]) -> Mutant:
        return Mutant(name, FAMILY, wrapped(decoder, **steps), harmless)

    rotary = decoder.shape.rotary
    if rotary is not None:
        yield from _layouts(mutant)
        yield from _frequencies(mutant, rotary, decoder.shape.head_dim)
        yield mutant("all positions + 1", harmless=True, positions=lambda step, real, start: step(real, start) + 1)
        yield mutant(
            "cos and sin in bfloat16",
            harmless=True,
            turns=lambda step, *a: tuple(x.bfloat16().to(x.dtype) for x in step(*a)),
        )
        yield mutant(
            "left-pad positions not corrected",
            harmless=True,
            positions=lambda step, real, start: torch.arange(len(real))[start:],
        )
    else:
        yield from _learned(mutant, decoder)
    yield mutant("decode positions one too far", positions=lambda step, real, start: step(real, start) + (start > 0))
    yield mutant("decode positions one too near", positions=lambda step, real, start: step(real, start) - (start > 0))
    yield mutant("every decode position 0", positions=lambda step, real, start: step(real, start) * (start == 0))
    yield mutant("positions in bfloat16", positions=_rounded)
    yield mutant("positions stop at 127", positions=lambda step, real, start: step(real, start).clamp(max=127))
    yield mutant(
        "positions count by two", positions=lambda step, real, start: 2 * step(real, start) % decoder.shape.positions
    )
    yield mutant(
        "positions reversed in the prompt",
        positions=lambda step, real, start: step(real, start) if start else step(real, start).flip(0),
    )


def _rounded(step: Callable[..., Tensor], real: Tensor, start: int) -> Tensor:
    return step(real, start).to(torch.bfloat16).long()


def _layouts(mutant: Callable[..., Mutant]) -> Iterator[Mutant]:
    def interleaved(step: Callable[..., Tensor], x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        """Neighbours turn together instead of halves."""
        n = cos.shape[-1]
        order = torch.arange(n).view(2, -1).T.reshape(-1)  # halves -> pairs
        turned = step(torch.cat([x[..., :n][..., torch.argsort(order)], x[..., n:]], -1), cos, sin, which)
        return torch.cat([turned[..., :n][..., order], turned[..., n:]], -1)

    def only(part: str) -> Callable[..., Tensor]:
        return lambda step, x, cos, sin, which: step(x, cos, sin, which) if which == part else x

    def sign(part: str | None) -> Callable[..., Tensor]:
        return lambda step, x, cos, sin, which: step(x, cos, -sin if part in (None, which) else sin, which)

    yield mutant("neighbours rotated instead of halves", rotate=interleaved)
    yield mutant(
        "halves exchanged",
        rotate=lambda step, x, cos, sin, w: (
            step(x.roll(cos.shape[-1] // 2, -1), cos, sin, w) if w == "q" else step(x, cos, sin, w)
        ),
    )
    yield mutant("rotation the other way", rotate=sign(None))
    yield mutant("only keys the other way", rotate=sign("k"))
    yield mutant("not rotated", rotate=lambda step, x, cos, sin, which: x)
    yield mutant("only queries rotated", rotate=only("q"))
    yield mutant("only keys rotated", rotate=only("k"))
    yield mutant("values of cos and sin exchanged", rotate=lambda step, x, cos, sin, which: step(x, sin, cos, which))
    yield mutant("rotated twice", rotate=lambda step, x, cos, sin, w: step(step(x, cos, sin, w), cos, sin, w))
    yield mutant(
        "keys rotated before they enter the cache, and again when read",
        remember=lambda step, k, v, depth, cache: (
            step(k, v, depth, cache)
            if len(cache) == k.shape[1]
            else (lambda kv: (torch.cat([kv[0][:, :-1].roll(1, -1), kv[0][:, -1:]], 1), kv[1]))(
                step(k, v, depth, cache)
            )
        ),
    )


def _frequencies(mutant: Callable[..., Mutant], whole: Rotary, head_dim: int) -> Iterator[Mutant]:
    dims = whole.dims

    def base(factor: float) -> Callable[..., Tensor]:
        # Of each layer's own base, so that no fault is what the checkpoint states.
        return lambda step, rotary: torch.from_numpy(frequencies(replace(rotary, theta=factor * rotary.theta)))

    def one(index: int, factor: float) -> Callable[..., Tensor]:
        return lambda step, rotary: torch.where(torch.arange(dims // 2) == index, factor * step(rotary), step(rotary))

    for factor in (0.1, 0.5, 0.9, 0.97, 1.03, 1.1, 2.0, 10.0, 50.0, 100.0):
        yield mutant(f"base times {factor:g}", frequencies=base(factor))
    for factor in (0.25, 0.5, 0.9, 0.97, 1.03, 2.0, 8.0):
        yield mutant(
            f"frequencies times {factor:g} (linear scaling)",
            frequencies=lambda step, rotary, factor=factor: factor * step(rotary),
        )
    for index in (0, 1, 2, 3, dims // 8, dims // 4, dims // 2 - 1):
        yield mutant(f"frequency {index} wrong by 30 %", frequencies=one(index, 1.3))
    yield mutant(
        "the lower half of the frequencies 0",
        frequencies=lambda step, rotary: step(rotary) * (torch.arange(dims // 2) < dims // 4),
    )
    yield mutant(
        "the upper half of the frequencies 0",
        frequencies=lambda step, rotary: step(rotary) * (torch.arange(dims // 2) >= dims // 4),
    )
    yield mutant("frequencies in reverse order", frequencies=lambda step, rotary: step(rotary).flip(0))
    yield mutant("frequencies one place on", frequencies=lambda step, rotary: step(rotary).roll(1))
    yield mutant("exponent without the 2", frequencies=lambda step, rotary: step(rotary).sqrt())
    yield mutant("frequencies in float16", frequencies=lambda step, rotary: step(rotary).half().float())
    yield mutant("scaled by wavelength, as in Llama 3.1", frequencies=_llama_3)
    if dims < head_dim:
        every = frequencies(Rotary(whole.theta, head_dim))
        yield mutant(
            "the whole head rotated",
            angles=lambda step, rotary, positions: positions.float()[:, None] * torch.from_numpy(every)[None],
        )
    else:
        yield mutant(
            "half of the head rotated",
            rotate=lambda step, x, cos, sin, which: step(
                x, *(torch.cat([part[..., : dims // 4], part[..., : dims // 4]], -1) for part in (cos, sin)), which
            ),
        )


def _llama_3(step: Callable[..., Tensor], rotary: Any) -> Tensor:
    """factor 8, low 1, high 4, trained on 8192: long waves are slowed down, short ones stay."""
    usual = step(rotary)
    wave = 2 * torch.pi / usual
    smooth = ((8192 / wave - 1) / 3).clamp(0, 1)
    return (1 - smooth) * usual / 8 + smooth * usual


def _learned(mutant: Callable[..., Mutant], decoder: StockDecoder) -> Iterator[Mutant]:
    table = decoder.positions
    assert table is not None  # a decoder without rotary positions has learned ones
    yield mutant("no position embeddings", place=lambda step, positions: 0 * step(positions))
    yield mutant("position embeddings doubled", place=lambda step, positions: 2 * step(positions))
    for by in (1, 2, -1):
        yield Mutant(
            f"positions shifted by {by}",
            FAMILY,
            changed(decoder, positions=torch.roll(torch.from_numpy(table.copy()), -by, 0).numpy()),
        )
    yield mutant(
        "left-pad positions not corrected",
        positions=lambda step, real, start: torch.arange(len(real))[start:],
    )
