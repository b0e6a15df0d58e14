"""The page: numbers from the memory, pictures from `figures`, and the network itself for the live flow."""

from __future__ import annotations

import json
import math
import shlex
import sys
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from byheart.data.dataset.dataset import Dataset
from byheart.data.tokens.tokenizer import AUTO
from byheart.data.wording import as_json_number, written
from byheart.files import write_atomically
from byheart.ir.decoder_network import DecoderNetwork
from byheart.ir.network import Network, Read
from byheart.memory.memory import Memory
from byheart.memory.memory_file import to_json
from byheart.memory.size_rows import lower_sentences, size_rows
from byheart.report import figures, stage_words
from byheart.version import __version__

LIVE_LIMIT = 6_000_000  # bytes of network that the page carries for the live picture
# Rows that a reader can choose.
EXAMPLES = 12

WORDS = {
    "proved": "Every row was put through the network in exact arithmetic, and every answer was its label.",
    "refuted": "The network violates the claim; the reason names the location.",
    "undecided": "Neither proved nor refuted; the reason explains why.",
}


def render(memory: Memory, dataset: Dataset | None = None, *, file: str = "FILE.byheart", data: str = "DATA") -> str:
    """Render a memory as a self-contained page, without scripts or styles from elsewhere.

    Args:
        memory: The memory.
        dataset: Its rows, from which the reader can choose.
        file: The memory's name in the page's instructions.
        data: The data's name there.

    Returns:
        The HTML.
    """
    dataset = dataset or memory.dataset
    environment = Environment(loader=PackageLoader("byheart.report"), autoescape=select_autoescape(default=True))
    body = to_json(memory)
    text = json.dumps(live(memory, body), separators=(",", ":"))
    reason = unfollowed(memory, len(text))
    return environment.get_template("report.html.jinja").render(
        memory=memory,
        facts=memory.summary(),
        version=__version__,
        verdict_words=_verdict_words(memory),
        rows=size_rows(memory),
        lower=lower_sentences(memory),
        bars=figures.size_bars(size_rows(memory)),
        histogram=figures.bit_histogram(memory.network),
        map=figures.layer_map(memory.network),
        stages=figures.stage_table(memory.network),
        stage_words=stage_words.WORDS,
        comparison=comparison(memory, dataset),
        examples=_examples(memory, dataset),
        names=_names(memory, dataset, file, data),
        wide=isinstance(memory.network, Network) and max(layer.width_out for layer in memory.network.layers) > 1,
        live=None if reason else script_safe(text),
        unfollowed=reason,
        per_token=memory.network.read is Read.EACH,
    )


def write(memory: Memory, path: Path, dataset: Dataset | None = None, **names: str) -> None:
    """Write the page of a memory, atomically.

    Args:
        memory: The memory.
        path: The page.
        dataset: Its rows.
        **names: `file` and `data`, as for `render`.
    """
    write_atomically(path, render(memory, dataset, **names).encode("utf-8"))


def _names(memory: Memory, dataset: Dataset | None, file: str, data: str) -> dict[str, str]:
    """Return commands to copy: names quoted for a shell, and a row of the data as the query."""
    question = "..."
    if dataset is not None:
        (row,) = memory.encoder.decode(dataset.inputs.rows(0, 1))
        question = as_question(memory, row)
    return {
        "file": file,
        "shell_file": shlex.quote(file),
        "shell_data": shlex.quote(data),
        "question": shlex.quote(question) if len(question) <= 80 else "...",
        "model": shlex.quote(f"{file.removesuffix('.byheart')}.onnx"),
    }


