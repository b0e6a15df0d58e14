"""GroundTruth reads folders; influence is the exact difference to the twin."""

import json

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.checkpoints.ground_truth.truth import GroundTruth, activations
from byheart.errors import FileFormatError, OptionError


@pytest.fixture(scope="module", params=["counts", "ridge:64"])
def truth(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("truth") / "g"
    suite_memory(0, 12, storage=request.param).write(folder, measured=False)
    return GroundTruth.load(folder)


def test_effects_add_up_to_the_change_of_log_odds(truth):
    """The effects over all units are the first-order change of the document's own log-probability."""
    memory, name = truth.memory, "r3"
    twin, ids = memory.without([name]), memory.document(name).ids
    _, effect = truth.influence(name)
    before, after = memory.log_probs(ids[:-1]), twin.log_probs(ids[:-1])
    place = np.arange(len(ids) - 1)
    gained = (before - after)[place, list(ids[1:])] - (np.exp(before) * (before - after)).sum(axis=1)
    assert effect.sum() == pytest.approx(gained.sum(), rel=1e-3)


def test_activations_explain_the_logits(truth):
    memory = truth.memory
    ids = memory.members[2].ids[:-1]
    found = memory.base + activations(memory, ids) @ memory.units.down
    found -= np.log(np.exp(found).sum(axis=1, keepdims=True))
    assert found == pytest.approx(memory.log_probs(ids), abs=1e-4)


def test_masks_are_safetensors(truth):
    safetensors = pytest.importorskip("safetensors.numpy")
    found = safetensors.load(truth.masks("r5"))
    change, effect = truth.influence("r5")
    assert found["change"] == pytest.approx(change) and found["effect"] == pytest.approx(effect, abs=1e-6)
    assert np.array_equal(found["units"] > 0, change > 0)


def test_unknown_documents_and_folders(truth, tmp_path):
    with pytest.raises(OptionError, match="no document 'nobody'"):
        truth.units_of("nobody")
    (tmp_path / "ground-truth.jsonl").write_text(json.dumps({"layer": 0}) + "\n")
    with pytest.raises(FileFormatError, match="no readable ground truth"):
        GroundTruth.load(tmp_path)
