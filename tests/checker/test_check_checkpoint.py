"""The second checker of checkpoints agrees with the proof on honest folders and proves no tampered one too much.

It is one file that imports nothing of byheart; its tests run it beside byheart's own proof, and beside Transformers.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import TYPES, tokenize, verify_folder
from tests.checkpoints.proof.folders import ARCHITECTURES, TEXT, copy, edit_config, edit_tensor, write
from tests.checkpoints.proof.test_tampering import edit_folder, measured

PATH = Path(__file__).parents[2] / "checker" / "check_checkpoint.py"
LAYER = "model.layers.0."


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_checkpoint", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


checker = program()


def with_prompt(folder: Path) -> Path:
    (ids,) = tokenize(folder, [TEXT])
    prompts = [{"ids": ids[:1], "continuation_ids": ids[1:]}]
    (folder / "expected.json").write_text(json.dumps({"prompts": prompts}))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_prompt(write(tmp_path_factory.mktemp("second") / "llama"))


def verdict(folder: Path, *types: str) -> str:
    return str(checker.check(folder, list(types or TYPES), 1)["verdict"])


def test_it_imports_only_numpy_and_the_standard_library() -> None:
    roots = {line.split()[1].split(".")[0] for line in PATH.read_text().splitlines()
             if line.startswith(("import ", "from "))}  # fmt: skip
    assert roots - set(sys.stdlib_module_names) == {"numpy"}


def test_an_honest_folder_is_proved_by_both(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checker.main([str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    ours = {t.type: t for t in verify_folder(folder, [TEXT], TYPES, reach=128).types}
    for name, result in found["types"].items():
        assert result["verdict"] == "proved" and result["margin"] > 10 and ours[name].verdict is Verdict.PROVED


def grown(values: np.ndarray) -> np.ndarray:
    values[:64] *= 256
    return values


def huge(values: np.ndarray) -> np.ndarray:
    values[0] = 6e4
    return values


def silent(values: np.ndarray) -> np.ndarray:
    values[:, 0] = 0.0
    return values


def backwards(values: np.ndarray) -> np.ndarray:
    return values[::-1].copy()


TENSORS = {
    "scores that leave float16": {"self_attn.q_proj.weight": grown},
    "an idle unit that overflows": {"mlp.up_proj.weight": huge, "mlp.down_proj.weight": silent},
    "units in another order": {"mlp.down_proj.weight": backwards},
}


@pytest.mark.parametrize("name", TENSORS)
def test_tampered_tensors_are_proved_by_neither(name: str, folder: Path, tmp_path: Path) -> None:
    target = copy(folder, tmp_path / "copy")
    for tensor, change in TENSORS[name].items():
        edit_tensor(target, LAYER + tensor, change)
    assert verdict(target, "float16") == "not proved"
    assert verify_folder(target, [TEXT], ("float16",), reach=128).verdict is not Verdict.PROVED


SETTINGS = (
    {"rope_theta": 5e3}, {"partial_rotary_factor": 0.5}, {"rms_norm_eps": 1}, {"head_dim": 64.0}, {"logit_scale": 2.0},
    {"hidden_act": "gelu_fast"}, {"return_dict": False}, {"dtype": "garbage"}, {"rope_scaling": {"factor": 2.0}},
    {"sliding_window": 4}, {"num_attention_heads": 3}, {"tie_word_embeddings": True}, {"model_type": "mamba"},
    {"pad_token_id": 10**6}, {"vocab_size": 7}, {"rotary_emb_base": 1e4}, {"quantization_config": {}},
)  # fmt: skip


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_settings_that_change_the_mathematics_are_not_proved(changes: dict, folder: Path, tmp_path: Path) -> None:
    assert verdict(edit_config(copy(folder, tmp_path / "copy"), **changes), "float32") == "not proved"


def test_a_wrong_answer_is_not_proved(folder: Path, tmp_path: Path) -> None:
    target = copy(folder, tmp_path / "copy")
    expected = json.loads((target / "expected.json").read_text())
    expected["prompts"][0]["continuation_ids"][3] += 1
    (target / "expected.json").write_text(json.dumps(expected))
    assert verdict(target, "float32") == "not proved"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "expected.json"])
def test_damaged_folders_are_unreadable(name: str, folder: Path, tmp_path: Path) -> None:
    target = copy(folder, tmp_path / "copy")
    data = (target / name).read_bytes()
    for damaged in (b"", data[: len(data) // 2], b"[]", b"\xff" * 16):
        (target / name).write_bytes(damaged)
        assert checker.main([str(target)]) == 2
    (target / name).unlink()
    assert checker.main([str(target)]) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_and_its_tampered_copies(architecture: str, tmp_path: Path) -> None:
    """Honest: proved in float32 everywhere, in all types but for GPT-2 and OPT. Tampered: never beyond Transformers."""
    honest = with_prompt(write(tmp_path / "honest", architecture))
    found = checker.check(honest, list(TYPES), 1)["types"]
    wanted = ("float32",) if architecture in ("gpt2", "opt") else TYPES
    assert all(found[name]["verdict"] == "proved" for name in wanted), found
    (ids,) = tokenize(honest, [TEXT])
    rng = np.random.default_rng([91, ARCHITECTURES.index(architecture)])
    for number in range(12):
        target = copy(honest, tmp_path / str(number))
        edit = edit_folder(target, rng)
        try:
            found = checker.check(target, list(TYPES), 0)["types"]
        except checker.Unreadable:
            continue
        for name, result in found.items():
            if result["verdict"] == "proved":
                for attention in ("eager", "sdpa"):
                    assert measured(target, ids, name, attention) >= result["margin"], (number, edit, name, attention)
