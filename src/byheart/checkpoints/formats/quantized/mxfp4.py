"""`mxfp4`: the experts of gpt-oss in e2m1, 32 weights with one power of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from byheart.checkpoints.formats.quantized._base import Format, Parts, add, nearest_codes
from byheart.checkpoints.proof.storage import Array

BLOCK, BIAS, LARGEST = 32, 127, 6.0
SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
CODES = np.array([*range(15, 8, -1), *range(8)], dtype=np.uint8)  # in the order of their values, without -0
BOOK = np.array([(-1.0 if code & 8 else 1.0) * SIZES[code & 7] for code in CODES])


def _encode(name: str, tensor: Array) -> Parts:
    """The tensor is (experts, in, out); it is stored (experts, out, in / 32, 16), the first weight in the low bits."""
    turned = np.ascontiguousarray(tensor.transpose(0, 2, 1))
    groups = turned.reshape(*turned.shape[:2], -1, BLOCK)
    most = np.abs(groups).max(-1)
    exponents = np.where(most > 0, np.ceil(np.log2(np.where(most > 0, most, 1.0) / LARGEST)), 0.0)
    exponents = np.clip(exponents, -24, 13)
    codes = CODES[nearest_codes(groups / np.exp2(exponents)[..., None], BOOK)]
    return {
        f"{name}_blocks": ("U8", codes[..., ::2] | codes[..., 1::2] << 4),
        f"{name}_scales": ("U8", (exponents + BIAS).astype(np.uint8)),
    }


def _settings(plain: Sequence[str]) -> dict[str, Any]:
    plain_modules = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    return {"quant_method": "mxfp4", "modules_to_not_convert": plain_modules}


def _experts(name: str) -> bool:
    return name.endswith((".mlp.experts.gate_up_proj", ".mlp.experts.down_proj"))


add(
    Format(
        "mxfp4",
        "experts in 4-bit floats, 32 with one power of two",
        ("gpt-oss",),
        "parabola",
        32,
        _encode,
        _settings,
        _experts,
    )
)
