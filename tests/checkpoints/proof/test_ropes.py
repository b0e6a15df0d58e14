"""Scaled ropes: formulas of Transformers, and refusals by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from byheart.checkpoints.proof.config import Rotary
from byheart.checkpoints.proof.ropes import RopeScaling, UnknownRope, read_scaling

LLAMA = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


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


def test_plain_ropes_have_no_scaling() -> None:
    assert read_scaling({}) is None and read_scaling({"rope_type": "default"}) is None
    assert Rotary(1e4, 8).frequencies.round(4).tolist() == [1.0, 0.1, 0.01, 0.001]
    assert RopeScaling("linear", 2.0).gain == 1.0


@pytest.mark.parametrize("change", [
    {"rope_type": "longrope"}, {"type": "yarn"}, {"factor": -1.0}, {"factor": True}, {"factor": 0.5}, {"mscale": 1.0},
    {"low_freq_factor": 5.0}, {"original_max_position_embeddings": 8192.5},
])  # fmt: skip
def test_other_fields_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnknownRope, match="rope_parameters"):
        read_scaling(LLAMA | change)
    with pytest.raises(UnknownRope):
        read_scaling({k: v for k, v in LLAMA.items() if k != "factor"})
