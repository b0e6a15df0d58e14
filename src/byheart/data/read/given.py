"""Distributions that somebody gives, instead of the empirical ones of documents.

>>> given = GivenDistributions(["a", "a b"], [{"b": 0.25, "c": 0.75}, {"a": 1.0}])
>>> contexts, vocabulary = given.contexts_and_vocabulary()
>>> vocabulary, contexts.count, contexts.probabilities.tolist()
(('a', 'b', 'c'), 2, [0.25, 0.75, 1.0])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byheart.data.dataset.documents import Contexts, Document, Tokenizer
from byheart.data.wording import quote
from byheart.errors import DataError


@dataclass(frozen=True, eq=False)
class GivenDistributions:
    """Contexts and, for each, the weight of every token that may follow: probabilities, or counts."""

    contexts: Sequence[Document]
    weights: Sequence[Mapping[str, float]]

    def contexts_and_vocabulary(self, tokenizer: Tokenizer = Tokenizer.WORDS) -> tuple[Contexts, tuple[str, ...]]:
        """The contexts over the sorted vocabulary of all tokens that occur in contexts or distributions."""
        split = [tokenizer.tokens_of(context) for context in self.contexts]
        empty = next((k for k, tokens in enumerate(split) if not tokens), None)
        if empty is not None:
            raise DataError(f"context {empty} ({quote(self.contexts[empty])}) has no token; give at least one")
        vocabulary = tuple(sorted({t for tokens in (*split, *self.weights) for t in tokens}))
        number = {token: i for i, token in enumerate(vocabulary)}
        distributions = [{number[t]: float(w) for t, w in weights.items()} for weights in self.weights]
        contexts = [[number[t] for t in tokens] for tokens in split]
        return Contexts.given(contexts, distributions, len(vocabulary)), vocabulary
