"""`fp8` with blocks, as DeepSeek-V3 stores it: codes in float8 (e4m3), one scale per block of 128 x 128 weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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

BLOCK = 128


def float8(codes: Array) -> Array:
    """Decode e4m3fn: a sign, four bits of exponent with bias 7, three bits of fraction; 0x7f and 0xff are NaN.

    >>> float8(np.array([0x00, 0x01, 0x38, 0x7e, 0xb8], dtype=np.uint8)).tolist()
    [0.0, 0.001953125, 1.0, 448.0, -1.0]
    """
    codes = np.asarray(codes, dtype=np.int64)
    exponent, fraction = codes >> 3 & 15, codes & 7
    size = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    size = np.where(codes & 127 == 127, np.nan, size)
    return np.where(codes & 128, -size, size)


@scheme("fp8")
def read(settings: QuantizationSettings, files: TensorFile) -> Packed:
    """Read weights in blocks; `dynamic` activations are those of kernels outside the error model."""
    settings.must("fmt", "e4m3", required=False)
    settings.must("activation_scheme", "dynamic")
    settings.must("weight_block_size", [BLOCK, BLOCK])
    skipped = settings.names("modules_to_not_convert")
    packed: Packed = {}
    for name in [name for name, found in files.entries.items() if found[0] == "F8_E4M3"]:
        scale, shape = f"{name}_scale_inv", entry(files, name, ("F8_E4M3",), 2)
        wanted = tuple(-(-size // BLOCK) for size in shape)
        if entry(files, scale, ("F32",), 2) != wanted:
            raise Undecided(f"{scale} has the shape {files.entries[scale][1]}; {name} needs {wanted}")
        if any(size > BLOCK and size % BLOCK for size in shape):
            raise Undecided(f"{name} has the shape {shape}: loaders differ in blocks that are not whole")
        scales = partial(files.read, scale)
        packed[name] = PackedWeight(shape, (name, scale), partial(_decode, files, name, scales), scales)
    check_skipped(files, packed, skipped)
    return packed


def _decode(files: TensorFile, name: str, scales: Callable[[], Array]) -> Array:
    codes = float8(files.raw(name))
    rows, columns = codes.shape
    spread = scales().astype(np.float64).repeat(BLOCK, 0)[:rows].repeat(BLOCK, 1)[:, :columns]
    return codes * spread
