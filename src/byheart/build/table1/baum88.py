"""Baum 1988: one hidden layer of threshold units, two for every n·d rows of the smaller classes.

Hyperplanes through groups of points that avoid all other points: the hidden units of Baum 1988.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.build._base import NOT_ASSUMED, Construction, Option, register
from byheart.build.table1.flattened import FlatRows, embedding_note, feed_forward_network, flat_rows, generic_embedding
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import AssumptionError
from byheart.exact.number import Values
from byheart.ir.layers import Affine, Matrix, Threshold
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]
# Random directions per group. Tuned by hand.
DRAWS = 12
GENERAL = "rows are in general position"


@dataclass(frozen=True)
class Band:
    """The points with low <= weight·x < high are `members`, and no others; all numbers are integers."""

    weight: tuple[int, ...]
    low: int
    high: int
    members: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SpannedPoints:
    """Points, also as floats for the search, and a basis of the flat that they span."""

    points: Values
    table: Floats
    axes: Floats  # (dimension, D), orthonormal rows

    @staticmethod
    def of(points: Values) -> SpannedPoints:
        table = np.array([[x / points.denominator for x in row] for row in points.numerators], dtype=np.float64)
        spread = table - table.mean(axis=0)
        _, sizes, axes = np.linalg.svd(spread, full_matrices=False)
        rank = int((sizes > 1e-10 * sizes.max(initial=1e-300)).sum())
        return SpannedPoints(points, table, axes[: max(1, rank)])

    @property
    def dimension(self) -> int:
        return len(self.axes)


@implements(
    Ref("B88", "Theorem 1"),
    statement="d points in general position lie on a hyperplane that avoids all others, so two threshold units "
    "decide whether a point is among them.",
    test="tests/build/table1/test_baum88.py",
)
def bands(cloud: SpannedPoints, wanted: Sequence[int], seed: int = 0) -> tuple[list[Band], tuple[int, ...]]:
    """Return bands that contain the `wanted` points, each exactly once, and no others; and the obstacles.

    In general position each band but the last holds `dimension` points or more. Where hyperplanes through that many
    points keep meeting others, groups become smaller, down to single points, which a generic hyperplane always
    separates from all others. Directions are found in floats and rounded to integers; which points lie in a band is
    decided exactly.

    >>> cloud = SpannedPoints.of(Values.of([[0, 0], [1, 0], [0, 1], [5, 7]]))
    >>> [band.members for band in bands(cloud, [0, 3])[0]]
    [(0, 3)]
    """
    rng = np.random.default_rng(seed)
    pool = list(wanted)
    found: list[Band] = []
    met: set[int] = set()
    size = cloud.dimension
    while pool:
        band, intruders = _largest_band(cloud, pool, size, rng)
        if band is not None:
            found.append(band)
            held = set(band.members)
            pool = [p for p in pool if p not in held]
            size = min(cloud.dimension, size + max(1, size // 4)) if met else size
        elif size == 1:
            raise AssumptionError(
                GENERAL,
                "no hyperplane was found that separates these rows: they are too close together for the search; "
                "scale the vectors, or give symbols a higher embedding dimension",
                (pool[0], *intruders[:3]),
            )
        else:
            met |= set(intruders)
            size = min(size, len(pool)) * 2 // 3 or 1
    return found, tuple(sorted(met))


def _largest_band(
    cloud: SpannedPoints, pool: list[int], size: int, rng: np.random.Generator
) -> tuple[Band | None, tuple[int, ...]]:
    """The first of some draws of `size` points whose hyperplane avoids all points outside the pool."""
    intruders: tuple[int, ...] = ()
    order = list(pool)
    for _ in range(DRAWS if size > 1 else 4 * DRAWS):
        band, intruders = _band(cloud, order[:size], set(pool), rng)
        if band is not None:
            return band, ()
        order = [pool[i] for i in rng.permutation(len(pool))] if size > 1 else order
    return None, intruders


def _band(
    cloud: SpannedPoints, group: list[int], pool: set[int], rng: np.random.Generator
) -> tuple[Band | None, tuple[int, ...]]:
    """A band around a hyperplane through the group; points of the pool may join it, any other is an obstacle."""
    direction = _normal(cloud, group, rng)
    landed = cloud.table @ direction
    centre = landed[group].mean()
    away = np.abs(landed - centre)
    away[group] = np.inf
    gap = float(np.min(away, initial=1.0))
    spread = float(np.abs(landed[group] - centre).max())
    size = float(np.abs(cloud.table).sum(axis=1).max()) + 1.0
    inside = away <= max(8 * spread, 1e-12 * size)
    gap = float(np.min(away[~inside], initial=1.0))
    bits = int(np.ceil(np.log2(4 * size / max(gap, 1e-13 * size))))
    weight = [round(float(u) * 2.0**bits) for u in direction]
    exact = cloud.points.numerators.dot(np.array(weight, dtype=object))
    own = [int(exact[i]) for i in group]
    low, high = min(own) // cloud.points.denominator, max(own) // cloud.points.denominator + 1
    members = np.flatnonzero((exact >= low * cloud.points.denominator) & (exact < high * cloud.points.denominator))
    intruders = tuple(int(i) for i in members if int(i) not in pool)
    return (None, intruders) if intruders else (Band(tuple(weight), low, high, tuple(members.tolist())), ())


def _normal(cloud: SpannedPoints, group: list[int], rng: np.random.Generator) -> Floats:
    """A unit vector along the points' flat that is the same on all points of the group."""
    axes = cloud.axes
    differences = (cloud.table[group[1:]] - cloud.table[group[0]]) @ axes.T
    free = np.eye(len(axes))
    if len(differences):
        _, sizes, vectors = np.linalg.svd(differences, full_matrices=True)
        rank = int((sizes > 1e-10 * sizes.max(initial=1e-300)).sum())
        free = vectors[min(rank, len(axes) - 1) :]
    mix = rng.normal(size=len(free)) @ free
    direction: Floats = mix @ axes
    return direction / float(np.linalg.norm(direction))


