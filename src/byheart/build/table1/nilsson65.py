"""Nilsson 1965: one hidden layer, at most N - 1 units, each reading the whole row."""

from __future__ import annotations

from byheart.build._base import Construction, register
from byheart.build.shared.interpolation import interpolate
from byheart.build.shared.projection import Constants
from byheart.build.table1.flattened import feed_forward_network, flat_rows, row_line
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.layers import Affine, Matrix
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

THEOREM = Ref("N65", "one hidden layer")


@register(
    "nilsson65",
    summary="feed-forward on the flattened row: one hidden layer that interpolates, N - 1 ReLU units",
    order=10,
    formula="Nilsson 1965",
    words="One hidden layer: all units read the row in the same direction and differ in where they start; their sum"
    " interpolates the labels. Simple and shallow, but it needs a unit per row and every unit reads the whole"
    " row. Take it for tiny tables, or as the textbook's answer.",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN,),
)
@implements(
    THEOREM,
    statement="N rows with any labels are memorized by one hidden layer of at most N - 1 units",
    test="tests/build/table1/test_feed_forward.py",
)
def build_nilsson65(dataset: Dataset, *, seed: int = 0, progress: Progress = SILENT) -> Construction:
    """All hidden units have the same weights w, a projection that tells the rows apart, and biases of their own.

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
