"""Mahdavi, Liao and Thrampoulidis 2024: one layer of multi-head softmax attention, without a feed-forward network.

Random heads, their outputs for each row, and the outputs that give every row its label.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from byheart.build._base import NOT_ASSUMED, Construction, register
from byheart.build.table1.flattened import embedding_note, generic_embedding
from byheart.build.table1.ks24 import nearest_class
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import AssumptionError
from byheart.exact import Number, dyadic
from byheart.exact.number import Values
from byheart.ir.layers import Affine, Attention, Embedding, Head, Kind, Layer, Matrix, Pattern
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.guarantees.table1 import INDEPENDENT, head_count, head_dimension

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

GRID = 6  # fraction bits of keys, queries and values, relative to their size
LOGITS = 3.0  # spread of the scores: large enough that heads differ, small enough that they see several tokens
TOLERANCE = 0.2  # an answer may be this far from its label; 1/2 would name another class


@dataclass(frozen=True)
class RandomHeads:
    """Keys, queries and values, one matrix (size x dimension) of exact numbers per head."""

    size: int
    dimension: int
    keys: list[list[list[Number]]]
    queries: list[list[list[Number]]]
    values: list[list[list[Number]]]


def draw_heads(vectors: Floats, index: Index, n: int, contexts: int, seed: int) -> RandomHeads:
    """Gaussian keys, queries and values on a grid, scaled so that scores spread by about LOGITS."""
    rng = np.random.default_rng(seed)
    dimension = vectors.shape[1]
    size = dimension if n == 1 else max(1, min(n, dimension))
    count = head_count(contexts, n, dimension)
    drawn = rng.normal(size=(3, count, size, dimension)) / _spread(vectors)  # every coordinate matters alike
    seen = vectors[index[: min(len(index), 256), -1]]
    for head in range(count):
        scores = (vectors[:2000] @ drawn[0, head].T) @ (seen @ drawn[1, head].T).T
        drawn[1, head] *= LOGITS / max(float(scores.std()), 1e-12)
    made = [[_on_grid(drawn[kind, head]) for head in range(count)] for kind in range(3)]
    return RandomHeads(size, dimension, made[0], made[1], made[2])


def _spread(vectors: Floats) -> Floats:
    """How far each coordinate spreads; one that hardly does, or not at all, counts with its size, or as 1 if it is 0.

    >>> _spread(np.array([[3.0, 5.0, 0.0], [-3.0, 5.0, 0.0]])).tolist()
    [3.0, 5.0, 1.0]
    """
    sizes = np.abs(vectors).max(axis=0)
    sizes[sizes == 0] = 1.0
    spread: Floats = (vectors / sizes).std(axis=0) * sizes  # divided out, so that no square overflows
    return np.where(spread > 1e-9 * sizes, spread, sizes)


def _on_grid(matrix: Floats) -> list[list[Number]]:
    """Rounded to GRID bits after the largest of each column: coordinates of other sizes have other steps."""
    largest = np.abs(matrix).max(axis=0)
    steps = [math.floor(math.log2(x)) - GRID if x else 0 for x in largest.tolist()]
    return [
        [dyadic(round(math.ldexp(x, -step)), step) for x, step in zip(row, steps, strict=True)]
        for row in matrix.tolist()
    ]


def features(heads: RandomHeads, vectors: Floats, index: Index, point: Index) -> Floats:
    """W_V Z softmax(…) of all heads for every context, side by side.  # (contexts, heads · size)"""
    out = np.empty((len(index), len(heads.keys) * heads.size))
    tokens, own = vectors[index], vectors[point]  # (T, n, m), (T, m)
    for head, (key, query, value) in enumerate(zip(heads.keys, heads.queries, heads.values, strict=True)):
        k, q, v = (np.array([[float(x) for x in row] for row in matrix]) for matrix in (key, query, value))
        scores = np.einsum("tns,ts->tn", tokens @ k.T, own @ q.T)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        out[:, head * heads.size : (head + 1) * heads.size] = np.einsum("tn,tnm->tm", shares, tokens) @ v.T
    return out


