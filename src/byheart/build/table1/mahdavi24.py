"""Mahdavi, Liao and Thrampoulidis 2024: one layer of multi-head softmax attention, no feed-forward network at all."""

from __future__ import annotations

import numpy as np

from byheart.build._base import Construction, register
from byheart.build.table1.generic_embedding import embedding_note, generic_embedding
from byheart.build.table1.ks24 import nearest_class
from byheart.build.table1.mahdavi24_heads import INDEPENDENT, Heads, draw_heads, features, head_count, solve_outputs
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.exact import Number
from byheart.ir.claim import Claim
from byheart.ir.layers import Affine, Attention, Embedding, Head, Kind, Layer, Pattern
from byheart.ir.matrix import Matrix
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

THEOREM = Ref("MA24", "Theorem 1")
MOST = 16  # dimensions of the embedding; more would make the table long and the heads few


@register(
    "mahdavi24",
    summary="softmax attention alone: (N - 1)/(min(n, d) - 1) heads, their outputs solved for; no feed-forward layer",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN,),
    assumptions=(INDEPENDENT,),
)
@implements(
    THEOREM,
    statement="H heads of size r memorize H(min(n, r) - 1) + 1 examples with linearly independent features: one "
    "attention layer, O(d²N/n) parameters.",
    test="tests/build/table1/test_mahdavi24.py",
)
def build_mahdavi24(dataset: Dataset, *, seed: int = 0, progress: Progress = SILENT) -> Construction:
    """Random keys, queries and values; the output matrices solve a linear system; logits read the sum.

    The theorem assumes linearly independent tokens in every row to show that the features of N rows are linearly
    independent for some keys and queries. Here the features themselves are looked at: with random keys and queries the
    system is solved, and the certificate, by enclosures, says whether all labels came out.
    """
    table, vectors = _vectors(dataset, seed)
    contexts = dataset.contexts
    heads = draw_heads(vectors, dataset.inputs.index, dataset.n, len(contexts), seed)
    with progress.stage("solving for the outputs", total=2) as stage:
        found = features(heads, vectors, dataset.inputs.index[contexts.row], contexts.point)
        stage.advance()
        outputs = solve_outputs(found, contexts.label, contexts.row)
        stage.advance()
    m = heads.dimension
    front: Layer = table if table is not None else _entrance(m)
    attention = _attention(heads, outputs)
    read = nearest_class(dataset.C)
    logits = Affine(Matrix.of([{m: row[0][1]} if row else {} for row in read.weight.rows], m + 1), read.bias)
    network = Network(
        (front, attention, logits),
        Read.LAST,
        Readout(Decode.ARGMAX, dataset.C),
        (("embedding" if table is not None else "E_in", 1), ("attention", 1), ("E_out", 1)),
    )
    notes = [f"{len(heads.keys)} heads of size {heads.size} for {len(contexts)} contexts"]
    if table is not None:
        notes.append(embedding_note(table))
    return Construction(network, _claim(dataset, heads, front), {}, tuple(notes))


def _vectors(dataset: Dataset, seed: int) -> tuple[Embedding | None, np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """The tokens' vectors as floats; symbols get a dimension per token of a row, up to 16 (per symbol if n = 1)."""
    points, table = dataset.inputs.points, None
    if dataset.encoder.symbols is not None:
        dimension = min(max(2, dataset.n), MOST) if dataset.n > 1 else points.count
        table, points = generic_embedding(dataset, dimension, placed=True, seed=seed)
        wider = Matrix(table.table.rows, dimension + 1)  # one more channel, zero, for the answer
        table = Embedding(wider, table.strides)
    floats = np.array([[x / points.denominator for x in row] for row in points.numerators], dtype=np.float64)
    return table, floats


def _entrance(m: int) -> Affine:
    """x -> (x, 0): one more channel for the answer."""
    return Affine(Matrix.of([{j: 1} if j < m else {} for j in range(m + 1)], m))


def _attention(heads: Heads, outputs: list[Number]) -> Attention:
    """All heads write to the answer's channel only."""
    m = heads.dimension
    made = []
    for place, (key, query, value) in enumerate(zip(heads.keys, heads.queries, heads.values, strict=True)):
        own = outputs[place * heads.size : (place + 1) * heads.size]
        rows: list[dict[int, Number]] = [*({} for _ in range(m)), dict(enumerate(own))]
        made.append(Head(_widened(value, m), Matrix.of(rows, heads.size), _widened(key, m), _widened(query, m)))
    return Attention(Kind.SOFTMAX, Pattern.FULL, tuple(made))


def _widened(rows: list[list[Number]], m: int) -> Matrix:
    return Matrix.of([dict(enumerate(row)) for row in rows], m + 1)


def _claim(dataset: Dataset, heads: Heads, front: Layer) -> Claim:
    m, count = heads.dimension, len(dataset.contexts)
    wanted = head_count(count, dataset.n, m)
    return Claim(
        THEOREM,
        {
            "width": max(m + 1, wanted * heads.size),
            "depth": 1,
            "attention_layers": 1,
            "parameters": wanted * 4 * heads.size * (m + 1) + dataset.C * (m + 2) + front.parameters,
        },
        {
            "width": "heads times head size",
            "depth": "one attention layer",
            "parameters": "H·4r(d + 1), H = ceil((contexts - 1) / (r - 1)), r = min(n, d); maps C(d + 2) and E_in",
        },
        assumptions=(INDEPENDENT, "parameters of any length"),
    )
