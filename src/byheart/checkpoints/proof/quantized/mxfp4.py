"""`mxfp4`, as gpt-oss stores its experts: 32 weights in e2m1, two per byte, share a power of two (e8m0)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.quantized._base import Packed, PackedWeight, QuantizationSettings, entry, scheme
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.tensors import TensorFile

BLOCK, BIAS = 32, 127
VALUES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
PLAIN = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]


def float4(codes: Array) -> Array:
    """Decode e2m1: a sign and one of eight values.

    >>> float4(np.array([0, 1, 7, 9, 15])).tolist()
    [0.0, 0.5, 6.0, -0.5, -6.0]
    """
    return np.where(codes & 8, -1.0, 1.0) * VALUES[codes & 7]


@scheme("mxfp4")
def read(settings: QuantizationSettings, files: TensorFile) -> Packed:
    """Read experts; they are stored (experts, out, in), and the usual tensors are (experts, in, out)."""
    settings.must("modules_to_not_convert", PLAIN)
    packed: Packed = {}
    for blocks in [name for name in files.entries if name.endswith("_blocks")]:
        name = blocks.removesuffix("_blocks")
        scale, shape = f"{name}_scales", entry(files, blocks, ("U8",), 4)
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            raise Undecided(f"{blocks} is not of experts of gpt-oss")
        if shape[3] != BLOCK // 2 or entry(files, scale, ("U8",), 3) != shape[:3]:
            raise Undecided(f"{scale} has the shape {files.entries[scale][1]}; {blocks} has {shape}")
        scales = partial(_scales, files, scale)
        size = (shape[0], BLOCK * shape[2], shape[1])
        packed[name] = PackedWeight(size, (blocks, scale), partial(_decode, files, blocks, scales), scales)
    return packed


def _scales(files: TensorFile, name: str) -> Array:
    return np.exp2(files.raw(name).astype(np.float64) - BIAS)


def _decode(files: TensorFile, name: str, scales: Callable[[], Array]) -> Array:
    raw = files.raw(name)
    codes = np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:3], BLOCK)
    whole = (float4(codes) * scales()[..., None]).reshape(*raw.shape[:2], -1)
    return np.ascontiguousarray(whole.transpose(0, 2, 1))
