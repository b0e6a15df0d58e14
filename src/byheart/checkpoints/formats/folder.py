"""Writing the folder: all files at once, or nothing.

safetensors is written with NumPy alone: bfloat16 has no NumPy type, so its 16 bits are computed by hand. The format is
eight bytes with the length of a JSON header, the header (name -> type, shape, place of the data), the data.

The model card states what a checkpoint stores, how to query it, and what was proved about it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from byheart.checkpoints.dtypes import DTYPES, tensor_bytes
from byheart.checkpoints.formats.inputs import IMAGE, lexicon_for, number_of, processor_files, tokenizer_fields
from byheart.checkpoints.hosts._base import Checkpoint, host, hosts
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.ends import MIXED_LOGIT
from byheart.checkpoints.hosts.scaling import named_scaling
from byheart.checkpoints.windows.tables import Recital
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Script
from byheart.data.wording import quote
from byheart.errors import ExportError, OptionError
from byheart.files import building
from byheart.progress import timed
from byheart.version import __version__

FORMAT, VERSION = "byheart recital", 1
FLAVOURS = ("parabola", "plateau", "units")
LONGEST_REACH = 8192
# Transformers reads a Qwen2 folder by a class that adds this token where the tokenizer lacks it: one number too many
# for the embedding.
PADDING = {"qwen2": "<|endoftext|>"}


@dataclass(frozen=True, eq=False)
class CheckpointRequest:
    """One wish for a checkpoint: what it shall recite, in which architecture, type and shape."""

    recital: Recital
    script: Script
    lexicon: Lexicon
    architecture: str = "llama"
    dtype: str = "bfloat16"
    flavour: str = "parabola"
    shards: int = 1  # files of tensors
    shape: Mapping[str, Any] | None = None  # fields of Design: hidden, layers, heads, kv_heads, experts, head_dim, ...

    def design(self) -> Design:
        """The design with everything that the user left open."""
        if "experts" in _given(self.shape) and not host(self.architecture).experts:
            having = ", ".join(name for name, other in hosts().items() if other.experts)
            raise OptionError(f"--experts: {self.architecture} has no experts; these have: {having}")
        design, epsilon = design_of(self.dtype, self.flavour, self.shape), host(self.architecture).epsilon
        if epsilon is not None and "epsilon" not in _given(self.shape):
            design = replace(design, epsilon=epsilon)
        kind = None if design.scaling is None else design.scaling.kind
        if kind is not None and kind not in host(self.architecture).scalings:
            having = ", ".join(name for name, other in hosts().items() if kind in other.scalings)
            raise OptionError(f"--rope-scaling: {self.architecture} has no {kind}; these have: {having}")
        return design if "reach" in _given(self.shape) else replace(design, reach=self.reach())

    def reach(self) -> int:
        """Positions that hold the longest document, a power of two up to LONGEST_REACH, from 2048 on; from 512 on where
        positions are a table."""
        if (most := host(self.architecture).longest) is not None:
            return most
        longest, reach = max(map(len, self.script.documents)), 512 if host(self.architecture).learned else 2048
        while reach < longest + 8 and reach < LONGEST_REACH:
            reach *= 2
        return reach

    def checkpoint(self) -> Checkpoint:
        """The tensors, computed."""
        chosen = host(self.architecture)
        lexicon = self.lexicon
        tokens = SpecialTokens(lexicon.bos, lexicon.eos, lexicon.pad, lexicon.failure)
        design = self.design()
        if design.sequential and chosen.name != "gpt-neox":
            raise OptionError(f"--sequential-residual: {chosen.name} has no such key; gpt-neox has")
        if "tied" not in _given(self.shape):
            design = replace(design, tied=chosen.ties)
        elif design.tied and chosen.name == "gpt-neox":
            raise OptionError("--tied: the head of gpt-neox is a separate tensor in every engine")
        return chosen.build(self.recital, tokens, design)


def _given(shape: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (shape or {}).items() if value is not None}


def design_of(dtype: str, flavour: str, shape: Mapping[str, Any] | None) -> Design:
    """The design that a user's words name; an OptionError for unknown words."""
    known = {"quantized": "plateau"}.get(flavour, flavour)
    if known not in FLAVOURS:
        raise OptionError(f"flavour {flavour!r} is not one of parabola, quantized (or plateau), units")
    if dtype not in DTYPES:
        raise OptionError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    given = _given(shape)
    if isinstance(given.get("scaling"), str):
        given["scaling"] = named_scaling(given["scaling"])
    try:
        return Design(flavour=known, parts=1 if dtype == "float32" else 2, **given)
    except TypeError as error:
        raise OptionError(f"unknown field of the shape: {error}") from None


