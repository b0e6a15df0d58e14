"""How large a network is, counted as KS25 counts.

A `Claim` holds a theorem's guaranteed bounds, as data that the checker compares with measured sizes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from byheart.errors import FileFormatError
from byheart.exact import bit_length
from byheart.ir.decoder import SelfAttention
from byheart.ir.decoder_network import AnyNetwork, DecoderNetwork, TableDecoder
from byheart.ir.json_form import counts, expect, only, take, texts
from byheart.ir.layers import Affine, Attention, Embedding, Flatten, GlobalToken, Layer, Pool, Residual, Threshold
from byheart.ir.network import Network
from byheart.paper import PAPERS, Ref

FEED_FORWARD = Affine | Threshold | Residual
# Of a decoder's weight.
FLOAT_BITS = 64


@dataclass(frozen=True)
class Size:
    """Measured numbers of a network.

    parameters: every entry of every weight matrix and bias as the architecture stores it (dense);
    nonzero: the entries that are not zero; max_bits: KS25's bit complexity; total_bits: the sum of bit lengths;
    width: max(m, sH, q) over hidden streams, heads and hidden layers; depth: plain layers + residual blocks +
    attention layers, without E_in and E_out (KS25 counts a block of eq. (4) as one);
    blocks: blocks of eq. (4), an attention layer sharing the block of the feed-forward layer after it;
    embedding_parameters: the part of `parameters` that is an embedding table.
    """

    parameters: int
    nonzero: int
    max_bits: int
    total_bits: int
    width: int
    depth: int
    blocks: int
    attention_layers: int
    embedding_parameters: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def size_from_json(value: Any) -> Size:
    """The size that a file records: a statement to compare with the result of `measure`."""
    only(value, "size", *(part.name for part in fields(Size)))
    return Size(**{part.name: take(value, part.name, int) for part in fields(Size)})


def measure(network: AnyNetwork) -> Size:
    """The size of a network, from its weights alone."""
    if isinstance(network, DecoderNetwork):
        return _decoder_size(network)
    bits = weight_bits(network)
    inner = inner_layers(network)
    feed_forward = sum(isinstance(layer, FEED_FORWARD) for layer in inner)
    attention = sum(isinstance(layer, Attention) for layer in inner)
    alone = sum(
        isinstance(layer, Attention) and not (i + 1 < len(inner) and isinstance(inner[i + 1], FEED_FORWARD))
        for i, layer in enumerate(inner)
    )
    return Size(
        parameters=sum(layer.parameters for layer in network.layers),
        nonzero=len(bits),
        max_bits=max(bits, default=0),
        total_bits=sum(bits),
        width=max(_width(layer) for layer in inner) if inner else 1,
        depth=feed_forward + attention,
        blocks=feed_forward + alone,
        attention_layers=attention,
        embedding_parameters=sum(layer.parameters for layer in network.layers if isinstance(layer, Embedding)),
    )


def weight_bits(network: AnyNetwork) -> list[int]:
    """The bit length of every weight that is not zero; a decoder's weights are float64 numbers, 64 bits each."""
    if isinstance(network, DecoderNetwork):
        decoder = network.decoder
        inner = weight_bits(decoder.network) if isinstance(decoder, TableDecoder) else []
        return inner + [FLOAT_BITS] * sum(int(np.count_nonzero(matrix)) for matrix in decoder.matrices)
    return [bit_length(w) for layer in network.layers for w in layer.weights()]


def _decoder_size(network: DecoderNetwork) -> Size:
    """One block: the mixer and the hidden layer after it; the embedding and V are E_in and E_out."""
    decoder, bits = network.decoder, weight_bits(network)
    if isinstance(decoder, TableDecoder):
        inner = measure(decoder.network)
        return replace(
            inner,
            parameters=decoder.parameters,
            nonzero=len(bits),
            max_bits=max(bits, default=0),
            total_bits=sum(bits),
            width=max(inner.width, len(decoder.columns)),
            depth=inner.depth + 1,
        )
    mixer = decoder.reader.mixer
    attention = isinstance(mixer, SelfAttention)
    heads = len(mixer.output) if isinstance(mixer, SelfAttention) else 0
    return Size(
        parameters=decoder.parameters,
        nonzero=len(bits),
        max_bits=FLOAT_BITS,
        total_bits=sum(bits),
        width=max(decoder.reader.dimension, heads, decoder.neurons),
        depth=1 + attention,
        blocks=1,
        attention_layers=int(attention),
        embedding_parameters=decoder.reader.embedding.size,
    )


