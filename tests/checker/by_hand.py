"""Memories written by hand, without byheart: a table from single tokens to labels, and whatever is changed in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.checker.asked import check
from tests.checker.tampering import sealed


def value(x: Any) -> Any:
    """A label or a token as a file has it."""
    return {"float": x.hex()} if isinstance(x, float) else x


def lookup(answers: dict[Any, Any]) -> dict[str, Any]:
    """The body of a memory that gives each single token its label. Tokens are given in the order of the format."""
    labels = list(answers.values())
    classes = [label for k, label in enumerate(labels) if repr(label) not in map(repr, labels[:k])]
    numbers = [next(k for k, c in enumerate(classes) if repr(c) == repr(label)) for label in labels]
    rows = [[], *([[0, number]] if number else [] for number in numbers)]
    network = {
        "layers": [{"layer": "embedding", "table": {"columns": 1, "rows": rows}, "strides": [1]}],
        "read": "last",
        "readout": {"decode": "value", "classes": len(classes), "offset": 0},
        "stages": [],
    }
    encoder = {"task": "next-token", "positions": False, "length": 1, "dimension": 1, "padded": False}
    return {
        "construction": "by hand",
        "options": {},
        "seed": 0,
        "version": "0",
        "network": network,
        "encoder": encoder | {"symbols": [value(token) for token in answers], "pad_vector": None},
        "tokens": "words",
        "selection": {
            **{"sequence_columns": ["token"], "label_column": "label", "max_rows": None, "conflicts": "error"},
            **{"label_type": "auto", "missing": "error", "header": None, "encoding": None},
        },
        "classes": [value(label) for label in classes],
        "claim": {
            **{"paper": "byheart", "label": "a table", "bounds": {}, "formulas": {}},
            **{"assumptions": [], "properties": []},
        },
        "certificate": {
            **{"verdict": "proved", "reason": "", "fingerprint": "", "arithmetic": "", "guarantee": "none"},
            **dict.fromkeys(("rows", "asked", "agree", "differ", "labels", "contexts"), 0),
            **{"left_out": {}, "guaranteed": {}, "proofs": {}, "witness": None, "size": {}},
        },
        "notes": [],
    }


def measured(body: dict[str, Any]) -> dict[str, Any]:
    """The body with the sizes that its network has."""
    check.BUDGET.limit, check.BUDGET.done, check.BUDGET.kept = 10**15, 0, 0  # the check finds what is hostile in it
    body["certificate"]["size"] = check.Network(check.parse(body["network"], "layers", "network")).size()
    return body


def loaded(body: dict[str, Any]) -> Any:
    """The memory as the second checker has it."""
    return check.Memory(check.parse(measured(body), "memory", "memory"))


def write(folder: Path, body: dict[str, Any], name: str = "m.byheart") -> Path:
    """The file, with the sizes that its network has."""
    (folder / name).write_bytes(sealed(measured(body)))
    return folder / name
