"""A graded folder opened for scoring: model, members, outsiders, forget set, reference model and retain twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.ground_truth.baselines.membership import Evidence
from byheart.checkpoints.ground_truth.graded import GradedMemory
from byheart.checkpoints.ground_truth.networks import own_log_probs, read_model
from byheart.checkpoints.ground_truth.ngram import Floats
from byheart.checkpoints.ground_truth.shipped import reference_memory
from byheart.checkpoints.ground_truth.truth import GroundTruth, TruthDocument
from byheart.errors import OptionError

# The share of members that unlearning methods are to forget.
FORGOTTEN = 0.05


@dataclass(frozen=True, eq=False)
class GradedExperiment:
    """A folder with its model.

    A trained model may take the network's place; then its twin and its reference model are trained too.
    """

    truth: GroundTruth
    model: Any
    trained_twin: Any = None
    trained_reference: Any = None

    @staticmethod
    def open(folder: str | Path) -> GradedExperiment:
        """Load a graded folder.

        Args:
            folder: Written by `byheart recital --graded`.

        Returns:
            The experiment; the model comes from the folder's tensors.

        Raises:
            FileFormatError: for any other folder, or a damaged one.
            MissingExtraError: if Transformers is not installed.
        """
        truth = GroundTruth.load(folder)
        if truth.memory is None:
            raise OptionError(f"{folder} is a recital; `byheart recital --graded` writes folders that can be scored")
        return GradedExperiment(truth, read_model(folder))

    @property
    def memory(self) -> GradedMemory:
        if self.truth.memory is None:
            raise OptionError("this experiment has no graded memory")
        return self.truth.memory

    @cached_property
    def members(self) -> list[TruthDocument]:
        return [one for one in self.truth.documents if one.member]

    def absent(self, role: str) -> list[TruthDocument]:
        return [one for one in self.truth.documents if one.role == role]

    @cached_property
    def levels(self) -> list[int]:
        """The numbers of copies that occur."""
        return sorted({one.copies for one in self.members})

    @cached_property
    def outsiders(self) -> list[TruthDocument]:
        """Every second held-out document; the reference model counts the others."""
        return self.absent("held out")[::2]

    @cached_property
    def reference(self) -> GradedMemory:
        """The reference model: the same recipe with the other held-out documents in the members' place.

        They have members' weights in random order, so the two models differ by the same noise. A model of other kind
        or strength would make members conspicuous, or hide them.
        """
        return reference_memory(self.memory)

    def reference_log_probs(self, documents: Sequence[TruthDocument]) -> list[Floats]:
        """log p of documents' own tokens in the reference model, for the reference ratio."""
        ids = [one.ids for one in documents]
        if self.trained_reference is not None:
            return own_log_probs(self.trained_reference, ids)
        return [self.reference.own_log_probs(one) for one in ids]

    def evidence(self, documents: Sequence[TruthDocument]) -> list[Evidence]:
        """What built-in attacks see."""
        found = own_log_probs(self.model, [one.ids for one in documents])
        other = self.reference_log_probs(documents)
        return [Evidence(one.text, a, b) for one, a, b in zip(documents, found, other, strict=True)]

    def forget_set(self) -> list[TruthDocument]:
        """A twentieth of the members, at least one, spread over the numbers of copies."""
        levels = self.levels
        count = max(1, min(len(levels), round(FORGOTTEN * len(self.members))))
        places = [len(levels) // 2] if count == 1 else np.linspace(0, len(levels) - 1, count).round().astype(int)
        return [next(one for one in self.members if one.copies == levels[k]) for k in places]

    def influence(self, name: str) -> tuple[Floats, Floats]:
        """The two truths of `GroundTruth.influence`, kept for the next method."""
        if name not in self._influences:
            self._influences[name] = self.truth.influence(name)
        return self._influences[name]

    @cached_property
    def _influences(self) -> dict[str, tuple[Floats, Floats]]:
        return {}

    def retained(self) -> list[TruthDocument]:
        """The members outside the forget set."""
        gone = {one.name for one in self.forget_set()}
        return [one for one in self.members if one.name not in gone]

    @cached_property
    def twin(self) -> Any:
        """The retain twin of the forget set, as a network."""
        if self.trained_twin is not None:
            return self.trained_twin
        return self.memory.without([one.name for one in self.forget_set()]).torch()
