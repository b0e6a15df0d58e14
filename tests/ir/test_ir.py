"""Evaluation of whole networks against a naive one that follows the formulas of KS25 token by token."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from byheart.errors import NetworkError, NotRationalError
from byheart.exact.number import Values
from byheart.ir import evaluate
from byheart.ir.layers import (
    Affine,
    Attention,
    Embedding,
    GlobalToken,
    Head,
    Kind,
    Matrix,
    Pattern,
    Place,
    Pool,
    Residual,
)
from byheart.ir.network import Decode, Inputs, Network, Read, Readout


def apply(matrix, x):
    return [sum(Fraction(int(w)) * x[j] for j, w in row) for row in matrix.rows]


def naive(layers, tokens):
    """One sequence of streams (lists of Fractions) through the layers."""
    z = [list(map(Fraction, t)) for t in tokens]
    for layer in layers:
        if isinstance(layer, Affine):
            z = [
                [a + (layer.bias or [0] * len(layer.weight.rows))[i] for i, a in enumerate(apply(layer.weight, x))]
                for x in z
            ]
            z = [[max(v, Fraction(0)) for v in x] for x in z] if layer.relu else z
        elif isinstance(layer, Residual):
            h = [
                [max(a + b, Fraction(0)) for a, b in zip(apply(layer.weight1, x), layer.bias1, strict=True)] for x in z
            ]
            z = [
                [a + b + c for a, b, c in zip(x, apply(layer.weight2, y), layer.bias2, strict=True)]
                for x, y in zip(z, h, strict=True)
            ]
        elif isinstance(layer, Embedding):
            z = [[Fraction(v) for v in layer.table.dense()[int(x[0])]] for x in z]
        elif isinstance(layer, GlobalToken):
            hub = [Fraction(v) for v in layer.stream]
            z = [hub, *z] if layer.place is Place.START else [*z, hub]
        elif isinstance(layer, Pool):
            z = [[sum(x[c] for x in z) for c in range(layer.width)]]
        else:
            z = naive_attention(layer, z)
    return z


def naive_attention(layer, z):
    n, out = len(z), [list(x) for x in z]
    for head in layer.heads:
        values = [apply(head.output, apply(head.value, x)) for x in z]
        for k in range(n):
            keys = {
                Pattern.FULL: range(n),
                Pattern.CAUSAL: range(k + 1),
                Pattern.STAR_IN: range(n) if k == n - 1 else [k],
                Pattern.STAR_OUT: [k] if k == n - 1 else [k, n - 1],
            }[layer.pattern]
            score = {j: 0 for j in keys}
            if head.key is not None:
                query = apply(head.query, z[k])
                score = {j: sum(a * b for a, b in zip(apply(head.key, z[j]), query, strict=True)) for j in keys}
            best = [j for j in keys if score[j] == max(score.values())]
            for c in range(len(z[0])):
                out[k][c] += Fraction(sum(values[j][c] for j in best)) / len(best)
    return out


def random_matrix(rng, rows, columns):
    return Matrix.of([{j: rng.randint(-3, 3) for j in range(columns)} for _ in range(rows)], columns)


def random_layers(rng, kind, pattern):
    m = 3
    zero_scores = kind is not Kind.HARDMAX or rng.random() < 0.5
    key = Matrix.zero(2, m) if zero_scores else random_matrix(rng, 2, m)
    scores = () if kind is Kind.UNIFORM else (key, random_matrix(rng, 2, m))
    heads = tuple(Head(random_matrix(rng, 2, m), random_matrix(rng, m, 2), *scores) for _ in range(rng.randint(1, 2)))
    star = pattern in (Pattern.STAR_IN, Pattern.STAR_OUT)
    return (
        Affine(random_matrix(rng, m, 2), tuple(rng.randint(-2, 2) for _ in range(m)), rng.random() < 0.5),
        *([GlobalToken((1, 0, -2))] if star else []),
        Attention(kind, pattern, heads),
        Residual(random_matrix(rng, 4, m), (1, -1, 0, 2), random_matrix(rng, m, 4), (0, 1, 0)),
        Affine(random_matrix(rng, 1, m)),
    )


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("pattern", list(Pattern))
@pytest.mark.parametrize("read", [Read.LAST, Read.EACH])
def test_networks_equal_the_formulas(kind, pattern, read):
    rng = random.Random(f"{kind}{pattern}{read}")
    for _ in range(4):
        layers = random_layers(rng, kind, pattern)
        network = Network(layers, read, Readout(Decode.VALUE, 5))
        points = Values.of([[rng.randint(-4, 4), rng.randint(-4, 4)] for _ in range(4)], rng.choice([1, 3, 4]))
        lengths = [rng.randint(1, 5) for _ in range(6)]
        index = np.array([[rng.randrange(4) if k < n else -1 for k in range(5)] for n in lengths], dtype=np.int64)
        state = evaluate.outputs(network, Inputs(points, index))
        for row, n, got in zip(index, lengths, state.index, strict=True):
            expected = [x[0] for x in naive(layers, [points.row(j) for j in row[:n]])][:n]
            wanted = expected[-1:] if read is Read.LAST else expected
            assert [state.points.row(j)[0] for j in got if j >= 0] == wanted


def test_a_first_token_lets_a_causal_mean_count():
    one = Matrix.of([{0: 1}], 1)
    layers = (
        Affine(one),
        GlobalToken((10,), Place.START),
        Attention(Kind.UNIFORM, Pattern.CAUSAL, (Head(one, one),)),
        Affine(Matrix.of([{0: 12}], 1)),
    )
    network = Network(layers, Read.EACH, Readout(Decode.VALUE, 1000))
    points, index = Values.of([[2], [3]]), np.array([[0, 0, 0], [0, 1, -1]], dtype=np.int64)
    state = evaluate.outputs(network, Inputs(points, index))
    for row, n, got in zip(index, (3, 2), state.index, strict=True):
        expected = [x[0] for x in naive(layers, [points.row(j) for j in row[:n]])][1:]
        assert [state.points.row(j)[0] for j in got if j >= 0] == expected
    assert len({state.points.row(j)[0] for j in state.index[0]}) == 3


def test_pooling_adds_and_order_does_not_matter():
    layers = (Affine(Matrix.of([{0: 2}, {0: 1}], 1), (1, 0), True), Pool(2), Affine(Matrix.of([{0: 1, 1: 10}], 2)))
    network = Network(layers, Read.POOLED, Readout(Decode.VALUE, 1000))
    points = Values.of([[1], [2], [5]])
    index = np.array([[0, 1, 2], [2, 1, 0], [1, -1, -1]], dtype=np.int64)
    assert evaluate.answers(network, Inputs(points, index)).tolist() == [99, 99, 25]


def test_embedding_reads_rows_of_its_table():
    table = Embedding(Matrix.of([{0: 7}, {1: 3}, {}], 2))
    network = Network((table, Affine(Matrix.of([{0: 1, 1: 2}], 2))), Read.EACH, Readout(Decode.VALUE, 10))
    index = np.array([[0, 1, 2]], dtype=np.int64)
    assert evaluate.answers(network, Inputs(Values.of([[0], [1], [2]]), index)).tolist() == [[7, 6, 0]]
    with pytest.raises(NetworkError, match="token id 3"):
        evaluate.answers(network, Inputs(Values.of([[3]]), np.array([[0]], dtype=np.int64)))


def test_logits_pick_the_largest_and_a_tie_is_no_answer():
    network = Network((Affine(Matrix.of([{0: 1}, {0: -1}], 1)),), Read.EACH, Readout(Decode.ARGMAX, 2))
    inputs = Inputs(Values.of([[4], [-4], [0]]), np.array([[0, 1, 2]], dtype=np.int64))
    assert evaluate.answers(network, inputs).tolist() == [[0, 1, -1]]


def test_softmax_of_unequal_scores_is_not_rational():
    one = Matrix.of([{0: 1}], 1)
    network = Network(
        (Attention(Kind.SOFTMAX, Pattern.FULL, (Head(one, one, one, one),)),), Read.LAST, Readout(Decode.VALUE, 2)
    )
    inputs = Inputs(Values.of([[1], [2]]), np.array([[0, 1]], dtype=np.int64))
    with pytest.raises(NotRationalError, match="row 0, token 0"):
        evaluate.answers(network, inputs)


def test_chunks_join_to_the_same_answer(monkeypatch):
    rng = random.Random(5)
    network = Network(random_layers(rng, Kind.UNIFORM, Pattern.FULL), Read.EACH, Readout(Decode.VALUE, 5))
    points = Values.of([[k, k * k] for k in range(6)])
    index = np.array([[rng.randrange(6) for _ in range(3)] for _ in range(20)], dtype=np.int64)
    whole = evaluate.outputs(network, Inputs(points, index))
    monkeypatch.setattr(evaluate, "CHUNK", 7)
    parts = evaluate.outputs(network, Inputs(points, index))
    assert [[whole.points.row(j) for j in r] for r in whole.index] == [
        [parts.points.row(j) for j in r] for r in parts.index
    ]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((), "at least one layer"),
        ((Affine(Matrix.zero(2, 1)), Affine(Matrix.zero(1, 3))), "gives 2 numbers"),
        ((Affine(Matrix.zero(2, 1)),), "read from one number"),
        ((Pool(1),), "go together"),
    ],
)
def test_layers_that_do_not_fit(layers, message):
    with pytest.raises(NetworkError, match=message):
        Network(layers, Read.LAST, Readout(Decode.VALUE, 2))


def test_a_star_needs_its_hub():
    head = Head(Matrix.zero(1, 1), Matrix.zero(1, 1))
    with pytest.raises(NetworkError, match="GlobalToken"):
        Network((Attention(Kind.UNIFORM, Pattern.STAR_IN, (head,)),), Read.LAST, Readout(Decode.VALUE, 2))


def test_scores_beyond_machine_integers_are_compared_exactly():
    """Scores of 2^70 and -2^70 are both 0 in 64 bits: the last token would share its attention with the first."""
    big = 1 << 35
    head = Head(Matrix.of([{1: 1}], 2), Matrix.of([{}, {0: 1}], 1), Matrix.of([{0: 1}], 2), Matrix.of([{0: 1}], 2))
    layers = (Attention(Kind.HARDMAX, Pattern.FULL, (head,)), Affine(Matrix.of([{1: 1}], 2)))
    network = Network(layers, Read.EACH, Readout(Decode.VALUE, 9))
    points = Values.of([[big, 3], [big + 1, 5], [-big, 7]])
    state = evaluate.outputs(network, Inputs(points, np.array([[0, 1, 2]], dtype=np.int64)))
    assert [state.points.row(j)[0] for j in state.index[0]] == [3 + 5, 5 + 5, 7 + 7]
