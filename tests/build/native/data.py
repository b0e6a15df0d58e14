"""Rows for native memories: a third random, a third permutations, a third one-token edits."""

from __future__ import annotations

import numpy as np

from byheart.data.dataset.dataset import Dataset, load


def rows(N: int, n: int, vocabulary: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    third = rng.integers(0, vocabulary, (N // 3 + 1, n))
    edited = third.copy()
    edited[np.arange(len(third)), rng.integers(0, n, len(third))] = rng.integers(0, vocabulary, len(third))
    more = rng.integers(0, vocabulary, (N // 5 + 50, n))
    found = np.unique(np.concatenate([third, rng.permuted(third, axis=1), edited, more]), axis=0)
    rng.shuffle(found)
    return found[:N]


def dataset(N: int, C: int, n: int = 8, vocabulary: int = 200, seed: int = 0) -> Dataset:
    """Next-token data with positions and random labels."""
    found = rows(N, n, vocabulary, seed)
    return load(found, np.random.default_rng(seed + 1).integers(0, C, len(found)))
