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

STEPS, BATCH, BETA = 20, 12, 0.1


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
}
