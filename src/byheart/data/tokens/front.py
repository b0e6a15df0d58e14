"""From cells to token codes, in a way that an ONNX graph can repeat: what a deployed model does before its network.

Every column becomes one or more places, every place holds one of a few things (a character, a word, a whole cell), and
everything that was ever seen at a place has its own code. So the codes of a row determine every place, and the
network needs no positions. A cell with anything else in it is not known.

>>> cut = Characters.of(["AB", "AC", "B"])
>>> cut.alphabets, cut.shortest, cut.encode(["AC", "B", "CA"])[0].tolist(), cut.encode(["AC", "B", "CA"])[1].tolist()
(('AB', 'BC'), 1, [[0, 2], [1, 0], [0, 0]], [True, True, False])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from byheart.data.read.cells import CellType
from byheart.data.values import order

Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
# characters of a cell that are looked at one by one; longer cells are tokenized into words or not at all
MOST_PLACES = 128
# Decimal places up to which doubles are scaled to whole numbers.
MOST_DIGITS = 15
_EXACT = 1 << 53  # whole numbers below this are doubles, and no others round to them
_LARGEST = 1 << 40  # of scaled numbers, far from where floats are no longer exact


@dataclass(frozen=True)
class Cells:
    """A code for every cell that was seen: one place. None is the missing cell."""

    values: tuple[Any, ...]
    name: ClassVar[str] = "whole cells"

    @staticmethod
    def of(values: Sequence[Any]) -> Cells:
        distinct = set(values)
        alike = len(set(map(type, distinct))) == 1
        return Cells(tuple(sorted(distinct) if alike else sorted(distinct, key=order)))

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.values),)

    @cached_property
    def stored_bytes(self) -> int:
        """The keys as the file holds them, and the code of each."""
        return sum(len(value.encode()) + 3 if isinstance(value, str) else 8 for value in self.values) + 8 * len(
            self.values
        )

    @cached_property
    def _code(self) -> dict[Any, int]:
        return {value: code for code, value in enumerate(self.values)}

    def forget_codes(self) -> None:
        """Free the index of the cells, which the next query builds again."""
        self.__dict__.pop("_code", None)

    def encode(self, values: Sequence[Any]) -> tuple[Codes, Mask]:
        """(N, places) codes, 0 where one is not known, and which values are known."""
        codes = np.fromiter((self._code.get(value, -1) for value in values), dtype=np.int64, count=len(values))
        return np.maximum(codes, 0)[:, None], codes >= 0


@dataclass(frozen=True)
class Characters:
    """A place for every character; `alphabets` are the characters seen at each, a text may end after `shortest`."""

    alphabets: tuple[str, ...]
    shortest: int
    name: ClassVar[str] = "characters"

    @staticmethod
    def of(values: Sequence[str]) -> Characters:
        grid, lengths = _letters(values)
        places = range(grid.shape[1])
        alphabets = tuple("".join(map(chr, np.unique(grid[lengths > k, k]).tolist())) for k in places)
        return Characters(alphabets, int(lengths.min()))

    def ends(self, place: int) -> bool:
        """Whether a text may have ended before this place; then code 0 means that no character is there."""
        return place >= self.shortest

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(letters) + self.ends(k) for k, letters in enumerate(self.alphabets))

    def bits(self, place: int) -> int:
        """Bits of the codes at a place: one pattern of the graph each."""
        return (self.sizes[place] - 1).bit_length()

    @property
    def stored_bytes(self) -> int:
        """Patterns: half of an alphabet for each bit, and once the whole; a node of the graph around each."""
        letters = [len(part.encode()) for part in self.alphabets]
        return sum(n + self.bits(k) * (n // 2 + 70) for k, n in enumerate(letters)) + 200

    def encode(self, values: Sequence[str]) -> tuple[Codes, Mask]:
        grid, lengths = _letters(values)
        known = (lengths >= self.shortest) & (lengths <= len(self.alphabets))
        codes = np.zeros((len(lengths), len(self.alphabets)), dtype=np.int64)
        for k, letters in enumerate(self.alphabets[: grid.shape[1]]):
            alphabet = np.array([ord(letter) for letter in letters], dtype=grid.dtype)
            found = np.minimum(np.searchsorted(alphabet, grid[:, k]), len(alphabet) - 1)
            there, same = lengths > k, alphabet[found] == grid[:, k]
            codes[:, k] = np.where(there & same, found + self.ends(k), 0)
            known &= ~there | same
        codes[~known] = 0
        return codes, known


def _letters(values: Sequence[str]) -> tuple[npt.NDArray[np.uint32], Codes]:
    """Code points (N, longest) and the lengths."""
    lengths = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
    width = max(1, int(lengths.max(initial=0)))
    grid = np.array(values, dtype=f"U{width}").view(np.uint32).reshape(len(values), width)
    return grid, lengths


@dataclass(frozen=True)
class Words:
    """A place for every word between single spaces; `pairs` are the (place, word number) seen, 0 for no word."""

    words: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    places: int
    name: ClassVar[str] = "words"

    @staticmethod
    def of(values: Sequence[str]) -> Words:
        rows = [value.split(" ") for value in values]
        words = tuple(sorted({word for row in rows for word in row}))
        number = {word: k for k, word in enumerate(words, start=1)}
        places = max(map(len, rows))
        seen = {(k, number[word]) for row in rows for k, word in enumerate(row)}
        seen |= {(k, 0) for row in rows for k in range(len(row), places)}
        return Words(words, tuple(sorted(seen)), places)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        counts = [0] * self.places
        for place, _ in self.pairs:
            counts[place] += 1
        return tuple(counts)

    @cached_property
    def stored_bytes(self) -> int:
        return sum(len(word.encode()) + 11 for word in self.words) + 16 * len(self.pairs)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {word: k for k, word in enumerate(self.words, start=1)}

    @cached_property
    def code_of_pair(self) -> dict[tuple[int, int], int]:
        """The code of a pair among those of its place."""
        codes: dict[tuple[int, int], int] = {}
        counts = [0] * self.places
        for place, word in self.pairs:
            codes[place, word] = counts[place]
            counts[place] += 1
        return codes

    def encode(self, values: Sequence[str]) -> tuple[Codes, Mask]:
        codes = np.zeros((len(values), self.places), dtype=np.int64)
        known = np.zeros(len(values), dtype=bool)
        for row, value in enumerate(values):
            parts = value.split(" ")
            numbers = [self._number.get(part, -1) for part in parts] + [0] * (self.places - len(parts))
            found = [self.code_of_pair.get((k, number), -1) for k, number in enumerate(numbers)]
            if len(parts) <= self.places and min(found) >= 0:
                codes[row], known[row] = found, True
        return codes, known


@dataclass(frozen=True)
class Scaled:
    """Numbers times 10^digits, as whole numbers from `low` to `high`; the missing cell comes after them."""

    digits: int
    low: int
    high: int
    missing: bool = False
    name: ClassVar[str] = "scaled numbers"

    @staticmethod
    def of(values: Sequence[int | float | None]) -> Scaled | None:
        """The scale on which every number is whole; None where there is none in reach."""
        numbers = [value for value in values if value is not None]
        digits = max(map(_decimals, numbers), default=0)
        if not numbers or digits > MOST_DIGITS or any(abs(value) * 10**digits >= _LARGEST for value in numbers):
            return None
        scaled = np.rint(np.array(numbers, dtype=np.float64) * 10.0**digits)
        found = Scaled(digits, int(scaled.min()), int(scaled.max()), len(numbers) < len(values))
        return found if bool(found.encode(values)[1].all()) else None

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.high - self.low + 1 + self.missing,)

    def value(self, code: int) -> float | None:
        """The number of a code, None for the missing cell.

        >>> Scaled(1, 5, 20).value(3), Scaled(0, 5, 9, True).value(5)
        (0.8, None)
        """
        if self.missing and code == self.high - self.low + 1:
            return None
        return float((code + self.low) / 10.0**self.digits)

    @property
    def stored_bytes(self) -> int:
        return 400  # a dozen nodes

    def encode(self, values: Sequence[int | float | None]) -> tuple[Codes, Mask]:
        numbers = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
        unit = 10.0**self.digits
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.rint(numbers * unit)
            known = (scaled / unit == numbers) & (scaled >= self.low) & (scaled <= self.high)
        codes = np.where(known, scaled - self.low, 0).astype(np.int64)
        if self.missing:
            nothing = np.isnan(numbers)
            codes[nothing], known = self.high - self.low + 1, known | nothing
        return codes[:, None], known


def _decimals(value: int | float) -> int:
    """Decimal places of the shortest text of a number.

    >>> _decimals(5.1), _decimals(3.0), _decimals(1e-07), _decimals(25)
    (1, 0, 7, 0)
    """
    mantissa, _, exponent = repr(value).partition("e")
    _, _, decimals = mantissa.partition(".")
    return max(0, len(decimals.rstrip("0")) - int(exponent or 0))


Cutting = Cells | Characters | Words | Scaled


@dataclass(frozen=True)
class FrontColumn:
    """An input column and how its cells become codes."""

    name: str
    type: CellType
    cutting: Cutting

    @property
    def fits_double(self) -> bool:
        """Whether every number of the column is a double, and no other whole number rounds to it."""
        if self.type is not CellType.WHOLE or not isinstance(self.cutting, Cells):
            return True
        return all(value is None or abs(value) < _EXACT for value in self.cutting.values)


@dataclass(frozen=True)
class Front:
    """All input columns. `scalars`: the codes are numbers to the network, not rows of a table."""

    columns: tuple[FrontColumn, ...]
    scalars: bool = False

    @property
    def named_types(self) -> list[tuple[str, CellType]]:
        """The name and the type of every column."""
        return [(column.name, column.type) for column in self.columns]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each place has."""
        return tuple(size for column in self.columns for size in column.cutting.sizes)

    @property
    def places(self) -> int:
        return len(self.sizes)

    @property
    def codes(self) -> int:
        """How many codes there are; the table of the network has a row for each."""
        return sum(self.sizes)

    @cached_property
    def first_codes(self) -> tuple[int, ...]:
        """The first code of each place."""
        return tuple(sum(self.sizes[:k]) for k in range(self.places))

    @property
    def stored_bytes(self) -> int:
        """What the cells' names take in a file."""
        return sum(column.cutting.stored_bytes for column in self.columns)

    def forget_codes(self) -> None:
        """Free what encoding keeps."""
        for column in self.columns:
            if isinstance(column.cutting, Cells):
                column.cutting.forget_codes()

    def encode(self, columns: Sequence[Sequence[Any]]) -> tuple[Codes, Mask]:
        """(N, places) codes of the cells, column by column, and which rows are known in every cell.

        >>> front = Front((FrontColumn("x", CellType.TEXT, Cells(("a", "b"))), FrontColumn("y", CellType.WHOLE,
        ...                Scaled(0, 5, 9))))
        >>> front.encode([["b", "c"], [6, 6]])
        (array([[1, 3], [0, 3]]), array([ True, False]))
        """
        parts = [column.cutting.encode(cells) for column, cells in zip(self.columns, columns, strict=True)]
        known = np.logical_and.reduce([mask for _, mask in parts])
        return np.concatenate([codes for codes, _ in parts], axis=1) + np.array(self.first_codes), known


def cuttings(values: Sequence[Any], type: CellType) -> list[Cutting]:
    """Every tokenization of the distinct cells of a column, whole cells first.

    Texts with single spaces between words can be put together again from their words; others are not tokenized into
    words.

    >>> [way.name for way in cuttings(["to be", "or"], CellType.TEXT)], cuttings([0.5, 2.0], CellType.NUMBER)[1]
    (['whole cells', 'characters', 'words'], Scaled(digits=1, low=5, high=20, missing=False))
    """
    found: list[Cutting] = [Cells.of(values)]
    if type in (CellType.WHOLE, CellType.NUMBER):
        scaled = Scaled.of(values)
        return found + ([scaled] if scaled is not None else [])
    if type is CellType.TRUTH:
        return found
    texts = ["" if value is None else value for value in values]
    if max(map(len, texts)) <= MOST_PLACES and not any("\0" in text for text in texts):
        found.append(Characters.of(texts))
    if any(" " in text for text in texts) and all("" not in text.split(" ") for text in texts):
        found.append(Words.of(texts))
    return found
