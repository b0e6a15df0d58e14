"""Forms over named numbers, and the layers that are assembled from them."""

from __future__ import annotations

import pytest

from byheart.build.shared.wires import WireBlock, affine, residual, wire, wires
from byheart.errors import NetworkError


def test_forms_add_up():
    form = 2 * wire("x") - (wire("y") - 1) * 3 + wire("x")
    assert form.terms == {"x": 3, "y": -3} and form.constant == 3
    assert (form - form).is_zero and not form.is_zero


def test_what_a_layer_cannot_be():
    with pytest.raises(NetworkError, match="unit a reads z, which is not one of x, y"):
        affine(("x", "y"), {"a": wire("z")}, relu=True)
    with pytest.raises(NetworkError, match="no constants"):
        affine(("x",), {"a": wire("x") + 1}, relu=False, bias=False)
    assert affine(("x",), wires("x"), relu=False, bias=False).bias is None


def test_an_empty_block_does_nothing():
    layer = residual(("x", "y"), WireBlock())
    assert layer.weight1.dense() == [[0, 0]] and layer.weight2.dense() == [[0], [0]] and layer.bias2 == (0, 0)
