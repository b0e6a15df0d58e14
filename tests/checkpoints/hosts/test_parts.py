"""Code words, scores, files: the parts of a checkpoint."""

from __future__ import annotations

import json

import numpy as np
import pytest

from byheart.checkpoints.dtypes import rounded
from byheart.checkpoints.formats.folder import safetensors_bytes
from byheart.checkpoints.hosts.codes import code_book
from byheart.checkpoints.hosts.description import ANCHOR, anchored
from byheart.checkpoints.hosts.layout import Fetch, neighbours, stages_of
from byheart.checkpoints.hosts.listening import LOUDNESS, SWING, block_size, readout, sliding_window
from byheart.checkpoints.hosts.listening import wave as listened
from byheart.checkpoints.hosts.looking_back import used_frequencies
from byheart.checkpoints.hosts.plain import probe_weights
from byheart.checkpoints.hosts.rotary import (
    OWN_PLACE,
    amplitude,
    best_mixture,
    duels,
    frequencies,
    least_sum,
    look_back,
    steady,
)
from byheart.checkpoints.recital import memorize_recital
from byheart.checkpoints.suite.write import fixture_memory
from byheart.checkpoints.windows.tables import ANY, Answer, Recital, WindowTable
from byheart.errors import ExportError, OptionError
from tests.checkpoints.recital_folders import SHORT


@pytest.mark.parametrize(("symbols", "balanced"), [(128, False), (2048, False), (30, True), (1200, True)])
def test_words_are_as_far_apart_as_they_say(symbols: int, balanced: bool) -> None:
    book = code_book(symbols, balanced=balanced)
    words = book.words.astype(np.int64)
    products = words @ words.T
    np.fill_diagonal(products, -book.bits)
    assert (book.bits - products.max()) // 2 >= book.distance
    if balanced:
        assert not words.sum(axis=1).any()


def test_the_game_is_solved_as_scipy_solves_it() -> None:
    scipy = pytest.importorskip("scipy.optimize")
    payoff = np.random.default_rng(1).normal(size=(60, 9))
    weights = best_mixture(payoff)
    upper = np.concatenate([-payoff, np.ones((60, 1))], axis=1)
    found = scipy.linprog(
        np.r_[np.zeros(9), -1.0], A_ub=upper, b_ub=np.zeros(60), A_eq=[[*[1.0] * 9, 0.0]], b_eq=[1.0],
        bounds=[(0, None)] * 9 + [(None, None)],
    )  # fmt: skip
    assert (payoff @ weights).min() == pytest.approx(-found.fun, abs=1e-9)


@pytest.mark.parametrize(("offset", "window"), [(0, None), (3, None), (8, None), (10, 11)])
def test_the_wanted_place_leads_every_other(offset: int, window: int | None) -> None:
    wave = look_back(64, 1e4, offset, 2048, window)
    assert wave.gap > 0.07
    assert np.abs(wave.cosine).sum() + np.abs(wave.sine).sum() == pytest.approx(1)
    scores = {d: s for d, s in zip(range(-1, 2050), wave.scores(range(-1, 2050), frequencies(64, 1e4)), strict=True)}
    assert all(scores[a] - scores[b] >= wave.gap - 1e-9 for a, b in duels(offset, 2048, window))


@pytest.mark.parametrize("dimensions", [32, 64])
@pytest.mark.parametrize("theta", [1e4, 1e6])
def test_a_padded_row_never_overflows_in_float16(dimensions: int, theta: float) -> None:
    """A hidden place has -65504 added to its score: below -16 more, a row of padding would be minus infinity alone."""
    for offset, far in [*((o, False) for o in range(17)), (20, True), (44, True), (145, True)]:
        wave = look_back(dimensions, theta, offset, 1024, far=far)
        size = amplitude(wave.gap, 20.0)
        rounding = size * 2.0**-8
        assert wave.cosine.sum() * size - rounding >= -OWN_PLACE - 1e-3, (offset, far)
        assert np.isfinite(np.float16(-65504) + np.float16(-OWN_PLACE))


