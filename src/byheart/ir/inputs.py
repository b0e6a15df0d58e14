"""What a network is evaluated on: distinct input vectors, and which of them each token is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.errors import NetworkError
from byheart.exact.values import Values

Index = npt.NDArray[np.int64]
ABSENT = -1


@dataclass(frozen=True, eq=False)
class Inputs:
    """N sequences of at most n tokens: token k of row i is `points` row `index[i, k]`, or absent where that is -1.

    Absent places stand at the end of a row. Equal tokens share a point, so they are evaluated once.
    """

    points: Values  # (P, d)
    index: Index  # (N, n)

    def __post_init__(self) -> None:
        if self.index.ndim != 2 or self.index.dtype != np.int64:
            raise NetworkError("Inputs needs a two-dimensional int64 index")

    @property
    def lengths(self) -> Index:
        return np.asarray((self.index >= 0).sum(axis=1), dtype=np.int64)

    def rows(self, start: int, stop: int) -> Inputs:
        return Inputs(self.points, self.index[start:stop])
