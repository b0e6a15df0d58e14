"""GroundTruth: one reader for what a folder records about its memories.

It reads graded folders (documents.jsonl, units.jsonl) and recitals of the flavour `units` (ground-truth.jsonl, whose
lines are
units first and documents after them).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.formats.folder import safetensors_bytes
from byheart.checkpoints.ground_truth.graded import GradedMemory
from byheart.checkpoints.ground_truth.ngram import Floats, contexts_of
from byheart.checkpoints.ground_truth.twins import edited_units
from byheart.errors import FileFormatError, OptionError


@dataclass(frozen=True)
class TruthDocument:
    """A document of the experiment: member, background, held out, corrupted, paraphrase or forgotten."""

    name: str
    role: str
    copies: int
    ids: tuple[int, ...]
    text: str = ""

    @property
    def member(self) -> bool:
        return self.copies > 0 and self.role != "background"


@dataclass(frozen=True)
class TruthUnit:
    """An MLP unit: the context that it stores and the documents that need it."""

    layer: int
    unit: int
    context: tuple[int, ...]
    documents: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """Documents and units of a folder.

    Attributes:
        folder: The checkpoint's folder.
        documents: Every document, memorized or absent.
        units: Every unit that stores something, with the documents that it serves.
        memory: The specified distribution, of a graded folder.
    """

    folder: Path
    documents: tuple[TruthDocument, ...]
    units: tuple[TruthUnit, ...]
    memory: GradedMemory | None = None

    @staticmethod
    def load(folder: str | Path) -> GroundTruth:
        """Read the ground truth of a folder.

        Args:
            folder: A graded folder, or a recital of the flavour `units`.

        Returns:
            The ground truth.

        Raises:
            FileFormatError: if the folder has none, or it is damaged.
        """
        path = Path(folder)
        try:
            if (path / "graded.json").is_file():
                return _graded(path)
            return _recital(path, _lines(path / "ground-truth.jsonl"))
        except FileFormatError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileFormatError(
                f"{path} has no readable ground truth: {error}; write it with `byheart recital --graded`, or "
                "`byheart export --flavour units`"
            ) from None

    def document(self, name: str) -> TruthDocument:
        """Return the document of this name; an OptionError names one that exists."""
        for one in self.documents:
            if one.name == name:
                return one
        raise OptionError(f"there is no document {name!r}; for example {self.documents[0].name!r}")

    def units_of(self, name: str, *, alone: bool = False) -> list[tuple[int, int]]:
        """Return (layer, unit) of every unit that a document needs.

        Args:
            name: The document's name.
            alone: Return only those that no other document needs.
        """
        self.document(name)
        return [
            (one.layer, one.unit) for one in self._serving.get(name, []) if not alone or set(one.documents) == {name}
        ]

    @cached_property
    def _serving(self) -> dict[str, list[TruthUnit]]:
        found: dict[str, list[TruthUnit]] = {}
        for one in self.units:
            for name in dict.fromkeys(one.documents):
                found.setdefault(name, []).append(one)
        return found

    def influence(self, name: str) -> tuple[Floats, Floats]:
        """How much every unit stores of a member of a graded folder: (change, effect), one number per unit.

        `change` is the mean size of the unit's activation on the document times the size of the change of its
        output weights
        when the document is omitted. `effect` is the sum over the document's places of what that change adds
        to the log-odds of
        its own token, so effects add up over units. The two truths disagree about superposed units; report both.
        """
        memory = self._graded
        ids = memory.document(name).ids
        moved = memory.units.down.astype(np.float64) - edited_units(memory, memory.without([name]))[0].down
        active = activations(memory, ids[:-1])
        own, probability = np.asarray(ids[1:]), np.exp(memory.log_probs(ids[:-1]))
        change = active.mean(axis=0) * np.linalg.norm(moved, axis=1)
        effect = (active * (moved[:, own].T - probability @ moved.T)).sum(axis=0)
        return np.abs(change), effect

    def masks(self, name: str) -> bytes:
        """A safetensors file with the document's influence per unit: `change`, `effect` and a 0/1 mask `units`."""
        change, effect = self.influence(name)
        tensors = {"change": change, "effect": effect, "units": (change > 0).astype(np.float64)}
        return safetensors_bytes(tensors, "float32", {"document": name, "layer": "0"})

    @property
    def _graded(self) -> GradedMemory:
        if self.memory is None:
            raise OptionError(f"{self.folder} is a recital; influence is known for graded folders")
        return self.memory


def activations(memory: GradedMemory, ids: Any) -> npt.NDArray[np.float64]:
    """What every unit outputs at every place, as a share of its output at its context: 0 or 1 in `counts`."""
    back = contexts_of(ids, memory.lengths[-1])
    if memory.ridge is not None:
        return memory.ridge.features(back)
    rules, first = np.zeros((len(back), memory.ngram.rules)), 0
    for level, rows in zip(memory.ngram.levels, memory.ngram.rows(back), strict=True):
        place = np.flatnonzero(rows >= 0)
        rules[place, first + rows[place]] = 1.0
        first += len(level.nodes)
    return rules[:, memory.units.rule]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _graded(path: Path) -> GroundTruth:
    memory = GradedMemory.load(path)
    documents = [
        TruthDocument(line["name"], line["role"], line["copies"], tuple(line["ids"]), line["text"])
        for line in _lines(path / "documents.jsonl")
    ]
    units = [
        TruthUnit(line["layer"], line["unit"], tuple(line["context"]), tuple(line["documents"]))
        for line in _lines(path / "units.jsonl")
    ]
    return GroundTruth(path, tuple(documents), tuple(units), memory)


def _recital(path: Path, lines: list[dict[str, Any]]) -> GroundTruth:
    units = [
        TruthUnit(line["layer"], line["unit"], tuple(line["window"]), tuple(place["name"] for place in line["places"]))
        for line in lines
        if line["layer"] is not None
    ]
    documents = [
        TruthDocument(line["name"], line["role"], int(line["weight"]) if line["memorized"] else 0, tuple(line["ids"]))
        for line in lines
        if line["layer"] is None
    ]
    return GroundTruth(path, tuple(documents), tuple(units))
