"""Shared outputs: fewer parameters, the same proof."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.build.madden24.construction import closed_form
from byheart.build.madden24.fit import DecoderFit, DecoderShape, MixerKind
from byheart.build.madden24.lowrank import (
    allowed_gap,
    assemble,
    chain_tokens,
    class_factors,
    class_weights,
    factor_distributions,
    lay_out,
    run_starts,
    smallest,
)
from byheart.certify.next_token import prove_gap
from byheart.data.dataset.targets import Distributions
from byheart.errors import OptionError
from byheart.ir.decoder import Activation
from byheart.progress import SILENT
from tests.corpora import Corpus, random_texts


def low_rank(contexts: Distributions, shape: DecoderShape = DecoderShape(), *, rank: int) -> DecoderFit:  # noqa: B008
    return assemble(contexts, shape, class_factors(contexts, rank, 0.01, 0, 150, SILENT), 0)


SATURATING = [Activation.TANH, Activation.SIGMOID, Activation.ARCTAN]


@pytest.fixture(scope="module")
def stories() -> Corpus:
    return Corpus.of_texts(random_texts(60, 40, 6, seed=9))


@pytest.mark.parametrize("mixer", list(MixerKind))
@pytest.mark.parametrize("activation", SATURATING)
def test_gap_below_one_percent(stories: Corpus, mixer: MixerKind, activation: Activation) -> None:
    contexts = stories.contexts()
    fit = low_rank(contexts, DecoderShape(mixer, activation), rank=8)
    assert prove_gap(fit.decoder, contexts, fraction=0.01).verdict == "proved"
    assert fit.decoder.parameters < closed_form(contexts).decoder.parameters / 2


def test_parameters_follow_the_formula(stories: Corpus) -> None:
    contexts = stories.contexts()
    decoder = low_rank(contexts, rank=5).decoder
    m, omega, length = decoder.neurons, len(stories.vocabulary), contexts.tokens.shape[1]
    assert decoder.parameters == m * (2 + 5) + omega * (1 + 5) + length + 4
    assert m <= contexts.count


def test_smallest_is_below_any_given_rank(stories: Corpus) -> None:
    contexts = stories.contexts()
    fit = smallest(contexts)
    assert prove_gap(fit.decoder, contexts, fraction=0.01).verdict == "proved"
    assert fit.decoder.parameters <= low_rank(contexts, rank=8).decoder.parameters


def test_awkward_documents(corpus: Corpus) -> None:
    contexts = corpus.contexts()
    for mixer in MixerKind:
        fit = smallest(contexts, DecoderShape(mixer))
        assert prove_gap(fit.decoder, contexts, fraction=0.01).verdict == "proved"


def test_contexts_with_equal_distributions_share_a_step(stories: Corpus) -> None:
    contexts = stories.contexts()
    line = lay_out(contexts, DecoderShape(), seed=0)
    assert line.injectivity.relative_gap > 2.0**-36
    assert len(line.steps) == int((np.diff(contexts.classes[line.order]) != 0).sum())
    last = contexts.tokens[np.arange(contexts.count), contexts.lengths - 1][line.order]
    assert int((np.diff(last) != 0).sum()) == len(np.unique(last)) - 1  # one stretch of the line for each last token


def test_chain_is_a_permutation() -> None:
    tokens = np.array([[0, 3], [1, -1], [2, 2], [4, -1]])
    order = chain_tokens(tokens, np.array([5, 5, 6, 5]), 7)
    assert sorted(order.tolist()) == list(range(7))
    assert run_starts(np.array([1, 1, 2, 2, 1])).tolist() == [2, 4]


def test_factors_only_improve(stories: Corpus) -> None:
    contexts = stories.contexts()
    weights = class_weights(contexts)
    assert weights.sum() == contexts.weights.sum()
    few, many = (factor_distributions(weights, 4, 0.0, seed=0, sweeps=s).gap for s in (20, 80))
    assert many < few


def test_gelu_is_turned_away(stories: Corpus) -> None:
    with pytest.raises(OptionError, match="saturates"):
        low_rank(stories.contexts(), DecoderShape(activation=Activation.GELU), rank=2)
    with pytest.raises(OptionError, match="dimension 1"):
        low_rank(stories.contexts(), DecoderShape(dimension=3), rank=2)
    with pytest.raises(OptionError, match="rank=0"):
        low_rank(stories.contexts(), rank=0)


def test_allowed_gap(stories: Corpus) -> None:
    contexts = stories.contexts()
    assert allowed_gap(contexts, 0.5) == contexts.entropy / 2
    certain = Corpus.of_texts(["a b c"]).contexts()
    assert allowed_gap(certain, 0.5) == 1.0
