"""Recall checkpoints: ropes, designs, refusals, and every position of random prompts in Transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.checkpoints.formats.folder import safetensors_bytes
from byheart.checkpoints.hosts.recall.architectures import HOSTS, RecallCheckpoint, RecallOptions, recall_checkpoint
from byheart.checkpoints.hosts.recall.channels import recall_channels
from byheart.checkpoints.hosts.recall.gated import gated_config
from byheart.checkpoints.hosts.recall.looking import NATS, distance_wave
from byheart.checkpoints.hosts.recall.matching import match_design
from byheart.checkpoints.hosts.recall.plain import plain_config
from byheart.checkpoints.hosts.recall.positions import LLAMA_3_1, head_rotation, yarn
from byheart.checkpoints.hosts.recall.stages import RecallPlan, build_stages
from byheart.checkpoints.suite.features.recall_prompts import sampled, total
from byheart.checkpoints.windows.recall import RecallFunction, key_code, position_code
from byheart.errors import OptionError


def written(checkpoint: RecallCheckpoint, folder: Path, dtype: str = "bfloat16") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**checkpoint.config, "dtype": dtype}))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(checkpoint.tensors, dtype, {"format": "pt"}))
    return folder


def opened(folder: Path, dtype: str, attention: str = "sdpa") -> Any:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), attn_implementation=attention, local_files_only=True
    )
    return model.eval()


def correct(model: Any, function: RecallFunction, ids: list[int]) -> bool:
    import torch

    with torch.inference_mode():
        found = model(torch.tensor([ids]), use_cache=False).logits[0].argmax(1).tolist()
    return bool(found == function.answers(ids))


@pytest.mark.parametrize("scaling", [None, LLAMA_3_1, yarn(4, 32768), {"rope_type": "linear", "factor": 4.0}])
def test_frequencies_are_those_of_transformers(scaling: dict[str, Any] | None) -> None:
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    transformers = pytest.importorskip("transformers")
    rope = {"rope_theta": 1e6, **(scaling or {"rope_type": "default"})}
    config = transformers.LlamaConfig(
        hidden_size=128, num_attention_heads=1, head_dim=128, max_position_embeddings=131072, rope_parameters=rope
    )
    turning = head_rotation(128, 1e6, scaling)
    if scaling is None:
        assert np.allclose(turning.frequencies, 1e6 ** (-np.arange(64) / 64), rtol=1e-12)
        return
    found, gain = utils.ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu")
    assert np.allclose(found.numpy(), turning.frequencies, rtol=1e-5)
    assert gain == pytest.approx(turning.gain)


@pytest.mark.parametrize("offset", [1, 2])
def test_waves_lead_at_every_distance(offset: int) -> None:
    theta = head_rotation(128, 1e6).frequencies
    wave = distance_wave(tuple(theta.tolist()), offset, 4096, 4096)
    score = wave.scores(4096, theta)
    assert score[offset] - np.delete(score, offset).max() > NATS and score[0] > -16


def test_matches_lead_every_other_key() -> None:
    turning = head_rotation(128, 1e6)
    design = match_design(turning, 2048, 2)
    words = key_code(2)
    rng = np.random.default_rng(0)
    theta = np.array([turning.frequencies[list(turning.real).index(d)] for d in design.real])
    for _ in range(50):
        a, b = (words.newer[rng.integers(256)] * words.older[rng.integers(256)] for _ in range(2))  # type: ignore[index]
        if (a == b).all():
            continue
        query = np.exp(-1j * design.turn) * np.where(design.half, 1j * a, a)
        scores = []
        for word in (a, b):
            key = np.where(design.half, 1j * word, word)
            # Bits of one frequency share its dimensions, so the sum over frequencies is that over pairs of bits.
            total_score = []
            for d in (0, 700, 2047):
                turned = np.zeros(128, dtype=complex)
                held = np.zeros(128, dtype=complex)
                np.add.at(turned, design.real, query * np.exp(1j * theta * d))
                np.add.at(held, design.real, key)
                total_score.append((turned * held.conj()).real.sum() / len(a))
            scores.append(total_score)
        assert min(scores[0]) * design.size - max(scores[1]) * design.size > 20


@pytest.mark.parametrize("part", ["k_proj", "v_proj"])
def test_a_query_head_with_another_groups_keys_or_values_is_incorrect(part: str, tmp_path: Path) -> None:
    checkpoint = recall_checkpoint("llama", RecallOptions(context=256))
    folder = written(checkpoint, tmp_path / "model", "float32")
    function, model = checkpoint.function, opened(folder, "float32")
    assert correct(model, function, sampled(function, 60, 1))
    for layer in model.model.layers:
        weight = getattr(layer.self_attn, part).weight.data
        weight[:] = weight.reshape(2, -1, weight.shape[1]).flip(0).reshape(weight.shape)
    assert not correct(model, function, sampled(function, 60, 1))


def test_plain_hosts_have_twins_and_words_of_positions() -> None:
    """Rows over a stream whose mean is not zero lose nothing to it, and every stream's mean is zero."""
    checkpoint = recall_checkpoint("gpt2", RecallOptions(context=64))
    layout, wte, wpe = (
        checkpoint.layout,
        *(np.asarray(checkpoint.tensors[f"transformer.{n}.weight"]) for n in ("wte", "wpe")),
    )
    one, two = layout["twins"]["first"], layout["twins"]["second"]
    assert (wte[:, one] == -wte[:, two]).all() and not (wte[:, None] + wpe[None]).sum(2).any()
    assert callable(plain_config) and set(np.abs(wte[:, None] + wpe[None]).ravel()) == {2.0}
    for name, tensor in checkpoint.tensors.items():
        if name.endswith(("c_attn.weight", "c_fc.weight")):
            rows = np.asarray(tensor)
            assert np.abs(rows[one].sum(0) + rows[two].sum(0)).max() < 1e-12
    words = position_code(2048)
    assert (words @ words.T - 48 * np.eye(2048)).max() <= 16


