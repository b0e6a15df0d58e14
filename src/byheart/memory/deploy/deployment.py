"""The result of `deploy`: the model, what it costs, and how it is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from byheart.certify import Verdict
from byheart.data.read.account import Account
from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Front
from byheart.export.onnx_table import GraphLabels, TableSignature
from byheart.memory.memory import Memory
from byheart.notebook import card


@dataclass(frozen=True)
class Cost:
    """What one form of the same table costs: bytes of the file and seconds of one query.

    `estimated`: the bytes are the planner's estimate. `timed_rows`: the query was timed on a model of so many rows.
    """

    form: str
    bytes: int
    seconds: float
    estimated: bool = False
    timed_rows: int = 0

    def line(self) -> str:
        """One line for people."""
        size = f"about {self.bytes:,} bytes (estimated)" if self.estimated else f"{self.bytes:,} bytes"
        where = f" on {self.timed_rows:,} of the rows" if self.timed_rows else ""
        return f"{self.form}: {size}, {self.seconds * 1e6:,.1f} µs per query (measured{where})"


@dataclass(frozen=True, repr=False)
class Deployment:
    """The result of `deploy`: the model, how cells become its inputs, and the checks that it passed.

    Attributes:
        form: `lookup` or `network`.
        memory: The certified network of codes; None for a lookup.
        front: How cells become codes.
        answers: The labels, and the value that an unknown row gets.
        signature: The names of inputs and outputs.
        account: What became of every row of the source.
        sizes: Bytes of the file by purpose.
        alternatives: Estimated bytes of other tokenizations and of other ways to recognise unknown rows.
        outside: How many rows outside the table were evaluated, and how many of them were accepted as known.
        example: The first short row, as the inputs of the model.
        label: The name of the label column.
        exact_unknown: Rows outside the table never get a label.
        check_bits: Bits by which a hashed lookup recognises unknown rows.
        costs: Bytes and query time of this form and of the other one, where both were measured.
        remarks: The guesses about the table.
        reading: The columns in one line.
        model: The bytes of the file.
        file: Its name.

    >>> from byheart.memory.deploy import deploy
    >>> made = deploy({"code": ["A1", "B2"], "place": ["Rome", "Oslo"]}, progress=False)
    >>> made.form, made.verdict, made.account.kept, made.exact_unknown
    ('lookup', 'proved', 2, True)
    """

    form: str
    memory: Memory | None
    front: Front
    answers: GraphLabels
    signature: TableSignature
    account: Account
    sizes: dict[str, int]
    alternatives: dict[str, int]
    outside: tuple[int, int]
    example: dict[str, list[Any]]
    label: str
    exact_unknown: bool = False
    check_bits: int = 0
    costs: tuple[Cost, ...] = ()
    remarks: tuple[str, ...] = ()
    reading: str = ""
    model: bytes = field(default=b"", repr=False)
    file: str = "model.onnx"

    def __repr__(self) -> str:
        """One line: a table may have a million rows."""
        known, size = self.account.kept, self.sizes["file"]
        return f"<Deployment as {self.form}: {known:,} rows, {len(self.answers.labels):,} labels, {size:,} bytes>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        facts = [
            ("inputs", ", ".join(self.signature.inputs[:8])),
            ("label", f"{self.label} ({len(self.answers.labels):,} different)"),
            ("unknown rows", "always recognised" if self.exact_unknown else f"recognised up to 2^-{self.abstain_bits}"),
            ("file", self.file),
        ]
        rows = [(name, count) for name, count in self.sizes.items() if count]
        title = f"{self.account.kept:,} rows as a {self.form}: {self.verdict}"
        return card(title, facts, columns=("bytes", ""), rows=rows, tone="good")

    @property
    def verdict(self) -> str:
        """`proved`: nothing else is returned."""
        return Verdict.PROVED.value if self.memory is None else self.memory.certificate.verdict.value

    @property
    def abstain_bits(self) -> int:
        """Bits by which unknown rows are recognised; 0 for a list of the rows."""
        return self.check_bits if self.memory is None else int(self.memory.options["abstain_bits"])

    def snippet(self) -> str:
        """Three lines of Python that query the model for the first row of the table."""
        return (
            "import onnxruntime\n"
            f"session = onnxruntime.InferenceSession({self.file!r})\n"
            f"{self.signature.label}, {self.signature.known} = session.run(None, {as_code(self.example)})"
        )

    def summary(self) -> dict[str, Any]:
        """The fields of `deploy --json`."""
        inputs = {column.name: f"{column.type} as {column.cutting.name}" for column in self.front.columns}
        return {
            "file": self.file,
            "as": self.form,
            **self._built(),
            "bytes": self.sizes,
            "columns": inputs,
            "inputs": list(self.signature.inputs),
            "outputs": [self.signature.label, self.signature.known],
            "label": self.label,
            "label_type": self.answers.type.value,
            "unknown": None if self.answers.type is CellType.NUMBER else self.answers.unknown,
            "rows": self.account.as_dict(),
            "alternatives_bytes": self.alternatives,
            "unknown_is_exact": self.exact_unknown,
            "outside_evaluated": self.outside[0],
            "false_accepts": self.outside[1],
            "costs": [
                {
                    "as": cost.form,
                    "bytes": cost.bytes,
                    "estimated": cost.estimated,
                    "query_microseconds": round(cost.seconds * 1e6, 2),
                    "timed_rows": cost.timed_rows or self.account.kept,
                }
                for cost in self.costs
            ],
            "remarks": list(self.remarks),
        }

    def _built(self) -> dict[str, Any]:
        """The numbers of the network, or those of them that a lookup has."""
        if self.memory is None:
            return {
                "construction": None,
                "verdict": self.verdict,
                "N": self.account.kept,
                "C": len(self.answers.labels),
                "contexts": self.account.kept - self.account.repeated,
                "parameters": 0,
                "nonzero": 0,
            }
        found = self.memory.summary()
        names = ("construction", "verdict", "N", "C", "contexts", "parameters", "nonzero", "width", "depth", "blocks")
        seconds = ("build_seconds", "certify_seconds")
        options = {"abstain_bits": self.abstain_bits, "dtype": self.memory.options["dtype"]}
        return {name: found[name] for name in (*names, *seconds)} | options


def as_code(value: Any) -> str:
    """A value as a Python expression: NaN and infinity have no literals.

    >>> as_code({"x": [0.5, math.nan]}), as_code(-math.inf)
    ("{'x': [0.5, float('nan')]}", "float('-inf')")
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {as_code(cells)}" for name, cells in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_code, value))}]"
    return f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)


def file_sizes(model: Any, total: int) -> dict[str, int]:
    """Bytes of the file by what they are for."""
    graph = model.graph
    made = {name: node for node in graph.node for name in node.output}
    final = made[graph.output[0].name]  # returns the label, or selects it by the class of the row
    chosen = final.input[0] if final.op_type == "Gather" else ""
    rows = made.get(final.input[1]) if final.op_type == "Gather" else final
    kinds = {1, 11, 10}  # float, double, float16: the weights
    weights = sum(part.ByteSize() for part in graph.initializer if part.data_type in kinds and part.name != chosen)
    labels = sum(part.ByteSize() for part in graph.initializer if part.name == chosen)
    cells = sum(node.ByteSize() for node in graph.node if node.op_type in ("LabelEncoder", "RegexFullMatch"))
    lists = [node for node in graph.node if node is rows or node.output[0].startswith("row_places")]
    listed = sum(node.ByteSize() for node in lists if node.op_type == "LabelEncoder")
    rest = total - weights - labels - cells
    found = {"weights": weights, "cells": cells - listed, "list of rows": listed, "labels": labels}
    return {**found, "graph and metadata": rest, "file": total}
