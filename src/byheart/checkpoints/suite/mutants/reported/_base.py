"""How a reported fault becomes mutants: everywhere, only in the last layer, and only while decoding.

Faults in the wild are seldom everywhere: a kernel for decoding differs from the one for prompts, and one layer has a
window or its own base. So a change of a step is tried in every scope in which it can occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.decoder import Layer
from byheart.checkpoints.suite.machine import Cache, Machine, Tensor
from byheart.checkpoints.suite.mutants._base import Mutant

Change = Callable[..., Any]  # (machine, old step, *arguments) -> what the step gives
EVERYWHERE, LAST, DECODING = "", ", in the last layer", ", while decoding"
ALL = (EVERYWHERE, LAST, DECODING)


class Watched(Machine):
    """A machine that records its position: the layer, and the tokens of this pass and before it."""

    depth, start, count = 0, 0, 0

    def run(self, ids: Sequence[int], cache: Cache | None = None, padding: int = 0) -> Tensor:
        cache = Cache(len(self.decoder.layers)) if cache is None else cache
        self.start, self.count = len(cache), len(ids)
        return super().run(ids, cache, padding)

    def layer(self, h: Tensor, depth: int, positions: Tensor, cache: Cache) -> Tensor:
        self.depth = depth
        return super().layer(h, depth, positions, cache)

    @property
    def decoding(self) -> bool:
        """One token after others, as the kernel for decoding sees it."""
        return self.start > 0 and self.count == 1

    @property
    def last(self) -> bool:
        return self.depth == len(self.decoder.layers) - 1


class Chunked(Watched):
    """Reads prompts in chunks of 256, as engines do with long ones; `chunk` is the number of the present one."""

    longest, chunk = 256, 0

    def run(self, ids: Sequence[int], cache: Cache | None = None, padding: int = 0) -> Tensor:
        cache = Cache(len(self.decoder.layers)) if cache is None else cache
        if len(ids) == 1:
            return super().run(ids, cache, padding)
        rows = []
        for at in range(0, len(ids), self.longest):
            self.chunk = at // self.longest
            rows.append(super().run(ids[at : at + self.longest], cache, max(0, padding - at)))
        return torch.cat(rows)


def faults(
    decoder: StockDecoder,
    name: str,
    family: str,
    scopes: Sequence[str] = (EVERYWHERE,),
    machine: type[Watched] = Watched,
    harmless: bool = False,
    **changes: Change,
) -> Iterator[Mutant]:
    """One mutant for every scope; `changes` are steps and what becomes of them."""
    for scope in scopes:
        yield Mutant(name + scope, family, partial(_make, decoder, machine, scope, changes), harmless)


def _make(decoder: StockDecoder, kind: type[Watched], scope: str, changes: dict[str, Change]) -> Machine:
    machine = kind(decoder)
    for step, change in changes.items():
        machine.wrap(step, partial(_scoped, machine, change, scope))
    return machine


def _scoped(machine: Watched, change: Change, scope: str, old: Callable[..., Any], *args: Any) -> Any:
    inside = {EVERYWHERE: True, LAST: machine.last, DECODING: machine.decoding}[scope]
    return change(machine, old, *args) if inside else old(*args)


def stored(decoder: StockDecoder, name: str, family: str, change: Callable[[Layer], Layer]) -> Iterator[Mutant]:
    """Weights of the layers that were loaded wrongly: in all of them, and in the last one."""
    last = len(decoder.layers) - 1
    for scope in (EVERYWHERE, LAST):
        layers = tuple(change(x) if scope == EVERYWHERE or i == last else x for i, x in enumerate(decoder.layers))
        yield Mutant(name + scope, family, partial(Machine, replace(decoder, layers=layers)))
