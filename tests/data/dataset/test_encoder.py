"""Sequences to inputs and back, in every shape that users have."""

from __future__ import annotations

import enum
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.data import load
from byheart.data.dataset.encoder import Encoder
from byheart.data.dataset.sequences import read_tokens
from byheart.data.task import Task
from byheart.errors import DataError, FileFormatError, UnknownSymbolError
from byheart.exact.number import dyadic, from_float
from byheart.ir.network import Inputs


def vectors(inputs: Inputs) -> list[list[tuple[Fraction, ...] | None]]:
    return [[inputs.points.row(i) if i >= 0 else None for i in row] for row in inputs.index.tolist()]


def encoder(sequences: Any, task: Task = Task.NEXT_TOKEN, positions: bool = False) -> Encoder:
    return Encoder.fit(read_tokens(sequences), task, positions)


@pytest.mark.parametrize("task", [Task.NEXT_TOKEN, Task.SEQ_TO_SEQ])
def test_short_rows_are_padded_on_the_left(task: Task) -> None:
    rows = ["abc", "b"]
    assert vectors(encoder(rows, task).encode(rows)) == [[(1,), (2,), (3,)], [(0,), (0,), (2,)]]
    assert vectors(encoder(rows, task, True).encode(rows))[1] == [(0, 0), (0, 1), (2, 2)]


@pytest.mark.parametrize("task", [Task.SET, Task.CAUSAL])
def test_sets_and_prefixes_are_not_padded(task: Task) -> None:
    rows = ["abc", "b"]
    made = encoder(rows, task)
    assert vectors(made.encode(rows)) == [[(1,), (2,), (3,)], [(2,), None, None]]
    assert not made.padded


def test_ints_come_before_texts() -> None:
    assert encoder([[10, "b", "10", -3, 9]]).symbols == (-3, 9, 10, "10", "b")


SAME_ROWS: list[Any] = [
    [[1, 2], [3, 1]],
    ((1, 2), (3, 1)),
    np.array([[1, 2], [3, 1]]),
    np.array([[1, 2], [3, 1]], dtype=np.uint8),
    [np.array([1, 2]), [3, 1]],
    [[np.int32(1), 2], [3, np.uint64(1)]],
    (row for row in ([1, 2], [3, 1])),
    [b"\x01\x02", [3, 1]],
    [range(1, 3), [3, 1]],
    [iter([1, 2]), [3, 1]],
    np.array([[1, 2], [3, 1]], dtype=object),
    [[enum.IntEnum("E", {"one": 1}).one, 2], [3, 1]],
]


@pytest.mark.parametrize("sequences", SAME_ROWS, ids=range(len(SAME_ROWS)))
def test_containers_do_not_matter(sequences: Any) -> None:
    tokens = read_tokens(sequences)
    assert tokens.symbols == (1, 2, 3)
    assert tokens.ids.tolist() == [0, 1, 2, 0]
    assert all(type(symbol) is int for symbol in tokens.symbols)


SAME_VECTORS: list[Any] = [
    [[[0.5, 1.0]], [[0.0, 3.0]]],
    [[(0.5, 1)], [(-0.0, 3)]],
    np.array([[[0.5, 1]], [[0, 3]]]),
    np.array([[[0.5, 1]], [[0, 3]]], dtype=np.float16),
    np.array([[[0.5, 1]], [[0, 3]]], dtype=np.longdouble),
    [[np.array([0.5, 1.0])], [np.array([0, 3])]],
    [[[dyadic(1, -1), 1]], [[0, Fraction(3)]]],
    [[[np.float32(0.5), np.int8(1)]], [[np.longdouble(0), 3]]],
]


@pytest.mark.parametrize("sequences", SAME_VECTORS, ids=range(len(SAME_VECTORS)))
def test_vectors_of_every_kind(sequences: Any) -> None:
    made = encoder([[[0.5, 1.0]], [[0.0, 3.0]]])
    assert (made.symbols, made.dimension, made.input_width) == (None, 2, 2)
    assert vectors(made.encode(sequences)) == [[(Fraction(1, 2), 1)], [(0, 3)]]


def test_lone_floats_are_vectors_of_dimension_one() -> None:
    made = encoder([[0.1, 2]])
    assert made.symbols is None and made.dimension == 1
    assert vectors(made.encode([[2, 0.1]])) == [[(2,), (Fraction(0.1),)]]
    assert vectors(made.encode(np.array([[2, 7]]))) == [[(2,), (7,)]]


@given(st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2), min_size=1))
def test_floats_are_taken_exactly(rows: list[list[float]]) -> None:
    for positions in (False, True):
        inputs = encoder([rows], positions=positions).encode([rows])
        found = [vector[:2] for vector in vectors(inputs)[0] if vector is not None]
        assert found == [tuple(map(Fraction, row)) for row in rows]


