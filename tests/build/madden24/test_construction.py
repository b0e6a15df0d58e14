"""Theorems 5 and 7: any distributions, any activation, either mixer, down to the last context."""

from __future__ import annotations

import numpy as np
import pytest

import byheart
from byheart.build.madden24.construction import TELLABLE, Features, closed_form, sampled_condition
from byheart.build.madden24.fit import DecoderShape, MixerKind, target_logits
from byheart.certify.next_token import prove_gap
from byheart.data.dataset.targets import Distributions
from byheart.errors import BuildError, OptionError
from byheart.ir.decoder import Activation
from byheart.theory.madden import OneLayerDecoder as Counted
from tests.corpora import Corpus, given_distributions, random_texts

ALL = [(mixer, activation) for mixer in MixerKind for activation in Activation]


def probabilities(contexts: Distributions) -> np.ndarray:
    return contexts.matrix() / contexts.weights[:, None]


@pytest.mark.parametrize(("mixer", "activation"), ALL)
@pytest.mark.parametrize("skip", [False, True])
def test_awkward_documents(corpus: Corpus, mixer: MixerKind, activation: Activation, skip: bool) -> None:
    contexts = corpus.contexts()
    fit = closed_form(contexts, DecoderShape(mixer, activation, skip=skip))
    assert fit.decoder.neurons == contexts.count
    found = np.exp(fit.decoder.log_probabilities(contexts.tokens))
    assert np.abs(found - probabilities(contexts)).max() < 1e-8
    certificate = prove_gap(fit.decoder, contexts, fraction=1e-3)
    assert certificate.verdict == "proved" and certificate.labels_proved == contexts.count


@pytest.mark.parametrize(("mixer", "activation"), ALL)
@pytest.mark.parametrize(("documents", "vocabulary"), [(40, 2), (30, 40)])
def test_vocabularies(mixer: MixerKind, activation: Activation, documents: int, vocabulary: int) -> None:
    corpus = Corpus.of_texts(random_texts(documents, vocabulary, 6, seed=3))
    contexts = corpus.contexts()
    fit = closed_form(contexts, DecoderShape(mixer, activation))
    certificate = prove_gap(fit.decoder, contexts, fraction=1e-3)
    assert certificate.verdict == "proved", certificate.reason
    # what remains of the gap is what the floor costs
    loss = contexts.cross_entropy(fit.decoder.log_probabilities(contexts.tokens))
    assert loss - contexts.entropy == pytest.approx(fit.floor_excess, abs=1e-6)
    assert (
        certificate.gap_lower <= fit.floor_excess * (1 + 1e-6) + 1e-6
        and fit.floor_excess <= certificate.gap_upper + 1e-6
    )


def test_five_thousand_tokens() -> None:
    texts = given_distributions(
        [(k,) for k in range(50)], [{k + 1: 1.0, 4999 - k: 3.0} for k in range(50)], vocabulary_size=5000
    )
    fit = closed_form(texts)
    assert prove_gap(fit.decoder, texts, fraction=1e-3).verdict == "proved"


