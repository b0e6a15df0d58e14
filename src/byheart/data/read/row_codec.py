"""From cells to tokens: how a row of a table becomes a row of a data set, for data and for queries alike.

A text is tokenized, a JSON list is always taken as the tokens, any other value is one token. Values are never changed;
the tokenizer's `type` converts them on request.

>>> RowCodec(Tokenizer("words")).encode(["to be", "[1, 2]", None, 7], "row {}".format)
[['to', 'be'], [1, 2], [], [7]]

A deployed model has another codec, `data.tokens.front.Front`: cells to whole numbers, column by column, in a way that
an ONNX graph can repeat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.data.read.records import parse_json
from byheart.data.tokens.tokenizer import LISTS, Tokenizer, is_list
from byheart.data.values import is_missing, listed, plain
from byheart.data.wording import quote
from byheart.errors import DataError
from byheart.progress import SILENT, Progress

_TOKEN = "a token is a text, a finite number, a truth value or a list of numbers (or choose --token-type str)"
_STEP = 1000  # rows between two signs of progress
Place = Callable[[int], str]  # number of a row -> its place in the source, for messages


@dataclass(frozen=True)
class RowCodec:
    """Cells to tokens.

    Attributes:
        tokenizer: How texts are tokenized and values converted. Its length is not applied here.
    """

    tokenizer: Tokenizer

    def encode(self, cells: Sequence[Any], place: Place, progress: Progress = SILENT) -> list[list[Any]]:
        """Turn every cell, or list of cells, into tokens.

        Args:
            cells: One cell per row, or a list of them where a row has several columns.
            place: Returns the place of a row.
            progress: Where to show progress.

        Returns:
            The tokens of each row, not yet truncated; none where the cell is missing.

        Raises:
            DataError: A cell has no tokens; the message names its place.
        """
        found = []
        with progress.stage("tokenizing rows", total=len(cells)) as stage:
            for row, cell in enumerate(cells):
                try:
                    found.append(self._tokens(cell, place, row))
                except DataError as error:
                    named = str(error).startswith(place(row))
                    raise error if named else DataError(f"{place(row)}: {error}") from None
                if len(found) % _STEP == 0:
                    stage.advance(_STEP)
        return found

    def _tokens(self, cell: Any, place: Place, row: int) -> list[Any]:
        if isinstance(cell, str):
            return self._text(cell, place, row)
        if isinstance(cell, np.ndarray):
            cell = listed(cell)
        if isinstance(cell, list | tuple):
            return checked_tokens(self.tokenizer.typed(cell))
        return [] if is_missing(cell) else checked_tokens(self.tokenizer.typed([cell]))

    def _text(self, cell: str, place: Place, row: int) -> list[Any]:
        if is_list(cell):
            try:
                parsed = parse_json(cell, place(row))
            except DataError:
                if self.tokenizer.kind == LISTS:
                    raise
            else:
                return checked_tokens(self.tokenizer.typed(parsed))
        if self.tokenizer.kind == LISTS:
            raise DataError(f"{quote(cell)} is not a JSON list of tokens; choose --tokens characters or words")
        return self.tokenizer.whole(cell)


def checked_tokens(tokens: list[Any]) -> list[Any]:
    """A list of tokens, NumPy scalars as what they hold; a DataError names the first that is not a token."""
    if set(map(type, tokens)) <= {int, str, bool, type(None)}:
        return tokens
    found = [plain(token) for token in tokens]
    for position, token in enumerate(found):
        if not isinstance(token, str | bool) and not is_missing(token):
            numbers = token if isinstance(token, list | tuple) else [token]
            if not numbers or not all(map(_is_number, numbers)):
                raise DataError(f"token {position} is {quote(token)}; {_TOKEN}")
    return [None if is_missing(token) else token for token in found]


def _is_number(x: Any) -> bool:
    """A finite number, or NaN, which counts as missing."""
    return type(x) is int or (isinstance(x, int | float) and not isinstance(x, bool) and not math.isinf(x))