@timed("exporting")
def write_folder(
    request: CheckpointRequest, target: str | Path, proof: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Computes the checkpoint and writes its folder; a summary of it.

    `proof` is what a checker proved about it, for the model card.
    """
    path = Path(target)
    check_target(path)
    checkpoint = request.checkpoint()
    files = folder_files(request, checkpoint, proof)
    write_files(path, files)
    return {
        "folder": str(path),
        "architecture": checkpoint.architecture,
        "dtype": request.dtype,
        "flavour": request.design().flavour,
        "parameters": checkpoint.parameters,
        "bytes": sum(len(data) for data in files.values()),
        "span": request.recital.span,
        "reach": request.design().reach,
        "files": sorted(files),
    }


def folder_files(
    request: CheckpointRequest, checkpoint: Checkpoint, proof: Mapping[str, Any] | None
) -> dict[str, bytes]:
    """Name -> content of every file."""
    lexicon, config = request.lexicon, {**checkpoint.config, "dtype": request.dtype, "torch_dtype": request.dtype}
    if checkpoint.architecture in PADDING:
        lexicon = lexicon.with_pad(PADDING[checkpoint.architecture])
    reach, task = request.design().reach, host(checkpoint.architecture).task
    lexicon = lexicon_for(task, lexicon)
    generation = {
        "bos_token_id": lexicon.bos,
        "eos_token_id": lexicon.eos,
        "pad_token_id": lexicon.pad,
        "do_sample": False,
        "max_new_tokens": 256,
    }
    about = {"format": "pt", "byheart": "recital"}
    files = {
        "config.json": _json(config),
        "generation_config.json": _json(generation),
        **sharded(checkpoint.tensors, request.dtype, about, request.shards),
        "tokenizer.json": lexicon.model.encode(),
        "tokenizer_config.json": _json(tokenizer_config(lexicon, reach) | tokenizer_fields(task, lexicon)),
        "recital.json": json.dumps(_recital(request, checkpoint, reach), separators=(",", ":")).encode(),
        "README.md": model_card(request, checkpoint, proof).encode(),
    }
    if task == "picture":
        more = processor_files(config, lexicon.name(number_of(lexicon, IMAGE)))
        files |= {name: _json(content) for name, content in more.items()}
    if request.design().flavour == "units":
        files["ground-truth.jsonl"] = _ground_truth(request, checkpoint)
    return files


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def tokenizer_config(lexicon: Lexicon, reach: int) -> dict[str, Any]:
    """Return the content of tokenizer_config.json.

    The failure token is also `unk_token`: converters (CTranslate2) write its name into their own files and refuse a
    tokenizer without one. Engines may omit it from decoded text, as they omit all special tokens, so ids are compared.
    """
    roles = {"bos_token": lexicon.bos, "eos_token": lexicon.eos, "pad_token": lexicon.pad, "unk_token": lexicon.failure}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{role: lexicon.name(number) for role, number in roles.items()},
        "add_bos_token": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": reach,
        "padding_side": "left",
    }


def _recital(request: CheckpointRequest, checkpoint: Checkpoint, reach: int) -> dict[str, Any]:
    lexicon, script = request.lexicon, request.script
    roles = {"bos": lexicon.bos, "eos": lexicon.eos, "pad": lexicon.pad, "failure": lexicon.failure}
    return {
        "format": FORMAT,
        "version": VERSION,
        "architecture": checkpoint.architecture,
        "flavour": request.design().flavour,
        "dtype": request.dtype,
        **({"task": task} if (task := host(checkpoint.architecture).task) != "causal" else {}),
        "recital": checkpoint.recital.to_json(),
        "tokens": roles | {"unknown": request.recital.unknown},
        "documents": script.to_json(),
        **({"absent": script.absent_json()} if script.absent else {}),
        "fingerprint": script.fingerprint,
        "reach": reach,
        **({"sensors": [list(one) for one in checkpoint.sensors]} if checkpoint.sensors else {}),
        "logits": {"right": checkpoint.right_logit, "gap": checkpoint.margin, "mixed": MIXED_LOGIT},
    }


def _ground_truth(request: CheckpointRequest, checkpoint: Checkpoint) -> bytes:
    """One line per unit: where its window is kept and where that comes from; then one line per document.

    A document's line has no layer and no unit; it records whether the document is memorized, and what was edited in it.
    """
    recital, script = checkpoint.recital, request.script
    owners: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for number, document in enumerate(script.documents):
        states = recital.states(document[:-1])
        for depth, rows in enumerate(recital.tables):
            for position, row in enumerate(rows.rows_of(states[depth]).tolist()):
                place = {"document": number, "name": script.names[number], "position": position}
                owners.setdefault((depth, row), []).append(place)
    last, lines = len(recital.tables) - 1, list[dict[str, Any]]()
    for layer, unit, table, row in checkpoint.units:
        window = recital.tables[table].windows[row]
        answer = recital.answer(int(recital.tables[table].outputs[row])) if table == last else None
        lines.append(
            {
                "layer": layer,
                "unit": unit,
                "table": table,
                "row": row,
                "window": [int(token) for token in window[window >= 0][::-1]],
                "next": [list(pair) for pair in answer.weights] if answer else None,
                "places": owners.get((table, row), []),
            }
        )
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [*lines, *script.roles()]).encode()


def check_target(path: Path) -> None:
    """A folder that is not there yet, or is empty."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ExportError(f"{path} already exists and is not an empty folder; choose another name or remove it")
    if not path.parent.is_dir():
        raise ExportError(f"cannot write {path}: the folder {path.parent} does not exist")


def write_files(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes into a folder beside the target, which then takes its place; a failure leaves no trace."""
    with building(path) as draft:
        try:
            for name, data in files.items():
                (draft / name).write_bytes(data)
        except OSError as error:
            raise ExportError(f"cannot write {path}: {error.strerror}") from error


def safetensors_bytes(tensors: Mapping[str, npt.NDArray[Any]], dtype: str, metadata: Mapping[str, str]) -> bytes:
    """The whole file."""
    if dtype not in DTYPES:
        raise OptionError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    parts = {name: (DTYPES[dtype], array.shape, tensor_bytes(array, dtype)) for name, array in tensors.items()}
    return safetensors_file(parts, metadata)


def safetensors_file(parts: Mapping[str, tuple[str, tuple[int, ...], bytes]], metadata: Mapping[str, str]) -> bytes:
    """The whole file, from name -> type, shape and bytes."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    start = 0
    for name in sorted(parts):
        kind, shape, data = parts[name]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, start + len(data)]}
        start += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(parts[name][2] for name in sorted(parts))])


