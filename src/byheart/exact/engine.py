"""Choosing the engine: plain Python for small jobs, breakpoints for wide one-channel blocks, limbs for the rest.

All of them are exact; tests hold them equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from byheart.exact import breakpoints, reference
from byheart.exact.budget import meter
from byheart.exact.steps import Block, Step
from byheart.exact.values import Values
from byheart.progress import SILENT, Progress

SMALL_JOB = 20_000  # row evaluations (inputs x weight rows) below which compiled code is not worth loading


def run(steps: Sequence[Step], values: Values, progress: Progress = SILENT, name: str = "evaluating") -> Values:
    """Every row of `values` through `steps`, exactly, by the engine that suits the size of the job."""
    if values.count * sum(_rows(step) for step in steps) <= SMALL_JOB:
        return reference.run(steps, values)
    from byheart.exact import limbs  # compiled code is loaded only when it pays

    _estimate(steps, values)
    segments = list(_segments(steps))
    with progress.stage(name, total=values.count * sum(not isinstance(s, Block) for s in segments)) as stage:
        for segment in segments:
            if isinstance(segment, Block):
                values = breakpoints.run(segment, values)
            else:
                values = limbs.run(segment, values, stage)
    return values


def _estimate(steps: Sequence[Step], values: Values) -> None:
    """Inside a budget, one input is tried with a meter and counts for all of them."""
    limit = meter()
    if limit is None:
        return
    before = limit.work
    reference.run(steps, Values(values.numerators[:1], values.denominator))
    limit.spend((limit.work - before) * (values.count - 1))


def _rows(step: Step) -> int:
    return len(step.rows1) + len(step.rows2) if isinstance(step, Block) else len(step.rows)


def _segments(steps: Sequence[Step]) -> Iterator[Block | list[Step]]:
    """Runs of ordinary steps, cut at wide one-channel blocks."""
    run: list[Step] = []
    for step in steps:
        wide = isinstance(step, Block) and len(step.rows1) >= breakpoints.FEW
        if wide and isinstance(step, Block) and breakpoints.single_channel(step) is not None:
            if run:
                yield run
            run = []
            yield step
        else:
            run.append(step)
    if run:
        yield run
