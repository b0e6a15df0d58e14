"""The file of a memory: one JSON document, documented in docs/file-format.md.

{"byheart": 3, "memory": {...}, "sha256": of the canonical text of "memory"}

The whole text is canonical (keys sorted, no spaces, ASCII, no newline at the end) and strict: an object has exactly its
fields and no key twice, a number is written in its one form, so a single changed byte shows. Reading runs no code from
the file and trusts none of its statements: `claim` and `certificate` are records, which `verify` compares.

`memory` has the fields construction, options (text, integers, true, false, null), seed, network, encoder, classes,
claim, certificate, notes, tokens, selection, and version, that of the byheart which wrote it. Classes are values as
symbols are: text, integers, true, false and null as they are, anything else as {"integer": …}, {"float": …},
{"bytes": …} or {"tuple": […]}.

Formats 1 and 2 are still read: `upgraded` makes bodies of format 3 of theirs. Format 2 called the certificate's
guarantee `promise` and `promised`, and did not store header and encoding of a table. Format 1 had no `version`, its
certificate no asked, agree, differ, left_out and guarantee, and its classes were tagged otherwise: {"bool": …},
{"none": true}, {"int": …}, {"float": …}, {"bytes": …}, {"tuple": […]}.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from byheart.certify import Certificate
from byheart.data.dataset.encoder import Encoder
from byheart.data.read.options import Selection
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.data.values import from_json as from_json_value
from byheart.data.values import key
from byheart.data.values import to_json as to_json_value
from byheart.errors import BudgetError, ByheartError, FileFormatError
from byheart.exact.budget import Budget, limited
from byheart.files import canonical, check_target, digest, parse, read_bytes, write_atomically
from byheart.ir.decoder_network import AnyNetwork, DecoderNetwork
from byheart.ir.json_form import (
    decoder_from_json,
    decoder_to_json,
    expect,
    network_from_json,
    network_to_json,
    only,
    take,
)
from byheart.ir.network import Read
from byheart.ir.size import Claim
from byheart.memory.memory import Memory
from byheart.theory.guarantees import is_guaranteed
from byheart.version import __version__

FORMAT = 3
LARGEST = 1 << 31  # bytes
DEFAULT = Budget()
_POWERS = re.compile(rb'p(-?[0-9]{5,7})"')  # of two: a few bytes of text that need many of memory
_BEGINNING = b'{"byheart":'
_RECITAL = b'{"format":"byheart recital'
_FIELDS = (
    *("construction", "options", "seed", "network", "encoder", "classes", "claim", "certificate", "notes", "tokens"),
    *("selection", "version"),
)
# What a certificate and a selection did not have before a format, with the values that files of earlier ones mean.
_RENAMED = {"promise": "guarantee", "promised": "guaranteed"}  # in format 3
_SELECTED: dict[int, dict[str, Any]] = {
    2: {"label_type": "auto", "missing": "error"},
    3: {"header": None, "encoding": None},
}


def save(memory: Memory, path: Path) -> None:
    """Write to a draft beside `path`, then renames it: a reader sees the old file or the new one."""
    check_target(path)
    body = to_json(memory)
    write_atomically(path, canonical({"byheart": FORMAT, "memory": body, "sha256": digest(body)}).encode("ascii"))


def load(path: str | Path, *, budget: Budget | None = DEFAULT) -> Memory:
    """Read the memory in a file. Its certificate is a record: `memory.verify(sequences, labels)` makes a new one.

    Args:
        path: The file.
        budget: The limit on the work of evaluating it, more than honest memories need; None sets none.

    Returns:
        The memory.

    Raises:
        FileFormatError: The file is damaged or foreign.
        BudgetError: It would need more than the budget.

    >>> import byheart, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "words.byheart"
    >>> byheart.memorize(["sun", "moon"], ["day", "night"], construction="ks25", progress=False).save(path)
    >>> byheart.load(path).verify(["sun", "moon"], ["day", "night"]).verdict.value
    'proved'
    """
    path = Path(path)
    data = read_bytes(path, LARGEST)
    try:
        with limited(budget) as limit:
            if limit is not None:
                limit.hold(sum(abs(int(power)) for power in _POWERS.findall(data)) // 8)
            return replace(from_json(*_checked_body(data)), budget=budget)
    except BudgetError as error:
        raise BudgetError(f"{path}: {error}") from None
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from error
    except (ByheartError, ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise FileFormatError(f"{path} is damaged: {error}") from error


def _checked_body(data: bytes) -> tuple[Any, int]:
    """The body and the version of its format, once text, version and checksum are right."""
    if data.startswith(_RECITAL):
        raise FileFormatError(
            "this is a recital; export it with `byheart export FILE --to huggingface`, then verify the folder"
        )
    try:
        document = parse(data.decode("ascii"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        if data.startswith(b"byheart decoder "):
            remedy = "build it again: byheart memorize DOCS --construction madden24"
            raise FileFormatError(
                f"this is a decoder of an older byheart, whose format is no longer read; {remedy}"
            ) from None
        if not data.startswith(_BEGINNING[: len(data)]) or not data:
            raise FileFormatError("this is not a byheart memory; give a file that `byheart memorize` wrote") from None
        raise FileFormatError(f"the file is damaged ({error}); build or copy it again") from None
    version = take(document, "byheart", int)
    if not 1 <= version <= FORMAT:
        raise FileFormatError(
            f"format version {version}; this byheart reads versions 1 to {FORMAT}: install a matching byheart"
        )
    only(document, "file", "byheart", "memory", "sha256")
    body = take(document, "memory", dict)
    if take(document, "sha256", str) != digest(body):
        raise FileFormatError("the checksum does not match: the file is damaged; build or copy it again")
    if canonical(document).encode("ascii") != data:
        raise FileFormatError(
            "the text is not in canonical form: the file was edited or damaged; build or copy it again"
        )
    return body, version


def to_json(memory: Memory) -> dict[str, Any]:
    """The body of the file."""
    return {
        "construction": memory.construction,
        "options": {name: _plain(value) for name, value in memory.options.items()},
        "seed": memory.seed,
        "network": any_network_to_json(memory.network),
        "encoder": memory.encoder.as_dict(),
        "classes": [to_json_value(label) for label in memory.classes],
        "claim": memory.claim.as_dict(),
        "certificate": memory.certificate.as_dict(),
        "notes": list(memory.notes),
        "tokens": memory.tokens.as_dict(),
        "selection": memory.selection.as_dict(),
        "version": __version__,
    }


def from_json(body: Any, version: int = FORMAT) -> Memory:
    """The memory of a body; everything is checked, and the certificate is a record."""
    first = version == 1
    if first and not {"tokens", "selection"} <= set(body):
        raise FileFormatError(
            "this file is of a byheart before its first release, which did not record how rows were read; memorize the "
            "data again"
        )
    only(body, "memory", *(_FIELDS[:-1] if first else _FIELDS))
    body = upgraded(body, version)
    for field in ("construction", "options", "claim", "certificate", "notes", *(() if first else ("version",))):
        _check_text(field, body[field])
    if not is_guaranteed(take(body, "construction", str)):
        # perhaps one in its own file, which also registers its paper and its guarantee
        importlib.import_module("byheart.build")
    stored = take(body, "classes", list)
    classes = tuple(_label_of_version_1(label) if first else from_json_value(label, "classes") for label in stored)
    network = any_network_from_json(take(body, "network", dict), first)
    distinct, count = len(set(map(key, classes))), _class_count(network)
    if len(classes) != count or distinct != len(classes):
        raise FileFormatError(f"{distinct} classes are named, the network has {count}")
    if not first and [to_json_value(label) for label in classes] != stored:
        raise FileFormatError("a class is not written in its canonical form")
    encoder = Encoder.from_dict(take(body, "encoder", dict))
    _check_inputs(network, encoder)
    if encoder.task.labels_per_token != (network.read is Read.EACH):
        raise FileFormatError(
            f"the network is read at {network.read} tokens, which does not fit the task {encoder.task}"
        )
    certificate = take(body, "certificate", dict)
    if "gap" in certificate and not (isinstance(network, DecoderNetwork) and encoder.positions):
        raise FileFormatError("a gap is recorded, but only a decoder with positions gives distributions")
    return Memory(
        construction=take(body, "construction", str),
        options={name: _option(name, value) for name, value in take(body, "options", dict).items()},
        seed=take(body, "seed", int),
        network=network,
        encoder=encoder,
        classes=classes,
        claim=Claim.from_dict(take(body, "claim", dict)),
        certificate=Certificate.from_dict(certificate),
        notes=tuple(expect(note, str) for note in take(body, "notes", list)),
        tokens=Tokenizer.from_dict(body["tokens"]),
        selection=Selection.from_dict(body["selection"]),
        recorded_by="format 1" if first else take(body, "version", str),
    )


def upgraded(body: dict[str, Any], version: int) -> dict[str, Any]:
    """Return a body of an earlier format with the certificate and the selection of this one.

    Args:
        body: The field `memory` of a file.
        version: The file's format.

    Raises:
        FileFormatError: A field is there that its format does not have.
    """
    certificate, selection = take(body, "certificate", dict), expect(body["selection"], dict)
    for later in range(version + 1, FORMAT + 1):
        _refuse_later("selection", selection, _SELECTED[later], version)
        selection = {**selection, **_SELECTED[later]}
    if version < FORMAT:
        _refuse_later("certificate", certificate, _RENAMED.values(), version)
        certificate = {_RENAMED.get(name, name): value for name, value in certificate.items()}
    if version == 1:  # which counted only the rows that were memorized
        rows = take(certificate, "rows", int)
        added = {"asked": rows, "agree": rows, "differ": 0, "left_out": {}, "guarantee": "not checked: format 1"}
        _refuse_later("certificate", certificate, (*added, "gap"), version)
        certificate = {**certificate, **added}
    return {**body, "certificate": certificate, "selection": selection}


def _refuse_later(what: str, stored: Mapping[str, Any], later: Iterable[str], version: int) -> None:
    found = sorted(set(later) & set(stored))
    if found:
        raise FileFormatError(f"the {what} has a field {found[0]!r}, which format {version} does not have")


def _check_text(field: str, value: Any) -> None:
    """Refuse halves of surrogate pairs, which no output can encode; only tokens and classes may hold them."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        _check_text(field, name)
        _check_text(field, part)
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise FileFormatError(f"the field {field!r} holds half of a surrogate pair, which is not Unicode text")