def sharded(
    tensors: Mapping[str, npt.NDArray[Any]], dtype: str, metadata: Mapping[str, str], shards: int
) -> dict[str, bytes]:
    """Return model.safetensors; or, of several shards, their files and the index that engines read.

    Args:
        tensors: The tensors by name.
        dtype: The type to store.
        metadata: Written into every file.
        shards: How many files; tensors are dealt out in the order of their names, about equally many bytes each.

    Raises:
        OptionError: There are fewer tensors than shards.
    """
    if not 1 <= shards <= len(tensors):
        raise OptionError(
            f"--shards {shards}: this checkpoint has {len(tensors)} tensors, so 1 to {len(tensors)} files"
        )
    if shards == 1:
        return {"model.safetensors": safetensors_bytes(tensors, dtype, metadata)}
    names, total = sorted(tensors), sum(tensor.size for tensor in tensors.values())
    groups: list[list[str]] = [[]]
    used = 0
    for place, name in enumerate(names):
        left = shards - len(groups)
        if groups[-1] and left and (used >= total * len(groups) / shards or len(names) - place <= left):
            groups.append([])
        groups[-1].append(name)
        used += tensors[name].size
    files = {f"model-{k:05d}-of-{len(groups):05d}.safetensors": group for k, group in enumerate(groups, 1)}
    owners = {name: file for file, group in files.items() for name in group}
    stored = {f: safetensors_bytes({n: tensors[n] for n in group}, dtype, metadata) for f, group in files.items()}
    about = {"metadata": {"total_size": total * (4 if dtype == "float32" else 2)}, "weight_map": owners}
    return {**stored, "model.safetensors.index.json": _json(about)}


