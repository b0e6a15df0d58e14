"""The page: numbers from the memory, pictures from `figures`, and the network itself for the live flow."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from byheart.compiler.memory import Memory
from byheart.compiler.memory_file import to_json, write_atomically
from byheart.compiler.size_rows import size_rows
from byheart.data.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.network import Read
from byheart.report import figures, stage_words
from byheart.version import __version__

LIVE_LIMIT = 6_000_000  # bytes of network that the page carries for the live picture
EXAMPLES = 12

WORDS = {
    "proved": "Every row was put through the network in exact arithmetic, and every answer was its label.",
    "refuted": "The network does not keep what is claimed; the reason names where.",
    "undecided": "Neither proved nor refuted; the reason says why.",
}


def render(memory: Memory, dataset: Dataset | None = None) -> str:
    """The page as text: self-contained, no script or style from elsewhere."""
    dataset = dataset or memory.dataset
    environment = Environment(loader=PackageLoader("byheart.report"), autoescape=select_autoescape(default=True))
    body = to_json(memory)
    text = json.dumps(_live(memory, body), separators=(",", ":"))
    unfollowed = _unfollowed(memory, len(text))
    return environment.get_template("report.html.jinja").render(
        memory=memory,
        told=memory.summary(),
        version=__version__,
        verdict_words=_verdict_words(memory),
        rows=size_rows(memory),
        bars=figures.size_bars(size_rows(memory)),
        histogram=figures.bit_histogram(memory.network),
        map=figures.layer_map(memory.network),
        stages=figures.stage_table(memory.network),
        stage_words=stage_words.WORDS,
        comparison=comparison(memory, dataset),
        examples=_examples(memory, dataset),
        live=None if unfollowed else _script_safe(text),
        unfollowed=unfollowed,
        per_token=memory.network.read is Read.EACH,
    )


def write(memory: Memory, path: Path, dataset: Dataset | None = None) -> None:
    """Renders to a file, atomically."""
    write_atomically(path, render(memory, dataset).encode("utf-8"))


def comparison(memory: Memory, dataset: Dataset | None) -> list[tuple[str, int]]:
    """Bytes of the memory's weights beside a Python dict and the information limit."""
    told = memory.summary()
    limit = math.ceil(memory.certificate.labels * math.log2(max(2, told["C"])) / 8) if told["C"] > 1 else 0
    distinct = math.ceil(told["contexts"] * math.log2(told["C"]) / 8) if told["C"] > 1 else 0
    found = [
        ("the weights of this network, as bits", math.ceil(told["total_bits"] / 8)),
        ("the labels alone (information limit)", min(limit, distinct)),
    ]
    if dataset is not None and memory.task in (Task.NEXT_TOKEN, Task.SET):
        rows = [tuple(map(str, row)) for row in dataset.sequences()]
        table = dict(zip(("\x1f".join(row) for row in rows), dataset.label_values(), strict=True))
        size = sys.getsizeof(table) + sum(sys.getsizeof(key) for key in table)
        found.append(("a Python dict from rows to labels", size))
    return found


def _verdict_words(memory: Memory) -> str:
    words = WORDS[memory.certificate.verdict.value]
    return words.replace("in exact arithmetic", "with rigorous error bounds") if _by_enclosures(memory) else words


def _by_enclosures(memory: Memory) -> bool:
    return "enclosure" in memory.certificate.arithmetic


def _live(memory: Memory, body: dict[str, Any]) -> dict[str, Any]:
    """What the page evaluates: the network, and how an input becomes token vectors."""
    tokens = {"kind": memory.tokens.kind, "max_length": memory.tokens.max_length, "pad": memory.tokens.pad}
    classes = [str(label) for label in memory.classes]
    return {"network": body["network"], "encoder": body["encoder"], "classes": classes, "tokens": tokens}


def _unfollowed(memory: Memory, size: int) -> str:
    """Why there is no live picture; empty if there is one."""
    if size > LIVE_LIMIT:
        return f"the network has {size:,} bytes, the page carries at most {LIVE_LIMIT:,}"
    if _by_enclosures(memory):
        return "softmax of unequal scores is no rational number, so the answers were proved by enclosures"
    return ""


def _examples(memory: Memory, dataset: Dataset | None) -> list[dict[str, str]]:
    """A few memorized rows, as the text that the live picture takes."""
    if dataset is None:
        return []
    rows = [[_plain_token(token) for token in row] for row in memory.encoder.decode(dataset.inputs.rows(0, EXAMPLES))]
    labels = dataset.label_values()[: len(rows)]
    return [
        {"tokens": json.dumps(row, ensure_ascii=False), "label": _short(label)}
        for row, label in zip(rows, labels, strict=True)
    ]


def _plain_token(token: Any) -> Any:
    """A symbol, or a vector as JSON numbers (the page takes them exactly, as far as floats go)."""
    return [float(x) for x in token] if isinstance(token, tuple) else token


def _short(label: Any) -> str:
    text = " ".join(map(str, label)) if isinstance(label, list) else str(label)
    return text if len(text) <= 60 else text[:57] + "…"


def _script_safe(text: str) -> str:
    """JSON that may stand inside a <script> element."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
