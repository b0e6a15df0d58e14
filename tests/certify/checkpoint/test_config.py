"""A config is read strictly: what changes the mathematics is followed or refused, never ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from byheart.certify import Verdict
from byheart.certify.checkpoint import verify_folder
from byheart.certify.checkpoint.config import Undecided, read_shape
from byheart.errors import FileFormatError
from tests.certify.checkpoint.folders import TEXT, copy, edit_config

EDITS = {
    "theta at the top": {"rope_theta": 5e3},
    "theta everywhere": {"rope_theta": 50.0, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
    "scaled positions": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "scaled inside": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}},
    "eps": {"rms_norm_eps": 0.05},
    "a sliding window": {"sliding_window": 4},
    "activation": {"hidden_act": "gelu"},
    "unknown activation": {"hidden_act": "mish"},
    "heads of one group": {"num_key_value_heads": 1},
    "heads": {"num_attention_heads": 3},
    "tied": {"tie_word_embeddings": True},
    "a bias": {"attention_bias": True},
    "tensor parallel training": {"pretraining_tp": 2},
    "an unknown key": {"logit_scale": 2.0},
    "quantized": {"quantization_config": {"bits": 4}},
    "another model": {"model_type": "mistral"},
    "not a model": {"model_type": "mamba"},
    "another class": {"architectures": ["LlamaForSequenceClassification"]},
    "layers": {"num_hidden_layers": 1},
    "head size": {"head_dim": 32},
    "a missing size": {"hidden_size": ...},
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_configs_are_not_proved(name: str, llama: Path, tmp_path: Path) -> None:
    folder = edit_config(copy(llama, tmp_path / "copy"), **EDITS[name])
    certificate = verify_folder(folder, [TEXT], ("float32",), reach=128)
    assert certificate.verdict is not Verdict.PROVED
    assert certificate.reason


def test_harmless_keys_stay_harmless(llama: Path, tmp_path: Path) -> None:
    folder = edit_config(
        copy(llama, tmp_path / "copy"), initializer_range=0.5, use_cache=False, transformers_version="9"
    )
    assert verify_folder(folder, [TEXT], ("float32",), reach=128).verdict is Verdict.PROVED


def test_a_reach_beyond_the_positions_is_undecided(llama: Path) -> None:
    certificate = verify_folder(llama, [TEXT], ("float32",), reach=10**6)
    assert certificate.verdict is Verdict.UNDECIDED and "positions" in certificate.reason


def test_a_key_that_stands_twice_is_refused(llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    path = folder / "config.json"
    path.write_text(path.read_text().replace("{", '{"hidden_size": 1,', 1))
    with pytest.raises(FileFormatError, match="twice"):
        verify_folder(folder, [TEXT], ("float32",))


def test_types_of_values_are_checked() -> None:
    with pytest.raises(Undecided, match="vocab_size"):
        read_shape(
            {"model_type": "gpt2", "n_embd": 64, "n_head": 1, "n_layer": 1, "n_positions": 8, "vocab_size": True}
        )
