"""What a practitioner would do without a network: a Python dict, a sorted array, and the least that labels need."""

from __future__ import annotations

import math
import sys

from byheart.compile.compare.rows import CompareRow
from byheart.data.dataset.dataset import Dataset


def baselines(dataset: Dataset) -> list[CompareRow]:
    """Bits of a dict from rows to labels, of a sorted array that is searched, and of the labels alone."""
    return [
        _row(
            "python dict", 8 * _dict_bytes(dataset), "a dict from rows to labels, as Python stores it", "exact look-up"
        ),
        _row("sorted array", _array_bits(dataset), "distinct rows and labels, packed and searched", "exact look-up"),
        _row(
            "information limit", _label_bits(dataset), "labels·log2 C: the labels alone, inputs for free", "no look-up"
        ),
    ]


def _row(name: str, bits: int, reason: str, kind: str) -> CompareRow:
    return CompareRow(name, "baseline", reason, summary=kind, total_bits=bits)


def _dict_bytes(dataset: Dataset) -> int:
    """The table, and its keys: rows as text (symbols) or as bytes of float64 (vectors)."""
    if dataset.encoder.symbols is None:
        size = 8 * dataset.encoder.dimension
        keys = {bytes(8) + row.tobytes() for row in dataset.inputs.index}  # rows of point numbers: as many, as distinct
        one = sys.getsizeof(bytes(size * dataset.n))
        table = dict.fromkeys(keys)
        return sys.getsizeof(table) + one * len(table)
    texts = dict.fromkeys("\x1f".join(map(str, row)) for row in dataset.sequences())
    return sys.getsizeof(texts) + sum(sys.getsizeof(text) for text in texts)


def _array_bits(dataset: Dataset) -> int:
    """Distinct rows times (bits of a row + bits of its labels)."""
    symbols = dataset.encoder.symbols
    token = 64 * dataset.encoder.dimension if symbols is None else max(1, len(symbols).bit_length())
    distinct = len({row.tobytes() for row in dataset.inputs.index})
    per_row = dataset.n if dataset.encoder.task.labels_per_token else 1
    label = max(1, (dataset.C - 1).bit_length())
    return distinct * (dataset.n * token + per_row * label)


def _label_bits(dataset: Dataset) -> int:
    return math.ceil(len(dataset.contexts) * math.log2(dataset.C)) if dataset.C > 1 else 0
