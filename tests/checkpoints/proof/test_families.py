"""Folders of newer families, scaled ropes and shards that once were proved although stock Transformers refuses them or
computes something else."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import verify_folder
from byheart.checkpoints.proof.checkpoint import read_shape
from byheart.checkpoints.proof.config import Rotary, Undecided
from byheart.checkpoints.proof.ropes import RopeScaling, UnknownRope
from byheart.checkpoints.proof.tensors import INDEX, open_folder, open_tensors
from byheart.errors import FileFormatError
from tests.checkpoints.proof.folders import TEXT, copy, edit_tensor, write

FAMILIES = ("gemma3", "granite", "olmo2", "phi3", "qwen3-moe", "smollm3")
PLAIN = {"rope_type": "default", "rope_theta": 500.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [2.0, 4.0],
            "original_max_position_embeddings": 4096}  # fmt: skip
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a scaling that is a word": ("granite", {"rope_scaling": "x"}, "rope_scaling = 'x'"),
    "a scaling that is a word, per kind of layer": ("gemma3", {"rope_scaling": "x"}, "rope_scaling = 'x'"),
    "a scaling that is a list": ("smollm3", {"rope_scaling": [1]}, r"rope_scaling = \[1\]"),
    "a base that the scaling overrules": (
        "granite", {"rope_theta": ..., "rope_parameters": PLAIN, "rope_scaling": {"rope_type": "default"}},
        "rope_theta missing",
    ),
    "a length that phi3 overrules": (
        "phi3", {"rope_theta": 1e4, "rope_parameters": {**YARN, "rope_theta": 1e4}, "rope_scaling": YARN}, "phi3",
    ),
    "a longrope whose length is stated twice": (
        "phi3", {"rope_theta": 1e4, "rope_parameters": {**LONGROPE, "rope_theta": 1e4}, "rope_scaling": LONGROPE},
        "original_max_position_embeddings = 4096",
    ),
    "a longrope with too short lists": (
        "phi3", {"original_max_position_embeddings": 4096, "rope_scaling": LONGROPE,
                 "rope_parameters": {**LONGROPE, "rope_theta": 1e4}}, "32 numbers in each list",
    ),
    "no activation": ("gemma3", {"hidden_activation": None}, "hidden_activation = None"),
    "an empty activation": ("gemma3", {"hidden_activation": ""}, "hidden_activation = ''"),
    "an interval that is a word": ("smollm3", {"no_rope_layer_interval": "x"}, "no_rope_layer_interval = 'x'"),
    "layers in floating point": ("smollm3", {"no_rope_layers": [1.0, 0.0, 1.0]}, "no_rope_layers"),
    "layers that are switches": ("smollm3", {"no_rope_layers": [True, False, True]}, "no_rope_layers"),
    "more experts than there are": ("qwen3-moe", {"num_experts_per_tok": 17}, "17 experts per token"),
    "labels without numbers": ("olmo2", {"id2label": {"x": "y"}}, "id2label"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("families")
    return lambda name: root / name if (root / name).exists() else write(root / name, name)


@pytest.mark.parametrize("name", REFUSED)
def test_configs_that_do_not_load_or_mean_something_else_are_refused(name: str, folders: Callable[[str], Path]) -> None:
    family, changes, reason = REFUSED[name]
    config = json.loads((folders(family) / "config.json").read_text())
    read_shape(config)
    config = {key: value for key, value in (config | changes).items() if value is not ...}
    with pytest.raises(Undecided, match=reason):
        read_shape(config)


def test_one_norm_over_all_heads_distinguishes_heads_with_equal_matrices(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    """Two heads share the work of one; then the norm turns the queries of the second around."""
    folder = copy(folders("olmo2"), tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    size, part = config["hidden_size"] // config["num_attention_heads"], "model.layers.1.self_attn."
    first, second = slice(0, size), slice(2 * size, 3 * size)

    def share(values: np.ndarray) -> np.ndarray:
        values[:, second] /= 2
        values[:, first] = values[:, second]
        return values

    def repeat(values: np.ndarray) -> np.ndarray:
        values[first] = values[second]
        return values

    def turn(values: np.ndarray) -> np.ndarray:
        values[second] *= -1
        return values

    for name, change in (("q_proj", repeat), ("o_proj", share), ("q_norm", repeat)):
        edit_tensor(folder, f"{part}{name}.weight", change)
    before = verify_folder(folder, [TEXT], ("float32",), reach=128)
    edit_tensor(folder, f"{part}q_norm.weight", turn)
    after = verify_folder(folder, [TEXT], ("float32",), reach=128)
    assert before.verdict is Verdict.PROVED and after.verdict is not Verdict.PROVED


@pytest.mark.parametrize("original", [3, 10**12])
def test_a_blend_that_ends_before_it_begins_is_refused(original: int) -> None:
    with pytest.raises(UnknownRope, match="engines blend differently"):
        _ = Rotary(1e4, 64, RopeScaling("yarn", 4.0, original)).frequencies


def test_a_steep_blend_is_as_uncertain_as_it_is_steep() -> None:
    usual, steep = (RopeScaling("llama3", 8.0, 8192, 1.0, high).uncertainty for high in (4.0, 1.0 + 2.0**-20))
    assert usual < 100 and steep > 2.0**25


def rewritten(path: Path, change: Callable[[dict[str, Any]], None], before: bytes = b"", after: bytes = b"") -> Path:
    """A file of tensors with another header, and bytes before and after the numbers."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + before + data[8 + length :] + after)
    return path


def moved(header: dict[str, Any]) -> None:
    for name, entry in header.items():
        if name != "__metadata__":
            entry["data_offsets"] = [place + 8 for place in entry["data_offsets"]]


def test_files_that_the_safetensors_library_does_not_load_are_refused(llama: Path, tmp_path: Path) -> None:
    path = copy(llama, tmp_path / "copy") / "model.safetensors"
    whole = path.read_bytes()
    open_tensors(rewritten(path, lambda header: None))
    for change, before, after, reason in (
        (lambda header: None, b"", b"\0" * 8, "belong to none"),
        (moved, b"\0" * 8, b"", "begins at byte"),
        (lambda header: header.update(__metadata__={"format": 3}), b"", b"", "object of strings"),
    ):
        path.write_bytes(whole)
        with pytest.raises(FileFormatError, match=reason):
            open_tensors(rewritten(path, change, before, after))


@pytest.mark.parametrize("metadata", [None, [], "x", ...])
def test_an_index_without_metadata_is_refused(metadata: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "shards", "llama", shards=2)
    assert open_folder(folder) is not None
    index = json.loads((folder / INDEX).read_text())
    index = {key: value for key, value in (index | {"metadata": metadata}).items() if value is not ...}
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match="metadata is not an object"):
        open_folder(folder)


def test_longrope_is_proved_up_to_the_original_positions(tmp_path: Path) -> None:
    """Longer texts divide the frequencies by other numbers, which the certificate does not cover."""
    folder = write(tmp_path / "phi3", "phi3", scaling="longrope", reach=256)
    found = verify_folder(folder, [TEXT])
    assert found.verdict is Verdict.PROVED and found.reach == 256
    config = json.loads((folder / "config.json").read_text())
    assert config["max_position_embeddings"] == 1024 and config["partial_rotary_factor"] == 0.75
    other = copy(folder, tmp_path / "other")
    text = (other / "config.json").read_text()
    swapped = text.replace("short_factor", "middle").replace("long_factor", "short_factor")
    (other / "config.json").write_text(swapped.replace("middle", "long_factor"))
    assert verify_folder(other, [TEXT], ("float32",)).verdict is not Verdict.PROVED
