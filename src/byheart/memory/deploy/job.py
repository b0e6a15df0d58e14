"""What is deployed: the rows under the names of the inputs, how they were read, and where the file goes."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from byheart.data.read.account import Account
from byheart.data.read.cells import CellTable, CellType
from byheart.data.tokens.front import Front
from byheart.data.wording import quote
from byheart.errors import DataError
from byheart.export.onnx_table import GraphLabels, TableSignature
from byheart.progress import Progress


@dataclass(frozen=True)
class NetworkOptions:
    """The options that only a network has; `bits` None: unknown rows are recognised exactly."""

    tokens: str
    bits: int | None
    dtype: str
    seed: int
    executor: Executor | None = None
    resume: str | Path | None = None

    @property
    def given(self) -> bool:
        return self.tokens != "auto" or self.dtype != "float64"


@dataclass(frozen=True)
class DeployJob:
    """The rows to export, and where to."""

    table: CellTable
    account: Account
    record: dict[str, Any]
    path: Path | None
    progress: Progress


def record_text(job: DeployJob, front: Front, answers: GraphLabels, more: dict[str, Any]) -> str:
    """How the file's columns are read again: what `byheart verify` and `predict` take from it.

    Names and types that the graph's inputs and outputs have are not repeated: a small file would be a tenth longer.
    """
    found, label = more | ({"read": job.record} if job.record else {}), job.table.label
    if TableSignature.of(front).matrix is not None:
        found["columns"] = {name: type.value for name, type in front.named_types}
    if label.type is not answers.type:
        found["label"] = [label.name, label.type.value]
    elif "as" in found or not label.name:
        found["label"] = label.name
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def free_name(table: CellTable) -> str:
    taken = {column.name for column in table.columns}
    return next(name for name in map("column {}".format, itertools.count(1)) if name not in taken)


def named(table: CellTable) -> CellTable:
    """Every input of a graph needs a name, which the first column of many a table lacks."""
    taken = {column.name for column in table.columns}
    free = free_name(table)
    columns = tuple(column if column.name else replace(column, name=free) for column in table.columns)
    told = () if "" not in taken else (f"the column without a name is the input {free!r}",)
    return replace(table, columns=columns, remarks=(*table.remarks, *told))


def check_texts(table: CellTable) -> None:
    """Texts that ONNX cannot hold: halves of surrogate pairs, which are not Unicode."""
    for column in (*table.columns, table.label):
        if column.type is CellType.TEXT:
            for cell, number in zip(column.cells, table.numbers, strict=True):
                if not cell.isascii() and any("\ud800" <= letter <= "\udfff" for letter in cell):
                    raise DataError(
                        f"{table.unit} {number}: {quote(cell)} in {column.name!r} is not Unicode, which ONNX needs"
                    )
