"""Reported faults of positions and rotary embeddings: scaling that was meant for other models, tables that end,
positions that are counted per chunk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.config import Rotary
from byheart.checkpoints.suite.machine import Tensor
from byheart.checkpoints.suite.mutants._base import Mutant
from byheart.checkpoints.suite.mutants.reported._base import ALL, DECODING, EVERYWHERE, LAST, Chunked, Watched, faults

FAMILY = "positions"
FACTOR, TRAINED = 4.0, 512  # of a scaling that this checkpoint does not ask for


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    yield from _everywhere(decoder)
    if decoder.shape.rotary is not None:
        yield from _frequencies(decoder, decoder.shape.rotary)
        yield from _rotations(decoder, decoder.shape.rotary)
    else:
        yield from _learned(decoder)


def _everywhere(decoder: StockDecoder) -> Iterator[Mutant]:
    def locally(m: Chunked, step: Any, real: Tensor, start: int) -> Tensor:
        positions = step(real, start)
        return positions - positions[0] if m.count > 1 else positions

    def first_again(m: Watched, step: Any, real: Tensor, start: int) -> Tensor:
        fresh = m.decoding and not getattr(m, "decoded", False)
        m.decoded = m.decoding  # type: ignore[attr-defined]
        return (step(real, start) - int(fresh)).clamp(min=0)

    yield from faults(decoder, "every chunk counts from 0", FAMILY, machine=Chunked, positions=locally)
    yield from faults(
        decoder, "the second chunk starts one too far", FAMILY, machine=Chunked,
        positions=lambda m, step, real, start: step(real, start) + (start > 0 and m.count > 1 and m.chunk == 1),
    )  # fmt: skip
    yield from faults(decoder, "the first decoded token repeats a position", FAMILY, positions=first_again)


def _learned(decoder: StockDecoder) -> Iterator[Mutant]:
    most = decoder.shape.positions - 1
    for name, change in {
        "learned positions one too far": lambda p: (p + 1).clamp(max=most),
        "learned positions end at 256": lambda p: p.clamp(max=255),
        "learned positions wrap at 256": lambda p: p % 256,
    }.items():
        yield from faults(
            decoder, name, FAMILY, (EVERYWHERE, DECODING), place=lambda m, step, p, change=change: step(change(p))
        )


def _base_of(frequencies: Tensor) -> float:
    return float(frequencies[1]) ** -len(frequencies)


def _yarn(f: Tensor, reach: int) -> Tensor:
    """Yarn, as for a model that was trained on a quarter of the reach."""
    n, base = len(f), _base_of(f)

    def at(turns: float) -> float:
        return 2 * n * math.log(reach / FACTOR / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(at(32)), 0), min(math.ceil(at(1)), 2 * n - 1)
    ramp = ((torch.arange(n) - low) / max(high - low, 0.001)).clamp(0, 1).to(f)
    return f / FACTOR * ramp + f * (1 - ramp)


def _llama_3(f: Tensor, factor: float = 8, low: float = 1, high: float = 4, trained: int = 8192) -> Tensor:
    wave = 2 * math.pi / f
    smooth = ((trained / wave - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * f / factor + smooth * f


def _frequencies(decoder: StockDecoder, rotary: Rotary) -> Iterator[Mutant]:
    n, head_dim = rotary.dims // 2, decoder.shape.head_dim

    def dynamic(m: Watched, step: Any, rotary: Rotary) -> Tensor:
        f, length = step(rotary), m.start + m.count
        grown = (length / TRAINED) ** (n / (n - 1)) if length > TRAINED else 1.0
        return f * grown ** (-torch.arange(n) / n).to(f)

    def long(m: Watched, step: Any, rotary: Rotary) -> Tensor:
        f = step(rotary)
        return f / torch.linspace(1, 8, n).to(f) if m.start + m.count > TRAINED else f

    attention_factor = 0.1 * math.log(FACTOR) + 1

    def louder(m: Watched, step: Any, *args: Any) -> tuple[Tensor, Tensor]:
        cos, sin = step(*args)
        return cos * attention_factor, sin * attention_factor

    scalings: dict[str, tuple[Any, tuple[str, ...]]] = {
        "Llama 3's scaling of frequencies": (lambda m, step, r: _llama_3(step(r)), ALL),
        "dynamic scaling after 512 tokens": (dynamic, (EVERYWHERE, LAST)),
        "long factors after 512 tokens": (long, (EVERYWHERE, LAST)),
        "half of the dimensions turn": (lambda m, step, r: step(r)[::2], ALL),
        "exponents are halved": (lambda m, step, r: step(r).sqrt(), ALL),
        "base 500,000": (lambda m, step, r: _rebased(step(r), 5e5), ALL),
        "base 1,000,000": (lambda m, step, r: _rebased(step(r), 1e6), ALL),
    }
    for name, (change, scopes) in scalings.items():
        yield from faults(decoder, name, FAMILY, scopes, frequencies=change)
    yield from faults(
        decoder,
        "Yarn",
        FAMILY,
        ALL,
        turns=louder,
        frequencies=lambda m, step, r: _yarn(step(r), decoder.shape.positions),
    )
    yield from faults(decoder, "Yarn's factor of attention alone", FAMILY, ALL, turns=louder)
    if 2 * n < head_dim:
        yield from faults(
            decoder, "all dimensions turn", FAMILY, ALL,
            frequencies=lambda m, step, r: _base_of(step(r)) ** (-torch.arange(0, head_dim, 2) / head_dim).to(m.wide),
        )  # fmt: skip


def _rebased(f: Tensor, base: float) -> Tensor:
    return (base ** (-torch.arange(len(f)) / len(f))).to(f)


def _rotations(decoder: StockDecoder, rotary: Rotary) -> Iterator[Mutant]:
    def of_type(kind: torch.dtype) -> Any:
        def change(m: Watched, step: Any, rotary: Rotary, positions: Tensor) -> Tensor:
            return (positions.to(kind)[:, None] * m.frequencies(rotary).to(kind)[None]).to(m.wide)

        return change

    def interleaved(m: Watched, step: Any, x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        if which != "k":
            return step(x, cos, sin, which)
        n = cos.shape[-1] // 2
        part, c, s = x[..., : 2 * n], cos[..., :n], sin[..., :n]
        a, b = part[..., ::2], part[..., 1::2]
        return torch.cat([torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2), x[..., 2 * n :]], -1)

    def last_dims(m: Watched, step: Any, x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        n = x.shape[-1] - cos.shape[-1]
        return torch.cat([x[..., :n], step(x[..., n:], cos, sin, which)], -1)

    def values_too(m: Watched, step: Any, k: Tensor, v: Tensor, depth: int, cache: Any) -> Any:
        places = torch.arange(m.start, m.start + m.count)
        return step(k, m.rotate(v, *m.turns(rotary, places), "v"), depth, cache)

    def once_more(m: Watched, step: Any, k: Tensor, v: Tensor, depth: int, cache: Any) -> Any:
        k, v = step(k, v, depth, cache)
        turns = m.turns(rotary, torch.arange(m.start))
        return torch.cat([m.rotate(k[:, : m.start], *turns, "k"), k[:, m.start :]], 1), v

    def keys_back(m: Watched, step: Any, x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        return step(x, cos, -sin if which == "k" else sin, which)

    def second_layers(m: Watched, step: Any, x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        return x if m.depth % 2 else step(x, cos, sin, which)

    for name, change in {
        "angles in bfloat16": of_type(torch.bfloat16),
        "angles in float16": of_type(torch.float16),
        "positions in bfloat16": lambda m, step, r, p: step(r, p.to(torch.bfloat16).long()),
        "a table of 1,024 positions": lambda m, step, r, p: step(r, p.clamp(max=1023)),
        "a table of 512 positions": lambda m, step, r, p: step(r, p.clamp(max=511)),
        "positions in 8 bits": lambda m, step, r, p: step(r, p % 256),
    }.items():
        yield from faults(decoder, name, FAMILY, (EVERYWHERE, LAST), angles=change)
    yield from faults(decoder, "keys turn backwards", FAMILY, ALL, rotate=keys_back)
    yield from faults(decoder, "keys turn in neighbouring pairs, queries do not", FAMILY, ALL, rotate=interleaved)
    yield from faults(decoder, "every second layer does not turn", FAMILY, rotate=second_layers)
    yield from faults(decoder, "values turn, too", FAMILY, ALL, remember=values_too)
    yield from faults(decoder, "cached keys turn again", FAMILY, (DECODING,), remember=once_more)
    if rotary.dims < decoder.shape.head_dim:
        yield from faults(decoder, "the last dimensions turn", FAMILY, ALL, rotate=last_dims)
