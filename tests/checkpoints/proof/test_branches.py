"""Rules for newer blocks: what the prover decides about them, and what it refuses when they are changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.proof.bounds import Bounds, SymbolPart
from byheart.checkpoints.proof.branches import multiplied, read_by_branch, scaled_head
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Linear
from byheart.checkpoints.proof.storage import storage
from tests.checkpoints.proof.folders import copy, edit_config, edit_tensor, write

NEWER = ("qwen3-moe", "granite", "olmo2", "smollm3", "gemma3", "gpt-oss", "deepseek-v3", "cohere")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("newer")


def folder_of(folders: Path, architecture: str, **options: Any) -> Path:
    path = folders / "-".join([architecture, *map(str, options.values())])
    return path if path.exists() else write(path, architecture, reach=128, **options)


def verdict(path: Path, *types: str) -> Any:
    documents = [entry["ids"] for entry in json.loads((path / "recital.json").read_text())["documents"]]
    return certify_checkpoint(path, documents, types or ("float32",))


@pytest.mark.parametrize("architecture", NEWER)
def test_the_margin_is_proved_in_every_type(architecture: str, folders: Path) -> None:
    certificate = verdict(folder_of(folders, architecture), "float32", "bfloat16", "float16")
    assert certificate.verdict is Verdict.PROVED, certificate.reason
    assert all(one.margin > 20 for one in certificate.types), [one.margin for one in certificate.types]


@pytest.mark.parametrize("scaling", ["linear", "llama3", "yarn"])
def test_scaled_frequencies_are_proved(scaling: str, folders: Path) -> None:
    certificate = verdict(folder_of(folders, "llama", scaling=scaling), "bfloat16")
    assert certificate.verdict is Verdict.PROVED and certificate.margin > 20, certificate.reason


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("granite", {"residual_multiplier": 0.2}),
    ("granite", {"embedding_multiplier": 6.0}),
    ("granite", {"attention_multiplier": 0.0009765625}),
    ("granite", {"logits_scaling": 12.0}),
    ("granite", {"logits_scaling": 16}),
    ("qwen3-moe", {"norm_topk_prob": False}),
    ("qwen3-moe", {"norm_topk_prob": ...}),
    ("qwen3-moe", {"num_experts_per_tok": 3}),
    ("qwen3-moe", {"mlp_only_layers": [0]}),
    ("smollm3", {"no_rope_layers": [0, 1, 1]}),
    ("smollm3", {"no_rope_layers": [1, 0]}),
    ("gemma3", {"query_pre_attn_scalar": 1024 * 64}),
    ("gemma3", {"layer_types": ["full_attention"]}),
    ("gemma3", {"sliding_window": None}),
    ("gemma3", {"rope_local_base_freq": 1e6}),
    ("gemma3", {"attn_logit_softcapping": 50.0}),
    ("olmo2", {"clip_qkv": 8.0}),
    ("cohere", {"logit_scale": 0.0625}),
    ("cohere", {"logit_scale": 0.1}),
    ("cohere", {"use_qk_norm": True}),
    ("cohere", {"layer_norm_eps": 0.1}),
    ("cohere", {"rms_norm_eps": 1e-5}),
    ("cohere", {"use_parallel_residual": False}),
    ("cohere", {"tie_word_embeddings": False}),
]


@pytest.mark.parametrize(("architecture", "change"), CHANGES, ids=str)
def test_other_settings_are_not_proved(architecture: str, change: dict[str, Any], folders: Path, tmp_path) -> None:
    path = edit_config(copy(folder_of(folders, architecture), tmp_path / "new"), **change)
    certificate = verdict(path)
    assert certificate.verdict is not Verdict.PROVED or certificate.margin < 20


def scaled(change: float):
    return lambda values: values * change


@pytest.mark.parametrize(
    ("architecture", "tensor", "change"),
    [
        ("olmo2", "model.layers.0.post_attention_layernorm.weight", scaled(0.5)),
        ("olmo2", "model.layers.1.post_feedforward_layernorm.weight", scaled(0.5)),
        ("olmo2", "model.layers.0.self_attn.q_norm.weight", scaled(0.02)),
        ("gemma3", "model.layers.1.post_attention_layernorm.weight", scaled(0.5)),
        ("gemma3", "model.layers.0.pre_feedforward_layernorm.weight", scaled(-1.0)),
        ("qwen3-moe", "model.layers.0.mlp.gate.weight", scaled(0.25)),
        ("qwen3-moe", "model.layers.1.mlp.gate.weight", lambda values: values[::-1]),
        ("granite", "model.layers.0.mlp.down_proj.weight", scaled(0.5)),
        ("smollm3", "model.layers.1.mlp.down_proj.weight", scaled(0.0)),
        ("cohere", "model.layers.0.mlp.down_proj.weight", scaled(0.0)),
        ("cohere", "model.layers.1.self_attn.o_proj.weight", scaled(0.0)),
        ("cohere", "model.embed_tokens.weight", lambda values: values + 0.5 * np.sign(values)),
    ],
)
def test_other_tensors_are_not_proved(architecture: str, tensor: str, change, folders: Path, tmp_path: Path) -> None:
    path = edit_tensor(copy(folder_of(folders, architecture), tmp_path / "new"), tensor, change)
    certificate = verdict(path)
    assert certificate.verdict is not Verdict.PROVED or certificate.margin < 20


def test_a_multiplied_field_encloses_every_engine() -> None:
    """Float32 kept, float32 stored, or multiplier and product both of the type."""
    random = np.random.default_rng(4)
    for name in ("float32", "bfloat16", "float16"):
        store = storage(name)
        table = store.nearest(random.standard_normal((40, 6)))
        part = SymbolPart((0, 0), np.arange(6), table, table)
        for scale in (0.22, 12.0, 1.1386294):
            found = multiplied(Bounds(np.zeros(6), np.zeros(6), (part,)), scale, store)
            lo, hi = found.lo + found.parts[0].lo, found.hi + found.parts[0].hi
            single = (table.astype(np.float32) * np.float32(scale)).astype(np.float64)
            short = store.nearest(table * store.nearest(np.array([scale])))
            for engine in (single, store.nearest(single), short):
                assert (lo <= engine).all() and (engine <= hi).all()


def test_a_branch_without_a_norm_reads_the_stream_itself() -> None:
    stream = Bounds(np.array([-1.0, 2.0]), np.array([1.0, 2.0]))
    kept = read_by_branch(stream, None, storage("float32"), stored=False)
    assert kept.whole is stream and kept.kept is stream and kept.factor == (1.0, 1.0)
    assert read_by_branch(stream, None, storage("bfloat16"), stored=True).kept is None


def test_logits_are_divided_by_powers_of_two_alone() -> None:
    head = Linear("head", np.array([[3.0, 4.0]]), None)
    assert scaled_head(head, 8.0).weight.tolist() == [[0.375, 0.5]]
    with pytest.raises(Undecided, match="not a power of two"):
        scaled_head(head, 12.0)
