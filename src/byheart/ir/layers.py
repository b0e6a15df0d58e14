"""The layers of a network, as frozen values that validate themselves on construction.

A layer maps the stream of every token (m numbers) to a new stream. `Affine`, `Threshold`, `Residual` and `Embedding`
act on each token alone; `Attention`, `Pool`, `Flatten` and `GlobalToken` act on the sequence.

Their matrices are exact, stored by rows without their zeros.

>>> m = Matrix.of([{0: 1, 2: -3}, {}], columns=3)
>>> m.dense()
[[1, 0, -3], [0, 0, 0]]
>>> m.entries, m.nonzero
(6, 2)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

from byheart.errors import NetworkError
from byheart.exact import Number, check_number

Row = tuple[tuple[int, Number], ...]


@dataclass(frozen=True)
class Matrix:
    """A matrix of exact numbers; `rows[i]` holds the (column, weight) pairs of row i, columns ascending."""

    rows: tuple[Row, ...]
    columns: int

    @staticmethod
    def of(rows: Sequence[Mapping[int, Number]], columns: int) -> Matrix:
        """From one {column: weight} mapping per row; zeros are dropped, indices and types are checked."""
        packed: list[Row] = []
        for index, row in enumerate(rows):
            cells = tuple(sorted((j, check_number(w)) for j, w in row.items() if w != 0))
            if cells and not 0 <= cells[0][0] <= cells[-1][0] < columns:
                raise NetworkError(f"row {index} has a weight outside its {columns} columns")
            packed.append(cells)
        return Matrix(tuple(packed), columns)

    @staticmethod
    def of_dense(rows: Sequence[Sequence[Number]]) -> Matrix:
        """From a rectangular list of lists."""
        columns = len(rows[0]) if rows else 0
        if any(len(row) != columns for row in rows):
            raise NetworkError("the rows of a dense matrix must have one length")
        return Matrix.of([dict(enumerate(row)) for row in rows], columns)

    @staticmethod
    def zero(rows: int, columns: int) -> Matrix:
        return Matrix(((),) * rows, columns)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.columns

    @property
    def entries(self) -> int:
        return len(self.rows) * self.columns

    @cached_property
    def nonzero(self) -> int:
        return sum(len(row) for row in self.rows)

    def weights(self) -> Iterator[Number]:
        """The weights that are not zero."""
        for row in self.rows:
            for _, weight in row:
                yield weight

    def dense(self) -> list[list[Number]]:
        out: list[list[Number]] = [[0] * self.columns for _ in self.rows]
        for i, row in enumerate(self.rows):
            for j, weight in row:
                out[i][j] = weight
        return out

    def transpose(self) -> Matrix:
        columns: list[list[tuple[int, Number]]] = [[] for _ in range(self.columns)]
        for i, row in enumerate(self.rows):
            for j, weight in row:
                columns[j].append((i, weight))
        return Matrix(tuple(tuple(column) for column in columns), len(self.rows))


Vector = tuple[Number, ...]


class Stored:
    """The stored numbers of a layer, counted from one list of its tensors, so that all counts agree."""

    def tensors(self) -> Iterator[Matrix | Vector]:
        """Every matrix and vector of the layer."""
        raise NotImplementedError

    @property
    def parameters(self) -> int:
        """All entries, zeros included."""
        return sum(t.entries if isinstance(t, Matrix) else len(t) for t in self.tensors())

    def weights(self) -> Iterator[Number]:
        """The entries that are not zero."""
        for tensor in self.tensors():
            yield from tensor.weights() if isinstance(tensor, Matrix) else (number for number in tensor if number != 0)


class Kind(StrEnum):
    """How attention turns scores into weights."""

    SOFTMAX = "softmax"  # KS25 eq. (2)
    HARDMAX = "hardmax"  # KS25 eq. (12): equal shares among the largest scores
    UNIFORM = "uniform"  # KS25 eq. (39): the mean; no keys, no queries


class Pattern(StrEnum):
    """Which tokens a token may attend to."""

    FULL = "full"  # everyone
    CAUSAL = "causal"  # itself and those before it
    STAR_IN = "star-in"  # the global (last) token attends everyone, any other only itself
    STAR_OUT = "star-out"  # every token attends itself and the global (last) token


@dataclass(frozen=True)
class Affine(Stored):
    """x -> W x + b on every token, followed by ReLU if `relu`. `bias=None` stores none (a linear map)."""

    weight: Matrix
    bias: Vector | None = None
    relu: bool = False

    def __post_init__(self) -> None:
        if self.bias is not None and len(self.bias) != len(self.weight.rows):
            raise NetworkError(f"{len(self.weight.rows)} rows but {len(self.bias)} biases")

    @property
    def width_in(self) -> int:
        return self.weight.columns

    @property
    def width_out(self) -> int:
        return len(self.weight.rows)

    def tensors(self) -> Iterator[Matrix | Vector]:
        yield self.weight
        if self.bias is not None:
            yield self.bias


@dataclass(frozen=True)
class Threshold(Stored):
    """x -> 1 where W x + b >= 0, else 0, on every token: the units of the classical theorems (Baum 1988)."""

    weight: Matrix
    bias: Vector

    def __post_init__(self) -> None:
        if len(self.bias) != len(self.weight.rows):
            raise NetworkError(f"{len(self.weight.rows)} threshold units but {len(self.bias)} biases")

    @property
    def width_in(self) -> int:
        return self.weight.columns

    @property
    def width_out(self) -> int:
        return len(self.weight.rows)

    def tensors(self) -> Iterator[Matrix | Vector]:
        yield from (self.weight, self.bias)


@dataclass(frozen=True)
class Residual(Stored):
    """x -> x + W2 relu(W1 x + b1) + b2 on every token: the feed-forward block of KS25 eq. (3)."""

    weight1: Matrix
    bias1: Vector
    weight2: Matrix
    bias2: Vector

    def __post_init__(self) -> None:
        hidden, stream = self.weight1.shape
        if self.weight2.shape != (stream, hidden) or len(self.bias1) != hidden or len(self.bias2) != stream:
            raise NetworkError(
                f"a residual block of stream {stream} and hidden size {hidden} got W2 {self.weight2.shape}, "
                f"b1 {len(self.bias1)}, b2 {len(self.bias2)}"
            )

    @property
    def width_in(self) -> int:
        return self.weight1.columns

    @property
    def width_out(self) -> int:
        return self.weight1.columns

    @property
    def hidden(self) -> int:
        return len(self.weight1.rows)

    def tensors(self) -> Iterator[Matrix | Vector]:
        yield from (self.weight1, self.bias1, self.weight2, self.bias2)


@dataclass(frozen=True)
class Embedding(Stored):
    """Token id k -> row k of the table (KS25 eq. (128), stored transposed). Only as the first layer.

    A token of several whole numbers has the id sum strides·numbers: strides (1, V) look up (symbol, position) pairs,
    strides (1, 0) the symbol alone.
    """

    table: Matrix
    strides: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        whole = all(type(stride) is int and stride >= 0 for stride in self.strides)
        if not whole or not any(self.strides):
            raise NetworkError(f"an embedding needs a stride >= 0 per number of a token, one > 0, not {self.strides}")

    @property
    def width_in(self) -> int:
        return len(self.strides)

    @property
    def width_out(self) -> int:
        return self.table.columns

    @property
    def vocabulary(self) -> int:
        return len(self.table.rows)

    def tensors(self) -> Iterator[Matrix | Vector]:
        yield self.table


@dataclass(frozen=True)
class Head:
    """One attention head: value (s x m) and output (m x s); key and query (s x m) unless the kind is uniform."""

    value: Matrix
    output: Matrix
    key: Matrix | None = None
    query: Matrix | None = None

    def __post_init__(self) -> None:
        size, stream = self.value.shape
        fits = self.output.shape == (stream, size) and (self.key is None) == (self.query is None)
        fits = fits and (self.key is None or self.query is None or self.key.shape == self.query.shape)
        if not fits or (self.key is not None and self.key.columns != stream):
            raise NetworkError(f"the matrices of a head do not fit a stream of {stream} and head size {size}")

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return tuple(m for m in (self.key, self.query, self.value, self.output) if m is not None)


@dataclass(frozen=True)
class Attention(Stored):
    """Z -> Z + sum over heads of W_O W_V Z · weights: KS25 eq. (2), (12) or (39) by `kind`, over `pattern`."""

    kind: Kind
    pattern: Pattern
    heads: tuple[Head, ...]

    def __post_init__(self) -> None:
        if not self.heads or len({h.value.columns for h in self.heads}) != 1:
            raise NetworkError("attention needs at least one head, all on the same stream")
        for head in self.heads:
            if (head.key is None) != (self.kind is Kind.UNIFORM):
                raise NetworkError(
                    f"{self.kind} attention {'has no' if head.key is not None else 'needs'} keys and queries"
                )

    @property
    def width_in(self) -> int:
        return self.heads[0].value.columns

    @property
    def width_out(self) -> int:
        return self.width_in

    @property
    def idle(self) -> bool:
        """Whether it adds zero to every stream, whatever the scores: no head has both values and an output."""
        return not any(head.value.nonzero and head.output.nonzero for head in self.heads)

    @property
    def head_width(self) -> int:
        """s·H of KS25's width."""
        return sum(len(h.value.rows) for h in self.heads)

    def tensors(self) -> Iterator[Matrix | Vector]:
        return (matrix for head in self.heads for matrix in head.matrices)

    def connections(self, n: int) -> int:
        """How many pairs (query, key) the pattern connects in a sequence of n tokens, global token included."""
        return {
            Pattern.FULL: n * n,
            Pattern.CAUSAL: n * (n + 1) // 2,
            Pattern.STAR_IN: (n - 1) + n,
            Pattern.STAR_OUT: 2 * (n - 1) + 1,
        }[self.pattern]


