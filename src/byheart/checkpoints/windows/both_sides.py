"""A text as the function of an encoder: a token follows from its neighbours on both sides.

A `Recital` looks back only. Here its one table reads a text that is shifted by `ahead` places: the state at place
t + ahead decides the token at place t, and the table omits its own place `ahead`, which is the token itself.
Beyond both ends of an input the neighbour is its first token, BOS:

    neighbour(t, o) = ids[t + o]  if 0 <= t + o < n  else  ids[0]            o = -ahead..ahead without 0

    >>> text = both_sides([(1, 5, 6, 7, 2)], vocabulary=8, unknown=0)
    >>> text.ahead, text.tokens((1, 5, 6, 7, 2)), text.tokens((1, 5, 6, 3, 2))
    (2, (0, 5, 6, 7, 0), (0, 0, 0, 7, 0))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.windows.tables import Answer, Recital, WindowTable, windows_of
from byheart.errors import DataError

NEAREST, FARTHEST = 2, 5  # neighbours on each side: at least, and at most


@dataclass(frozen=True, eq=False)
class BothSides:
    """The table, as a recital over texts that are extended by `ahead` tokens."""

    recital: Recital

    @property
    def ahead(self) -> int:
        return self.recital.tables[0].offsets[-1] // 2

    @property
    def offsets(self) -> tuple[int, ...]:
        """The neighbours' places relative to the token, in the order of the table's places."""
        return tuple(self.ahead - offset for offset in self.recital.tables[0].offsets)

    def tokens(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The token that follows from the neighbours of every place."""
        found = self.recital.next_tokens([*ids, *[ids[0]] * self.ahead])
        return tuple(int(t) for t in found[self.ahead :])


def both_sides(documents: Sequence[Sequence[int]], vocabulary: int, unknown: int) -> BothSides:
    """Return the table of the fewest neighbours that decide every token of the documents.

    Args:
        documents: Token ids with BOS at the start and EOS at the end, which are not decided themselves.
        vocabulary: How many tokens there are.
        unknown: The answer to neighbours of no document.

    Raises:
        DataError: Two places have the same neighbours but different tokens.
    """
    for ahead in range(NEAREST, FARTHEST + 1):
        offsets = tuple(k for k in range(2 * ahead + 1) if k != ahead)
        known: dict[tuple[int, ...], tuple[int, tuple[int, int]]] = {}
        clash = None
        for number, ids in enumerate(documents):
            seen = windows_of(np.array([*ids, *[ids[0]] * ahead]), offsets)[ahead:]
            for place in range(1, len(ids) - 1):
                window = tuple(seen[place].tolist())
                token, where = known.setdefault(window, (int(ids[place]), (number, place)))
                if token != ids[place]:
                    clash = (where, (number, place))
        if clash is None:
            tokens = sorted({token for token, _ in known.values()})
            outputs = [tokens.index(token) for token, _ in known.values()]
            table = WindowTable(offsets, list(known), outputs)
            return BothSides(Recital(vocabulary, (table,), tuple(map(Answer.of, tokens)), unknown))
    places = " and ".join(f"document {number}, position {place}" for number, place in clash or ())
    raise DataError(
        f"{FARTHEST} neighbours on each side do not decide the token: {places} have the same neighbours but different "
        "tokens; change one of the passages, or tokenize into longer tokens (--tokens bpe:400)"
    )
