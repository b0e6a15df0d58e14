"""Small corpora with the awkward cases: contexts of length 1, duplicates, prefixes of prefixes, one-token documents."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from byheart.data.dataset.dataset import Dataset, load
from byheart.data.dataset.targets import PAD, Distributions
from byheart.data.read.documents import WORDS
from byheart.memory.documents import as_table

TEXTS = [
    "a cat sat",
    "a cat sat",  # a duplicate
    "a cat",  # a prefix of another document
    "a dog sat down",
    "a dog ran",
    "the dog",  # a context of length 1 only
    "a",  # no context at all
    "the end of the dog",
]


@dataclass(frozen=True)
class Corpus:
    """Documents, and what the pipeline makes of them."""

    dataset: Dataset

    @staticmethod
    def of_texts(texts: Sequence[Any], max_length: int | None = None) -> Corpus:
        table = as_table(texts, replace(WORDS, max_length=max_length))
        return Corpus(load(*table, task=table.task, target="distribution"))

    @property
    def vocabulary(self) -> tuple[Any, ...]:
        return self.dataset.vocabulary

    @cached_property
    def documents(self) -> list[tuple[int, ...]]:
        """Token numbers of every document."""
        rows = zip(self.dataset.sequences(), self.dataset.label_values(), strict=True)
        return [tuple(self.vocabulary.index(token) for token in (*row, labels[-1])) for row, labels in rows]

    def contexts(self) -> Distributions:
        return self.dataset.distributions


def given_distributions(
    contexts: Sequence[Sequence[int]], distributions: Sequence[Mapping[int, float]], vocabulary_size: int
) -> Distributions:
    """Contexts of token numbers with the given weights."""
    tokens = np.full((len(contexts), max(map(len, contexts))), PAD, dtype=np.int64)
    for row, context in zip(tokens, contexts, strict=True):
        row[: len(context)] = context
    pairs = [(i, t, w) for i, row in enumerate(distributions) for t, w in sorted(row.items()) if w != 0]
    where, token, weight = zip(*pairs, strict=True)
    return Distributions(vocabulary_size, tokens, np.array(where), np.array(token), np.array(weight, dtype=np.float64))


def random_texts(documents: int, vocabulary: int, length: int, seed: int) -> list[str]:
    """Documents in which early tokens are drawn from few words, so that contexts repeat."""
    rng = random.Random(seed)
    return [
        " ".join(
            f"w{rng.randrange(min(vocabulary, 2 + t * t)) if t < 3 else rng.randrange(vocabulary)}"
            for t in range(length)
        )
        for _ in range(documents)
    ]
