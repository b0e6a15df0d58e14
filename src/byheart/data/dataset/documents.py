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

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.targets import PAD, Distributions
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.data.values import distinct, key
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError, UnknownSymbolError

Ints = npt.NDArray[np.int64]
Document: TypeAlias = str | tuple[Any, ...]  # a text, or its tokens
WORDS = Tokenizer("wordpunct")  # what documents are cut into unless somebody says otherwise


def tokens_of(document: Document, tokenizer: Tokenizer = WORDS) -> list[Any]:
    """The tokens of a text; a document that comes as tokens stays as it is, apart from its length."""
    return tokenizer.cut(document) if isinstance(document, str) else tokenizer.fit_length(document)


@dataclass(frozen=True, eq=False)
class Numbering:
    """A sorted vocabulary, and the number of each of its tokens: by type and value, so 7 and "7" are two tokens.

    >>> Numbering.of(["b", "a", 7])["a"]
    1
    """

    tokens: tuple[Any, ...]

    @staticmethod
    def of(tokens: Iterable[Any]) -> Numbering:
        return Numbering(distinct(list(tokens))[0])

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        return {key(token): number for number, token in enumerate(self.tokens)}

    def __getitem__(self, token: Any) -> int:
        return self._numbers[key(token)]

    def __contains__(self, token: Any) -> bool:
        return key(token) in self._numbers


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokenized, truncated documents over a sorted vocabulary."""

    vocabulary: tuple[Any, ...]
    documents: tuple[tuple[int, ...], ...]
    tokenizer: Tokenizer = WORDS

    @staticmethod
    def of_texts(texts: Iterable[Document], tokenizer: Tokenizer = WORDS, max_length: int | None = None) -> Corpus:
        """Splits every text and keeps its first `max_length` tokens; the vocabulary is what then occurs."""
        if max_length is not None and max_length < 2:
            raise OptionError(f"max_length={max_length}: a document needs two tokens, a context and what follows it")
        tokenizer = replace(tokenizer, max_length=max_length)
        split = [tokens_of(text, tokenizer) for text in texts]
        if not any(len(document) > 1 for document in split):
            raise DataError(
                f"none of {len(split)} documents has two tokens, so nothing follows anything; give longer documents, "
                "or cut them into characters"
            )
        numbering = Numbering.of(token for document in split for token in document)
        numbers = tuple(tuple(numbering[token] for token in document) for document in split)
        return Corpus(numbering.tokens, numbers, tokenizer)

    def encode(self, text: Document) -> tuple[int, ...]:
        return encode(text, self.vocabulary, self.tokenizer)

    def contexts(self) -> Distributions:
        """All prefixes that are followed by a token, numbered by length and then by content."""
        lengths = np.array([len(document) for document in self.documents], dtype=np.int64)
        table = np.full((len(lengths), int(lengths.max())), PAD, dtype=np.int64)
        table[np.arange(table.shape[1]) < lengths[:, None]] = np.concatenate(
            [np.array(d, dtype=np.int64) for d in self.documents]
        )
        return contexts_of_table(table, lengths, len(self.vocabulary))


def encode(text: Document, vocabulary: Sequence[Any], tokenizer: Tokenizer) -> tuple[int, ...]:
    """Token numbers of a whole text; an UnknownSymbolError names the tokens that the vocabulary lacks."""
    numbering = Numbering(tuple(vocabulary))
    tokens = tokens_of(text, replace(tokenizer, max_length=None))
    unknown = [token for token in dict.fromkeys(tokens) if token not in numbering]
    if unknown:
        named = ", ".join(map(quote, unknown[:5])) + (" …" if len(unknown) > 5 else "")
        near = get_close_matches(str(unknown[0]), [str(token) for token in vocabulary], n=3)
        hint = f"; near {quote(unknown[0])} are {', '.join(map(quote, near))}" if near else ""
        raise UnknownSymbolError(
            f"the vocabulary of {len(vocabulary):,} tokens lacks {named}{hint}: use tokens that the documents have"
        )
    return tuple(numbering[token] for token in tokens)


def contexts_of_table(table: Ints, lengths: Ints, vocabulary_size: int) -> Distributions:
    """Distributions of documents given as rows of token numbers, padded at the end with -1."""
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
    return Distributions(
        vocabulary_size, np.concatenate(found), where[order], token[order], counts[order].astype(np.float64)
    )