def uniform_parameters(network: AnyNetwork) -> int | None:
    """The same network as KS25's eq. (4) stores it: every block with attention, all blocks of one shape.

    W = md + L(4msH + 2mq + q + m) + m (E_in, L blocks, E_out) with the largest stream m, head size s, number of heads H
    and hidden size q that any layer has; an attention layer shares the block of the feed-forward layer after it. None
    for networks that are not of that form: plain layers without skip connections, embedding tables, flattened rows,
    decoders.
    """
    if isinstance(network, DecoderNetwork):
        return None
    inner = inner_layers(network)
    blocks = [layer for layer in inner if isinstance(layer, Residual | Attention)]
    others = [layer for layer in inner if not isinstance(layer, Residual | Attention | GlobalToken | Pool)]
    first = network.layers[0]
    if others or not blocks or not isinstance(first, Affine):
        return None
    attention = [layer for layer in blocks if isinstance(layer, Attention)]
    m = max(layer.width_in for layer in blocks)
    s = max((len(head.value.rows) for layer in attention for head in layer.heads), default=1)
    heads = max((len(layer.heads) for layer in attention), default=1)
    q = max((layer.hidden for layer in blocks if isinstance(layer, Residual)), default=1)
    per_block = 4 * m * s * heads + 2 * m * q + q + m
    return m * first.width_in + measure(network).blocks * per_block + m


def inner_layers(network: Network) -> tuple[Layer, ...]:
    """The layers between E_in (or the embedding) and E_out: a linear first and a linear last layer are those maps.

    A row that is flattened before anything else happens to it is the network's input.
    """
    layers = network.layers
    start = int(isinstance(layers[0], Flatten))
    first = layers[start] if start < len(layers) else None
    if isinstance(first, Embedding) or (isinstance(first, Affine) and not first.relu):
        start += 1
    if isinstance(first, Embedding) and start < len(layers) and isinstance(layers[start], Flatten):
        start += 1
    last = len(layers) > 1 and isinstance(layers[-1], Affine) and not layers[-1].relu
    return layers[start : len(layers) - int(last)]


def _width(layer: Layer) -> int:
    """max(m, sH, q) of one layer; a plain layer's input is its neighbour's business."""
    if isinstance(layer, Attention):
        return max(layer.width_in, layer.head_width)
    if isinstance(layer, Residual):
        return max(layer.width_in, layer.hidden)
    return layer.width_out


@dataclass(frozen=True)
class Claim:
    """A guaranteed bound: a network of at most this width, depth, … memorizes the data.

    `bounds` maps a field of `Size` to the largest value the theorem allows, computed before anything is built from the
    construction's formula and the data, never from the network; empty where a construction guarantees no size.
    `formulas` explains each number in words. `properties` names further guarantees that the checker must
    prove by its own means, such as "exact in any order: float64".
    """

    ref: Ref
    bounds: dict[str, int] = field(default_factory=dict)
    formulas: dict[str, str] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = sorted(set(self.bounds) - SIZES)
        if unknown:
            raise FileFormatError(f"a bound on {unknown[0][:40]!r} is claimed; sizes are {', '.join(sorted(SIZES))}")

    @property
    def limit(self) -> str:
        """How to name the bounds: "guaranteed" by a paper's theorem, or a tuned "budget" of byheart's constructions.

        >>> Claim(Ref("KS25", "Theorem B.1")).limit, Claim(Ref("byheart", "compact memory")).limit
        ('guaranteed', 'budget')
        """
        return "budget" if self.ref.paper == "byheart" else "guaranteed"

    def broken_by(self, size: Size) -> list[str]:
        """Sentences for every bound that `size` exceeds; empty when every bound holds."""
        measured = size.as_dict()
        return [
            f"{name} is {measured[name]:,}, more than the guaranteed {bound:,}"
            for name, bound in self.bounds.items()
            if measured[name] > bound
        ]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "paper": self.ref.paper,
            "label": self.ref.label,
            "bounds": self.bounds,
            "formulas": self.formulas,
            "assumptions": list(self.assumptions),
            "properties": list(self.properties),
        }

    @staticmethod
    def from_dict(value: Any) -> Claim:
        """The claim that a file records: a statement to be compared with the theorem, nothing more."""
        only(value, "claim", "paper", "label", "bounds", "formulas", "assumptions", "properties")
        if take(value, "paper", str) not in PAPERS:
            raise FileFormatError(f"unknown paper {value['paper']!r}; a newer byheart may have written this file")
        return Claim(
            Ref(value["paper"], take(value, "label", str)),
            bounds=counts(value, "bounds"),
            formulas=texts(value, "formulas"),
            assumptions=tuple(expect(text, str) for text in take(value, "assumptions", list)),
            properties=tuple(expect(text, str) for text in take(value, "properties", list)),
        )


SIZES = {part.name for part in fields(Size)}
