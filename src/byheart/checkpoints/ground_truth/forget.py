"""Models whose every memory is known: forgetting a document exactly, and proving that nothing else changed.

A folder of the flavour `units` has its own hidden units for every memorized window, and ground-truth.jsonl lists the
documents and positions each one serves. `forget` removes the units that serve one document alone: an oracle for
unlearning. It works for every architecture that is offered, and for a recital that was never written.

    byheart.checkpoints.forget("all", "document 3", "without-3").certificate.verdict

    >>> from byheart.checkpoints.recital import memorize_recital
    >>> done = forget(memorize_recital(["the cat sat", "a dog ran"], names=["cat", "dog"], form="rules"), "dog")
    >>> done.memory.generate("the c"), done.silent > 0, done.certificate.verdict.value
    ('at sat', True, 'proved')
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from byheart.certify import Verdict
from byheart.checkpoints.formats.folder import check_target, write_files
from byheart.checkpoints.proof import FolderComparison, compare_checkpoints
from byheart.checkpoints.recital import RecitalMemory
from byheart.checkpoints.windows.certificate import RecitalCertificate, certify_removal
from byheart.checkpoints.windows.controls import number_of
from byheart.checkpoints.windows.tables import UNKNOWN, Recital, WindowTable
from byheart.data.tokens.script import Absent, Script
from byheart.errors import DataError, ExportError, FileFormatError, OptionError
from byheart.files import building

_UNITS: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<u4"),
    "bfloat16": np.dtype("<u2"),
    "float16": np.dtype("<u2"),
}
_TINY = {"float32": 0x38800000, "bfloat16": 0x3880, "float16": 0x0400}  # 2^-14 in each type
_STALE = ("expected.json", "test_recital.py")  # they speak of the folder as it was

Row = tuple[int, int]  # (table, row)


@dataclass(frozen=True)
class Forgotten:
    """The result of `forget`.

    Attributes:
        document: The document's name.
        removed: Removed units as (layer, unit), or (table, row) of a recital that was never written.
        shared: Units of the document that other documents need too; they stay.
        silent: Places of the document that are no longer memorized.
        still: Places of the document that shared windows answer.
        certificate: The proof about everything that stays.
        changed: Names of the tensors that differ.
        unchanged: How many tensors are bitwise the same.
        memory: The remaining memory, where a memory was given.
    """

    document: str
    removed: tuple[tuple[int, int], ...]
    shared: tuple[tuple[int, int], ...]
    silent: int
    still: int
    certificate: FolderComparison | RecitalCertificate
    changed: tuple[str, ...] = ()  # names of tensors
    unchanged: int = 0  # how many tensors are bitwise the same
    memory: RecitalMemory | None = None  # what is left, where a memory was given

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        certificate = self.certificate
        proof: dict[str, Any] = {"verdict": certificate.verdict.value, "reason": certificate.reason}
        if isinstance(certificate, FolderComparison):
            proof["same"] = certificate.same
        names = ("document", "removed", "shared", "silent", "still", "changed", "unchanged")
        return {name: getattr(self, name) for name in names} | {"certificate": proof}


def forget(model: RecitalMemory | str | Path, document: str | int, target: str | Path | None = None) -> Forgotten:
    """Remove what serves one document alone: from a memory, or in a copy of a folder.

    No other weight changes: a removed unit's weights become those of an idle unit. Windows that other documents share
    stay as they are, also where they have several continuations, and are counted. The certificate is computed from the
    result: everything that stays is proved again.

    Args:
        model: A memory, or a checkpoint folder of the flavour `units`.
        document: Its name or number.
        target: Where to write the folder without the document; only for a folder.

    Returns:
        What was removed, what stays, and the certificate.

    Raises:
        OptionError: If a folder has no `target`, or a memory has one.
    """
    if isinstance(model, RecitalMemory):
        if target is not None:
            raise OptionError("a RecitalMemory is not written anywhere; omit `target`, or give a checkpoint folder")
        return _forget_in_memory(model, number_of(model.script.names, document))
    if target is None:
        raise OptionError("a folder is never changed in place; give a folder for the one without the document")
    source, path = Path(model), Path(target)
    check_target(path)
    about, truth = _read(source)
    recital, script = _described(about)
    number = number_of(script.names, document)
    own, _ = _owners(recital, script, number)
    removed = [(line["layer"], line["unit"]) for line in truth if (line["table"], line["row"]) in own]
    shared = [(line["layer"], line["unit"]) for line in truth if _served(line, number) and _row(line) not in own]
    left, rest = _without(recital, own), _dismissed(script, number)
    files = {file.name: file.read_bytes() for file in sorted(source.iterdir()) if file.is_file()}
    config = _json(files["config.json"], source)
    data, changed, total = _silence(files["model.safetensors"], removed, about["dtype"], config)
    files |= {"model.safetensors": data, "recital.json": _about(about, left, rest)}
    files["ground-truth.jsonl"] = _truth(truth, own, number, rest)
    card = files.get("README.md", b"").decode("utf-8")
    files["README.md"] = _card(card, script.names[number], len(removed), "not proved yet").encode()
    with building(path) as draft:
        write_files(draft, {name: content for name, content in files.items() if name not in _STALE})
        certificate = _compare(source, draft, script, number)
        outcome = f"{certificate.verdict.value}: {certificate.reason}"
        if certificate.same and certificate.verdict is not Verdict.PROVED:
            outcome += "; that nothing else changed is proved"
        (draft / "README.md").write_text(_card(card, script.names[number], len(removed), outcome), encoding="utf-8")
    silent, still = _still_recited(recital, left, script.documents[number])
    return Forgotten(
        script.names[number], tuple(removed), tuple(shared), silent, still, certificate, tuple(changed),
        total - len(changed),
    )  # fmt: skip


def _forget_in_memory(memory: RecitalMemory, number: int) -> Forgotten:
    recital, script = memory.recital, memory.script
    own, shared = _owners(recital, script, number)
    left, rest = _without(recital, own), _dismissed(script, number)
    report = memory.report | {"documents": len(rest.documents), "places": rest.places}
    report["windows"] = [len(table.windows) for table in left.tables]
    fresh = replace(memory, recital=left, script=rest, report=report)
    silent, still = _still_recited(recital, left, script.documents[number])
    certificate = certify_removal(recital, left, script.documents, number)
    return Forgotten(
        script.names[number], tuple(sorted(own)), tuple(sorted(shared)), silent, still, certificate, memory=fresh
    )


def _owners(recital: Recital, script: Script, number: int) -> tuple[set[Row], set[Row]]:
    """The rows that serve this document alone, and those that it shares; an OptionError if nothing is its own."""
    serving: dict[Row, set[int]] = {}
    for document, ids in enumerate(script.documents):
        states = recital.states(ids[:-1])
        for depth, table in enumerate(recital.tables):
            for row in set(table.rows_of(states[depth]).tolist()) - {-1}:
                serving.setdefault((depth, row), set()).add(document)
    own = {row for row, documents in serving.items() if documents == {number}}
    shared = {row for row, documents in serving.items() if number in documents and documents != {number}}
    if len(script.documents) == 1:
        raise OptionError("this is the only document; nothing would be left")
    if not own:
        raise OptionError(
            f"all {len(shared)} windows of {script.names[number]!r} serve other documents too; it has none of its own"
        )
    return own, shared


def _without(recital: Recital, own: set[Row]) -> Recital:
    tables = []
    for depth, table in enumerate(recital.tables):
        kept = [row for row in range(len(table.windows)) if (depth, row) not in own]
        tables.append(WindowTable(table.offsets, table.windows[kept], table.outputs[kept], table.far, table.void))
    return Recital(recital.vocabulary, tuple(tables), recital.answers, recital.unknown)


def _dismissed(script: Script, number: int) -> Script:
    """The script in which one document is absent and recorded as absent."""

    def rest(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(value for k, value in enumerate(values) if k != number)

    gone = Absent(
        script.names[number], script.documents[number], "forgotten", script.edits[number], script.weights[number]
    )
    documents, weights, names, edits = map(rest, (script.documents, script.weights, script.names, script.edits))
    return Script(documents, weights, names, edits, (*script.absent, gone))


def _still_recited(before: Recital, after: Recital, ids: Sequence[int]) -> tuple[int, int]:
    """How many places of a document are not known any more, and how many still are."""
    was, now = before.follow(ids[:-1]) != UNKNOWN, after.follow(ids[:-1]) != UNKNOWN
    return int((was & ~now).sum()), int(now.sum())


def _compare(before: Path, after: Path, script: Script, number: int) -> FolderComparison:
    gone = [one for one in script.absent if one.weight]  # forgotten earlier, still counted where windows are shared
    documents = [*script.documents, *(one.ids for one in gone)]
    weights = [*script.weights, *(one.weight for one in gone)]
    away = range(len(script.documents), len(documents))
    return compare_checkpoints(before, after, documents, {number}, copies=weights, ignored=away)


def _json(data: bytes, folder: Path) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise FileFormatError(f"a file of {folder} is not JSON: {error}") from None


def _read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """recital.json, and the lines of ground-truth.jsonl that are about units."""
    try:
        about = json.loads((folder / "recital.json").read_text(encoding="utf-8"))
        lines = (folder / "ground-truth.jsonl").read_text(encoding="utf-8").splitlines()
        return about, [line for line in map(json.loads, lines) if line["layer"] is not None]
    except (OSError, ValueError, KeyError, TypeError) as error:
        if (folder / "graded.json").is_file():
            raise OptionError(
                f"{folder} is a graded folder: use `byheart forget --exact`, or "
                "byheart.checkpoints.ground_truth.twins.forget_exactly"
            ) from None
        raise FileFormatError(
            f"{folder} has no ground truth: export it with the flavour `units`, which has one unit per window ({error})"
        ) from None


def _described(about: Mapping[str, Any]) -> tuple[Recital, Script]:
    try:
        script = Script.from_json(about["documents"], about.get("absent", ()))
        return Recital.from_json(about["recital"]), script
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise FileFormatError(f"recital.json is damaged: {error}") from None


def _row(line: Mapping[str, Any]) -> Row:
    return line["table"], line["row"]


def _served(line: Mapping[str, Any], number: int) -> bool:
    return any(place["document"] == number for place in line["places"])


def _about(about: Mapping[str, Any], left: Recital, rest: Script) -> bytes:
    new = {**about, "recital": left.to_json(), "documents": rest.to_json(), "absent": rest.absent_json()}
    return json.dumps({**new, "fingerprint": rest.fingerprint}, separators=(",", ":")).encode()


def _truth(truth: Sequence[dict[str, Any]], own: set[Row], number: int, rest: Script) -> bytes:
    """The lines of what is left, with rows and documents numbered as they are now."""
    fewer = {depth: sorted(row for where, row in own if where == depth) for depth in {depth for depth, _ in own}}
    lines: list[dict[str, Any]] = []
    for line in truth:
        if _row(line) in own:
            continue
        row = line["row"] - int(np.searchsorted(fewer.get(line["table"], []), line["row"]))
        places = [
            place | {"document": place["document"] - (place["document"] > number)}
            for place in line["places"]
            if place["document"] != number
        ]
        lines.append(line | {"row": row, "places": places})
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [*lines, *rest.roles()]).encode()


def _card(card: str, name: str, units: int, proof: str) -> str:
    """The model card: its proof was of other tensors, and it no longer lists the document."""
    words = f"{name!r} was forgotten: {units:,} units were removed, no other weight was changed ({proof})."
    card = re.sub(r"(?s)(## How that was proved\n\n).*?(\n\n## Documents)", lambda m: m[1] + words + m[2], card)
    return "".join(line for line in card.splitlines(keepends=True) if not line.startswith(f"- {name}: "))


@dataclass(frozen=True)
class _Part:
    """A tensor of an MLP with `blocks` entries per unit along `axis`; `last`: units are what it reads."""

    name: str
    axis: int
    last: bool = False
    blocks: int = 1


def _gated(prefix: str) -> tuple[_Part, ...]:
    return (
        _Part(prefix + "gate_proj.weight", 0),
        _Part(prefix + "up_proj.weight", 0),
        _Part(prefix + "down_proj.weight", 1, last=True),
    )


def _plain(first: str, second: str, *, turned: bool = False) -> tuple[_Part, ...]:
    weight, last = (1, 0) if turned else (0, 1)
    return (
        _Part(f"{first}.weight", weight),
        _Part(f"{first}.bias", 0),
        _Part(f"{second}.weight", last, last=True),
    )


def _parts(config: Mapping[str, Any], layer: int, unit: int) -> tuple[tuple[_Part, ...], int]:
    """The tensors that a unit is a part of, in the stock names of its architecture, and its number inside them."""
    kind, layers = config.get("model_type"), f"model.layers.{layer}."
    if kind == "mixtral":
        expert, inside = divmod(unit, int(config["intermediate_size"]))
        prefix = f"{layers}block_sparse_moe.experts.{expert}."
        first = tuple(_Part(f"{prefix}{name}.weight", 0) for name in ("w1", "w3"))
        return (*first, _Part(f"{prefix}w2.weight", 1, last=True)), inside
    if kind == "qwen3_moe":
        expert, inside = divmod(unit, int(config["moe_intermediate_size"]))
        return _gated(f"{layers}mlp.experts.{expert}."), inside
    if kind == "phi3":
        prefix = f"{layers}mlp."
        fused = _Part(prefix + "gate_up_proj.weight", 0, blocks=2)
        return (fused, _Part(prefix + "down_proj.weight", 1, last=True)), unit
    if kind == "gpt2":
        prefix = f"transformer.h.{layer}.mlp."
        return _plain(prefix + "c_fc", prefix + "c_proj", turned=True), unit
    if kind == "opt":
        prefix = f"model.decoder.layers.{layer}."
        return _plain(prefix + "fc1", prefix + "fc2"), unit
    if kind == "gpt_neox":
        prefix = f"gpt_neox.layers.{layer}.mlp."
        return _plain(prefix + "dense_h_to_4h", prefix + "dense_4h_to_h"), unit
    return _gated(f"{layers}mlp."), unit


def _silence(
    data: bytes, removed: Sequence[tuple[int, int]], dtype: str, config: Mapping[str, Any]
) -> tuple[bytes, list[str], int]:
    """The tensors without some units; also the names of those that changed, and how many there are."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = bytearray(data)
    inside: dict[_Part, list[int]] = {}
    for layer, unit in removed:
        parts, number = _parts(config, layer, unit)
        for part in parts:
            inside.setdefault(part, []).append(number)
    for part, numbers in inside.items():
        if part.name not in header:
            raise ExportError(f"{part.name} is missing, so the units of a {config.get('model_type')} are not known")
        shape, begin = header[part.name]["shape"], 8 + length + header[part.name]["data_offsets"][0]
        view: Any = np.frombuffer(body, _UNITS[dtype], count=int(np.prod(shape)), offset=begin).reshape(shape)
        size = shape[part.axis] // part.blocks
        where = [block * size + number for block in range(part.blocks) for number in numbers]
        _make_idle(view if part.axis == 0 else view.T, where, dtype, last=part.last)
    return bytes(body), [part.name for part in inside], len(header)


def _make_idle(units: Any, where: list[int], dtype: str, *, last: bool) -> None:
    """Writes into (units, channels), or a bias (units,): what idle units have. No row of a stored matrix may be zero,
    since quantizers divide by its largest weight."""
    units[where] = 0
    if units.ndim == 1:
        return
    if last:
        bare = ~(units & _magnitude(dtype)).any(axis=0)
        units[where[0], bare] = _TINY[dtype]
    else:
        units[where, 0] = _TINY[dtype]


def _magnitude(dtype: str) -> int:
    """All bits but the sign's: minus zero is zero."""
    return (1 << (8 * _UNITS[dtype].itemsize - 1)) - 1
