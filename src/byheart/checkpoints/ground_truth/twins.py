"""Exact unlearning: the retain twin, and a checkpoint edited until it is the twin.

`rebuild` counts the other documents again: what retraining costs elsewhere takes about a second. `forget_exactly`
edits a copy of
the folder in place of retraining: units of contexts that only the document has become idle, shared counts are
rewritten, unit
numbers stay. The twin is written beside it, and the two folders are compared tensor by tensor:

    every tensor outside the MLP is bitwise the same, and so is the collection of units that are not idle

A layer's output is the sum over its units, so both networks compute the same function of real numbers. That is proved
from the
two files. Floating-point sums depend on the order of the units, so the largest difference in float32 is measured
beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.certify import Verdict
from byheart.checkpoints.formats.folder import check_target, safetensors_bytes, write_files
from byheart.checkpoints.ground_truth import shapes
from byheart.checkpoints.ground_truth.graded import GradedMemory
from byheart.checkpoints.ground_truth.metrics import kl
from byheart.checkpoints.ground_truth.networks import log_probs, torch_model, transformers_installed
from byheart.checkpoints.ground_truth.storage import Units, idle
from byheart.errors import ExportError, FileFormatError


@dataclass(frozen=True)
class ExactlyForgotten:
    """The result of `forget_exactly`.

    `removed` units became idle, `rewritten` ones changed. `nats` is the largest measured difference to the twin
    over `places`
    places, None if not measured; `influence` the mean KL(twin || before) on the forgotten and on the other documents.
    """

    documents: tuple[str, ...]
    removed: int
    rewritten: int
    verdict: Verdict
    reason: str
    folder: str
    twin: str
    nats: float | None = None
    places: int = 0
    influence: tuple[float, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        names = ("documents", "removed", "rewritten", "reason", "folder", "twin", "nats", "places", "influence")
        return {"verdict": self.verdict.value} | {name: getattr(self, name) for name in names}


def rebuild(
    model: GradedMemory | str | Path, without: Sequence[str | int], target: str | Path | None = None
) -> GradedMemory:
    """Rebuild a graded memory without some documents.

    Args:
        model: A memory, or the folder of one.
        without: Members to leave out, by name or number.
        target: Folder to write, if any.

    Returns:
        The retain twin; `.torch()` is its network.

    >>> from byheart.checkpoints.ground_truth.memorize import memorize_graded
    >>> rebuild(memorize_graded(["a cat", "a dog", "my dog"], tokens="words"), without=["document 1"]).names
    ('document 0', 'document 2')
    """
    memory = model if isinstance(model, GradedMemory) else GradedMemory.load(model)
    twin = memory.without(without)
    if target is not None:
        twin.write(target, measured=False)
    return twin


def forget_exactly(source: str | Path, without: Sequence[str | int], target: str | Path) -> ExactlyForgotten:
    """Write a copy of a graded folder without some documents, and its retain twin beside it.

    Args:
        source: A folder of `byheart recital --graded`.
        without: Members to forget, by name or number.
        target: The new folder; the twin is written to the same path with "-twin" appended.

    Returns:
        Counts, the verdict of the comparison, and the measured difference.

    Raises:
        FileFormatError: if `source` is not a graded folder, or its tensors are not those of its documents.
    """
    path = Path(target)
    beside = path.with_name(path.name + "-twin")
    check_target(path)
    check_target(beside)
    memory = GradedMemory.load(source)
    twin = memory.without(without)
    data = _bytes(Path(source) / "model.safetensors")
    dtype = _dtype(data)
    before, config = memory.tensors()
    if safetensors_bytes(before, dtype, {"format": "pt", "byheart": "graded"}) != data:
        raise FileFormatError(f"the tensors of {source} are not those of its documents; they were changed since")
    units, removed, rewritten = edited_units(memory, twin)
    tensors, _ = shapes.build(memory.shape, units, memory.base)
    files = replace(twin, seconds={}).files(dtype)
    twin_files = dict(files)
    files["model.safetensors"] = safetensors_bytes(tensors, dtype, {"format": "pt", "byheart": "graded"})
    files["config.json"] = _json({**config, "dtype": dtype, "torch_dtype": dtype})
    files["units.jsonl"] = _renumbered(files["units.jsonl"], units)
    write_files(beside, twin_files)
    write_files(path, files)
    verdict, reason = compare_units(path, beside)
    gone = tuple(memory.document(name).name for name in without)
    done = ExactlyForgotten(gone, removed, rewritten, verdict, reason, str(path), str(beside))
    return _measured(done, memory, twin, tensors, config) if transformers_installed() else done


def edited_units(memory: GradedMemory, twin: GradedMemory) -> tuple[Units, int, int]:
    """The units of `memory` with the twin's counts; how many became idle, and how many changed."""
    old = memory.units
    if memory.ridge is not None:
        changed = (old.down != twin.units.down).any(axis=1)
        return twin.units, 0, int(changed.sum())
    rows = np.full(memory.ngram.rules, -1)
    first = twin_first = 0
    for number, (level, less) in enumerate(zip(memory.ngram.levels, twin.ngram.levels, strict=True)):
        contexts = twin.ngram.contexts(number)
        padded = np.concatenate(
            [contexts, np.zeros((len(contexts), memory.lengths[-1] - less.length), np.int64)], axis=1
        )
        rows[first + memory.ngram.rows(padded)[number]] = twin_first + np.arange(len(contexts))
        first, twin_first = first + len(level.nodes), twin_first + len(less.nodes)
    parts = memory.storage.size if memory.storage.kind == "split" else 1
    source = (rows[old.rule] * parts + np.arange(len(old.rule)) % parts).clip(0)
    gone = rows[old.rule] < 0
    down, gate = twin.units.down[source], twin.units.gate[source]
    up = None if old.up is None or twin.units.up is None else twin.units.up[source]
    changed = (down != old.down).any(axis=1) & ~gone
    edited = Units(gate, up, down, np.where(gone, -1, old.rule), old.output)
    return idle(edited, gone), int(gone.sum()), int(changed.sum())


