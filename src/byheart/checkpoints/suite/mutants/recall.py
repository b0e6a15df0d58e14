"""Faults of caches, chunks, masks and positions, tried on a recall folder.

A context is read in chunks by a correct machine. Then the cache, or a step of the machine, is broken, and the rest is
read in one chunk: the context once more, so that every place of it is queried from far away, and keys that are mostly
nowhere. One query per block would miss a single overwritten entry and positions that are one off.

With a sliding window only the end of the context is read again, as much of it as a window shows, and faults lie there.

A correct cache of 8 or 4 bits, and blocks whose keys and values move together, must not change a token. Known not to
change one: the next token is seen (its holder makes itself stale), and scores that are too small by a factor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from byheart.checkpoints.formats.stock import StockDecoder, read_decoder
from byheart.checkpoints.proof.decoder import StockAttention
from byheart.checkpoints.suite.features.recall_prompts import FIRST, anchored, in_pieces
from byheart.checkpoints.suite.machine import Cache, Machine, Tensor, in_blocks
from byheart.checkpoints.suite.mutants.check import MutantOutcome, MutantReport
from byheart.checkpoints.windows.recall import VOCABULARY, RecallFunction
from byheart.progress import SILENT, Progress

LONGEST, CHUNK, BLOCK, UNSEEN = 1536, 512, 16, 64
Change = Callable[[Tensor, Tensor], None]  # keys and values of one layer, (groups, s, d), changed in place


@dataclass(frozen=True)
class RecallFault:
    """What breaks after the context was read: the cache, steps of the machine, or both."""

    name: str
    family: str
    cache: Callable[[Cache], None] | None = None
    steps: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    harmless: bool = False


@dataclass(frozen=True, eq=False)
class RecallTrial:
    """The texts of a folder: a context, another request's, and what is read after either."""

    function: RecallFunction
    context: tuple[int, ...]
    other: tuple[int, ...]
    rest: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.context)

    @property
    def seen(self) -> int:
        """How many places of the context are read again after it."""
        return _queried(self.function, self.length)

    def place(self, depth: float) -> int:
        """The first place of a block at this depth of the visible part."""
        start = self.length - self.seen + int(self.seen * depth)
        return min(start // BLOCK * BLOCK, self.length - BLOCK)

    @property
    def answers(self) -> Tensor:
        return torch.tensor(self.function.answers([*self.context, *self.rest])[self.length :])


def read_trial(folder: str | Path) -> RecallTrial:
    """Return the texts for a recall folder, as long as its context allows."""
    value = json.loads((Path(folder) / "recall.json").read_text(encoding="utf-8"))
    about, tokens = value["function"], value["function"]["tokens"]
    function = RecallFunction(
        about["key_length"], about["window"], tokens["none"], tokens["bos"], tokens["eos"], tokens["pad"]
    )
    length = min(LONGEST, value["context"] * 8 // 17 // BLOCK * BLOCK)
    if function.window is not None:  # BOS comes every half window; at the border it would hide positions that are off
        length -= 0 if length % (function.window // 2) else 4 * BLOCK
    whole, other = (_text(function, length, seed) for seed in (5, 6))
    return RecallTrial(function, whole[:length], other[:length], whole[length:])


def _queried(function: RecallFunction, length: int) -> int:
    """How many places at the end of the context are read again after it: all that a window shows."""
    return length - 1 if function.window is None else min(3 * function.window // 4, length - 1)


def _text(function: RecallFunction, length: int, seed: int) -> tuple[int, ...]:
    """A context of `length` tokens, its last places again, more passages that come twice, and random tokens."""
    rng, period = np.random.default_rng(seed), _queried(function, length)
    ids = [function.bos, *rng.integers(FIRST, VOCABULARY, length - 1 - period).tolist()]
    while len(ids) < 2 * length:
        passage = rng.integers(FIRST, VOCABULARY, period).tolist()
        ids += [*passage, *passage]
    fresh = rng.integers(FIRST, VOCABULARY, length // 8).tolist()
    return tuple(anchored(function, [*ids[: 2 * length], *fresh]))


def check_recall_mutants(
    folder: str | Path, progress: Progress = SILENT, types: Sequence[str] = ("float32",)
) -> MutantReport:
    """Run every fault of `recall_faults` on a recall folder.

    Args:
        folder: a folder of the kind `recall`.
        progress: counts the faults.
        types: the types in which tokens are compared.

    Returns:
        The report; the verdict is `tokens` or `survived`.
    """
    decoder, trial = read_decoder(folder), read_trial(folder)
    found: dict[str, dict[str, float]] = {}
    with torch.inference_mode():
        caches = {name: [_read(decoder, name, ids) for ids in (trial.context, trial.other)] for name in types}
        faults = list(recall_faults(decoder, trial, {name: both[1] for name, both in caches.items()}))
        with progress.stage("mutants", total=len(faults)) as stage:
            for fault in faults:
                found[fault.name] = {name: _wrong(decoder, trial, fault, name, caches[name][0]) for name in types}
                stage.advance(1)
    outcomes = []
    for fault in faults:
        shares = found[fault.name]
        verdict = "tokens" if any(shares.values()) else "survived"
        changed = tuple(name for name, share in shares.items() if share)
        outcomes.append(
            MutantOutcome(fault.name, fault.family, fault.harmless, verdict, shares[types[0]], 0.0, changed)
        )
    return MutantReport(decoder.shape.family, tuple(outcomes), tuple(types))


def _read(decoder: StockDecoder, dtype: str, ids: Sequence[int]) -> Cache:
    machine, cache = Machine(decoder, getattr(torch, dtype)).wrap("mix", in_blocks), Cache(len(decoder.layers))
    for piece in in_pieces(ids, CHUNK):
        machine.run(piece, cache)
    return cache


def _wrong(decoder: StockDecoder, trial: RecallTrial, fault: RecallFault, dtype: str, clean: Cache) -> float:
    """The share of incorrect tokens after the context."""
    cache = Cache(len(decoder.layers))
    cache.keys, cache.values, cache.real = _copied(clean.keys), _copied(clean.values), clean.real
    if fault.cache is not None:
        fault.cache(cache)
    machine = Machine(decoder, getattr(torch, dtype))
    for step, change in fault.steps.items():
        machine.wrap(step, change)
    logits = machine.wrap("mix", in_blocks).run(trial.rest, cache)
    wrong = (logits.argmax(1) != trial.answers) | logits.isnan().any(1)
    return float(wrong.double().mean())


def _copied(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if x is None else x.clone() for x in tensors]


def recall_faults(
    decoder: StockDecoder, trial: RecallTrial, others: Mapping[str, Cache] | None = None
) -> Iterator[RecallFault]:
    """Yield every fault that exists for a decoder and its texts.

    Args:
        decoder: of the folder.
        trial: its texts.
        others: type -> the cache of another request.
    """
    yield from _caches(trial, others or {})
    yield from _masks(decoder, trial)
    yield from _softmaxes(trial)
    yield from _positions(decoder, trial)
    yield RecallFault("nothing", "precision", harmless=True)
    yield RecallFault("keys and values of two blocks exchanged", "attention", _each(_moved(trial)), harmless=True)
    for bits in (8, 4):
        name = f"{bits}-bit cache, one scale per token and head"
        yield RecallFault(name, "precision", _each(_quantized(bits)), harmless=True)


def _each(change: Change, only: int | None = None) -> Callable[[Cache], None]:
    def fault(cache: Cache) -> None:
        for depth, (keys, values) in enumerate(zip(cache.keys, cache.values, strict=True)):
            if only in (None, depth):
                change(keys, values)

    return fault


def _caches(trial: RecallTrial, others: Mapping[str, Cache]) -> Iterator[RecallFault]:
    n = trial.length

    def at(depth: float, length: int = BLOCK) -> slice:
        return slice(trial.place(depth), trial.place(depth) + length)

    def zeroed(depth: float) -> Change:
        def change(k: Tensor, v: Tensor) -> None:
            k[:, at(depth)], v[:, at(depth)] = 0, 0

        return change

    def exchanged(k: Tensor, v: Tensor) -> None:
        a, b = at(0.3), at(0.7)
        v[:, a], v[:, b] = v[:, b].clone(), v[:, a].clone()

    def table_off(k: Tensor, v: Tensor) -> None:
        for x in (k, v):
            x[:, trial.place(0.5) : n - BLOCK] = x[:, trial.place(0.5) + BLOCK : n].clone()

    def twice(k: Tensor, v: Tensor) -> None:
        for x in (k, v):
            x[:, slice(at(0.4).start + BLOCK, at(0.4).stop + BLOCK)] = x[:, at(0.4)].clone()

    def one_head(k: Tensor, v: Tensor) -> None:
        for x in (k, v):
            x[-1, at(0.5)] = x[-1, at(0.2)].clone()

    def overwritten(k: Tensor, v: Tensor) -> None:
        place = n - min(100, trial.seen // 3)
        k[:, place], v[:, place] = k[:, n - 1], v[:, n - 1]

    def neighbours_scales(k: Tensor, v: Tensor) -> None:
        """8 bits, one scale per block and head; read with that of the block before and of the next head."""
        for x in (k, v):
            sizes = [part.abs().amax((1, 2)).clamp_min(1e-9) / 127 for part in x.split(BLOCK, 1)]
            for j, part in enumerate(x.split(BLOCK, 1)):
                used = 1.5 * sizes[max(j - 1, 0)].roll(1)
                part.copy_((part / sizes[j][:, None, None]).round() * used[:, None, None])

    def saturated(k: Tensor, v: Tensor) -> None:
        for x in (k, v):
            most = float(x.abs().amax()) / 2
            x.clamp_(-most, most)

    def first_lost(k: Tensor, v: Tensor) -> None:
        k[:, :4], v[:, :4] = 0, 0

    def foreign(cache: Cache) -> None:
        # A type is recognised by its cache's numbers: faults are made before the type is known.
        other = next(c for c in others.values() if _dtype(c) == _dtype(cache))
        for mine, theirs in ((cache.keys, other.keys), (cache.values, other.values)):
            for x, y in zip(mine, theirs, strict=True):
                x[:, at(0.5)] = y[:, at(0.5)]

    def scaled(which: int, factor: float) -> Change:
        def change(k: Tensor, v: Tensor) -> None:
            (k, v)[which][:, at(0.5)] *= factor

        return change

    for depth in (0.05, 0.5):
        yield RecallFault(f"block of 16 zeroed, depth {depth:.0%}", "attention", _each(zeroed(depth)))
    yield RecallFault("block of 16 zeroed in the last layer, depth 80%", "attention", _last(zeroed(0.8)))
    yield RecallFault("values of two blocks exchanged", "attention", _each(exchanged))
    yield RecallFault("block table one too far beyond the middle", "attention", _each(table_off))
    yield RecallFault("one block there twice", "attention", _each(twice))
    yield RecallFault("block of one key-value head stale", "attention", _each(one_head))
    if others:
        yield RecallFault("block of another request", "batch", foreign)
    yield RecallFault("keys of one block times 1/2", "precision", _each(scaled(0, 0.5)))
    yield RecallFault("values of one block times 1/4", "precision", _each(scaled(1, 0.25)))
    yield RecallFault("8-bit cache with the scales of a neighbour", "precision", _each(neighbours_scales))
    yield RecallFault("cache saturates at half the size", "precision", _each(saturated))
    if trial.function.window is None:
        yield RecallFault("first four entries lost (sink)", "attention", _each(first_lost))
    yield RecallFault("new entry written over an old one", "attention", _each(overwritten))


def _dtype(cache: Cache) -> Any:
    first: Tensor = cache.keys[0]
    return first.dtype


def _last(change: Change) -> Callable[[Cache], None]:
    return lambda cache: change(cache.keys[-1], cache.values[-1])


def _moved(trial: RecallTrial) -> Change:
    def change(k: Tensor, v: Tensor) -> None:
        # Not across a border of the window: masks go by places.
        a, b = (trial.place(depth) if trial.function.window is None else trial.length - by for depth, by in
                ((0.3, 2 * BLOCK), (0.7, BLOCK)))  # fmt: skip
        for x in (k, v):
            first = x[:, a : a + BLOCK].clone()
            x[:, a : a + BLOCK], x[:, b : b + BLOCK] = x[:, b : b + BLOCK].clone(), first

    return change


def _quantized(bits: int) -> Change:
    def change(k: Tensor, v: Tensor) -> None:
        for x in (k, v):
            size = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) / (2 ** (bits - 1) - 1)
            x.copy_((x / size).round() * size)

    return change


def _masks(decoder: StockDecoder, trial: RecallTrial) -> Iterator[RecallFault]:
    n, seen, last = trial.length, trial.seen, len(decoder.layers) - 1

    def masked(name: str, rule: Callable[[Tensor, Tensor], Tensor]) -> RecallFault:
        """Keys j that query i sees, beside the window."""

        def visible(step: Callable[..., Tensor], rows: Tensor, columns: Tensor, real: Tensor, window: Any) -> Tensor:
            found = rule(rows, columns) & real[None]
            return found if window is None else found & (rows - columns < window)

        return RecallFault(name, "attention", steps={"visible": visible})

    yield masked("chunk sees only itself", lambda i, j: (j <= i) & (j >= n))
    yield masked("chunk masked from the wrong corner", lambda i, j: (j <= i - n) | (j == i))
    yield masked("last block before the chunk unseen", lambda i, j: (j <= i) & ((j < n - BLOCK) | (j >= n)))
    # The last query of a block is given no key after its own.
    yield RecallFault(
        "the next token is seen", "attention", steps={"visible": lambda step, i, *rest: step(i + 1, *rest)}
    )
    size = seen // 3
    yield RecallFault(f"window of {size} in all layers", "attention", steps={"window": lambda step, depth: size})
    yield RecallFault(
        f"window of {size} in one layer", "attention",
        steps={"window": lambda step, depth: size if depth == last else step(depth)},
    )  # fmt: skip
    if trial.function.window is None:
        newest = seen // 6
        yield masked(f"sink and newest {newest} only", lambda i, j: (j <= i) & ((j > i - newest) | (j < 4)))
    start, end = n - seen + seen // 4, n - seen + seen // 2
    yield masked("one rank's quarter of the keys unseen", lambda i, j: (j <= i) & ((j < start) | (j >= end)))
    middle = trial.place(0.5)
    yield masked("one split of 64 keys lost", lambda i, j: (j <= i) & ((j < middle) | (j >= middle + UNSEEN)))


def _softmaxes(trial: RecallTrial) -> Iterator[RecallFault]:
    middle = trial.place(0.5)

    def merged(scores: Tensor, v: Tensor) -> Tensor:
        """Each part subtracts its own maximum; numerators and denominators are added as they are."""
        top, bottom = torch.zeros(1), torch.zeros(1)
        for part in (slice(None, middle), slice(middle, None)):
            e = (scores[..., part] - scores[..., part].amax(-1, keepdim=True)).exp().nan_to_num()
            top, bottom = top + e @ v[:, part], bottom + e.sum(-1, keepdim=True)
        return top / bottom

    def averaged(scores: Tensor, v: Tensor) -> Tensor:
        a, b = (torch.softmax(scores[..., p], -1).nan_to_num() @ v[:, p] for p in (slice(middle), slice(middle, None)))
        return (a + b) / 2

    def unshifted(scores: Tensor, v: Tensor) -> Tensor:
        e = scores.half().exp()
        return (e / e.sum(-1, keepdim=True)).float().nan_to_num() @ v

    def softened(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> RecallFault:
        # `weights` keeps the masked scores for `product`, which adds up in the type that the machine uses for sums.
        kept = list[Tensor]()

        def weights(step: Callable[..., Tensor], scores: Tensor, seen: Tensor) -> Tensor:
            kept.append(scores.float().masked_fill(~seen, -torch.inf))
            return step(scores, seen)

        def product(step: Callable[..., Tensor], a: Tensor, b: Tensor) -> Tensor:
            return function(kept.pop(), b.float()).to(a.dtype) if kept else step(a, b)

        return RecallFault(name, "attention", steps={"weights": weights, "product": product})

    yield softened("split-KV merged without rescaling", merged)
    yield softened("split-KV parts averaged", averaged)
    yield softened("softmax without maximum, in float16", unshifted)
    yield RecallFault("block-sparse, 8 best blocks by mean key", "attention", steps={"mix": _sparse})
    for factor in (0.9, 0.5):
        scale = lambda step, attention, factor=factor: factor * step(attention)  # noqa: E731
        yield RecallFault(f"scores times {factor}", "attention", steps={"scale": scale})


def _sparse(
    step: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, rows: Tensor, attention: StockAttention, depth: int,
    real: Tensor,
) -> Tensor:  # fmt: skip
    """Only the 8 blocks whose mean keys score best, and the newest 64 tokens: other keys lose all weight."""
    blocks = torch.nn.functional.pad(k, (0, 0, 0, -k.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK)).mean(2)
    best = (q @ blocks.transpose(1, 2)).topk(min(8, blocks.shape[1]), -1).indices
    keep = torch.zeros(*q.shape[:2], blocks.shape[1], dtype=torch.bool).scatter_(2, best, True)
    keep = keep.repeat_interleave(BLOCK, 2)[..., : k.shape[1]]
    columns = torch.arange(k.shape[1])
    keep |= columns > rows[:, None] - UNSEEN
    parts = []
    for i in range(len(rows)):  # a row at a time: every query has keys of its own
        some = keep[:, i].any(0)
        parts.append(step(q[:, i : i + 1], k, v, rows[i : i + 1], attention, depth, real & some))
    return torch.cat(parts, 1)


def _positions(decoder: StockDecoder, trial: RecallTrial) -> Iterator[RecallFault]:
    n, most = trial.length, trial.length + len(trial.rest) - 1

    def moved(name: str, change: Callable[[Tensor], Tensor]) -> RecallFault:
        steps = {"positions": lambda step, real, start: change(step(real, start)).clamp(0, decoder.shape.positions - 1)}
        return RecallFault(name, "positions", steps=steps)

    yield moved("chunk counts positions from 0", lambda p: p - n)
    yield moved("chunk's positions one block early", lambda p: p - BLOCK)
    yield moved("chunk's positions one late", lambda p: p + 1)
    yield moved("positions stop at half the context", lambda p: p.clamp(max=n - trial.seen + (most - n) // 2))
