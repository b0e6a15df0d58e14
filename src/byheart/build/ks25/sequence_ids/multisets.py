"""Multisets of tokens as a sparse table of counts (KS25, Appendix A)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Multisets:
    """`size` multisets; token `token[i]` is `count[i]` times in multiset `row[i]`; sorted by row, then token."""

    size: int
    row: Index
    token: Index
    count: Index

    @staticmethod
    def of(index: Index) -> Multisets:
        """From one row of token numbers per multiset; negative numbers are absent tokens.

        >>> m = Multisets.of(np.array([[4, 2, 4], [2, -1, -1]]))
        >>> m.row.tolist(), m.token.tolist(), m.count.tolist()
        ([0, 0, 1], [2, 4, 2], [1, 2, 1])
        """
        present = index >= 0
        rows = np.broadcast_to(np.arange(len(index))[:, None], index.shape)[present]
        bound = int(index.max(initial=0)) + 1
        keys, counts = np.unique(rows * bound + index[present], return_counts=True)
        return Multisets(len(index), keys // bound, keys % bound, counts.astype(np.int64))

    @property
    def largest(self) -> int:
        """The largest cardinality."""
        return int(np.bincount(self.row, weights=self.count, minlength=1).max())

    def of_row(self, row: int) -> tuple[Index, Index]:
        """Tokens and counts of one multiset."""
        part = slice(self._row_starts[row], self._row_starts[row + 1])
        return self.token[part], self.count[part]

    def of_token(self, token: int) -> tuple[Index, Index]:
        """The multisets that have a token, and how often."""
        part = self._by_token[self._token_starts[token] : self._token_starts[token + 1]]
        return self.row[part], self.count[part]

    @cached_property
    def frequency(self) -> Index:
        """In how many multisets each token is."""
        return np.bincount(self.token, minlength=1).astype(np.int64)

    @cached_property
    def _row_starts(self) -> Index:
        return np.searchsorted(self.row, np.arange(self.size + 1))

    @cached_property
    def _by_token(self) -> Index:
        return np.argsort(self.token, kind="stable")

    @cached_property
    def _token_starts(self) -> Index:
        return np.concatenate([[0], np.cumsum(self.frequency)])
