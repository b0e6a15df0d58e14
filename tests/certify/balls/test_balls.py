"""The enclosures: float64 balls must contain what arb finds at high precision, and sabotage must show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byheart.build.madden24.construction import Features, closed_form
from byheart.build.madden24.fit import DecoderShape, MixerKind
from byheart.certify.balls.arb import ArbBalls, logit_balls
from byheart.certify.balls.floats import RANGES, FloatBalls, function_table
from byheart.certify.next_token import prove_gap
from byheart.errors import OptionError
from byheart.exact.rigor import ball, flint, precision
from byheart.ir.decoder import Activation, Decoder
from tests.corpora import Corpus, given_distributions, random_texts


def contained(found: FloatBalls, exact: ArbBalls) -> bool:
    """Whether every ball of high precision lies within the float64 ball."""
    pairs = zip(found.mid.ravel(), found.rad.ravel(), exact.entries.ravel(), strict=True)
    return all(bool(abs(x - ball(float(m))) <= ball(float(r))) for m, r, x in pairs if np.isfinite(r))


@pytest.mark.parametrize("name", list(RANGES))
def test_tables_enclose_their_function(name: str) -> None:
    low, high = RANGES[name]
    rng = np.random.default_rng(0)
    edges = low + np.arange(int((high - low) * 64)) / 64  # the ends of the cells
    x = np.concatenate([rng.uniform(low, high, 400), rng.uniform(-1e-8, 1e-8, 20), rng.choice(edges, 100), [low, high]])
    value, radius = function_table(name).enclose(x)
    with precision(300):
        for a, m, r in zip(x.tolist(), value.tolist(), radius.tolist(), strict=True):
            exact = ball(a).exp() if name == "exp" else Activation(name).ball(ball(a))
            assert abs(exact - ball(m)) <= ball(r)
    assert (radius <= 4e-15 * np.maximum(1, np.abs(value))).all()


@pytest.mark.parametrize("activation", list(Activation))
def test_activated_balls(activation: Activation) -> None:
    rng = np.random.default_rng(1)
    mid = np.concatenate(
        [rng.normal(0, 8, 300), rng.normal(0, 1e6, 50), [0.0, -0.0, 19.999, -20.0, 1e12, -1e12, 1e-300]]
    )
    rad = np.concatenate([10.0 ** rng.uniform(-16, 1.5, len(mid) - 7), np.zeros(7)])
    found = FloatBalls(mid, rad).activated(activation)
    with precision(300):
        for place in (-1.0, -0.3, 0.0, 0.7, 1.0):
            exact = np.empty(len(mid), dtype=object)
            exact[:] = [
                activation.ball(ball(float(m)) + ball(float(place)) * ball(float(r)))
                for m, r in zip(mid, rad, strict=True)
            ]
            assert contained(found, ArbBalls(exact))


def test_arithmetic_of_float_balls() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 6, 5)) * 10.0 ** rng.integers(-8, 8, (2, 6, 5))
    matrix = rng.normal(size=(5, 7)) * 10.0 ** rng.integers(-8, 8, (5, 7))
    x, y = FloatBalls.exact(a), FloatBalls.exact(b)
    with precision(400):
        u, v = ArbBalls.exact(a), ArbBalls.exact(b)
        assert (
            contained(x + y, u + v) and contained(x - y, u - v) and contained(x * y, u * v) and contained(x / y, u / v)
        )
        assert contained(((x * y) / (x - y)).sum(axis=1), ((u * v) / (u - v)).sum(axis=1))
        assert contained((x * y).times(matrix), (u * v).times(matrix))
        assert contained(
            FloatBalls.exact(np.array([-70.0, -63.5, -1.0, 0.5])).exp(),
            ArbBalls.exact(np.array([-70.0, -63.5, -1.0, 0.5])).exp(),
        )


def test_division_by_a_ball_around_zero_knows_nothing() -> None:
    quotient = FloatBalls.exact(np.array([1.0])) / FloatBalls(np.array([1e-9]), np.array([1e-8]))
    assert quotient.rad[0] == np.inf


@pytest.mark.parametrize("mixer", list(MixerKind))
@pytest.mark.parametrize("activation", list(Activation))
@pytest.mark.parametrize("skip", [False, True])
def test_logits_of_decoders(corpus: Corpus, mixer: MixerKind, activation: Activation, skip: bool) -> None:
    contexts = corpus.contexts()
    shape = DecoderShape(mixer, activation, 6, 2 if mixer is MixerKind.ATTENTION else 1, skip)
    decoder = closed_form(contexts, shape, features=Features.DIRECTIONS).decoder
    for length in (1, 2):
        tokens = contexts.tokens[contexts.lengths == length][:, :length]
        found = logit_balls(decoder, tokens, FloatBalls)
        with precision(200):
            assert contained(found, logit_balls(decoder, tokens, ArbBalls))
        assert np.abs(found.mid - decoder.logits(tokens)).max() < 1e-9 and found.rad.max() < 1e-7


def _nudged(decoder: Decoder, by: float) -> Decoder:
    output = decoder.output[0].copy()
    output[0, 0] += by
    return replace(decoder, output=(output, *decoder.output[1:]))


def test_sabotage_is_refuted(corpus: Corpus) -> None:
    contexts = corpus.contexts()
    decoder = closed_form(contexts).decoder
    assert prove_gap(_nudged(decoder, 1e-9), contexts).verdict == "proved"
    broken = prove_gap(_nudged(decoder, 40.0), contexts)
    assert broken.verdict == "refuted" and broken.gap_lower > broken.allowed and "at least" in broken.reason
    swapped = replace(contexts, pair_token=(contexts.pair_token + 1) % contexts.vocabulary_size)
    assert prove_gap(decoder, swapped).verdict == "refuted"


def test_float_balls_agree_with_arb_balls(corpus: Corpus) -> None:
    contexts = corpus.contexts()
    decoder = _nudged(closed_form(contexts).decoder, 0.5)
    fast = prove_gap(decoder, contexts)
    exact = 0
    with precision(128):
        for i in range(contexts.count):
            logits = logit_balls(decoder, contexts.tokens[i : i + 1, : contexts.lengths[i]], ArbBalls).entries[0]
            log_mass = sum((x.exp() for x in logits), flint().arb(0)).log()
            pairs = contexts.pair_context == i
            for token, weight in zip(contexts.pair_token[pairs], contexts.pair_weight[pairs], strict=True):
                share = ball(float(weight)) / ball(float(contexts.weights[i]))
                exact = exact + ball(float(weight)) * (log_mass - logits[token] + share.log())
        assert ball(fast.gap_lower) <= exact <= ball(fast.gap_upper)


def test_the_gap_just_inside_and_just_outside(corpus: Corpus) -> None:
    """A bound between the two ends of the float64 enclosure sends the checker to arb, which decides."""
    contexts = corpus.contexts()
    decoder = _nudged(closed_form(contexts).decoder, 0.5)
    wide = prove_gap(decoder, contexts)
    middle = (wide.gap_lower + wide.gap_upper) / 2 / wide.entropy
    narrow = prove_gap(decoder, contexts, fraction=middle)
    assert narrow.verdict in ("proved", "refuted") and "arb" in narrow.arithmetic
    assert narrow.gap_upper - narrow.gap_lower < (wide.gap_upper - wide.gap_lower) / 10


def test_undecided_when_the_ceiling_is_low(corpus: Corpus) -> None:
    contexts = corpus.contexts()
    decoder = _nudged(closed_form(contexts).decoder, 0.5)
    wide = prove_gap(decoder, contexts)
    middle = (wide.gap_lower + wide.gap_upper) / 2 / wide.entropy
    stuck = prove_gap(decoder, contexts, fraction=middle, ceiling=0)
    assert stuck.verdict == "undecided" and "too wide" in stuck.reason


def test_wild_weights_never_prove_what_is_false() -> None:
    """Attention scores beyond any exp, and neurons far outside the tables."""
    rng = np.random.default_rng(3)
    corpus = Corpus.of_texts(random_texts(12, 5, 4, seed=6))
    contexts = corpus.contexts()
    decoder = closed_form(contexts, DecoderShape(dimension=3), features=Features.DIRECTIONS).decoder
    reader = replace(decoder.reader, embedding=decoder.reader.embedding * 1e4)
    wild = replace(decoder, reader=reader, hidden=decoder.hidden * rng.normal(size=decoder.hidden.shape))
    certificate = prove_gap(wild, contexts)
    loss = contexts.cross_entropy(wild.log_probabilities(contexts.tokens)) - contexts.entropy
    assert certificate.verdict == "refuted"
    assert certificate.gap_lower <= loss * (1 + 1e-9) and loss <= certificate.gap_upper * (1 + 1e-9)


def test_open_labels_are_decided_by_arb() -> None:
    """Logits that differ by less than float64 balls can distinguish."""
    contexts = given_distributions([(0,), (1,)], [{0: 1.0}, {1: 1.0}], vocabulary_size=2)
    decoder = closed_form(contexts).decoder
    output = np.array([[1.0, 1.0], [1.0, 1.0 - 2.0**-53]])
    right, wrong = (prove_gap(replace(decoder, output=(V,)), contexts) for V in (output, output[:, ::-1].copy()))
    assert {(c.labels_proved, c.labels_refuted) for c in (right, wrong)} == {(2, 0), (0, 2)}
    assert "2 labels with arb balls" in right.arithmetic


def test_too_much_work_is_said(corpus: Corpus, monkeypatch) -> None:
    monkeypatch.setattr("byheart.certify.next_token.WORK", 10)
    contexts = corpus.contexts()
    decoder = _nudged(closed_form(contexts).decoder, 0.5)
    wide = prove_gap(decoder, contexts)
    middle = (wide.gap_lower + wide.gap_upper) / 2 / wide.entropy
    stuck = prove_gap(decoder, contexts, fraction=middle)
    assert stuck.verdict == "undecided" and "too many for arb balls" in stuck.reason


def test_documents_without_entropy() -> None:
    """Every context has one continuation: the gap is then allowed per predicted token."""
    corpus = Corpus.of_texts(["a b c", "a b c"])
    contexts = corpus.contexts()
    certificate = prove_gap(closed_form(contexts).decoder, contexts)
    assert contexts.entropy == 0 and certificate.allowed == pytest.approx(0.04) and certificate.verdict == "proved"


def test_options(corpus: Corpus) -> None:
    contexts = corpus.contexts()
    decoder = closed_form(contexts).decoder
    with pytest.raises(OptionError, match="must be positive"):
        prove_gap(decoder, contexts, fraction=0)
    other = given_distributions([(0,)], [{0: 1.0}], vocabulary_size=2)
    with pytest.raises(ValueError, match="2 tokens"):
        prove_gap(decoder, other)
