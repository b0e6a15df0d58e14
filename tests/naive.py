"""An evaluator that a reader can check by eye: Fractions, one vector at a time. The oracle of the fast ones."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from byheart.exact import Number, as_fraction
from byheart.ir.layers import Affine, Layer, Matrix, Residual

Stream = list[Fraction]


def exact(values: Sequence[Number | Fraction]) -> Stream:
    return [v if isinstance(v, Fraction) else as_fraction(v) for v in values]


def apply(matrix: Matrix, x: Stream, bias: Sequence[Number] | None = None) -> Stream:
    out = []
    for place, row in enumerate(matrix.rows):
        total = as_fraction(bias[place]) if bias is not None else Fraction(0)
        out.append(total + sum((as_fraction(w) * x[j] for j, w in row), Fraction(0)))
    return out


def relu(x: Stream) -> Stream:
    return [max(v, Fraction(0)) for v in x]


def run(layers: Sequence[Layer], x: Sequence[Number | Fraction]) -> Stream:
    """Token-wise layers on one vector."""
    z = exact(x)
    for layer in layers:
        if isinstance(layer, Affine):
            z = apply(layer.weight, z, layer.bias)
            z = relu(z) if layer.relu else z
        elif isinstance(layer, Residual):
            hidden = relu(apply(layer.weight1, z, layer.bias1))
            z = [a + b for a, b in zip(z, apply(layer.weight2, hidden, layer.bias2), strict=True)]
        else:
            raise TypeError(layer)
    return z
