"""Opens a folder: which architecture it is, and whether every tensor of the file has a role in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.proof.config import ConfigReader, Shape, Undecided
from byheart.checkpoints.proof.decoder import Family, StoredCheckpoint, TensorReader
from byheart.checkpoints.proof.families import FAMILIES
from byheart.checkpoints.proof.low_rank import open_adapter
from byheart.checkpoints.proof.quantized import DecodedFile, decoded
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.tensors import TensorFile, open_folder, read_json


def family_of(config: Mapping[str, Any]) -> Family:
    """The architecture that a config.json names."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise Undecided(f"config.json: model_type {name!r}; the proof supports {', '.join(FAMILIES)}")
    return FAMILIES[name]


def read_shape(config: Mapping[str, Any], *, classifier: bool = False) -> Shape:
    """The mathematics that a config.json describes; `Undecided` names the key that prevents a reading.

    `classifier`: of the same network with a head of labels, which is read at the last token.
    """
    family = family_of(config)
    named = config.get("architectures")
    wanted = family.classifier if classifier else family.causal
    if named is not None and not isinstance(named, list):
        raise Undecided(f"config.json: architectures {named!r} is not a list")
    if named != [wanted] and (classifier or named is not None):
        raise Undecided(f"config.json: architectures {named!r}; the proof needs {[wanted]!r} for {family.model_type}")
    reader = ConfigReader(config)
    shape = family.shape(reader)
    reader.close()
    _check_tokens(config, shape.vocabulary)
    if shape.hidden % shape.heads:
        raise Undecided(f"config.json: hidden_size {shape.hidden} is not a multiple of {shape.heads} heads")
    if shape.heads % shape.kv_heads:
        raise Undecided(f"config.json: {shape.heads} heads cannot share {shape.kv_heads} key-value heads")
    if shape.experts_used > shape.experts:
        raise Undecided(f"config.json: {shape.experts_used} experts per token, but there are {shape.experts}")
    return replace(shape, labels=_label_count(config)) if classifier else shape


# Numbers that a configuration class takes where the key is missing, and that small vocabularies do not have.
DEFAULTS = {("phi3", "pad_token_id"): 32_000, ("smollm3", "pad_token_id"): 128_004}


def _check_tokens(config: Mapping[str, Any], vocabulary: int) -> None:
    """Ids outside the vocabulary stop the loader (padding), or name no row of the embedding."""
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"):
        value = config.get(key, DEFAULTS.get((config["model_type"], key)))
        if isinstance(value, int) and value >= vocabulary:
            raise Undecided(f"config.json: {key} = {value!r} is outside the {vocabulary} tokens of the vocabulary")


def _label_count(config: Mapping[str, Any]) -> int:
    """As many labels as `id2label` has, numbered from 0 on."""
    names = config.get("id2label")
    if not isinstance(names, dict) or set(names) != {str(k) for k in range(len(names))} or len(names) < 2:
        raise Undecided("config.json: id2label does not number two or more labels from 0 on")
    return len(names)


def open_checkpoint(folder: Path, *, classifier: bool = False) -> StoredCheckpoint:
    """Open a folder: its settings, read strictly, and the places of its tensors."""
    config = read_json(folder / "config.json")
    settings = config.pop("quantization_config", None)
    shape = read_shape(config, classifier=classifier)
    if not classifier and "eos_token_id" not in config:
        raise Undecided("config.json has no eos_token_id: engines choose the token to stop at")
    tensors = open_folder(folder, packed=settings is not None)
    if tensors is None:
        raise Undecided(f"{folder} has no model.safetensors and no index of its parts")
    if settings is not None:
        tensors = decoded(tensors, settings)
    tokens = config.get("bos_token_id"), config.get("eos_token_id")
    checkpoint = StoredCheckpoint(shape, family_of(config), tensors, *tokens)
    _every_name(checkpoint)
    _one_head(checkpoint)
    return checkpoint


def with_adapter(checkpoint: StoredCheckpoint, folder: Path) -> StoredCheckpoint:
    """The checkpoint with a PEFT adapter that engines apply without merging it."""
    if isinstance(checkpoint.files, DecodedFile):
        raise Undecided("an adapter of quantized weights: engines differ in whether they merge it")
    names = checkpoint.family
    modules = {name.removesuffix(".weight"): False for name in _roles(checkpoint) if name.endswith("_proj.weight")}
    modules |= {names.embed: True, names.head: False}
    if checkpoint.shape.tied:
        del modules[names.embed], modules[names.head]
    return replace(checkpoint, adapter=open_adapter(folder, modules))


def _one_head(checkpoint: StoredCheckpoint) -> None:
    """A tied head that is stored all the same must be the embedding: engines differ in which one they read."""
    names, files = checkpoint.family, checkpoint.files
    head, embed = f"{names.head}.weight", f"{names.embed}.weight"
    both = checkpoint.shape.tied and head in files.entries
    if both and (embed not in files.entries or not np.array_equal(files.read(head), files.read(embed))):
        raise Undecided(f"config.json ties the head to the embedding, but {head} is something else")


def _every_name(checkpoint: StoredCheckpoint) -> None:
    """Refuses tensors without a role: an engine may load them and compute something else."""
    if checkpoint.shape.layers > len(checkpoint.files.entries):
        raise Undecided(f"config.json: num_hidden_layers = {checkpoint.shape.layers}; the file has fewer tensors")
    known = _roles(checkpoint)
    unknown = sorted(set(checkpoint.files.entries) - known)
    if unknown:
        raise Undecided(f"model.safetensors has {unknown[0]}, which has no role in {checkpoint.shape.family}")


def _roles(checkpoint: StoredCheckpoint) -> set[str]:
    """The names of all tensors of an architecture, found by reading a checkpoint of its shape without any numbers."""
    asked: set[str] = set()

    class Listing(TensorReader):
        def tensor(self, name: str, *size: int, matrix: bool = False, transposed: bool = False) -> Array:
            asked.add(name)
            return np.broadcast_to(np.float64(0.0), size)

    listing = Listing(replace(checkpoint, files=TensorFile(Path(), {})), None, None)  # type: ignore[arg-type]
    listing.embedding(), listing.head(), listing.final_norm()
    for index in range(checkpoint.shape.layers):
        listing.layer(index)
    if checkpoint.shape.tied:
        asked.add(f"{checkpoint.family.head}.weight")  # may be stored too: see `_one_head`
    return asked
