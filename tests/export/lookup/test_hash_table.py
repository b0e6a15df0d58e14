"""The hashed table: reference hashes, every row found, the share of accepted unknown rows, and room per row."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.data.read.cells import CellType
from byheart.errors import OptionError
from byheart.export.lookup import hash_table
from byheart.export.lookup.hash_table import HashedTable, murmur3, row_hashes, table_bytes

TEXT, WHOLE, NUMBER, TRUTH = CellType.TEXT, CellType.WHOLE, CellType.NUMBER, CellType.TRUTH


def reference(data: bytes, seed: int) -> int:
    """MurmurHash3_x86_32 as its author wrote it, byte by byte."""

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> 32 - bits) & 0xFFFFFFFF

    def scrambled(word: int) -> int:
        return rotated(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF

    state, whole = seed, len(data) // 4 * 4
    for k in range(0, whole, 4):
        state = rotated(state ^ scrambled(int.from_bytes(data[k : k + 4], "little")), 13) * 5 + 0xE6546B64 & 0xFFFFFFFF
    state ^= scrambled(int.from_bytes(data[whole:], "little")) ^ len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ state >> shift) * factor & 0xFFFFFFFF
    return state ^ state >> 16


@settings(max_examples=60, deadline=None)
@given(cells=st.lists(st.binary(max_size=21), min_size=1, max_size=9), seed=st.integers(0, 255))
def test_hashes_equal_the_reference(cells, seed):
    assert murmur3(cells, seed).tolist() == [reference(cell, seed) for cell in cells]


def test_hashes_of_published_vectors():
    assert murmur3([b"", b"test", b"Hello, world!"], 0).tolist() == [0, 0xBA6BD213, 0xC0363E43]


def test_hashes_equal_those_of_onnx_runtime():
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    kinds = onnx.TensorProto
    texts = ["", "a", "abcd", "Zoë", "日本語テキスト", "x\0y", "z" * 1000]
    for kind, cells, type in (
        (kinds.STRING, np.array(texts, object), TEXT),
        (kinds.INT64, np.array([0, -1, 2**62, -(2**63)]), WHOLE),
        (kinds.DOUBLE, np.array([0.0, -1.5, 1e300, np.nan]), NUMBER),
    ):
        node = onnx.helper.make_node("MurmurHash3", ["x"], ["y"], domain="com.microsoft", seed=9, positive=1)
        ends = [onnx.helper.make_tensor_value_info(name, k, ["n"]) for name, k in (("x", kind), ("y", kinds.UINT32))]
        opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.microsoft", 1)]
        graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:])
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
        found = runtime.InferenceSession(model.SerializeToString()).run(None, {"x": cells})[0]
        assert row_hashes([cells.tolist()], [type], 9)[:, 0].tolist() == found.tolist()


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.text(max_size=9), st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1), st.booleans()),
        min_size=1, max_size=60, unique_by=lambda row: (row[0], row[1] + 0.0, row[2], row[3]),
    ),
    count=st.integers(1, 9),
    bits=st.integers(0, 30),
)  # fmt: skip
def test_every_row_is_found(rows, count, bits):
    rows = [row for row in rows if not any("\ud800" <= c <= "\udfff" for c in row[0])] or [("a", 0.0, 0, True)]
    classes = np.arange(len(rows)) % count
    columns = [list(cells) for cells in zip(*rows, strict=True)]
    types = [TEXT, NUMBER, WHOLE, TRUTH]
    table = HashedTable.of(columns, types, classes, count=count, check_bits=bits)
    assert (table.classes(columns, types) == classes).all()


def test_equal_rows_are_stored_once_and_equal_numbers_have_one_hash():
    columns, types = [[0.0, -0.0, None, float("nan")]], [NUMBER]
    table = HashedTable.of(columns, types, np.array([0, 0, 1, 1]), count=2, check_bits=20)
    assert table.classes([[-0.0, None]], types).tolist() == [0, 1]


@pytest.mark.parametrize("bits", [0, 2, 5, 8])
def test_an_unknown_row_is_accepted_once_in_two_to_the_bits(bits):
    names = random.Random(0).sample(range(10**9), 63_000)
    known, unknown = [f"k{n}" for n in names[:3000]], [f"u{n}" for n in names[3000:]]
    table = HashedTable.of([known], [TEXT], np.arange(3000) % 64, count=64, check_bits=bits)
    accepted = int((table.classes([unknown], [TEXT]) >= 0).sum())
    expected = 60_000 / 2**bits
    assert abs(accepted - expected) <= 5 * (expected * (1 - 2.0**-bits)) ** 0.5


def test_room_per_row():
    """At most 1.3 slots per row from a thousand rows on, 1.13 from forty thousand."""
    for rows, most in ((1000, 1.35), (40_000, 1.15)):
        cells = [[f"{k:x}" for k in range(rows)]]
        table = HashedTable.of(cells, [TEXT], np.arange(rows) % 64, count=64, check_bits=0)
        assert len(table.packed) <= most * rows * 6 / 8 + 8
        assert table_bytes(rows, 64, 0) == pytest.approx(len(table.packed), rel=0.1)


def test_too_many_bits_are_refused():
    with pytest.raises(OptionError, match="has 0 to 30"):
        HashedTable.of([["a"]], [TEXT], np.array([0]), count=2, check_bits=31)


def test_rows_of_one_hash_but_two_classes_get_another_seed(monkeypatch):
    """The first seed gives the first two rows one hash."""

    def colliding(columns, types, seed):
        found = row_hashes(columns, types, seed)
        if seed == 0:
            found[1] = found[0]
        return found

    monkeypatch.setattr(hash_table, "row_hashes", colliding)
    cells = [[f"{k}" for k in range(50)]]
    table = HashedTable.of(cells, [TEXT], np.arange(50) % 2, count=2, check_bits=0)
    assert table.seed > 0 and (table.classes(cells, [TEXT]) == np.arange(50) % 2).all()
