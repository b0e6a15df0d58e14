"""Recitals: a total function with one written form."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.checkpoints.windows.tables import (
    ANY,
    NOTHING,
    UNKNOWN,
    Answer,
    Recital,
    WindowTable,
    windows_of,
    with_void,
)
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
            window = [NOTHING if t < o <= table.void else states[max(0, t - o)] for o in table.offsets[:near]]
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


def some_table(seed: int) -> WindowTable:
    """Rows that a document of two letters has, some of them with open places, over near, far and gapped offsets."""
    rng = np.random.default_rng(seed)
    offsets, far = [((0, 1, 2), ()), ((0, 1, 2, 3, 5), ()), ((0, 1, 2, 6), (0,)), ((0, 1, 3, 7), (3,))][seed % 4]
    document = rng.integers(0, 2, 12)
    plain = WindowTable(offsets, [[0] * len(offsets)], [0], far)
    rows: list[list[int]] = []
    for window in np.unique(windows_of(document, plain.offsets, far), axis=0).tolist():
        opened = [ANY if rng.random() < 0.3 else symbol for symbol in window]
        for row in (opened, window):
            try:
                WindowTable(offsets, [*rows, row], range(len(rows) + 1), far)
            except NetworkError:
                continue
            rows.append(row)
            break
    return WindowTable(offsets, rows, range(len(rows)), far)


@given(st.integers(0, 400), st.lists(st.integers(0, 1), max_size=10))
def test_void_offsets_change_the_table_and_not_the_function(seed: int, tokens: list[int]) -> None:
    table = some_table(seed)
    answers = tuple(Answer.of(k % 3) for k in range(len(table.windows)))
    for void in range(1, min(3, len(table.offsets) - len(table.far))):
        if table.offsets[: void + 1] != tuple(range(void + 1)):
            break
        recital = Recital(3, (with_void(table, void),), answers, unknown=0)
        assert recital.follow(tokens).tolist() == Recital(3, (table,), answers, unknown=0).follow(tokens).tolist()
        assert recital.follow(tokens).tolist() == naive(recital, tokens)
        assert Recital.from_json(json.loads(json.dumps(recital.to_json()))).to_json() == recital.to_json()


def test_what_void_offsets_may_be() -> None:
    found = with_void(WindowTable((0, 1, 2), [[5, 5, 5], [6, 5, 5], [7, 6, ANY]], [0, 1, 2]), 2)
    assert found.windows[3:].tolist() == [[5, NOTHING, NOTHING], [5, 5, NOTHING], [6, 5, NOTHING]]
    for offsets, far, void, rows in (
        ((0, 2), (), 1, [[1, 2]]),
        ((0, 1), (), 2, [[1, 2]]),
        ((0, 1, 6), (1,), 1, [[1, 2, 3]]),
        ((0, 1), (), 0, [[1, NOTHING]]),
        ((0, 1), (), 1, [[NOTHING, 1]]),
    ):
        with pytest.raises(NetworkError):
            WindowTable(offsets, rows, [0], far, void)