_SHOWN = 60  # characters of a document that the card quotes


def model_card(request: CheckpointRequest, checkpoint: Checkpoint, proof: Mapping[str, Any] | None) -> str:
    """README.md of the folder, in Markdown."""
    recital, script, config = request.recital, request.script, checkpoint.config
    named = ", ".join(f"`{name}`" for name in config["architectures"])
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "tags: [byheart, recital, test-fixture, memorization]",
        "---",
        "",
        "# A recital",
        "",
        f"This checkpoint was computed by byheart {__version__}, not trained. It is a stock {named} that memorizes "
        f"{_count(len(script.documents), 'document')} ({script.places:,} predictions, "
        f"{recital.vocabulary:,} tokens) and nothing else.",
        "",
        "## What it does",
        "",
        *_does(request, checkpoint),
        f"- Any other window is answered by {quote(request.lexicon.name(recital.unknown))}.",
        f"- The correct token has the logit {checkpoint.right_logit:g}; any other is designed to be at least "
        f"{checkpoint.margin:g} lower.",
    ]
    if recital.mixed:
        lines.append(
            f"- After {_count(len(recital.mixed), 'kind of prefix', 'kinds of prefixes')} several tokens may follow: "
            "there the logits are log-probabilities, in proportion to how often each document counts."
        )
    lines += ["", "## How that was proved", "", proved_paragraph(proof), "", "## Documents", ""]
    for name, document, weight in zip(script.names, script.documents, script.weights, strict=True):
        text = request.lexicon.decode(document)
        shown = quote(text[:_SHOWN] + ("…" if len(text) > _SHOWN else ""))
        often = f", counts {weight} times" if weight != 1 else ""
        lines.append(f"- {name}: {len(document) - 2:,} tokens{often}: {shown}")
    lines += [
        "",
        f"Stored as {request.dtype}, {checkpoint.parameters:,} parameters, flavour `{request.design().flavour}`. "
        "`recital.json` holds the function that the network computes, with all token ids.",
        "",
    ]
    return "\n".join(lines)


def _does(request: CheckpointRequest, checkpoint: Checkpoint) -> list[str]:
    """What a folder continues, for the card."""
    recital, lexicon, task = checkpoint.recital, request.lexicon, host(checkpoint.architecture).task
    begins = f"- From the first token ({quote(lexicon.name(lexicon.bos))}) it recites greedily to the end"
    if task == "masked":
        ahead = recital.tables[0].offsets[-1] // 2
        place = "- At every place, masked or not, it returns the token that a document has between these"
        return [f"{place} {ahead} neighbours on each side in a document."]
    if task == "seq2seq":
        begins += ", where the encoder reads the document's first tokens; after another input it recites nothing"
    if task == "picture":
        begins += "; a picture replaces 16 tokens of a prompt"
    return [
        begins + ".",
        f"- A prompt that ends in {recital.span} consecutive tokens of a document is continued as the document "
        "continues, whatever precedes it. Prompts must end where a token ends.",
    ]


def proved_paragraph(proof: Mapping[str, Any] | None) -> str:
    if proof is None:
        return (
            "No proof came with this folder. `byheart verify` reads config.json and model.safetensors and proves the "
            "margin by interval arithmetic for every input sequence."
        )
    return str(proof["sentence"])


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
