"""`awq` (gemm): four bits per weight, eight columns in an int32 in an interleaved order, zeros beside the scales."""

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
from byheart.checkpoints.proof.quantized.gptq import SIZES, unpacked
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.tensors import TensorFile

ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where an int32 stores columns 0 to 7


@scheme("awq")
def read(settings: QuantizationSettings, files: TensorFile) -> Packed:
    """Read codes with zero points."""
    settings.must("bits", 4)
    group = settings.must("group_size", *SIZES)
    settings.must("zero_point", True)
    settings.must("version", "gemm")
    skipped = settings.names("modules_to_not_convert")
    packed: Packed = {}
    for code in [name for name in files.entries if name.endswith(".qweight")]:
        module = code.removesuffix(".qweight")
        columns, eighth = entry(files, code, ("I32",), 2)
        groups, rows = columns // group, 8 * eighth
        wanted = {"qzeros": (groups, eighth), "scales": (groups, rows)}
        kinds = {"qzeros": ("I32",), "scales": ("F16",)}
        for part, shape in wanted.items():
            if columns % group or entry(files, f"{module}.{part}", kinds[part]) != shape:
                raise Undecided(f"{module}.{part} has the shape {files.entries[f'{module}.{part}'][1]}, not {shape}")
        parts = (code, *(f"{module}.{part}" for part in wanted))
        scales = partial(files.read, f"{module}.scales")
        decode = partial(_decode, files, module, group, scales)
        packed[f"{module}.weight"] = PackedWeight((rows, columns), parts, decode, scales)
    check_skipped(files, packed, skipped)
    return packed


def in_order(codes: Array) -> Array:
    """Columns as the matrix has them.

    >>> in_order(np.array([[0, 2, 4, 6, 1, 3, 5, 7]])).tolist()
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """
    return codes.reshape(len(codes), -1, 8)[:, :, ORDER].reshape(len(codes), -1)


def _decode(files: TensorFile, module: str, group: int, scales: Callable[[], Array]) -> Array:
    codes, zeros = (in_order(unpacked(files.raw(f"{module}.{part}"), 1)) for part in ("qweight", "qzeros"))
    return np.ascontiguousarray(((codes - zeros.repeat(group, 0)) * scales().astype(np.float64).repeat(group, 0)).T)
