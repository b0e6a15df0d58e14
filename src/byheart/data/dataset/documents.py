"""Documents -> contexts, counts, empirical next-token distributions and their entropy (M24, eq. (1)).

A context is a prefix that is followed by a token. Prefixes are numbered level by level: a prefix is the pair (number of
the prefix one shorter, last token), so a sort per position replaces any comparison of sequences.

    >>> corpus = Corpus.of_texts(["a cat", "a dog", "a dog"])
    >>> contexts = corpus.contexts()
    >>> contexts.count, [corpus.vocabulary[t] for t in contexts.prefix(0)]
    (1, ['a'])
    >>> round(contexts.entropy, 4)                  # 3·log 3 - 2·log 2 nats
    1.9095
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from byheart.data.wording import quote
from byheart.errors import DataError, OptionError, UnknownSymbolError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Document: TypeAlias = str | tuple[str, ...]  # a text, or its tokens
PAD = -1
LEAST = 1e-290  # no given probability is smaller

_WORDS = re.compile(r"\w+|[^\w\s]+")


class Tokenizer(StrEnum):
    """How a text becomes tokens."""

    WORDS = "words"  # runs of letters and digits, and runs of punctuation
    CHARACTERS = "characters"

    @staticmethod
    def named(name: str) -> Tokenizer:
        """By name; `wordpunct` is what other commands call these words."""
        try:
            return Tokenizer.WORDS if name == "wordpunct" else Tokenizer(name)
        except ValueError:
            raise OptionError(f"unknown tokenizer {name!r}; known: {', '.join(Tokenizer)}") from None

    def tokens_of(self, document: Document, limit: int | None = None) -> list[str]:
        """The first `limit` tokens of a text; a document that comes as tokens stays what it is."""
        if isinstance(document, str) and self is Tokenizer.WORDS:
            return [match[0] for match in itertools.islice(_WORDS.finditer(document), limit)]
        return list(document[:limit])

    def text_of(self, tokens: Sequence[str]) -> str:
        """Readable text: characters side by side; words with spaces, none before closing punctuation."""
        if self is Tokenizer.CHARACTERS:
            return "".join(tokens)
        return re.sub(r"\s+([^\w\s\"'(\[]+)", r"\1", " ".join(tokens))


@dataclass(frozen=True, eq=False)
class Contexts:
    """n distinct contexts with the weight of every next token: what a next-token model is fitted to.

    `tokens` (n, T) is padded with -1 at the end; the weighted pairs are sorted by context: pair k says that context
    `pair_context[k]` is followed by token `pair_token[k]` with weight `pair_weight[k]` (a count, or a probability).
    """

    vocabulary_size: int
    tokens: Ints
    pair_context: Ints
    pair_token: Ints
    pair_weight: Floats

    @staticmethod
    def given(
        contexts: Sequence[Sequence[int]], distributions: Sequence[Mapping[int, float]], vocabulary_size: int
    ) -> Contexts:
        """Contexts with given distributions {token: probability or weight}; each context once."""
        if len(contexts) != len(distributions) or not contexts:
            raise DataError(f"{len(contexts)} contexts but {len(distributions)} distributions; give one for each")
        width = max(len(context) for context in contexts)
        tokens = np.full((len(contexts), width), PAD, dtype=np.int64)
        for i, context in enumerate(contexts):
            if not len(context) or min(context) < 0 or max(context) >= vocabulary_size:
                raise DataError(f"context {i} is empty or has a token outside [0, {vocabulary_size})")
            tokens[i, : len(context)] = context
        seen: dict[bytes, int] = {}
        for i, row in enumerate(tokens):
            first = seen.setdefault(row.tobytes(), i)
            if first != i:
                raise DataError(
                    f"two contexts are equal, number {first} and number {i}; give every context once, with one "
                    "distribution"
                )
        pairs = [(i, t, w) for i, row in enumerate(distributions) for t, w in sorted(row.items()) if w != 0]
        without = sorted(set(range(len(contexts))) - {i for i, _, _ in pairs})
        if without:
            raise DataError(f"distribution {without[0]} has no token with a weight above 0; give it one")
        if any(not 0 <= t < vocabulary_size or not w > 0 or not math.isfinite(w) for _, t, w in pairs):
            raise DataError(f"weights must be positive and finite, tokens in [0, {vocabulary_size})")
        where, token, weight = zip(*pairs, strict=True)
        found = Contexts(vocabulary_size, tokens, np.array(where), np.array(token), np.array(weight, dtype=np.float64))
        if not (found.probabilities >= LEAST).all():
            raise DataError(f"a probability is below {LEAST:g}, too small for a float64: leave that token out")
        return found

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


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokenized, truncated documents over a sorted vocabulary."""

    vocabulary: tuple[str, ...]
    documents: tuple[tuple[int, ...], ...]
    tokenizer: Tokenizer = Tokenizer.WORDS

    @staticmethod
    def of_texts(
        texts: Iterable[Document], tokenizer: Tokenizer = Tokenizer.WORDS, max_length: int | None = None
    ) -> Corpus:
        """Splits every text and keeps its first `max_length` tokens; the vocabulary is what then occurs."""
        if max_length is not None and max_length < 2:
            raise OptionError(f"max_length={max_length}: a document needs two tokens, a context and what follows it")
        split = [tokenizer.tokens_of(text, max_length) for text in texts]
        vocabulary = tuple(sorted({token for document in split for token in document}))
        if not any(len(document) > 1 for document in split):
            raise DataError(
                f"none of {len(split)} documents has two tokens, so nothing follows anything; give longer documents, "
                "or cut them into characters"
            )
        number = {token: i for i, token in enumerate(vocabulary)}
        return Corpus(vocabulary, tuple(tuple(number[t] for t in document) for document in split), tokenizer)

    def encode(self, text: str) -> tuple[int, ...]:
        return encode(text, self.vocabulary, self.tokenizer)

    def contexts(self) -> Contexts:
        """All prefixes that are followed by a token, numbered by length and then by content."""
        lengths = np.array([len(document) for document in self.documents], dtype=np.int64)
        table = np.full((len(lengths), int(lengths.max())), PAD, dtype=np.int64)
        table[np.arange(table.shape[1]) < lengths[:, None]] = np.concatenate(
            [np.array(d, dtype=np.int64) for d in self.documents]
        )
        return contexts_of_table(table, lengths, len(self.vocabulary))


