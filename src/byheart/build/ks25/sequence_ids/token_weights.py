"""Positive integers for tokens, such that different multisets have different sums.

The paper rounds a random direction and shifts it to make it positive; the shift adds |m|·shift to the sum of m, and
multisets of different cardinality can then collide ({p} and {q, q} with h(p) = 7, h(q) = 0 and shift 7: 14 = 14).
Repair: choose the weights one token after the other. A pair of multisets that still differ in the tokens chosen so far
stays apart for all but at most one value of the next weight, so one of N(N-1)/2 + 1 values is right for all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from byheart.build.ks25.sequence_ids.multisets import Index, Multisets
from byheart.build.shared.projection import Constants
from byheart.errors import BuildError
from byheart.paper import Ref, implements

DRAWS = 12
PAIRS = 1 << 21  # forbidden values that are listed at once


def largest_weight(count: int) -> int:
    """N(N-1)/2 + 1: weights up to this are always enough (the paper: 4·N^3·sqrt(pi)).

    >>> largest_weight(1), largest_weight(300)
    (1, 44851)
    """
    return count * (count - 1) // 2 + 1


@implements(
    Ref("KS25", "Lemma B.2"),
    statement="Integers f(x) >= 1 for the elements of N distinct multisets exist whose sums are distinct; "
    "f(x) <= N(N-1)/2 + 1 by a repaired proof.",
    test="tests/build/ks25/sequence_ids/test_token_weights.py",
)
def token_weights(
    multisets: Multisets, tokens: Sequence[int], constants: Constants, seed: int = 0
) -> tuple[tuple[int, ...], Index]:
    """A weight in [1, N(N-1)/2 + 1] for each of the tokens, and the sum of every multiset; all sums differ.

    `tokens` must tell the multisets apart. PAPER draws weights from the whole range and falls back on the greedy
    choice; MEASURED looks for the smallest sums, because they become keys.

    >>> m = Multisets.of(np.array([[0, -1], [1, 1], [1, 2]]))
    >>> weights, sums = token_weights(m, (0, 1), Constants.MEASURED)
    >>> weights, sums.tolist()
    ((1, 2), [1, 4, 2])
    """
    rng = np.random.default_rng(seed)
    top = largest_weight(multisets.size)
    if multisets.largest * top >= 1 << 62:
        raise BuildError(f"{multisets.size} multisets of up to {multisets.largest} tokens are too many for int64 sums")
    place = np.full(int(multisets.token.max(initial=0)) + 1, -1, dtype=np.int64)
    place[list(tokens)] = np.arange(len(tokens))
    kept = place[multisets.token] >= 0
    sparse = multisets.row[kept], place[multisets.token[kept]], multisets.count[kept]
    limits = [top] if constants is Constants.PAPER else _ladder(top)
    drawn = next(_drawn(multisets.size, len(tokens), sparse, [x for x in limits for _ in range(DRAWS)], rng), None)
    found = [] if drawn is None else [drawn]
    if drawn is None or constants is Constants.MEASURED:
        found.insert(0, _greedy(multisets, tokens, top, rng))
    best = min(found, key=lambda weights: int(_sums(multisets.size, sparse, weights).max()))
    return tuple(best.tolist()), _sums(multisets.size, sparse, best)


Sparse = tuple[Index, Index, Index]


def _sums(size: int, sparse: Sparse, weights: Index) -> Index:
    row, place, count = sparse
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, row, count * weights[place])
    return sums


def _drawn(size: int, tokens: int, sparse: Sparse, limits: Sequence[int], rng: np.random.Generator) -> Iterator[Index]:
    """Random weights up to each limit in turn that keep all sums apart."""
    for limit in limits:
        weights = rng.integers(1, limit, size=tokens, endpoint=True)
        if len(np.unique(_sums(size, sparse, weights))) == size:
            yield weights


def _ladder(top: int) -> list[int]:
    limits, limit = [], 4
    while limit < top:
        limits.append(limit)
        limit += max(1, limit // 2)
    return [*limits, top]


def _greedy(multisets: Multisets, tokens: Sequence[int], top: int, rng: np.random.Generator) -> Index:
    """Token after token, the smallest weight that keeps apart whatever the tokens so far can keep apart."""
    sums = np.zeros(multisets.size, dtype=np.int64)
    weights = np.zeros(len(tokens), dtype=np.int64)
    for place, token in enumerate(tokens):
        rows, counts = multisets.of_token(token)
        weights[place] = _smallest_weight(sums, rows, counts, top, rng)
        sums[rows] += counts * weights[place]
    if len(np.unique(sums)) != multisets.size:
        raise BuildError("the tokens do not tell the multisets apart; use distinguishing_tokens")
    return weights


def _smallest_weight(sums: Index, rows: Index, counts: Index, top: int, rng: np.random.Generator) -> int:
    """v such that sum + v·count is different wherever (sum, count) is."""
    without = np.ones(len(sums), dtype=bool)
    without[rows] = False
    having = np.array(sorted(set(zip(sums[rows].tolist(), counts.tolist(), strict=True))), dtype=np.int64)
    others = np.unique(sums[without])
    kinds = np.concatenate([having, np.stack([others, np.zeros_like(others)], axis=1)])  # (sum, count), to keep apart
    if len(having) * len(kinds) <= PAIRS:
        return _smallest_allowed(having, kinds, top)
    for limit in _ladder(top):
        for v in [*range(1, 9)] if limit == 4 else rng.integers(1, limit, size=DRAWS, endpoint=True).tolist():
            if len(np.unique(kinds[:, 0] + v * kinds[:, 1])) == len(kinds):
                return int(v)
    raise BuildError(f"no weight up to {top} was found; try another seed")


def _smallest_allowed(having: Index, kinds: Index, top: int) -> int:
    """List what each pair forbids, and take the smallest value that no pair does."""
    rise = having[:, 1][:, None] - kinds[:, 1][None, :]
    lead = kinds[:, 0][None, :] - having[:, 0][:, None]
    rising = rise > 0
    values, rests = np.divmod(lead[rising], rise[rising])
    forbidden = np.zeros(top + 2, dtype=bool) if top < PAIRS else None
    bad = values[(rests == 0) & (values >= 1) & (values <= top)]
    if forbidden is None:
        taken = np.unique(bad)
        free = np.flatnonzero(taken != np.arange(1, len(taken) + 1))
        return int(free[0]) + 1 if free.size else len(taken) + 1
    forbidden[bad] = True
    return int(np.argmin(forbidden[1:])) + 1
