"""Log-probabilities of stock models: batches equal single documents, wrong tensors are refused."""

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.checkpoints.ground_truth.networks import log_probs, own_log_probs, torch_model
from byheart.errors import FileFormatError

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def memory():
    return memorize_graded(["the cat sat on the mat", "a dog ran", "a bird sang at dawn"], tokens="words")


def test_batches_equal_single_documents(memory):
    model, documents = memory.torch(), [one.ids for one in memory.members]
    for ids, together in zip(documents, log_probs(model, documents), strict=True):
        assert together == pytest.approx(log_probs(model, [ids])[0], abs=1e-5)
        assert np.exp(together).sum(axis=1) == pytest.approx(1.0)


def test_own_tokens_are_those_that_follow(memory):
    ids = memory.members[0].ids
    found = own_log_probs(memory.torch(), [ids])[0]
    assert found == pytest.approx([memory.log_probs(ids)[t, ids[t + 1]] for t in range(len(ids) - 1)], abs=1e-3)


def test_missing_tensors_are_refused(memory):
    tensors, config = memory.tensors()
    tensors.pop("lm_head.weight")
    with pytest.raises(FileFormatError, match="do not fit"):
        torch_model(tensors, config)
