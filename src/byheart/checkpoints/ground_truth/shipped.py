"""Attacks on the documents that are shipped, and the strength at which all of them stay in the range.

`calibrate` (strength.py) sets a mean over all documents. An experiment reports the few that occur least often, against
the held-out documents that exist. With nine of them an AUC has an error of 0.1, so one set in 25 would leave the range
by chance. The builder has these documents: it computes the AUCs that the harness will print, from the closed form of
the distribution, and moves the strength by the least step that brings all of them inside `INSIDE`. No network is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from byheart.checkpoints.ground_truth.baselines.membership import ATTACKS, Evidence
from byheart.checkpoints.ground_truth.documents import Counted
from byheart.checkpoints.ground_truth.graded import GradedMemory
from byheart.checkpoints.ground_truth.metrics import auc
from byheart.checkpoints.ground_truth.ngram import Floats
from byheart.data.tokens.script import Absent
from byheart.errors import DataError

# Limits of every attack on the documents with the fewest copies: the range 0.55 to 0.99, with room.
INSIDE = (0.6, 0.95)
# Fewer members or held-out documents than this are too few for an AUC; of many, MOST are chosen evenly.
FEWEST, MOST = 8, 200
# Strengths that are tried: steps of a factor e^(1/2), up to e^5 in both directions; orders of the factors.
STEP, STEPS, ORDERS = 0.5, 10, 8


def reference_memory(memory: GradedMemory) -> GradedMemory:
    """Return the reference model: the recipe of `memory` with every second held-out document in the members' place.

    They have members' weights in random order, so the two models differ by the same noise. A model of other kind
    or strength would make members conspicuous, or hide them.

    Raises:
        DataError: if there are fewer than two held-out documents.
    """
    others = [one for one in memory.absent if one.why == "held out"][1::2]
    if not others:
        raise DataError("membership needs held-out documents: byheart recital --graded --held-out N")
    order = np.random.default_rng(memory.seed).permutation(len(others)) % len(memory.members)
    members = (memory.members[k] for k in order)
    counted = [
        Counted(other.name, other.ids, one.copies, one.weights) for other, one in zip(others, members, strict=True)
    ]
    return replace(memory, documents=(*counted, *(one for one in memory.documents if one.role != "member")))


def rarest_members(memory: GradedMemory) -> list[Counted]:
    """The members with the fewest copies."""
    least = min(one.copies for one in memory.members)
    return [one for one in memory.members if one.copies == least]


def can_judge(memory: GradedMemory) -> bool:
    """Whether there are enough documents for an AUC."""
    held_out = sum(one.why == "held out" for one in memory.absent)
    return len(rarest_members(memory)) >= FEWEST and held_out >= FEWEST


def shipped_aucs(memory: GradedMemory) -> list[float]:
    """The AUCs of the built-in attacks on the members with the fewest copies, as the harness measures them.

    Built-in attacks are measured against every second held-out document, since the others are in the reference model. A
    user's attacks are measured against all: every attack but the reference ratio is judged there too.
    """
    reference = reference_memory(memory)
    held_out = [one for one in memory.absent if one.why == "held out"]
    inside, outside, every = (
        _evidence(memory, reference, some) for some in (rarest_members(memory), held_out[::2], held_out)
    )
    found = []
    for name, attack in ATTACKS.items():
        members = np.array([attack(one) for one in inside])
        for others in (outside,) if name == "reference ratio" else (outside, every):
            found.append(auc(members, np.array([attack(one) for one in others])))
    return found


def _evidence(memory: GradedMemory, reference: GradedMemory, some: Iterable[Counted | Absent]) -> list[Evidence]:
    chosen = list(some)
    chosen = chosen[:: -(-len(chosen) // MOST)]
    own, other = (_own(model, [one.ids for one in chosen]) for model in (memory, reference))
    return [Evidence(memory.lexicon.decode(one.ids), a, b) for one, a, b in zip(chosen, own, other, strict=True)]


def _own(memory: GradedMemory, documents: list[tuple[int, ...]]) -> list[Floats]:
    if memory.storage.exact:
        return memory.ngram.own(documents)
    return [memory.own_log_probs(ids) for ids in documents]


def within_range(build: Callable[[float, int], GradedMemory], strength: float, orders: int = ORDERS) -> GradedMemory:
    """Build the memory whose strength is nearest to a calibrated one and keeps every attack inside INSIDE.

    Where one attack is below and another above at every strength, the random order of the documents' factors is
    replaced.

    Args:
        build: (strength, order of the factors) -> memory.
        strength: The calibrated strength.
        orders: How many orders are tried.

    Returns:
        The memory; where nothing is inside, the one that leaves it least.
    """
    best: tuple[float, GradedMemory] | None = None
    for order in range(orders):
        memory = build(strength, order)
        if not can_judge(memory):
            return memory
        for step in _steps(shipped_aucs(memory)):
            tried = build(strength * float(np.exp(STEP * step)), order) if step else memory
            beyond = _beyond(shipped_aucs(tried))
            if best is None or beyond < best[0]:
                best = beyond, tried
            if not beyond:
                return tried
    if best is None:
        raise DataError("no strength was tried")
    return best[1]


def _steps(found: list[float]) -> list[int]:
    """The steps to try: upwards where an attack is too weak, downwards where one is too strong."""
    if min(found) < INSIDE[0] and max(found) > INSIDE[1]:
        return [0]
    direction = 1 if min(found) < INSIDE[0] else -1 if max(found) > INSIDE[1] else 0
    return [direction * step for step in range(STEPS + 1)] if direction else [0]


def _beyond(found: list[float]) -> float:
    """How far the worst AUC is outside."""
    return max(0.0, INSIDE[0] - min(found), max(found) - INSIDE[1])
