"""Exact matrices as dense float arrays, without ever rounding.

>>> dense(Matrix.of([{1: 3}], 2), "float64")
array([[0., 3.]])
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import ExportError
from byheart.exact import Number, as_fraction
from byheart.ir.layers import Embedding, Matrix

Array = npt.NDArray[Any]
DTYPES: dict[str, type[Any]] = {"float64": np.float64, "float32": np.float32}


def number(value: Number, dtype: str) -> float:
    """The float equal to `value`; an ExportError when there is none."""
    try:
        found = float(np.array(float(value), dtype=DTYPES[dtype])[()])
    except OverflowError:
        found = np.inf
    if not np.isfinite(found) or Fraction(found) != as_fraction(value):
        raise ExportError(f"the weight {_short(value)} is no {dtype} number")
    return found


def _short(value: Number) -> str:
    text = str(value)
    return text if len(text) < 40 else f"{text[:30]}… ({len(text)} digits)"


def dense(matrix: Matrix, dtype: str) -> Array:
    """The matrix with its zeros."""
    out = np.zeros(matrix.shape, dtype=DTYPES[dtype])
    for i, row in enumerate(matrix.rows):
        for j, weight in row:
            out[i, j] = number(weight, dtype)
    return out


def place_stride(layer: Embedding) -> int:
    """How many rows of the table lie between two places; 0 when the place does not matter."""
    if layer.strides[0] != 1 or len(layer.strides) > 2:
        raise ExportError(f"an embedding with strides {layer.strides} has no exported form; use construction native")
    return layer.strides[1] if len(layer.strides) > 1 else 0


def vector(values: Iterable[Number], dtype: str) -> Array:
    return np.array([number(v, dtype) for v in values], dtype=DTYPES[dtype])
