"""A written graph in ONNX Runtime: every row of the table as a user will query it, and rows outside the table."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.read.cells import CellTable
from byheart.data.tokens.front import Front
from byheart.data.wording import quote
from byheart.errors import ExportError
from byheart.export.onnx_table import GraphLabels, TableSignature
from byheart.progress import Progress

# Rows at a time.
_BATCH = 4096
_OUTSIDE = 1000  # rows outside the table that are evaluated before the file is written


def recheck(
    session: Any, front: Front, signature: TableSignature, answers: GraphLabels, table: CellTable, progress: Progress
) -> None:
    """Evaluate every row as a user will; an ExportError names the first that is unknown or has another label."""
    with progress.stage("evaluating every row in ONNX Runtime", total=len(table)) as stage:
        for start in range(0, len(table), _BATCH):
            part = slice(start, start + _BATCH)
            feeds = signature.feeds(front, [column.cells[part] for column in table.columns])
            label, known = session.run([signature.label, signature.known], feeds)
            expected = np.array(table.label.cells[part], dtype=answers.array().dtype)
            wrong = np.flatnonzero(~(known & (label == expected)))
            if wrong.size:
                row = start + int(wrong[0])
                cells = [column.cells[row] for column in table.columns]
                raise ExportError(
                    f"the model returns {quote(label[wrong[0]])} for {table.unit} {table.numbers[row]} {quote(cells)}, "
                    f"whose label is {quote(table.label.cells[row])}; nothing was written. Please report this together "
                    "with the versions of onnx and onnxruntime"
                )
            stage.advance(len(label))


def evaluate_outside(session: Any, front: Front, signature: TableSignature, table: CellTable) -> tuple[int, int]:
    """Evaluate rows outside the table, each with the beginning of one row and the end of another, or next to a row.

    Returns how many were evaluated, and how many were accepted as known: about one in 2^abstain_bits is expected.
    """
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, len(table), (2 * _OUTSIDE, 2)).tolist()
    drawn: dict[tuple[Any, ...], None] = {}
    for one, two in pairs:
        cells = [(column.cells[one], column.cells[two]) for column in table.columns]
        cut = int(rng.integers(0, len(cells)))
        row = [a if k < cut else b for k, (a, b) in enumerate(cells)]
        a, b = cells[cut]
        if len(cells) == 1:
            row[cut] = _neither(a, b)
        drawn[tuple(row)] = None
    for known_row in zip(*(column.cells for column in table.columns), strict=True):
        drawn.pop(known_row, None)
    rows = list(drawn)[:_OUTSIDE]
    if not rows:
        return 0, 0
    feeds = signature.feeds(front, list(zip(*rows, strict=True)))
    known: npt.NDArray[np.bool_] = session.run([signature.known], feeds)[0]
    return len(rows), int(known.sum())


def _neither(a: Any, b: Any) -> Any:
    """A cell made of two: the beginning of one text and the end of another, or the number after the first.

    >>> _neither("abcd", "wxyz"), _neither(7, 9), _neither(0.5, None), _neither(True, False)
    ('abyz', 8, 0.5000000000000001, False)
    """
    if isinstance(a, str) and isinstance(b, str):
        return a[: len(a) // 2] + b[len(b) // 2 :]
    if isinstance(a, float):
        return math.nextafter(a, math.inf)
    return a + 1 if type(a) is int and a < (1 << 63) - 1 else b


def refuse_false_accepts(outside: tuple[int, int]) -> None:
    if outside[1]:
        raise ExportError(
            f"the model accepts {outside[1]} of {outside[0]} rows outside the table; nothing was written. Please "
            "report this together with the versions of onnx and onnxruntime"
        )


def example_of(signature: TableSignature, front: Front, table: CellTable) -> dict[str, list[Any]]:
    row = short_row(table)
    first = signature.feeds(front, [column.cells[row : row + 1] for column in table.columns])
    return {name: array.tolist() for name, array in first.items()}


def short_row(table: CellTable) -> int:
    """The first row that fits on a line or two of an example; the shortest where there is none."""
    lengths = (sum(len(str(column.cells[row])) for column in table.columns) for row in range(len(table)))
    found = list(itertools.islice(lengths, 1000))
    return next((row for row, length in enumerate(found) if length <= 100), found.index(min(found)))
