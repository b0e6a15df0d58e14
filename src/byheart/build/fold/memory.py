"""Builds the label memory: distinct ids to labels, by whichever of traps, walk and one line is smallest.

Plans are ranked by predicted size; the best and variations of it are carried out within the effort's seconds, and the
smallest memory found is taken. Ids too regular for good groups get other folds, then preceding folds that pull them
apart. Every line is checked in exact integers before it is taken: a plan that fails costs size or time, never a label.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

import numpy as np

from byheart.build.fold import traps as trapping
from byheart.build.fold import walk as walking
from byheart.build.fold.block import Reading, StreamBlock, interpolate, overlay, stir
from byheart.build.fold.job import Job, choice, group_digits, make_job
from byheart.build.fold.lens import Focused, focus
from byheart.build.fold.pins import PinBeam, pin
from byheart.build.fold.plan import (
    SECONDS,
    TRIES,
    Effort,
    Objective,
    Plan,
    middle_places,
    sized,
    sorted_to_middle,
)
from byheart.build.fold.search import Frame, GroupError, Line, Segment, common_zeros, selector
from byheart.build.fold.segments import LEAST_GROUPS, solve_all
from byheart.build.fold.traps import Traps
from byheart.build.fold.walk import Walk
from byheart.errors import BuildError, OptionError
from byheart.exact import Number, dyadic
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

SEEDS = 4  # draws of a plan that cannot be carried out
WORTH_WORKERS = 1.0  # seconds from which starting workers pays
SEGMENT_SECONDS = 0.6  # segments are the root of the seconds in these units: each costs the groups that join it
# Segments that are solved in parallel, at most. Tuned by hand: each joint costs parameters.
MOST_SEGMENTS = 12
FEW_RUNS = 3000  # runs of equal labels up to which one line per run is considered
NEAR = 1.12  # plans within this factor of the best are tried, where there is time
DISAPPOINTING = 1.2  # times the predicted size: the ids are too regular
FOCUS_WORK = {Effort.QUICK: 2e6, Effort.NORMAL: 1e8, Effort.HIGH: 1e9}  # meetings of ids and edges: 0.1 µs each
# Widths of the search for pinned edges, by effort. Tuned by hand.
PINS = {Effort.QUICK: PinBeam(4, 12, 0), Effort.NORMAL: PinBeam(8, 24, 1), Effort.HIGH: PinBeam(24, 48, 2)}
PINNED = {Effort.QUICK: 60, Effort.NORMAL: 160, Effort.HIGH: 250}  # ids of any kind up to which pinned lines are tried
PINNED_REGULAR = 600  # … where nothing comes near the predicted size
OTHER_FOLDS = (1.35, 1.8, 0.65, 0.4, 0.25)  # times the folds: more for regular ids, fewer for groups that gaps end


@dataclass(frozen=True)
class LabelMemory:
    """Blocks and a reading that give every id its label.

    Attributes:
        blocks: The blocks.
        reading: How a label is read from the stream.
        groups: Groups of ids with one line each.
        note: How the blocks were found.
    """

    blocks: tuple[StreamBlock, ...]
    reading: Reading
    groups: int
    note: str

    @property
    def parameters(self) -> int:
        """Of blocks and reading."""
        return sum(block.parameters for block in self.blocks) + self.reading.parameters

    @property
    def total_bits(self) -> int:
        return sum(block.total_bits for block in self.blocks)

    def price(self, objective: Objective) -> int:
        """Return the quantity to minimize.

        Args:
            objective: Which one.
        """
        return self.total_bits if objective is Objective.BITS else self.parameters

    def label(self, x: int) -> Number | None:
        """Evaluate the memory in exact arithmetic, slowly and obviously.

        Args:
            x: An id.

        Returns:
            The label; None for none.
        """
        h: Number = x
        for block in self.blocks:
            h = block(h)
        return self.reading.label(h)


@implements(
    Ref("byheart", "label memory"),
    statement="distinct ids to labels on a stream of one number with 3 parameters per group and 4 per fold",
    test="tests/build/fold/test_fold.py",
)
def build_label_memory(
    ids: Sequence[int],
    labels: Sequence[int],
    classes: int,
    *,
    head: str | None = None,
    objective: str = "parameters",
    effort: str = "normal",
    abstain_bits: int = 0,
    seed: int = 0,
    executor: Executor | None = None,
    resume: str | Path | None = None,
    progress: Progress = SILENT,
) -> LabelMemory:
    """Build a memory of as few parameters (or bits, or blocks) as the effort finds.

    The result depends on data, options and seed, never on the executor.

    Args:
        ids: Distinct integers >= 0 of any size and in any order.
        labels: Their labels, in [0, classes).
        classes: C.
        head: "value" (the output is the label), "logits" (the largest of C) or None (whichever is smaller).
        objective: The quantity to minimize.
        effort: How wide the search is.
        abstain_bits: f: the value of another id lies in [0, classes) with probability 2^-f only.
        seed: The seed of the search.
        executor: Where parts are solved; by default threads, when the job is worth it.
        resume: A file for the solved parts, so that an interrupted build continues from them.
        progress: Where to show progress.

    Raises:
        BuildError: No memory was found.
    """
    goal, work = choice(Objective, objective, "objective"), choice(Effort, effort, "effort")
    job = make_job(ids, labels, classes, head, abstain_bits, goal, work, seed, progress)
    line = None if abstain_bits else _line(job, goal is Objective.DEPTH)
    if goal is Objective.DEPTH:
        if line is None:
            raise OptionError("one block cannot refuse: abstain_bits needs objective=parameters or bits")
        return line
    if line is not None and len(set(job.labels.tolist())) == 1:
        return line
    with _workers(job, executor) as workers:
        memory = _smallest(job, workers, resume, line)
    return memory


def smallest_head(
    ids: Sequence[int], labels: Sequence[int], classes: int, *, objective: str = "parameters", effort: str = "normal"
) -> str:
    """Predict the head with which a label memory is smallest.

    Args:
        ids: Distinct integers >= 0.
        labels: Their labels.
        classes: C.
        objective: The quantity to minimize.
        effort: How wide the search is.

    Returns:
        "value" or "logits".

    >>> smallest_head(range(100), [k % 2 for k in range(100)], 2)
    'logits'
    """
    goal, work = choice(Objective, objective, "objective"), choice(Effort, effort, "effort")
    job = make_job(ids, labels, classes, None, 0, goal, work, 0, SILENT)
    line = _line(job, False)
    if line is not None and line.price(goal) <= job.plans[0].price(goal):
        return "value"
    return job.plans[0].head


def _line(job: Job, needed: bool) -> LabelMemory | None:
    """Plain interpolation, if few enough runs of equal labels make it worth a look."""
    runs = 1 + int(np.count_nonzero(np.diff(job.labels)))
    if runs > FEW_RUNS and not needed:
        return None
    blocks = interpolate(job.ids, job.labels.tolist())
    reading = Reading.value(dyadic(1, -1), dyadic(-1, -1))
    if job.about.head == "logits":
        reading = Reading.logits([(g, -g * (g + 1)) for g in range(job.classes)])
    return LabelMemory(blocks, reading, 1, "one line through all ids")


class _workers:
    """The caller's executor, or own threads where the job is worth it (the kernels release the interpreter)."""

    def __init__(self, job: Job, executor: Executor | None) -> None:
        self.given = executor
        worth = bool(job.plans) and job.plans[0].seconds(len(job.ids)) >= WORTH_WORKERS
        self.own = ThreadPoolExecutor(os.cpu_count()) if executor is None and worth else None

    def __enter__(self) -> Executor | None:
        return self.given or self.own

    def __exit__(self, *error: object) -> None:
        if self.own is not None:
            self.own.shutdown(cancel_futures=True)


