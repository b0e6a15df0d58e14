"""Distributions as targets of a data set: the same numbers as the corpus counts, exactly; given ones as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.data import Dataset, load
from byheart.data.dataset.documents import Corpus
from byheart.data.dataset.targets import Distribution, Distributions, Target
from byheart.data.read.documents import GivenDistributions, documents_table
from byheart.errors import ConflictError, DataError, OptionError

DOCUMENTS = st.lists(
    st.lists(st.sampled_from(["a", "b", 7, "7"]), min_size=2, max_size=5).map(tuple), min_size=1, max_size=8
)


def dataset(documents: Any) -> Dataset:
    table = documents_table(documents)
    return load(*table, task=table.task, target="distribution")


def assert_equal(one: Distributions, two: Distributions) -> None:
    assert one.vocabulary_size == two.vocabulary_size
    for name in ("tokens", "pair_context", "pair_token", "pair_weight"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name


@settings(max_examples=40)
@given(DOCUMENTS)
def test_a_data_set_counts_as_a_corpus_does(documents: list[tuple[Any, ...]]) -> None:
    corpus = Corpus.of_texts(documents)
    data = dataset(documents)
    assert data.vocabulary == corpus.vocabulary and data.target is Target.DISTRIBUTION
    assert_equal(data.distributions, corpus.contexts())


def test_given_distributions_are_labels() -> None:
    given = GivenDistributions(["a", "a b"], [{"b": 0.25, "c": 0.75}, {"a": 1.0}])
    contexts, vocabulary = given.contexts_and_vocabulary()
    data = dataset(given)
    assert data.vocabulary == vocabulary and data.classes == ("a", "b", "c")
    assert data.label_values() == ["c", "a"], "the likeliest classes"
    assert_equal(data.distributions, contexts)


def test_the_order_does_not_matter_and_counts_do() -> None:
    texts = ["a cat sat", "a dog sat", "a dog ran"]
    assert dataset(texts).fingerprint == dataset(texts[::-1]).fingerprint
    assert dataset(texts).fingerprint != dataset([*texts, texts[0]]).fingerprint
    table = documents_table(texts)
    with pytest.raises(ConflictError):
        load(*table, task="causal")
    part = dataset(texts).subset([1, 2])
    assert_equal(part.distributions, Corpus.of_texts(texts[1:]).contexts())
    agreeing = load([["a"], ["b"]], [["x"], ["y"]], task="causal")
    assert agreeing.distributions.probabilities.tolist() == [1.0, 1.0], "a class is a distribution of one"


def test_what_is_refused() -> None:
    one, two = Distribution.of({"x": 1}), Distribution.of({"x": 1, "y": 1})
    with pytest.raises(ConflictError, match=r"rows 0 and 1 .* different distributions"):
        load(["ab", "ab"], [one, two])
    with pytest.raises(DataError, match="1 of 2 labels are distributions"):
        load(["ab", "ba"], [one, "x"])
    with pytest.raises(OptionError, match="with positions on"):
        load(["ab"], [one], positions=False)
    with pytest.raises(OptionError, match="next-token and causal"):
        load(["ab"], ["x"], task="set", target="distribution")
    with pytest.raises(DataError, match="vectors"):
        load([[0.5]], [one])
    for weights in ({}, {"x": 0}, {"x": -1}, {"x": float("nan")}, {"x": True}):
        with pytest.raises(DataError, match="weight"):
            Distribution.of(weights)
    assert Distribution.of({"1": 3, 1: 2}).classes == (1, "1")
