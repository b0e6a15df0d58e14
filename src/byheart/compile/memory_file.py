"""The file of a memory: one JSON document, documented in docs/file-format.md.

{"byheart": version of the format, "sha256": of the canonical text of "memory", "memory": {...}}

The text is canonical (keys sorted, no spaces, ASCII), so a single changed byte shows: it breaks the JSON, the
checksum or the canonical form. Reading runs no code from the file and takes nothing on trust.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from byheart.certify import Certificate
from byheart.compile.memory import Memory
from byheart.data.dataset.encoder import Encoder
from byheart.data.read.selection import Selection
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.errors import ByheartError, FileFormatError
from byheart.files import write_atomically
from byheart.ir.claim import Claim
from byheart.ir.json_form import expect, network_from_json, network_to_json, take
from byheart.paper import PAPERS, Ref

FORMAT = 1
LARGEST = 1 << 31  # bytes
_BEGINNING = b'{"byheart":'


def save(memory: Memory, path: Path) -> None:
    """Writes to a temporary file beside `path`, then renames it: a reader sees the old file or the new one."""
    check_target(path)
    body = to_json(memory)
    text = _canonical({"byheart": FORMAT, "memory": body, "sha256": _digest(body)})
    write_atomically(path, text.encode("ascii"))


def check_target(path: Path) -> Path:
    """The path where something can be written, or an error before long work has begun."""
    if path.is_dir():
        raise FileFormatError(f"cannot write {path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise FileFormatError(f"cannot write {path}: there is no folder {str(path.parent)!r}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise FileFormatError(f"cannot write {path}: no permission to write into {str(path.parent)!r}")
    return path


def load(path: str | Path) -> Memory:
    """The memory in a file; a FileFormatError for a damaged or foreign file, never a wrong answer."""
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST:
            raise FileFormatError(f"{path} is larger than any memory ({LARGEST} bytes)")
        data = path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}") from error
    try:
        return from_json(_checked_body(data))
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from error
    except (ByheartError, ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise FileFormatError(f"{path} is damaged: {error}") from error


def _checked_body(data: bytes) -> Any:
    try:
        document = json.loads(data.decode("ascii"), parse_float=_no_float, parse_constant=_no_float)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        if data.startswith(b"byheart decoder "):
            raise FileFormatError("this is a decoder; ask it with `byheart decoder FILE --prompt TEXT`") from None
        if not data.startswith(_BEGINNING[: len(data)]) or not data:
            raise FileFormatError("this is no byheart memory; give a file that `byheart memorize` wrote") from None
        raise FileFormatError(f"the file is damaged ({error}); build or copy it again") from None
    version = take(document, "byheart", int)
    if version != FORMAT:
        raise FileFormatError(
            f"format version {version}; this byheart reads version {FORMAT}: install a matching byheart"
        )
    strange = sorted(set(document) - {"byheart", "memory", "sha256"})
    if strange:
        raise FileFormatError(f"the field {strange[0][:40]!r} is none of this format: the file is damaged")
    body = take(document, "memory", dict)
    if take(document, "sha256", str) != _digest(body):
        raise FileFormatError("the checksum does not match: the file is damaged; build or copy it again")
    if _canonical(document).encode("ascii") != data:
        raise FileFormatError(
            "the text is not in canonical form: the file was edited or damaged; build or copy it again"
        )
    return body


def _no_float(text: str) -> Any:
    raise FileFormatError(f"the number {text} is no integer")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _digest(body: Any) -> str:
    return hashlib.sha256(_canonical(body).encode("ascii")).hexdigest()


def to_json(memory: Memory) -> dict[str, Any]:
    claim = memory.claim
    return {
        "construction": memory.construction,
        "options": {name: _plain(value) for name, value in memory.options.items()},
        "seed": memory.seed,
        "network": network_to_json(memory.network),
        "encoder": memory.encoder.as_dict(),
        "classes": [label_to_json(label) for label in memory.classes],
        "claim": {
            "paper": claim.ref.paper,
            "label": claim.ref.label,
            "bounds": claim.bounds,
            "formulas": claim.formulas,
            "assumptions": list(claim.assumptions),
            "properties": list(claim.properties),
        },
        "certificate": memory.certificate.as_dict(),
        "notes": list(memory.notes),
        "tokens": memory.tokens.as_dict(),
        "selection": memory.selection.as_dict(),
    }


def from_json(body: Any) -> Memory:
    classes = tuple(label_from_json(label) for label in take(body, "classes", list))
    network = network_from_json(take(body, "network", dict))
    if len(classes) != network.readout.classes or len(set(classes)) != len(classes):
        raise FileFormatError(f"{len(classes)} classes are named, the network has {network.readout.classes}")
    encoder = Encoder.from_dict(take(body, "encoder", dict))
    if encoder.input_width != network.width_in:
        raise FileFormatError(f"tokens have {encoder.input_width} numbers, the network takes {network.width_in}")
    return Memory(
        construction=take(body, "construction", str),
        options=take(body, "options", dict),
        seed=take(body, "seed", int),
        network=network,
        encoder=encoder,
        classes=classes,
        claim=_claim(take(body, "claim", dict)),
        certificate=Certificate.from_dict(take(body, "certificate", dict)),
        notes=tuple(expect(note, str) for note in take(body, "notes", list)),
        tokens=Tokenizer.from_dict(body.get("tokens")),
        selection=Selection.from_dict(body.get("selection")),
    )


def _claim(value: Any) -> Claim:
    if take(value, "paper", str) not in PAPERS:
        raise FileFormatError(f"unknown paper {value['paper']!r}; a newer byheart may have written this file")
    return Claim(
        Ref(value["paper"], take(value, "label", str)),
        bounds={name: take(value["bounds"], name, int) for name in take(value, "bounds", dict)},
        formulas={name: take(value["formulas"], name, str) for name in take(value, "formulas", dict)},
        assumptions=tuple(expect(text, str) for text in take(value, "assumptions", list)),
        properties=tuple(expect(text, str) for text in take(value, "properties", list)),
    )


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def label_to_json(label: Hashable) -> Any:
    """Strings and ints below 2^53 as they are; anything else tagged with its type."""
    match label:
        case bool():
            return {"bool": label}
        case None:
            return {"none": True}
        case str():
            return label
        case int():
            return label if abs(label) < 1 << 53 else {"int": hex(label)}
        case float():
            return {"float": label.hex()}
        case bytes():
            return {"bytes": label.hex()}
        case tuple():
            return {"tuple": [label_to_json(part) for part in label]}
    raise FileFormatError(
        f"a label of type {type(label).__name__} ({label!r}) cannot be saved; use str, int or tuple labels"
    )


def label_from_json(value: Any) -> Hashable:
    if isinstance(value, str) or type(value) is int:
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((tag, content),) = value.items()
        if tag == "none":
            return None
        if tag == "bool" and isinstance(content, bool):
            return content
        if tag == "tuple":
            return tuple(label_from_json(part) for part in expect(content, list))
        if tag in ("int", "float", "bytes"):
            text = expect(content, str)
            return int(text, 16) if tag == "int" else float.fromhex(text) if tag == "float" else bytes.fromhex(text)
    raise FileFormatError(f"{str(value)[:40]!r} is no label of this format")
