"""A network: layers that fit together, and how its output is read as a label.

`Inputs` are its inputs: distinct input vectors, and which of them each token is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from byheart.errors import NetworkError
from byheart.exact.number import Values
from byheart.ir.layers import (
    Affine,
    Attention,
    Embedding,
    Flatten,
    GlobalToken,
    Layer,
    Pattern,
    Pool,
    Residual,
    Threshold,
)

Index = npt.NDArray[np.int64]
# Instead of a point or a class.
ABSENT = -1


@dataclass(frozen=True, eq=False)
class Inputs:
    """N sequences of at most n tokens: token k of row i is `points` row `index[i, k]`, or absent where that is -1.

    Absent positions are at the end of a row. Equal tokens share a point, so they are evaluated once.
    """

    points: Values  # (P, d)
    index: Index  # (N, n)

    def __post_init__(self) -> None:
        if self.index.ndim != 2 or self.index.dtype != np.int64:
            raise NetworkError("Inputs needs a two-dimensional int64 index")

    @property
    def lengths(self) -> Index:
        return np.asarray((self.index >= 0).sum(axis=1), dtype=np.int64)

    def rows(self, start: int, stop: int) -> Inputs:
        return Inputs(self.points, self.index[start:stop])


class Read(StrEnum):
    """Which tokens' outputs are answers."""

    LAST = "last"  # next-token: the last token of the sequence
    EACH = "each"  # seq-to-seq, causal: every token
    POOLED = "pooled"  # the one token that pooling (or flattening) leaves


class Decode(StrEnum):
    """How an output vector becomes a class index."""

    VALUE = "value"  # the output is one number: class = value - offset
    ARGMAX = "argmax"  # the outputs are logits: class = index of the largest (a tie is not an answer)


@dataclass(frozen=True)
class Readout:
    """Output -> class index in [0, classes); anything outside is not a class (an abstention)."""

    decode: Decode
    classes: int
    offset: int = 0


@dataclass(frozen=True)
class Network:
    """Layers from input vectors (or ids, when the first layer is an `Embedding`) to outputs.

    `stages` names runs of layers for display: (name, number of layers), adding up to all of them.
    """

    layers: tuple[Layer, ...]
    read: Read
    readout: Readout
    stages: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise NetworkError("a network needs at least one layer")
        for place, (before, after) in enumerate(zip(self.layers, self.layers[1:], strict=False)):
            if before.width_out != after.width_in:
                raise NetworkError(
                    f"layer {place} ({type(before).__name__}) gives {before.width_out} numbers, "
                    f"layer {place + 1} ({type(after).__name__}) reads {after.width_in}"
                )
            if isinstance(after, Embedding):
                raise NetworkError(f"layer {place + 1} is an embedding; only the first layer may be one")
        pooled = any(isinstance(layer, Pool | Flatten) for layer in self.layers)
        if pooled != (self.read is Read.POOLED):
            raise NetworkError("reading the pooled token and a pooling or flattening layer go together")
        self._check_global_token()
        if self.readout.decode is Decode.VALUE and self.layers[-1].width_out != 1:
            raise NetworkError(
                f"the answer is read from one number, but the last layer has {self.layers[-1].width_out}"
            )
        if self.readout.decode is Decode.ARGMAX and self.layers[-1].width_out != self.readout.classes:
            raise NetworkError(f"{self.readout.classes} classes need as many logits, not {self.layers[-1].width_out}")
        counts = [count for _, count in self.stages]
        if counts and (min(counts) < 0 or sum(counts) != len(self.layers)):
            raise NetworkError("the stages must cover every layer once")

    def _check_global_token(self) -> None:
        """One at most, before anything is pooled; star patterns come after it, because they refer to it."""
        hubs = [place for place, layer in enumerate(self.layers) if isinstance(layer, GlobalToken)]
        pools = [place for place, layer in enumerate(self.layers) if isinstance(layer, Pool | Flatten)]
        if len(hubs) > 1 or (hubs and pools and hubs[0] > pools[0]):
            raise NetworkError("a network has one GlobalToken layer at most, before it pools or flattens")
        stars = (Pattern.STAR_IN, Pattern.STAR_OUT)
        for place, layer in enumerate(self.layers):
            if isinstance(layer, Attention) and layer.pattern in stars and not (hubs and hubs[0] < place):
                raise NetworkError("a star pattern needs a GlobalToken layer before it")

    @property
    def width_in(self) -> int:
        return self.layers[0].width_in

    @property
    def attention_layers(self) -> tuple[Attention, ...]:
        return tuple(layer for layer in self.layers if isinstance(layer, Attention))

    @property
    def feed_forward(self) -> tuple[Affine | Threshold | Residual, ...]:
        return tuple(layer for layer in self.layers if isinstance(layer, Affine | Threshold | Residual))
