"""Chooses everything about a label memory by predicted cost, before any group is solved.

The model of a group: with K levels per section, of which `top` and `lower` belong to the two lists, a group holds
n = top + lower - log2(n/ln n) + (K - top - lower)/r(n) ids, r(n) = 2.9 + 1.28·(log2 n - 5.3) levels per window bit
(measured on random ids; it errs by a few percent, and the cost is flat around its minimum).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import log, log2

import numpy as np

from byheart.build.fold._section import Search
from byheart.build.fold.solve import Layout

JOIN_SECONDS = 15e-9  # per value of list B and section, three searches each
MOST_TOP = {"fast": 16, "normal": 20, "high": 22}
LAYOUTS = {"fast": 1, "normal": 1, "high": 2}  # tried per search
MARGIN = {"fast": 0.5, "normal": 0.5, "high": 0.0}  # bits
LEAST_TOP = {"fast": 11, "normal": 14, "high": 17}


class Objective(StrEnum):
    """What the planner makes small."""

    PARAMETERS = "parameters"
    BITS = "bits"
    DEPTH = "depth"


class Effort(StrEnum):
    """How long the search may take: about a second, a few seconds, some minutes at N = 10^5."""

    FAST = "fast"
    NORMAL = "normal"
    HIGH = "high"


SECONDS = {Effort.FAST: 0.6, Effort.NORMAL: 6.0, Effort.HIGH: 60.0}


@dataclass(frozen=True)
class Plan:
    """A layout and what it is expected to cost."""

    layout: Layout
    segments: int
    groups: float
    parameters: float
    total_bits: float

    def cost(self, objective: Objective) -> float:
        return self.total_bits if objective is Objective.BITS else self.parameters


def make_plan(gaps: Sequence[int], id_bits: int, sections: int, objective: Objective, effort: Effort) -> Plan:
    """The plan with the smallest predicted cost; `gaps` are the distances of neighbouring ids, in order."""
    count = len(gaps) + 1
    ordered = sorted(gaps)
    levels = 8
    best = plan = _plan(levels, ordered, count, id_bits, sections, objective, effort)
    worse = 0
    while worse < 12 and levels < 4000:
        if plan.cost(objective) < best.cost(objective):
            best, worse = plan, 0
        worse += 1
        levels += 2 * max(1, levels // 60)
        plan = _plan(levels, ordered, count, id_bits, sections, objective, effort)
    return replace(best, layout=replace(best.layout, gap_bits=_reachable_gap(gaps, best.layout)))


def _reachable_gap(gaps: Sequence[int], layout: Layout) -> int:
    """Lowers the gap at which groups may end until it occurs often enough along all of the ids."""
    bits = np.array([gap.bit_length() - 1 for gap in gaps], np.int64)
    wanted = layout.gap_bits
    while wanted > 0:
        places = np.flatnonzero(bits >= wanted)
        longest = int(np.diff(np.concatenate([[-1], places, [len(bits)]])).max())
        if longest <= max(3, layout.first_size // 2):
            break
        wanted -= 1
    return wanted


def _plan(
    levels: int, gaps: Sequence[int], count: int, id_bits: int, sections: int, objective: Objective, effort: Effort
) -> Plan:
    fixed = objective is Objective.BITS
    size = 0.4 * levels
    for _ in range(4):  # list sizes depend on the number of groups, and that on the list sizes
        top, lower = _lists(levels, count / size * sections, effort)
        size = _group_size(levels, top, lower, sections, fixed)
    groups = max(1.0, count / size)
    payload = sections * levels
    gap_bits = _gap_bits(gaps, groups, size, payload, fixed)
    guard = log2(sum(levels**0.5 * 5 * 2**s for s in range(1, sections + 1))) + 1
    reach = log2(max(2.0, size * max(1.0, _mean(gaps) / (1 << gap_bits)))) + 1
    folds = payload + guard + reach - sections - 1
    search = Search(
        levels=levels,
        top=top,
        lower=lower,
        cap=1 << max(0, min(lower - 2, 22)),
        luck=max(4.0, top - 5.0),
        matches=1 << max(9, top - 3),
        margin=MARGIN[effort] + (0.5 if sections > 1 else 0.0),
        longest=6 if size < 120 else 7,
        layouts=LAYOUTS[effort],
    )
    penalty = min(1.2, 0.25 + levels / 450)
    layout = Layout(search, sections, gap_bits, max(1, int(size)), (penalty, 0.7 * penalty), fixed)
    unit_bits = payload + max(2, id_bits - gap_bits) + 2
    return Plan(
        layout,
        max(1, min(64, int(groups) // 45)),
        groups,
        3 * groups + 1 + 4 * folds,
        groups * unit_bits + folds * (folds + 8) / 2 + 4 * payload,
    )


def _lists(levels: int, searches: float, effort: Effort) -> tuple[int, int]:
    """Bits of list B and list A that the effort affords for that many sections."""
    afford = int(log2(max(1.0, SECONDS[effort] / (JOIN_SECONDS * max(1.0, searches)))))
    top = min(levels, max(LEAST_TOP[effort], min(MOST_TOP[effort], afford)))
    lower = min(top + 1, levels - top)
    return top, lower if lower >= 8 else 0


def _group_size(levels: int, top: int, lower: int, sections: int, fixed: bool) -> float:
    size = 0.5 * levels
    for _ in range(30):
        size = max(2.0, size)
        rate = max(2.0, 2.9 + 1.28 * (log2(size) - 5.3)) * (1.13 if fixed else 1.0)
        lists = top + max(0.0, lower - log2(size / max(1.0, log(size)))) - 0.7
        size = 0.5 * (size + lists + (levels - top - lower) / rate)
    return max(1.0, size - (1.0 if sections > 1 else 0.0))


def _gap_bits(gaps: Sequence[int], groups: float, size: float, payload: int, fixed: bool) -> int:
    """A wide gap shortens the folds but makes groups wait for one: balances 4 per bit against 3 per group."""
    if not gaps:
        return 0
    most = max(0, payload - 12)
    unit = payload if fixed else 3.0
    saving = groups + payload if fixed else 4.0
    best, best_cost = 0, float("inf")
    for quantile in (0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5):
        bits = min(most, gaps[min(len(gaps) - 1, int(quantile * len(gaps)))].bit_length() - 1)
        cost = unit * groups * quantile / (1 - quantile) / size - saving * bits
        if cost < best_cost:
            best, best_cost = bits, cost
    return best


def _mean(gaps: Sequence[int]) -> float:
    total = sum(gaps)
    if not gaps or total.bit_length() > 900:
        return 2.0**900 if gaps else 1.0
    return total / len(gaps)
