"""Recurrent layers in the proof: refused settings, edited tensors, and engines that round within the error model."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.engines.questions import read_questions
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.proof.bounds import TOKEN, Bounds, SymbolPart, absent, lookback, moved_back, symbols_seen
from byheart.checkpoints.proof.checkpoint import read_shape
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.convolution import at_place, convolved, farthest
from byheart.checkpoints.proof.decoder import Convolution
from byheart.checkpoints.proof.storage import storage
from tests.checkpoints.proof.folders import copy, edit_config, edit_tensor
from tests.checkpoints.recital_folders import SHORT, recital_folder

STORE = storage("float32")
SYMBOLS = 5


@cache
def folder_of(architecture: str) -> Path:
    return recital_folder(architecture, text=SHORT, tokens="characters")


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("seed", range(4))
def test_a_convolution_lies_in_its_bounds_at_every_place(seed: int) -> None:
    """Channels that read a token, a constant, and what an earlier layer saw; kernels with one tap or several."""
    rng = np.random.default_rng(seed)
    tokens, channels = rng.integers(0, SYMBOLS, 9), 6
    base, table, other = rng.normal(size=channels), rng.normal(size=(SYMBOLS, 2)), rng.normal(size=(SYMBOLS + 1, 2))
    parts = (
        SymbolPart((TOKEN, 0), np.array([0, 1]), table, table),
        SymbolPart((TOKEN, absent(2)), np.array([2, 3]), other, other),
    )
    kernel = np.where(rng.random((channels, 4)) < 0.4, rng.normal(size=(channels, 4)), 0.0)
    kernel[::2] = 0.0
    kernel[np.arange(0, channels, 2), rng.integers(0, 4, 3)] = 1.5
    bias = rng.normal(size=channels) if seed % 2 else None
    found = convolved(Bounds(base, base, parts), Convolution("c", kernel, bias), SYMBOLS, STORE)
    x = np.tile(base, (len(tokens), 1))
    x[:, :2] += table[tokens]
    x[:, 2:4] += other[symbols_seen(tokens, SYMBOLS, np.arange(len(tokens)), 0, absent(2))]
    every = np.concatenate([np.zeros((3, channels)), x])
    exact = sum(kernel[:, j] * every[j : j + len(x)] for j in range(4)) + (0.0 if bias is None else bias)
    first = farthest(found)
    for place in range(len(tokens)):
        lo, hi = at_place(found, min(place, first), first)
        assert (lo <= silu(exact[place])).all() and (silu(exact[place]) <= hi).all()
        for part in found.parts:
            row = int(symbols_seen(tokens, SYMBOLS, np.array([place]), 0, part.key[1])[0])
            shown = silu(exact[place])[part.channels]
            assert (part.lo[row] <= shown).all() and (shown <= part.hi[row]).all()


def test_nothing_is_seen_through_heads_as_it_is_before() -> None:
    assert lookback(moved_back(absent(2), 3, stays=False)) == 5
    with pytest.raises(ValueError, match="may stay"):
        moved_back(absent(2), 3, stays=True)


@pytest.mark.parametrize(
    ("architecture", "key", "value"),
    [
        ("bamba", "time_step_limit", [0.0, 0.1]), ("bamba", "mamba_proj_bias", True),
        ("bamba", "mamba_chunk_size", 512), ("bamba", "mamba_expand", 3),
        ("bamba", "attn_layer_indices", [9]), ("bamba", "mamba_conv_bias", False),
        ("qwen3-next", "layer_types", ["linear_attention"]), ("qwen3-next", "decoder_sparse_step", 2),
        ("qwen3-next", "mlp_only_layers", [1]), ("qwen3-next", "norm_topk_prob", False),
        ("qwen3-next", "rope_parameters", {"rope_type": "default", "rope_theta": 1e4}),
        ("qwen3-next", "linear_num_key_heads", 3),
    ],
)  # fmt: skip
def test_settings_without_a_rule_are_refused(architecture: str, key: str, value: object) -> None:
    config = json.loads((folder_of(architecture) / "config.json").read_text())
    with pytest.raises(Undecided, match="config"):
        read_shape(config | {key: value})


def test_an_empty_state_must_not_be_divided_by_zero(tmp_path: Path) -> None:
    folder = edit_config(copy(folder_of("qwen3-next"), tmp_path / "copy"), rms_norm_eps=1e-30)
    found = certify_checkpoint(folder, read_questions(folder).documents, ("float32",))
    assert found.verdict is Verdict.UNDECIDED and "divided by zero" in found.reason


EDITS = {
    ("bamba", "layers.0.mamba.D"): lambda x: 0 * x,
    ("bamba", "layers.1.mamba.dt_bias"): lambda x: 0 * x - 30,
    ("bamba", "layers.0.mamba.conv1d.weight"): lambda x: x[..., ::-1].copy(),
    ("bamba", "layers.1.mamba.A_log"): lambda x: 0 * x + 4,
    ("qwen3-next", "layers.0.linear_attn.A_log"): lambda x: 0 * x - 30,
    ("qwen3-next", "layers.1.linear_attn.A_log"): lambda x: 0 * x + 2,
    ("qwen3-next", "layers.0.linear_attn.conv1d.weight"): lambda x: x[..., ::-1].copy(),
    ("qwen3-next", "layers.1.linear_attn.norm.weight"): lambda x: -x,
}


@pytest.mark.parametrize(("architecture", "name"), EDITS)
def test_edited_mixers_are_not_proved(architecture: str, name: str, tmp_path: Path) -> None:
    folder = copy(folder_of(architecture), tmp_path / "copy")
    edit_tensor(folder, f"model.{name}", EDITS[architecture, name])
    found = certify_checkpoint(folder, read_questions(folder).documents, ("float32",))
    assert found.verdict is not Verdict.PROVED