def any_network_to_json(network: AnyNetwork) -> Any:
    """The field `network` of the body."""
    return decoder_to_json(network) if isinstance(network, DecoderNetwork) else network_to_json(network)


def any_network_from_json(value: dict[str, Any], first: bool = False) -> AnyNetwork:
    """Layers, or (not in format 1) a decoder."""
    return decoder_from_json(value) if "decoder" in value and not first else network_from_json(value)


def _class_count(network: AnyNetwork) -> int:
    return network.class_count if isinstance(network, DecoderNetwork) else network.readout.classes


def _check_inputs(network: AnyNetwork, encoder: Encoder) -> None:
    """What the encoder gives is what the network takes."""
    if isinstance(network, DecoderNetwork):
        symbols = encoder.symbols or ()
        if len(symbols) != len(network.inputs) or encoder.length != network.decoder.length:
            raise FileFormatError(
                f"{len(symbols)} symbols in rows of {encoder.length} do not fit a decoder of {len(network.inputs)} "
                f"symbols and rows of {network.decoder.length}"
            )
        if encoder.task not in (Task.NEXT_TOKEN, Task.CAUSAL):
            raise FileFormatError(f"a decoder answers the tasks next-token and causal, not {encoder.task}")
    elif encoder.input_width != network.width_in:
        raise FileFormatError(f"tokens have {encoder.input_width} numbers, the network takes {network.width_in}")


def _option(name: str, value: Any) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    raise FileFormatError(f"the option {name[:40]!r} is not text, an integer, true, false or null")


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _label_of_version_1(value: Any) -> Hashable:
    if isinstance(value, str) or type(value) is int:
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((tag, content),) = value.items()
        if tag == "none":
            return None
        if tag == "bool" and isinstance(content, bool):
            return content
        if tag == "tuple":
            return tuple(_label_of_version_1(part) for part in expect(content, list))
        if tag in ("int", "float", "bytes"):
            text = expect(content, str)
            return int(text, 16) if tag == "int" else float.fromhex(text) if tag == "float" else bytes.fromhex(text)
    raise FileFormatError(f"{str(value)[:40]!r} is not a label of this format")