THEOREM = Ref("B88", "Theorem 1")


@register(
    "baum88",
    summary="feed-forward on the flattened row: one layer of threshold units, two for every n·d rows",
    order=20,
    formula="Baum 1988",
    description="Threshold units in pairs: each pair fires on the rows between two parallel hyperplanes, which are "
    "laid through as many rows of one class as the flattened row has numbers. Few units, and surprisingly small as"
    " long as rows are long and in general position; it grows with N all the same. Thresholds have no "
    "gradient.",
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

    Baum proves it for two classes. More classes are our extension: every class but the largest gets separate bands,
    and the output adds the difference of their labels. Where the rows span fewer than n·d dimensions, that number
    replaces n·d. Rows that are not in general position (strings never are: abc - xbc = ayc - xyc) get more
    hyperplanes, through fewer rows each, and a note about it.
    """
    table, points = None, None
    if dataset.encoder.symbols is not None:
        table, points = generic_embedding(dataset, max(1, embedding), placed=False, seed=seed)
    rows = flat_rows(dataset, points)
    cloud = SpannedPoints.of(rows.points)
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
    guaranteed = sum(-(-count // cloud.dimension) for label, count in sizes.items() if label != background)
    if len(found) > guaranteed:
        some = ", ".join(map(str, sorted(met)[:4]))
        notes.append(
            f"{NOT_ASSUMED} {GENERAL} (rows {some} lie on hyperplanes through others): "
            f"{len(found)} hyperplanes where the theorem has {guaranteed}"
        )
    return Construction(network, {"embedding": embedding}, tuple(notes))


def _layers(rows: FlatRows, found: list[tuple[int, Band]], background: int) -> tuple[Threshold, Affine]:
    weights, biases, outputs = [], [], []
    for label, band in found:
        row = {j: w for j, w in enumerate(band.weight) if w}
        weights += [row, row]
        biases += [-band.low, -band.high]
        outputs += [label - background, background - label]
    if not weights:  # one class only: a unit that nothing reads, so that no matrix is empty
        weights, biases, outputs = [{}], [0], [0]
    hidden = Threshold(Matrix.of(weights, rows.dimension), tuple(biases))
    return hidden, Affine(Matrix.of([dict(enumerate(outputs))], len(outputs)), (background,))
