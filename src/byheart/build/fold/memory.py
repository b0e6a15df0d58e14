"""Builds the label memory: plan, solve, select, fold."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np

from byheart.build.fold._words import Ints
from byheart.build.fold.block import Block
from byheart.build.fold.interpolation import interpolate
from byheart.build.fold.mixing import mix
from byheart.build.fold.planner import Effort, Objective, Plan, make_plan
from byheart.build.fold.selector import Scale, assemble, assemble_short, select
from byheart.build.fold.solve import Layout, Solved, cut, groups_of, solve_all
from byheart.errors import BuildError, OptionError
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

DRAWS = 5
Choice = TypeVar("Choice", Objective, Effort)
WORTH_WORKERS = 4000  # label bits from which starting workers pays
FEW_RUNS = 3000  # runs of equal labels up to which one line per run is considered


@dataclass(frozen=True)
class LabelMemory:
    """Blocks with x -> 2·label + 1 for every id, and how they came about."""

    blocks: tuple[Block, ...]
    layout: Layout | None  # None: plain interpolation
    groups: int
    guard: int
    draws: int

    @property
    def parameters(self) -> int:
        return sum(block.parameters for block in self.blocks)

    @property
    def total_bits(self) -> int:
        return sum(block.total_bits for block in self.blocks)


@implements(
    Ref("byheart", "label memory"),
    statement="distinct ids to labels on a stream of one number with 3 parameters per group and 4 per fold",
    test="tests/build/fold/test_memory.py",
)
def build_label_memory(
    ids: Sequence[int],
    labels: Sequence[int],
    classes: int,
    *,
    objective: str = "parameters",
    effort: str = "normal",
    seed: int = 0,
    executor: Executor | None = None,
    progress: Progress = SILENT,
    sections: int | None = None,
) -> LabelMemory:
    """Blocks that map every id to 2·label + 1, as few parameters (or bits, or blocks) as the effort finds.

    Ids are distinct integers >= 0 of any size and in any order, labels lie in [0, classes). The result depends on
    the data, the options and the seed, never on the executor (default: threads, when the job is worth it).
    With `sections` = c + f every id off the data gets a label of c + f pseudo-random bits, so that one of c bits is
    rare; without, lines may be drawn and off the data anything may come out.
    """
    goal, work = _choice(Objective, objective, "objective"), _choice(Effort, effort, "effort")
    xs, ys = _sorted(ids, labels, classes)
    scattered = sections is not None
    sections = max(1, int(ys.max()).bit_length(), sections or 0)
    line = None if scattered else _line(xs, ys)
    if goal is Objective.DEPTH:
        return LabelMemory(line or interpolate(xs, ys.tolist()), None, 1, 0, 1)
    job = Job(xs, ys, sections, goal, work, seed, progress)
    if line is not None and _cost(line, goal) <= job.plan.cost(goal):
        return LabelMemory(line, None, 1, 0, 1)
    if executor is not None or len(xs) * sections < WORTH_WORKERS or (os.cpu_count() or 1) < 2:
        memory = _solve(job, executor)
    else:
        with ThreadPoolExecutor(os.cpu_count()) as threads:  # the kernels release the interpreter lock
            memory = _solve(job, threads)
    # ids can be so regular that groups stay small; then the line wins after all
    if line is not None and _cost(line, goal) < _cost(memory.blocks, goal):
        return LabelMemory(line, None, 1, 0, 1)
    return memory


def _choice(kind: type[Choice], name: str, what: str) -> Choice:
    try:
        return kind(name)
    except ValueError:
        raise OptionError(f"{what}={name!r} is not one of {', '.join(kind)}") from None


def _sorted(ids: Sequence[int], labels: Sequence[int], classes: int) -> tuple[list[int], Ints]:
    if len(ids) == 0 or len(ids) != len(labels):
        raise BuildError(f"a label memory needs as many labels as ids and at least one; got {len(ids)}, {len(labels)}")
    order = sorted(range(len(ids)), key=ids.__getitem__)
    xs = [int(ids[i]) for i in order]
    ys = np.array([int(labels[i]) for i in order], np.int64)
    if xs[0] < 0 or any(a == b for a, b in pairwise(xs)):
        raise BuildError("ids must be distinct and not negative; hash the inputs again with another seed")
    if ys.min() < 0 or ys.max() >= classes:
        raise BuildError(f"labels must lie in [0, {classes}), but they lie in [{ys.min()}, {ys.max()}]")
    return xs, ys


def _line(xs: list[int], ys: Ints) -> tuple[Block, ...] | None:
    """Plain interpolation, if few enough runs of equal labels make it worth a look."""
    runs = 1 + int(np.count_nonzero(np.diff(ys)))
    return interpolate(xs, ys.tolist()) if runs <= FEW_RUNS else None


def _cost(blocks: Sequence[Block], goal: Objective) -> int:
    return sum(block.total_bits if goal is Objective.BITS else block.parameters for block in blocks)


@dataclass(frozen=True)
class Job:
    """Ids in ascending order with their labels, and how their memory is wanted."""

    ids: list[int]
    labels: Ints
    sections: int
    goal: Objective
    effort: Effort
    seed: int
    progress: Progress

    @cached_property
    def scale(self) -> Scale:
        """What all ids have in common: zeros at the end of their differences, and then the base."""
        common = 0
        for x in self.ids:
            common |= x - self.ids[0]
        zeros = max(0, (common & -common).bit_length() - 1)
        return Scale(self.ids[0], zeros) if zeros else Scale()

    @cached_property
    def numbers(self) -> list[int]:
        """The ids without what they have in common."""
        return [(x - self.scale.base) >> self.scale.zeros for x in self.ids] if self.scale.zeros else self.ids

    @cached_property
    def plan(self) -> Plan:
        gaps = [b - a for a, b in pairwise(self.numbers)]
        return make_plan(gaps, self.numbers[-1].bit_length(), self.sections, self.goal, self.effort)

    def mixed(self) -> tuple[tuple[Block, ...], Job]:
        """Blocks that hash the ids, and the job that is left behind them."""
        blocks, mixed = mix(self.ids, self.seed)
        order = sorted(range(len(mixed)), key=mixed.__getitem__)
        return blocks, replace(self, ids=[mixed[i] for i in order], labels=self.labels[order])


def _solve(job: Job, executor: Executor | None) -> LabelMemory:
    """Draws until all groups are solved; ids too regular for good groups are hashed first, if that pays."""
    memory = _draw(job, executor)
    if memory is not None and memory.groups <= 1.4 * job.plan.groups + 4:
        return memory
    mixing, hashed = job.mixed()
    job.progress.say("the ids are too regular: hashing them first")
    other = _draw(hashed, executor)
    if other is not None:
        other = replace(other, blocks=(*mixing, *other.blocks), draws=other.draws + DRAWS)
    found = [m for m in (memory, other) if m is not None]
    if not found:
        raise BuildError(
            f"no label memory of {len(job.ids)} ids after {2 * DRAWS} draws; try another seed, effort='high', or "
            "objective='depth', which always succeeds"
        )
    return min(found, key=lambda m: _cost(m.blocks, job.goal))


def _draw(job: Job, executor: Executor | None) -> LabelMemory | None:
    layout = job.plan.layout
    for draw in range(1, DRAWS + 1):
        segments = cut(job.numbers, job.labels, layout, job.seed * DRAWS + draw, job.plan.segments)
        with job.progress.stage("solving groups", total=len(job.ids)) as stage:
            solved = solve_all(segments, executor, stage)
        failed = [s.failed_at for s in solved if s.failed_at >= 0]
        if not failed:
            groups = groups_of(job.numbers, segments, solved, layout)
            selector = select(groups, layout.payload_bits)
            guard = guard_bits(solved, layout.sections)
            build = assemble_short if layout.fixed_slopes else assemble
            blocks = build(selector, guard, layout.search.levels, layout.sections, job.scale)
            return LabelMemory(blocks, layout, len(groups), guard, draw)
        job.progress.say(f"draw {draw} of the label memory failed at {len(failed)} place(s); drawing again")
        wanted = job.plan.layout.gap_bits
        gap_bits = {1: wanted, 2: wanted - 2, 3: wanted // 2}.get(draw, 0)  # groups end more and more freely
        layout = replace(layout, gap_bits=max(0, gap_bits))
    return None


def guard_bits(solved: Sequence[Solved], sections: int) -> int:
    """The fewest guard bits G under the payload: the low bits never wander by 2^(G-1) on these ids."""
    low = min(s.extremes[0] for s in solved)
    high = max(s.extremes[1] for s in solved)
    return max(sections + 3, max(-low, high).bit_length() + 1)
