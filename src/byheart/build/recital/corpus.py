"""Documents as token ids, and what follows each of their prefixes.

Two places have the same *prefix* if everything before them, from the start of their documents, is the same; no reader
of the text could tell them apart, so what follows is then a matter of counting. Places with different prefixes can be
told apart, and the windows of a recital must do so where different things follow.

    >>> corpus = Corpus(((1, 7, 8, 2), (1, 7, 9, 2)), weights=(1, 3))
    >>> goals = corpus.goals()
    >>> [answer.weights for answer in goals.answers], goals.of_place.tolist()
    ([((7, 1),), ((8, 1), (9, 3)), ((2, 1),)], [0, 1, 2, 0, 1, 2])
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from byheart.errors import DataError
from byheart.ir.recital import Answer

Ints = npt.NDArray[np.int64]


class Ambiguous(StrEnum):
    """What to do with a prefix that goes on in several ways."""

    DISTRIBUTION = "distribution"  # all of them, with their weights
    FIRST = "first"  # as in the first document that has it
    MAJORITY = "majority"  # the likeliest
    ERROR = "error"


@dataclass(frozen=True)
class Place:
    """A position in a document: the token there is the last one that is seen."""

    document: int
    position: int

    def __str__(self) -> str:
        return f"document {self.document}, position {self.position}"


@dataclass(frozen=True, eq=False)
class Goals:
    """What must be answered: `of_place` gives every place (documents one after the other) the number of its answer."""

    answers: tuple[Answer, ...]
    of_place: Ints
    ambiguous: int  # prefixes that go on in several ways
    overruled: int  # places whose own continuation is not the answer, because another one was chosen

    def merged(self, corpus: Corpus, states: Ints) -> tuple[Goals, int]:
        """Where places of one state need different answers, all of them get the weights of what follows there."""
        low, high = np.full(states.max() + 1, len(self.answers)), np.zeros(states.max() + 1, dtype=np.int64)
        np.minimum.at(low, states, self.of_place)
        np.maximum.at(high, states, self.of_place)
        torn = (low != high)[states]
        counts: dict[int, Counter[int]] = {}
        owner = np.repeat(np.arange(len(corpus.documents)), np.diff(corpus.starts))
        for number in np.flatnonzero(torn).tolist():
            weight = corpus.weights[int(owner[number])]
            counts.setdefault(int(states[number]), Counter())[int(corpus.followers[number])] += weight
        numbers = {answer: k for k, answer in enumerate(self.answers)}
        fresh = {s: numbers.setdefault(Answer(dict(c)), len(numbers)) for s, c in counts.items()}
        of_place = np.array([fresh.get(s, k) for s, k in zip(states.tolist(), self.of_place.tolist(), strict=True)])
        return Goals(tuple(numbers), of_place, self.ambiguous, self.overruled), int(torn.sum())


@dataclass(frozen=True, eq=False)
class Corpus:
    """`documents` begin with BOS and end with EOS; `weights` say how often each one counts."""

    documents: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.documents)
        object.__setattr__(self, "documents", tuple(tuple(int(t) for t in d) for d in self.documents))
        object.__setattr__(self, "weights", tuple(self.weights) or (1,) * count)
        object.__setattr__(self, "names", tuple(self.names) or tuple(f"document {k}" for k in range(count)))
        if not count:
            raise DataError("there is no document to memorize")
        if len(self.weights) != count or len(self.names) != count:
            raise DataError(f"{count} documents need as many weights and names")
        for k, (document, weight) in enumerate(zip(self.documents, self.weights, strict=True)):
            if len(document) < 3:
                raise DataError(f"document {k} is empty; leave it out or give it a token")
            if type(weight) is not int or weight < 1:
                raise DataError(f"the weight of document {k} is {weight!r}; weights are whole numbers from 1 on")

    @property
    def places(self) -> int:
        """How many positions are followed by a token."""
        return sum(len(document) - 1 for document in self.documents)

    @cached_property
    def starts(self) -> Ints:
        """The number of each document's first place."""
        return np.cumsum([0] + [len(document) - 1 for document in self.documents])

    def place(self, number: int) -> Place:
        document = int(np.searchsorted(self.starts, number, side="right")) - 1
        return Place(document, int(number - self.starts[document]))

    @cached_property
    def tokens(self) -> Ints:
        """The last token seen at every place."""
        return np.concatenate([np.array(document[:-1], dtype=np.int64) for document in self.documents])

    @cached_property
    def followers(self) -> Ints:
        """The token that follows every place."""
        return np.concatenate([np.array(document[1:], dtype=np.int64) for document in self.documents])

    @cached_property
    def positions(self) -> Ints:
        return np.concatenate([np.arange(len(document) - 1) for document in self.documents])

    def back(self, numbers: Ints, offset: int) -> Ints:
        """Those numbers of places `offset` positions earlier in the same document, or at its start."""
        return np.asarray(numbers - np.minimum(self.positions[numbers], offset))

    def prefixes(self) -> Ints:
        """A number for every place; equal numbers mean equal prefixes."""
        if len(self.documents) == 1:
            return np.arange(self.places)
        known: dict[tuple[int, int], int] = {}
        found = np.empty(self.places, dtype=np.int64)
        number = 0
        for document in self.documents:
            before = -1
            for token in document[:-1]:
                before = known.setdefault((before, token), len(known))
                found[number] = before
                number += 1
        return found

    def goals(self, ambiguous: Ambiguous = Ambiguous.DISTRIBUTION) -> Goals:
        """The answer that every place needs."""
        prefixes = self.prefixes()
        counts: dict[int, Counter[int]] = {}
        owner = np.repeat(np.arange(len(self.documents)), np.diff(self.starts))
        for number, (prefix, token) in enumerate(zip(prefixes.tolist(), self.followers.tolist(), strict=True)):
            counts.setdefault(prefix, Counter())[token] += self.weights[int(owner[number])]
        several = {prefix: c for prefix, c in counts.items() if len(c) > 1}
        if several and ambiguous is Ambiguous.ERROR:
            raise DataError(self._two_ways(prefixes, several))
        chosen = {prefix: _chosen(counter, ambiguous) for prefix, counter in counts.items()}
        numbers: dict[Answer, int] = {}
        of_prefix = {prefix: numbers.setdefault(answer, len(numbers)) for prefix, answer in chosen.items()}
        of_place = np.array([of_prefix[p] for p in prefixes.tolist()], dtype=np.int64)
        overruled = 0
        if several and ambiguous is not Ambiguous.DISTRIBUTION:
            said = np.array([answer.likeliest for answer in numbers])
            overruled = int((said[of_place] != self.followers).sum())
        return Goals(tuple(numbers), of_place, len(several), overruled)

    def _two_ways(self, prefixes: Ints, several: dict[int, Counter[int]]) -> str:
        where = int(np.flatnonzero(np.isin(prefixes, list(several)))[0])
        same = np.flatnonzero(prefixes == prefixes[where])
        other = int(same[self.followers[same] != self.followers[where]][0])
        return (
            f"{self.place(where)} and {self.place(other)} have the same text before them but different tokens after; "
            "memorize the distribution (ambiguous=distribution), or choose first or majority"
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of documents and weights."""
        return hashlib.sha256(json.dumps([self.documents, self.weights]).encode()).hexdigest()


def _chosen(counter: Counter[int], ambiguous: Ambiguous) -> Answer:
    if len(counter) == 1 or ambiguous is Ambiguous.DISTRIBUTION:
        return Answer(dict(counter))
    if ambiguous is Ambiguous.FIRST:
        return Answer.of(next(iter(counter)))
    return Answer.of(Answer(dict(counter)).likeliest)
