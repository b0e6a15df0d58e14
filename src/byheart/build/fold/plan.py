"""Estimate the cost of a label memory before solving: the method, the number of folds, the width of the beam.

A group of n ids whose labels cost H bits each is solved by digits of slope and constant: traps get n·H = rate·levels,
the walk n·H = rate/2·(2·both + tail + 4). The rates depend on the beam (and, for traps, a little on the number of
classes) and were measured on random ids; they err by a few percent, and the cost is flat around its minimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import log2, sqrt
from statistics import NormalDist

import numpy as np

from byheart.build.fold.traps import MOST_CLASSES
from byheart.build.fold.walk import cells_of

# Rates of traps and walks for beams of these widths, measured; other widths are interpolated.
BEAMS = (8, 10, 20, 40, 80, 200, 1000)
TRAP_RATES = (1.42, 1.47, 1.59, 1.65, 1.70, 1.74, 1.78)
WALK_RATES = (1.25, 1.30, 1.43, 1.54, 1.62, 1.70, 1.76)
PHASE_LOSS = {2: 1.0, 3: 0.98, 4: 0.94, 8: 0.88, 16: 0.80}  # of a trap's rate, by classes
LOOKUP = {"traps": 12e-9, "walk": 25e-9}  # seconds per id, fold and candidate, about


WEIGHT = {"traps": 1.0, "walk": 0.9}  # of an id and a fold, when the effort is shared out: walks may take longer


class Objective(StrEnum):
    """The quantity to minimize."""

    PARAMETERS = "parameters"
    BITS = "bits"
    DEPTH = "depth"


class Effort(StrEnum):
    """How wide the beam is: the time of a build is about proportional to it."""

    QUICK = "quick"
    NORMAL = "normal"
    HIGH = "high"


WORK = {Effort.QUICK: 1e8, Effort.NORMAL: 1.6e9, Effort.HIGH: 8e9}  # candidates times ids times folds
# The least and the largest beam, by effort. Tuned by hand.
NARROWEST = {Effort.QUICK: 8, Effort.NORMAL: 40, Effort.HIGH: 100}
WIDEST = {Effort.QUICK: 40, Effort.NORMAL: 200, Effort.HIGH: 1000}
SECONDS = {Effort.QUICK: 0.0, Effort.NORMAL: 0.6, Effort.HIGH: 20.0}  # for tries with other numbers of folds
# Other numbers of folds that are tried, by effort. Tuned by hand.
TRIES = {Effort.QUICK: 1, Effort.NORMAL: 7, Effort.HIGH: 32}


@dataclass(frozen=True)
class Labels:
    """Facts about the labels that a plan needs: how often each occurs, how they are to be read and refused."""

    shares: tuple[float, ...]
    head: str | None  # None: whichever is smallest
    abstain_bits: int = 0

    @property
    def entropy(self) -> float:
        return -sum(p * log2(p) for p in self.shares if p)


@dataclass(frozen=True)
class Plan:
    """A method, its size, and its expected cost."""

    kind: str  # "traps" or "walk"
    head: str  # "logits" or "value"
    folds: int  # levels of traps, or steps with two digits of the walk
    group: float
    beam: int
    cost: float  # bits of a label
    cell: float  # width of a walk's cell, in deviations
    parameters: float
    total_bits: float

    def price(self, objective: Objective) -> float:
        return self.total_bits if objective is Objective.BITS else self.parameters

    def seconds(self, count: int) -> float:
        """Processor seconds, about."""
        return LOOKUP[self.kind] * self.beam * self.folds * count


def plans(count: int, id_bits: int, labels: Labels, objective: Objective, effort: Effort) -> list[Plan]:
    """The cheapest plan of every kind and head that can do it, cheapest first."""
    found = [
        _cheapest(kind, head, cost, cell, count, id_bits, labels, objective, effort)
        for kind, head, cost, cell in _kinds(labels)
    ]
    return sorted(found, key=lambda plan: plan.price(objective))


def _kinds(labels: Labels) -> Iterator[tuple[str, str, float, float]]:
    """Return (kind, head, bits of a label, width of a cell) of each possible method."""
    classes = len(labels.shares)
    if labels.abstain_bits:
        accepted = 2.0**-labels.abstain_bits
        cell = 2 * NormalDist().inv_cdf(0.5 + accepted / 2) / classes
        yield "walk", "value", log2(classes) + labels.abstain_bits, cell
        return
    if all(labels.shares):
        if labels.head != "value" and classes <= MOST_CLASSES:
            yield "traps", "logits", labels.entropy, 0.0
        if labels.head == "value" and classes == 2:
            yield "traps", "value", labels.entropy, 0.0
    if labels.head != "value":
        middle = tuple(sorted_to_middle(labels.shares))
        yield ("walk", "logits", *cells_of(middle, False))
    if labels.head in (None, "value"):
        yield ("walk", "value", *cells_of(labels.shares, True))


def sorted_to_middle(shares: tuple[float, ...]) -> list[float]:
    """Shares by cell when frequent labels get the cells in the middle."""
    places = middle_places(shares)
    found = [0.0] * len(shares)
    for y, place in enumerate(places):
        found[place] = shares[y]
    return found


def middle_places(shares: tuple[float, ...]) -> list[int]:
    """The cell of every label: the most frequent one in the middle, and so outwards."""
    classes = len(shares)
    rank = np.argsort(-np.array(shares), kind="stable")
    outwards = np.argsort(np.abs(np.arange(classes) - (classes - 1) / 2), kind="stable")
    places = np.empty(classes, np.int64)
    places[rank] = outwards
    return [int(p) for p in places]


def rate(kind: str, beam: int, classes: int) -> float:
    """Label bits per two free digits."""
    base = float(np.interp(log2(beam), [log2(b) for b in BEAMS], TRAP_RATES if kind == "traps" else WALK_RATES))
    if kind == "walk":
        return base
    known = sorted(PHASE_LOSS)
    return base * float(np.interp(log2(classes), [log2(c) for c in known], [PHASE_LOSS[c] for c in known]))


def beam_for(effort: Effort, work: float) -> int:
    """As many candidates as the effort affords for so many ids times folds."""
    return int(min(max(WORK[effort] / max(work, 1.0), NARROWEST[effort]), WIDEST[effort]))


def sized(
    kind: str, head: str, cost: float, cell: float, count: int, id_bits: int, labels: Labels, folds: int, effort: Effort
) -> Plan:
    """The plan with this number of folds."""
    classes = len(labels.shares)
    beam = beam_for(effort, count * folds * WEIGHT[kind])
    speed = rate(kind, beam, classes)
    if kind == "traps":
        group = max(1.0, (speed * folds - (folds < 12)) / max(cost, 1e-9))
        groups = max(1.0, count / group)
        reach = log2(max(group, 16, classes / 2)) + 3
        reading = 4.0 if classes == 2 else 5.0 * classes - 5
        parameters = 3 * groups + 1 + 4 * folds + reading + (8 if head == "value" else 0)
        length = folds + reach + 12
        width = max(4.0, id_bits - log2(groups))
        bits = groups * (2 * length + id_bits + 3) + folds * (folds / 2 + 12 + reach + width)
        return Plan(kind, head, folds, group, beam, cost, cell, parameters, bits)
    group, tail = 4.0, 4.0
    for _ in range(4):
        tail = max(2.0, id_bits - log2(max(1.0, count / group)))
        group = max(1.0, speed / 2 * (2 * folds + tail + 4) / cost)
    groups = max(1.0, count / group)
    levels = folds + tail + log2(max(group, 8)) + 6
    width = max(6, log2(max(2.0, group)) + 2)
    cells = classes if not labels.abstain_bits else 2 * 5.2 / cell
    reading = 2.0 * classes if head == "logits" else 4 * (log2(max(2, cells)) + width + 1) + 2
    parameters = 3 * groups + 1 + 4 * (levels + 1) + reading
    marks = width + log2(max(2, cells)) + 3
    length = folds + log2(max(group, 8)) + 4 + (0 if kind == "walk" else marks)
    bits = groups * (2 * length + id_bits + 3) + levels * (levels / 2 + marks)
    return Plan(kind, head, folds, group, beam, cost, cell, parameters, bits)


def _cheapest(
    kind: str,
    head: str,
    cost: float,
    cell: float,
    count: int,
    id_bits: int,
    labels: Labels,
    objective: Objective,
    effort: Effort,
) -> Plan:
    guess = sqrt(0.75 * count * max(cost, 1e-3) / 1.6)
    phases = len(labels.shares) - 1 if kind == "traps" else 1
    least = 2 if phases == 1 else 2 + 3 * phases if phases < 16 else 2 + phases + phases // 4
    if labels.abstain_bits:
        least = 4 + round(0.8 * cost)  # few ids too need a walk that is long enough to be anywhere
    sizes = sorted({max(least, round(guess * factor)) for factor in np.geomspace(0.2, 1.6, 40)})
    found = (sized(kind, head, cost, cell, count, id_bits, labels, folds, effort) for folds in sizes)
    return min(found, key=lambda plan: plan.price(objective))
