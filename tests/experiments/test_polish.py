"""Polishing: the gradient against differences, and a decoder with fewer neurons than contexts."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from byheart.build.madden24.fit import DecoderShape, MixerKind, space_reader
from byheart.certify.next_token import prove_gap
from byheart.errors import OptionError
from byheart.ir.decoder import Activation, Decoder
from tests.corpora import Corpus, random_texts

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from polish import CrossEntropy, few_neurons, flatten, unflatten


@pytest.mark.parametrize("mixer", list(MixerKind))
@pytest.mark.parametrize("activation", list(Activation))
@pytest.mark.parametrize("skip", [False, True])
def test_gradient(corpus: Corpus, mixer: MixerKind, activation: Activation, skip: bool) -> None:
    contexts = corpus.contexts()
    shape = DecoderShape(mixer, activation, 3, 2 if mixer is MixerKind.ATTENTION else 1, skip)
    rng = np.random.default_rng(0)
    output = (rng.standard_normal((4, 2)), rng.standard_normal((2, len(corpus.vocabulary))))
    reader = space_reader(contexts, shape, 3, seed=0)
    decoder = Decoder(reader, rng.standard_normal((3, 4)), rng.standard_normal(4), activation, output)
    objective, flat = CrossEntropy.of(decoder, contexts), flatten(decoder)
    loss, gradient = objective.value_and_gradient(flat)
    assert loss == pytest.approx(contexts.cross_entropy(decoder.log_probabilities(contexts.tokens)), rel=1e-12)
    edges = np.cumsum([0, *(m.size for m in decoder.matrices)])
    for start, stop in itertools.pairwise(edges):  # matrix by matrix
        step = np.zeros_like(flat)
        step[start:stop] = rng.standard_normal(stop - start) * 1e-6
        slope = (objective.value_and_gradient(flat + step)[0] - objective.value_and_gradient(flat - step)[0]) / 2
        assert slope == pytest.approx(float(gradient @ step), rel=1e-5, abs=1e-10)


def test_flat_weights_and_back(corpus: Corpus) -> None:
    shape = DecoderShape(MixerKind.ATTENTION, Activation.GELU, 4, 2)
    reader = space_reader(corpus.contexts(), shape, 4, seed=0)
    decoder = Decoder(reader, np.ones((4, 2)), np.ones(2), Activation.GELU, (np.ones((2, len(corpus.vocabulary))),))
    again = unflatten(decoder, flatten(decoder))
    assert all((a == b).all() for a, b in zip(decoder.matrices, again.matrices, strict=True))


@pytest.mark.parametrize(
    ("mixer", "activation"), [(MixerKind.ATTENTION, Activation.GELU), (MixerKind.AVERAGE, Activation.TANH)]
)
def test_fewer_neurons_than_contexts(mixer: MixerKind, activation: Activation) -> None:
    corpus = Corpus.of_texts(random_texts(25, 12, 5, seed=2))
    contexts = corpus.contexts()
    neurons = contexts.count // 2
    fit = few_neurons(contexts, DecoderShape(mixer, activation, 6), neurons)
    assert fit.decoder.neurons == neurons
    assert prove_gap(fit.decoder, contexts, fraction=0.01).verdict == "proved"


def test_number_of_neurons(corpus: Corpus) -> None:
    with pytest.raises(OptionError, match="neurons=0"):
        few_neurons(corpus.contexts(), DecoderShape(), 0)
