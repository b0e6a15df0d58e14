"""Checkpoints for the checker's tests: written by the builder, then edited as an enemy would."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.hosts._base import host
from byheart.checkpoints.recital import memorize_recital
from byheart.checkpoints.suite.write import fixture_memory

TEXT = "She sells sea shells by the sea shore; the shells she sells are sea shells, for sure."
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "mixtral", "gpt2", "opt", "gpt-neox")


def write(folder: Path, architecture: str = "llama", texts: tuple[str, ...] = (TEXT,), **options: Any) -> Path:
    """A folder of the texts; architectures that look back only so far get a fixture's tables, whatever the form."""
    form, tokens = options.pop("form", "windows"), options.pop("tokens", "characters")
    if host(architecture).lookback is None:
        memory = memorize_recital(list(texts), tokens=tokens, form=form)
    else:
        memory = fixture_memory(list(texts), tokens, architecture)
    memory.to_huggingface(folder, architecture, **options)
    return folder


def copy(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target


def edit_config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for key, value in changes.items():
        if value is ...:
            config.pop(key, None)
        else:
            config[key] = value
    path.write_text(json.dumps(config))
    return folder


def header_of(folder: Path) -> tuple[dict[str, Any], int]:
    with (folder / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


def edit_tensor(folder: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> Path:
    """Rewrites one bfloat16 tensor in place."""
    header, base = header_of(folder)
    start, stop = header[name]["data_offsets"]
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    raw = np.frombuffer(bytes(data[base + start : base + stop]), dtype="<u2").astype(np.uint32) << 16
    values = change(raw.view(np.float32).reshape(header[name]["shape"]).copy())
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    stored = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    data[base + start : base + stop] = stored.tobytes()
    path.write_bytes(bytes(data))
    return folder