def test_arbitrary_distributions() -> None:
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(5), size=30)
    weights = [dict(enumerate(row.tolist())) for row in rows]
    contexts = given_distributions([(i % 5, i // 5) for i in range(30)], weights, 6)
    fit = closed_form(contexts)
    assert np.abs(np.exp(fit.decoder.log_probabilities(contexts.tokens)) - probabilities(contexts)).max() < 1e-8


@pytest.mark.parametrize(("dimension", "heads"), [(1, 1), (4, 1), (8, 2), (5, 3)])
@pytest.mark.parametrize("features", [Features.STEPS, Features.DIRECTIONS])
def test_heads_and_dimensions_are_free(corpus: Corpus, dimension: int, heads: int, features: Features) -> None:
    contexts = corpus.contexts()
    if features is Features.DIRECTIONS and dimension < 4:
        dimension = 4
    shape = DecoderShape(MixerKind.ATTENTION, Activation.TANH, dimension, heads)
    fit = closed_form(contexts, shape, features=features)
    assert prove_gap(fit.decoder, contexts, fraction=1e-3).verdict == "proved"


def test_parameters_are_those_of_theorems_5_and_7(corpus: Corpus) -> None:
    contexts = corpus.contexts()
    counted = Counted(omega=len(corpus.vocabulary), length=contexts.tokens.shape[1], neurons=contexts.count)
    assert closed_form(contexts).decoder.parameters == counted.parameters
    average = closed_form(contexts, DecoderShape(MixerKind.AVERAGE))
    assert average.decoder.parameters == counted.averaging_parameters


@pytest.mark.parametrize("activation", [Activation.TANH, Activation.SIGMOID, Activation.ARCTAN])
def test_condition_number_grows_like_the_number_of_contexts(activation: Activation) -> None:
    for documents in (20, 80):
        corpus = Corpus.of_texts(random_texts(documents, 30, 6, seed=4))
        fit = closed_form(corpus.contexts(), DecoderShape(activation=activation))
        assert fit.condition < 2 * fit.decoder.neurons and fit.residual < 1e-11


@pytest.mark.parametrize(("mixer", "activation"), ALL)
@pytest.mark.parametrize("scaled", [True, False])
def test_the_papers_algorithm_as_written(mixer: MixerKind, activation: Activation, scaled: bool) -> None:
    """Sample all of θ, scale, solve: proved at d = 16, and every entry of W, b, Z, … is a draw."""
    contexts = Corpus.of_texts(random_texts(30, 30, 6, seed=4)).contexts()
    shape = DecoderShape(mixer, activation, dimension=16, heads=2 if mixer is MixerKind.ATTENTION else 1)
    fit = closed_form(contexts, shape, features=Features.SAMPLED, scaled=scaled)
    assert contexts.count > 80 and fit.decoder.neurons == contexts.count and fit.condition < 1e13
    assert prove_gap(fit.decoder, contexts, fraction=1e-3).verdict == "proved"
    drawn = (*fit.decoder.reader.matrices, fit.decoder.hidden, fit.decoder.bias)
    assert all(len(np.unique(matrix)) == matrix.size for matrix in drawn)
    inner = fit.decoder.reader.mixed(contexts.tokens) @ fit.decoder.hidden + fit.decoder.bias
    if scaled:
        assert np.abs(inner).max() < activation.radius
    elif activation is Activation.TANH:
        assert np.abs(inner).max() > activation.radius  # step 2 is not needed, and not taken here


def test_the_draw_on_a_line_is_singular() -> None:
    """The reduction of Theorem 5's proof, d = 1: independent for generic θ, and not for float64."""
    contexts = Corpus.of_texts(random_texts(30, 30, 6, seed=4)).contexts()
    with pytest.raises(BuildError, match="condition number"):
        closed_form(contexts, DecoderShape(dimension=1), features=Features.SAMPLED)


def test_no_condition_number_beyond_what_float64_can_tell() -> None:
    """There NumPy gives 10^19 for matrices of 10^158 and more."""
    contexts = Corpus.of_texts(random_texts(30, 30, 6, seed=4)).contexts()
    assert sampled_condition(contexts, 1) == np.inf
    assert 1 < sampled_condition(contexts, 16) < TELLABLE


def test_more_dimensions_make_the_draw_better_conditioned() -> None:
    contexts = Corpus.of_texts(random_texts(30, 30, 6, seed=4)).contexts()
    middle = []
    for dimension in (8, 16, 64):
        fits = (
            closed_form(contexts, DecoderShape(dimension=dimension), features=Features.SAMPLED, seed=k)
            for k in range(5)
        )
        middle.append(np.median([fit.condition for fit in fits]))
    assert middle[0] > 3 * middle[1] > 9 * middle[2]


@pytest.mark.parametrize("options", [{}, {"heads": 3, "dimension": 12}, {"mixer": "average"}, {"activation": "gelu"}])
def test_the_sampled_decoder_keeps_its_guarantee(options: dict[str, object]) -> None:
    texts = random_texts(8, 12, 5, seed=1)
    memory = byheart.memorize(texts, construction="madden24", features="sampled", **options)
    assert memory.certificate.verdict.value == "proved"
    assert memory.claim.bounds["parameters"] == memory.size.parameters
    assert "all of θ sampled" in " ".join(memory.notes)


def test_sampled_features_belong_to_the_closed_form() -> None:
    with pytest.raises(OptionError, match="objective=closed-form"):
        byheart.memorize(["a b", "a c"], construction="madden24", features="sampled", objective="size")


def test_floor_costs_what_it_says(corpus: Corpus) -> None:
    contexts = corpus.contexts()
    logits, excess = target_logits(contexts, 0.01)
    log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert contexts.cross_entropy(log_q) - contexts.entropy == pytest.approx(excess, abs=1e-12)
    with pytest.raises(OptionError, match="floor=0"):
        target_logits(contexts, 0.0)


def test_same_seed_same_weights(corpus: Corpus) -> None:
    first, second = (closed_form(corpus.contexts(), seed=5).decoder for _ in range(2))
    assert all((a == b).all() for a, b in zip(first.matrices, second.matrices, strict=True))


def test_single_context() -> None:
    corpus = Corpus.of_texts(["a b"])
    for mixer, activation in ALL:
        fit = closed_form(corpus.contexts(), DecoderShape(mixer, activation))
        assert prove_gap(fit.decoder, corpus.contexts(), fraction=1e-3).verdict == "proved"
