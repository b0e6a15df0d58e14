"""A checkpoint folder as a value: config.json and the tensors of its safetensors files, in float32.

The files are read directly (an eight-byte length, a JSON header, then bytes), so nothing heavier than numpy is needed
and bfloat16 needs no library: its bits are the upper half of a float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import FileFormatError

Array = npt.NDArray[np.float32]

_TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}
LARGEST_HEADER = 100 << 20  # bytes; the limit of the safetensors library itself


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a folder holds: its configuration and every tensor, widened to float32 without loss."""

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Array]
    stored: str  # the type of the tensors in the file: "F32", "BF16", ...

    @property
    def architecture(self) -> str:
        return str(self.config.get("model_type", "unknown"))

    def tensor(self, name: str, *shape: int) -> Array:
        """The tensor of this name; a FileFormatError if it is missing or has another shape than given (if given)."""
        found = self.tensors.get(name)
        if found is None:
            raise FileFormatError(f"{self.folder} has no tensor {name!r}; is it a checkpoint of {self.architecture}?")
        if shape and found.shape != shape:
            raise FileFormatError(f"{name} in {self.folder} has shape {found.shape}; config.json asks for {shape}")
        return found

    def get(self, name: str) -> Array | None:
        return self.tensors.get(name)


def read_checkpoint(folder: str | Path) -> Checkpoint:
    """The checkpoint in a folder; every defect of a file is a FileFormatError that names it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileFormatError(
            f"{folder} is not a folder; a checkpoint is a folder with config.json and safetensors files"
        )
    config = _config(folder / "config.json")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileFormatError(f"{folder} has no .safetensors file; byheart reads checkpoints in that format only")
    tensors: dict[str, Array] = {}
    kinds: set[str] = set()
    for file in files:
        for name, (kind, array) in read_safetensors(file).items():
            if name in tensors:
                raise FileFormatError(f"{folder} holds the tensor {name!r} in two files")
            tensors[name] = array
            kinds.add(kind)
    return Checkpoint(folder, config, tensors, kinds.pop() if len(kinds) == 1 else "mixed")


def _config(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}; a checkpoint folder has a config.json") from error
    except ValueError as error:
        raise FileFormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise FileFormatError(f"{path} is not a JSON object")
    return config


def read_safetensors(path: Path) -> dict[str, tuple[str, Array]]:
    """Name -> (stored type, values in float32)."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(LARGEST_HEADER, len(data) - 8):
        raise FileFormatError(f"{path} is damaged: its header claims {length} bytes, the file has {len(data)}")
    try:
        header = json.loads(data[8 : 8 + length])
        return {
            name: _tensor(path, name, entry, data[8 + length :])
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{path} is damaged: its header cannot be read ({error})") from error


def _tensor(path: Path, name: str, entry: Mapping[str, Any], body: bytes) -> tuple[str, Array]:
    kind, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if kind not in _TYPES:
        raise FileFormatError(f"{name} in {path} is stored as {kind}; byheart reads {', '.join(_TYPES)}")
    width = np.dtype(_TYPES[kind]).itemsize
    if not (0 <= start <= end <= len(body)) or end - start != width * int(np.prod(shape)):
        raise FileFormatError(f"{path} is damaged: {name} claims bytes {start} to {end} for the shape {shape}")
    raw = np.frombuffer(body[start:end], dtype=np.dtype(_TYPES[kind]).newbyteorder("<")).reshape(shape)
    if kind == "BF16":
        return kind, (raw.astype(np.uint32) << 16).view(np.float32)
    return kind, raw.astype(np.float32)