def test_numbers_beyond_floats() -> None:
    big = 2**53 + 1
    made = encoder([[[big, 0.5]], [[float(2**53), 0.5]]])
    assert vectors(made.encode([[[big, 0.5]]])) == [[(big, Fraction(1, 2))]]
    assert vectors(made.encode(np.array([[[big, 1]]]))) == [[(big, 1)]]
    symbols = encoder([[10**5000, -1], [2**64, 7]])
    assert symbols.symbols == (-1, 7, 2**64, 10**5000)
    with pytest.raises(UnknownSymbolError, match="0x"):
        symbols.encode([[10**5000 + 1, -1]])
    assert read_tokens(np.array([[2**63]], dtype=np.uint64)).symbols == (2**63,)


def test_padding_vector_is_none_of_the_data() -> None:
    for rows in ([[[0.75, 2.0]], [[1.0, 4.0], [0.0, 0.0]]], [[[0.0]], [[0.0], [1e-300]]], [[[-8.0]], [[8.0], [3.0]]]):
        made = encoder(rows)
        assert made.pad_vector is not None
        inputs = made.encode(rows)
        assert vectors(inputs)[0][0] == tuple(Fraction(x) for x in (float(y) for y in made.pad_vector))
        with pytest.raises(UnknownSymbolError, match="pads short rows"):
            made.encode([[made.pad_vector, made.pad_vector]])
        assert made.encode_known([[made.pad_vector]])[1].tolist() == [False]


@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("rows", [["ab", "c"], [[1, "x"]], [[[0.5, 1.0]], [[2.0, 0.0], [0.5, 1.0]]], [[2**70]]])
def test_files_and_decoding_give_back_everything(task: Task, positions: bool, rows: list[Any]) -> None:
    labels = [[0] * len(row) for row in rows] if task.labels_per_token else [0] * len(rows)
    data = load(rows, labels, task=task, positions=positions)
    made = data.encoder
    assert Encoder.from_dict(json.loads(json.dumps(made.as_dict()))) == made
    found = data.sequences()
    assert found == [[tuple(map(from_float, t)) if isinstance(t, list) else t for t in row] for row in rows]
    assert np.array_equal(made.encode(found).index, data.inputs.index)


GOOD = encoder([["a", 3], ["b"]]).as_dict()
VECTORS = encoder([[[0.5], [1.0]], [[0.5]]]).as_dict()
DAMAGE: list[tuple[dict[str, Any], str]] = [
    ({"task": "nap"}, "task"),
    ({"task": ["set"]}, "task"),
    ({"positions": 1}, "positions"),
    ({"positions": True, "task": "set", "padded": False}, "positions"),
    ({"length": 0}, "length"),
    ({"length": True}, "length"),
    ({"length": 10**30}, "length"),
    ({"symbols": ["b", "a"]}, "symbols"),
    ({"symbols": ["a", "a"]}, "symbols"),
    ({"symbols": []}, "symbols"),
    ({"symbols": "ab"}, "symbols"),
    ({"symbols": [1.5]}, r"symbols\[0\]"),
    ({"symbols": [{"integer": "0x12"}]}, r"symbols\[0\]"),
    ({"symbols": [{"integer": 5}]}, r"symbols\[0\]"),
    ({"symbols": [2**70]}, r"symbols\[0\]"),
    ({"dimension": 2}, "dimension"),
    ({"padded": None}, "padded"),
    ({"task": "causal"}, "padded"),
    ({"pad_vector": [[1, 0]]}, "pad_vector"),
    ({**VECTORS, "pad_vector": None}, "pad_vector"),
    ({**VECTORS, "pad_vector": [[1, 0], [1, 0]]}, "pad_vector"),
    ({**VECTORS, "pad_vector": [[1, 10**12]]}, "pad_vector"),
    ({**VECTORS, "pad_vector": [[2, -1]]}, "pad_vector"),
    ({**VECTORS, "pad_vector": [["0xg", 0]]}, "pad_vector"),
    ({"extra": 1}, "encoder"),
]


@pytest.mark.parametrize(("change", "field"), DAMAGE)
def test_damaged_files_are_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(FileFormatError, match=field):
        Encoder.from_dict({**GOOD, **change})


def test_foreign_values_are_no_encoder() -> None:
    for value in (None, [], {}, {k: v for k, v in GOOD.items() if k != "task"}):
        with pytest.raises(FileFormatError):
            Encoder.from_dict(value)


