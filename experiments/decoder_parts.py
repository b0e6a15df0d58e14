"""Every part of a decoder, changed a little, one at a time: which of them does a fixture depend on?

A part is a tensor, a head's queries, keys, values or columns of the output, a rotary frequency, a branch of a layer.
Each is multiplied by `FACTOR`; the fixture covers it if a token or a shipped logit changes. A fault of an engine that
no table names spoils some of these parts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.decoder import Layer
from byheart.checkpoints.suite.machine import Tensor
from byheart.checkpoints.suite.mutants._base import Mutant, changed, each_layer, wrapped

FACTOR = 1.2


def parts(decoder: StockDecoder) -> Iterator[Mutant]:
    """One mutant per part; the family names the kind of part."""
    for depth, layer in enumerate(decoder.layers):
        for path in _tensors(layer):
            make = each_layer(decoder, lambda layer, path=path: _scaled(layer, path), only=depth)
            yield Mutant(f"{'.'.join(path)} of layer {depth}", "tensors", make, _invisible(decoder, path))
        yield from _heads(decoder, depth)
        for branch in ("attention", "mlp"):
            yield Mutant(
                f"{branch} branch of layer {depth}", "branches", wrapped(decoder, layer=_branch(branch, depth))
            )
    for path in _tensors(decoder.final_norm):
        norm = _scaled(decoder.final_norm, path)
        yield Mutant(f"final norm {path[-1]}", "tensors", changed(decoder, final_norm=norm))
    yield Mutant("embedding", "tensors", changed(decoder, embedding=np.float32(FACTOR) * decoder.embedding))
    yield Mutant("head", "tensors", changed(decoder, head=_scaled(decoder.head, ("weight",))))
    if decoder.positions is not None:
        yield Mutant("positions", "tensors", changed(decoder, positions=np.float32(FACTOR) * decoder.positions))
    rotary = decoder.shape.rotary
    for index in range(0 if rotary is None else rotary.dims // 2):
        yield Mutant(f"frequency {index}", "frequencies", wrapped(decoder, frequencies=_frequency(index)))


def _invisible(decoder: StockDecoder, path: tuple[str, ...]) -> bool:
    """A key's bias adds the same number to all scores of a query, which softmax does not see, unless keys turn; a norm
    of queries and keys removes their size."""
    attention = decoder.layers[0].attention
    normed = path in (("attention", "q", "weight"), ("attention", "k", "weight")) and attention.q_norm is not None
    return normed or (path == ("attention", "k", "bias") and decoder.shape.rotary is None)


def _tensors(value: Any, front: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in fields(value):
        part = getattr(value, field.name)
        if isinstance(part, np.ndarray) and field.name in ("weight", "bias") and part.any():
            yield (*front, field.name)
        elif isinstance(part, tuple):
            for number in range(len(part)):
                yield from _tensors(part[number], (*front, field.name, str(number)))
        elif is_dataclass(part) and not isinstance(part, type):
            yield from _tensors(part, (*front, field.name))


def _scaled(value: Any, path: tuple[str, ...]) -> Any:
    name, rest = path[0], path[1:]
    if isinstance(value, tuple):
        number = int(name)
        return (*value[:number], _scaled(value[number], rest), *value[number + 1 :])
    part = getattr(value, name)
    return replace(value, **{name: np.float32(FACTOR) * part if not rest else _scaled(part, rest)})


def _heads(decoder: StockDecoder, depth: int) -> Iterator[Mutant]:
    attention = decoder.layers[depth].attention
    d, heads, groups = decoder.shape.head_dim, decoder.shape.heads, decoder.shape.kv_heads
    for part, count in (("q", heads), ("k", groups), ("v", groups), ("o", heads)):
        for head in range(count):
            rows = slice(head * d, (head + 1) * d)

            def change(layer: Layer, part: str = part, rows: slice = rows) -> Layer:
                old = getattr(layer.attention, part)
                weight, bias = old.weight.copy(), None if old.bias is None else old.bias.copy()
                if part == "o":
                    weight[:, rows] *= FACTOR
                else:
                    weight[rows] *= FACTOR
                    if bias is not None:
                        bias[rows] *= FACTOR
                changes: dict[str, Any] = {part: replace(old, weight=weight, bias=bias)}
                return replace(layer, attention=replace(layer.attention, **changes))

            normed = part in "qk" and attention.q_norm is not None  # a head's norm removes its size
            yield Mutant(
                f"{part} of head {head}, layer {depth}", "heads", each_layer(decoder, change, only=depth), normed
            )


def _branch(branch: str, depth: int) -> Callable[..., Tensor]:
    def layer(step: Callable[..., Tensor], h: Tensor, at: int, positions: Tensor, cache: Any) -> Tensor:
        machine = step.__self__  # type: ignore[attr-defined]
        if at != depth:
            return step(h, at, positions, cache)
        mixed = (FACTOR if branch == "attention" else 1.0) * machine.attention_branch(h, at, positions, cache)
        after = machine.add(h, mixed, "attention")
        inner = (FACTOR if branch == "mlp" else 1.0) * machine.mlp_branch(h if machine.shape.parallel else after, at)
        return machine.add(after, inner, "mlp")

    return layer


def _frequency(index: int) -> Callable[..., Tensor]:
    return lambda step, rotary: step(rotary) * torch.where(torch.arange(rotary.dims // 2) == index, FACTOR, 1.0)
