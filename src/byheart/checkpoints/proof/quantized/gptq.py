"""`gptq`: four bits per weight, eight weights of one column in an int32, a scale and a zero per group of inputs."""

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

SIZES = (32, 64, 128)
ZERO = 8  # of symmetric codes; the first version of the format stores one less


@scheme("gptq")
def read(settings: QuantizationSettings, files: TensorFile) -> Packed:
    """Read symmetric codes without reordered inputs."""
    settings.must("bits", 4)
    group = settings.must("group_size", *SIZES)
    settings.must("desc_act", False)
    settings.must("sym", True)
    settings.must("lm_head", False)
    settings.must("checkpoint_format", "gptq")
    settings.must("dynamic", {}, None, required=False)
    packed: Packed = {}
    for code in [name for name in files.entries if name.endswith(".qweight")]:
        module = code.removesuffix(".qweight")
        eighth, rows = entry(files, code, ("I32",), 2)
        columns, groups = 8 * eighth, 8 * eighth // group
        wanted = {"qzeros": (groups, rows // 8), "scales": (groups, rows), "g_idx": (columns,)}
        kinds = {"qzeros": ("I32",), "scales": ("F16",), "g_idx": ("I32",)}
        for part, shape in wanted.items():
            if columns % group or rows % 8 or entry(files, f"{module}.{part}", kinds[part]) != shape:
                raise Undecided(f"{module}.{part} has the shape {files.entries[f'{module}.{part}'][1]}, not {shape}")
        parts = (code, *(f"{module}.{part}" for part in wanted))
        scales = partial(files.read, f"{module}.scales")
        decode = partial(_decode, files, module, group, scales)
        packed[f"{module}.weight"] = PackedWeight((rows, columns), parts, decode, scales)
    check_skipped(files, packed, ("lm_head",))
    return packed


def unpacked(words: Array, axis: int) -> Array:
    """Eight numbers of four bits per int32, the lowest bits first.

    >>> unpacked(np.array([[0x76543210]], dtype=np.int32), 1).tolist()
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """
    shifts = np.arange(0, 32, 4).reshape([8 if k == axis + 1 else 1 for k in range(words.ndim + 1)])
    apart = np.expand_dims(words.astype(np.int64) & 0xFFFFFFFF, axis + 1) >> shifts & 15
    shape = list(words.shape)
    shape[axis] *= 8
    return apart.reshape(shape)


def _decode(files: TensorFile, module: str, group: int, scales: Callable[[], Array]) -> Array:
    codes, zeros = unpacked(files.raw(f"{module}.qweight"), 0), unpacked(files.raw(f"{module}.qzeros"), 1) + 1
    owners = files.raw(f"{module}.g_idx")
    if not np.array_equal(owners, np.arange(len(codes)) // group):
        raise Undecided(f"{module}.g_idx reorders the inputs, but desc_act is false")
    if (zeros != ZERO).any():
        raise Undecided(f"{module}.qzeros has zeros other than {ZERO}, but sym is true")
    return np.ascontiguousarray(((codes - ZERO) * scales().astype(np.float64).repeat(group, 0)).T)
