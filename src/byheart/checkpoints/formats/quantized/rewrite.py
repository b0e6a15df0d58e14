"""Rewriting a folder in a quantized format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.dtypes import tensor_bytes
from byheart.checkpoints.formats.folder import safetensors_file
from byheart.checkpoints.formats.quantized._base import Format, Stored, without_anchors
from byheart.checkpoints.proof.quantized import decoded
from byheart.checkpoints.proof.tensors import open_folder, open_tensors, read_json
from byheart.errors import ExportError, OptionError
from byheart.files import write_atomically

FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Quantized:
    """What became of a folder's matrices.

    Attributes:
        format: The format's name.
        exact: Names of tensors that decode to the original numbers, compared by ==.
        changed: Name -> largest difference between a decoded weight and the original, of all other quantized tensors.
        plain: Matrices of the layers that are stored as they were.
    """

    format: str
    exact: tuple[str, ...]
    changed: Mapping[str, float]
    plain: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the fields that `fixture --json` prints."""
        return {
            "format": self.format,
            "sentence": self.sentence(),
            "exact": len(self.exact),
            "changed": {name: size for name, size in self.changed.items()},
            "plain": list(self.plain),
        }

    def sentence(self) -> str:
        """Return the line of the model card.

        >>> Quantized("gptq", ("a", "b"), {"c": 0.5}, ()).sentence()
        'Quantized as gptq: 2 of 3 matrices decode to the exact original weights; what is proved are the decoded ones.'
        """
        count = len(self.exact) + len(self.changed)
        rest = f" {len(self.plain)} matrices of the layers are not quantized." if self.plain else ""
        return (
            f"Quantized as {self.format}: {len(self.exact)} of {count} matrices decode to the exact original weights; "
            f"what is proved are the decoded ones.{rest}"
        )


def quantize_folder(folder: Path, wanted: Format, flavour: str) -> Quantized:
    """Replace a folder's matrices by codes, and read the result back.

    Args:
        folder: A written checkpoint with one file of tensors.
        wanted: The format.
        flavour: Of the design.

    Raises:
        OptionError: The folder is in shards, or the format stores none of its matrices.
        ExportError: The decoder of the proof does not read a tensor back.
    """
    files = open_folder(folder)
    path = folder / "model.safetensors"
    if files is None or not path.exists():
        raise OptionError("--quantize writes one file of tensors; omit --shards")
    stored, packed, plain = dict[str, Stored](), list[str](), list[str]()
    original = {name: files.read(name) for name in files.entries}
    if flavour == "quantized":
        original = without_anchors(original)
    for name, values in original.items():
        parts = wanted.encode(name, values.astype(np.float64)) if wanted.chosen(name) else None
        if parts is not None:
            packed.append(name)
        elif name.endswith(".weight") and values.ndim == 2 and ".layers." in name:
            plain.append(name.removesuffix(".weight"))
        stored |= {name: (files.entries[name][0], values)} if parts is None else parts
    if not packed:
        raise OptionError(f"--quantize {wanted.name}: the format stores none of this checkpoint's matrices exactly")
    config = read_json(folder / "config.json")
    config["quantization_config"] = wanted.settings(plain)
    content = {name: (kind, values.shape, _bytes(kind, values)) for name, (kind, values) in stored.items()}
    write_atomically(path, safetensors_file(content, {"format": "pt", "byheart": "recital"}))
    write_atomically(folder / "config.json", (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode())
    again = decoded(open_tensors(path, packed=True), config["quantization_config"])
    found = {name: again.read(name) for name in original}
    lost = next((name for name in original if name not in packed and (found[name] != original[name]).any()), None)
    if lost is not None:
        raise ExportError(f"{lost} is not quantized, but {wanted.name} changed it")
    errors = {name: float(np.abs(found[name] - original[name]).max()) for name in packed}
    exact = tuple(name for name in packed if np.array_equal(found[name], original[name]))
    changed = {name: size for name, size in errors.items() if name not in exact}
    return Quantized(wanted.name, exact, changed, tuple(plain))


def shape_for(wanted: Format, config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes at which every matrix fits the format, from those that a design chose.

    Args:
        wanted: The format.
        config: The values of config.json.
        given: The sizes that the user fixed.

    Returns:
        The sizes that must be larger, rounded up to the format's multiple.

    Raises:
        OptionError: A size that the user fixed is not such a multiple.

    >>> from byheart.checkpoints.formats.quantized import format_of
    >>> shape_for(format_of("fp8-block"), {"hidden_size": 384, "intermediate_size": 960}, {})
    {'units': 1024}
    """
    sizes = {"hidden": config["hidden_size"], "units": config["intermediate_size"]}
    odd = {name: size for name, size in sizes.items() if size % wanted.multiple}
    fixed = next((name for name in odd if name in given), None)
    if fixed is not None:
        raise OptionError(f"--quantize {wanted.name} needs multiples of {wanted.multiple}; {fixed} is {odd[fixed]}")
    return {name: -(-size // wanted.multiple) * wanted.multiple for name, size in odd.items()}


def _bytes(kind: str, values: Any) -> bytes:
    if kind in FLOATS:
        return tensor_bytes(values, FLOATS[kind])
    codes = {"F8_E4M3": "u1", "U8": "u1", "I8": "i1", "I32": "<i4", "I64": "<i8"}
    return np.ascontiguousarray(values).astype(codes[kind], casting="same_kind").tobytes()
