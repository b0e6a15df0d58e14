"""Choosing the engine: plain Python for small jobs, breakpoints for wide one-channel blocks, reflections for chains of
folds, limbs for the rest.

All of them are exact; tests hold them equal to the last bit.

Wide blocks that read a single channel are evaluated by their breakpoints: x + sum of o_u·relu(w_u x + b_u) + b2 is
piecewise linear in one number, so the units that are active form a prefix in the order of their kinks. With running
sums of slopes and intercepts every input costs one search and one multiplication, instead of one multiplication per
unit. Exact like the other engines.

The inputs are integers X over one denominator, so a kink that lies between two integers may be moved to the next one:
a unit is active from the integer `start` on. A unit of negative slope is the other way round, active below its start;
it counts in the sums before the first kink and is taken out at its own. The invariant: segment k has exactly the
slopes and intercepts of the units that are active after k kinks. Cost for u units, N inputs and c outputs:
u·log u to sort, N·log u to search, c·(u + N) for the sums and products.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, groupby

import numpy as np
import numpy.typing as npt

from byheart.exact import reference
from byheart.exact.budget import meter
from byheart.exact.compiled import has_numba
from byheart.exact.number import Integers, Number, Values, parts
from byheart.exact.reference import Block, Map, Step
from byheart.progress import SILENT, Progress

log = logging.getLogger(__name__)

FEW_ROWS = 300  # of a map of one number
FEW_COLUMNS = 64  # of a map to one number
SMALL_JOB = 20_000  # row evaluations (inputs x weight rows) below which compiled code is not worth loading


def run(steps: Sequence[Step], values: Values, progress: Progress = SILENT, name: str = "evaluating") -> Values:
    """Every row of `values` through `steps`, exactly, by the engine that suits the size of the job."""
    small = values.count * sum(_rows(step) for step in steps) <= SMALL_JOB
    plain = small or not compiles()
    if values.count > 1 or not plain:
        _estimate(steps, values, plain)
    if plain:
        return reference.run(steps, values)
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
                    values = _narrow(step, values) if isinstance(step, Map) else run_breakpoints(step, values)
                stage.advance(values.count)
    return values


@cache
def compiles() -> bool:
    """Return whether numba is installed; without it plain Python evaluates everything, with the same result."""
    if has_numba():
        return True
    log.warning("numba is not installed: evaluating in plain Python, 10 to 100 times as slow")
    return False


def _estimate(steps: Sequence[Step], values: Values, plain: bool) -> None:
    """Inside a budget, one input is tried with a meter and counts for all of them; so does its result's memory."""
    limit = meter()
    if limit is None:
        return
    before = limit.work
    tried = reference.run(steps, Values(values.numerators[:1], values.denominator))
    if plain:  # the reference does all of it, metered
        limit.work = before
    else:
        limit.spend((limit.work - before) * (values.count - 1))
    least = tried.denominator.bit_length()  # a numerator that happens to be short here may be long elsewhere
    limit.hold(values.count * sum(max(least, int(x).bit_length()) for x in tried.numerators.ravel()) // 8)


def _rows(step: Step) -> int:
    return len(step.rows1) + len(step.rows2) if isinstance(step, Block) else len(step.rows)


def _narrow(step: Map, values: Values) -> Values:
    """A map from or to one number, column by column, in Python numbers."""
    bits = -min((parts(v)[1] for v in (*step.bias, *(w for row in step.rows for _, w in row))), default=0)
    scale = 1 << bits
    out = np.empty((values.count, len(step.rows)), dtype=object)
    for place, (row, bias) in enumerate(zip(step.rows, step.bias, strict=True)):
        out[:, place] = _whole(bias, bits) * values.denominator
        for column, weight in row:
            out[:, place] += values.numerators[:, column] * _whole(weight, bits)
    if step.relu:
        out = np.where(out > 0, out, 0)
    return Values(out, values.denominator * scale)


def _whole(number: Number, bits: int) -> int:
    mantissa, exponent = parts(number)
    return mantissa << (bits + exponent)


def _kind(step: Step) -> str:
    if isinstance(step, Map):
        few = len(step.rows) <= FEW_ROWS and all(column == 0 for row in step.rows for column, _ in row)
        joined = len(step.rows) == 1 and len(step.rows[0]) <= FEW_COLUMNS  # E_in of a stream of one number
        return "one number" if few or joined else "limbs"
    if step.reflects:
        return "reflections"
    wide = len(step.rows1) >= FEW or (len(step.rows2) == 1 and len(step.rows1) > 0)
    return "one number" if wide and single_channel(step) is not None else "limbs"


def _segments(steps: Sequence[Step]) -> Iterator[tuple[str, list[Step]]]:
    """Run of steps for one engine; a single narrow step between others is not worth a change of engine."""
    kinds = [_kind(step) for step in steps]
    joins = [isinstance(s, Map) and len(s.rows) == 1 and k == "one number" for k, s in zip(kinds, steps, strict=True)]
    if "reflections" not in kinds and not all(joins):
        # not a stream of one number: wide blocks by breakpoints, all others together
        wide = [isinstance(s, Block) and len(s.rows1) >= FEW for s in steps]
        kinds = [k if k == "one number" and w else "limbs" for k, w in zip(kinds, wide, strict=True)]
    for kind, group in groupby(zip(kinds, steps, strict=True), key=lambda pair: pair[0]):
        yield kind, [step for _, step in group]


FEW = 32  # below this many units the other engines are as good


def single_channel(step: Block) -> int | None:
    """The one channel that all hidden units read, or None."""
    channels = {row[0][0] for row in step.rows1 if len(row) == 1}
    one = len(channels) == 1 and all(len(row) == 1 for row in step.rows1)
    return channels.pop() if one else None


@dataclass(frozen=True)
class _Unit:
    start: int  # active for X >= start (or, if falling, for X < start)
    slope: int
    intercept: int
    falling: bool


def run_breakpoints(step: Block, values: Values) -> Values:
    """`values` through one block whose units all read one channel."""
    channel = single_channel(step)
    if channel is None:
        raise ValueError("the block reads more than one channel")
    inner = -min(parts(w)[1] for w in (*(row[0][1] for row in step.rows1), *step.bias1))
    outer = -min((parts(w)[1] for w in (*(w for row in step.rows2 for _, w in row), *step.bias2)), default=0)
    den = values.denominator
    x = values.numerators[:, channel]
    units = [_unit(row[0][1], b, inner, den) for row, b in zip(step.rows1, step.bias1, strict=True)]
    order = sorted(range(len(units)), key=lambda u: units[u].start)
    segment = _search([units[u].start for u in order], x)
    scale = 1 << (inner + outer)
    result = values.numerators * scale if scale > 1 else values.numerators.copy()
    for out, (row, bias) in enumerate(zip(step.rows2, step.bias2, strict=True)):
        if not row and bias == 0:
            continue
        weight = dict.fromkeys(range(len(units)), 0)
        weight.update((u, _scaled(w, outer)) for u, w in row)
        slopes, intercepts = _sums(units, weight, order)
        constant = (_scaled(bias, outer) * den) << inner
        result[:, out] += slopes[segment] * x + (intercepts[segment] + constant)
    return Values(result, den * scale)


def _scaled(number: Number, bits: int) -> int:
    mantissa, exponent = parts(number)
    return mantissa << (bits + exponent)


def _unit(weight: Number, bias: Number, bits: int, den: int) -> _Unit:
    """relu(w x + b) = relu(slope·X + intercept) / (den·2^bits) for x = X / den."""
    slope, intercept = _scaled(weight, bits), _scaled(bias, bits) * den
    if slope > 0:  # slope·X + intercept > 0 from floor(-intercept / slope) + 1 on, for whole X
        return _Unit(-intercept // slope + 1, slope, intercept, False)
    return _Unit(-(intercept // slope), slope, intercept, True)


def _sums(units: list[_Unit], weight: dict[int, int], order: list[int]) -> tuple[Integers, Integers]:
    """Slope and intercept of the sum on every segment between consecutive kinks."""
    falling = [u for u, unit in enumerate(units) if unit.falling]
    signs = [-1 if units[u].falling else 1 for u in order]
    slope0 = sum(weight[u] * units[u].slope for u in falling)
    intercept0 = sum(weight[u] * units[u].intercept for u in falling)
    slopes = accumulate((s * weight[u] * units[u].slope for s, u in zip(signs, order, strict=True)), initial=slope0)
    intercepts = accumulate(
        (s * weight[u] * units[u].intercept for s, u in zip(signs, order, strict=True)), initial=intercept0
    )
    return _objects(list(slopes)), _objects(list(intercepts))


def _objects(numbers: list[int]) -> Integers:
    array = np.empty(len(numbers), dtype=object)
    array[:] = numbers
    return array


def _search(starts: list[int], x: Integers) -> npt.NDArray[np.int64]:
    """How many kinks lie at or below each X; in machine integers when they fit."""
    fits = all(-(1 << 62) < v < 1 << 62 for v in (*starts[:1], *starts[-1:], x.min(), x.max()))
    kinks = np.array(starts, dtype=np.int64) if fits else _objects(starts)
    places = np.searchsorted(kinks, x.astype(np.int64) if fits else x, side="right")
    return places.astype(np.int64)
