"""The three float types of checkpoints: rounding to them, and their bytes in a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def rounded(array: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.float64]:
    """The nearest values that the type holds, ties to even.

    >>> rounded(np.array([1.01, 1 / 3]), "bfloat16").tolist()
    [1.0078125, 0.333984375]
    """
    if dtype == "bfloat16":
        return _bfloat16(array).astype(np.uint32).__lshift__(16).view(np.float32).astype(np.float64)
    return np.asarray(array.astype(dtype).astype(np.float64))


def _bfloat16(array: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """The upper half of the float32, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    return np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, dtype=np.uint16)


def tensor_bytes(array: npt.NDArray[Any], dtype: str) -> bytes:
    if dtype == "bfloat16":
        return _bfloat16(array).astype("<u2").tobytes()
    return np.ascontiguousarray(array).astype({"float32": "<f4", "float16": "<f2"}[dtype], copy=False).tobytes()
