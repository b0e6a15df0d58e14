"""Recitals: a total function with one written form."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.checkpoints.windows.tables import ANY, UNKNOWN, Answer, Recital, WindowTable
from byheart.errors import FileFormatError, NetworkError


def two_tables() -> Recital:
    first = WindowTable((0, 1), [[1, 0], [2, 1], [1, 2]], [1, 2, 3])
    second = WindowTable((0, 2), [[1, 0], [2, 1], [3, ANY]], [0, 1, 2])
    return Recital(4, (first, second), (Answer.of(2), Answer({1: 1, 3: 4}), Answer.of(0)), unknown=3)


def naive(recital: Recital, tokens: list[int]) -> list[int]:
    """The definition, one position at a time."""
    states = list(tokens)
    for depth, table in enumerate(recital.tables):
        last = depth == len(recital.tables) - 1
        fresh = []
        for t in range(len(states)):
            near = len(table.offsets) - len(table.far)
            window = [states[max(0, t - o)] for o in table.offsets[:near]]
            for offset, rest in zip(table.offsets[near:], table.far, strict=True):
                jump = offset - rest
                window.append(states[max(0, (t - jump if t >= jump else t) - rest)])
            rows = [
                int(output)
                for row, output in zip(table.windows.tolist(), table.outputs, strict=True)
                if all(r in (ANY, s) for r, s in zip(row, window, strict=True))
            ]
            assert len(rows) <= 1
            fresh.append(rows[0] if rows else UNKNOWN if last else 0)
        states = fresh
    return states


@given(st.lists(st.integers(0, 3), max_size=12))
def test_every_sequence_is_answered_as_the_definition_says(tokens: list[int]) -> None:
    recital = two_tables()
    assert recital.follow(tokens).tolist() == naive(recital, tokens)


def test_the_likeliest_token_is_recited() -> None:
    recital = two_tables()
    assert recital.span == 4
    assert recital.next_tokens([0, 1, 2]).tolist() == [3, 2, 3]
    assert recital.answer(UNKNOWN) == Answer.of(3)


def test_one_written_form() -> None:
    recital = two_tables()
    stored = json.loads(json.dumps(recital.to_json()))
    again = Recital.from_json(stored)
    assert again.to_json() == stored
    assert np.array_equal(again.follow([0, 1, 2, 1]), recital.follow([0, 1, 2, 1]))


@pytest.mark.parametrize(
    "damage",
    [
        {"vocabulary": 2},
        {"unknown": 9},
        {"answers": [2]},
        {"answers": [2, [[1, 0]], 0]},
        {"answers": [2, [[1, 2], [3, 8]], 0]},  # not in lowest terms
        {"tables": []},
        {"tables": [{"offsets": [0], "windows": [1, 1], "outputs": [0, 0]}]},
        {"tables": [{"offsets": [0], "windows": [1, True], "outputs": [0, 0]}]},
        {"tables": [{"offsets": [0, 1], "windows": [1], "outputs": [0]}]},
        {"more": 1},
    ],
)
def test_damage_is_refused(damage: dict) -> None:
    with pytest.raises(FileFormatError):
        Recital.from_json(two_tables().to_json() | damage)


def test_no_window_has_two_answers() -> None:
    with pytest.raises(NetworkError, match="match one window"):
        WindowTable((0, 1), [[1, ANY], [1, 2]], [0, 1])
    with pytest.raises(NetworkError, match="same window"):
        WindowTable((0, 1), [[1, 2], [1, 2]], [0, 1])
    WindowTable((0, 1, 2), [[1, ANY, ANY], [2, 1, ANY], [2, 2, 1]], [0, 1, 2])
