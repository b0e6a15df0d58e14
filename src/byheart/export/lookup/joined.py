"""A table of several text columns as one list: the cells of a row, joined by a separator, are the key of its label.

Columns whose cells seldom repeat are smaller so: each row is listed once, where the other lookup lists the cells of
every column and then the rows. The separator occurs in no cell of the table. So every listed key has one separator
fewer than there are columns. A row whose cells contain the separator has more and is never listed, and any other row
is a listed one only if it has the same cells. Whole numbers are joined as their decimal digits.

>>> answers = GraphLabels.of(("x", "y"), CellType.TEXT)
>>> kinds = (("code", CellType.TEXT), ("size", CellType.WHOLE))
>>> lookup = JoinedLookup.of(kinds, None, [["a", "b|"], [7, -1]], [0, 1], answers)
>>> lookup.separator, lookup.rows()
(';', {('a', 7): 'x', ('b|', -1): 'y'})
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Front, FrontColumn
from byheart.errors import FileFormatError
from byheart.export.lookup.answers import answer_nodes
from byheart.export.lookup.encoders import cell_keys, text_bytes
from byheart.export.lookup.listed import take_lookup
from byheart.export.lookup.model import finish_lookup, proved_contents
from byheart.export.lookup.rows import TableLookup
from byheart.export.onnx_table import (
    ROWS,
    GraphLabels,
    TableSignature,
    graph_inputs,
)
from byheart.export.targets.onnx import Graph

_ROW = "row"
# Then the private characters of Unicode, which few texts contain.
_SEPARATORS = ("|", ";", "\t", "\x1f", *map(chr, range(0xE000, 0xE100)))
_NODE_BYTES = 60  # about what a node takes


@dataclass(frozen=True, eq=False)
class JoinedLookup:
    """The contents of a file.

    Attributes:
        columns: Names and types of the columns: texts and whole numbers.
        matrix: The type of the one input that all columns are, or None for an input per column.
        separator: Between the cells of a row; in none of them.
        listed: The lookup of the joined rows, a table of one column.
    """

    columns: tuple[tuple[str, CellType], ...]
    matrix: CellType | None
    separator: str
    listed: TableLookup

    @staticmethod
    def of(
        columns: Sequence[tuple[str, CellType]],
        matrix: CellType | None,
        cells: Sequence[Sequence[Any]],
        classes: Sequence[int],
        answers: GraphLabels,
    ) -> JoinedLookup | None:
        """The lookup of rows of cells, column by column, and the class of each; None where rows cannot be joined."""
        if len(columns) < 2 or not {kind for _, kind in columns} <= {CellType.TEXT, CellType.WHOLE}:
            return None
        letters = set(chain.from_iterable(chain.from_iterable(map(str, column) for column in cells)))
        separator = next((mark for mark in _SEPARATORS if mark not in letters), None)
        if separator is None or any(cell is None for column in cells for cell in column):
            return None
        texts = [separator.join(map(str, row)) for row in zip(*cells, strict=True)]
        front = Front((FrontColumn(_ROW, CellType.TEXT, Cells.of(texts)),))
        listed = TableLookup.of(front, [texts], classes, answers)
        return JoinedLookup(tuple(columns), matrix, separator, listed)

    @property
    def answers(self) -> GraphLabels:
        """The labels, and the value of an unknown row."""
        return self.listed.answers

    @property
    def keys(self) -> Cells:
        """The joined rows."""
        cutting = self.listed.front.columns[0].cutting
        assert isinstance(cutting, Cells)
        return cutting

    @property
    def stored_bytes(self) -> int:
        """About the bytes of the keys and of the nodes that join cells."""
        return text_bytes([str(text) for text in self.keys.values]) + 3 * len(self.columns) * _NODE_BYTES

    def record(self) -> dict[str, Any]:
        """What `read_joined` needs beside the graph."""
        return {"joined": self.separator}

    def rows(self) -> dict[tuple[Any, ...], Any]:
        """Every row that the file contains -> its label; a FileFormatError for a key that no row of cells has."""
        found = {}
        for (text,), label in self.listed.rows().items():
            parts = str(text).split(self.separator)
            if len(parts) != len(self.columns):
                raise FileFormatError(f"the key {text!r} is not a row of {len(self.columns)} cells")
            found[tuple(map(_cell, parts, (kind for _, kind in self.columns)))] = label
        return found


def _cell(part: str, kind: CellType) -> Any:
    if kind is CellType.TEXT:
        return part
    if not part.lstrip("-").isascii() or not part.lstrip("-").isdigit() or str(int(part)) != part:
        raise FileFormatError(f"{part!r} is not a whole number as the graph writes it")
    return int(part)


def build_joined_model(lookup: JoinedLookup, about: dict[str, str], label: str = "") -> Any:
    """The ONNX model of a joined lookup.

    Args:
        lookup: The contents of the file.
        about: Metadata of the model.
        label: The name of the label column.

    Returns:
        A checked `onnx.ModelProto`.
    """
    graph = Graph("float64")
    signature = TableSignature.named(tuple(name for name, _ in lookup.columns), lookup.matrix)
    inputs = graph_inputs(graph, lookup.columns, signature)
    joined = _joined(graph, lookup)
    answer_nodes(graph, cell_keys(graph, lookup.keys, CellType.TEXT), joined, lookup.listed, signature)
    return finish_lookup(graph, inputs, lookup.answers, signature, about, label)


def _joined(graph: Graph, lookup: JoinedLookup) -> str:
    """The joined cells of every row (batch,)."""
    parts = _texts(graph, lookup)
    mark, joined = graph.texts([lookup.separator], "separator"), parts[0]
    for part in parts[1:]:
        joined = graph.node("StringConcat", [graph.node("StringConcat", [joined, mark], "open"), part], "joined")
    return joined if lookup.matrix is None else graph.node("Squeeze", [joined, graph.whole([1], "axis")], "row_text")


def _texts(graph: Graph, lookup: JoinedLookup) -> list[str]:
    """The cells of every column as texts (batch,), or (batch, 1) of a matrix."""

    def as_text(name: str, kind: CellType) -> str:
        text = graph.onnx.TensorProto.STRING
        return graph.node("Cast", [name], "digits", to=text) if kind is CellType.WHOLE else name

    if lookup.matrix is None:
        return [as_text(name, kind) for name, kind in lookup.columns]
    count = len(lookup.columns)
    return graph.names("Split", [as_text(ROWS, lookup.matrix)], ["cells"] * count, axis=1, num_outputs=count)


def read_joined(
    model: Any, columns: Sequence[tuple[str, CellType]], label_type: CellType, record: dict[str, Any]
) -> JoinedLookup:
    """The contents of a joined lookup's file, proved to be all that its graph does.

    Args:
        model: The `onnx.ModelProto` of the file.
        columns: Names and types of the input columns.
        label_type: The type of the labels.
        record: The file's record.

    Returns:
        The lookup whose graph is the file's graph, node by node.

    Raises:
        FileFormatError: The graph differs from the graph of the table that it contains.
    """
    import onnx


    def take(graph: Any) -> JoinedLookup:
        listed = take_lookup(onnx, graph, [(_ROW, CellType.TEXT)], label_type, {})
        kinds = {kind for _, kind in columns}
        matrix = kinds.pop() if len(kinds) == 1 else None
        return JoinedLookup(tuple(columns), matrix, str(record["joined"]), listed)

    return proved_contents(model, "joined lookup", take, build_joined_model)
