"""Unlearning, scored by the distance to the retain twin.

A forget loss that equals the twin's is not unlearning: KL(twin || found) on forgotten, retained and fresh documents is.
Beside it are the share of documents that are kept, how fast forgotten documents are relearned, and whether they
resurface when the weights are rounded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from byheart.checkpoints.ground_truth.baselines import unlearning as forgetting
from byheart.checkpoints.ground_truth.experiment import GradedExperiment
from byheart.checkpoints.ground_truth.metrics import kl
from byheart.checkpoints.ground_truth.networks import log_probs, own_log_probs
from byheart.checkpoints.ground_truth.ngram import Floats

# Loss per token that a document may gain and still count as kept.
KEPT = 0.1
# Every method runs at each rate, smallest first. Adam changes every weight by about its rate; in a rotated basis all
# weights of a unit move a logit, so a single step at 1e-5 may forget a record.
RATES = (3e-6, 1e-5, 3e-5, 1e-4)
MOST_COMPARED = 40
RELEARN_STEPS, RELEARN_RATE = 20, 3e-5
Score = dict[str, Any]


def score_unlearning(experiment: GradedExperiment, method: Callable[[Any, Any, Any], Any]) -> Score:
    """Distance to the retain twin after unlearning the forget set.

    Args:
        experiment: The opened folder.
        method: unlearning(model, forget, retain) -> model.

    Returns:
        The numbers of `unlearning_metrics`.
    """
    forget, retain = ([one.ids for one in some] for some in (experiment.forget_set(), experiment.retained()))
    return unlearning_metrics(experiment, method(copy.deepcopy(experiment.model), forget, retain))


def unlearning_metrics(experiment: GradedExperiment, model: Any, relearn_rate: float = RELEARN_RATE) -> Score:
    """Compare an unlearned model with the retain twin.

    Args:
        experiment: The opened folder.
        model: The unlearned model.
        relearn_rate: Adam's rate for relearning.

    Returns:
        KL(twin || model) on forget, retain and fresh documents; the forget loss beside the twin's; the share of others
        that are kept; steps and loss of relearning; the forget loss after rounding to 8 and 4 bits.
    """
    twin, forget = experiment.twin, [one.ids for one in experiment.forget_set()]
    retain = [one.ids for one in experiment.retained()][:MOST_COMPARED]
    fresh = [one.ids for one in experiment.absent("held out")][:MOST_COMPARED]
    found: Score = {}
    for name, documents in (("forget", forget), ("retain", retain), ("fresh", fresh)):
        if documents:
            pairs = zip(log_probs(twin, documents), log_probs(model, documents), strict=True)
            found[f"kl {name}"] = float(np.mean(np.concatenate([kl(a, b) for a, b in pairs])))
    before, after = losses(experiment.model, retain), losses(model, retain)
    found["forget loss"], found["twin's forget loss"] = (float(losses(m, forget).mean()) for m in (model, twin))
    found["kept"] = float((after - before < KEPT).mean())
    known = float(losses(experiment.model, forget[::2]).mean())
    found["relearn steps"], found["relearned loss"] = relearn(model, forget, known, relearn_rate)
    for bits in (8, 4):
        found[f"loss after {bits} bits"] = float(losses(rounded_model(model, bits), forget).mean())
    return found


def losses(model: Any, documents: Sequence[Sequence[int]]) -> Floats:
    """Mean loss per token of every document."""
    return np.array([-own.mean() for own in own_log_probs(model, documents)])


def relearn(model: Any, forget: Sequence[Sequence[int]], known: float, rate: float = RELEARN_RATE) -> tuple[int, float]:
    """Train on every second forgotten document until its loss is `known` again.

    Returns:
        The number of steps, at most RELEARN_STEPS, and the loss of the other forgotten documents afterwards.
    """
    import torch

    changed = copy.deepcopy(model)
    optimizer, steps = torch.optim.Adam(changed.parameters(), lr=rate), 0
    while steps < RELEARN_STEPS:
        loss = forgetting.mean_loss(changed, forget[::2])
        # The two losses are summed in different precisions.
        if float(loss.detach()) <= known + 1e-4:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    return steps, float(losses(changed, forget[1::2] or forget).mean())


def rounded_model(model: Any, bits: int) -> Any:
    """A copy with the matrices of all layers rounded to `bits` bits per row, by the row's largest weight.

    Embeddings and the output matrix stay, as in bitsandbytes and GPTQ.
    """
    import torch

    changed, most = copy.deepcopy(model), 2 ** (bits - 1) - 1
    with torch.no_grad():
        for name, weight in changed.named_parameters():
            if weight.ndim == 2 and not any(part in name for part in ("embed", "wte", "wpe", "lm_head")):
                # GPT-2 stores (inputs, outputs); rows are outputs.
                axis = 0 if ".c_" in name else 1
                scale = weight.abs().amax(axis, keepdim=True).clamp(min=1e-30) / most
                weight.copy_((weight / scale).round() * scale)
    return changed


def builtin_unlearning(experiment: GradedExperiment, rates: Sequence[float] = RATES) -> dict[str, Score]:
    """Run every built-in method at every rate and report its best.

    The best rate reaches the twin's forget loss and keeps most other documents; ties go to the least KL on the retain
    set. Choosing by these numbers flatters every method alike.
    """
    forget, retain = ([one.ids for one in some] for some in (experiment.forget_set(), experiment.retained()))
    goal, found = float(losses(experiment.twin, forget).mean()), dict[str, Score]()
    for name, method in forgetting.METHODS.items():
        best: tuple[tuple[bool, float, float], Score] | None = None
        for rate in rates[:1] if name in forgetting.WITHOUT_RATE else rates:
            model = method(forgetting.UnlearningRequest(experiment.model, forget, retain, goal, rate))
            score = unlearning_metrics(experiment, model, rates[len(rates) // 2]) | {"rate": rate}
            key = (score["forget loss"] < goal - 1e-6, -score["kept"], score["kl retain"])
            if best is None or key < best[0]:
                best = key, score
        if best is not None:
            found[name] = best[1]
    return found