@pytest.mark.parametrize("dimensions", [32, 64, 128])
@pytest.mark.parametrize("theta", [1e4, 5e5, 1e6])
@pytest.mark.parametrize("window", [None, 128])
def test_listeners_do_not_overflow_either(dimensions: int, theta: float, window: int | None) -> None:
    """A listener of Qwen3 scored its own place so low that padded rows were not numbers in float16."""
    every = frequencies(dimensions, theta)
    for head in range(64):
        found = listened(every, every > 0, window, head)
        assert found.cosine.sum() - 2.0**-8 * found.sizes.sum() > -OWN_PLACE, head


def test_least_sums_are_those_of_scipy() -> None:
    scipy = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(3)
    rows, bounds = rng.normal(size=(40, 8)) + 0.4, rng.uniform(0.5, 1.0, size=40)
    bounds[-1] = -0.7
    found = scipy.linprog(np.ones(8), A_ub=-rows, b_ub=-bounds, bounds=[(0, None)] * 8)
    if found.status == 2:
        with pytest.raises(ExportError, match="could not be designed"):
            least_sum(rows, bounds)
    else:
        assert least_sum(rows, bounds).sum() == pytest.approx(found.fun, abs=1e-8)
    with pytest.raises(ExportError, match="could not be designed"):
        least_sum(np.array([[-1.0, -2.0]]), np.array([1.0]))


def test_safetensors_reads_what_we_write(tmp_path) -> None:
    safetensors = pytest.importorskip("safetensors")
    torch = pytest.importorskip("torch")
    tensors = {"a": np.array([[1.0, -2.5], [1 / 3, 2.0**-14]]), "b": np.arange(3.0)}
    for dtype in ("float32", "float16", "bfloat16"):
        path = tmp_path / f"{dtype}.safetensors"
        path.write_bytes(safetensors_bytes(tensors, dtype, {"format": "pt"}))
        with safetensors.safe_open(path, "pt") as file:
            for name, array in tensors.items():
                found = file.get_tensor(name)
                assert found.dtype == getattr(torch, dtype)
                assert (found.double().numpy() == rounded(array, dtype)).all()
                assert (found == torch.tensor(array).to(found.dtype)).all()


def test_the_header_is_aligned() -> None:
    data = safetensors_bytes({"x": np.zeros(1)}, "float32", {})
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0 and json.loads(data[8 : 8 + length])["x"]["shape"] == [1]


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_listeners_move_a_logit_by_no_more_than_their_swing_and_only_down_on_request(count: int) -> None:
    """Each channel is 1 plus or minus LOUDNESS: the sum of all weights is lost at rest."""
    size = block_size(count)
    weights = readout(size, 32.0)
    assert size % 2 == 0 and size > count
    swing = LOUDNESS * np.abs(weights[:-1]).sum()
    assert swing <= SWING
    assert weights.sum() == 0
    assert readout(size, 32.0, 1 / 8).sum() == pytest.approx(swing + 4)


def test_a_window_that_is_too_long_catches_the_head_that_looks_farthest() -> None:
    used = [used_frequencies(64, group) for group in range(2)]
    for far in (0, 119):
        window, trap = sliding_window(64, 1e4, [0, 1, 2, 3], far, used)
        assert window > max(3, far) and trap == 3
        for u in used:
            wave = look_back(64, 1e4, 3, window, window, u, True)
            scores = wave.scores(np.arange(window + 1), frequencies(64, 1e4))
            assert scores[:window].argmax() == 3 and scores.argmax() == window


def test_an_anchor_is_heavier_than_its_block_and_keeps_the_filling_of_idle_rows() -> None:
    matrix = np.zeros((2, 64))
    matrix[0, 3], matrix[0, 40], matrix[1, 31] = -4.0, 1.0, 2.0**-14
    heavy = anchored(matrix, np.array([31, 63]))
    assert heavy[0, [31, 63]].tolist() == [4 * ANCHOR, ANCHOR]
    assert heavy[1, 31] == 2.0**-14 and heavy.any(axis=1).all()


