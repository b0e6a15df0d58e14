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


def _run(model: Any, ids: Sequence[int], scale: float = 1.0, zero: Any = None, replaced: Any = None) -> tuple[Any, Any]:
    """Activations of the units (places, units), kept for gradients, and the document's loss."""
    import torch

    kept: dict[str, Any] = {}

    def hook(_: Any, inputs: Any) -> Any:
        active = inputs[0].detach() * scale if replaced is None else replaced
        if zero is not None:
            active[..., zero] = 0
        if torch.is_grad_enabled():
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


def causal_tracing(model: Any, ids: Sequence[int], most: int = 96, noise: float = 1.0, seed: int = 0) -> Floats:
    """The fall of the loss when one unit is restored in a run on noisy inputs (Meng et al. 2022).

    Noise of `noise` standard deviations of each channel is added to the input of the MLP, where the tokens' codes
    are. Only the `most` units with the largest difference between the clean and the noisy run are restored.
    """
    import torch

    with torch.no_grad():
        clean, _ = _run(model, ids)
        generator = torch.Generator().manual_seed(seed)

        def disturb(_: Any, inputs: Any) -> Any:
            spread = inputs[0].std(dim=(0, 1), keepdim=True)
            mixed = torch.randn(inputs[0].shape, generator=generator)
            return (inputs[0] + noise * spread * mixed.to(inputs[0].dtype), *inputs[1:])

        handle = _mlp(model).register_forward_pre_hook(disturb)
        try:
            noisy, before = _run(model, ids)
        finally:
            handle.remove()
        difference = (clean - noisy).abs().mean(dim=(0, 1))
        found = np.zeros(difference.shape[0])
        for unit in torch.argsort(-difference, stable=True)[:most].tolist():
            mended = noisy.clone()
            mended[..., unit] = clean[..., unit]
            found[unit] = float(before) - float(_run(model, ids, replaced=mended)[1])
    return found


def _mlp(model: Any) -> Any:
    return model.transformer.h[-1].mlp if hasattr(model, "transformer") else model.model.layers[-1].mlp


METHODS: dict[str, Callable[[Any, Sequence[int]], Floats]] = {
    "activation": activation,
    "gradient x activation": gradient_activation,
    "integrated gradients": integrated_gradients,
    "zero-out": zero_out,
    "causal tracing": causal_tracing,
}
