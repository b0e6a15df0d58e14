"""A recital as a small stock Llama in float32: `export --to huggingface --style compact`.

Instead of one unit per window, windows are hashed and looked up as in the construction `native`: far fewer parameters,
and no margin at all. The network's answers are checked exactly on every window, and the written folder is queried after
every prefix in Transformers; other engines, types and unknown windows are not spoken of.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.build.native.windows import build_windows
from byheart.checkpoints.engines._base import engines
from byheart.checkpoints.formats.compact import LONGEST, compact_checkpoint, seen_place
from byheart.checkpoints.formats.folder import check_target, safetensors_bytes, tokenizer_config, write_files
from byheart.checkpoints.recital import RecitalMemory
from byheart.data.tokens.script import Script
from byheart.errors import ExportError
from byheart.exact.number import Values
from byheart.files import building
from byheart.ir.evaluate import answers as exact_answers
from byheart.ir.network import Inputs, Network
from byheart.progress import SILENT, Progress
from byheart.version import __version__

Ints = npt.NDArray[np.int64]
MOST_PLACES = 96
DECODED = 64  # tokens that Transformers decodes greedily from the start of every document


@dataclass(frozen=True)
class MeasuredAnswers:
    """What Transformers answered: every prefix in one pass, then greedy decoding with the cache."""

    version: str
    asked: int
    right: int


def write_compact(
    memory: RecitalMemory, folder: str | Path, *, seed: int = 0, progress: Progress = SILENT
) -> dict[str, Any]:
    """Writes the folder, evaluates it, and only then moves it into place; a summary."""
    target, script, lexicon = Path(folder), memory.script, memory.lexicon
    check_target(target)
    if memory.recital.mixed:
        raise ExportError(
            "some windows have several continuations; a compact checkpoint holds one of each: memorize with "
            "ambiguous=first or ambiguous=majority, or omit --style"
        )
    if max(map(len, script.documents)) > LONGEST:
        raise ExportError(f"a document is longer than the {LONGEST:,} positions of a compact checkpoint; split it")
    wanted = np.concatenate([memory.recital.next_tokens(ids[:-1]) for ids in script.documents])
    with progress.stage("hashing windows"):
        windows, following = _windows(script, wanted)
        size = max(1, (lexicon.size - 1).bit_length())
        codes = (np.arange(lexicon.size)[:, None] >> np.arange(size)) & 1
        following_ids = np.unique(following)
        bits, labels = codes[windows].reshape(len(windows), -1), np.searchsorted(following_ids, following)
        network = build_windows(bits, labels, len(following_ids), seed=seed)
        _check_exactly(network, bits, labels)
    roles = {"bos": lexicon.bos, "eos": lexicon.eos, "pad": lexicon.pad}
    places = windows.shape[1]
    config, tensors = compact_checkpoint(network, codes, places, following_ids.tolist(), bits.astype(np.float64), roles)
    count = sum(tensor.size for tensor in tensors.values())
    generation = {f"{role}_token_id": number for role, number in roles.items()} | {"do_sample": False}
    files = {
        "config.json": _json(config),
        "generation_config.json": _json(generation),
        "model.safetensors": safetensors_bytes(tensors, "float32", {"format": "pt", "byheart": "compact"}),
        "tokenizer.json": lexicon.model.encode(),
        "tokenizer_config.json": _json(tokenizer_config(lexicon, LONGEST)),
    }
    with progress.stage("asking Transformers"), building(target) as draft:
        write_files(draft, files)
        measured = _ask(draft, memory)
        (draft / "README.md").write_text(_card(memory, count, places, measured), encoding="utf-8")
    return {
        "folder": str(target),
        "style": "compact",
        "dtype": "float32",
        "parameters": count,
        "nonzero": int(sum(np.count_nonzero(tensor) for tensor in tensors.values())),
        "bytes": len(files["model.safetensors"]),
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "span": places,
        "windows": len(windows),
        "margin": None,
        "measured": None if measured is None else {"transformers": measured.version, "asked": measured.asked},
    }


def _windows(script: Script, wanted: Ints) -> tuple[Ints, Ints]:
    """The distinct windows of the fewest places that decide what follows, nearest token first, and their answers."""
    numbers, positions = np.arange(script.places), script.positions
    columns: list[Ints] = []
    state = np.zeros(script.places, dtype=np.int64)
    for place in range(MOST_PLACES):
        early = np.array([seen_place(position, place) for position in range(place + 1)], dtype=np.int64)
        back = early[np.minimum(positions, place)]
        columns.append(script.tokens[numbers - back])
        _, state = np.unique(np.stack([state, columns[-1]]), axis=1, return_inverse=True)
        state = state.reshape(-1)
        low, high = np.full(state.max() + 1, wanted.max()), np.zeros(state.max() + 1, dtype=np.int64)
        np.minimum.at(low, state, wanted)
        np.maximum.at(high, state, wanted)
        if (low == high).all():
            _, first = np.unique(state, return_index=True)
            return np.stack(columns, axis=1)[first], wanted[first]
    raise ExportError(
        f"windows of {MOST_PLACES} tokens do not distinguish what follows; longer tokens reach farther back"
    )


def _check_exactly(network: Network, bits: Ints, labels: Ints) -> None:
    """The memory's answer for every window, in exact numbers."""
    inputs = Inputs(Values(bits.astype(object)), np.arange(len(bits), dtype=np.int64)[:, None])
    if not np.array_equal(exact_answers(network, inputs), labels):
        raise ExportError("the hashed memory does not answer all windows; please report this text")


def _ask(folder: Path, memory: RecitalMemory) -> MeasuredAnswers | None:
    engine = engines()["transformers"]
    if engine.version is None:
        return None
    queried = right = 0
    kind, settings = engine.check("float32", {})
    with engine.open(folder, kind, settings) as session:
        for ids in memory.script.documents:
            wanted = memory.recital.next_tokens(ids[:-1])
            right += int((np.asarray(session.logits(ids[:-1])).argmax(1) == wanted).sum())
            start = list(ids[: min(2, len(ids) - 1)])
            expected = memory.recital.recite(start, DECODED, stop=memory.lexicon.eos)
            (reply,) = session.generate([start], len(expected))
            right += sum(a == b for a, b in zip(reply.ids, expected, strict=False))
            queried += len(wanted) + len(expected)
    if right < queried:
        raise ExportError(f"Transformers in float32 answers {right:,} of {queried:,} queries; nothing was written")
    return MeasuredAnswers(str(engine.version), queried, right)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _card(memory: RecitalMemory, count: int, places: int, measured: MeasuredAnswers | None) -> str:
    queried = (
        f"Measured, not proved: Transformers {measured.version} in float32 answered all {measured.asked:,} queries "
        "(every prefix, and greedy decoding with the cache)."
        if measured
        else "No engine was run: Transformers is not installed here."
    )
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [byheart, recital, memorization]
---

# A compact recital

Computed by byheart {__version__}, not trained: a stock `LlamaForCausalLM` with {count:,} parameters that recites \
{len(memory.script.documents):,} document(s), {memory.script.places:,} predictions, from windows of {places} tokens.

**float32 only, and without any margin.** Every value must be computed exactly, so bfloat16, float16, quantized weights,
and engines that round differently give other text. Windows that were not memorized are answered by some token.

{queried} The hashed memory inside was checked in exact numbers on every window.
"""