def solve_outputs(found: Floats, labels: Index, rows: Index, assumed: Sequence[str] = ()) -> list[Number]:
    """The shortest outputs that give every context its label, rounded; checked in floats, proved by the certificate."""
    target = labels.astype(np.float64)
    scale = np.linalg.norm(found, axis=0)
    scale[scale == 0] = 1.0
    scaled = found / scale
    solution = np.linalg.lstsq(scaled, target, rcond=1e-13)[0] / scale
    error = np.abs(found @ solution - target)
    if not np.isfinite(error).all() or error.max(initial=0.0) > TOLERANCE:
        worst = np.argsort(-np.nan_to_num(error, nan=np.inf))[:4]
        raise AssumptionError(
            INDEPENDENT,
            f"no outputs give all labels: the {len(target)} feature vectors of dimension {found.shape[1]} are (almost) "
            "linearly dependent; longer rows, tokens of a higher dimension or another seed may help"
            + "".join(f"; {note}" for note in assumed),
            tuple(int(r) for r in rows[worst]),
        )
    size = float(np.abs(found).sum(axis=1).max()) + 1.0
    step = math.floor(math.log2(0.05 / size))
    return [dyadic(round(math.ldexp(float(x), -step)), step) for x in solution]


@implements(
    Ref("MA24", "Assumption 1"),
    statement="every n of the query tokens are linearly independent (Kruskal rank at least n): refuted with rows, or "
    "proved by ranks modulo a prime where the sets are few; that no two are proportional is checked for all",
    test="tests/build/table1/test_mahdavi24.py",
    partly="where there are more than 1,000 sets of n > 2 queries, all pairs and a sample of the sets are checked, "
    "which proves nothing for the other sets",
)
def assumption_notes(points: Values, index: Index) -> tuple[str, ...]:
    """Check the theorem's assumptions about the rows; return sentences for users.

    `points` are the tokens' exact vectors, `index` (T, n) the tokens of each row, the query last. Independence modulo
    a prime proves independence; dependence modulo the prime is confirmed over the rationals before it is reported.
    """
    vectors, (count, n) = points.numerators, index.shape
    if n == 1:
        return ("MA24's theorem is about rows of several tokens and guarantees nothing for rows of one",)
    if n > points.width:
        return (f"{NOT_ASSUMED} {ASSUMPTIONS}: n = {n} tokens of {points.width} numbers are always dependent",)
    notes = []
    bad = next((t for t in range(count) if not independent(vectors[index[t]].tolist())), None)
    if bad is not None:
        notes.append(f"{NOT_ASSUMED} the tokens of a row are independent (Assumption 2; row {bad})")
    query, rows = np.unique(index[:, -1], return_index=True)
    if len(query) < count:
        twice = int(np.setdiff1d(np.arange(count), rows)[0])
        other = int(np.flatnonzero(index[:, -1] == index[twice, -1])[0])
        notes.append(f"{NOT_ASSUMED} queries are independent (Assumption 1; rows {other} and {twice} end alike)")
        return tuple(notes)
    notes += _kruskal_note(vectors[query].tolist(), rows, n)
    return tuple(notes) or (f"{ASSUMPTIONS} hold on this data, so almost every sample of keys and queries suffices",)


def _kruskal_note(queries: list[list[int]], rows: Index, n: int) -> list[str]:
    """Nothing where every n queries are proved independent."""
    size = min(n, len(queries))
    found = proportional(queries) if size > 1 else next(((q,) for q, query in enumerate(queries) if not any(query)), ())
    every = math.comb(len(queries), size)
    sets: Iterable[tuple[int, ...]] = combinations(range(len(queries)), size) if size > 2 else ()
    if size > 2 and every > SETS:
        rng = np.random.default_rng(0)
        sets = (tuple(rng.choice(len(queries), size, replace=False).tolist()) for _ in range(SETS))
    dependent = found or next((chosen for chosen in sets if not independent([queries[q] for q in chosen])), ())
    if dependent:
        named = ", ".join(str(int(rows[q])) for q in dependent)
        return [f"{NOT_ASSUMED} every {n} queries are independent (Assumption 1; rows {named})"]
    if size > 2 and every > SETS:
        return [
            f"Assumption 1 was checked in part: no two of {len(queries):,} queries are proportional (all pairs), and "
            f"{SETS:,} sampled of about 10^{math.log10(every):.0f} sets of {n} queries are independent"
        ]
    return []


