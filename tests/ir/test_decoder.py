"""M24's decoder in float64, against its formula written out token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest

from byheart.errors import DataError, NetworkError
from byheart.ir.decoder import Activation, AttentionHead, Average, ContextReader, Decoder, SelfAttention, log_softmax

RNG = np.random.default_rng(0)
TOKENS = np.array([[0, 2, 1], [1, -1, -1], [2, 2, -1]])
EMBEDDING, POSITIONS = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
HEADS = tuple(AttentionHead(*(RNG.standard_normal((4, r)) for r in (2, 2, 3))) for _ in range(2))


@pytest.mark.parametrize("skip", [False, True])
def test_attention_is_eq_2(skip):
    reader = ContextReader(EMBEDDING, SelfAttention(POSITIONS, HEADS, RNG.standard_normal((6, 4))), skip)
    for row, found in zip(TOKENS, reader.mixed(TOKENS), strict=True):
        z = np.array([EMBEDDING[t] + POSITIONS[k] for k, t in enumerate(row[row >= 0])])
        parts = []
        for head in HEADS:
            weights = np.exp((z @ head.key) @ (z[-1] @ head.query))
            parts.append((weights / weights.sum()) @ z @ head.value)
        expected = np.concatenate(parts) @ reader.mixer.output + (z[-1] if skip else 0)
        assert found == pytest.approx(expected)


def test_averaging_weighs_by_position():
    weights = np.array([0.5, 0.25, 2.0])
    found = ContextReader(EMBEDDING, Average(weights)).mixed(TOKENS)
    for row, mean in zip(TOKENS, found, strict=True):
        assert mean == pytest.approx(sum(weights[k] * EMBEDDING[t] for k, t in enumerate(row) if t >= 0))


@pytest.mark.parametrize("tokens", [[[-1, 0, 0]], [[0, -1, 1]], [[3, 0, 0]], [[0, 0, 0, 0]]])
def test_contexts_of_another_form_are_refused(tokens):
    with pytest.raises(DataError, match="contexts"):
        ContextReader(EMBEDDING, Average(np.ones(3))).mixed(np.array(tokens))


@pytest.mark.parametrize("kind", list(Activation))
def test_an_activation_on_a_ball_encloses_its_value(kind):
    pytest.importorskip("flint", reason="needs byheart[rigor]")
    from byheart.exact.rigor import ball, lower_float, upper_float

    for x in (-3.0, -0.1, 0.0, 0.7, 5.0):
        value = float(kind(np.array([x]))[0])
        enclosed = kind.ball(ball(x))
        assert lower_float(enclosed) - 1e-12 <= value <= upper_float(enclosed) + 1e-12
    if kind.saturates:
        assert tuple(kind(np.array([-60.0, 60.0]))) == pytest.approx(kind.step, abs=0.02)


def test_factors_of_the_output_are_multiplied_and_matrices_are_checked():
    reader = ContextReader(EMBEDDING, Average(np.ones(3)))
    hidden, bias = RNG.standard_normal((4, 5)), RNG.standard_normal(5)
    left, right = RNG.standard_normal((5, 2)), RNG.standard_normal((2, 3))
    factored = Decoder(reader, hidden, bias, Activation.TANH, (left, right))
    whole = Decoder(reader, hidden, bias, Activation.TANH, (left @ right,))
    assert factored.logits(TOKENS) == pytest.approx(whole.logits(TOKENS))
    assert factored.parameters == whole.parameters - 15 + 10 + 6
    assert np.exp(log_softmax(whole.logits(TOKENS))).sum(axis=1) == pytest.approx(np.ones(3))
    with pytest.raises(NetworkError, match="do not fit together"):
        Decoder(reader, hidden, bias, Activation.TANH, (right,))
    with pytest.raises(NetworkError, match="finite float64"):
        Decoder(reader, hidden * math.nan, bias, Activation.TANH, (left @ right,))
