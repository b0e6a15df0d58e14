"""Unlearning by training: copies are changed, goals are reached, a retain term helps."""

import numpy as np
import pytest

pytest.importorskip("transformers")
import torch

from byheart.checkpoints.ground_truth.baselines.unlearning import (
    METHODS,
    UnlearningRequest,
    document_log_probs,
    mean_loss,
)
from byheart.checkpoints.ground_truth.suite import suite_memory


@pytest.fixture(scope="module")
def request_of_one():
    memory = suite_memory(7, 18, storage="ridge:64")
    forget = [memory.document("r5").ids]
    return UnlearningRequest(memory.torch(), forget, [one.ids for one in memory.members if one.name != "r5"], 0.0, 1e-6)


def test_losses_ignore_padding(request_of_one):
    documents = [request_of_one.forget[0], request_of_one.forget[0][:7]]
    with torch.no_grad():
        both = [float(value) for value in document_log_probs(request_of_one.model, documents)]
        alone = [float(document_log_probs(request_of_one.model, [one])[0]) for one in documents]
    assert both == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_given_model_stays(request_of_one, name):
    before = {key: value.clone() for key, value in request_of_one.model.state_dict().items()}
    with torch.no_grad():
        start = float(mean_loss(request_of_one.model, request_of_one.forget))
    request = UnlearningRequest(
        request_of_one.model, request_of_one.forget, request_of_one.retain, start + 0.02, request_of_one.rate
    )
    found = METHODS[name](request)
    assert all(np.array_equal(value, before[key]) for key, value in request_of_one.model.state_dict().items())
    with torch.no_grad():
        assert (float(mean_loss(found, request.forget)) > start) == (name != "nothing")
