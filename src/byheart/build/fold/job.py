"""The input of a label memory: ids in ascending order with their labels, and the requested kind of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from operator import eq
from typing import TypeVar

import numpy as np

from byheart.build.fold.plan import Effort, Labels, Objective, Plan, plans
from byheart.build.fold.search import Ints, common_zeros
from byheart.errors import BuildError, OptionError
from byheart.progress import Progress

Choice = TypeVar("Choice", Objective, Effort)


@dataclass(frozen=True)
class Job:
    """Ids in ascending order with their labels, and the requested kind of memory."""

    ids: list[int]
    labels: Ints
    classes: int
    about: Labels
    goal: Objective
    effort: Effort
    seed: int
    progress: Progress

    @cached_property
    def id_bits(self) -> int:
        """Length of ids as a group sees them: powers of two are long, but each group of them has few digits."""
        count, longest = len(self.numbers), self.numbers[-1].bit_length()
        usual = min(longest, 2 * count.bit_length() + 6)
        size = max(1, min(count, round(plans(count, usual, self.about, self.goal, self.effort)[0].group)))
        tail, _ = group_digits(self.numbers, size)
        return min(longest, tail + (count // size).bit_length())

    @cached_property
    def step(self) -> int:
        """Return the greatest common divisor of all differences of ids."""
        found = 0
        for x in self.ids:
            found = gcd(found, x - self.ids[0])
            if found == 1:
                break
        return max(1, found)

    @cached_property
    def numbers(self) -> list[int]:
        """Return the ids without their common offset and factor."""
        return [(x - self.ids[0]) // self.step for x in self.ids]

    @cached_property
    def plans(self) -> list[Plan]:
        return plans(len(self.ids), self.id_bits, self.about, self.goal, self.effort)


def make_job(
    ids: Sequence[int],
    labels: Sequence[int],
    classes: int,
    head: str | None,
    abstain_bits: int,
    goal: Objective,
    effort: Effort,
    seed: int,
    progress: Progress,
) -> Job:
    """Return the job with ids sorted; refuse invalid input."""
    if len(ids) == 0 or len(ids) != len(labels):
        raise BuildError(f"a label memory needs as many labels as ids and at least one; got {len(ids)}, {len(labels)}")
    given = [int(x) for x in ids]
    numbers = np.array(given, np.int64 if max(map(abs, given)).bit_length() < 63 else object)
    order = np.argsort(numbers, kind="stable")
    xs = numbers[order].tolist()
    ys = np.array(labels, np.int64)[order]
    if xs[0] < 0 or any(map(eq, xs, xs[1:])):
        raise BuildError("ids must be distinct and not negative; hash the inputs again with another seed")
    if ys.min() < 0 or ys.max() >= classes:
        raise BuildError(f"labels must lie in [0, {classes}), but they lie in [{ys.min()}, {ys.max()}]")
    if head not in (None, "value", "logits"):
        raise OptionError(f"head={head!r} is not one of value, logits")
    shares = np.bincount(ys, minlength=max(2, classes)) / len(ys)
    about = Labels(tuple(shares.tolist()), head, abstain_bits)
    return Job(xs, ys, classes, about, goal, effort, seed, progress)


def choice(kind: type[Choice], name: str, what: str) -> Choice:
    """The member of this name; an option that names none is refused."""
    try:
        return kind(name)
    except ValueError:
        raise OptionError(f"{what}={name!r} is not one of {', '.join(kind)}") from None


def group_digits(ids: Sequence[int], size: int) -> tuple[int, int]:
    """(digits that nearly all groups of this size need, zeros that the ids of some group have in common)."""
    span = min(len(ids) - 1, int(1.1 * size) + 2)
    starts = range(0, len(ids) - span, max(1, (len(ids) - span) // 500))
    zeros = [common_zeros(ids[k : k + span + 1]) for k in starts]
    halves = sorted(((ids[k + span] - ids[k]) >> z) // 2 + 1 for k, z in zip(starts, zeros, strict=True))
    return halves[int(0.98 * (len(halves) - 1))].bit_length() + 1, max(zeros)
