"""Choosing the engine: plain Python for small jobs, breakpoints for wide one-channel blocks, reflections for chains of
folds, limbs for the rest.

All of them are exact; tests hold them equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from byheart.exact import breakpoints, reference
from byheart.exact.budget import meter
from byheart.exact.number import Number, parts
from byheart.exact.steps import Block, Map, Step
from byheart.exact.values import Values
from byheart.progress import SILENT, Progress

FEW_ROWS = 300  # of a map of one number
SMALL_JOB = 20_000  # row evaluations (inputs x weight rows) below which compiled code is not worth loading


def run(steps: Sequence[Step], values: Values, progress: Progress = SILENT, name: str = "evaluating") -> Values:
    """Every row of `values` through `steps`, exactly, by the engine that suits the size of the job."""
    if values.count * sum(_rows(step) for step in steps) <= SMALL_JOB:
        return reference.run(steps, values)
    _estimate(steps, values)
    segments = list(_segments(steps))
    with progress.stage(name, total=values.count * len(segments)) as stage:
        for engine, segment in segments:
            if engine == "limbs":
                from byheart.exact import limbs  # compiled code is loaded only when it pays

                values = limbs.run(segment, values, stage)
            elif engine == "reflections":
                from byheart.exact import reflections

                values = reflections.run([step for step in segment if isinstance(step, Block)], values)
                stage.advance(values.count)
            else:
                for step in segment:
                    values = _narrow(step, values) if isinstance(step, Map) else breakpoints.run(step, values)
                stage.advance(values.count)
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


def _narrow(step: Map, values: Values) -> Values:
    """A map of one number, column by column, in Python numbers."""
    bits = -min((parts(v)[1] for v in (*step.bias, *(w for row in step.rows for _, w in row))), default=0)
    x, scale = values.numerators[:, 0], 1 << bits
    out = np.empty((values.count, len(step.rows)), dtype=object)
    for column, (row, bias) in enumerate(zip(step.rows, step.bias, strict=True)):
        weight = sum(_whole(w, bits) for _, w in row)
        out[:, column] = x * weight + _whole(bias, bits) * values.denominator
    if step.relu:
        out = np.where(out > 0, out, 0)
    return Values(out, values.denominator * scale)


def _whole(number: Number, bits: int) -> int:
    mantissa, exponent = parts(number)
    return mantissa << (bits + exponent)


def _kind(step: Step) -> str:
    if isinstance(step, Map):
        few = len(step.rows) <= FEW_ROWS and all(column == 0 for row in step.rows for column, _ in row)
        return "one number" if few else "limbs"
    if step.reflects:
        return "reflections"
    wide = len(step.rows1) >= breakpoints.FEW or (len(step.rows2) == 1 and len(step.rows1) > 0)
    return "one number" if wide and breakpoints.single_channel(step) is not None else "limbs"


def _segments(steps: Sequence[Step]) -> Iterator[tuple[str, list[Step]]]:
    """Runs of steps that one engine takes; a single narrow step between others is not worth a change of engine."""
    kinds = [_kind(step) for step in steps]
    if "reflections" not in kinds:  # not a stream of one number: wide blocks by breakpoints, all others together
        wide = [isinstance(s, Block) and len(s.rows1) >= breakpoints.FEW for s in steps]
        kinds = [k if k == "one number" and w else "limbs" for k, w in zip(kinds, wide, strict=True)]
    for kind, group in groupby(zip(kinds, steps, strict=True), key=lambda pair: pair[0]):
        yield kind, [step for _, step in group]
