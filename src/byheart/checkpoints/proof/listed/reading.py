"""A folder's config and tensors, read strictly: every key and every tensor has a role, or the folder is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from byheart.checkpoints.proof.config import ConfigReader, Shape, Undecided
from byheart.checkpoints.proof.decoder import Family, Linear, Norm, StoredCheckpoint, TensorReader
from byheart.checkpoints.proof.storage import Array, Storage
from byheart.checkpoints.proof.tensors import TensorFile, open_folder, read_json


@dataclass
class Reader:
    """Reads tensors in one type, and keeps their names."""

    shape: Shape
    family: Family
    files: TensorFile
    store: Storage
    config: Mapping[str, Any]
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        checkpoint = StoredCheckpoint(self.shape, self.family, self.files, None, None)
        self._inner = TensorReader(checkpoint, self.store, None)

    def tensor(self, name: str, *shape: int) -> Array:
        self.names.add(name)
        return self._inner.tensor(name, *shape)

    def linear(self, name: str, out: int, inner: int, bias: bool = False) -> Linear:
        weight = self.tensor(f"{name}.weight", out, inner)
        return Linear(name, weight, self.tensor(f"{name}.bias", out) if bias else None)

    def norm(self, name: str, size: int, centred: bool = False) -> Norm:
        bias = self.tensor(f"{name}.bias", size) if centred else None
        return Norm(name, self.tensor(f"{name}.weight", size), bias, self.shape.eps, centred)

    def close(self, prefix: str = "") -> None:
        """Refuse tensors below a prefix that nothing has read."""
        unknown = sorted(name for name in self.files.entries if name.startswith(prefix) and name not in self.names)
        if unknown:
            raise Undecided(f"model.safetensors has {unknown[0]}, which has no role in {self.family.model_type}")


def open_files(folder: Path) -> tuple[dict[str, Any], TensorFile]:
    """Return config.json and the tensors of a folder."""
    files = open_folder(folder)
    if files is None:
        raise Undecided(f"{folder} has no model.safetensors and no index of its parts")
    return read_json(folder / "config.json"), files


def shape_of(config: Mapping[str, Any], family: Family) -> Shape:
    """Read config.json; keys that are read later are taken by the family's reader too."""
    if config.get("architectures") != [family.causal]:
        raise Undecided(f"config.json: architectures {config.get('architectures')!r}; the proof needs {family.causal}")
    reader = ConfigReader(config)
    shape = family.shape(reader)
    reader.close()
    return shape
