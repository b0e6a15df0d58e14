"""Localization: a score for every MLP unit of a one-layer model, higher where a document is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from byheart.checkpoints.ground_truth.metrics import Floats

STEPS = 8


def output_projection(model: Any) -> Any:
    """The module whose input are the units of the last layer's MLP."""
    return model.transformer.h[-1].mlp.c_proj if hasattr(model, "transformer") else model.model.layers[-1].mlp.down_proj


def _run(model: Any, ids: Sequence[int], scale: float = 1.0, zero: Any = None) -> tuple[Any, Any]:
    """Activations of the units (places, units), kept for gradients, and the document's loss."""
    import torch

    kept: dict[str, Any] = {}

    def hook(_: Any, inputs: Any) -> Any:
        active = inputs[0].detach() * scale
        if zero is not None:
            active[..., zero] = 0
        active.requires_grad_(True)
        kept["active"] = active
        return (active, *inputs[1:])

    handle = output_projection(model).register_forward_pre_hook(hook)
    try:
        logits = model(torch.tensor([list(ids[:-1])])).logits[0]
    finally:
        handle.remove()
    return kept["active"], torch.nn.functional.cross_entropy(logits, torch.tensor(list(ids[1:])), reduction="sum")


def _gradient(model: Any, ids: Sequence[int], scale: float = 1.0) -> tuple[Any, Any]:
    import torch

    active, loss = _run(model, ids, scale)
    (gradient,) = torch.autograd.grad(loss, active)
    return active.detach()[0], gradient[0]


def activation(model: Any, ids: Sequence[int]) -> Floats:
    """Mean size of the activation."""
    active, _ = _gradient(model, ids)
    return np.asarray(active.abs().mean(0).double().numpy())


def gradient_activation(model: Any, ids: Sequence[int]) -> Floats:
    """Minus gradient times activation: the first-order rise of the loss if the unit were 0."""
    active, gradient = _gradient(model, ids)
    return np.asarray(-(active * gradient).sum(0).double().numpy())


def integrated_gradients(model: Any, ids: Sequence[int]) -> Floats:
    """Gradients averaged on the way from 0 to the activations, times the activations."""
    active, total = _gradient(model, ids)[0], 0.0
    for step in range(STEPS):
        total = total + _gradient(model, ids, (step + 0.5) / STEPS)[1] / STEPS
    return np.asarray(-(active * total).sum(0).double().numpy())


def zero_out(model: Any, ids: Sequence[int], most: int = 96) -> Floats:
    """The rise of the loss when the unit is set to 0, one unit at a time; of the `most` most active units."""
    import torch

    active = activation(model, ids)
    found = np.zeros(len(active))
    with torch.no_grad():
        before = float(_run(model, ids)[1])
        for unit in np.argsort(-active, kind="stable")[:most]:
            if active[unit] > 0:
                found[unit] = float(_run(model, ids, zero=int(unit))[1]) - before
    return found


METHODS: dict[str, Callable[[Any, Sequence[int]], Floats]] = {
    "activation": activation,
    "gradient x activation": gradient_activation,
    "integrated gradients": integrated_gradients,
    "zero-out": zero_out,
}
