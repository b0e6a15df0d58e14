"""Attention, exactly: the sum of value vectors over the tokens that share the attention, and how many they are.

Attention with equal shares (uniform, hardmax, softmax of equal scores) is rational: token k receives
sum / count of the vectors W_O W_V z over its share. Softmax of unequal scores is not, and raises.

Sums and counts are kept apart: they are integers over the points' common denominator, and only the caller divides.
Where all scores are equal, a pattern's sums are totals or running totals: N·n additions per channel. Where scores
differ, every pair of tokens of a row is compared: N·n² products, for a few thousand rows at a time. Either way machine
integers are used when a bound shows that no sum can leave 64 bits, and Python's integers otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import NotRationalError
from byheart.exact import parts
from byheart.exact.number import Integers, Values
from byheart.ir.layers import Attention, Head, Kind, Matrix, Pattern

Index = npt.NDArray[np.int64]
ROWS = 1 << 12  # rows whose scores are compared at a time


@dataclass(frozen=True, eq=False)
class Shares:
    """For every token: the sum of one head's vectors over its share (numerators), and the size of the share."""

    channels: tuple[int, ...]  # stream channels that the head writes
    sums: tuple[Integers, ...]  # one (N, n) array per channel
    counts: Index  # (N, n)


def linear_image(matrix: Matrix, points: Values) -> Values:
    """W z for every point: column by column, which suits the few weights of a head."""
    low = max((-parts(w)[1] for row in matrix.rows for _, w in row), default=0)
    image = np.zeros((points.count, len(matrix.rows)), dtype=object)
    for i, row in enumerate(matrix.rows):
        for j, weight in row:
            mantissa, exponent = parts(weight)
            image[:, i] += points.numerators[:, j] * (mantissa << low + exponent)
    return Values(image, points.denominator << low)


def shares(
    attention: Attention, head: Head, vectors: Values, scores: tuple[Values, Values] | None, index: Index
) -> Shares:
    """The shares of one head: `vectors` are W_O W_V z per point, `scores` (keys, queries) per point if they matter."""
    channels = tuple(c for c, row in enumerate(head.output.rows) if row)
    columns = tuple(gather(vectors.numerators[:, c], index) for c in channels)
    if scores is None:
        return _equal(attention.pattern, channels, columns, index)
    return _scored(attention, channels, columns, scores, index)


def gather(column: Integers, index: Index) -> Integers:
    """column[index], with 0 where the index is absent; machine integers when every sum of a row fits."""
    bound = max((abs(x) for x in column), default=0) * max(1, index.shape[1])
    array: npt.NDArray[Any] = column.astype(np.int64) if bound < 1 << 62 else column
    picked: npt.NDArray[Any] = array[index]
    picked[index < 0] = 0
    return picked


def _equal(pattern: Pattern, channels: tuple[int, ...], columns: tuple[Integers, ...], index: Index) -> Shares:
    present = index >= 0
    lengths = present.sum(axis=1)
    last = np.zeros_like(present)
    last[np.arange(len(index)), lengths - 1] = True
    ones = np.ones_like(index)
    if pattern is Pattern.CAUSAL:
        return Shares(channels, tuple(np.add.accumulate(c, axis=1) for c in columns), np.cumsum(present, axis=1))
    totals = tuple(np.broadcast_to(c.sum(axis=1)[:, None], c.shape) for c in columns)
    if pattern is Pattern.FULL:
        return Shares(channels, totals, np.broadcast_to(lengths[:, None], index.shape))
    if pattern is Pattern.STAR_IN:
        sums = tuple(np.where(last, t, c) for c, t in zip(columns, totals, strict=True))
        return Shares(channels, sums, np.where(last, lengths[:, None], ones))
    # STAR_OUT: everyone reads itself and the global token, which reads only itself.
    hubs = tuple(c[last][:, None] for c in columns)
    sums = tuple(np.where(last, c, c + h) for c, h in zip(columns, hubs, strict=True))
    return Shares(channels, sums, np.where(last, ones, 2 * ones))


def allowed(pattern: Pattern, n: int) -> npt.NDArray[np.bool_]:
    """(query, key) pairs that the pattern connects; the global token is the last."""
    eye, last = np.eye(n, dtype=bool), np.arange(n) == n - 1
    everyone = np.ones((n, n), dtype=bool)
    tables: dict[Pattern, npt.NDArray[np.bool_]] = {
        Pattern.FULL: everyone,
        Pattern.CAUSAL: np.tril(everyone),
        Pattern.STAR_IN: eye | last[:, None],
        Pattern.STAR_OUT: np.where(last[:, None], eye, eye | last[None, :]),
    }
    return tables[pattern]


def _scored(
    attention: Attention,
    channels: tuple[int, ...],
    columns: tuple[Integers, ...],
    scores: tuple[Values, Values],
    index: Index,
) -> Shares:
    """The keys with the largest score share; softmax only where all allowed scores are equal."""
    sums = tuple(np.zeros(index.shape, dtype=object) for _ in columns)
    counts = np.ones_like(index)
    keys, queries = (_machine(part.numerators, scores) for part in scores)
    lengths = (index >= 0).sum(axis=1)
    for n in np.unique(lengths).tolist():
        same = np.flatnonzero(lengths == n)
        for start in range(0, len(same), ROWS):
            rows = same[start : start + ROWS]
            chosen = _chosen(attention, keys, queries, index[rows, :n], rows)
            counts[rows, :n] = chosen.sum(axis=2)
            for out, column in zip(sums, columns, strict=True):
                out[rows, :n] = (chosen * column[rows, None, :n]).sum(axis=2)
    return Shares(channels, sums, counts)


def _machine(numerators: Integers, scores: tuple[Values, Values]) -> npt.NDArray[Any]:
    """Machine integers when every score and every number in it fits, else Python's."""
    bounds = [max((abs(x) for x in part.numerators.ravel()), default=0) for part in scores]
    fits = max(1, bounds[0]) * max(1, bounds[1]) * max(1, numerators.shape[1]) < 1 << 62
    return numerators.astype(np.int64) if fits else numerators


def _chosen(
    attention: Attention, keys: npt.NDArray[Any], queries: npt.NDArray[Any], index: Index, rows: Index
) -> npt.NDArray[np.bool_]:
    """(row, query, key): who shares the attention. All rows have one length."""
    connected = allowed(attention.pattern, index.shape[1])[None]
    table = queries[index] @ keys[index].transpose(0, 2, 1)
    lowest = table.min() - 1  # below every score, so a key that is not connected never wins
    best = np.where(connected, table, lowest).max(axis=2)
    chosen: npt.NDArray[np.bool_] = connected & np.asarray(table == best[:, :, None], dtype=bool)
    if attention.kind is Kind.SOFTMAX and (chosen != connected).any():
        row, token, _ = np.argwhere(chosen != connected)[0]
        raise NotRationalError(
            f"softmax of unequal scores at row {rows[row]}, token {token} is not rational; certify by enclosures"
        )
    return chosen


def scores_matter(head: Head) -> bool:
    """Whether scores can differ: a key or query matrix of zeros makes them all equal."""
    return bool(head.key is not None and head.query is not None and head.key.nonzero and head.query.nonzero)