def encode(text: Document, vocabulary: Sequence[str], tokenizer: Tokenizer) -> tuple[int, ...]:
    """Token numbers of a text; an UnknownSymbolError names the tokens that the vocabulary lacks."""
    number = {token: i for i, token in enumerate(vocabulary)}
    tokens = tokenizer.tokens_of(text)
    unknown = [token for token in dict.fromkeys(tokens) if token not in number]
    if unknown:
        named = ", ".join(map(quote, unknown[:5])) + (" …" if len(unknown) > 5 else "")
        near = get_close_matches(unknown[0], vocabulary, n=3)
        hint = f"; near {quote(unknown[0])} are {', '.join(map(quote, near))}" if near else ""
        raise UnknownSymbolError(
            f"the vocabulary of {len(vocabulary):,} tokens lacks {named}{hint}: use tokens that the documents have"
        )
    return tuple(number[token] for token in tokens)


def contexts_of_table(table: Ints, lengths: Ints, vocabulary_size: int) -> Contexts:
    """Contexts of documents given as rows of token numbers, padded at the end with -1."""
    rows = np.arange(len(table))[lengths > 0]
    number = np.zeros(len(table), dtype=np.int64)  # of the prefix that ends before position t
    found: list[Ints] = []
    pairs: list[tuple[Ints, Ints, Ints]] = []
    total = 0
    for t in range(table.shape[1]):
        rows = rows[lengths[rows] > t]
        if not len(rows):
            break
        keys = number[rows] * vocabulary_size + table[rows, t]
        distinct, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        if t:
            pairs.append((distinct // vocabulary_size, distinct % vocabulary_size, counts))
        if t == table.shape[1] - 1:
            break
        follows = np.zeros(len(distinct), dtype=bool)
        follows[inverse[lengths[rows] > t + 1]] = True
        fresh = np.cumsum(follows) - 1 + total
        number[rows] = fresh[inverse]
        prefixes = np.full((int(follows.sum()), table.shape[1] - 1), PAD, dtype=np.int64)
        prefixes[:, : t + 1] = table[rows[first[follows]], : t + 1]
        found.append(prefixes)
        total += len(prefixes)
    where, token, counts = (np.concatenate(column) for column in zip(*pairs, strict=True))
    order = np.lexsort((token, where))
    return Contexts(
        vocabulary_size, np.concatenate(found), where[order], token[order], counts[order].astype(np.float64)
    )
