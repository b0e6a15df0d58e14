"""From the user's sequences to network inputs: symbol table, padding, positions.

A symbol's input vector is its code, 1, 2, … in sorted order; code 0 is the padding symbol. A real vector is itself.
With positions on, the place of the token in the padded row follows as one more coordinate. Short rows are padded on
the left where the last token is read (`next-token`, `seq-to-seq`); sets and prefixes are not padded: their missing
tokens are absent at the end.

    >>> encoder = Encoder.fit(read_tokens(["abc", "b"]), Task.NEXT_TOKEN, positions=False)
    >>> inputs = encoder.encode(["bb", "abc"])
    >>> inputs.points.numerators[inputs.index, 0].tolist()
    [[0, 2, 2], [1, 2, 3]]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index, rank_in_place, rank_keys
from byheart.data.dataset.sequences import (
    Symbol,
    TokenKind,
    Tokens,
    find_vector,
    join,
    numbers,
    padding_vector,
    read_tokens,
)
from byheart.data.task import Task
from byheart.data.values import damaged, from_json, key, load_bool, load_int, load_number, order, store_number, to_json
from byheart.data.wording import quote
from byheart.errors import DataError, UnknownSymbolError
from byheart.exact.number import Number, Values
from byheart.ir.network import ABSENT, Inputs

# Tokens of a row.
MAX_LENGTH = 1 << 24
# Symbols that a message names.
_FEW = 5
_PADDING = object()  # None is a symbol: a missing token

T = TypeVar("T")


@dataclass(frozen=True)
class Encoder:
    """How sequences become inputs.

    Attributes:
        task: The task.
        positions: Whether a token's position is part of its input.
        length: n, of the longest row.
        symbols: The known symbols, in their order; None for vectors.
        dimension: Of a token without its position; 1 for symbols.
        padded: Whether short rows are padded.
        pad_vector: For padded vectors: one that is not among the data.
    """

    task: Task
    positions: bool
    length: int
    symbols: tuple[Symbol, ...] | None
    dimension: int
    padded: bool = False
    pad_vector: tuple[Number, ...] | None = None

    @staticmethod
    def fit(tokens: Tokens, task: Task, positions: bool) -> Encoder:
        """Find the encoder that tokens need.

        Args:
            tokens: The tokens of all rows.
            task: The task.
            positions: Whether positions count.

        Raises:
            DataError: A row is too long.
        """
        length = int(tokens.lengths.max(initial=1))
        if length > MAX_LENGTH:
            raise DataError(f"a row has {length} tokens; at most {MAX_LENGTH} are supported, so split it")
        padded = task.pads and bool((tokens.lengths < length).any())
        if tokens.vectors is None:
            return Encoder(task, positions, length, tokens.symbols or (), 1, padded)
        pad = padding_vector(tokens.vectors) if padded else None
        return Encoder(task, positions, length, None, tokens.vectors.width, padded, pad)

    @cached_property
    def named(self) -> bool:
        """Whether numbers are names: every symbol is a float, and a whole number in a query means its equal."""
        return bool(self.symbols) and all(type(symbol) is float for symbol in self.symbols or ())

    @property
    def input_width(self) -> int:
        """d: what the networks see of each token."""
        return self.dimension + self.positions

    def encode(self, sequences: Iterable[Any]) -> Inputs:
        """Encode known sequences.

        Args:
            sequences: Rows of tokens.

        Raises:
            UnknownSymbolError: A token was not memorized; the message names the row.
            DataError: A row has another length or kind of tokens.
        """
        return self.place(self.read(sequences))

    def place(self, tokens: Tokens) -> Inputs:
        """Encode tokens that are read already. Points are numbered in the order of their tokens.

        Args:
            tokens: The result of `read`.

        Raises:
            UnknownSymbolError: A token was not memorized.
            DataError: A row has another length.
        """
        wrong = np.flatnonzero(~self._fitting_lengths(tokens.lengths))
        if wrong.size:
            raise DataError(self._length_message(int(wrong[0]), int(tokens.lengths[wrong[0]])))
        table, known = self._table(tokens)
        unknown = np.flatnonzero(~known[tokens.ids])
        if unknown.size:
            raise UnknownSymbolError(self._strange_message(tokens, int(unknown[0])))
        return self._inputs(tokens.lengths, table[tokens.ids], tokens)

    def place_labels(self, lengths: Index, labels: Index) -> Index:
        """Put labels in the places of their tokens.

        Args:
            lengths: Tokens of every row.
            labels: One per token, row after row.

        Returns:
            (N, n) labels, -1 elsewhere.
        """
        return self._grid(lengths, labels, -1)

    def encode_known(self, sequences: Iterable[Any]) -> tuple[Inputs, npt.NDArray[np.bool_]]:
        """Encode sequences that may be unknown.

        Args:
            sequences: Rows of tokens.

        Returns:
            The inputs and which rows are known; a row with an unknown token or length is encoded as some valid row.

        Raises:
            DataError: A value cannot be a token (NaN, a vector of another dimension).
        """
        tokens = self.read(sequences)
        table, known_tokens = self._table(tokens)
        known = self._fitting_lengths(tokens.lengths)
        if known.all() and known_tokens.all():
            return self._inputs(tokens.lengths, table[tokens.ids], tokens), known
        rows = np.repeat(np.arange(len(tokens.lengths)), tokens.lengths)
        known[rows[~known_tokens[tokens.ids]]] = False
        kept = known[rows]
        inputs = self._inputs(np.where(known, tokens.lengths, 0), table[tokens.ids[kept]], tokens)
        if not known.all():
            inputs = self._fill_unknown(inputs, known)
        return inputs, known

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "task": str(self.task),
            "positions": self.positions,
            "length": self.length,
            "symbols": None if self.symbols is None else list(map(to_json, self.symbols)),
            "dimension": self.dimension,
            "padded": self.padded,
            "pad_vector": None if self.pad_vector is None else list(map(store_number, self.pad_vector)),
        }

    @staticmethod
    def from_dict(stored: object) -> Encoder:
        """Read the encoder of `as_dict`.

        Args:
            stored: The field of a file.

        Raises:
            FileFormatError: A field is damaged; the message names it.
        """
        if not isinstance(stored, Mapping) or set(stored) != {field.name for field in fields(Encoder)}:
            raise damaged("encoder", stored, f"an object with {', '.join(field.name for field in fields(Encoder))}")
        if not isinstance(stored["task"], str) or stored["task"] not in list(Task):
            raise damaged("encoder.task", stored["task"], f"one of {', '.join(Task)}")
        encoder = Encoder(
            task=Task(stored["task"]),
            positions=load_bool(stored["positions"], "encoder.positions"),
            length=load_int(stored["length"], "encoder.length", 1, MAX_LENGTH),
            symbols=_load_list(stored["symbols"], "encoder.symbols", _load_symbol),
            dimension=load_int(stored["dimension"], "encoder.dimension", 1, MAX_LENGTH),
            padded=load_bool(stored["padded"], "encoder.padded"),
            pad_vector=_load_list(stored["pad_vector"], "encoder.pad_vector", load_number),
        )
        encoder._check_loaded()
        return encoder

    def _check_loaded(self) -> None:
        """The fields of a file agree with each other as `fit` would have made them."""
        symbols, pad = self.symbols, self.pad_vector
        if symbols is not None:
            ranks = [order(symbol) for symbol in symbols]
            if not ranks or any(a >= b for a, b in pairwise(ranks)):
                raise damaged("encoder.symbols", "out of order", "a sorted list of distinct symbols")
            if self.dimension != 1:
                raise damaged("encoder.dimension", self.dimension, "1, as symbols have it")
        if self.padded and not self.task.pads:
            raise damaged("encoder.padded", True, f"false, as the task {self.task} never pads")
        if self.positions and self.task is Task.SET:
            raise damaged("encoder.positions", True, "false, as a set has no positions")
        if (pad is not None) != (self.padded and symbols is None) or (pad is not None and len(pad) != self.dimension):
            raise damaged("encoder.pad_vector", pad, "the vector that pads short rows")

    def decode(self, inputs: Inputs) -> list[list[Any]]:
        """Return the sequences of inputs.

        Args:
            inputs: Inputs of this encoder.

        Returns:
            Rows of symbols, or of tuples of exact numbers; padding is omitted.
        """
        used, ranks = rank_keys(inputs.index[inputs.index >= 0], inputs.points.count)
        names: list[Any] = [self._name(inputs.points, number) for number in used.tolist()] or [_PADDING]
        table: Index = np.full_like(inputs.index, -1)
        table[inputs.index >= 0] = ranks
        return [[names[i] for i in row if i >= 0 and names[i] is not _PADDING] for row in table.tolist()]

    def _name(self, points: Values, number: int) -> Any:
        """What the user calls a point, or the mark of the padding."""
        if self.symbols is not None:
            code = int(points.numerators[number, 0])
            return self.symbols[code - 1] if code else _PADDING
        vector = numbers(points, number)[: self.dimension]
        return _PADDING if vector == self.pad_vector else vector

    def read(self, sequences: Iterable[Any]) -> Tokens:
        """Read the tokens of sequences of this encoder's kind.

        Args:
            sequences: Rows of tokens.

        Raises:
            DataError: The tokens are of another kind or dimension.
        """
        vectors = self.symbols is None
        kind = TokenKind.VECTORS if vectors else TokenKind.NAMES if self.named else TokenKind.SYMBOLS
        tokens = read_tokens(sequences, kind, unordered=self.task is Task.SET)
        if tokens.ids.size == 0:
            nothing = Values(np.empty((0, self.dimension), dtype=object)) if vectors else None
            return Tokens(tokens.lengths, tokens.ids, None if vectors else (), nothing)
        if vectors and tokens.vectors is None:
            known = f"vectors of dimension {self.dimension} were memorized"
            raise DataError(f"the tokens are symbols, but {known}; give each as a list of that many numbers")
        if not vectors and tokens.symbols is None:
            raise DataError(f"the tokens are vectors, but symbols were memorized; known are {self._known_symbols()}")
        if tokens.vectors is not None and tokens.vectors.width != self.dimension:
            raise DataError(
                f"the vectors have dimension {tokens.vectors.width}, but dimension {self.dimension} was memorized"
            )
        return tokens

    @cached_property
    def _codes(self) -> dict[Hashable, int]:
        return {key(symbol): number for number, symbol in enumerate(self.symbols or (), start=1)}

    def _table(self, tokens: Tokens) -> tuple[Index, npt.NDArray[np.bool_]]:
        """For each distinct token its key, the padding being 0, and whether it is known."""
        if tokens.vectors is not None:
            known = np.ones(tokens.vectors.count, dtype=bool)
            clash = find_vector(tokens.vectors, self.pad_vector) if self.pad_vector is not None else None
            if clash is not None:
                known[clash] = False
            return np.arange(1, tokens.vectors.count + 1, dtype=np.int64), known
        keys = np.array([self._codes.get(key(s), 0) for s in tokens.symbols or ()], dtype=np.int64)
        return keys, keys > 0

    def _fitting_lengths(self, lengths: Index) -> npt.NDArray[np.bool_]:
        if self.task.pads and not self.padded:
            return np.asarray(lengths == self.length)
        return np.asarray((lengths >= 1) & (lengths <= self.length))

    def _inputs(self, lengths: Index, keys: Index, tokens: Tokens) -> Inputs:
        grid = self._grid(lengths, keys, 0 if self.task.pads else ABSENT)
        bound = (tokens.vectors.count if tokens.vectors is not None else len(self.symbols or ())) + 1
        if self.positions:  # token and place are one key; all of it in place, because this is as large as the data
            for column in range(self.length):
                cells = grid[:, column]
                np.add(cells * self.length, column, out=cells, where=cells >= 0)
        distinct = rank_in_place(grid, bound * self.length if self.positions else bound)
        if self.positions:
            return Inputs(self._points(distinct // self.length, distinct % self.length, tokens.vectors), grid)
        return Inputs(self._points(distinct, None, tokens.vectors), grid)

    def _grid(self, lengths: Index, values: Index, elsewhere: int) -> Index:
        """Values, one per token and row after row, in their places.  # (N, n)"""
        if bool((lengths == self.length).all()):
            return values.reshape(-1, self.length)
        grid = np.full((len(lengths), self.length), elsewhere, dtype=np.int64)
        columns = np.arange(self.length)
        start = (self.length - lengths)[:, None] if self.task.pads else 0
        grid[(columns >= start) & (columns < start + lengths[:, None])] = values
        return grid

    def _points(self, keys: Index, places: Index | None, vectors: Values | None) -> Values:
        if vectors is None:
            values = Values(keys.astype(object)[:, None])
        else:
            padding = Values.of_numbers([self.pad_vector or (0,) * self.dimension])
            used, ranks = rank_keys(np.concatenate([keys, [0]]), vectors.count + 1)
            table = join(padding, vectors.take(used[1:] - 1))
            values = table.take(ranks[:-1])
        if places is None:
            return values
        column = (places.astype(object) * values.denominator)[:, None]
        return Values(np.concatenate([values.numerators, column], axis=1), values.denominator)

    def _fill_unknown(self, inputs: Inputs, known: npt.NDArray[np.bool_]) -> Inputs:
        """Unknown rows become some row that the network can evaluate."""
        index = inputs.index.copy()
        if known.any():
            index[~known] = index[np.argmax(known)]
            return Inputs(inputs.points, index)
        filler = self._filler()
        return Inputs(filler.points, np.repeat(filler.index, len(known), axis=0))

    def _filler(self) -> Inputs:
        """One valid row: the first symbol, or the zero vector, everywhere."""
        count = self.length if self.task.pads else 1
        token: Any = (0,) * self.dimension if self.symbols is None else self.symbols[0]
        return self._inputs(np.array([count]), np.ones(count, dtype=np.int64), self.read([[token] * count]))

    def _length_message(self, row: int, length: int) -> str:
        if length == 0:
            return f"row {row} is empty; remove it, every row needs a token"
        if length > self.length:
            return f"row {row} has {length} tokens, but no memorized row has more than {self.length}"
        return f"row {row} has {length} tokens, but every memorized row has {self.length}"

    def _strange_message(self, tokens: Tokens, token: int) -> str:
        row, position = tokens.place(token)
        number = int(tokens.ids[token])
        if tokens.symbols is not None:
            return (
                f"row {row}, position {position}: token {quote(tokens.symbols[number])} was never memorized; "
                f"known are {self._known_symbols()}"
            )
        return f"row {row}, position {position}: the vector is the one that pads short rows, so it was never memorized"

    def _known_symbols(self) -> str:
        symbols = self.symbols or ()
        shown = ", ".join(map(quote, symbols[:_FEW]))
        return shown if len(symbols) <= _FEW else f"{len(symbols)} symbols: {shown}, …"


def _load_symbol(value: object, field: str) -> Symbol:
    symbol = from_json(value, field)
    if isinstance(symbol, bytes | tuple) or symbol in (math.inf, -math.inf):
        raise damaged(field, value, "a token: a text, a number, true, false or null")
    return symbol  # type: ignore[no-any-return]


def _load_list(value: object, field: str, load: Callable[[object, str], T]) -> tuple[T, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise damaged(field, value, "a list")
    return tuple(load(item, f"{field}[{number}]") for number, item in enumerate(value))
