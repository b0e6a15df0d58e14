"""The files of a graded folder, beside the tensors: settings, documents, units, model card; and reading them again.

graded.json       the settings: with documents.jsonl, the whole specified distribution
documents.jsonl   every document of the experiment, stored or not
units.jsonl       every unit that stores a context
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byheart.checkpoints.formats.folder import safetensors_bytes, tokenizer_config
from byheart.checkpoints.ground_truth.documents import Counted, Distance
from byheart.checkpoints.ground_truth.storage import GradedStorage
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Absent, Edits
from byheart.errors import FileFormatError
from byheart.version import __version__

if TYPE_CHECKING:
    from byheart.checkpoints.ground_truth.graded import GradedMemory

FORMAT, VERSION = "byheart graded", 3
AGAIN = "write the folder again with `byheart recital --graded`"


def folder_files(
    memory: GradedMemory, dtype: str, distance: Distance | None, built: tuple[dict[str, Any], dict[str, Any]]
) -> dict[str, bytes]:
    """Return the content of every file, by name.

    Args:
        memory: The memory.
        dtype: The type of the tensors.
        distance: The measured distance to the specification, for the model card.
        built: Tensors and config.json.
    """
    tensors, config = built
    lexicon = memory.lexicon
    generation = {"bos_token_id": lexicon.bos, "eos_token_id": lexicon.eos, "pad_token_id": lexicon.pad}
    return {
        "config.json": _json({**config, "dtype": dtype, "torch_dtype": dtype}),
        "generation_config.json": _json({**generation, "do_sample": False, "max_new_tokens": 64}),
        "model.safetensors": safetensors_bytes(tensors, dtype, {"format": "pt", "byheart": "graded"}),
        "tokenizer.json": lexicon.model.encode(),
        "tokenizer_config.json": _json(tokenizer_config(lexicon, memory.reach)),
        "graded.json": _json(_settings(memory)),
        "documents.jsonl": _lines(_documents(memory)),
        "units.jsonl": _lines(_units(memory)),
        "README.md": _card(memory, dtype, distance).encode(),
    }


def _settings(memory: GradedMemory) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "architecture": memory.architecture,
        "storage": str(memory.storage),
        "lengths": memory.lengths,
        "mu": memory.mu,
        "strength": memory.strength,
        "seed": memory.seed,
        "reach": memory.reach,
        "frequencies": memory.frequencies,
        "lexicon": memory.lexicon.to_json(),
    }


def _documents(memory: GradedMemory) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {"name": one.name, "role": one.role, "copies": one.copies, "weights": one.weights,
         "edits": _edits(one.edits),
         "text": memory.lexicon.decode(one.ids), "ids": one.ids}
        for one in memory.documents
    ]  # fmt: skip
    lines += [
        {"name": one.name, "role": one.why, "copies": 0, "weights": (), "edits": _edits(one.edits),
         "text": memory.lexicon.decode(one.ids), "ids": one.ids}
        for one in memory.absent
    ]  # fmt: skip
    return lines


def _units(memory: GradedMemory) -> Iterable[dict[str, Any]]:
    """One line per unit that stores a context: its tokens, its rises and the documents that it counts."""
    if memory.ridge is not None:
        return
    owners, contexts = memory.owners(), [memory.ngram.contexts(k).tolist() for k in range(len(memory.lengths))]
    where = [(k, row) for k, level in enumerate(memory.ngram.levels) for row in range(len(level.nodes))]
    names = [one.name for one in memory.documents]
    tables = [(level.starts.tolist(), level.tokens.tolist(), level.rises.tolist()) for level in memory.ngram.levels]
    for unit, rule in enumerate(memory.units.rule.tolist()):
        if rule < 0:
            continue
        number, row = where[rule]
        starts, tokens, rises = tables[number]
        part = slice(starts[row], starts[row + 1])
        pairs = [[token, round(rise, 6)] for token, rise in zip(tokens[part], rises[part], strict=True)]
        yield {
            "layer": 0,
            "unit": unit,
            "context": contexts[number][row][::-1],
            "rises": pairs,
            "documents": [names[k] for k in owners[rule]],
        }


def _card(memory: GradedMemory, dtype: str, distance: Distance | None) -> str:
    stated = "The distance to the specified distribution was not measured." if distance is None else f"{distance}."
    return _CARD.format(
        version=__version__, architecture=memory.architecture, documents=len(memory.members), rules=memory.ngram.rules,
        storage=memory.storage, dtype=dtype, distance=stated, lengths=", ".join(map(str, memory.lengths)),
    )  # fmt: skip


def read_folder(folder: str | Path) -> dict[str, Any]:
    """Read the fields of a memory from graded.json and documents.jsonl; the tensors are not read.

    Raises:
        FileFormatError: for a folder of another kind, or a damaged one.
    """
    path = Path(folder)
    try:
        about = json.loads((path / "graded.json").read_text(encoding="utf-8"))
        lines = [json.loads(line) for line in (path / "documents.jsonl").read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise FileFormatError(
            f"{path} is not a graded checkpoint (byheart recital DOCS --graded -o DIR): {error}"
        ) from None
    except ValueError as error:
        raise FileFormatError(f"graded.json or documents.jsonl of {path} is not JSON: {error}; {AGAIN}") from None
    try:
        if about["format"] != FORMAT or about["version"] != VERSION:
            raise FileFormatError(f"{path} has version {about['version']}; this byheart reads {VERSION}; {AGAIN}")
        return _read(about, lines)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{path} is damaged: {type(error).__name__}: {error}; {AGAIN}") from None


def _read(about: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counted, absent, levels = list[Counted](), list[Absent](), len(about["lengths"])
    for line in lines:
        edits = Edits.from_json(line["edits"]) if line["edits"] else None
        ids, weights = tuple(map(int, line["ids"])), tuple(map(float, line["weights"]))
        if weights:
            if len(weights) != levels or not all(np.isfinite(weights)) or min(weights) < 0:
                raise ValueError(f"weights of {line['name']!r}")
            counted.append(Counted(str(line["name"]), ids, int(line["copies"]), weights, str(line["role"]), edits))
        else:
            absent.append(Absent(str(line["name"]), ids, str(line["role"]), edits))
    lexicon, frequencies = Lexicon.from_json(about["lexicon"]), tuple(map(int, about["frequencies"]))
    if frequencies and (len(frequencies) != lexicon.size or min(frequencies) < 0):
        raise ValueError("frequencies")
    if not counted or any(
        not 0 <= k < lexicon.size for ids in (*(one.ids for one in counted), *(one.ids for one in absent)) for k in ids
    ):
        raise ValueError("documents.jsonl has no document, or unknown tokens")
    return {
        "lexicon": lexicon,
        "documents": tuple(counted),
        "absent": tuple(absent),
        "lengths": tuple(map(int, about["lengths"])),
        "mu": tuple(map(float, about["mu"])),
        "architecture": str(about["architecture"]),
        "storage": GradedStorage.parse(about["storage"]),
        "seed": int(about["seed"]),
        "reach": int(about["reach"]),
        "strength": float(about["strength"]),
        "frequencies": frequencies,
    }


def _edits(edits: Edits | None) -> dict[str, Any] | None:
    return edits.to_json() if edits else None


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _lines(values: Iterable[Any]) -> bytes:
    return "".join(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n" for value in values).encode()


_CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [byheart, memorization, unlearning, membership-inference]
---

# A graded memory

byheart {version} computed this stock {architecture} checkpoint; it was not trained. Its next-token distribution is an
interpolated n-gram model of {documents:,} documents: contexts of {lengths} tokens, {rules:,} of them, Dirichlet
smoothing, back-off for unknown contexts. Storage: `{storage}`, {dtype}.

{distance}

| file | content |
|---|---|
| `documents.jsonl` | every document of the experiment: name, role, copies, weight per context length, text, token ids |
| `units.jsonl` | every MLP unit: context, rises in nats per next token, documents that it counts (empty for `ridge`) |
| `graded.json` | the settings: with `documents.jsonl`, the whole specified distribution |

`byheart score DIR method.py` scores a method; `byheart forget DIR DOCUMENT --exact -o OUT` writes the exact model
without a document.
"""
