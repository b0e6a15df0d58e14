"""Cuts the ids into segments and solves them, in parallel through any `concurrent.futures.Executor`.

The cut depends on the data and the plan only, and each segment has its own seed: the result is the same with any
executor and any number of workers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from byheart.build.fold._section import Search, make_scratch
from byheart.build.fold._segment import Slopes, solve_segment
from byheart.build.fold._windows import window_scores
from byheart.build.fold._words import Ints, Words, pack, unpack
from byheart.build.fold.selector import Group
from byheart.progress import Stage


@dataclass(frozen=True)
class Layout:
    """Everything that fixes a build besides data and seed."""

    search: Search
    sections: int
    gap_bits: int  # groups end where the next id is at least 2^gap_bits away
    first_size: int  # guess of the ids per group
    penalties: tuple[float, ...]  # weight of luck against bits, per retry
    fixed_slopes: bool = False
    growth: int = 5
    tries: int = 2

    @property
    def payload_bits(self) -> int:
        return self.sections * self.search.levels

    @property
    def free_bits(self) -> int:
        return 0 if self.fixed_slopes else self.payload_bits - self.gap_bits - 4

    @property
    def words(self) -> int:
        return self.payload_bits // 64 + 2


@dataclass(frozen=True, eq=False)
class Segment:
    """The part of the data that one task solves; arrays only, so that it travels to any worker."""

    ids: Words  # (count, limbs) minus the smallest id, in 32-bit limbs
    rough: Ints  # the leading bits of the ids
    wide: Ints
    goals: Ints
    rising: Words
    falling: Words
    layout: Layout
    seed: int
    even: bool


@dataclass(frozen=True, eq=False)
class Solved:
    """Groups of one segment; `failed_at` is the place where it gave up, or -1."""

    starts: Ints
    offsets: Words
    slopes: Words
    extremes: tuple[int, int]
    failed_at: int


def solve_one(segment: Segment) -> Solved:
    """Solves one segment; a plain function of plain data, for executors of any kind."""
    layout = segment.layout
    count = len(segment.ids)
    tables = [window_scores(p) for p in layout.penalties]
    scores = np.stack([t[0] for t in tables])
    choices = np.stack([t[1] for t in tables])
    starts = np.zeros(count, np.int64)
    offsets = np.zeros((count, layout.words), np.uint64)
    slopes = np.zeros((count, layout.words), np.uint64)
    extremes = np.zeros(2, np.int64)
    keys = min(count, layout.search.levels + 8)
    groups = solve_segment(
        segment.ids,
        segment.rough,
        segment.wide,
        segment.goals,
        layout.sections,
        layout.search,
        scores,
        choices,
        Slopes(layout.free_bits, segment.rising, segment.falling),
        make_scratch(layout.search, keys),
        min(layout.first_size, keys),
        layout.growth,
        layout.tries,
        segment.seed,
        segment.even,
        starts,
        offsets,
        slopes,
        extremes,
    )
    failed_at = -1 if groups > 0 else -groups - 1
    groups = max(groups, 0)
    return Solved(
        starts[:groups].copy(),
        offsets[:groups].copy(),
        slopes[:groups].copy(),
        (int(extremes[0]), int(extremes[1])),
        failed_at,
    )


def goals_of(labels: Ints, sections: int) -> Ints:
    """The sum Y that the counted folds must show for each label: bit s-1 is y_s xor y_0, the top bit is y_0."""
    goals = (labels & 1) << max(0, sections - 1)
    for s in range(1, sections):
        goals |= (((labels >> s) ^ labels) & 1) << (s - 1)
    return goals


def cut(ids: Sequence[int], labels: Ints, layout: Layout, seed: int, count: int) -> list[Segment]:
    """`count` segments of about equal size (fewer where no wide gap is near), with seeds of their own."""
    base = ids[0]
    span = ids[-1] - base
    limbs = max(1, -(-span.bit_length() // 32))
    packed = pack([x - base for x in ids], 32, limbs)
    shift = max(0, span.bit_length() - 52)
    rough = np.array([(x - base) >> shift for x in ids], np.int64)
    gaps = [b - a for a, b in pairwise(ids)]
    wide = np.array([gap >> layout.gap_bits > 0 for gap in gaps] + [True], np.int64)
    goals = goals_of(labels, layout.sections)
    rising, falling = fixed_slopes(layout, seed)
    bounds = _bounds(wide, count)
    return [
        Segment(
            packed[a:b],
            rough[a:b],
            wide[a:b],
            goals[a:b],
            rising,
            falling,
            layout,
            (seed * 1_000_003 + 7919 * k + 17) & ((1 << 62) - 1),
            b < len(ids),
        )
        for k, (a, b) in enumerate(pairwise(bounds))
    ]


def _bounds(wide: Ints, count: int) -> list[int]:
    """Places to cut: the first wide gap behind each k/count of the ids; at least two ids per segment."""
    total = len(wide)
    bounds = [0]
    for k in range(1, count):
        place = max(total * k // count, bounds[-1] + 2)
        while place < total and not wide[place - 1]:
            place += 1
        if place <= total - 2:
            bounds.append(place)
    return [*bounds, total]


def fixed_slopes(layout: Layout, seed: int) -> tuple[Words, Words]:
    """Two odd slopes, +w/2 and -w/2 plus the same random low bits, w = 2^(Qa - gap_bits): their difference is w."""
    bits = layout.payload_bits - layout.gap_bits
    low = random.Random(f"slopes {seed}").getrandbits(max(1, bits - 13)) | 1
    half = 1 << max(0, bits - 1)
    rows = pack([half + low, low - half], 64, layout.words)
    return rows[0], rows[1]


def solve_all(segments: Sequence[Segment], executor: Executor | None, stage: Stage) -> list[Solved]:
    """All segments, in order; `stage` counts the ids that are done."""
    if executor is None:
        results = []
        for segment in segments:
            results.append(solve_one(segment))
            stage.advance(len(segment.ids))
        return results
    futures = {executor.submit(solve_one, segment): segment for segment in segments}
    try:
        for done in as_completed(futures):
            done.result()
            stage.advance(len(futures[done].ids))
    except BaseException:  # an interrupt too: what has not started is not started any more
        for future in futures:
            future.cancel()
        raise
    return [future.result() for future in futures]


def groups_of(ids: Sequence[int], segments: Sequence[Segment], solved: Sequence[Solved], layout: Layout) -> list[Group]:
    """The groups of all segments with slopes and offsets as integers (offsets relative to x = 0)."""
    groups: list[Group] = []
    place = 0
    for segment, result in zip(segments, solved, strict=True):
        stops = [*result.starts[1:].tolist(), len(segment.ids)]
        rows = zip(result.starts.tolist(), stops, result.offsets, result.slopes, strict=True)
        for start, stop, offset, slope in rows:
            first, last = ids[place + start], ids[place + stop - 1]
            signed = unpack(slope)
            signed -= (signed >> (64 * layout.words - 1)) << (64 * layout.words)
            constant = (unpack(offset) - signed * first) & ((1 << layout.payload_bits) - 1)
            groups.append(Group(first, last, signed, constant))
        place += len(segment.ids)
    return groups
