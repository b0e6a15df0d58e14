"""Distributions as targets of a data set: counts against a dictionary that anyone can read; given ones as they are."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.data import Dataset, load
from byheart.data.dataset.targets import Distribution, Target
from byheart.data.read.documents import GivenDistributions, documents_table
from byheart.errors import ConflictError, DataError, OptionError
from tests.corpora import Corpus, random_texts

DOCUMENTS = st.lists(
    st.lists(st.sampled_from(["a", "b", 7, "7"]), min_size=2, max_size=5).map(tuple), min_size=1, max_size=8
)


def dataset(documents: Any) -> Dataset:
    table = documents_table(documents)
    return load(*table, task=table.task, target="distribution")


def naive(documents: list[tuple[int, ...]]) -> dict[tuple[int, ...], Counter[int]]:
    counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for document in documents:
        for t in range(1, len(document)):
            counts[document[:t]][document[t]] += 1
    return counts


def check(corpus: Corpus) -> None:
    contexts, expected = corpus.contexts(), naive(corpus.documents)
    found: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for i, token, weight in zip(contexts.pair_context, contexts.pair_token, contexts.pair_weight, strict=True):
        found[contexts.prefix(int(i))][int(token)] += int(weight)
    assert found == expected and contexts.count == len(expected)
    entropy = -sum(k * math.log(k / sum(c.values())) for c in expected.values() for k in c.values())
    assert contexts.entropy == pytest.approx(entropy, abs=1e-9)
    assert (np.diff(contexts.pair_context) >= 0).all()
    same = {(contexts.classes[i], contexts.classes[j]) for i in range(contexts.count) for j in range(contexts.count)}
    for i in range(contexts.count):
        for j in range(contexts.count):
            a, b = expected[contexts.prefix(i)], expected[contexts.prefix(j)]
            equal = {t: k / a.total() for t, k in a.items()} == {t: k / b.total() for t, k in b.items()}
            assert equal == (contexts.classes[i] == contexts.classes[j]), same


def test_awkward_documents(corpus: Corpus) -> None:
    check(corpus)


@pytest.mark.parametrize(("documents", "vocabulary", "length"), [(1, 1, 2), (40, 2, 5), (60, 9, 7), (30, 500, 6)])
def test_random_documents(documents: int, vocabulary: int, length: int) -> None:
    check(Corpus.of_texts(random_texts(documents, vocabulary, length, seed=documents)))


def test_truncation_bounds_the_contexts() -> None:
    assert Corpus.of_texts(["a b c d e"], max_length=3).contexts().tokens.shape == (2, 2)
    with pytest.raises(OptionError, match="max_length=1"):
        Corpus.of_texts(["a b"], max_length=1)


@settings(max_examples=40)
@given(DOCUMENTS)
def test_a_data_set_counts_as_a_dictionary_does(documents: list[tuple[Any, ...]]) -> None:
    data = dataset(documents)
    assert data.target is Target.DISTRIBUTION
    check(Corpus(data))


def test_given_distributions_are_labels() -> None:
    given = GivenDistributions(["a", "a b"], [{"b": 0.25, "c": 0.75}, {"a": 1.0}])
    data = dataset(given)
    assert data.vocabulary == data.classes == ("a", "b", "c")
    assert data.label_values() == ["c", "a"], "the likeliest classes"
    assert data.distributions.count == 2 and data.distributions.probabilities.tolist() == [0.25, 0.75, 1.0]


def test_the_order_does_not_matter_and_counts_do() -> None:
    texts = ["a cat sat", "a dog sat", "a dog ran"]
    assert dataset(texts).fingerprint == dataset(texts[::-1]).fingerprint
    assert dataset(texts).fingerprint != dataset([*texts, texts[0]]).fingerprint
    table = documents_table(texts)
    with pytest.raises(ConflictError):
        load(*table, task="causal")
    part = dataset(texts).subset([1, 2])
    whole = Corpus.of_texts(texts[1:]).contexts()
    assert part.distributions.tokens.tolist() == whole.tokens.tolist()
    assert part.distributions.matrix().tolist() == whole.matrix().tolist()
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
