"""Targets: what a context is to be answered with, a class or a distribution over classes.

A data set has one or the other. With classes, equal contexts must have equal labels. With distributions they need not:
the labels of a context are counted, and its target is the empirical distribution (M24, eq. (1)); or a label is a
`Distribution` that the user gives. Counts are integers and given weights are floats, both taken as they are.

    >>> from byheart.data.dataset.dataset import load
    >>> rows, labels = [["a"], ["a"], ["a"]], [["cat"], ["dog"], ["dog"]]
    >>> data = load(rows, labels, task="causal", target="distribution")
    >>> data.vocabulary, data.distributions.count, data.distributions.probabilities.round(2).tolist()
    (('a', 'cat', 'dog'), 1, [0.33, 0.67])
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.values import distinct, same
from byheart.data.wording import quote
from byheart.errors import DataError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# After the end of a context.
PAD = -1
LEAST = 1e-290  # no given probability is smaller


class Target(StrEnum):
    """The kind of answer that contexts of a data set have.

    Attributes:
        CLASS: One class.
        DISTRIBUTION: A distribution over classes.
    """

    CLASS = "class"
    DISTRIBUTION = "distribution"


@dataclass(frozen=True)
class Distribution:
    """A label that is a distribution.

    Attributes:
        classes: The classes in their order.
        weights: A positive weight for each.

    >>> Distribution.of({"ran": 0.3, "sat": 0.7, "slept": 0})
    Distribution(classes=('ran', 'sat'), weights=(0.3, 0.7))
    """

    classes: tuple[Hashable, ...]
    weights: tuple[float, ...]

    @staticmethod
    def of(weights: Mapping[Any, float]) -> Distribution:
        """Make a distribution of weights.

        Args:
            weights: Class -> count or probability; classes of weight 0 are omitted.

        Raises:
            DataError: A weight is negative, not finite or far too small, or all are 0.
        """
        wrong = next((w for w in weights.values() if not _is_weight(w)), None)
        if wrong is not None:
            raise DataError(f"a weight is {quote(wrong)}; weights are finite numbers of at least 0")
        kept = [(name, float(weight)) for name, weight in weights.items() if weight]
        if not kept:
            raise DataError("a distribution has no class with a weight above 0; give it one")
        if min(weight for _, weight in kept) < LEAST * math.fsum(weight for _, weight in kept):
            raise DataError(f"a probability is below {LEAST:g}, too small for a float64: omit that class")
        classes, numbers = distinct([name for name, _ in kept])
        by_number = dict(zip(numbers, (weight for _, weight in kept), strict=True))
        return Distribution(classes, tuple(by_number[number] for number in range(len(classes))))

    def same(self, other: Distribution) -> bool:
        """Whether classes, by type and value, and weights are equal.

        Args:
            other: Another distribution.
        """
        return same(self.classes, other.classes) and self.weights == other.weights

    @property
    def likeliest(self) -> Hashable:
        """The class of the largest weight, the first among equals."""
        return self.classes[self.weights.index(max(self.weights))]


def _is_weight(weight: object) -> bool:
    return not isinstance(weight, bool) and isinstance(weight, int | float) and 0 <= weight < 1e300


@dataclass(frozen=True, eq=False)
class Distributions:
    """n distinct contexts with the weight of every next token: what a next-token model is fitted to.

    `tokens` (n, T) is padded with -1 at the end; the weighted pairs are sorted by context: pair k means that context
    `pair_context[k]` is followed by token `pair_token[k]` with weight `pair_weight[k]` (a count, or a probability).
    """

    vocabulary_size: int
    tokens: Ints
    pair_context: Ints
    pair_token: Ints
    pair_weight: Floats

    @property
    def count(self) -> int:
        """n: how many contexts."""
        return len(self.tokens)

    @cached_property
    def lengths(self) -> Ints:
        return np.asarray((self.tokens >= 0).sum(axis=1), dtype=np.int64)

    @cached_property
    def weights(self) -> Floats:
        """c_i: how often context i occurs (n,)."""
        return np.asarray(np.bincount(self.pair_context, self.pair_weight, self.count), dtype=np.float64)

    @cached_property
    def supports(self) -> Ints:
        """How many different tokens follow context i (n,)."""
        return np.bincount(self.pair_context, minlength=self.count)

    @cached_property
    def probabilities(self) -> Floats:
        """π of every pair: eq. (1)."""
        return np.asarray(self.pair_weight / self.weights[self.pair_context])

    @cached_property
    def entropy(self) -> float:
        """𝓗 in nats: no model has a smaller cross-entropy (Lemma 2)."""
        return max(0.0, -math.fsum((self.pair_weight * np.log(self.probabilities)).tolist()))

    @cached_property
    def classes(self) -> Ints:
        """A number for each context; equal numbers mean equal distributions (n,)."""
        first = np.searchsorted(self.pair_context, np.arange(self.count + 1))
        keys = [
            (self.pair_token[a:b].tobytes(), self.probabilities[a:b].tobytes()) for a, b in itertools.pairwise(first)
        ]
        numbers: dict[tuple[bytes, bytes], int] = {}
        return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over contexts and weights: names the data without holding it."""
        parts = (self.tokens, self.pair_context, self.pair_token, self.pair_weight)
        digest = hashlib.sha256(f"{self.vocabulary_size} {self.tokens.shape}".encode())
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def prefix(self, i: int) -> tuple[int, ...]:
        return tuple(int(t) for t in self.tokens[i, : self.lengths[i]])

    def matrix(self) -> Floats:
        """The weights as a dense (n, vocabulary) matrix."""
        dense = np.zeros((self.count, self.vocabulary_size))
        dense[self.pair_context, self.pair_token] = self.pair_weight
        return dense

    def cross_entropy(self, log_probabilities: Floats) -> float:
        """𝓛 in nats of a model that gives (n, vocabulary) log probabilities; at least the entropy, but for rounding."""
        return -math.fsum((self.pair_weight * log_probabilities[self.pair_context, self.pair_token]).tolist())


def arrange(tokens: Ints, context: Ints, token: Ints, weight: Floats, vocabulary_size: int) -> Distributions:
    """Distributions with their contexts by length and then by content, and their pairs by context and token.

    tokens (n, T) has the contexts as rows of token numbers with -1 after them, in any order.
    """
    lengths = (tokens >= 0).sum(axis=1)
    by_content = np.lexsort((*tokens.T[::-1], lengths))  # the last key counts most
    rank = np.empty(len(tokens), dtype=np.int64)
    rank[by_content] = np.arange(len(tokens))
    order = np.lexsort((token, rank[context]))
    return Distributions(vocabulary_size, tokens[by_content], rank[context][order], token[order], weight[order])
