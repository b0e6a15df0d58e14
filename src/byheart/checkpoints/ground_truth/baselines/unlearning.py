"""Unlearning by training: a model, documents to forget and documents to keep -> a changed model.

Each method steps until the mean loss of the documents to forget reaches `goal`, that of the retain twin, or `STEPS`
are spent.
Computed models have weights of very unequal size. Adam moves each by the same amount, so rates are far below those of
training.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from byheart.checkpoints.ground_truth.baselines.localization import output_projection

STEPS, BATCH, BETA = 40, 12, 0.1
# Other documents whose keys an edit protects.
COVARIANCE = 40


@dataclass(frozen=True)
class UnlearningRequest:
    """An unlearning problem: the model is not to be changed, but copied."""

    model: Any
    forget: Sequence[Sequence[int]]
    retain: Sequence[Sequence[int]]
    goal: float
    rate: float
    seed: int = 0


def mean_loss(model: Any, documents: Sequence[Sequence[int]]) -> Any:
    """The mean loss per document, as a tensor that can be differentiated."""
    return -sum(document_log_probs(model, documents)) / len(documents)


def document_log_probs(model: Any, documents: Sequence[Sequence[int]]) -> list[Any]:
    """Mean log p of every document's own tokens."""
    import torch

    # Padding on the right is never seen by causal attention.
    longest = max(map(len, documents))
    ids = torch.tensor([[*document, *([0] * (longest - len(document)))] for document in documents])
    logs = model(ids[:, :-1]).logits.log_softmax(-1).gather(2, ids[:, 1:, None])[:, :, 0]
    return [row[: len(document) - 1].mean() for row, document in zip(logs, documents, strict=True)]


def _descend(request: UnlearningRequest, loss: Callable[[Any, Any], Any]) -> Any:
    import torch

    model = copy.deepcopy(request.model)
    order = torch.Generator().manual_seed(request.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=request.rate)
    for _ in range(STEPS):
        picked = torch.randperm(len(request.retain), generator=order)[:BATCH].tolist()
        value = loss(model, [request.retain[k] for k in picked])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        with torch.no_grad():
            if float(mean_loss(model, request.forget)) >= request.goal:
                break
    return model.eval()


def gradient_ascent(request: UnlearningRequest) -> Any:
    """Raise the loss of the documents to forget (Jang et al. 2023)."""
    return _descend(request, lambda model, _: -mean_loss(model, request.forget))


def gradient_difference(request: UnlearningRequest) -> Any:
    """Raise it, and lower the loss of the others (Liu et al. 2022)."""
    return _descend(request, lambda model, some: mean_loss(model, some) - mean_loss(model, request.forget))


def npo(request: UnlearningRequest, *, retain: bool = False) -> Any:
    """Negative preference optimisation (Zhang et al. 2024): ascent that fades as documents are forgotten."""
    import torch

    with torch.no_grad():
        start = [
            float(v) * (len(d) - 1)
            for v, d in zip(document_log_probs(request.model, request.forget), request.forget, strict=True)
        ]

    def loss(model: Any, some: Any) -> Any:
        now = [v * (len(d) - 1) for v, d in zip(document_log_probs(model, request.forget), request.forget, strict=True)]
        value = sum(
            -2 / BETA * torch.nn.functional.logsigmoid(-BETA * (a - b)) for a, b in zip(now, start, strict=True)
        )
        value = value / sum(len(d) for d in request.forget)
        return value + mean_loss(model, some) if retain else value

    return _descend(request, loss)


def npo_retain(request: UnlearningRequest) -> Any:
    """NPO with a loss on the others."""
    return npo(request, retain=True)


def task_arithmetic(request: UnlearningRequest) -> Any:
    """Fine-tune on the documents to forget, then subtract multiples of the change (Ilharco et al. 2023)."""
    import torch

    tuned = copy.deepcopy(request.model)
    optimizer = torch.optim.Adam(tuned.parameters(), lr=request.rate)
    for _ in range(10):
        value = mean_loss(tuned, request.forget)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    model = copy.deepcopy(request.model)
    with torch.no_grad():
        for step in range(1, STEPS + 1):
            for now, was, far in zip(model.parameters(), request.model.parameters(), tuned.parameters(), strict=True):
                now.copy_(was - 0.5 * step * (far - was))
            if float(mean_loss(model, request.forget)) >= request.goal:
                break
    return model.eval()


