"""Table 1 of Madden, Fox and Thrampoulidis."""

from __future__ import annotations

from fractions import Fraction

import pytest

import byheart
from byheart.errors import OptionError
from byheart.theory.madden import (
    OneLayerDecoder,
    averaging_parameters,
    capacity_ratio,
    decoder_parameters,
    distribution_capacity,
    distribution_parameters,
    document_capacity,
    document_parameters,
    hard_documents,
)
from tests.corpora import Corpus


@pytest.mark.parametrize("omega", [2, 3, 50, 5000])
@pytest.mark.parametrize("contexts", [1, 2, 377, 2637])
def test_capacity_and_parameters_are_inverse(contexts: int, omega: int) -> None:
    k = distribution_parameters(contexts, omega)
    assert distribution_capacity(k, omega) == contexts and distribution_capacity(k - 1 or 1, omega) <= contexts
    # Theorem 1: k is the first number whose limit exceeds `contexts`
    k = document_parameters(contexts, omega)
    assert contexts < document_capacity(k, omega)
    if k > 1:
        assert contexts >= document_capacity(k - 1, omega)


def test_documents_need_at_most_what_distributions_need() -> None:
    for omega in (2, 10, 1000):
        for contexts in (2, 100, 10**6):
            assert document_parameters(contexts, omega) <= distribution_parameters(contexts, omega)


def test_decoder_counts() -> None:
    """Theorem 5: Z, U, the attention matrices, W, b, V counted one by one."""
    omega, T, m, d, heads, d0, d1 = 30, 10, 64, 16, 2, 5, 7
    model = OneLayerDecoder(omega, T, m, d, heads, d0, d1)
    attention = heads * (2 * d * d1 + d * d0) + heads * d0 * d
    assert model.parameters == d * omega + d * T + attention + d * m + m + m * omega
    assert model.averaging_parameters == d * omega + T + d * m + m + m * omega
    assert capacity_ratio(model) == Fraction(model.parameters, m * (omega - 1))
    assert decoder_parameters(m, omega, T) == OneLayerDecoder(omega, T, m).parameters
    assert averaging_parameters(m, omega, T) == OneLayerDecoder(omega, T, m).averaging_parameters


def test_the_ratio_tends_to_one() -> None:
    ratios = [float(OneLayerDecoder(omega=k, length=10, neurons=k).ratio) for k in (10, 100, 1000, 10**4)]
    assert ratios == sorted(ratios, reverse=True) and ratios[-1] < 1.001


@pytest.mark.parametrize(("k", "omega"), [(1, 2), (1, 5), (4, 5), (7, 2), (20, 3), (63, 2), (64, 2), (500, 6)])
def test_hard_documents_are_those_of_theorem_1(k: int, omega: int) -> None:
    found = hard_documents(k, omega)
    contexts = Corpus.of_texts(found.documents).contexts()
    assert contexts.count == found.contexts and contexts.vocabulary_size == omega
    assert found.hard == k // (omega - 1) + 1 and found.forced > k
    assert found.contexts <= document_capacity(k, omega) <= found.limit  # Theorem 1's count, at this k and above
    longest = (contexts.tokens >= 0).sum(axis=1) == contexts.tokens.shape[1]
    assert longest.sum() == found.hard and (contexts.supports[longest] == omega).all()
    assert hard_documents(k, omega) == found != hard_documents(k, omega, seed=1)


def test_hard_documents_are_fitted_by_theorem_5_with_no_less_than_they_force() -> None:
    found = hard_documents(9, 3)
    memory = byheart.memorize(found.documents, construction="madden24")
    assert memory.certificate.verdict.value == "proved" and memory.size.parameters >= found.forced


def test_a_model_without_parameters_has_one_hard_context() -> None:
    found = hard_documents(0, 2)
    assert (found.hard, found.forced, found.contexts, found.length, found.limit) == (1, 1, 1, 1, 1)
    with pytest.raises(OptionError, match="contexts = 0"):
        hard_documents(-1, 2)


def test_hard_documents_need_repeats() -> None:
    with pytest.raises(OptionError, match="repeats = 2"):
        hard_documents(9, 3, repeats=2)


def test_bad_arguments() -> None:
    with pytest.raises(OptionError, match="omega = 1"):
        distribution_parameters(10, 1)
    with pytest.raises(OptionError, match="contexts = 0"):
        document_parameters(0, 5)
