"""The tensors of a `model.safetensors`, read without any library: a header in JSON, then the numbers.

The file is a stranger's: lengths, offsets, shapes and types are checked before anything is read, and every number
must be finite.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.errors import FileFormatError
from byheart.files import repeated_key

LONGEST_HEADER = 100_000_000
WIDTH = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True)
class TensorFile:
    """Names, shapes and where the numbers are; `read` gives float32, which holds all three types exactly."""

    path: Path
    entries: Mapping[str, tuple[str, tuple[int, ...], int, int]]

    def read(self, name: str) -> np.ndarray:
        kind, shape, start, stop = self.entries[name]
        raw = np.fromfile(self.path, dtype=np.uint8, count=stop - start, offset=start)
        if kind == "F32":
            values = raw.view("<f4").astype(np.float32)
        elif kind == "F16":
            values = raw.view("<f2").astype(np.float32)
        else:
            values = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        if not np.isfinite(values).all():
            raise FileFormatError(f"{self.path}: {name} holds numbers that are not finite")
        return values.reshape(shape)


def open_tensors(path: Path) -> TensorFile:
    """The header of a safetensors file, checked."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        if len(head) < 8:
            raise FileFormatError(f"{path} is too short for a safetensors file")
        (length,) = struct.unpack("<Q", head)
        if length > min(size - 8, LONGEST_HEADER):
            raise FileFormatError(f"{path} claims a header of {length} bytes; the file has {size}")
        try:
            header = json.loads(file.read(length), object_pairs_hook=_once)
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise FileFormatError(f"{path}: the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise FileFormatError(f"{path}: the header is not an object")
    header.pop("__metadata__", None)
    return TensorFile(path, {name: _entry(path, name, value, 8 + length, size) for name, value in header.items()})


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = repeated_key(pairs)
    if twice is not None:
        raise FileFormatError(f"{twice!r} stands twice in one object: two readers may see two different models")
    return dict(pairs)


def _entry(path: Path, name: str, value: Any, base: int, size: int) -> tuple[str, tuple[int, ...], int, int]:
    try:
        kind, shape, (start, stop) = value["dtype"], tuple(value["shape"]), value["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path}: the entry of {name} is not a tensor") from error
    if kind not in WIDTH:
        raise FileFormatError(f"{path}: {name} has the type {kind}; readable are {', '.join(WIDTH)}")
    if not all(isinstance(n, int) and n >= 0 for n in (*shape, start, stop)):
        raise FileFormatError(f"{path}: {name} has the shape {shape} and the place {start}:{stop}")
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if stop - start != count * WIDTH[kind] or base + stop > size:
        raise FileFormatError(f"{path}: {name} of shape {shape} does not fit its place {start}:{stop}")
    return kind, shape, base + start, base + stop


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; a key that stands twice is refused."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except FileNotFoundError as error:
        raise FileFormatError(f"{path.parent} has no {path.name}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FileFormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FileFormatError(f"{path} is not a JSON object")
    return value
