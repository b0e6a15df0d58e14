"""Distributions, counts and entropy against a dictionary that anyone can read."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from byheart.data.dataset.documents import WORDS, Corpus
from byheart.data.dataset.targets import Distributions
from byheart.data.read.documents import read_documents
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.errors import DataError, OptionError, UnknownSymbolError
from tests.corpora import random_texts


def naive(documents: tuple[tuple[int, ...], ...]) -> dict[tuple[int, ...], Counter[int]]:
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


def test_characters_and_words() -> None:
    assert WORDS.cut('He said, "No!"') == ["He", "said", ",", '"', "No", '!"']
    assert Tokenizer("characters").cut("ab c") == ["a", "b", " ", "c"]
    assert WORDS.join(["One", "day", ",", "a", "cat", "."]) == "One day, a cat."


def test_given_distributions() -> None:
    contexts = Distributions.given([(0,), (0, 1)], [{0: 0.25, 1: 0.75}, {1: 2.0}], vocabulary_size=2)
    assert contexts.probabilities.tolist() == [0.25, 0.75, 1.0]
    with pytest.raises(DataError, match="two contexts are equal"):
        Distributions.given([(0,), (0,)], [{0: 1.0}, {1: 1.0}], vocabulary_size=2)
    with pytest.raises(DataError, match="positive"):
        Distributions.given([(0,)], [{0: -1.0}], vocabulary_size=2)


def test_nothing_follows_anything() -> None:
    with pytest.raises(DataError, match="two tokens"):
        Corpus.of_texts(["a", "b"])


def test_unknown_word(corpus: Corpus) -> None:
    with pytest.raises(UnknownSymbolError, match="'zebra'"):
        corpus.encode("a zebra")


def test_files(tmp_path) -> None:
    lines = tmp_path / "docs.jsonl"
    lines.write_text('{"id": 1, "story": "a b", "source": "x"}\n\n{"id": 2, "story": "c d", "source": "y"}\n')
    assert read_documents(lines) == ["a b", "c d"]
    assert read_documents(lines, where={"source": "y"}) == ["c d"]
    assert read_documents(lines, limit=1) == ["a b"]
    plain = tmp_path / "docs.txt"
    plain.write_text("one two\n\nthree four\n")
    assert read_documents(plain) == ["one two", "three four"]
    with pytest.raises(DataError, match="line 2: this is not JSON"):
        lines.write_text('"a b"\nnope\n')
        read_documents(lines)
    with pytest.raises(DataError, match="which column"):
        lines.write_text('{"p": "a", "q": "b"}\n')
        read_documents(lines)


def test_thousands_of_documents_take_milliseconds() -> None:
    import time

    corpus = Corpus.of_texts(random_texts(5000, 800, 10, seed=1))
    best = math.inf
    for _ in range(5):
        started = time.perf_counter()
        corpus.contexts()
        best = min(best, time.perf_counter() - started)
    assert best < 0.5  # about 0.02 s on an idle core
