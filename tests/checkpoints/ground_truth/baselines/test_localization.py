"""Localization methods on a counted model, whose units are known one by one."""

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.baselines.localization import METHODS, output_projection
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.checkpoints.ground_truth.truth import activations

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def memory():
    return suite_memory(0, 12)


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"causal tracing"}))
def test_units_that_never_fire_score_zero(memory, name):
    ids = memory.document("r5").ids
    scores = METHODS[name](memory.torch(), ids)
    fires = activations(memory, ids[:-1]).any(axis=0)
    assert scores.shape == fires.shape and np.abs(scores[~fires]).max() < 1e-6 < np.abs(scores[fires]).max()


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_units_are_the_inputs_of_the_output_projection(architecture):
    memory = suite_memory(0, 6, architecture=architecture)
    weight = output_projection(memory.torch()).weight
    assert len(memory.units.gate) in weight.shape


def test_restoring_the_documents_units_repairs_a_noisy_run(memory):
    """Noise makes other units fire too, so scores outside the document are not 0, but the best unit is its own."""
    ids = memory.document("r5").ids
    scores = METHODS["causal tracing"](memory.torch(), ids)
    assert activations(memory, ids[:-1]).any(axis=0)[scores.argmax()] and scores.max() > 0.1
