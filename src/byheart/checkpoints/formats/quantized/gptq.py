"""`gptq`: symmetric integers of four bits in groups of 32 inputs, in the first version of the format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from byheart.checkpoints.formats.quantized._base import (
    GATED,
    Format,
    Parts,
    add,
    coded,
    packed_words,
    projections,
    scales_of,
)
from byheart.checkpoints.proof.storage import Array

GROUP, ZERO = 32, 8


def codes_in_groups(matrix: Array) -> tuple[Array, Array]:
    """Return codes (inputs, rows) from 0 to 15 around ZERO, and scales (groups, rows)."""
    groups = matrix.reshape(-1, GROUP)
    scales = scales_of(groups, 7, 8)
    codes = coded(groups, scales, 7, 8) + ZERO
    return codes.reshape(matrix.shape).T.astype(np.int64), np.ascontiguousarray(scales.reshape(len(matrix), -1).T)


def _encode(name: str, matrix: Array) -> Parts:
    module, (codes, scales) = name.removesuffix(".weight"), codes_in_groups(matrix)
    zeros = np.full(scales.shape, ZERO - 1)  # the first version of the format stores one less
    owners = np.arange(len(codes), dtype=np.int32) // GROUP
    return {
        f"{module}.qweight": ("I32", packed_words(codes, 0)),
        f"{module}.qzeros": ("I32", packed_words(zeros, 1)),
        f"{module}.scales": ("F16", scales),
        f"{module}.g_idx": ("I32", owners.astype(np.int32)),
    }


def _settings(plain: Sequence[str]) -> dict[str, Any]:
    return {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": GROUP,
        "desc_act": False,
        "sym": True,
        "lm_head": False,
        "checkpoint_format": "gptq",
    }


add(Format("gptq", "4-bit integers in groups of 32 inputs", GATED, "quantized", 32, _encode, _settings, projections))
