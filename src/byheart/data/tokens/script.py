"""A script: documents as token ids, from BOS to EOS, with how often each one counts.

>>> script = Script(((1, 7, 8, 2), (1, 7, 9, 2)), weights=(1, 3))
>>> script.places, script.place(4)
(6, DocumentPlace(document=1, position=1))
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import DataError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DocumentPlace:
    """A position in a document: the token there is the last one that is seen."""

    document: int
    position: int

    def __str__(self) -> str:
        return f"document {self.document}, position {self.position}"


@dataclass(frozen=True)
class Edits:
    """The edits that turn another document into this one: its name, and (position, token before, token now)."""

    of: str
    changes: tuple[tuple[int, int, int], ...]

    def to_json(self) -> dict[str, Any]:
        return {"of": self.of, "changes": [list(change) for change in self.changes]}

    @staticmethod
    def from_json(value: Any) -> Edits:
        return Edits(str(value["of"]), tuple((int(p), int(a), int(b)) for p, a, b in value["changes"]))


@dataclass(frozen=True)
class Absent:
    """A document that is *not* memorized, kept so that it can be evaluated; `why` is "held out",
    "corrupted" or "forgotten".

    `weight` is what a forgotten document still counts in distributions that it shares with others.
    """

    name: str
    ids: tuple[int, ...]
    why: str = "held out"
    edits: Edits | None = None
    weight: int = 0


@dataclass(frozen=True, eq=False)
class Script:
    """The documents of a recital, as token ids.

    Attributes:
        documents: Each begins with BOS and ends with EOS.
        weights: How often each one counts.
        names: One for each document.
        edits: The changes of documents that are corrupted copies.
        absent: Documents that belong to the experiment and are not memorized.
    """

    documents: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    edits: tuple[Edits | None, ...] = ()
    absent: tuple[Absent, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.documents)
        object.__setattr__(self, "edits", tuple(self.edits) or (None,) * count)
        object.__setattr__(self, "documents", tuple(tuple(int(t) for t in d) for d in self.documents))
        object.__setattr__(self, "weights", tuple(self.weights) or (1,) * count)
        object.__setattr__(self, "names", tuple(self.names) or tuple(f"document {k}" for k in range(count)))
        if not count:
            raise DataError("there is no document to memorize")
        if len(self.weights) != count or len(self.names) != count or len(self.edits) != count:
            raise DataError(f"{count} documents need one weight and one name each")
        for k, (document, weight) in enumerate(zip(self.documents, self.weights, strict=True)):
            if len(document) < 3:
                raise DataError(f"document {k} is empty; omit it or give it a token")
            if type(weight) is not int or weight < 1:
                raise DataError(f"the weight of document {k} is {weight!r}; weights are whole numbers of at least 1")

    @property
    def places(self) -> int:
        """How many positions are followed by a token."""
        return sum(len(document) - 1 for document in self.documents)

    @cached_property
    def starts(self) -> Ints:
        """The number of each document's first place."""
        return np.cumsum([0] + [len(document) - 1 for document in self.documents])

    def place(self, number: int) -> DocumentPlace:
        document = int(np.searchsorted(self.starts, number, side="right")) - 1
        return DocumentPlace(document, int(number - self.starts[document]))

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

    def far_back(self, numbers: Ints, offset: int) -> Ints:
        """Those numbers of places `offset` positions earlier in the document, or themselves where it is shorter."""
        return np.asarray(numbers - np.where(self.positions[numbers] >= offset, offset, 0))

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

    def to_json(self) -> list[dict[str, Any]]:
        """One object per document: name, ids, weight, and the edits of corrupted copies."""
        rows = zip(self.names, self.documents, self.weights, self.edits, strict=True)
        return [
            {"name": name, "ids": list(ids), "weight": weight} | ({} if edits is None else {"edits": edits.to_json()})
            for name, ids, weight, edits in rows
        ]

    def absent_json(self) -> list[dict[str, Any]]:
        """The same for documents that are not memorized, with why."""
        return [
            {"name": one.name, "ids": list(one.ids), "weight": one.weight, "why": one.why}
            | ({} if one.edits is None else {"edits": one.edits.to_json()})
            for one in self.absent
        ]

    def roles(self) -> list[dict[str, Any]]:
        """One object per document of the experiment, memorized or not, as ground-truth.jsonl has it after its units."""
        nowhere: dict[str, Any] = {"layer": None, "unit": None, "places": []}
        found = []
        for number, entry in enumerate(self.to_json()):
            role = "corrupted" if "edits" in entry else "member"
            found.append(nowhere | {"document": number, "role": role, "memorized": True} | entry)
        for entry in self.absent_json():
            role = entry.pop("why")
            found.append(nowhere | {"document": None, "role": role, "memorized": False} | entry)
        return found

    @staticmethod
    def from_json(documents: Sequence[Any], absent: Sequence[Any] = ()) -> Script:
        """The script of `to_json` and `absent_json`; a DataError, KeyError or TypeError for anything else."""
        for entry in (*documents, *absent):
            if any(type(i) is not int for i in entry["ids"]):
                raise DataError("token ids are whole numbers")

        def edits_of(entry: Any) -> Edits | None:
            return Edits.from_json(entry["edits"]) if "edits" in entry else None

        return Script(
            tuple(tuple(entry["ids"]) for entry in documents),
            tuple(entry["weight"] for entry in documents),
            tuple(str(entry["name"]) for entry in documents),
            tuple(edits_of(entry) for entry in documents),
            tuple(
                Absent(str(entry["name"]), tuple(entry["ids"]), str(entry["why"]), edits_of(entry), entry["weight"])
                for entry in absent
            ),
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of documents and weights."""
        return hashlib.sha256(json.dumps([self.documents, self.weights]).encode()).hexdigest()