def _smallest(job: Job, workers: Executor | None, resume: str | Path | None, line: LabelMemory | None) -> LabelMemory:
    """The best of the tries; ids too regular for good groups are stirred first, if that pays."""
    found = [] if line is None else [line]
    best = job.plans[0]
    if line is not None and line.price(job.goal) < 0.8 * best.price(job.goal):
        return line
    # Wider beams find more on average, not always: high effort also tries the plans of less effort.
    for work in [job, replace(job, effort=Effort.NORMAL)] if job.effort is Effort.HIGH else [job]:
        for k, plan in enumerate(_tries(work)):
            found.extend(filter(None, [_carry_out(work, plan, k, workers, resume)]))
    if _disappointing(job, found):  # the ids are regular
        for factor in OTHER_FOLDS:
            plan = resized(job, job.plans[0], max(2, round(factor * job.plans[0].folds)))
            found.extend(filter(None, [_carry_out(job, plan, 0, workers, resume)]))
    regular = _disappointing(job, found)
    if len(job.ids) <= (PINNED_REGULAR if regular else PINNED[job.effort]):
        beam = PINS[job.effort] if len(job.ids) <= PINNED[job.effort] else PINS[job.effort].narrower
        found.extend(_by_lines(job, found, lambda most: pin(job.ids, job.labels, most, beam), "pins"))
    if regular:
        looks = FOCUS_WORK[job.effort]
        found.extend(_by_lines(job, found, lambda most: focus(job.ids, job.labels, most, looks), "lens"))
    if _disappointing(job, found):
        found.extend(_stirred(job, min(found, key=lambda m: m.price(job.goal), default=None), workers, resume))
    if not found and not job.about.abstain_bits:  # very few awkward ids: a line through all of them always exists
        last = _line(job, True)
        found = [] if last is None else [last]
    if not found:
        raise BuildError(f"no label memory of {len(job.ids)} ids was found; try another seed or effort='high'")
    return min(found, key=lambda m: m.price(job.goal))


