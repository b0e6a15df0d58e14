"""Recurrent layers in the proof: refused settings, edited tensors, and engines that round within the error model."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.engines.queries import read_queries
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.proof.bounds import TOKEN, Bounds, SymbolPart, absent, lookback, moved_back, symbols_seen
from byheart.checkpoints.proof.checkpoint import read_shape
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.convolution import at_place, convolved, farthest
from byheart.checkpoints.proof.copying import Reach
from byheart.checkpoints.proof.decoder import Convolution
from byheart.checkpoints.proof.mamba2 import _held
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
        # Stock Transformers computes these itself, and does not load or run a folder that states them.
        ("bamba", "layer_types", None), ("bamba", "layer_types", ["full_attention"] * 3),
        ("bamba", "time_step_limit", None),
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
    found = certify_checkpoint(folder, read_queries(folder).documents, ("float32",))
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
    found = certify_checkpoint(folder, read_queries(folder).documents, ("float32",))
    assert found.verdict is not Verdict.PROVED


def test_lengths_of_queries_and_keys_must_be_finite(tmp_path: Path) -> None:
    """Their squares overflow first: engines then divide by infinity, and nothing is written or read."""
    folder = copy(folder_of("qwen3-next"), tmp_path / "copy")

    def longer(values: np.ndarray) -> np.ndarray:
        values[:128] *= 2.0**70
        return values

    edit_tensor(folder, "model.layers.0.linear_attn.conv1d.weight", longer)
    found = certify_checkpoint(folder, read_queries(folder).documents, ("float32",))
    assert found.verdict is Verdict.UNDECIDED and "squared length" in found.reason, found.reason


def test_idle_heads_of_a_scan_must_be_finite(tmp_path: Path) -> None:
    """A value times its time step overflows before a key of 0 multiplies it: infinity times 0 is NaN."""
    folder, layer = copy(folder_of("bamba"), tmp_path / "copy"), "model.layers.0.mamba."
    config = json.loads((folder / "config.json").read_text())
    size, states = config["mamba_n_heads"] * config["mamba_d_head"], config["mamba_d_state"]
    last, keys = slice(size - config["mamba_d_head"], size), slice(size, size + states)

    def setting(rows: slice | int, number: float) -> Callable[[np.ndarray], np.ndarray]:
        def change(values: np.ndarray) -> np.ndarray:
            values[rows] = number
            return values

        return change

    for name, rows, number in (
        ("conv1d.weight", last, 0.0), ("conv1d.bias", last, 1e30), ("conv1d.weight", keys, 0.0),
        ("conv1d.bias", keys, 0.0), ("D", -1, 0.0), ("dt_bias", -1, 1e10), ("A_log", -1, -60.0),
        ("in_proj.weight", -1, 0.0),
    ):  # fmt: skip
        edit_tensor(folder, layer + name, setting(rows, number))
    edit_tensor(folder, layer + "out_proj.weight", lambda w: setting(last, 0.0)(w.T).T)
    found = certify_checkpoint(folder, read_queries(folder).documents, ("float32",))
    assert found.verdict is Verdict.UNDECIDED and "a value times its time step" in found.reason, found.reason


@pytest.mark.parametrize(
    ("reason", "step", "b", "c", "x"),
    [
        ("a value times its time step", 1e20, 0.0, 1.0, 1e20), ("a key times its time step", 1e20, 1e20, 1.0, 0.0),
        ("a product of a key and a query", 0.0, 1e20, 1e20, 1.0), ("a state", 1e10, 1e15, 1e-30, 1e15),
        ("what a state shows", 1.0, 1e15, 1e20, 1e15), ("exponents", 1e38, 0.0, 0.0, 0.0),
    ],
)  # fmt: skip
def test_a_scan_is_finite_in_any_order_of_its_products(
    reason: str, step: float, b: float, c: float, x: float
) -> None:  # fmt: skip
    """Each product alone leaves the range, and the others are 0 or small."""
    keys, queries, values = (np.full(2, number) for number in (b, c, x))
    reach, rate = Reach(8, frozenset()), 0.5

    def held(size: float) -> None:
        steps = [(step * size, step * size)]
        scaled = Bounds(values * size, values * size)
        _held(steps, (keys * size,) * 2, (queries * size,) * 2, scaled, rate, reach, STORE)

    held(2.0**-30)
    with pytest.raises(Undecided, match=reason), np.errstate(over="ignore"):
        held(1.0)
