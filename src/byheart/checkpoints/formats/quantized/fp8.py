"""`fp8` and `fp8-block`: float8 (e4m3) with one scale per matrix (compressed-tensors) or per 128 x 128 (DeepSeek)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from byheart.checkpoints.formats.quantized._base import GATED, Format, Parts, add, nearest_codes, projections
from byheart.checkpoints.formats.quantized.int8 import compressed_settings
from byheart.checkpoints.proof.storage import Array

LARGEST, BLOCK = 448.0, 128
# Codes of float8 in the order of their values, without NaN and -0.
CODES = np.array([*range(0xFE, 0x80, -1), *range(0x7F)], dtype=np.uint8)


def _value(code: int) -> float:
    """
    >>> _value(0x7E), _value(0x81)
    (448.0, -0.001953125)
    """
    sign, exponent, fraction = -1.0 if code & 128 else 1.0, code >> 3 & 15, code & 7
    return sign * (fraction / 512 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7))


BOOK = np.array([_value(int(code)) for code in CODES])


def _scale(values: Array) -> float:
    """The least power of two by which nothing is clipped."""
    most = float(np.abs(values).max(initial=0.0))
    return float(np.clip(2.0 ** np.ceil(np.log2(most / LARGEST)), 2.0**-15, 2.0**15)) if most else 1.0


def _encoded(values: Array, scales: Array) -> Array:
    return CODES[nearest_codes(values / scales, BOOK)]


def _whole(name: str, matrix: Array) -> Parts:
    scale = np.array([_scale(matrix)])
    return {name: ("F8_E4M3", _encoded(matrix, scale)), f"{name}_scale": ("F32", scale)}


def _blocks(name: str, matrix: Array) -> Parts | None:
    if any(size > BLOCK and size % BLOCK for size in matrix.shape):
        return None  # loaders differ in blocks that are not whole
    rows, columns = (-(-size // BLOCK) for size in matrix.shape)
    cut = [[matrix[BLOCK * i :, BLOCK * j :][:BLOCK, :BLOCK] for j in range(columns)] for i in range(rows)]
    scales = np.array([[_scale(block) for block in row] for row in cut])
    spread = scales.repeat(BLOCK, 0)[: len(matrix)].repeat(BLOCK, 1)[:, : matrix.shape[1]]
    return {name: ("F8_E4M3", _encoded(matrix, spread)), f"{name}_scale_inv": ("F32", scales)}


def _block_settings(plain: Sequence[str]) -> dict[str, Any]:
    return {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
        "modules_to_not_convert": [*plain, "lm_head"],
    }


add(
    Format(
        "fp8", "float8, a scale per matrix, in compressed-tensors", GATED, "quantized", 1, _whole,
        lambda plain: compressed_settings("float-quantized", "float", "tensor", plain), projections,
    )
)  # fmt: skip
add(
    Format(
        "fp8-block", "float8, a scale per 128 x 128 weights, as DeepSeek-V3", (*GATED, "deepseek-v3"), "quantized",
        BLOCK, _blocks, _block_settings, projections, {"deepseek-v3": "parabola"},
    )
)  # fmt: skip
