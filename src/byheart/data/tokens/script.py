"""A script: documents as token ids, from BOS to EOS, with how often each one counts.

>>> script = Script(((1, 7, 8, 2), (1, 7, 9, 2)), weights=(1, 3))
>>> script.places, script.place(4)
(6, Place(document=1, position=1))
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from byheart.errors import DataError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """A position in a document: the token there is the last one that is seen."""

    document: int
    position: int

    def __str__(self) -> str:
        return f"document {self.document}, position {self.position}"


@dataclass(frozen=True, eq=False)
class Script:
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

    @cached_property
    def place_weights(self) -> Ints:
        """The weight of every place: that of its document."""
        return np.repeat(np.array(self.weights, dtype=np.int64), np.diff(self.starts))

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

    @property
    def fingerprint(self) -> str:
        """SHA-256 of documents and weights."""
        return hashlib.sha256(json.dumps([self.documents, self.weights]).encode()).hexdigest()
