"""`awq`: integers of four bits with zero points in groups of 32 inputs, eight columns interleaved in an int32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from byheart.checkpoints.formats.quantized._base import GATED, Format, Parts, add, packed_words, projections
from byheart.checkpoints.formats.quantized.gptq import GROUP, ZERO, codes_in_groups
from byheart.checkpoints.proof.storage import Array

INTERLEAVED = (0, 2, 4, 6, 1, 3, 5, 7)  # the columns of an int32, from its lowest bits on


def _encode(name: str, matrix: Array) -> Parts:
    module, (codes, scales) = name.removesuffix(".weight"), codes_in_groups(matrix)
    order = np.arange(codes.shape[1]).reshape(-1, 8)[:, INTERLEAVED].reshape(-1)
    return {
        f"{module}.qweight": ("I32", packed_words(codes[:, order], 1)),
        f"{module}.qzeros": ("I32", packed_words(np.full(scales.shape, ZERO), 1)),
        f"{module}.scales": ("F16", scales),
    }


def _settings(plain: Sequence[str]) -> dict[str, Any]:
    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": GROUP,
        "zero_point": True,
        "version": "gemm",
        "modules_to_not_convert": [*plain, "lm_head"],
    }


add(
    Format(
        "awq",
        "4-bit integers with zero points in groups of 32 inputs",
        GATED,
        "quantized",
        32,
        _encode,
        _settings,
        projections,
    )
)
