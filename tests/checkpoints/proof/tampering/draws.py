"""Draws: a folder of a sampled architecture and variant, edited, proved and run."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.hosts.recall.architectures import RecallOptions, recall_checkpoint
from byheart.checkpoints.suite.features.recall import recall_files, recall_lexicon
from byheart.errors import ByheartError
from tests.checkpoints.proof.folders import ARCHITECTURES, TEXT, write
from tests.checkpoints.proof.tampering.engines import recall_faults, recital_faults
from tests.checkpoints.proof.tampering.settings import edit_config, edit_layout, edit_rope
from tests.checkpoints.proof.tampering.tensors import edit_files, edit_tensors, shard_folder
from tests.checkpoints.proof.tampering.texts import edit_texts

Random = np.random.Generator
NEWER = (
    "qwen3-moe", "granite", "olmo2", "smollm3", "gemma3", "gpt-oss", "deepseek-v3", "cohere", "qwen3-next", "bamba",
    "gemma2",
)  # fmt: skip
RECITALS = (*ARCHITECTURES, *NEWER)
RECALLS = (
    "llama", "qwen3", "qwen2", "phi3", "mistral", "gemma", "mixtral", "qwen3-moe", "smollm3", "granite", "gpt2", "opt",
    "gpt-neox",
)  # fmt: skip
SONG = "row, row, row your boat gently down the stream; merrily, merrily, row your boat down the stream"
# How a folder may be written; most are the default.
VARIANTS: tuple[dict[str, Any], ...] = (
    *({},) * 6, {"form": "sparse", "texts": (SONG,)}, {"flavour": "units", "form": "rules"}, {"flavour": "plateau"},
    {"dtype": "float32"}, {"dtype": "float16"}, {"scale_probe": False}, {"texts": (TEXT, SONG)},
)  # fmt: skip
SCALINGS = {name: ("linear", "llama3", "yarn") for name in ("llama", "mistral", "qwen3", "granite", "smollm3", "olmo2")}
SCALINGS["phi3"] = ("longrope",)
EDITS: dict[str, Callable[[Path, Random], str]] = {
    "tensors": edit_tensors, "config": edit_config, "texts": edit_texts, "files": edit_files, "rope": edit_rope,
    "layout": edit_layout,
}  # fmt: skip
SHARDED = 0.15  # of all folders
SHARES = {"tensors": 0.45, "config": 0.3, "texts": 0.12, "files": 0.06, "rope": 0.07}
RECALL_SHARES = {"tensors": 0.55, "config": 0.2, "texts": 0.05, "rope": 0.1, "layout": 0.1}


def edit_folder(folder: Path, rng: Random, shares: dict[str, float]) -> tuple[str, str]:
    """One edit of a sampled kind: (kind, what was edited)."""
    kind = str(rng.choice(list(shares), p=list(shares.values())))
    return kind, EDITS[kind](folder, rng)


@dataclass(frozen=True)
class Draw:
    """One folder: its architecture, the kind of edit, what was edited, proved types and faults."""

    number: int
    architecture: str
    kind: str
    edit: str = ""
    proved: int = 0
    faults: tuple[str, ...] = ()
    refused: bool = False


class Bases:
    """Honest folders, written once per architecture and variant."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def recital(self, architecture: str, variant: dict[str, Any]) -> tuple[Path, tuple[str, ...]]:
        texts = tuple(variant.get("texts", (TEXT,)))
        folder = self.root / re.sub(r"\W+", "-", f"{architecture}-{sorted(variant.items())}")[:120]
        return (folder if folder.exists() else write(folder, architecture, **variant)), texts

    def recall(self, architecture: str, options: dict[str, Any]) -> Path:
        folder = self.root / re.sub(r"\W+", "-", f"recall-{architecture}-{sorted(options.items())}")
        if not folder.exists():
            checkpoint = recall_checkpoint(architecture, RecallOptions(context=512, **options))
            folder.mkdir(parents=True)
            for name, data in recall_files(checkpoint, recall_lexicon(checkpoint.function), "bfloat16").items():
                (folder / name).write_bytes(data)
        return folder


RECALL_VARIANTS: tuple[dict[str, Any], ...] = (
    {"heads": 2, "kv_heads": 1}, {"heads": 2, "kv_heads": 1, "tied": True}, {"key_length": 1, "head_dim": 64}, {},
)  # fmt: skip


@contextmanager
def sample(
    number: int, seed: int, bases: Bases, only: tuple[str, ...] = (), kind: str | None = None
) -> Iterator[tuple[Draw, Path, tuple[str, ...], Random]]:
    """Sample and edit one folder: its draw, where it is for now, its texts (none for recall), and the generator."""
    rng = np.random.default_rng([seed, number])
    names = only or (*RECITALS, *(f"recall {name}" for name in RECALLS))
    name = names[number % len(names)]
    recall = name.startswith("recall ")
    shares = RECALL_SHARES if recall else SHARES
    kind = kind or str(rng.choice(list(shares), p=list(shares.values())))
    texts: tuple[str, ...] = ()
    if recall:
        variant = dict(RECALL_VARIANTS[int(rng.integers(len(RECALL_VARIANTS)))])
        if kind == "rope" and rng.random() < 0.7:
            variant["rope_scaling"] = str(rng.choice(["linear", "llama3", "yarn"]))
        try:
            base = bases.recall(name.removeprefix("recall "), variant)
        except ByheartError:  # an architecture without this variant
            base = bases.recall(name.removeprefix("recall "), {})
    else:
        variant = dict(VARIANTS[int(rng.integers(len(VARIANTS)))])
        if kind == "rope" and name in SCALINGS:
            variant = {"scaling": str(rng.choice(SCALINGS[name]))}
        try:
            base, texts = bases.recital(name, variant)
        except ByheartError:  # an architecture without this variant
            base, texts = bases.recital(name, {})
    folder = Path(tempfile.mkdtemp(dir=bases.root)) / "folder"
    shutil.copytree(base, folder)
    try:
        found = Draw(number, name, kind, EDITS[kind](folder, rng))
        if (folder / "model.safetensors").exists() and rng.random() < SHARDED:
            found = replace(found, edit=f"{found.edit}; {shard_folder(folder, rng)}")
        yield found, folder, texts, rng
    finally:
        shutil.rmtree(folder.parent)


def draw(
    number: int, seed: int, bases: Bases, only: tuple[str, ...] = (), kind: str | None = None, quick: bool = False
) -> Draw:
    """Sample, edit, prove and run one folder; `quick` compares what may differ by the kind of edit."""
    with sample(number, seed, bases, only, kind) as (found, folder, texts, rng):
        recited = not quick or found.kind in ("texts", "config", "files")
        try:
            if texts:
                proved, faults = recital_faults(folder, texts, rng, quick=quick, recited=recited)
            else:
                proved, faults = recall_faults(folder, rng, quick)
        except ByheartError:
            return replace(found, refused=True)
        return replace(found, proved=proved, faults=tuple(faults))