BAD: list[tuple[Any, type[DataError], str]] = [
    (["abc", "xb", "ab?"], UnknownSymbolError, r"row 1, position 0: token 'x' was never memorized"),
    (["abcabc"], DataError, r"row 0 has 6 tokens, but no memorized row has more than 3"),
    (["abc", ""], DataError, r"row 1 is empty"),
    ([[1.5, 2.5]], UnknownSymbolError, "token 1.5 was never memorized"),
    ("abc", DataError, r"put it into a list"),
    (7, DataError, r"give a list of sequences"),
    (["abc", 7], DataError, r"row 1 is 7 \(int\), not a sequence"),
    ([{"a": 1}], DataError, r"row 0 is .* \(dict\)"),
    ([{"a"}], DataError, r"row 0 is .* \(set\)"),
    ([["a"], ["a", True]], UnknownSymbolError, "row 1, position 1: token True was never memorized"),
    (np.array([[True]]), UnknownSymbolError, "row 0, position 0: token True"),
    ([["a", None]], UnknownSymbolError, "row 0, position 1: token None"),
    ([["a", {}]], DataError, r"row 0, position 1"),
    ([["a", 0.5]], UnknownSymbolError, "row 0, position 1: token 0.5 was never memorized"),
    ([["a", [1]]], DataError, r"row 0, position 0: 'a' is a lone value among vectors"),
]


@pytest.mark.parametrize(("sequences", "kind", "message"), BAD, ids=range(len(BAD)))
def test_bad_symbols_are_named(sequences: Any, kind: type[DataError], message: str) -> None:
    with pytest.raises(kind, match=message):
        encoder(["abc", "b"]).encode(sequences)


BAD_VECTORS: list[tuple[Any, str]] = [
    ([[[1.0, float("nan")]]], "row 0, position 0, coordinate 1: nan is not a finite number"),
    ([[[1.0, 2.0], [float("inf"), 0.0]]], "row 0, position 1, coordinate 0: inf"),
    (np.array([[[1, 2]], [[np.nan, 1]]]), "row 1, position 0, coordinate 0: nan"),
    ([[[1.0, 2.0], [1.0]]], "row 0, position 1: a vector of 1 numbers, but row 0, position 0 has 2"),
    ([[[1.0]]], "dimension 1, but dimension 2 was memorized"),
    ([[[]]], "row 0, position 0: the vector is empty"),
    ([[[1, "2"]]], r"row 0, position 0, coordinate 1: '2' \(str\) is not a number"),
    ([[[1, True]]], r"coordinate 1: True \(bool\) is not a number"),
    ([[[1, Fraction(1, 3)]]], r"coordinate 1: 1/3 is not a dyadic rational"),
    ([[[1, 2**80], [float("nan"), 1]]], "row 0, position 1, coordinate 0: nan"),
    ([[[np.longdouble("nan"), 1]]], "coordinate 0: nan"),
    (["ab"], "the tokens are symbols, but vectors of dimension 2 were memorized"),
    ([[[[1, 2], [3, 4]]]], r"coordinate 0: \[1, 2\] \(list\) is not a number"),
]


@pytest.mark.parametrize(("sequences", "message"), BAD_VECTORS, ids=range(len(BAD_VECTORS)))
def test_bad_vectors_are_named(sequences: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        encoder([[[0.5, 1.0], [2.0, 3.0]], [[1.0, 1.0]]]).encode(sequences)


def test_rows_of_another_length() -> None:
    with pytest.raises(DataError, match="row 0 has 1 tokens, but every memorized row has 2"):
        encoder(["ab"]).encode(["a"])


@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize("positions", [True, False])
def test_unknown_rows_are_told_apart(task: Task, positions: bool) -> None:
    made = encoder(["abc", "b"], task, positions)
    inputs, known = made.encode_known(["ab", "xyz", "abca", "", "c"])
    assert known.tolist() == [True, False, False, False, True]
    assert vectors(inputs)[0] == vectors(made.encode(["ab"]))[0]
    assert vectors(inputs)[4] == vectors(made.encode(["c"]))[0]
    nothing, none = made.encode_known(["x", "y"])
    assert none.tolist() == [False, False]
    for found in (inputs, nothing):
        assert (found.index.max(axis=1) >= 0).all() and found.points.width == made.input_width
        assert int(found.index.max()) < found.points.count


def test_unknown_vectors_stay_askable() -> None:
    made = encoder([[[0.5, 1.0]]])
    inputs, known = made.encode_known([[[9.0, 9.0]], []])
    assert known.tolist() == [True, False] and vectors(inputs)[0] == [(9, 9)]
    assert made.encode_known([[]])[1].tolist() == [False]


def test_no_rows_at_all() -> None:
    for made in (encoder(["ab"]), encoder([[0.5]])):
        assert made.encode([]).index.shape == (0, made.length)
        assert made.encode_known([])[1].shape == (0,)


def test_points_are_shared() -> None:
    inputs = encoder([[7, 7, 7], [7, 8, 7]]).encode([[7, 7, 7], [7, 8, 7]])
    assert inputs.points.count == 2 and inputs.index.tolist() == [[0, 0, 0], [0, 1, 0]]


def test_python_sets_are_rows_of_the_set_task() -> None:
    data = load([{"a", "b"}, frozenset("c")], [0, 1], task="set")
    assert data.sequences() == [["a", "b"], ["c"]]
    assert data.encoder.encode([{"b", "a"}]).index.tolist() == [[0, 1]]
