"""What all quantized formats share: strict settings, the registry, and a file that returns decoded tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.storage import STORAGES, Array
from byheart.checkpoints.proof.tensors import TensorFile

DECODING = "not covered: quantized activations, and sums of codes that are scaled afterwards"


class QuantizationSettings:
    """The keys of quantization_config, taken one by one; a key that is left is refused."""

    def __init__(self, values: Any, where: str = "quantization_config") -> None:
        if not isinstance(values, Mapping):
            raise Undecided(f"config.json: {where} is not an object")
        self.left, self.where = dict(values), where

    def must(self, key: str, *allowed: Any, required: bool = True) -> Any:
        """Take a key that must have one of some values.

        Args:
            key: The key.
            allowed: The values that the proof supports, compared with their types.
            required: Whether the key must exist; if not, its absence counts as the first value.

        Returns:
            The value.

        Raises:
            Undecided: The key has another value.
        """
        if key not in self.left and not required:
            return allowed[0]
        value = self.left.pop(key, "no value")
        if not any(type(value) is type(one) and value == one for one in allowed):
            known = " or ".join(map(repr, allowed))
            raise Undecided(f"config.json: {self.where} has {key} = {value!r}; the proof supports {known}")
        return value

    def names(self, *keys: str) -> tuple[str, ...]:
        """Take a list of full module names under one of these keys; none where all are absent or null."""
        found = [name for key in keys for name in self.left.pop(key, None) or ()]
        if not all(isinstance(name, str) for name in found):
            raise Undecided(f"config.json: {self.where} has {keys[0]} = {found!r}; the proof supports names of modules")
        return tuple(found)

    def inner(self, key: str) -> QuantizationSettings:
        """Take an object."""
        return QuantizationSettings(self.left.pop(key, None), f"{self.where}.{key}")

    def close(self) -> None:
        """Refuse keys that no reader took."""
        if self.left:
            key, value = next(iter(self.left.items()))
            raise Undecided(f"config.json: {self.where} has {key} = {value!r}, which the proof does not support")


@dataclass(frozen=True)
class PackedWeight:
    """A matrix that is stored as codes.

    Attributes:
        shape: Of the decoded tensor.
        parts: The stored entries that it is read from.
        decode: Computes it, as float32.
        scales: Reads its scales.
    """

    shape: tuple[int, ...]
    parts: tuple[str, ...]
    decode: Callable[[], Array]
    scales: Callable[[], Array]


Packed: TypeAlias = dict[str, PackedWeight]  # name of the decoded tensor -> how it is stored
Reader: TypeAlias = Callable[[QuantizationSettings, TensorFile], Packed]
SCHEMES: dict[str, Reader] = {}


def scheme(method: str) -> Callable[[Reader], Reader]:
    """Register the reader of a `quant_method`."""

    def add(reader: Reader) -> Reader:
        SCHEMES[method] = reader
        return reader

    return add


@dataclass(frozen=True)
class DecodedFile(TensorFile):
    """The tensors of a quantized checkpoint under their usual names; `read` decodes and checks.

    Attributes:
        path: The file or folder.
        entries: Name -> type, shape and place of every tensor, decoded ones included.
        files: The stored tensors.
        packed: The weights that are stored as codes, by name.
        method: The value of quant_method.
    """

    files: TensorFile = field(kw_only=True)
    packed: Mapping[str, PackedWeight] = field(kw_only=True)
    method: str = field(kw_only=True)

    def read(self, name: str) -> np.ndarray:
        """Return a tensor, decoded where it is stored as codes.

        Args:
            name: The usual name.

        Raises:
            Undecided: A scale or a decoded weight is not a number of all three types.
        """
        if name not in self.packed:
            return self.files.read(name)
        weight = self.packed[name]
        for what, values in (("a scale", weight.scales()), ("a decoded weight", weight.decode())):
            odd = inexact(values)
            if odd is not None:
                raise Undecided(
                    f"{name}: {what} is {odd:.9g}, which float16 or bfloat16 does not represent: engines that decode "
                    "in different types multiply by different weights"
                )
        found: np.ndarray = values.astype(np.float32).reshape(weight.shape)
        return found


def decoded(files: TensorFile, settings: Any) -> DecodedFile:
    """Return the checkpoint with all codes decoded.

    Args:
        files: The stored tensors.
        settings: The value of quantization_config.

    Raises:
        Undecided: The settings or tensors are not of a form that the proof decodes.
    """
    reader = QuantizationSettings(settings)
    method = reader.must("quant_method", *SCHEMES)
    packed = SCHEMES[method](reader, files)
    reader.close()
    used = [part for weight in packed.values() for part in weight.parts]
    if len(used) != len(set(used)):
        raise Undecided(f"{files.path.name}: two weights are read from one tensor")
    rest = {name: entry for name, entry in files.entries.items() if name not in used}
    twice = next((name for name in packed if name in rest), None)
    if twice is not None:
        raise Undecided(f"{files.path.name} has {twice} and codes of it")
    odd = next((name for name, entry in rest.items() if entry[0] not in ("F32", "F16", "BF16")), None)
    if odd is not None:
        raise Undecided(
            f"{files.path.name}: {odd} has the type {rest[odd][0]}, without being a part of a quantized weight"
        )
    if not packed:
        raise Undecided("config.json has a quantization_config, but no tensor is quantized")
    entries = rest | {name: ("F32", weight.shape, 0, 0) for name, weight in packed.items()}
    return DecodedFile(files.path, entries, files=files, packed=packed, method=method)


def inexact(values: Array) -> float | None:
    """Return a number that one of the three types does not represent; None where they represent all.

    >>> inexact(np.array([0.5, 3.0])), inexact(np.array([0.5, 0.1]))
    (None, 0.1)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        for store in STORAGES.values():
            wrong = ~(np.isfinite(values) & (store.nearest(values) == values))
            if wrong.any():
                return float(np.asarray(values)[wrong][0])
    return None


def entry(files: TensorFile, name: str, kinds: Collection[str], dims: int | None = None) -> tuple[int, ...]:
    """Return the shape of a stored part; `Undecided` where it is missing or of another type."""
    if name not in files.entries:
        raise Undecided(f"{files.path.name} has no {name}, which quantization_config needs")
    kind, shape, *_ = files.entries[name]
    if kind not in kinds or (dims is not None and len(shape) != dims):
        raise Undecided(f"{files.path.name}: {name} has the type {kind} and the shape {shape}")
    return shape


def check_skipped(files: TensorFile, packed: Collection[str], skipped: Collection[str]) -> None:
    """Compare the modules that a list excludes with those that are stored as codes.

    Loaders match names by prefixes and patterns of their own. Full names that are part of no other module's name mean
    the same to all of them: the head and every matrix of a layer that is stored plainly must be listed.
    """
    plain = {
        name.removesuffix(".weight")
        for name, (_, shape, *_) in files.entries.items()
        if name.endswith(".weight") and len(shape) == 2 and name not in packed and "embed" not in name
    }
    missing = sorted((plain | {"lm_head"}) - set(skipped))
    if missing:
        raise Undecided(f"{missing[0]} is stored plainly, but quantization_config does not exclude it")
    for name in skipped:
        caught = next((module for module in sorted(packed) if name in module), None)
        if caught is not None:
            raise Undecided(f"quantization_config excludes {name}, but {caught} is stored as codes")
