"""Baum 1988: one hidden layer of threshold units, two for every n·d rows of the smaller classes."""

from __future__ import annotations

from collections import Counter

from byheart.build._base import NOT_ASSUMED, Construction, Option, register
from byheart.build.table1.flattened import FLAT, FlatRows, feed_forward_network, flat_rows
from byheart.build.table1.generic_embedding import embedding_note, generic_embedding
from byheart.build.table1.hyperplanes import GENERAL, Band, Cloud, bands
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import AssumptionError
from byheart.ir.claim import Claim
from byheart.ir.layers import Affine, Embedding, Threshold
from byheart.ir.matrix import Matrix
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

THEOREM = Ref("B88", "Theorem 1")


@register(
    "baum88",
    summary="feed-forward on the flattened row: one layer of threshold units, two for every n·d rows",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN,),
    options=(Option("embedding", int, 8, "dimension of the generic embedding that symbols get"),),
    assumptions=(f"{GENERAL} (otherwise more units)",),
)
@implements(
    THEOREM,
    statement="N rows in general position in R^(n·d) with two classes are memorized by 2·ceil(N_+ / (n·d)) threshold "
    "units, N_+ the size of the smaller class.",
    test="tests/build/table1/test_baum88.py",
)
def build_baum88(dataset: Dataset, *, seed: int = 0, progress: Progress = SILENT, embedding: int = 8) -> Construction:
    """A band around the hyperplane through n·d rows of one class; the band's two edges are threshold units.

    Baum proves it for two classes. More classes are our extension: every class but the largest gets bands of its own,
    and the output adds the difference of their labels. Where the rows span fewer than n·d dimensions, that number takes
    the place of n·d. Rows that are not in general position (strings never are: abc - xbc = ayc - xyc) get more
    hyperplanes, through fewer rows each, and a note that says so.
    """
    table, points = None, None
    if dataset.encoder.symbols is not None:
        table, points = generic_embedding(dataset, max(1, embedding), placed=False, seed=seed)
    rows = flat_rows(dataset, points)
    cloud = Cloud.of(rows.points)
    sizes = Counter(rows.labels)
    background = max(sizes, key=lambda label: (sizes[label], -label))
    found: list[tuple[int, Band]] = []
    met: set[int] = set()
    with progress.stage("finding hyperplanes", total=rows.count - sizes[background]) as stage:
        for label in sorted(sizes):
            if label == background:
                continue
            wanted = [i for i, own in enumerate(rows.labels) if own == label]
            try:
                own_bands, intruders = bands(cloud, wanted, seed)
            except AssumptionError as error:
                named = tuple(int(rows.row[i]) for i in error.rows)
                raise AssumptionError(error.assumption, str(error).partition(" (rows")[0], named) from error
            found += [(label, band) for band in own_bands]
            met |= {int(rows.row[i]) for i in intruders}
            stage.advance(len(wanted))
    hidden, output = _layers(rows, found, background)
    stages = [("embedding", () if table is None else (table,)), ("row", (rows.layer,))]
    network = feed_forward_network([*stages, ("threshold units", (hidden,)), ("E_out", (output,))], dataset.C)
    notes = [
        f"{len(found)} hyperplanes for {rows.count - sizes[background]} rows; they span {cloud.dimension} dimensions"
    ]
    if table is not None:
        notes.append(embedding_note(table))
    if dataset.C > 2:
        notes.append("Baum's theorem has two classes; bands for each further class are our extension")
    promised = sum(-(-count // cloud.dimension) for label, count in sizes.items() if label != background)
    if len(found) > promised:
        some = ", ".join(map(str, sorted(met)[:4]))
        notes.append(
            f"{NOT_ASSUMED} {GENERAL} (rows {some} lie on hyperplanes through others): "
            f"{len(found)} hyperplanes where the theorem has {promised}"
        )
    claim = _claim(rows, max(promised, len(found)), len(found) <= promised, table)
    return Construction(network, claim, {"embedding": embedding}, tuple(notes))


def _layers(rows: FlatRows, found: list[tuple[int, Band]], background: int) -> tuple[Threshold, Affine]:
    weights, biases, outputs = [], [], []
    for label, band in found:
        row = {j: w for j, w in enumerate(band.weight) if w}
        weights += [row, row]
        biases += [-band.low, -band.high]
        outputs += [label - background, background - label]
    if not weights:  # one class only: a unit that nobody reads, so that no matrix is empty
        weights, biases, outputs = [{}], [0], [0]
    hidden = Threshold(Matrix.of(weights, rows.dimension), tuple(biases))
    return hidden, Affine(Matrix.of([dict(enumerate(outputs))], len(outputs)), (background,))


def _claim(rows: FlatRows, hyperplanes: int, general: bool, table: Embedding | None) -> Claim:
    hidden = max(1, 2 * hyperplanes)
    embedded = 0 if table is None else table.parameters
    theorem = "h = 2·sum of ceil(N_c / a) over all classes but the largest, a the dimension that the rows span"
    return Claim(
        THEOREM,
        {"width": hidden, "depth": 1, "parameters": hidden * (rows.dimension + 2) + 1 + embedded},
        {
            "width": theorem if general else "h = 2 for every hyperplane; the rows are not in general position",
            "depth": "one hidden layer",
            "parameters": "h(n·d + 1) + h + 1, and the embedding of symbols",
        },
        assumptions=(FLAT, GENERAL, "threshold units") if general else (FLAT, "threshold units"),
    )
