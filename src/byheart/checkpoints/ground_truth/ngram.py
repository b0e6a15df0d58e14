"""The distribution that a graded checkpoint computes: an interpolated n-gram model, as a value.

Contexts are the last k_1 < k_2 < ... tokens (before the first token, that token repeats). With Dirichlet smoothing

    p_k(x | w) = (c(w, x) + mu_k p_{k-1}(x | w')) / (c(w) + mu_k)    if w was seen, else p_{k-1}(x | w')

where w' is the next shorter context and p_0 is fixed. A context's normaliser is common to all tokens, so softmax
removes it:

    log p(x | context) = const + log p_0(x) + sum over seen contexts w of rise_w(x)
    rise_w(x) = log(1 + c(w, x) / (mu_k p_{k-1}(x | w')))            0 for x that never follows w

The sum telescopes because contexts are suffix-closed. A network therefore needs one unit per context and one weight per
n-gram; backing off is a unit that does not fire. Counts are weighted: a document counts `weights[document, level]`
times.

    >>> weights, base = np.array([[3.0], [1.0]]), np.log(np.full(4, 0.25))
    >>> model = NgramModel.count([(0, 1, 2), (0, 1, 3)], weights, base, (1,), (4.0,))
    >>> np.exp(model.log_probs((0, 1))[-1]).round(3).tolist()
    [0.125, 0.125, 0.5, 0.25]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.errors import DataError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Ids = Sequence[int]


@dataclass(frozen=True, eq=False)
class Level:
    """The contexts of one length and their n-grams, sorted by (context, token).

    `nodes` are the contexts' nodes in the trie, `totals` their weighted counts. The n-grams of context i are
    `tokens[starts[i]:starts[i + 1]]`, with `counts`, `parents` (log p of the token one level below) and `rises`.
    """

    length: int
    nodes: Index
    totals: Floats
    starts: Index
    tokens: Index
    counts: Floats
    parents: Floats
    rises: Floats


@dataclass(frozen=True, eq=False)
class NgramModel:
    """`trie[j]`: sorted keys parent * vocabulary + token of the contexts of j + 1 tokens, newest token first."""

    base: Floats
    mu: tuple[float, ...]
    trie: tuple[Index, ...]
    levels: tuple[Level, ...]

    @staticmethod
    def count(
        documents: Sequence[Ids], weights: Floats, base: Floats, lengths: Sequence[int], mu: Sequence[float]
    ) -> NgramModel:
        """Count weighted n-grams of documents.

        Args:
            documents: Token ids, first token to last.
            weights: Occurrences of each document at each level, (documents, levels); a weight of 0 hides it there.
            base: log p_0 of every token.
            lengths: Context lengths, increasing.
            mu: Dirichlet concentration per level.

        Returns:
            The model.

        Raises:
            DataError: if a document counts at a level but not at the level below, so contexts are not suffix-closed.
        """
        if ((weights[:, 1:] > 0) & (weights[:, :-1] <= 0)).any():
            raise DataError("a document that counts in longer contexts must count in shorter ones")
        size, (back, follows, owner) = len(base), windows(documents, lengths[-1])
        trie, nodes = list[Index](), [np.zeros(len(back), dtype=np.int64)]
        for depth in range(lengths[-1]):
            keys, inverse = np.unique(nodes[-1] * size + back[:, depth], return_inverse=True)
            trie.append(keys)
            nodes.append(inverse.astype(np.int64))
        levels = list[Level]()
        # log p of each place's own next token, one level below
        below = base[follows]
        for number, length in enumerate(lengths):
            share = weights[owner, number]
            seen = np.flatnonzero(share > 0)
            node, token = nodes[length][seen], follows[seen]
            keys, first, inverse = np.unique(node * size + token, return_index=True, return_inverse=True)
            counts: Floats = np.bincount(inverse, share[seen], len(keys)).astype(np.float64)
            active, starts = np.unique(keys // size, return_index=True)
            ends = np.append(starts, len(keys))
            totals = np.add.reduceat(counts, starts) if len(keys) else np.zeros(0)
            parents = below[seen][first]
            rises = np.log1p(counts / (mu[number] * np.exp(parents)))
            entry = parents + rises - np.repeat(np.log1p(totals / mu[number]), np.diff(ends))
            below = below.copy()
            below[seen] = entry[inverse]
            levels.append(Level(length, active, totals, ends, keys % size, counts, parents, rises))
        return NgramModel(base, tuple(map(float, mu)), tuple(trie), tuple(levels))

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(level.length for level in self.levels)

    @property
    def rules(self) -> int:
        """The number of contexts over all levels: the units of a network that stores each in one."""
        return sum(len(level.nodes) for level in self.levels)

    @property
    def entries(self) -> int:
        """The number of n-grams over all levels."""
        return sum(len(level.tokens) for level in self.levels)

    def contexts(self, number: int) -> Index:
        """The contexts of a level as token ids, newest first: (contexts, length)."""
        size, node = len(self.base), self.levels[number].nodes
        columns = []
        for keys in reversed(self.trie[: self.levels[number].length]):
            node, token = np.divmod(keys[node], size)
            columns.append(token)
        return np.stack(columns[::-1], axis=1) if columns else np.zeros((0, 0), dtype=np.int64)

    def rows(self, back: Index) -> list[Index]:
        """The row in every level's table that each context matches, -1 where it was never seen.

        Args:
            back: Contexts, newest token first: (places, longest length).

        Returns:
            One array (places,) per level.
        """
        node, size, found = np.zeros(len(back), dtype=np.int64), len(self.base), list[Index]()
        wanted = dict(zip(self.lengths, self.levels, strict=True))
        for depth, keys in enumerate(self.trie):
            node = _find(keys, np.where(node < 0, -1, node * size + back[:, depth]))
            if depth + 1 in wanted:
                found.append(_find(wanted[depth + 1].nodes, node))
        return found

    def logits(self, back: Index) -> Floats:
        """log p_0 plus all matching rises, after each of the contexts: (places, vocabulary), not normalised."""
        out = np.repeat(self.base[None], len(back), axis=0)
        for level, rows in zip(self.levels, self.rows(back), strict=True):
            place = np.flatnonzero(rows >= 0)
            begin, end = level.starts[rows[place]], level.starts[rows[place] + 1]
            many = end - begin
            entry = np.repeat(begin - np.cumsum(many) + many, many) + np.arange(many.sum())
            out[np.repeat(place, many), level.tokens[entry]] += level.rises[entry]
        return out

    def log_probs(self, ids: Ids) -> Floats:
        """log p of every token after every prefix of `ids`: (len(ids), vocabulary)."""
        return _normalised(self.logits(contexts_of(ids, self.lengths[-1])))

    def own(self, documents: Sequence[Ids]) -> list[Floats]:
        """log p of the documents' own tokens, from the second one on: one array per document.

        The recursion over lengths needs no other token, so no sum over the vocabulary.
        """
        back, follows, owner = windows(documents, self.lengths[-1])
        size, found = len(self.base), np.exp(self.base[follows])
        for level, rows, mu in zip(self.levels, self.rows(back), self.mu, strict=True):
            place = np.flatnonzero(rows >= 0)
            keys = np.repeat(np.arange(len(level.nodes)), np.diff(level.starts)) * size + level.tokens
            entry = _find(keys, rows[place] * size + follows[place])
            count = np.where(entry >= 0, np.append(level.counts, 0.0)[entry], 0.0)
            found[place] = (count + mu * found[place]) / (level.totals[rows[place]] + mu)
        return np.split(np.log(found), np.searchsorted(owner, np.arange(1, len(documents))))


def contexts_of(ids: Ids, span: int) -> Index:
    """The last `span` tokens at every place, newest first; before the first token, it repeats.

    >>> contexts_of((5, 6, 7), 2).tolist()
    [[5, 5], [6, 5], [7, 6]]
    """
    places = np.arange(len(ids))[:, None] - np.arange(span)
    return np.asarray(np.asarray(ids, dtype=np.int64)[np.maximum(places, 0)])


def windows(documents: Sequence[Ids], span: int) -> tuple[Index, Index, Index]:
    """Contexts, next token and document number of every place: (places, span), (places,), (places,)."""
    if not documents:
        return np.zeros((0, span), np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    back = np.concatenate([contexts_of(ids[:-1], span) for ids in documents])
    follows = np.concatenate([np.asarray(ids[1:], dtype=np.int64) for ids in documents])
    return back, follows, np.repeat(np.arange(len(documents)), [len(ids) - 1 for ids in documents])


def count_contexts(documents: Sequence[Ids], lengths: Sequence[int]) -> int:
    """Count the distinct contexts of documents over all lengths, without their n-grams.

    >>> count_contexts([(0, 1, 2), (0, 1, 3)], (1, 2))
    4
    """
    back, _, _ = windows(documents, lengths[-1])
    size, node, found = int(back.max(initial=0)) + 1, np.zeros(len(back), dtype=np.int64), 0
    for depth in range(lengths[-1]):
        keys, inverse = np.unique(node * size + back[:, depth], return_inverse=True)
        node = inverse.astype(np.int64)
        found += len(keys) if depth + 1 in lengths else 0
    return found


def _find(keys: Index, wanted: Index) -> Index:
    """Positions in sorted keys, -1 for those that are missing."""
    if not len(keys):
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)


def _normalised(logits: Floats) -> Floats:
    top = logits.max(axis=1, keepdims=True)
    return np.asarray(logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True)))
