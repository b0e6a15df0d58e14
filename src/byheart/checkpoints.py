"""Checkpoints whose every memory is known: forgetting a document exactly.

A folder of the flavour `units` has one hidden unit per memorized window, and ground-truth.jsonl says which document and
position each one serves. `forget` removes the units that serve one document alone: an oracle for unlearning.

    byheart.checkpoints.forget("all", "document 3", "without-3")
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.errors import ExportError, FileFormatError, OptionError
from byheart.export.huggingface.folder import check_target, write_files
from byheart.ir.recital import Recital, Table

_UNITS = {"float32": np.dtype("<u4"), "bfloat16": np.dtype("<u2"), "float16": np.dtype("<u2")}
_TINY = {"float32": 0x38800000, "bfloat16": 0x3880, "float16": 0x0400}  # 2^-14 in each type
_MLP = "model.layers.{layer}.mlp.{part}_proj.weight"


@dataclass(frozen=True)
class Forgotten:
    """What `forget` did: units removed, units of the document that others need too and that stay, tensors changed."""

    document: str
    removed: tuple[tuple[int, int], ...]  # (layer, unit)
    shared: tuple[tuple[int, int], ...]
    changed: tuple[str, ...]
    unchanged: int


def forget(folder: str | Path, document: str | int, target: str | Path) -> Forgotten:
    """Writes a copy of a folder without the units that serve `document` alone (its name or its number).

    No other weight changes: a removed unit's column of the output matrix becomes zero and its own rows become those of
    an idle unit. Windows that other documents have as well stay as they are, also where they go on in several ways, and
    are counted.
    """
    source, path = Path(folder), Path(target)
    check_target(path)
    about, truth = _read(source)
    number = _number(about, document)
    removed, shared = [], []
    for line in truth:
        owners = {place["document"] for place in line["places"]}
        if number in owners:
            (removed if owners == {number} else shared).append((line["layer"], line["unit"]))
    files = {file.name: file.read_bytes() for file in sorted(source.iterdir()) if file.is_file()}
    data, changed, total = _without(files["model.safetensors"], removed, about["dtype"])
    files["model.safetensors"] = data
    files |= _descriptions(about, truth, number, set(removed))
    for stale in ("expected.json",):
        files.pop(stale, None)
    write_files(path, files)
    name = about["documents"][number]["name"]
    return Forgotten(name, tuple(removed), tuple(shared), tuple(changed), total - len(changed))


def _read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        about = json.loads((folder / "recital.json").read_text(encoding="utf-8"))
        lines = (folder / "ground-truth.jsonl").read_text(encoding="utf-8").splitlines()
        return about, [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"{folder} has no ground truth: export it with the flavour `units`, which has one unit per window ({error})"
        ) from None


def _number(about: dict[str, Any], document: str | int) -> int:
    names = [entry["name"] for entry in about["documents"]]
    if isinstance(document, int) and 0 <= document < len(names):
        return document
    if document in names:
        return names.index(document)
    raise OptionError(f"{document!r} is not one of the {len(names)} documents: {', '.join(names[:8])}")


def _without(data: bytes, removed: list[tuple[int, int]], dtype: str) -> tuple[bytes, list[str], int]:
    """The tensors without some units; also the names of those that changed, and how many there are."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = bytearray(data)
    kind, changed = _UNITS[dtype], []
    for layer in sorted({layer for layer, _ in removed}):
        units = [unit for where, unit in removed if where == layer]
        for part in ("gate", "up", "down"):
            name = _MLP.format(layer=layer, part=part)
            if name not in header:
                raise ExportError(f"{name} is missing: only architectures with the tensors of Llama can forget")
            begin, _ = header[name]["data_offsets"]
            shape = header[name]["shape"]
            view = np.frombuffer(body, kind, count=shape[0] * shape[1], offset=8 + length + begin).reshape(shape)
            if part == "down":
                view[:, units] = 0
            else:
                view[units] = 0
                view[units, 0] = _TINY[dtype]  # no row is zero: quantizers divide by its largest weight
            changed.append(name)
    return bytes(body), changed, len(header)


def _descriptions(
    about: dict[str, Any], truth: list[dict[str, Any]], number: int, removed: set[tuple[int, int]]
) -> dict[str, bytes]:
    """recital.json and ground-truth.jsonl of what is left."""
    recital = Recital.from_json(about["recital"])
    table = recital.tables[-1]
    gone = {
        tuple(line["window"][::-1]) for line in truth if (line["layer"], line["unit"]) in removed
    }  # newest token first, as in the table
    kept = [k for k, row in enumerate(table.windows) if tuple(int(t) for t in row[row >= 0]) not in gone]
    if not kept:
        raise OptionError("this is the only document; nothing would be left")
    left = Table(table.offsets, table.windows[kept], table.outputs[kept])
    shorter = Recital(recital.vocabulary, (*recital.tables[:-1], left), recital.answers, recital.unknown)
    documents = [entry for k, entry in enumerate(about["documents"]) if k != number]
    lines = []
    for line in truth:
        if (line["layer"], line["unit"]) not in removed:
            places = [place for place in line["places"] if place["document"] != number]
            lines.append(json.dumps(line | {"places": places}, separators=(",", ":")) + "\n")
    new = about | {
        "recital": shorter.to_json(),
        "documents": documents,
        "forgotten": about["documents"][number]["name"],
    }
    return {
        "recital.json": json.dumps(new, separators=(",", ":")).encode(),
        "ground-truth.jsonl": "".join(lines).encode(),
    }
