"""`nf4`, of bitsandbytes: only matrices whose blocks of 64 weights are -a, 0 and a; the others stay as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from byheart.checkpoints.formats.quantized._base import GATED, Format, Parts, add, projections
from byheart.checkpoints.proof.storage import Array

BLOCK, MINUS, ZERO, PLUS = 64, 0, 7, 15
BOOK = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def _encode(name: str, matrix: Array) -> Parts | None:
    blocks = matrix.reshape(-1, BLOCK)
    most = np.abs(blocks).max(1, keepdims=True)
    signs = np.sign(blocks)
    if (signs * most != blocks).any() or (np.float16(most) != most).any():
        return None
    codes = np.where(signs < 0, MINUS, np.where(signs > 0, PLUS, ZERO)).astype(np.uint8).reshape(-1, 2)
    state = {"quant_type": "nf4", "blocksize": BLOCK, "dtype": "bfloat16", "shape": list(matrix.shape)}
    return {
        name: ("U8", codes[:, :1] << 4 | codes[:, 1:]),
        f"{name}.absmax": ("F32", np.where(most > 0, most, 1.0)[:, 0]),
        f"{name}.quant_map": ("F32", np.array(BOOK)),
        f"{name}.quant_state.bitsandbytes__nf4": ("U8", np.frombuffer(json.dumps(state).encode(), dtype=np.uint8)),
    }


def _settings(plain: Sequence[str]) -> dict[str, Any]:
    return {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "load_in_8bit": False,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": False,
        "bnb_4bit_compute_dtype": "float32",
        "bnb_4bit_quant_storage": "uint8",
        "llm_int8_skip_modules": [*plain, "lm_head"],
        "llm_int8_threshold": 6.0,
        "llm_int8_enable_fp32_cpu_offload": False,
        "llm_int8_has_fp16_weight": False,
    }


add(
    Format(
        "nf4",
        "bitsandbytes, matrices of which the grid holds every weight",
        GATED,
        "quantized",
        64,
        _encode,
        _settings,
        projections,
    )
)