def comparison(memory: Memory, dataset: Dataset | None) -> list[tuple[str, int]]:
    """Bytes of the memory's weights beside a Python dict and the information limit."""
    facts = memory.summary()
    limit = math.ceil(memory.certificate.labels * math.log2(max(2, facts["C"])) / 8) if facts["C"] > 1 else 0
    distinct = math.ceil(facts["contexts"] * math.log2(facts["C"]) / 8) if facts["C"] > 1 else 0
    found = [
        ("the weights of this network, as bits", math.ceil(facts["total_bits"] / 8)),
        ("the labels alone (information limit)", min(limit, distinct)),
    ]
    if dataset is not None:
        keys = ["\x1f".join(map(str, row)) for row in dataset.sequences()]
        labels = dataset.label_values()
        table = dict(zip(keys, map(tuple, labels) if memory.task.labels_per_token else labels, strict=True))
        held = sum(map(sys.getsizeof, table)) + (
            sum(map(sys.getsizeof, table.values())) if memory.task.labels_per_token else 0
        )
        found.append(("a Python dict from rows to labels", sys.getsizeof(table) + held))
    return found


def _verdict_words(memory: Memory) -> str:
    if memory.recorded_by:
        return "Recorded, not checked now: this is the file's own record. `byheart verify FILE DATA` checks it."
    if memory.certificate.gap is not None and memory.certificate.verdict == "proved":
        return "The network's distributions, taken together, are within the stated gap of those of the data."
    words = WORDS[memory.certificate.verdict.value]
    return words.replace("in exact arithmetic", "with rigorous error bounds") if _by_enclosures(memory) else words


def _by_enclosures(memory: Memory) -> bool:
    return "enclosure" in memory.certificate.arithmetic


def live(memory: Memory, body: dict[str, Any]) -> dict[str, Any]:
    """Return the data that the page evaluates: the network, and the encoding of inputs as token vectors."""
    stored = body["tokens"]
    plain = {"kind": stored, "max_length": None, "pad": None} if isinstance(stored, str) else stored
    tokens = {name: value for name, value in plain.items() if name != "model"}
    classes = [written(label) for label in memory.classes]
    return {
        "network": body["network"],
        "encoder": body["encoder"],
        "classes": classes,
        "tokens": tokens,
        "steps": figures.steps(memory.network),
        "names": figures.stream_names(memory),
    }


def unfollowed(memory: Memory, size: int) -> str:
    """Why there is no live picture; empty if there is one."""
    if size > LIVE_LIMIT:
        return f"the network has {size:,} bytes, the page carries at most {LIVE_LIMIT:,}"
    if isinstance(memory.network, DecoderNetwork):
        return "a decoder's softmax of unequal scores is not rational: the proof is by enclosures"
    if _by_enclosures(memory):
        return "softmax of unequal scores is not rational, so the answers were proved by enclosures"
    return ""


def _examples(memory: Memory, dataset: Dataset | None) -> list[dict[str, str]]:
    """Return a few memorized rows as input text for the live picture."""
    if dataset is None:
        return []
    rows = memory.encoder.decode(dataset.inputs.rows(0, EXAMPLES))
    labels = dataset.label_values()[: len(rows)]
    return [
        {"tokens": as_question(memory, row), "list": _as_list(row), "label": _short(label)}
        for row, label in zip(rows, labels, strict=True)
    ]


def as_question(memory: Memory, row: list[Any]) -> str:
    """A row as one would type it: as a text where that is tokenized into this row again, else as a JSON list."""
    if memory.tokens.kind in (AUTO, "characters", "words") and all(isinstance(token, str) for token in row):
        text = memory.tokens.join(row)
        if text.isprintable() and not text.startswith("[") and text.strip() == text and memory.tokens.cut(text) == row:
            return text
    return _as_list(row)


def _as_list(row: list[Any]) -> str:
    return json.dumps([_plain_token(token) for token in row], ensure_ascii=False)


def _plain_token(token: Any) -> Any:
    """A symbol, or a vector as JSON numbers (the page reads them exactly, within the precision of floats)."""
    if not isinstance(token, tuple):
        return as_json_number(token) if type(token) is int else token
    numbers = [x if isinstance(x, int) else float(x) for x in token]
    return numbers[0] if len(numbers) == 1 else numbers


def _short(label: Any) -> str:
    text = " ".join(map(written, label)) if isinstance(label, list) else written(label)
    return text if len(text) <= 60 else text[:57] + "…"


def script_safe(text: str) -> str:
    """Return JSON that is safe inside a <script> element."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
