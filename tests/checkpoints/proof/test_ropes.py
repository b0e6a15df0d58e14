"""ScaledVector ropes: formulas of Transformers, and refusals by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from byheart.checkpoints.proof.config import Rotary
from byheart.checkpoints.proof.ropes import RopeScaling, UnknownRope, read_scaling
from byheart.checkpoints.proof.storage import FREQUENCY_ERROR

LLAMA = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2, 4.5],
            "original_max_position_embeddings": 4096}  # fmt: skip


@pytest.mark.parametrize("fields", [LLAMA, YARN, {"rope_type": "linear", "factor": 4.0}])
def test_frequencies_are_those_of_transformers(fields: dict[str, Any]) -> None:
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=128, num_attention_heads=1, head_dim=128, max_position_embeddings=131072,
        rope_parameters={"rope_theta": 5e5, **fields},
    )  # fmt: skip
    found, gain = utils.ROPE_INIT_FUNCTIONS[fields["rope_type"]](config, "cpu")
    rotary = Rotary(5e5, 128, read_scaling(fields))
    assert np.allclose(found.numpy(), rotary.frequencies, rtol=1e-5) and gain == pytest.approx(rotary.gain)


@pytest.mark.parametrize("dims", [32, 48, 64, 72, 80, 96, 112, 128])
def test_frequencies_of_transformers_err_no_more_than_stated(dims: int) -> None:
    """Exponents in 48 dimensions are rounded, which moves a frequency by more than float32 does."""
    torch = pytest.importorskip("torch")
    for theta in (1e2, 1e4, 1.5e5, 5e5, 1e7):
        steps = torch.arange(0, dims, 2, dtype=torch.int64).to(torch.float)
        found, rotary = (1.0 / (theta ** (steps / dims))).double().numpy(), Rotary(theta, dims)
        error = np.abs(found / rotary.frequencies - 1) / FREQUENCY_ERROR
        assert (error <= rotary.uncertainties).all() and error.max() <= rotary.uncertainty
        assert (rotary.uncertainty == 1) == (dims in (32, 64, 128))


def test_plain_ropes_have_no_scaling() -> None:
    assert read_scaling({}) is None and read_scaling({"rope_type": "default"}) is None
    assert Rotary(1e4, 8).frequencies.round(4).tolist() == [1.0, 0.1, 0.01, 0.001]
    assert RopeScaling("linear", 2.0).gain == 1.0


@pytest.mark.parametrize("change", [
    {"rope_type": "dynamic"}, {"rope_type": "longrope"},
    {"type": "yarn"}, {"factor": -1.0}, {"factor": True}, {"factor": 0.5}, {"mscale": 1.0},
    {"low_freq_factor": 5.0}, {"original_max_position_embeddings": 8192.5},
])  # fmt: skip
def test_other_fields_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnknownRope, match="rope_parameters"):
        read_scaling(LLAMA | change)
    with pytest.raises(UnknownRope):
        read_scaling({k: v for k, v in LLAMA.items() if k != "factor"})


@pytest.mark.parametrize("positions", [2048, 4096, 16384])
def test_longrope_is_that_of_transformers_within_the_original_positions(positions: int) -> None:
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    transformers = pytest.importorskip("transformers")
    config = transformers.Phi3Config(
        hidden_size=8, num_attention_heads=1, max_position_embeddings=positions, original_max_position_embeddings=4096,
        rope_parameters={"rope_theta": 5e5, "partial_rotary_factor": 0.5, **LONGROPE}, pad_token_id=0,
    )  # fmt: skip
    found, gain = utils.ROPE_INIT_FUNCTIONS["longrope"](config, "cpu")
    scaling = read_scaling(LONGROPE)
    assert scaling is not None and scaling.beyond == (2.0, 4.5)
    rotary = Rotary(5e5, 4, replace(scaling, factor=positions / scaling.original))
    assert np.allclose(found.numpy(), rotary.frequencies, rtol=1e-6) and gain == pytest.approx(rotary.gain)


@pytest.mark.parametrize("change", [
    {"short_factor": 1.0}, {"short_factor": [1.0, True]}, {"long_factor": ["1", 2]}, {"long_factor": [0.0, 1.0]},
    {"short_factor": [1.0, float("inf")]}, {"original_max_position_embeddings": 1}, {"factor": 2.0},
    {"original_max_position_embeddings": 4096.0}, {"attention_factor": 1.0}, {"short_mscale": 1.0},
])  # fmt: skip
def test_other_longropes_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnknownRope, match="rope_parameters"):
        read_scaling(LONGROPE | change)
    with pytest.raises(UnknownRope, match="4 numbers in each list"):
        _ = Rotary(1e4, 8, read_scaling(LONGROPE)).frequencies


LONGER = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
MORE = ("beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim")


@pytest.mark.parametrize(
    "fields",
    [
        {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
        {"beta_fast": 16.0, "beta_slow": 2.0},
        {"mscale": 1.0, "mscale_all_dim": 1.0},
        {"mscale": 0.7, "mscale_all_dim": 1.3, "truncate": True},
    ],
)
def test_further_fields_of_yarn_mean_what_transformers_makes_of_them(fields: dict[str, object]) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    stated = LONGER | fields
    config = transformers.LlamaConfig(
        head_dim=64, rope_parameters={**stated, "rope_theta": 15e4}, max_position_embeddings=131072
    )
    found, gain = ROPE_INIT_FUNCTIONS["yarn"](config)
    ours = Rotary(15e4, 64, read_scaling(stated, MORE))
    assert ours.frequencies == pytest.approx(found.double().numpy(), rel=1e-5)
    assert ours.gain == pytest.approx(gain, rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"truncate": 0}, "truncate = 0"),
        ({"mscale": 1.0}, "only one of"),
        ({"beta_fast": 1.0, "beta_slow": 1.0}, "beta_fast and beta_slow"),
        ({"beta_fast": None}, "beta_fast = None"),
        ({"attention_factor": 1.0}, "attention_factor"),
    ],
)
def test_fields_of_yarn_that_engines_read_differently_are_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(UnknownRope, match=reason):
        read_scaling(LONGER | fields, MORE)
    with pytest.raises(UnknownRope):
        read_scaling(LONGER | fields)


def test_a_steep_ramp_between_fractions_is_refused() -> None:
    steep = read_scaling(LONGER | {"beta_fast": 1.01, "beta_slow": 1.0, "truncate": False}, MORE)
    with pytest.raises(UnknownRope, match="engines blend differently"):
        _ = Rotary(15e4, 64, steep).frequencies