def _by_lines(
    job: Job, found: Sequence[LabelMemory], search: Callable[[float], Focused | None], name: str
) -> list[LabelMemory]:
    """The memory of lines over a short chain that a search finds, if smaller than all found before; two classes."""
    if len(job.about.shares) != 2 or job.about.abstain_bits or job.goal is not Objective.PARAMETERS:
        return []
    more = trapping.zero_or_one(1)[0] if job.about.head == "value" else ()
    most = min((m.parameters for m in found), default=3 * len(job.ids))
    lines = search(most - sum(block.parameters for block in more))
    if lines is None:
        return []
    reading = lines.chain.reading
    if job.about.head == "value":
        more, reading = trapping.zero_or_one(lines.chain.trapped)
    note = f"{name}, {len(lines.lines)} lines, {len(lines.chain.thresholds)} folds"
    return [LabelMemory((*lines.blocks, *more), reading, len(lines.lines), note)]


def _disappointing(job: Job, found: Sequence[LabelMemory]) -> bool:
    """Whether no memory comes near the predicted size."""
    wanted = DISAPPOINTING * job.plans[0].price(job.goal) + 8
    return min((m.price(job.goal) for m in found), default=wanted + 1) > wanted


def _tries(job: Job) -> list[Plan]:
    """The best plan, and as many variations as take no more than the effort's seconds together."""
    best, count = job.plans[0], len(job.ids)
    near = [p for p in job.plans if p.price(job.goal) <= NEAR * best.price(job.goal)]
    each = max(best.seconds(count), 1e-3)
    tries = max(1, min(TRIES[job.effort], int(SECONDS[job.effort] / each)))
    factors = (1.0, 1.08, 0.93, 1.16, 0.87, 1.25, 0.8)
    varied = []
    for k in range(tries):
        plan = near[k % len(near)]
        factor = factors[(k // len(near)) % len(factors)]
        varied.append(resized(job, plan, max(2, round(plan.folds * factor))))
    return varied


def resized(job: Job, plan: Plan, folds: int) -> Plan:
    """The same plan with another number of folds: one for every phase of traps at least, and those that warm up."""
    phases = len(job.about.shares) - 1 if plan.kind == "traps" else 1
    folds = max(folds, phases + trapping.MOST_WARM + 1) if phases > 8 else folds
    if folds == plan.folds:
        return plan
    return sized(plan.kind, plan.head, plan.cost, plan.cell, len(job.ids), job.id_bits, job.about, folds, job.effort)


def _carry_out(
    job: Job, plan: Plan, number: int, workers: Executor | None, resume: str | Path | None
) -> LabelMemory | None:
    for draw in range(SEEDS):
        seed = (job.seed, number, draw)
        try:
            return _solve(job, plan, seed, 1 if draw else None, workers, resume)
        except GroupError as error:
            job.progress.say(f"draw {draw + 1} of the label memory failed ({error}); sampling again")
    return None


def _stirred(
    job: Job, smallest: LabelMemory | None, workers: Executor | None, resume: str | Path | None
) -> list[LabelMemory]:
    """Memories after folds that pull close ids apart: fewer folds first, until more do not pay."""
    job.progress.say("the ids are regular: pulling them apart first")
    found: list[LabelMemory] = []
    least = None if smallest is None else smallest.price(job.goal)
    whole = (job.ids[-1] - job.ids[0]).bit_length()
    for folds in (0, 6, 12, 18, 24, 32, 48, 72, 108, 160, 240, 400, 1000):  # 0: as many as regular clusters need
        if folds > whole + 8 or (least is not None and 4 * folds + 0.9 * job.plans[0].price(job.goal) > least):
            break
        front = stir(job.ids, folds, job.seed) if folds else overlay(job.ids, job.seed)
        if front is None:
            continue
        blocks, mixed = front
        order = sorted(range(len(mixed)), key=mixed.__getitem__)
        other = replace(job, ids=[mixed[i] for i in order], labels=job.labels[order])
        for k, plan in enumerate(_tries(other)):
            memory = _carry_out(other, plan, folds + k, workers, resume)
            if memory is None:
                continue
            memory = replace(memory, blocks=(*blocks, *memory.blocks), note=f"{memory.note}, after {len(blocks)} folds")
            found.append(memory)
            least = memory.price(job.goal) if least is None else min(least, memory.price(job.goal))
    return found


def _solve(
    job: Job,
    plan: Plan,
    seed: tuple[int, ...],
    segments: int | None,
    workers: Executor | None,
    resume: str | Path | None,
) -> LabelMemory:
    count = len(job.ids)
    size = max(1, min(count, round(plan.group)))
    if segments is None:
        worth = int(sqrt(plan.seconds(count) / SEGMENT_SECONDS))
        segments = min(MOST_SEGMENTS, worth, count // (LEAST_GROUPS * size))
        segments = max(1, segments - segments % 2)  # an even number keeps two cores busy to the end
    assembly = _Traps(job, plan, size) if plan.kind == "traps" else _Walks(job, plan, size)
    whole = Segment(assembly.ids, assembly.labels, assembly.method, assembly.frame, plan.beam, size, seed)
    with job.progress.stage("solving groups", total=count) as stage:
        solved = solve_all(whole, segments, workers, stage, resume)
    blocks, reading = assembly.assemble(solved.lines, whole.unit)
    note = f"{plan.kind}, {len(solved.lines)} groups, {len(blocks) - 1} folds, beam {plan.beam}"
    return LabelMemory(blocks, reading, len(solved.lines), note)


def _halves(ids: Sequence[int], span: int) -> list[int]:
    """Half the width of some groups of `span` + 1 ids, sorted."""
    last = len(ids) - span
    step = max(1, last // 4000)
    return sorted((ids[k + span] - ids[k]) // 2 + 1 for k in range(0, last, step))


class _Traps:
    """Ids and labels as traps see them, and the blocks that their lines become."""

    def __init__(self, job: Job, plan: Plan, size: int) -> None:
        self.ids, self.labels, self.head = job.numbers, job.labels, plan.head
        self.step, self.base = job.step, job.ids[0]
        shares = job.about.shares
        order = tuple(int(y) for y in np.argsort(np.array(shares), kind="stable"))
        reach = trapping.range_bits(size, len(shares))
        half = _halves(self.ids, min(len(self.ids) - 1, int(1.15 * size) + 4))[-1]
        warm = 0 if len(shares) == 2 else min(trapping.MOST_WARM, max(0, plan.folds // 8))
        self.frame = Frame.stretched(half, plan.folds + trapping.EXTRA + reach + 8)
        self.method = Traps(plan.folds, tuple(shares[y] for y in order), order, reach, warm, self.frame.pad)

    def assemble(self, lines: Sequence[Line], unit: int) -> tuple[tuple[StreamBlock, ...], Reading]:
        """In units as long as possible: zeros at the end of all numbers are removed."""
        folds, _ = self.method.folds(unit, "logits")
        thresholds = [int(block.units[0][1]) for block in folds[: self.method.levels]]  # type: ignore[arg-type]
        numbers = [0, *thresholds, *(n.slope for n in lines), *(n.constant for n in lines)]
        zeros = max(0, common_zeros(numbers) - 1)
        cut = [replace(n, slope=n.slope >> zeros, constant=n.constant >> zeros) for n in lines]
        blocks, reading = self.method.folds(unit, self.head, zeros, self.step)
        return (selector(_moved(cut, self.step, self.base)), *blocks), reading


class _Walks:
    """Ids and labels as the walk sees them, and the blocks that its lines become."""

    def __init__(self, job: Job, plan: Plan, size: int) -> None:
        self.ids, self.head, self.short = job.numbers, plan.head, job.goal is Objective.BITS
        self.step, self.base = job.step, job.ids[0]
        shares, closed = job.about.shares, plan.head == "value"
        self.places = list(range(len(shares))) if closed else middle_places(shares)
        self.labels = np.array(self.places, np.int64)[job.labels]
        if not closed:
            shares = tuple(sorted_to_middle(shares))
        tail, zeros = group_digits(self.ids, size)
        self.frame = Frame.whole(tail, zeros if zeros > 8 else 0)
        self.method = Walk(
            plan.folds, tail, walking.range_bits(size), shares, closed, plan.cell, max(6, size.bit_length() + 1)
        )

    def assemble(self, lines: Sequence[Line], unit: int) -> tuple[tuple[StreamBlock, ...], Reading]:
        walk, head = self.method, self.head
        one, shift = walk.one(unit), self.frame.shift
        numbers = [
            replace(n, slope=(n.slope << shift) // (2 * one), constant=((n.constant - one) << shift) // (2 * one))
            for n in lines
        ]
        times = self.step << shift
        numbers = _moved(numbers, self.step, self.base)
        lattice = walk.lattice * walk.scale(head)
        start = (walk.lattice // 4 * walk.scale(head) + (walk.scale(head) // 2 if head == "value" else 0)) * times
        blocks, reading = walk.blocks(head, times)
        if head == "logits":
            reading = Reading.logits([reading.rows[place] for place in self.places])
        if self.short:  # the lattice is multiplied in after the selector: every unit is shorter
            return (selector(numbers), StreamBlock(((1, 0, lattice - 1),), start), *blocks), reading
        return (selector(numbers, lattice, start), *blocks), reading


def _moved(lines: Sequence[Line], step: int, base: int) -> list[Line]:
    """Lines over (x - base)/step as lines over x, `step` times as high."""
    return [
        Line(n.slope, n.constant * step - n.slope * base, n.first * step + base, n.last * step + base, n.count)
        for n in lines
    ]
