"""What a mutant is, and two ways to make one: wrap a step of the machine, or change the decoder that it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.decoder import Layer
from byheart.checkpoints.suite.machine import Machine

# What a fault is about; every list uses these names.
FAMILIES = ("attention", "batch", "blocks", "mlp", "norms", "positions", "precision", "wiring")


@dataclass(frozen=True)
class Mutant:
    """An engine with one fault.

    Attributes:
        name: A short description of the fault.
        family: One of FAMILIES.
        make: Builds the machine with the fault.
        harmless: A change that engines may make, which a test must survive.
    """

    name: str
    family: str
    make: Callable[[], Machine]
    harmless: bool = False


def wrapped(decoder: StockDecoder, **changes: Callable[..., Any]) -> Callable[[], Machine]:
    """A machine whose steps are wrapped: `change(old step, *arguments)`."""

    def make() -> Machine:
        machine = Machine(decoder)
        for step, change in changes.items():
            machine.wrap(step, change)
        return machine

    return make


def changed(decoder: StockDecoder, **fields: Any) -> Callable[[], Machine]:
    """A machine for a decoder with other fields."""
    return lambda: Machine(replace(decoder, **fields))


def each_layer(
    decoder: StockDecoder, change: Callable[[Layer], Layer], only: int | None = None
) -> Callable[[], Machine]:
    """A machine for a decoder whose layers (or only one of them) are changed."""
    layers = tuple(change(layer) if only in (None, i) else layer for i, layer in enumerate(decoder.layers))
    return changed(decoder, layers=layers)
