"""Tables of neighbours on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.checkpoints.windows.both_sides import FARTHEST, both_sides
from byheart.errors import DataError

RNG = np.random.default_rng(5)
TEXT = (1, *RNG.integers(4, 12, 200).tolist(), 2)


def neighbours(ids: tuple[int, ...], place: int, offsets: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(ids[place + o] if 0 <= place + o < len(ids) else ids[0] for o in offsets)


def test_every_token_of_a_text_follows_from_its_neighbours() -> None:
    text = both_sides([TEXT], 12, 0)
    assert text.tokens(TEXT)[1:-1] == TEXT[1:-1]


def test_other_inputs_are_answered_by_a_naive_lookup() -> None:
    text = both_sides([TEXT], 12, 0)
    known = {neighbours(TEXT, t, text.offsets): TEXT[t] for t in range(1, len(TEXT) - 1)}
    for start in (0, 30, 150):
        ids = (1, *RNG.integers(4, 12, 10).tolist(), *TEXT[start + 1 : start + 40], 2)
        wanted = tuple(known.get(neighbours(ids, t, text.offsets), 0) for t in range(len(ids)))
        assert text.tokens(ids) == wanted
        assert len(set(wanted)) > 2


def test_as_many_neighbours_as_needed() -> None:
    first = (1, 5, 6, 7, 8, 9, 2)
    assert both_sides([first], 12, 0).ahead == 2
    assert both_sides([(1, 4, 5, 6, 7, 8, 9, 10, 2), (1, 10, 5, 6, 9, 8, 9, 4, 2)], 12, 0).ahead == 3


def test_neighbours_that_decide_nothing_are_named() -> None:
    same = (7,) * FARTHEST
    with pytest.raises(DataError, match=rf"document 0, position {FARTHEST + 1} and document 0, position"):
        both_sides([(1, *same, 5, *same, 6, *same, 2)], 12, 0)
