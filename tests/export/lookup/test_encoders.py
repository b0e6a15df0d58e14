"""Whole numbers in the attributes of an encoder: the smaller form, and its bytes as they are estimated."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.export.lookup.encoders import list_bytes, tensor_bytes, text_bytes, whole_bytes, whole_list, whole_values
from byheart.export.targets.onnx import Graph

pytest.importorskip("onnx", reason="needs byheart[onnx]")

NUMBERS = {
    "few": np.arange(5),
    "classes": np.arange(500) % 60,
    "long": np.arange(300) * 10**9,
    "negative": -np.arange(1, 300) * 10**15,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_estimates_are_within_the_headers_of_an_attribute(name):
    graph, numbers = Graph("float64"), NUMBERS[name].astype(np.int64)
    written = whole_list(graph, "values", numbers)
    header = len("values_tensor") + 4
    assert abs(written.ByteSize() - header - whole_bytes(numbers)) <= 12
    assert whole_bytes(numbers) == min(list_bytes(numbers), tensor_bytes(numbers))


def test_long_lists_are_tensors_and_their_default_too():
    graph = Graph("float64")
    names = [part.name for part in whole_values(graph, NUMBERS["classes"].astype(np.int64), 7)]
    assert names == ["values_tensor", "default_tensor"]
    assert [part.name for part in whole_values(graph, np.arange(5), 7)] == ["values_int64s", "default_int64"]


def test_bytes_of_texts():
    assert text_bytes(["", "é", "x" * 128]) == 2 + 4 + 131
