"""A lookup's file of any kind, read again: the contents are proved to be all that its graph does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from byheart.data.read.cells import CellType
from byheart.export.lookup.hashed import HashedLookup, read_hashed
from byheart.export.lookup.joined import JoinedLookup, read_joined
from byheart.export.lookup.listed import read_lookup
from byheart.export.lookup.rows import TableLookup


def read_table_file(
    model: Any, columns: Sequence[tuple[str, CellType]], label_type: CellType, record: dict[str, Any]
) -> TableLookup | JoinedLookup | HashedLookup:
    """The contents of a lookup's file of any kind, proved to be all that its graph does.

    Args:
        model: The `onnx.ModelProto` of the file.
        columns: Names and types of the input columns.
        label_type: The type of the labels.
        record: The file's record.

    Returns:
        The lookup whose graph is the file's graph.

    Raises:
        FileFormatError: The graph differs from the graph of the tables that it contains.
    """
    read = read_hashed if "hashed" in record else read_joined if "joined" in record else read_lookup
    return read(model, columns, label_type, record)
