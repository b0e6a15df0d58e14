"""A decoder of few parameters: an exact network names the distribution of a context, a table says what it is.

Most contexts of a corpus share their distribution with others. An exact network with about √contexts parameters gives
the number of a context's distribution, and the logits are that row of a table, stored as low-rank factors. A context
that the exact network does not answer has equal logits: the uniform distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.errors import DataError, NetworkError
from byheart.exact.values import Values
from byheart.ir.decoder import Floats, Ints, log_softmax
from byheart.ir.evaluate import answers
from byheart.ir.inputs import Inputs
from byheart.ir.network import Network, Read


@dataclass(frozen=True, eq=False)
class TableDecoder:
    """logits = coordinates[k] @ columns for row k = network(context); tokens are numbers from 0 to ω - 1.

    The exact network reads the last of `length` pairs (code, place): token t has code `codes[t]` (0: the network never
    saw it), and contexts that are shorter are padded in front with code 0 where `padded`, else they have no answer.
    """

    network: Network
    codes: tuple[int, ...]
    length: int
    padded: bool
    coordinates: Floats  # (R, r)
    columns: Floats  # (r, ω)

    def __post_init__(self) -> None:
        fits = self.coordinates.ndim == self.columns.ndim == 2 and self.coordinates.shape[1] == len(self.columns)
        fits = fits and len(self.codes) == self.columns.shape[1] and self.network.width_in == 2 and self.length >= 1
        fits = fits and all(0 <= code <= len(self.codes) for code in self.codes)  # symbols are among the tokens
        if not fits or self.network.read is not Read.LAST or self.network.readout.classes != len(self.coordinates):
            raise NetworkError("the exact network, its codes and the table do not fit together")
        if any(m.dtype != np.float64 or not np.isfinite(m).all() for m in self.matrices):
            raise NetworkError("the weights of a table are finite float64 numbers")
        for matrix in self.matrices:
            matrix.setflags(write=False)

    @property
    def kind(self) -> str:
        return "table"

    @property
    def identity(self) -> tuple[object, ...]:
        """Everything but the matrices."""
        return (self.network, self.codes, self.length, self.padded)

    @property
    def matrices(self) -> tuple[Floats, ...]:
        return (self.coordinates, self.columns)

    @property
    def vocabulary_size(self) -> int:
        return int(self.columns.shape[1])

    @property
    def parameters(self) -> int:
        """Those of the exact network, as its architecture stores them, and every entry of the table."""
        inner = sum(layer.parameters for layer in self.network.layers)
        return inner + self.coordinates.size + self.columns.size

    def named(self, tokens: Ints) -> Floats:
        """The coordinates (n, r) of contexts (n, τ), padded with -1 at the end: zeros where there is no answer."""
        if tokens.ndim != 2 or tokens.shape[1] > self.length or (tokens.size and tokens.max() >= len(self.codes)):
            raise DataError(f"contexts of shape {tokens.shape}: this decoder reads at most {self.length} known tokens")
        lengths = (tokens >= 0).sum(axis=1)
        codes = np.array([*self.codes, 0], dtype=np.int64)[tokens]  # -1 is the last
        seen = ((codes > 0) | (tokens < 0)).all(axis=1) & (lengths > 0) & (self.padded | (lengths == self.length))
        out = np.zeros((len(tokens), self.coordinates.shape[1]))
        if seen.any():
            rows = answers(self.network, self._inputs(codes[seen], lengths[seen]))
            out[np.flatnonzero(seen)[rows >= 0]] = self.coordinates[rows[rows >= 0]]
        return out

    def _inputs(self, codes: Ints, lengths: Ints) -> Inputs:
        grid = np.zeros((len(codes), self.length), dtype=np.int64)
        places = np.arange(self.length)
        start = (self.length - lengths)[:, None]
        grid[places >= start] = codes[np.arange(codes.shape[1]) < lengths[:, None]]
        found, index = np.unique(grid * self.length + places, return_inverse=True)
        points = np.stack([found // self.length, found % self.length], axis=1).astype(object)
        return Inputs(Values(points), index.reshape(grid.shape).astype(np.int64))

    def logits(self, tokens: Ints) -> Floats:
        """(n, ω), before the softmax."""
        return np.asarray(self.named(tokens) @ self.columns)

    def log_probabilities(self, tokens: Ints) -> Floats:
        """log softmax of the logits: (n, ω)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return log_softmax(self.logits(tokens))