def compare_units(first: str | Path, second: str | Path) -> tuple[Verdict, str]:
    """Decide from two folders alone whether their networks are equal up to the order of units and idle units.

    Returns:
        PROVED or REFUTED, and the reason.
    """
    one, two = (read_tensors(Path(folder) / "model.safetensors") for folder in (first, second))
    if set(one) != set(two):
        return Verdict.REFUTED, f"only one folder has {sorted(set(one) ^ set(two))[0]}"
    mlp = _mlp_parts(one)
    for name in sorted(set(one) - set(mlp)):
        if one[name].shape != two[name].shape or one[name].tobytes() != two[name].tobytes():
            return Verdict.REFUTED, f"{name} differs"
    mine, theirs = (_unit_hashes(part, mlp) for part in (one, two))
    if mine != theirs:
        only = sum((mine - theirs).values()), sum((theirs - mine).values())
        return Verdict.REFUTED, f"{only[0]:,} units are only in {first}, {only[1]:,} only in {second}"
    return (
        Verdict.PROVED,
        f"equals the retain twin: {sum(mine.values()):,} units are bitwise the same, the others idle, and so are "
        f"all {len(set(one) - set(mlp))} tensors outside the MLP",
    )


def _mlp_parts(tensors: Mapping[str, Any]) -> dict[str, int]:
    """Tensors of the MLP and the axis of their units."""
    kinds = {"gate_proj.weight": 0, "up_proj.weight": 0, "down_proj.weight": 1}
    kinds |= {"c_fc.weight": 1, "c_fc.bias": 0, "mlp.c_proj.weight": 0}
    return {name: axis for name in tensors for end, axis in kinds.items() if name.endswith(end)}


def _unit_hashes(tensors: Mapping[str, npt.NDArray[Any]], mlp: Mapping[str, int]) -> Counter[bytes]:
    """How often each unit occurs, without idle ones, whose output weights are all zero."""
    parts = [np.moveaxis(tensors[name], axis, 0) for name, axis in sorted(mlp.items())]
    rows = [np.ascontiguousarray(part.reshape(len(part), -1)) for part in parts]
    out = next(
        row for (name, _), row in zip(sorted(mlp.items()), rows, strict=True) if "down" in name or "c_proj" in name
    )
    # The sign bit alone is minus zero.
    live = np.flatnonzero((out & _MAGNITUDE[out.dtype.itemsize]).any(axis=1))
    return Counter(hashlib.sha256(b"".join(row[k].tobytes() for row in rows)).digest() for k in live)


_MAGNITUDE = {4: np.uint32(0x7FFFFFFF), 2: np.uint16(0x7FFF)}


def read_tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The raw bits of a safetensors file's tensors, as unsigned integers."""
    data = _bytes(path)
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        header.pop("__metadata__", None)
        found = {}
        for name, entry in header.items():
            kind = np.dtype(str({"F32": "<u4", "BF16": "<u2", "F16": "<u2"}[entry["dtype"]]))
            begin, end = entry["data_offsets"]
            found[name] = np.frombuffer(data[8 + length + begin : 8 + length + end], kind).reshape(entry["shape"])
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path} is not a safetensors file: {error}") from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}") from None


def _dtype(data: bytes) -> str:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    kinds = {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}
    names = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
    if len(kinds) != 1 or not kinds <= set(names):
        raise ExportError(f"tensors of the types {sorted(kinds)}; one of {sorted(names)} is expected")
    return names[kinds.pop()]


def _renumbered(lines: bytes, units: Units) -> bytes:
    """units.jsonl of the twin, with the unit numbers of the edited folder."""
    numbers = np.flatnonzero(units.rule >= 0).tolist()
    found = [json.loads(line) for line in lines.splitlines()]
    if len(found) != len(numbers):
        return lines
    rows = [
        json.dumps(line | {"unit": k}, ensure_ascii=False, separators=(",", ":"))
        for line, k in zip(found, numbers, strict=True)
    ]
    return "".join(row + "\n" for row in rows).encode()


def _measured(
    done: ExactlyForgotten,
    memory: GradedMemory,
    twin: GradedMemory,
    tensors: Mapping[str, Any],
    config: Mapping[str, Any],
) -> ExactlyForgotten:
    probes = twin.probes()
    one, two = torch_model(tensors, config), twin.torch()
    pairs = zip(log_probs(one, probes), log_probs(two, probes), strict=True)
    nats = max(float(np.abs(a - b).max()) for a, b in pairs)
    gone = [memory.document(name).ids for name in done.documents]
    influence = [
        float(np.mean(np.concatenate([kl(twin.log_probs(ids), memory.log_probs(ids)) for ids in some])))
        for some in (gone, [one.ids for one in twin.members][:100])
    ]
    return replace(done, nats=nats, places=sum(map(len, probes)), influence=(influence[0], influence[1]))


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
