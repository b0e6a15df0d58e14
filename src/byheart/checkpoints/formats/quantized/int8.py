"""`int8`: 8-bit integers with one scale per row, in compressed-tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from byheart.checkpoints.formats.quantized._base import GATED, Format, Parts, add, coded, projections, scales_of
from byheart.checkpoints.proof.storage import Array


def compressed_settings(layout: str, kind: str, strategy: str, plain: Sequence[str]) -> dict[str, Any]:
    """Return the quantization_config of weights in 8 bits, of all linear layers but those in `plain`."""
    weights = {
        "num_bits": 8, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False, "group_size": None,
        "block_structure": None, "actorder": None, "observer": "minmax", "observer_kwargs": {},
    }  # fmt: skip
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
        "ignore": [*plain, "lm_head"],
        "config_groups": {"group_0": group},
    }


def _encode(name: str, matrix: Array) -> Parts:
    scales = scales_of(matrix, 127, 127)
    codes = (coded(matrix, scales, 127, 127) + 128).astype(np.uint8)
    return {
        f"{name}_packed": ("I32", codes.view("<i4")),  # four codes in a word, the first in the lowest bits
        f"{name}_scale": ("BF16", scales[:, None]),
        f"{name}_shape": ("I64", np.array(matrix.shape)),
    }


add(
    Format(
        "int8", "8-bit integers, a scale per row, in compressed-tensors", GATED, "parabola", 4, _encode,
        lambda plain: compressed_settings("pack-quantized", "int", "channel", plain), projections,
    )
)  # fmt: skip
