"""What a row looks like when its tokens are read from the largest down: the largest, how often, the next, …

Kim, Kim and Mozafari 2023 let attention do that reading, one value per round; this is the same in plain Python, for the
builder that must know beforehand which numbers the network will see.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.int64]


def ranked_row(keys: Sequence[int], tokens: int) -> list[int]:
    """[value 1, count 1, value 2, count 2, …], values descending, filled with zeros: 2·tokens numbers.

    >>> ranked_row([5, 9, 5], 3)
    [9, 1, 5, 2, 0, 0]
    """
    found: list[int] = []
    for key in sorted(set(keys), reverse=True):
        found += [key, sum(other == key for other in keys)]
    return found + [0] * (2 * tokens - len(found))


def ranked_rows(keys: Sequence[int], index: Index) -> list[list[int]]:
    """`ranked_row` for each row of point numbers; keys[p] is the key of point p."""
    return [ranked_row([keys[p] for p in row if p >= 0], index.shape[1]) for row in index.tolist()]