def rank_edit(request: UnlearningRequest) -> Any:
    """Edit the MLP's output matrix in closed form, as ROME and MEMIT do (Meng et al. 2022, 2023).

    The keys are the units' activations at the documents to forget, the values move each place's output away from its
    own token by a number of nats, and the covariance of keys over other documents protects these. The number of nats
    is the least that reaches the goal, found by halving, so the method has no rate.
    """
    import torch

    weight = output_projection(request.model).weight
    turned = hasattr(request.model, "transformer")
    with torch.no_grad():
        keys, own = _keys(request.model, request.forget)
        others, _ = _keys(request.model, request.retain[:COVARIANCE])
        head = request.model.get_output_embeddings().weight
        logits = torch.cat([request.model(torch.tensor([list(ids[:-1])])).logits[0] for ids in request.forget])
        # The direction that lowers the own token against the others, 1 nat long.
        away = logits.softmax(-1)
        away[torch.arange(len(own)), own] -= 1
        moved = away @ head
        moved = moved / ((moved @ head.T)[torch.arange(len(own)), own].abs().clamp(min=1e-12)[:, None])
        solved = _whitened(keys, others)
        shares = torch.linalg.solve(keys @ solved.T + torch.eye(len(keys)), solved)  # (places, units)
        update = moved.T @ shares  # (hidden, units)
        update = (_norm_scale(request.model) * update).T if turned else _norm_scale(request.model) * update
        model, low, high = copy.deepcopy(request.model), 0.0, 0.05
        for _ in range(24):
            reached = _edited_loss(model, weight + high * update, request.forget) >= request.goal
            if reached:
                break
            low, high = high, 2 * high
        for _ in range(10):
            middle = (low + high) / 2
            if _edited_loss(model, weight + middle * update, request.forget) >= request.goal:
                high = middle
            else:
                low = middle
        _edited_loss(model, weight + high * update, request.forget)
    return model.eval()


def _edited_loss(model: Any, weight: Any, documents: Sequence[Sequence[int]]) -> float:
    """The loss with another output matrix, which stays."""
    output_projection(model).weight.copy_(weight)
    return float(mean_loss(model, documents))


def _keys(model: Any, documents: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Activations of the units at every place (places, units), and the tokens that follow."""
    import torch

    kept: list[Any] = []
    handle = output_projection(model).register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0][0]))
    try:
        for ids in documents:
            model(torch.tensor([list(ids[:-1])]))
    finally:
        handle.remove()
    return torch.cat(kept), torch.tensor([token for ids in documents for token in ids[1:]])


def _whitened(keys: Any, others: Any) -> Any:
    """Keys times the inverse covariance of other keys, by Woodbury's identity: (places, units)."""
    import torch

    ridge = 1e-2 * others.pow(2).sum() / others.shape[1]
    inner = others @ others.T + ridge * torch.eye(len(others))
    return (keys - torch.linalg.solve(inner, others @ keys.T).T @ others) / ridge


def _norm_scale(model: Any) -> float:
    """The length that the last norm divides by, from one token; outputs are compared after this norm."""
    import torch

    kept: list[float] = []
    norm = model.transformer.ln_f if hasattr(model, "transformer") else model.model.norm
    handle = norm.register_forward_pre_hook(lambda _, inputs: kept.append(float(inputs[0].pow(2).mean().sqrt())))
    try:
        model(torch.tensor([[0, 1]]))
    finally:
        handle.remove()
    return kept[0]


def nothing(request: UnlearningRequest) -> Any:
    """The untouched model: a method that is farther from the twin than this one did harm."""
    return request.model


METHODS: dict[str, Callable[[UnlearningRequest], Any]] = {
    "nothing": nothing,
    "gradient ascent": gradient_ascent,
    "GradDiff": gradient_difference,
    "NPO": npo,
    "NPO + retain": npo_retain,
    "task arithmetic": task_arithmetic,
    "ROME-like edit": rank_edit,
}
# Methods without a learning rate run once.
WITHOUT_RATE = ("nothing", "ROME-like edit")