def proportional(queries: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Two rows of which one is a multiple of the other, or a row of zeros alone; () where there are none.

    Rows divided by their common divisor, with a first entry above 0, are equal exactly where they are proportional.

    >>> proportional([[1, 2], [3, 4], [-2, -4]]), proportional([[1, 2], [0, 0]]), proportional([[1, 2], [2, 1]])
    ((0, 2), (1,), ())
    """
    seen: dict[tuple[int, ...], int] = {}
    for place, query in enumerate(queries):
        first = next((x for x in query if x), 0)
        if not first:
            return (place,)
        common = math.gcd(*query) * (1 if first > 0 else -1)
        direction = tuple(x // common for x in query)
        if direction in seen:
            return seen[direction], place
        seen[direction] = place
    return ()


def independent(rows: list[list[int]]) -> bool:
    """Whether integer rows are linearly independent: modulo a prime, and if not there, over the rationals.

    >>> independent([[1, 2], [3, 4]]), independent([[1, 2], [2, 4]]), independent([[PRIME, 0], [0, 1]])
    (True, False, True)
    """
    return _rank(rows, PRIME) == len(rows) or _rank(rows, None) == len(rows)


def _rank(rows: list[list[int]], prime: int | None) -> int:
    """Elimination modulo the prime, or without fractions over the integers."""
    work, rank = [[x % prime for x in row] if prime else list(row) for row in rows], 0
    for column in range(len(work[0])):
        pivot = next((i for i in range(rank, len(work)) if work[i][column]), None)
        if pivot is None:
            continue
        work[rank], work[pivot] = work[pivot], work[rank]
        head = work[rank]
        for i in range(rank + 1, len(work)):
            factor = work[i][column]
            if factor:
                new = [head[column] * x - factor * y for x, y in zip(work[i], head, strict=True)]
                work[i] = [x % prime for x in new] if prime else _reduced(new)
        rank += 1
    return rank


def _reduced(row: list[int]) -> list[int]:
    common = math.gcd(*row)
    return [x // common for x in row] if common > 1 else row


# Ranks are computed modulo this Mersenne prime.
PRIME = (1 << 61) - 1
SETS = 1_000  # sets of queries that are looked at
ASSUMPTIONS = "MA24's assumptions (queries of Kruskal rank n, rows of rank n)"
THEOREM = Ref("MA24", "Theorem 1")


@register(
    "mahdavi24",
    summary="softmax attention alone: (N - 1)/(min(n, d) - 1) heads, their outputs solved for; no feed-forward layer",
    order=50,
    formula="Mahdavi 2024",
    description="Attention alone: random heads look at the row, and their outputs are solved for. No feed-forward "
    "layer; one layer deep; short weights. Grows like N/n. Use it to study the capacity of attention alone.",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN,),
    assumptions=(INDEPENDENT,),
)
@implements(
    THEOREM,
    statement="H heads of size r memorize H(min(n, r) - 1) + 1 examples with linearly independent features: one "
    "attention layer, O(d²N/n) parameters.",
    test="tests/build/table1/test_mahdavi24.py",
    partly="keys and queries are sampled and outputs solved for, where the proof chooses them; the certificate decides",
)
def build_mahdavi24(dataset: Dataset, *, seed: int = 0, progress: Progress = SILENT) -> Construction:
    """Random keys, queries and values; the output matrices solve a linear system; logits read the sum.

    The theorem assumes that the tokens of every row are linearly independent, and every n of the queries, to show that
    the features of N rows are linearly independent for almost all keys and queries. Both are checked on the data, and a
    note states the result; with one query for many rows, as in text, the theorem does not apply. The construction is
    tried in any case: the system is solved, and the certificate, by enclosures, decides whether all labels are correct.
    Where it cannot be solved, the error names the assumption that fails.
    """
    table, points = _points(dataset, seed)
    vectors = np.array([[x / points.denominator for x in row] for row in points.numerators], dtype=np.float64)
    contexts = dataset.contexts
    assumed = assumption_notes(points, dataset.inputs.index[contexts.row])
    heads = draw_heads(vectors, dataset.inputs.index, dataset.n, len(contexts), seed)
    with progress.stage("solving for the outputs", total=2) as stage:
        found = features(heads, vectors, dataset.inputs.index[contexts.row], contexts.point)
        stage.advance()
        outputs = solve_outputs(found, contexts.label, contexts.row, assumed)
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
    count = len(heads.keys)
    notes = [f"{count} {'head' if count == 1 else 'heads'} of size {heads.size} for {len(contexts)} contexts", *assumed]
    if table is not None:
        notes.append(embedding_note(table))
    return Construction(network, {}, tuple(notes))


def _points(dataset: Dataset, seed: int) -> tuple[Embedding | None, Values]:
    """The tokens' vectors; symbols get a dimension per token of a row, up to 16 (per symbol if n = 1)."""
    if dataset.encoder.symbols is None:
        return None, dataset.inputs.points
    dimension = head_dimension(dataset)
    table, points = generic_embedding(dataset, dimension, placed=True, seed=seed)
    wider = Matrix(table.table.rows, dimension + 1)  # one more channel, zero, for the answer
    return Embedding(wider, table.strides), points


def _entrance(m: int) -> Affine:
    """x -> (x, 0): one more channel for the answer."""
    return Affine(Matrix.of([{j: 1} if j < m else {} for j in range(m + 1)], m))


def _attention(heads: RandomHeads, outputs: list[Number]) -> Attention:
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