def test_stages_have_the_planned_shapes() -> None:
    function = RecallFunction()
    plan = RecallPlan(function, head_rotation(128, 1e6), recall_channels(function, 4), 4, 2, 512)
    stages = build_stages(plan)
    assert [s.units is None for s in stages] == [False, True, False, True]
    assert stages[0].attention.query.shape == (512, plan.width)
    assert stages[0].units is not None and len(stages[0].units.gate) == 6 * 32


@pytest.mark.parametrize("options, ways", [
    ({"head_dim": 64, "context": 32768}, ["keys of one token", "rope theta of 1e+07", "head size of 128"]),
    ({"rope_theta": 1e4, "rope_scaling": "default", "context": 131072}, ["a rope theta of"]),
])  # fmt: skip
def test_ropes_without_slow_frequencies_are_refused_with_what_works(options: dict[str, Any], ways: list[str]) -> None:
    with pytest.raises(OptionError, match="turn by one radian") as error:
        recall_checkpoint("llama", RecallOptions(**options))
    assert all(way in str(error.value) for way in ways)


def test_the_named_alternative_works() -> None:
    found = recall_checkpoint("llama", RecallOptions(head_dim=64, context=32768, key_length=1))
    assert found.function.key_length == 1 and found.config["head_dim"] == 64


def test_unknown_wishes_are_refused() -> None:
    for name, options, words in (
        ("bert", {}, "known: llama"), ("llama", {"window": 64}, "mistral has"),
        ("llama", {"heads": 3, "kv_heads": 2}, "share"),
        ("llama", {"rope_scaling": "new"}, "not one of"), ("llama", {"context": 8}, "too short"),
        ("gpt2", {"rope_theta": 1e5}, "learned positions"), ("opt", {"context": 4096}, "2,048 is the most"),
        ("gpt-neox", {"rope_scaling": "linear"}, "no rope scaling"), ("gpt-neox", {"tied": True}, "has its own head"),
        ("gpt2", {"kv_heads": 4}, "for every head"), ("opt", {"epsilon": 1e-6}, "epsilon"),
        ("gpt2", {"head_dim": 32}, "too small"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=words):
            recall_checkpoint(name, RecallOptions(**options))


def test_configurations_name_a_stock_class() -> None:
    assert callable(gated_config) and set(HOSTS) >= {"llama", "qwen3", "qwen2", "phi3", "mistral", "gemma", "mixtral"}
    for name in HOSTS:
        config = recall_checkpoint(name, RecallOptions(context=1024)).config
        assert config["model_type"] == name.replace("-", "_") and config["architectures"][0].endswith(
            ("ForCausalLM", "LMHeadModel")
        )


@pytest.mark.parametrize("name", HOSTS)
def test_every_position_is_correct_in_transformers(name: str, tmp_path: Path) -> None:
    checkpoint = recall_checkpoint(name, RecallOptions(context=1024))
    folder, function = written(checkpoint, tmp_path / "model"), checkpoint.function
    model = opened(folder, "bfloat16")
    assert correct(model, function, sampled(function, 300, 1))
    assert correct(model, function, total(function, 120, 2))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", HOSTS)
def test_every_position_in_every_type(name: str, attention: str, dtype: str, tmp_path: Path) -> None:
    checkpoint = recall_checkpoint(name)
    folder, function = written(checkpoint, tmp_path / "model"), checkpoint.function
    model = opened(folder, dtype, attention)
    for seed, length in enumerate((100, 1000)):
        assert correct(model, function, sampled(function, length, seed))
    for seed in range(10):
        assert correct(model, function, total(function, 300, seed))


@pytest.mark.parametrize("options", [{"tied": True}, {"key_length": 1, "head_dim": 64}, {"heads": 2, "kv_heads": 1}])
def test_variants_are_correct(options: dict[str, Any], tmp_path: Path) -> None:
    checkpoint = recall_checkpoint("llama", RecallOptions(context=1024, **options))
    model = opened(written(checkpoint, tmp_path / "model"), "float16", "eager")
    assert correct(model, checkpoint.function, sampled(checkpoint.function, 200, 3))
