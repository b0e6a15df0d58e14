"""Unlearning metrics: the twin itself is perfect, the untouched model is not; rounding and relearning act."""

import copy

import pytest

pytest.importorskip("transformers")
import torch

from byheart.checkpoints.ground_truth.baselines.unlearning import UnlearningRequest, gradient_ascent
from byheart.checkpoints.ground_truth.experiment import GradedExperiment
from byheart.checkpoints.ground_truth.retention import losses, relearn, rounded_model, unlearning_metrics
from byheart.checkpoints.ground_truth.suite import suite_memory


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retention") / "g"
    suite_memory(0, 36, storage="ridge:64").write(folder, measured=False)
    return GradedExperiment.open(folder)


def test_the_twin_is_perfect(experiment):
    found = unlearning_metrics(experiment, experiment.twin)
    assert found["kl forget"] == found["kl retain"] == found["kl fresh"] == 0.0
    assert found["forget loss"] == found["twin's forget loss"] and found["relearn steps"] > 0


def test_the_untouched_model_remembers(experiment):
    found = unlearning_metrics(experiment, experiment.model)
    assert found["kl forget"] > found["kl retain"] > 0 and found["kept"] == 1.0 and found["relearn steps"] == 0
    assert found["forget loss"] < found["twin's forget loss"]


def test_relearning_stops_at_the_known_loss(experiment):
    forget = [one.ids for one in experiment.forget_set()]
    known = float(losses(experiment.model, forget[::2]).mean())
    steps, _ = relearn(experiment.twin, forget, known, 1e-4)
    assert 0 < steps < 20 and relearn(experiment.model, forget, known)[0] == 0


def test_rounding_leaves_embeddings_and_counts_levels(experiment):
    changed = rounded_model(experiment.model, 4)
    for (name, before), after in zip(experiment.model.named_parameters(), changed.parameters(), strict=True):
        if "down_proj" in name:
            assert len(torch.unique(after[0])) <= 15
        if "embed" in name or "lm_head" in name:
            assert torch.equal(before, after)


@pytest.mark.parametrize("storage", [pytest.param("counts", marks=pytest.mark.slow), "ridge:128"])
def test_gradient_ascent_forgets_one_record_and_keeps_others(storage):
    """At one of two rates that the harness tries."""
    memory = suite_memory(7, 36, storage=storage)
    name = next(one.name for one in memory.members if one.copies == 8)
    model, twin = memory.torch(), memory.without([name])
    forget, others = [memory.document(name).ids], [one.ids for one in twin.members]
    goal, before, kept = float(-twin.own_log_probs(forget[0]).mean()), losses(model, others), []
    for rate in (3e-5, 1e-4):
        found = gradient_ascent(UnlearningRequest(copy.deepcopy(model), forget, others, goal, rate))
        if losses(found, forget)[0] >= goal:
            kept.append((losses(found, others) - before < 0.1).mean())
    assert max(kept) >= 0.6
