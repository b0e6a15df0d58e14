"""What a lemma promises about its network, and a network with its promise.

>>> Promise(width=2, depth=2, bits=4).broken_by(Promise(width=2, depth=3, bits=4))
['depth is 3, more than the promised 2']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from byheart.exact import bit_length
from byheart.ir.layers import Affine, Residual


@dataclass(frozen=True)
class Promise:
    """Largest width, depth and bit complexity that a lemma allows, from its formula."""

    width: int
    depth: int
    bits: int

    def broken_by(self, measured: Promise) -> list[str]:
        """Sentences for whatever is larger than promised."""
        found = asdict(measured)
        return [f"{k} is {found[k]}, more than the promised {v}" for k, v in asdict(self).items() if found[k] > v]


@dataclass(frozen=True)
class Gadget:
    """Layers that map the wires `inputs` to the wires `outputs`, with what the lemma promises about them."""

    layers: tuple[Affine, ...] | tuple[Residual, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    promise: Promise


def measured(layers: Sequence[Affine | Residual]) -> Promise:
    """Width, depth and bit complexity of layers as they are: what a promise is compared with."""
    return Promise(
        width=max((_width(layer) for layer in layers), default=0),
        depth=len(layers),
        bits=max((bit_length(w) for layer in layers for w in layer.weights()), default=0),
    )


def _width(layer: Affine | Residual) -> int:
    return layer.width_out if isinstance(layer, Affine) else max(layer.width_in, layer.hidden)
