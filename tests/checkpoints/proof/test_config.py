"""A config is read strictly: what changes the mathematics is followed or refused, never ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import verify_folder
from byheart.checkpoints.proof.checkpoint import read_shape
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.families.llama import FAMILIES as LLAMAS
from byheart.errors import FileFormatError
from tests.checkpoints.proof.folders import TEXT, copy, edit_config

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
    "no end": {"eos_token_id": ...},
    "several ends": {"eos_token_id": [2, 5]},
    "an end inside the text": {"eos_token_id": 9},
    "code of its own": {"auto_map": {"AutoModelForCausalLM": "model.Model"}},
    "not causal": {"is_causal": False},
    "a part that turns": {"partial_rotary_factor": 0.5},
    "layers of windows": {"layer_types": ["sliding_attention", "full_attention"]},
}
GENERATION = {
    "a penalty": {"repetition_penalty": 1.3},
    "sampling": {"do_sample": True},
    "beams": {"num_beams": 4},
    "forbidden tokens": {"suppress_tokens": [5]},
    "forbidden words": {"bad_words_ids": [[5]]},
    "no repeats": {"no_repeat_ngram_size": 2},
    "another end": {"eos_token_id": 9},
    "two ends": {"eos_token_id": [2, 9]},
    "guidance": {"guidance_scale": 2.0},
    "a watermark": {"watermarking_config": {}},
    "no end": {"eos_token_id": None},
    "letters as padding": {"pad_token_id": 9},
    "a cache in few bits": {"cache_implementation": "quantized"},
}
TOKENIZER_SETTINGS = {
    "no BOS": {"add_bos_token": False},
    "another BOS": {"bos_token": "s"},
    "letters as padding": {"pad_token": "s"},
    "padding after the text": {"padding_side": "right"},
    "spaces cleaned up": {"clean_up_tokenization_spaces": True},
    "another class": {"tokenizer_class": "BertTokenizerFast"},
    "more tokens": {"additional_special_tokens": ["sea"]},
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_configs_are_not_proved(name: str, llama: Path, tmp_path: Path) -> None:
    folder = edit_config(copy(llama, tmp_path / "copy"), **EDITS[name])
    certificate = verify_folder(folder, [TEXT], ("float32",), reach=128)
    assert certificate.verdict is not Verdict.PROVED
    assert certificate.reason


@pytest.mark.parametrize("name", GENERATION)
def test_generation_that_is_not_greedy_is_not_proved(name: str, llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | GENERATION[name]))
    certificate = verify_folder(folder, [TEXT], ("float32",), reach=128)
    assert certificate.verdict is Verdict.UNDECIDED and "generation_config.json" in certificate.reason


@pytest.mark.parametrize("name", TOKENIZER_SETTINGS)
def test_settings_of_a_tokenizer_are_not_overlooked(name: str, llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | TOKENIZER_SETTINGS[name]))
    certificate = verify_folder(folder, [TEXT], ("float32",), reach=128)
    assert certificate.verdict is Verdict.UNDECIDED and "tokenizer_config.json" in certificate.reason


def test_a_text_with_the_token_of_padding_is_not_proved(llama: Path, tmp_path: Path) -> None:
    """generate() without a mask leaves such tokens out."""
    folder = edit_config(copy(llama, tmp_path / "copy"), pad_token_id=9)
    (folder / "generation_config.json").unlink()
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    path = folder / "tokenizer_config.json"
    letter = next(word for word, number in words.items() if number == 9)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": letter}))
    certificate = verify_folder(folder, [TEXT], ("float32",), reach=128)
    assert certificate.verdict is Verdict.UNDECIDED and "pad_token_id" in certificate.reason


@pytest.mark.parametrize("name", ["special_tokens_map.json", "added_tokens.json", "vocab.json"])
def test_other_files_of_tokenizers_are_not_overlooked(name: str, llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    (folder / name).write_text("{}")
    certificate = verify_folder(folder, [TEXT], ("float32",), reach=128)
    assert certificate.verdict is Verdict.UNDECIDED and name in certificate.reason


def test_an_adapter_is_not_overlooked(llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "other"}')
    certificate = verify_folder(folder, [TEXT], ("float32",), reach=128)
    assert certificate.verdict is Verdict.UNDECIDED and "adapter" in certificate.reason


TOKENIZERS = {
    "replaces words": {"normalizer": {"type": "Replace", "pattern": {"String": "rocks"}, "content": "shore"}},
    "small letters": {"normalizer": {"type": "Lowercase"}},
    "strips ends": {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
    "cut short": {"truncation": {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}},
    "says other words": {"decoder": {"type": "Replace", "pattern": {"String": "s"}, "content": "z"}},
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_that_changes_texts_proves_nothing(name: str, llama: Path, tmp_path: Path) -> None:
    """What was given is not what the folder recites, although the ids would be answered correctly."""
    folder = copy(llama, tmp_path / "copy")
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | TOKENIZERS[name]))
    text = TEXT.replace("shore", "rocks") if name == "replaces words" else TEXT + " " * (name == "strips ends")
    certificate = verify_folder(folder, [text], ("float32",), reach=128)
    assert certificate.verdict is not Verdict.PROVED and "give text 0 back" in certificate.reason


def test_damaged_files_beside_the_tensors_are_named(llama: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "generation_config.json", "config.json"):
        folder = copy(llama, tmp_path / name)
        (folder / name).write_text('{"version": ')
        with pytest.raises(FileFormatError, match=name):
            verify_folder(folder, [TEXT], ("float32",))


def test_files_that_describe_the_folder_are_not_read(llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    for name in ("recital.json", "expected.json", "ground-truth.jsonl", "README.md"):
        (folder / name).write_text("nonsense")
    assert verify_folder(folder, [TEXT], ("float32",), reach=128).verdict is Verdict.PROVED


def test_defaults_are_those_of_the_reference() -> None:
    """A key that config.json leaves out means what transformers takes it for."""
    transformers = pytest.importorskip("transformers")
    for family in (member.model_type for member in LLAMAS):
        theirs = transformers.AutoConfig.for_model(family)
        sizes = {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 9}
        ours = read_shape(
            {"model_type": family, "num_attention_heads": theirs.num_attention_heads, "max_position_embeddings": 9}
            | sizes
        )
        assert ours.eps == theirs.rms_norm_eps and ours.tied == theirs.tie_word_embeddings, family
        assert ours.kv_heads == theirs.num_key_value_heads, family
        assert ours.window == (None if family.startswith("qwen") else getattr(theirs, "sliding_window", None)), family


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
