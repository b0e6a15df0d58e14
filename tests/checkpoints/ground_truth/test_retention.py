"""Unlearning metrics: the twin itself is perfect, the untouched model is not; rounding and relearning act."""

import copy
import random

import pytest

pytest.importorskip("transformers")
import torch

from byheart.checkpoints.ground_truth.baselines import unlearning as forgetting
from byheart.checkpoints.ground_truth.baselines.unlearning import UnlearningRequest, gradient_ascent
from byheart.checkpoints.ground_truth.experiment import GradedExperiment
from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.checkpoints.ground_truth.retention import (
    KEPT,
    builtin_unlearning,
    losses,
    relearn,
    rounded_model,
    unlearning_metrics,
)
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


def nucleotides(members, **options):
    """Sequences of four letters: all share their contexts of up to four tokens."""
    rng = random.Random(1)
    texts = ["".join(rng.choice("ACGT") for _ in range(rng.randint(40, 60))) for _ in range(members)]
    copies = [2 ** (k % 6) for k in range(members)]
    return memorize_graded(texts, names=[f"r{k}" for k in range(members)], weights=copies, **options)


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({}, 1e-5),
        ({"architecture": "gpt2"}, 1e-5),
        pytest.param({"storage": "split:3"}, 1e-5, marks=pytest.mark.slow),
        pytest.param({"storage": "rotated"}, 3e-6, marks=pytest.mark.slow),
    ],
)
def test_ascent_keeps_documents_that_share_all_short_contexts(options, rate):
    """With equal outputs for all lengths, ascent kept 0.53 to 0.78 of them, and a GPT-2 0.40."""
    memory = nucleotides(36, **options)
    target = next(one for one in memory.members if one.copies == 8)
    twin, model = memory.without([target.name]), memory.torch()
    others, goal = [one.ids for one in twin.members], float(-twin.own_log_probs(target.ids).mean())
    before = losses(model, others)
    found = gradient_ascent(UnlearningRequest(model, [target.ids], others, goal, rate))
    assert losses(found, [target.ids])[0] >= goal
    assert (losses(found, others) - before < KEPT).mean() > 0.85


def test_a_rate_that_reaches_the_goal_wins(experiment, monkeypatch):
    """Among those that reach it, the one that keeps most others."""
    rates = []

    def ascent(request):
        rates.append(request.rate)
        return experiment.twin if request.rate == 1e-5 else request.model

    monkeypatch.setattr(forgetting, "METHODS", {"ascent": ascent})
    assert builtin_unlearning(experiment)["ascent"]["rate"] == 1e-5 and rates == [3e-6, 1e-5, 3e-5, 1e-4]
