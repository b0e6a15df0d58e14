"""Random heads, what they see of each row, and the outputs that give every row its label."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.errors import AssumptionError
from byheart.exact import Number, dyadic

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

INDEPENDENT = "the heads' features of the rows are linearly independent"
GRID = 6  # fraction bits of keys, queries and values, relative to their size
LOGITS = 3.0  # spread of the scores: large enough that heads differ, small enough that they see several tokens
TOLERANCE = 0.2  # an answer may be this far from its label; 1/2 would name another class


@dataclass(frozen=True)
class Heads:
    """Keys, queries and values, one matrix (size x dimension) of exact numbers per head."""

    size: int
    dimension: int
    keys: list[list[list[Number]]]
    queries: list[list[list[Number]]]
    values: list[list[list[Number]]]


def head_count(contexts: int, n: int, dimension: int) -> int:
    """H = ⌈(N - 1) / (r - 1)⌉ with r = min(n, d); one head where a row is one token, or r is 1.

    >>> head_count(100, 8, 8), head_count(1, 8, 8), head_count(100, 1, 8)
    (15, 1, 1)
    """
    rank = min(n, dimension)
    if n == 1 or contexts == 1:
        return 1
    return max(1, -(-(contexts - 1) // max(1, rank - 1)))


def draw_heads(vectors: Floats, index: Index, n: int, contexts: int, seed: int) -> Heads:
    """Gaussian keys, queries and values on a grid, scaled so that scores spread by about LOGITS."""
    rng = np.random.default_rng(seed)
    dimension = vectors.shape[1]
    size = dimension if n == 1 else max(1, min(n, dimension))
    count = head_count(contexts, n, dimension)
    spread = np.maximum(vectors.std(axis=0), 1e-9 * (1 + np.abs(vectors).max()))
    drawn = rng.normal(size=(3, count, size, dimension)) / spread  # every coordinate matters alike
    seen = vectors[index[: min(len(index), 256), -1]]
    for head in range(count):
        scores = (vectors[:2000] @ drawn[0, head].T) @ (seen @ drawn[1, head].T).T
        drawn[1, head] *= LOGITS / max(float(scores.std()), 1e-12)
    made = [[_on_grid(drawn[kind, head]) for head in range(count)] for kind in range(3)]
    return Heads(size, dimension, made[0], made[1], made[2])


def _on_grid(matrix: Floats) -> list[list[Number]]:
    step = math.floor(math.log2(max(float(np.abs(matrix).max()), 1e-300))) - GRID
    return [[dyadic(round(math.ldexp(float(x), -step)), step) for x in row] for row in matrix]


def features(heads: Heads, vectors: Floats, index: Index, point: Index) -> Floats:
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


def solve_outputs(found: Floats, labels: Index, rows: Index) -> list[Number]:
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
            "linearly dependent; longer rows, tokens of a higher dimension or another seed may help",
            tuple(int(r) for r in rows[worst]),
        )
    size = float(np.abs(found).sum(axis=1).max()) + 1.0
    step = math.floor(math.log2(0.05 / size))
    return [dyadic(round(math.ldexp(float(x), -step)), step) for x in solution]
