"""`bitsandbytes` in 4 bits (nf4): 64 weights share their largest size; codes name quantiles of a normal distribution.

Of the 16 values only -1, 0 and 1 are representable in 16 bits, so the proof reads matrices whose blocks have no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.quantized._base import (
    Packed,
    PackedWeight,
    QuantizationSettings,
    check_skipped,
    entry,
    scheme,
)
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.tensors import TensorFile

BLOCK, MARK = 64, ".quant_state.bitsandbytes__nf4"
PARTS = (".absmax", ".quant_map", MARK)
# The code book of the library, as float32 numbers.
QUANTILES = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], dtype=np.float32,
)  # fmt: skip


@scheme("bitsandbytes")
def read(settings: QuantizationSettings, files: TensorFile) -> Packed:
    """Read matrices in nf4 with plain scales."""
    settings.must("load_in_4bit", True)
    settings.must("load_in_8bit", False)
    settings.must("bnb_4bit_quant_type", "nf4")
    settings.must("bnb_4bit_use_double_quant", False)
    settings.must("bnb_4bit_quant_storage", "uint8")
    for key in ("_load_in_4bit", "_load_in_8bit"):
        settings.must(key, key == "_load_in_4bit", required=False)
    for key in ("llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight"):
        settings.must(key, False, required=False)
    settings.must("llm_int8_threshold", 6.0, required=False)
    # Another type would round float32 streams. What the library's processor kernels do is measured, see
    # docs/quantized.md.
    settings.must("bnb_4bit_compute_dtype", "float32")
    skipped = settings.names("llm_int8_skip_modules")
    packed: Packed = {}
    for name in [name.removesuffix(MARK) for name in files.entries if name.endswith(MARK)]:
        shape = _shape(files, name)
        count = shape[0] * shape[1]
        wanted = {"": ("U8", (count // 2, 1)), ".absmax": ("F32", (count // BLOCK,)), ".quant_map": ("F32", (16,))}
        for part, (kind, size) in wanted.items():
            if count % BLOCK or entry(files, name + part, (kind,)) != size:
                raise Undecided(f"{name}{part} has the shape {files.entries[name + part][1]}, not {size}")
        if not np.array_equal(files.read(f"{name}.quant_map"), QUANTILES):
            raise Undecided(f"{name}.quant_map is not the code book of nf4")
        scales = partial(files.read, f"{name}.absmax")
        decode = partial(_decode, files, name, shape, scales)
        packed[name] = PackedWeight(shape, (name, *(name + part for part in PARTS)), decode, scales)
    check_skipped(files, packed, skipped)
    return packed


def _shape(files: TensorFile, name: str) -> tuple[int, int]:
    """The shape that the state of a matrix records, which must be the usual one."""
    entry(files, name + MARK, ("U8",), 1)
    try:
        state: dict[str, Any] = json.loads(bytes(files.raw(name + MARK)))
        rows, columns = state.pop("shape")
        kind, block = state.pop("quant_type"), state.pop("blocksize")
        fine = state.pop("dtype") in ("float32", "bfloat16", "float16") and not state
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Undecided(f"{name}{MARK} is not the state of a quantized matrix") from None
    if not fine or kind != "nf4" or type(block) is not int or block != BLOCK or rows < 1 or columns < 1:
        raise Undecided(f"{name}{MARK} is not of nf4 in blocks of {BLOCK}")
    return int(rows), int(columns)


def _decode(files: TensorFile, name: str, shape: tuple[int, int], scales: Callable[[], Array]) -> Array:
    raw = files.raw(name).reshape(-1)
    codes = np.stack([raw >> 4, raw & 15], axis=-1).reshape(-1, BLOCK)
    values = QUANTILES.astype(np.float64)[codes] * scales()[:, None].astype(np.float64)
    return values.reshape(shape)