@dataclass(frozen=True)
class Pool(Stored):
    """Add the streams of all tokens into one: the sum of a deep set, KS25 eq. (112). No parameters."""

    width: int

    @property
    def width_in(self) -> int:
        return self.width

    @property
    def width_out(self) -> int:
        return self.width

    def tensors(self) -> Iterator[Matrix | Vector]:
        return iter(())


class Place(StrEnum):
    """Position of a global token."""

    START = "start"  # before the first token, where every prefix sees it
    END = "end"  # after the last token


@dataclass(frozen=True)
class Flatten(Stored):
    """Write the streams of exactly `tokens` tokens one after another: one token of tokens · width numbers remains.

    How a feed-forward network reads a whole row. No parameters.
    """

    tokens: int
    width: int

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.width < 1:
            raise NetworkError(f"flattening needs at least one token of one number, not {self.tokens} of {self.width}")

    @property
    def width_in(self) -> int:
        return self.width

    @property
    def width_out(self) -> int:
        return self.tokens * self.width

    def tensors(self) -> Iterator[Matrix | Vector]:
        return iter(())


@dataclass(frozen=True)
class GlobalToken(Stored):
    """Add one token with a fixed stream to every sequence (KS25 Remark 4.5: at the end). It gives no answer.

    At the start it lets a causal mean count: the prefixes a and aa have one mean, but with a first token they differ.
    """

    stream: Vector
    place: Place = Place.END

    @property
    def width_in(self) -> int:
        return len(self.stream)

    @property
    def width_out(self) -> int:
        return len(self.stream)

    def tensors(self) -> Iterator[Matrix | Vector]:
        yield self.stream


TokenLayer: TypeAlias = Affine | Threshold | Residual | Embedding
SequenceLayer: TypeAlias = Attention | Pool | Flatten | GlobalToken
Layer: TypeAlias = TokenLayer | SequenceLayer
