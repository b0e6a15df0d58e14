"""Nilsson 1965: one hidden layer, at most N - 1 units, each reading the whole row."""

from __future__ import annotations

from byheart.build._base import Construction, register
from byheart.build.shared.interpolation import interpolate
from byheart.build.shared.projection import Constants
from byheart.build.table1.flattened import FLAT, feed_forward_network, flat_cloud, flat_rows, row_line
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.claim import Claim
from byheart.ir.layers import Affine
from byheart.ir.matrix import Matrix
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

THEOREM = Ref("N65", "one hidden layer")


@register(
    "nilsson65",
    summary="feed-forward on the flattened row: one hidden layer that interpolates, N - 1 ReLU units",
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
    return Construction(network, _claim(dataset, rows.count, rows.dimension), {}, (_note(len(units), rows.count),))


def _note(units: int, count: int) -> str:
    return f"{units} hidden units for {count} different rows; a step between equal labels may need none"


def _claim(dataset: Dataset, count: int, dimension: int) -> Claim:
    hidden = max(1, count - 1)
    cloud = flat_cloud(dataset, flat_rows(dataset))
    # biases lie on the line, with the fraction bits of data and weights; each step turns the slope by at most 4·C
    tokens = dataset.inputs.points.denominator.bit_length()
    slopes = (4 * dataset.C * count).bit_length()
    return Claim(
        THEOREM,
        {
            "width": hidden,
            "depth": 1,
            "parameters": hidden * (dimension + 2) + 1,
            "max_bits": 2 * max(cloud.key_bits, cloud.projection_bits) + tokens + slopes,
        },
        {
            "width": "N - 1 hidden units",
            "depth": "one hidden layer",
            "parameters": "(N - 1)(n·d + 2) + 1",
            "max_bits": "a key and a weight of Lemma C.2, the data's fraction bits, and log2(4CN)",
        },
        assumptions=(FLAT,),
    )
