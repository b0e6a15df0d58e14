"""Enclosures contain the true numbers, decide when they can, and report when they cannot."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from byheart.errors import NotRationalError
from byheart.exact import dyadic
from byheart.exact.number import Values
from byheart.ir.enclose import UNDECIDED, decided_answers, enclosed_answers, enclosed_outputs
from byheart.ir.evaluate import answers
from byheart.ir.layers import Affine, Attention, Head, Kind, Matrix, Pattern, Residual
from byheart.ir.network import Decode, Inputs, Network, Read, Readout

pytest.importorskip("flint", reason="needs byheart[rigor]")


def draw(rng: random.Random, rows: int, columns: int) -> Matrix:
    return Matrix.of_dense([[dyadic(rng.randint(-16, 16), -4) for _ in range(columns)] for _ in range(rows)])


def random_network(rng: random.Random, pattern: Pattern, depth: int) -> Network:
    layers = []
    for _ in range(depth):
        heads = tuple(Head(draw(rng, 2, 3), draw(rng, 3, 2), draw(rng, 2, 3), draw(rng, 2, 3)) for _ in range(2))
        layers += [
            Attention(Kind.SOFTMAX, pattern, heads),
            Residual(draw(rng, 4, 3), (1, -1, 0, 1), draw(rng, 3, 4), (0, 0, 1)),
        ]
    return Network((*layers, Affine(draw(rng, 2, 3), (0, 1))), Read.EACH, Readout(Decode.ARGMAX, 2))


def floats(matrix: Matrix) -> np.ndarray:
    return np.array([[float(w) for w in row] for row in matrix.dense()])


def float_outputs(network: Network, tokens: np.ndarray) -> np.ndarray:
    z = tokens.copy()  # (n, m)
    n = len(z)
    for layer in network.layers:
        if isinstance(layer, Attention):
            connected = np.tril(np.ones((n, n), bool)) if layer.pattern is Pattern.CAUSAL else np.ones((n, n), bool)
            added = np.zeros_like(z)
            for head in layer.heads:
                scores = (z @ floats(head.query).T) @ (z @ floats(head.key).T).T
                shares = np.where(connected, np.exp(scores), 0.0)
                shares /= shares.sum(axis=1, keepdims=True)
                added += shares @ z @ floats(head.value).T @ floats(head.output).T
            z = z + added
        elif isinstance(layer, Residual):
            hidden = np.maximum(z @ floats(layer.weight1).T + np.array(layer.bias1, float), 0)
            z = z + hidden @ floats(layer.weight2).T + np.array(layer.bias2, float)
        else:
            z = z @ floats(layer.weight).T + np.array(layer.bias, float)
    return z


@pytest.mark.parametrize("pattern", [Pattern.FULL, Pattern.CAUSAL])
@pytest.mark.parametrize("depth", [1, 2])
def test_floats_lie_close_to_the_enclosures(pattern, depth):
    rng = random.Random(f"{pattern} {depth}")
    network = random_network(rng, pattern, depth)
    points = [[rng.randint(-8, 8) for _ in range(3)] for _ in range(5)]
    inputs = Inputs(Values.of(points, 8), np.array([[0, 1, 2], [3, 3, 4], [4, 0, 0]]))
    for bits in (60, 200):
        found = enclosed_outputs(network, inputs, bits)
        assert all(0 < r < Fraction(1, 2 ** (bits // 2)) for r in found.radii)
        for row, places in enumerate(found.state.index):
            expected = float_outputs(network, np.array(points)[inputs.index[row]] / 8)
            for token, place in enumerate(places):
                got = [float(x) for x in found.state.points.row(place)]
                assert got == pytest.approx(expected[token].tolist(), abs=1e-9)


def test_more_bits_give_smaller_radii_around_the_same_numbers():
    network = random_network(random.Random(3), Pattern.FULL, 2)
    inputs = Inputs(Values.of([[1, 2, -3], [0, 5, 1]], 4), np.array([[0, 1]]))
    coarse, fine = (enclosed_outputs(network, inputs, bits) for bits in (80, 400))
    for place in range(2):
        pairs = zip(coarse.state.points.row(place), fine.state.points.row(place), coarse.radii, fine.radii, strict=True)
        assert all(abs(a - b) <= r + s and s < r for a, b, r, s in pairs)


def mean_of_exponentials() -> Network:
    """One head on one number: the softmax mean of the tokens; logits compare it with 1/2."""
    one = Matrix.of([{0: 1}], 1)
    return Network(
        (
            Attention(Kind.SOFTMAX, Pattern.FULL, (Head(one, one, one, one),)),
            Affine(Matrix.of([{}, {0: 2}], 1), (1, 0)),
        ),
        Read.LAST,
        Readout(Decode.ARGMAX, 2),
    )


def test_a_known_value():
    network = mean_of_exponentials()
    inputs = Inputs(Values.of([[0], [1]]), np.array([[0, 1]]))
    with pytest.raises(NotRationalError):
        answers(network, inputs)
    found = enclosed_outputs(network, inputs, 300)
    true = 1 + math.e / (1 + math.e)  # the token itself, and the mean of 0 and 1 with weights 1 and e
    assert float(found.state.points.row(0)[1]) == pytest.approx(2 * true, rel=1e-15)
    assert decided_answers(network, inputs).tolist() == [1]


def test_a_tie_is_undecided_and_no_answer():
    tied = Network(
        (*mean_of_exponentials().layers[:1], Affine(Matrix.of([{0: 1}, {0: 1}], 1), (0, 0))),
        Read.LAST,
        Readout(Decode.ARGMAX, 2),
    )
    inputs = Inputs(Values.of([[0], [1]]), np.array([[0, 1]]))
    found, bits = enclosed_answers(tied, inputs)
    assert found.tolist() == [UNDECIDED] and bits > 96
    assert decided_answers(tied, inputs).tolist() == [-1]


def test_hardmax_behind_softmax_is_not_decided():
    one = Matrix.of([{0: 1}], 1)
    soft = mean_of_exponentials().layers
    hard = Attention(Kind.HARDMAX, Pattern.FULL, (Head(one, one, one, one),))
    network = Network((soft[0], hard, soft[1]), Read.LAST, Readout(Decode.ARGMAX, 2))
    with pytest.raises(NotRationalError, match="hardmax after softmax"):
        enclosed_answers(network, Inputs(Values.of([[0], [1]]), np.array([[0, 1]])))
