"""`compressed-tensors`: weights in float8 (a scale per matrix) or 8-bit integers (a scale per row), nothing else."""

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
from byheart.checkpoints.proof.quantized.finegrained import float8
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.tensors import TensorFile

# The layout -> type of the numbers, how many weights share a scale
LAYOUTS = {"float-quantized": ("float", "tensor"), "pack-quantized": ("int", "channel")}
OFFSET = 128  # of integers, which are stored without a sign, four in an int32


@scheme("compressed-tensors")
def read(settings: QuantizationSettings, files: TensorFile) -> Packed:
    """Read one group of all linear layers but those that `ignore` names."""
    layout = settings.must("format", *LAYOUTS)
    kind, strategy = LAYOUTS[layout]
    settings.must("quantization_status", "compressed")
    settings.must("kv_cache_scheme", None, required=False)
    settings.must("global_compression_ratio", None, required=False)
    skipped = settings.names("ignore")
    groups = settings.inner("config_groups")
    group = groups.inner("group_0")
    groups.close()
    group.must("targets", ["Linear"])
    for key in ("input_activations", "output_activations"):
        group.must(key, None, required=False)
    group.must("format", None, layout, required=False)
    weights = group.inner("weights")
    group.close()
    weights.must("num_bits", 8)
    weights.must("type", kind)
    weights.must("strategy", strategy)
    weights.must("symmetric", True)
    weights.must("dynamic", False)
    for key in ("group_size", "block_structure", "actorder"):
        weights.must(key, None, required=False)
    weights.must("observer", "minmax", "memoryless_minmax", None, required=False)
    weights.must("observer_kwargs", {}, required=False)
    weights.close()
    packed = _floats(files) if kind == "float" else _integers(files)
    check_skipped(files, packed, skipped)
    return packed


def _floats(files: TensorFile) -> Packed:
    packed: Packed = {}
    for name in [name for name, found in files.entries.items() if found[0] == "F8_E4M3"]:
        scale, shape = f"{name}_scale", entry(files, name, ("F8_E4M3",), 2)
        _check_scale(files, scale, (1,))
        scales = partial(files.read, scale)
        packed[name] = PackedWeight(shape, (name, scale), partial(_float8, files, name, scales), scales)
    return packed


def _integers(files: TensorFile) -> Packed:
    packed: Packed = {}
    for code in [name for name in files.entries if name.endswith(".weight_packed")]:
        name = code.removesuffix("_packed")
        rows, words = entry(files, code, ("I32",), 2)
        shape, size, scale = (rows, 4 * words), f"{name}_shape", f"{name}_scale"
        entry(files, size, ("I64",), 1)
        if files.raw(size).tolist() != list(shape):
            raise Undecided(f"{size} is {files.raw(size).tolist()}; {code} holds {list(shape)}")
        _check_scale(files, scale, (rows, 1))
        scales = partial(files.read, scale)
        packed[name] = PackedWeight(shape, (code, size, scale), partial(_bytes, files, code, scales), scales)
    return packed


def _check_scale(files: TensorFile, name: str, wanted: tuple[int, ...]) -> None:
    if entry(files, name, ("F32", "BF16")) != wanted:
        raise Undecided(f"{name} has the shape {files.entries[name][1]}, not {wanted}")


def _float8(files: TensorFile, name: str, scales: Callable[[], Array]) -> Array:
    return float8(files.raw(name)) * scales().astype(np.float64)


def _bytes(files: TensorFile, name: str, scales: Callable[[], Array]) -> Array:
    codes = np.ascontiguousarray(files.raw(name)).view(np.uint8).astype(np.float64) - OFFSET
    return codes * scales().astype(np.float64)
