"""Files that were changed and given a new checksum: their content is well-formed, and need not be true."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from byheart.files import canonical, digest


def rewrite(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The file with its body changed in place, and a right checksum."""
    document = json.loads(source.read_text())
    body = copy.deepcopy(document["memory"])
    change(body)
    target.write_text(canonical({"byheart": document["byheart"], "memory": body, "sha256": digest(body)}))
    return target


def matrices(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Every weight matrix of the network."""
    found = []
    for layer in body["network"]["layers"]:
        found += [part for part in layer.values() if isinstance(part, dict)]
        found += [matrix for head in layer.get("heads", []) for matrix in head.values() if matrix is not None]
    return found


def biases(body: dict[str, Any]) -> list[list[Any]]:
    return [
        part
        for layer in body["network"]["layers"]
        for name, part in layer.items()
        if name.startswith(("bias", "stream")) and part
    ]


def tamper(body: dict[str, Any], rng: random.Random) -> str:
    """One random change of what the file means; its name."""
    name = rng.choice(_OFTEN) if rng.random() < 0.4 else rng.choice(list(_CHANGES))
    _CHANGES[name](body, rng)
    return name


def _weight(body: dict[str, Any], rng: random.Random) -> None:
    cells = [row for matrix in matrices(body) for row in matrix["rows"] if row]
    row = rng.choice(cells)
    place = rng.randrange(len(row))
    value = rng.choice([7, -3, 1, "0x1p60", "-0x1p-3", None])
    if value is None:
        del row[place]  # a zero
    else:
        row[place][1] = value


def _bias(body: dict[str, Any], rng: random.Random) -> None:
    found = biases(body)
    if found:
        part = rng.choice(found)
        part[rng.randrange(len(part))] = rng.choice([0, 1, -5, "0x1p70", "0x3p-2"])


def _classes(body: dict[str, Any], rng: random.Random) -> None:
    body["classes"].append(body["classes"].pop(0))


def _class(body: dict[str, Any], rng: random.Random) -> None:
    place = rng.randrange(len(body["classes"]))
    old = body["classes"][place]
    body["classes"][place] = str(old) if isinstance(old, int) else {"tuple": [old]}


def _symbol(body: dict[str, Any], rng: random.Random) -> None:
    symbols = body["encoder"]["symbols"]
    if symbols:
        symbols[-1] = f"{symbols[-1]}~" if isinstance(symbols[-1], str) else symbols[-1] + 1


def _swap_layers(body: dict[str, Any], rng: random.Random) -> None:
    layers = body["network"]["layers"]
    i = rng.randrange(len(layers))
    j = rng.randrange(len(layers))
    layers[i], layers[j] = layers[j], layers[i]


def _claim_emptied(body: dict[str, Any], rng: random.Random) -> None:
    body["claim"]["bounds"] = {}


def _claim_raised(body: dict[str, Any], rng: random.Random) -> None:
    body["claim"]["bounds"] = {name: 10**9 for name in body["claim"]["bounds"]} or {"parameters": 10**9}


def _claim_renamed(body: dict[str, Any], rng: random.Random) -> None:
    body["claim"]["label"] = "Theorem 99"


def _properties(body: dict[str, Any], rng: random.Random) -> None:
    body["claim"]["properties"] = [] if body["claim"]["properties"] else ["exact in any order: float64"]


def _construction(body: dict[str, Any], rng: random.Random) -> None:
    body["construction"] = rng.choice(["ks25", "compact", "native", "nilsson65", "miracle"])


def _length(body: dict[str, Any], rng: random.Random) -> None:
    body["encoder"]["length"] += rng.choice([1, -1])
    body["encoder"]["length"] = max(1, body["encoder"]["length"])


def _padded(body: dict[str, Any], rng: random.Random) -> None:
    body["encoder"]["padded"] = not body["encoder"]["padded"]


def _offset(body: dict[str, Any], rng: random.Random) -> None:
    body["network"]["readout"]["offset"] += 1


def _read(body: dict[str, Any], rng: random.Random) -> None:
    body["network"]["read"] = rng.choice(["last", "each", "pooled"])


def _certificate(body: dict[str, Any], rng: random.Random) -> None:
    body["certificate"]["fingerprint"] = "0" * 64
    body["certificate"]["rows"] = body["certificate"]["asked"] = 10**6


def _size(body: dict[str, Any], rng: random.Random) -> None:
    body["certificate"]["size"]["parameters"] = 1


_CHANGES: dict[str, Callable[[dict[str, Any], random.Random], None]] = {
    "weight": _weight,
    "bias": _bias,
    "classes": _classes,
    "class": _class,
    "symbol": _symbol,
    "swap layers": _swap_layers,
    "claim emptied": _claim_emptied,
    "claim raised": _claim_raised,
    "claim renamed": _claim_renamed,
    "properties": _properties,
    "construction": _construction,
    "length": _length,
    "padded": _padded,
    "offset": _offset,
    "read": _read,
    "certificate": _certificate,
    "size": _size,
}
_OFTEN = ("weight", "bias")  # where most of a file is
