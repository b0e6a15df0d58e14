"""The fingerprint of a data set: equal for the same task, rows and labels, whatever their order and repetition.

It is a SHA-256 over canonical bytes (sorted JSON and little-endian integers), so it is the same on every machine.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np

from byheart.data.dataset.distinct import Index, sorted_distinct_rows
from byheart.data.dataset.encoder import Encoder
from byheart.data.dataset.labels import Classes
from byheart.data.task import Task
from byheart.data.values import to_json
from byheart.errors import DataError
from byheart.ir.network import Inputs

VERSION = "byheart data 1"
_CHUNK = 1 << 14  # points written out at once


def fingerprint(encoder: Encoder, inputs: Inputs, labels: Index, classes: Classes) -> str:
    """Hexadecimal SHA-256 of the data. Points must be numbered in their canonical order, as `encode` does."""
    names = [_canonical(label) for label in classes]
    rank = np.empty(len(names) + 1, dtype=np.int64)
    rank[np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)] = np.arange(len(names))
    rank[-1] = -1  # no label
    index = np.sort(inputs.index, axis=1) if encoder.task is Task.SET else inputs.index
    table = np.concatenate([index, rank[labels].reshape(len(index), -1)], axis=1)
    head = {"version": VERSION, "encoder": encoder.as_dict(), "classes": sorted(names), "shape": table.shape[1]}
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    digest.update(f"points over {inputs.points.denominator:x}: ".encode())
    for start in range(0, inputs.points.count, _CHUNK):
        digest.update("".join(map("{:x} ".format, inputs.points.numerators[start : start + _CHUNK].flat)).encode())
    digest.update(sorted_distinct_rows(table).astype("<i8").tobytes())
    return digest.hexdigest()


def _canonical(label: object) -> str:
    try:
        return json.dumps(to_json(label))
    except DataError:
        return f"{type(label).__qualname__} {label!r}"
