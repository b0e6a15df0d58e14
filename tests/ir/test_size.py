"""Sizes as KS25 counts them, by hand on networks that fit on a napkin."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from byheart.errors import FileFormatError
from byheart.ir.layers import Affine, Attention, Embedding, Flatten, Head, Kind, Matrix, Pattern, Residual
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.ir.size import Claim, inner_layers, measure, size_from_json, uniform_parameters, weight_bits
from byheart.paper import Ref

ONE = Matrix.of([{0: 1}], 1)


def head(stream: int, size: int) -> Head:
    zero, wide = Matrix.zero(size, stream), Matrix.of([{0: 3}] * size, stream)
    return Head(wide, Matrix.of([{0: -1}] * stream, size), zero, zero)


def transformer(heads: int = 3, size: int = 2) -> Network:
    """E_in, attention and a block on a stream of 4, E_out."""
    layers = (
        Affine(Matrix.of([{0: 1}, {1: 5}, {}, {}], 2)),
        Attention(Kind.SOFTMAX, Pattern.FULL, (head(4, size),) * heads),
        Residual(Matrix.of([{0: 1}, {1: -7}, {2: 1}], 4), (0, 1, 0), Matrix.of([{0: 1}, {}, {}, {}], 3), (0, 0, 0, 0)),
        Affine(Matrix.of([{0: 1}], 4)),
    )
    return Network(layers, Read.LAST, Readout(Decode.VALUE, 2))


def test_a_transformer_counted_by_hand():
    size = measure(transformer())
    assert asdict(size) == {
        "parameters": 4 * 2 + 3 * (4 * 2 * 4) + (3 * 4 + 3 + 4 * 3 + 4) + 4,
        "nonzero": 2 + 3 * (2 + 4) + (3 + 1 + 1) + 1,
        "max_bits": 3,
        "total_bits": (1 + 3) + 3 * (2 * 2 + 4 * 1) + (1 + 3 + 1 + 1 + 1) + 1,
        "width": 6,  # three heads of two: s·H is more than the stream and the hidden layer
        "depth": 2,
        "blocks": 1,  # the attention shares the block of the layer after it
        "attention_layers": 1,
        "embedding_parameters": 0,
    }
    assert measure(transformer(heads=1)).width == 4
    assert len(weight_bits(transformer())) == size.nonzero
    m, s, heads, q = 4, 2, 3, 3
    assert uniform_parameters(transformer()) == m * 2 + (4 * m * s * heads + 2 * m * q + q + m) + m
    assert size_from_json(size.as_dict()) == size


def test_ends_are_not_counted_as_depth():
    table = Embedding(Matrix.of([{0: 1}, {0: 2}], 1))
    hidden, out = Affine(Matrix.of([{0: 1}, {1: 1}], 2), (0, 0), relu=True), Affine(Matrix.of([{0: 1}], 2))
    network = Network((table, Flatten(2, 1), hidden, out), Read.POOLED, Readout(Decode.VALUE, 2))
    assert inner_layers(network) == (hidden,), "the table, the flattened row and E_out are ends"
    size = measure(network)
    assert (size.depth, size.width, size.embedding_parameters) == (1, 2, 2)
    assert uniform_parameters(network) is None


def test_a_guarantee_is_broken_by_one_more():
    claim = Claim(Ref("KS25", "Theorem 4.1"), bounds={"width": 6, "depth": 2})
    assert claim.broken_by(measure(transformer())) == []
    assert claim.broken_by(measure(transformer(heads=4))) == ["width is 8, more than the guaranteed 6"]
    with pytest.raises(FileFormatError, match="a bound on 'weight' is claimed"):
        Claim(Ref("KS25", "Theorem 4.1"), bounds={"weight": 6})
