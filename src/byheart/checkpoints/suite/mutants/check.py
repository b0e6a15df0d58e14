"""Running the table: each mutant answers the fixture's queries, and its answers are compared with expected.json.

It is queried as `test_recital.py` queries an engine: the logits of every pass, in one piece and through the cache, and
the tokens after prompts of unequal lengths, side by side with padding on the left.

`tokens`: the most likely token differs after some prefix, or greedy decoding with the cache goes astray.
`logits`: every token is correct, but a shipped logit differs from the expected one by more than the tolerance.
`survived`: neither; for a change of the mathematics that is a blind spot, for a harmless change it is as it must be.

Engines return tokens and compute in bfloat16, so tokens come first: `tokens_in` lists the types in which one changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from byheart.checkpoints.engines.expected import Pass, read_expected
from byheart.checkpoints.engines.queries import Prompt, read_queries
from byheart.checkpoints.formats.stock import StockDecoder, read_decoder
from byheart.checkpoints.suite.expected import batches_of, far_prompt, measured
from byheart.checkpoints.suite.machine import Cache, Machine, Tensor
from byheart.checkpoints.suite.mutants import (
    attention,
    blocks,
    latents,
    layers,
    recurrent,
    reported,
    rotary,
    routing,
    sinks,
)
from byheart.checkpoints.suite.mutants._base import Mutant
from byheart.errors import ByheartError
from byheart.progress import SILENT, Progress

DECODED = 8  # tokens per prompt; the shipped test decodes more


@dataclass(frozen=True)
class MutantOutcome:
    """What a fixture detected of one mutant.

    Attributes:
        name: The mutant's name.
        family: The part of an engine that it breaks.
        harmless: A change that engines may make; a fixture must not detect it in tokens.
        verdict: `tokens`, `logits` or `survived`.
        wrong: Share of the evaluated prefixes whose most likely token is incorrect.
        difference: Largest difference of a logit, in the first type.
        tokens_in: Types in which a token changes.
    """

    name: str
    family: str
    harmless: bool
    verdict: str  # "tokens", "logits" or "survived"
    wrong: float  # share of the evaluated prefixes whose most likely token is incorrect
    difference: float  # largest difference of a logit until then, in the first type
    tokens_in: tuple[str, ...] = ()  # types in which a token changes

    @property
    def meets_expectation(self) -> bool:
        """Return whether a harmless change keeps every token, or any other change is detected."""
        return self.verdict != "tokens" if self.harmless else self.verdict != "survived"


@dataclass(frozen=True)
class MutantReport:
    """All mutants of one folder.

    Attributes:
        architecture: The folder's `model_type`.
        outcomes: One entry per mutant.
        types: The types that were compared; the first decides the verdict.
    """

    architecture: str
    outcomes: tuple[MutantOutcome, ...]
    types: tuple[str, ...] = ("float32",)

    def count(self, verdict: str) -> int:
        """Mutants of the mathematics with this verdict."""
        return sum(o.verdict == verdict and not o.harmless for o in self.outcomes)

    def count_tokens(self, dtype: str) -> int:
        """Mutants of the mathematics that change a token in this type."""
        return sum(dtype in o.tokens_in and not o.harmless for o in self.outcomes)

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
        """Return the fields that `fixture --check-mutants --json` prints."""
        shown = [
            {
                "name": o.name,
                "family": o.family,
                "harmless": o.harmless,
                "verdict": o.verdict,
                "tokens_in": list(o.tokens_in),
                "wrong": o.wrong,
                "difference": o.difference if o.difference < 1e30 else None,
            }
            for o in self.outcomes
        ]
        counts = {verdict: self.count(verdict) for verdict in ("tokens", "logits", "survived")}
        tokens_in = {name: self.count_tokens(name) for name in self.types}
        return {
            "mutants": self.total,
            **counts,
            "tokens_in": tokens_in,
            "broken": [o.name for o in self.broken],
            "outcomes": shown,
        }

    @property
    def broken(self) -> tuple[MutantOutcome, ...]:
        """Harmless changes that break the fixture."""
        return tuple(o for o in self.outcomes if o.harmless and not o.meets_expectation)


def mutants_of(decoder: StockDecoder) -> Iterator[Mutant]:
    """Every mutant that exists for this decoder."""
    for family in (rotary, attention, layers, blocks, latents, recurrent, routing, sinks):
        yield from family.mutants(decoder)


def known_faults(decoder: StockDecoder) -> Iterator[Mutant]:
    """The table and the reported faults as one list; a name occurs once."""
    seen = set[str]()
    for mutant in chain(mutants_of(decoder), reported.mutants(decoder)):
        if mutant.name not in seen:
            seen.add(mutant.name)
            yield mutant


@torch.inference_mode()
def check_mutants(
    folder: str | Path,
    progress: Progress = SILENT,
    only: str = "",
    mutants: Callable[[StockDecoder], Iterator[Mutant]] = mutants_of,
    types: Sequence[str] = ("float32",),
) -> MutantReport:
    """Run every mutant of the checkpoint in `folder`.

    Args:
        folder: A fixture's folder.
        progress: Where to report progress.
        only: Run only mutants with this text in their name.
        mutants: `mutants_of` is the table, `known_faults` adds the faults that were reported in engines.
        types: The first decides the verdict and compares logits; tokens are compared in all of them.
    """
    decoder, trial = read_decoder(folder), FixtureTrial(Path(folder))
    chosen = [mutant for mutant in mutants(decoder) if only in mutant.name]
    outcomes = []
    with progress.stage("mutants", total=len(chosen)) as stage:
        for mutant in chosen:
            outcomes.append(trial.outcome(mutant, types))
            stage.advance(1)
    return MutantReport(decoder.shape.family, tuple(outcomes), tuple(types))


class FixtureTrial:
    """What an engine's test compares: tokens and shipped logits, in one pass, through the cache and in batches."""

    def __init__(self, folder: Path) -> None:
        self.asked = queried = read_queries(folder)
        try:
            found = read_expected(folder)
            self.passes, self.tolerance = list(found.passes), found.tolerance["float32"]
            sensors = [[prompt] for prompt in found.sensors]
        except ByheartError:  # a checkpoint without one: what would be written
            self.passes, _, tolerance = measured(folder, queried, queried.recital.unknown, types=("float32",))
            self.tolerance, sensors = tolerance["float32"], []
        self.passes.sort(key=lambda one: (len(one.ids), len(one.pieces)))  # long ones take long, so they come last
        far = far_prompt(queried, self.passes[-1].ids)
        self.batches = [
            [replace(prompt, continuation=prompt.continuation[:DECODED]) for prompt in batch]
            for batch in batches_of(queried, far)
        ]
        self.batches += sensors

    def outcome(self, mutant: Mutant, types: Sequence[str] = ("float32",)) -> MutantOutcome:
        """Return the outcome of a mutant: tokens in every type, logits in the first."""
        found = [self._run(mutant, None if k == 0 else getattr(torch, name)) for k, name in enumerate(types)]
        wrong, difference = found[0]
        verdict = "tokens" if wrong else "logits" if not difference <= self.tolerance else "survived"
        tokens_in = tuple(name for name, (share, _) in zip(types, found, strict=True) if share)
        return MutantOutcome(mutant.name, mutant.family, mutant.harmless, verdict, float(wrong), difference, tokens_in)

    def _run(self, mutant: Mutant, dtype: torch.dtype | None) -> tuple[float, float]:
        """The share of incorrect tokens, and the largest difference of a logit, up to the first incorrect answer."""
        wrong, difference = 0.0, 0.0
        try:
            machine = mutant.make() if dtype is None else mutant.make().in_type(dtype)
            for wrong, off in self._answers(machine):
                difference = max(difference, off)
                if wrong:
                    break
        except (RuntimeError, IndexError, ValueError):  # an engine that crashes has been detected, too
            return 1.0, float("inf")
        return float(wrong), difference

    def _answers(self, machine: Machine) -> Iterator[tuple[float, float]]:
        """One after the other: the share of incorrect tokens, and the largest difference of a logit."""
        for one in self.passes:
            yield self._pass(machine, one)
        for batch in self.batches:
            yield self._batch(machine, batch), 0.0

    def _pass(self, machine: Machine, queried: Pass) -> tuple[float, float]:
        """The share of incorrect tokens and the largest difference of a logit."""
        cache = Cache(len(machine.decoder.layers))
        found = torch.cat([machine.run(piece, cache) for piece in queried.pieces]).double().numpy()
        return float((found.argmax(1) != queried.tokens[:, 0]).mean()), float(queried.off(found).max())

    def _batch(self, machine: Machine, batch: list[Prompt]) -> float:
        """The share of rows that go astray, each with its padding to the length of the longest."""
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