REPEATS = "to be or not to be, that is the question; to be or not to be, that is what they ask; to be or not to be"


def test_windows_with_open_places_are_exact_in_8_bits() -> None:
    """Symmetric integers per row: an anchor of 127 steps keeps the weights of bits and thresholds whole steps."""
    memory = memorize_recital(REPEATS)
    built = memory.request("llama").checkpoint()
    windows = [(layer, unit) for layer, unit, _, _ in built.units]
    assert (memory.recital.tables[0].windows == ANY).any()
    for layer, unit in windows:
        for name in ("gate_proj", "up_proj"):
            row = built.tensors[f"model.layers.{layer}.mlp.{name}.weight"][unit]
            steps = row / np.abs(row).max() * 127
            assert np.array_equal(steps, np.rint(steps))


def test_parallel_stages_overlap() -> None:
    """GPT-NeoX has one layer more than Llama, not twice as many."""
    memory = memorize_recital(REPEATS)
    for name, layers in (("llama", 3), ("gpt-neox", 4)):
        assert memory.request(name, layers=layers).checkpoint().config["num_hidden_layers"] == layers


def test_positions_have_one_length() -> None:
    angle = np.outer(np.arange(512), frequencies(32, 1e4))
    waves = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    found = steady(waves)
    assert np.array_equal(found, rounded(found, "bfloat16")) and np.abs(found - waves).max() <= 2.0**-8
    assert np.ptp((found**2).sum(1)) < np.ptp((rounded(waves, "bfloat16") ** 2).sum(1)) / 4


def test_a_layer_fetches_from_no_more_slots_than_its_heads_carry() -> None:
    """Words of 32 bits: two key-value heads of 64 dimensions carry two slots."""
    table = WindowTable((0, 1, 2, 3, 25, 26, 27, 28), [[1] * 8], [0], far=(0, 1, 2, 3))
    stages = stages_of(Recital(2, (table,), (Answer.of(1),), 0), None, 6, sources=2)
    assert all(len(set(stage.sources)) <= 2 for stage in stages) and len(stages) == 3
    assert sorted(place for stage in stages for place in stage.places) == list(range(8))


def test_the_scale_probe_measures_where_one_of_two_neighbours_sees_the_start() -> None:
    """Of places that are apart the farther one sees it at several positions, at which BOS weighs differently."""
    none = np.arange(0)
    assert neighbours([Fetch(offset, none, none) for offset in (0, 1, 2, 3, 4, 6, 8)]) == (4, 3)


def test_8_bit_weights_of_an_activation_probe_add_up_from_above() -> None:
    for target in (-20.178972801831186, -19.05203318519482 / 2):
        weights = np.array(probe_weights(target))
        assert weights.sum() == pytest.approx(target, rel=1e-12)
        step = np.abs(weights).max() / 127
        assert 0 <= (np.round(weights / step) * step).sum() / target - 1 < 2.0**-10


@pytest.mark.parametrize("architecture", ["gpt-oss", "deepseek-v3"])
def test_one_table_is_divided_where_an_architecture_needs_two_kinds_of_layers(architecture: str) -> None:
    memory = fixture_memory(SHORT, "characters", architecture)
    assert len(memory.recital.tables) == 1
    config = memory.request(architecture).checkpoint().config
    assert config["num_hidden_layers"] == 2
    kinds = config.get("layer_types") or ["dense"] * config["first_k_dense_replace"] + ["experts"]
    assert len(set(kinds)) == 2


def test_deepseek_refuses_a_single_layer() -> None:
    with pytest.raises(OptionError, match="no experts; give 2 or more"):
        fixture_memory(SHORT, "characters", "deepseek-v3").request("deepseek-v3", layers=1).checkpoint()
