"""Nilsson 1965: one hidden layer, at most N - 1 units, each reading the whole row.

Its heart is a piecewise linear function through given points, with one ReLU per step and nothing but integers. Between
two neighbours x < x' the slope is S; one unit A·relu(x - b), with x <= b < x' and A a signed power of two, turns the
line so that it meets the next value. Taking |A| >= |S - slope to the next value| puts b inside the step, and a power of
two keeps b on the grid of the points. The usual choice b = x would make A a difference of two fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from byheart.build._base import Construction, register
from byheart.build.shared.projection import Constants
from byheart.build.table1.flattened import feed_forward_network, flat_rows, row_line
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import BuildError
from byheart.exact import Number, dyadic
from byheart.ir.layers import Affine, Matrix
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress


@dataclass(frozen=True)
class Ramp:
    """weight · relu(x - start)."""

    start: Number
    weight: int


@dataclass(frozen=True)
class Interpolant:
    """first + sum of units; `steepest` is the largest slope anywhere between the points."""

    first: int
    units: tuple[Ramp, ...]
    steepest: int


@implements(
    Ref("N65", "one hidden layer"),
    statement="N - 1 hidden units in one layer give N points on a line any labels",
    test="tests/build/table1/test_nilsson65.py",
)
def interpolate(points: Sequence[int], values: Sequence[int], denominator: int = 1) -> Interpolant:
    """At most len(points) - 1 units through (x / denominator, y), x ascending; the denominator is a power of two.

    A step whose line already goes through the next value needs no unit. Starts have no more fraction bits than the
    points, except after a step that is turned by more than one unit of slope.

    >>> found = interpolate([0, 3, 10], [5, 5, 6])
    >>> found.first, [(u.start, u.weight) for u in found.units]
    (5, [(9, 1)])
    """
    if not points or any(b <= a for a, b in pairwise(points)) or denominator & (denominator - 1):
        raise BuildError("interpolation needs points in ascending order over a power of two")
    slope = steepest = 0
    fraction = denominator.bit_length() - 1
    units = []
    for (x, y), (after, value) in pairwise(zip(points, values, strict=True)):
        rise, step = value - y, after - x
        missing = rise * denominator - slope * step  # the unit's contribution at `after`, times denominator
        if missing:
            exponent = (-(-abs(missing) // step) - 1).bit_length()  # 2^exponent >= |missing| / step
            weight = (1 << exponent) * (1 if missing > 0 else -1)
            units.append(Ramp(dyadic((after << exponent) - abs(missing), -exponent - fraction), weight))
            slope += weight
            steepest = max(steepest, abs(slope))
    return Interpolant(values[0], tuple(units), steepest)


THEOREM = Ref("N65", "one hidden layer")


@register(
    "nilsson65",
    summary="feed-forward on the flattened row: one hidden layer that interpolates, N - 1 ReLU units",
    order=10,
    formula="Nilsson 1965",
    description="One hidden layer: all units read the row in the same direction and differ in where they start; their "
    "sum interpolates the labels. Simple and shallow, but it needs a unit per row and every unit reads the whole"
    " row. Use it for tiny tables, or as the textbook's answer.",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN,),
)
@implements(
    THEOREM,
    statement="N rows with any labels are memorized by one hidden layer of at most N - 1 units",
    test="tests/build/table1/test_nilsson65.py",
)
def build_nilsson65(dataset: Dataset, *, seed: int = 0, progress: Progress = SILENT) -> Construction:
    """All hidden units have the same weights w, a projection that distinguishes the rows, and separate biases.

    Nilsson's units are thresholds between parallel hyperplanes; here they are ReLUs that interpolate the labels
    exactly, which is the form that later papers quote (Huang and Babri 1998, Zhang et al. 2021). Parameters as in a
    dense layer: (N - 1)(n·d + 2) + 1.
    """
    with progress.stage("numbering rows", total=1) as stage:
        rows = flat_rows(dataset)
        line = row_line(dataset, rows, Constants.MEASURED, seed)
        stage.advance()
    order = sorted(range(rows.count), key=line.numerators.__getitem__)
    found = interpolate(
        [line.numerators[i] for i in order], [rows.labels[i] for i in order], denominator=line.denominator
    )
    weight = {j: w for j, w in enumerate(line.weight) if w != 0}
    units = found.units
    hidden = Affine(
        Matrix.of([weight] * max(1, len(units)), rows.dimension),
        tuple(line.bias - unit.start for unit in units) or (0,),
        relu=True,
    )
    output = Affine(Matrix.of([{i: unit.weight for i, unit in enumerate(units)}], max(1, len(units))), (found.first,))
    network = feed_forward_network(
        [("row", (rows.layer,)), ("hidden layer", (hidden,)), ("E_out", (output,))], dataset.C
    )
    return Construction(network, {}, (_note(len(units), rows.count),))


def _note(units: int, count: int) -> str:
    return f"{units} hidden units for {count} different rows; a step between equal labels may need none"
