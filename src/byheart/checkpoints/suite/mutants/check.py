"""Running the table: each mutant answers the fixture's questions, and its answers are compared with expected.json.

It is queried as `test_recital.py` queries an engine: the logits of every pass, in one piece and through the cache, and
the tokens behind prompts of unequal lengths, side by side with padding on the left.

`tokens`: the most likely token is wrong after some prefix, or greedy decoding with the cache goes astray.
`logits`: every token is right, but a shipped logit differs from the expected one by more than the tolerance.
`survived`: neither; for a change of the mathematics that is a blind spot, for a harmless change it is as it must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from byheart.checkpoints.engines.expected import Pass, read_expected
from byheart.checkpoints.engines.questions import Prompt, read_questions
from byheart.checkpoints.formats.stock import StockDecoder, read_decoder
from byheart.checkpoints.suite.expected import batches_of, far_prompt, measured
from byheart.checkpoints.suite.machine import Cache, Machine, Tensor
from byheart.checkpoints.suite.mutants import attention, blocks, layers, rotary
from byheart.checkpoints.suite.mutants._base import Mutant
from byheart.errors import ByheartError
from byheart.progress import SILENT, Progress

DECODED = 8  # tokens per prompt; the shipped test decodes more


@dataclass(frozen=True)
class MutantOutcome:
    """What became of a mutant."""

    name: str
    family: str
    harmless: bool
    verdict: str  # "tokens", "logits" or "survived"
    wrong: float  # share of the prefixes asked until then whose most likely token is wrong
    difference: float  # largest difference of a logit

    @property
    def meets_expectation(self) -> bool:
        """A harmless change says the right tokens; any other is noticed."""
        return self.verdict != "tokens" if self.harmless else self.verdict != "survived"


@dataclass(frozen=True)
class MutantReport:
    """All mutants of one folder."""

    architecture: str
    outcomes: tuple[MutantOutcome, ...]

    def count(self, verdict: str) -> int:
        """Mutants of the mathematics with this verdict."""
        return sum(o.verdict == verdict and not o.harmless for o in self.outcomes)

    @property
    def total(self) -> int:
        return sum(not o.harmless for o in self.outcomes)

    @property
    def survivors(self) -> tuple[MutantOutcome, ...]:
        return tuple(o for o in self.outcomes if not o.harmless and o.verdict == "survived")

    @property
    def passed(self) -> bool:
        """Every fault noticed, every harmless change survived."""
        return not self.survivors and not self.broken

    def to_json(self) -> dict[str, Any]:
        shown = [
            {
                "name": o.name,
                "family": o.family,
                "harmless": o.harmless,
                "verdict": o.verdict,
                "wrong": o.wrong,
                "difference": o.difference if o.difference < 1e30 else None,
            }
            for o in self.outcomes
        ]
        counts = {verdict: self.count(verdict) for verdict in ("tokens", "logits", "survived")}
        return {"mutants": self.total, **counts, "broken": [o.name for o in self.broken], "outcomes": shown}

    @property
    def broken(self) -> tuple[MutantOutcome, ...]:
        """Harmless changes that break the fixture."""
        return tuple(o for o in self.outcomes if o.harmless and not o.meets_expectation)


def mutants_of(decoder: StockDecoder) -> Iterator[Mutant]:
    """Every mutant that exists for this decoder."""
    for family in (rotary, attention, layers, blocks):
        yield from family.mutants(decoder)


@torch.inference_mode()
def check_mutants(
    folder: str | Path,
    progress: Progress = SILENT,
    only: str = "",
    mutants: Callable[[StockDecoder], Iterator[Mutant]] = mutants_of,
) -> MutantReport:
    """Runs every mutant of the checkpoint in `folder` (or those with `only` in their name).

    `mutants`: `mutants_of` makes the table, `held_out.mutants` a list that nothing was tuned to, `coverage.parts` one
    mutant for every tensor, head, frequency and branch.
    """
    decoder, trial = read_decoder(folder), FixtureTrial(Path(folder))
    chosen = [mutant for mutant in mutants(decoder) if only in mutant.name]
    outcomes = []
    with progress.stage("mutants", total=len(chosen)) as stage:
        for mutant in chosen:
            outcomes.append(trial.outcome(mutant))
            stage.advance(1)
    return MutantReport(decoder.shape.family, tuple(outcomes))


class FixtureTrial:
    """What an engine's test compares: tokens and shipped logits, in one pass, through the cache and in batches."""

    def __init__(self, folder: Path) -> None:
        self.asked = asked = read_questions(folder)
        try:
            found = read_expected(folder)
            self.passes, self.tolerance = list(found.passes), found.tolerance["float32"]
        except ByheartError:  # a checkpoint without one: what would be written
            self.passes, _, tolerance = measured(folder, asked, asked.recital.unknown, types=("float32",))
            self.tolerance = tolerance["float32"]
        self.passes.sort(key=lambda one: (len(one.ids), len(one.pieces)))  # long ones take long, so they come last
        far = far_prompt(asked, self.passes[-1].ids)
        self.batches = [
            [replace(prompt, continuation=prompt.continuation[:DECODED]) for prompt in batch]
            for batch in batches_of(asked, far)
        ]

    def outcome(self, mutant: Mutant) -> MutantOutcome:
        wrong, difference = 0.0, 0.0
        try:
            machine = mutant.make()
            for found, off in self._answers(machine):
                wrong, difference = found, max(difference, off)
                if wrong or not (mutant.harmless or difference <= self.tolerance):  # one wrong answer is enough
                    break
        except (RuntimeError, IndexError, ValueError):  # an engine that crashes has been noticed, too
            wrong, difference = 1.0, float("inf")
        verdict = "tokens" if wrong else "logits" if not difference <= self.tolerance else "survived"
        return MutantOutcome(mutant.name, mutant.family, mutant.harmless, verdict, float(wrong), difference)

    def _answers(self, machine: Machine) -> Iterator[tuple[float, float]]:
        """One after the other: the share of wrong tokens, and the largest difference of a logit."""
        for one in self.passes:
            yield self._pass(machine, one)
        for batch in self.batches:
            yield self._batch(machine, batch), 0.0

    def _pass(self, machine: Machine, asked: Pass) -> tuple[float, float]:
        """The share of wrong tokens and the largest difference of a logit."""
        cache = Cache(len(machine.decoder.layers))
        found = torch.cat([machine.run(piece, cache) for piece in asked.pieces]).double().numpy()
        return float((found.argmax(1) != asked.tokens[:, 0]).mean()), float(asked.off(found).max())

    def _batch(self, machine: Machine, batch: list[Prompt]) -> float:
        """The share of rows that go astray, each with the padding that brings it to the length of the longest."""
        longest = max(len(prompt.ids) for prompt in batch)
        astray = [
            follow(machine, prompt, longest - len(prompt.ids), self.asked.pad).argmax(1).tolist()
            != list(prompt.continuation)
            for prompt in batch
        ]
        return sum(astray) / len(astray)


def follow(machine: Machine, prompt: Prompt, padding: int, pad: int) -> Tensor:
    """Logits (continuation, vocabulary): the prompt in one pass, then the right tokens one by one through the cache."""
    cache = Cache(len(machine.decoder.layers))
    rows = [machine.run([pad] * padding + list(prompt.ids), cache, padding)[-1]]
    for token in prompt.continuation[:-1]:
        rows.append(machine.run([token], cache)[-1])
    return torch.stack(rows)
