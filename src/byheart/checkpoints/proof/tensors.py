"""The tensors of a `model.safetensors`, read without any library: a header in JSON, then the numbers.

The file is untrusted: lengths, offsets, shapes and types are checked before anything is read, and every number
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
# Codes of quantized weights, read where config.json has a quantization_config.
CODES = {"F8_E4M3": "u1", "U8": "u1", "I8": "i1", "I32": "<i4", "I64": "<i8"}
PACKED_WIDTH = WIDTH | {"F8_E4M3": 1, "U8": 1, "I8": 1, "I32": 4, "I64": 8}


@dataclass(frozen=True)
class TensorFile:
    """Names, shapes and where the numbers are; `read` gives float32, which holds all three types exactly."""

    path: Path
    entries: Mapping[str, tuple[str, tuple[int, ...], int, int]]

    def read(self, name: str) -> np.ndarray:
        kind, shape, start, stop = self.entries[name]
        if kind not in WIDTH:
            raise FileFormatError(f"{self.path}: {name} has the type {kind} and stores codes, not numbers")
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

    def raw(self, name: str) -> np.ndarray:
        """Return the stored codes of a quantized weight; float8 as bytes."""
        kind, shape, start, stop = self.entries[name]
        if kind not in CODES:
            raise FileFormatError(f"{self.path}: {name} has the type {kind}, which stores no codes")
        raw = np.fromfile(self.path, dtype=np.uint8, count=stop - start, offset=start)
        return raw.view(CODES[kind]).reshape(shape)


@dataclass(frozen=True)
class TensorShards(TensorFile):
    """The tensors of several files; `owners` has the file of every name."""

    owners: Mapping[str, TensorFile]

    def read(self, name: str) -> np.ndarray:
        return self.owners[name].read(name)

    def raw(self, name: str) -> np.ndarray:
        return self.owners[name].raw(name)


INDEX = "model.safetensors.index.json"


def tensor_files(folder: Path) -> list[Path]:
    """Return the files that hold a folder's tensors: model.safetensors, or the index and its shards.

    Raises:
        FileFormatError: Both exist, so engines may load different models; or the index names no files beside it.
    """
    whole, index = folder / "model.safetensors", folder / INDEX
    if not index.exists():
        return [whole] if whole.exists() else []
    if whole.exists():
        raise FileFormatError(f"{folder} has model.safetensors and {INDEX}: two engines may load two different models")
    owners = read_json(index).get("weight_map")
    names = sorted({str(name) for name in owners.values()}) if isinstance(owners, dict) else []
    if not names or any("/" in name or "\\" in name or not name.endswith(".safetensors") for name in names):
        raise FileFormatError(f"{index}: weight_map must name files beside it, found {names[:3]}")
    return [index, *(folder / name for name in names)]


def open_folder(folder: Path, *, packed: bool = False) -> TensorFile | None:
    """Return the tensors of a folder, in one file or in shards; None where it has none.

    Args:
        folder: The checkpoint's folder.
        packed: Whether codes of quantized weights are readable too.

    Raises:
        FileFormatError: The index and the files do not hold the same tensors.
    """
    files = tensor_files(folder)
    if len(files) < 2:
        return open_tensors(files[0], packed=packed) if files else None
    owners = read_json(files[0])["weight_map"]
    missing = next((path for path in files[1:] if not path.exists()), None)
    if missing is not None:
        raise FileFormatError(f"{files[0]} names {missing.name}, which does not exist")
    if not isinstance(read_json(files[0]).get("metadata"), dict):
        raise FileFormatError(f"{files[0]}: metadata is not an object; stock Transformers does not load this index")
    parts = {path.name: open_tensors(path, packed=packed) for path in files[1:]}
    stored = [(name, file) for file, part in parts.items() for name in part.entries]
    if sorted(stored) != sorted(owners.items()):
        odd = next(iter(sorted(set(stored) ^ set(owners.items()))), stored[0])
        raise FileFormatError(f"{files[0]} and the files differ in {odd[0]!r} of {odd[1]!r}")
    entries = {name: parts[file].entries[name] for name, file in stored}
    return TensorShards(files[0], entries, {name: parts[file] for name, file in stored})


def open_tensors(path: Path, *, packed: bool = False) -> TensorFile:
    """The header of a safetensors file, checked; `packed`: with the types of quantized weights."""
    widths = PACKED_WIDTH if packed else WIDTH
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        if len(head) < 8:
            raise FileFormatError(f"{path} is too short for a safetensors file")
        (length,) = struct.unpack("<Q", head)
        if length > min(size - 8, LONGEST_HEADER):
            raise FileFormatError(f"{path} claims a header of {length} bytes; the file has {size}")
        header = _header(path, file.read(length))
    if not isinstance(header, dict):
        raise FileFormatError(f"{path}: the header is not an object")
    about = header.pop("__metadata__", None)
    if about is not None and not (isinstance(about, dict) and all(isinstance(v, str) for v in about.values())):
        raise FileFormatError(f"{path}: __metadata__ is not an object of strings")
    entries = {name: _entry(path, name, value, 8 + length, size, widths) for name, value in header.items()}
    _check_coverage(path, entries, 8 + length, size)
    return TensorFile(path, entries)


def _header(path: Path, raw: bytes) -> Any:
    """The header as the safetensors library reads it: UTF-8 without a mark, plain numbers, no lone surrogates. Python
    alone would take more, and prove a file that no engine opens."""

    def refused(text: str) -> Any:
        raise ValueError(f"{text} is not a number of a header")

    def natural(text: str) -> int:
        return refused(text) if text.startswith("-") else int(text)

    try:
        header = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=refused, parse_int=natural
        )  # fmt: skip
        json.dumps(header, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:  # of JSON, of UTF-8 either way, and those above
        raise FileFormatError(f"{path}: the header is not JSON: {error}") from error
    return header


def _check_coverage(
    path: Path, entries: Mapping[str, tuple[str, tuple[int, ...], int, int]], base: int, end: int
) -> None:
    """Refuse tensors that overlap, and bytes that belong to none: the safetensors library does not load them."""
    at = base
    for start, stop, name in sorted((start, stop, name) for name, (_, _, start, stop) in entries.items()):
        if start != at:
            raise FileFormatError(f"{path}: {name} begins at byte {start}; the tensors before it end at {at}")
        at = stop
    if at != end:
        raise FileFormatError(f"{path}: {end - at} bytes after the last tensor belong to none")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = repeated_key(pairs)
    if twice is not None:
        raise FileFormatError(f"{twice!r} occurs twice in one object: two readers may load two different models")
    return dict(pairs)


def _entry(
    path: Path, name: str, value: Any, base: int, size: int, widths: Mapping[str, int]
) -> tuple[str, tuple[int, ...], int, int]:
    try:
        kind, shape, (start, stop) = value["dtype"], tuple(value["shape"]), value["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path}: the entry of {name} is not a tensor") from error
    if kind not in widths:
        raise FileFormatError(f"{path}: {name} has the type {kind}; readable are {', '.join(widths)}")
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (*shape, start, stop)):
        raise FileFormatError(f"{path}: {name} has the shape {shape} and the place {start}:{stop}")
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if stop - start != count * widths[kind] or base + stop > size:
        raise FileFormatError(f"{path}: {name} of shape {shape} does not fit its place {start}:{stop}")
    return kind, shape, base + start, base + stop


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; a key that occurs twice is refused."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except FileNotFoundError as error:
        raise FileFormatError(f"{path.parent} has no {path.name}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FileFormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FileFormatError(f"{path} is not a JSON object")
    return value
