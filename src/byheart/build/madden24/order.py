"""Which order on the line needs the fewest steps: tokens with common continuations beside each other.

Between two neighbouring contexts with the same distribution no neuron is needed. If a context's place on the line is
decided by its last token first, the order of the tokens is free: a greedy chain puts tokens next to each other that
share distributions among the contexts they end.

    >>> tokens, classes = np.array([[0], [1], [2]]), np.array([7, 8, 7])     # contexts 0 and 2 behave alike
    >>> order = chain_tokens(tokens, classes, 3)
    >>> abs(order.tolist().index(0) - order.tolist().index(2))
    1
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def chain_tokens(tokens: Ints, classes: Ints, vocabulary_size: int) -> Ints:
    """A permutation of the vocabulary: each token is followed by the unused one that shares most with it.

    Sharing is the part of the next token's classes that the current one has too. Cost: O(contexts) plus, for each
    token, the tokens that share a class with it.
    """
    last = tokens[np.arange(len(tokens)), (tokens >= 0).sum(axis=1) - 1]
    has: dict[int, set[int]] = defaultdict(set)
    ends: dict[int, set[int]] = defaultdict(set)
    for token, which in zip(last.tolist(), classes.tolist(), strict=True):
        has[token].add(which)
        ends[which].add(token)
    waiting = sorted(has, key=lambda t: (-len(has[t]), t))
    order: list[int] = []
    used: set[int] = set()
    for start in waiting:
        current: int | None = start
        while current is not None and current not in used:
            order.append(current)
            used.add(current)
            for which in has[current]:
                ends[which].discard(current)
            current = _successor(current, has, ends)
    order.extend(t for t in range(vocabulary_size) if t not in used)
    return np.array(order, dtype=np.int64)


def _successor(current: int, has: dict[int, set[int]], ends: dict[int, set[int]]) -> int | None:
    candidates = {token for which in has[current] for token in ends[which]}
    return max(candidates, key=lambda t: (len(has[t] & has[current]) / len(has[t]), len(has[t]), -t), default=None)


def run_starts(ordered_classes: Ints) -> Ints:
    """Places k ≥ 1 where the class differs from the one before: where a step is needed."""
    return np.flatnonzero(np.diff(ordered_classes)) + 1
