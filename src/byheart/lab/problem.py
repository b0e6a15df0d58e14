"""What a trained network is asked to memorize, as arrays.

`Sequences` is KS25's setting: N sequences of n tokens, one label each, read at one token. `Documents` is that of Madden
et al.: documents whose every prefix has a next token. Both keep what is distinct once, which is what makes the fast
engines fast, and both have a fingerprint that goes into every record.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from byheart.errors import DataError

CROSS_ENTROPY, SQUARED_ERROR = "cross-entropy", "squared-error"
PADDING = -1  # no token, in `Documents`


@dataclass(frozen=True, eq=False)
class Sequences:
    """N sequences of n tokens.

    points: (V, d) vectors of the distinct tokens, or None: then a token is a unit vector of dimension V (one-hot), and
    E_in is a table with a trained column per word. index: (N, n), the token at each place; labels: (N,) classes, or
    ±1 with squared error; read: the place whose output is compared with the label.

    >>> tiny = Sequences("tiny", None, np.array([[0, 1], [1, 0]]), np.array([0, 1]), classes=2, read=0)
    >>> tiny.N, tiny.n, tiny.d, tiny.label_bits
    (2, 2, 2, 2.0)
    """

    name: str
    points: npt.NDArray[np.float64] | None
    index: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    classes: int
    read: int
    loss: str = CROSS_ENTROPY

    def __post_init__(self) -> None:
        if self.index.ndim != 2 or not self.index.size:
            raise DataError(f"{self.name}: index has shape {self.index.shape}, need (N, n) with at least one token")
        if len(self.labels) != len(self.index):
            raise DataError(f"{self.name}: {len(self.index)} sequences but {len(self.labels)} labels")
        if self.index.min() < 0 or (self.points is not None and self.index.max() >= len(self.points)):
            raise DataError(f"{self.name}: index names a token that has no vector")

    @property
    def N(self) -> int:
        return len(self.index)

    @property
    def n(self) -> int:
        return int(self.index.shape[1])

    @cached_property
    def tokens(self) -> int:
        """V, the number of distinct tokens."""
        return int(self.index.max()) + 1 if self.points is None else len(self.points)

    @property
    def d(self) -> int:
        return self.tokens if self.points is None else int(self.points.shape[1])

    @property
    def outputs(self) -> int:
        """Rows of E_out: a logit per class, or the one number that is compared with ±1."""
        return self.classes if self.loss == CROSS_ENTROPY else 1

    @property
    def label_bits(self) -> float:
        return self.N * float(np.log2(self.classes))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything above but the name: equal data, equal fingerprint, on every machine."""
        head = f"byheart lab sequences 1 {self.classes} {self.read} {self.loss} {self.index.shape}"
        digest = hashlib.sha256(head.encode())
        for array, kind in ((self.points, "<f8"), (self.index, "<i8"), (self.labels, "<i8")):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).astype(kind).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents for next-token prediction: the distinct contexts, and how often which token follows them.

    tokens: (D, T+1) token numbers, PADDING after the end. contexts: (n, T) distinct prefixes, PADDING after the end;
    pairs: (P, 2), (context, next token); weights: (P,), the share of the pair among all predictions.
    """

    name: str
    tokens: npt.NDArray[np.int64]
    vocabulary: int

    @cached_property
    def _table(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        places: dict[tuple[int, ...], int] = {}
        counts: dict[tuple[int, int], int] = {}
        for row in self.tokens.tolist():
            row = row[: row.index(PADDING)] if PADDING in row else row
            for t in range(1, len(row)):
                place = places.setdefault(tuple(row[:t]), len(places))
                counts[place, row[t]] = counts.get((place, row[t]), 0) + 1
        contexts = np.full((len(places), self.length), PADDING, dtype=np.int64)
        for prefix, place in places.items():
            contexts[place, : len(prefix)] = prefix
        weights = np.array(list(counts.values()), dtype=np.float64)
        return contexts, np.array(list(counts), dtype=np.int64), weights / weights.sum()

    @property
    def contexts(self) -> npt.NDArray[np.int64]:
        return self._table[0]

    @property
    def pairs(self) -> npt.NDArray[np.int64]:
        return self._table[1]

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        return self._table[2]

    @property
    def length(self) -> int:
        """T, the longest context."""
        return int(self.tokens.shape[1]) - 1

    @property
    def N(self) -> int:
        return len(self.tokens)

    @cached_property
    def entropy(self) -> float:
        """The least cross-entropy that any model can reach (Lemma 2 of Madden et al.), in nats per prediction."""
        totals = np.bincount(self.pairs[:, 0], weights=self.weights)
        return float(-(self.weights * np.log(self.weights / totals[self.pairs[:, 0]])).sum())

    @cached_property
    def fingerprint(self) -> str:
        head = f"byheart lab documents 1 {self.vocabulary} {self.tokens.shape}"
        return hashlib.sha256(head.encode() + self.tokens.astype("<i8").tobytes()).hexdigest()


Problem = Sequences | Documents
