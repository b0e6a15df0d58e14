"""Faults of norms, MLPs, routers, residuals, embedding, head, and of whole layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.decoder import Expert, Layer, Linear, Mlp, Norm
from byheart.checkpoints.suite.machine import ACTIVATIONS, Machine, Tensor
from byheart.checkpoints.suite.mutants._base import Mutant, changed, each_layer, wrapped


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    yield from _norms(decoder)
    yield from _activations(decoder)
    yield from _mlps(decoder)
    yield from _biases(decoder)
    yield from _wiring(decoder)
    yield from _types(decoder)


def _step(decoder: StockDecoder, family: str) -> Callable[..., Mutant]:
    def mutant(name: str, *, harmless: bool = False, **steps: Callable[..., Any]) -> Mutant:
        return Mutant(name, family, wrapped(decoder, **steps), harmless)

    return mutant


def norms_of(layer: Layer) -> list[tuple[str, str]]:
    """The norms that a layer has: the field, and the name that the machine's steps use."""
    every = (
        ("attention_norm", "attention"), ("mlp_norm", "mlp"), ("after_attention", "after attention"),
        ("after_mlp", "after mlp"),
    )  # fmt: skip
    return [(name, where) for name, where in every if getattr(layer, name) is not None]


def _scale_free(layer: Layer) -> bool:
    """Whether the size of attention's input does not matter: queries, keys and the branch have their own norms."""
    return layer.attention.q_norm is not None and layer.after_attention is not None


def _norms(decoder: StockDecoder) -> Iterator[Mutant]:
    mutant = _step(decoder, "norms")
    centred = decoder.final_norm.centred

    def ones(norm: Norm) -> Norm:
        return replace(norm, weight=np.ones_like(norm.weight))

    for depth in range(len(decoder.layers)):
        for part in (name for name, _ in norms_of(decoder.layers[depth])):
            yield Mutant(
                f"weight of the {part.replace('_', ' ')} missing, layer {depth}",
                "norms",
                each_layer(
                    decoder, lambda layer, part=part: replace(layer, **{part: ones(getattr(layer, part))}), only=depth
                ),
            )
        if decoder.layers[depth].attention_norm is None:
            continue
        yield Mutant(
            f"the two norms exchanged, layer {depth}",
            "norms",
            each_layer(
                decoder,
                lambda layer: replace(layer, attention_norm=layer.mlp_norm, mlp_norm=layer.attention_norm),
                only=depth,
            ),
        )
    yield Mutant("weight of the final norm missing", "norms", changed(decoder, final_norm=ones(decoder.final_norm)))
    for where in (*(where for _, where in norms_of(decoder.layers[0])), "final"):
        yield mutant(
            f"{where} norm skipped", norm=lambda step, x, norm, at, where=where: x if at == where else step(x, norm, at)
        )
        yield mutant(
            f"{where} norm without division",
            harmless=where == "attention" and _scale_free(decoder.layers[0]),
            size=lambda step, wide, norm, at, where=where: (
                torch.ones_like(wide[..., :1]) if at == where else step(wide, norm, at)
            ),
        )
        yield mutant(
            f"{where} norm weight applied as 1 + weight",
            norm=lambda step, x, norm, at, where=where: step(
                x, replace(norm, weight=norm.weight + 1) if at == where else norm, at
            ),
        )
    yield mutant(
        "RMSNorm instead of LayerNorm" if centred else "LayerNorm instead of RMSNorm",
        centred=lambda step, value, at: not value if at in ("attention", "mlp", "final") else value,
    )
    yield mutant(
        "norm by the sum of squares, not their mean",
        size=lambda step, wide, norm, at: (wide.pow(2).sum(-1, keepdim=True) + norm.eps).sqrt(),
    )
    yield mutant(
        "norm by the mean of absolute values", size=lambda step, wide, norm, at: wide.abs().mean(-1, keepdim=True)
    )
    yield mutant("norm by the variance, no root", size=lambda step, wide, norm, at: step(wide, norm, at) ** 2)
    yield mutant(
        "norm with n - 1 instead of n",
        size=lambda step, wide, norm, at: (wide.pow(2).sum(-1, keepdim=True) / (wide.shape[-1] - 1) + norm.eps).sqrt(),
    )
    own = decoder.final_norm.eps
    for eps in (1e-1, 1e-2, 1e-3, 1e-4):
        yield mutant(
            f"eps {eps:g} instead of {own:g}",
            size=lambda step, wide, norm, at, eps=eps: step(wide, replace(norm, eps=eps), at),
        )
    yield mutant(
        f"eps added to the root, {own:g}",
        harmless=True,
        size=lambda step, wide, norm, at: wide.pow(2).mean(-1, keepdim=True).sqrt() + norm.eps,
    )
    yield mutant("eps 1e-06", harmless=True, size=lambda step, wide, norm, at: step(wide, replace(norm, eps=1e-6), at))
    yield mutant(
        "residual and branch normed together (post-norm)",
        add=lambda step, h, branch, where: (lambda s: s / (s.pow(2).mean(-1, keepdim=True) + own).sqrt())(
            step(h, branch, where)
        ),
    )


def _activations(decoder: StockDecoder) -> Iterator[Mutant]:
    mutant = _step(decoder, "mlp")
    own = decoder.shape.activation
    kinds: dict[str, Callable[[Tensor], Tensor]] = {
        **ACTIVATIONS,
        "identity": lambda x: x,
        "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "relu squared": lambda x: F.relu(x) ** 2,
        "leaky relu": lambda x: F.leaky_relu(x, 0.01),
        "elu": F.elu,
        "mish": F.mish,
        "softplus": F.softplus,
        "silu with beta 1.1": lambda x: x * torch.sigmoid(1.1 * x),
        "hard silu": F.hardswish,
        "clipped at 10": lambda x: ACTIVATIONS[own](x).clamp(max=10),
        "clipped at 6": lambda x: ACTIVATIONS[own](x).clamp(max=6),
    }
    for name, function in kinds.items():
        if name == own:
            continue
        # The two forms of gelu differ by at most 4e-4: engines exchange them freely.
        harmless = name.startswith("gelu") and own.startswith("gelu")
        yield mutant(
            f"activation {own} -> {name}",
            harmless=harmless,
            activate=lambda step, x, kind, function=function: function(x),
        )
    yield mutant(
        "activation in bfloat16", harmless=True, activate=lambda step, x, kind: step(x, kind).bfloat16().to(x.dtype)
    )


def _mlps(decoder: StockDecoder) -> Iterator[Mutant]:
    mutant = _step(decoder, "mlp")
    mlp = decoder.layers[0].mlp
    if mlp.experts[0].up is not None:

        def exchanged(part: Expert) -> Expert:
            assert part.up is not None
            return replace(part, gate=part.up, up=part.gate)

        def exchange(layer: Layer) -> Layer:
            return replace(layer, mlp=replace(layer.mlp, experts=tuple(map(exchanged, layer.mlp.experts))))

        yield Mutant("gate and up exchanged", "mlp", each_layer(decoder, exchange))
        yield Mutant(
            "gate and up exchanged in the last layer",
            "mlp",
            each_layer(decoder, exchange, only=len(decoder.layers) - 1),
        )
        yield mutant("gate and up interleaved", expert=_interleaved)
        yield mutant(
            "gate without activation",
            expert=lambda step, x, part: _down(x, part, _lin(x, part.gate) * _lin(x, part.up)),
        )
        yield mutant(
            "activation on gate and up",
            expert=lambda step, x, part: _down(x, part, F.silu(_lin(x, part.gate)) * F.silu(_lin(x, part.up))),
        )
        yield mutant("up forgotten", expert=lambda step, x, part: _down(x, part, F.silu(_lin(x, part.gate))))
        yield mutant(
            "gate plus up", expert=lambda step, x, part: _down(x, part, F.silu(_lin(x, part.gate)) + _lin(x, part.up))
        )
        yield mutant(
            "activation after the product",
            expert=lambda step, x, part: _down(x, part, F.silu(_lin(x, part.gate) * _lin(x, part.up))),
        )
    if decoder.layers[0].after_mlp is None:  # a norm after the MLP takes its size away
        yield mutant("MLP twice", mlp=lambda step, x, part: 2 * step(x, part))
        yield mutant("MLP halved", mlp=lambda step, x, part: 0.5 * step(x, part))
    for depth in range(len(decoder.layers)):
        yield Mutant(f"a unit of layer {depth} lost", "mlp", each_layer(decoder, _lost_unit, only=depth))
        yield Mutant(
            f"first unit of layer {depth} lost",
            "mlp",
            each_layer(decoder, lambda layer: _lost_unit(layer, 0), only=depth),
        )
    if mlp.router is not None:
        yield from _routers(mutant, len(mlp.experts), decoder.shape.experts_used)


def _lin(x: Tensor, linear: Linear) -> Tensor:
    return F.linear(
        x, torch.from_numpy(linear.weight.copy()), None if linear.bias is None else torch.from_numpy(linear.bias.copy())
    )


def _down(x: Tensor, part: Expert, inner: Tensor) -> Tensor:
    return _lin(inner, part.down)


def _interleaved(step: Callable[..., Tensor], x: Tensor, part: Expert) -> Tensor:
    """A fused gate-and-up read as pairs instead of halves."""
    assert part.up is not None
    fused = torch.cat([_lin(x, part.gate), _lin(x, part.up)], -1)
    return _down(x, part, F.silu(fused[..., ::2]) * fused[..., 1::2])


def _lost_unit(layer: Layer, unit: int | None = None) -> Layer:
    """Without the unit of this number, or one in the middle, which some window of the text activates."""

    def lose(part: Any) -> Any:
        weight = part.down.weight.copy()
        used = np.flatnonzero(np.abs(weight).max(0) > 1e-3)
        if len(used):
            weight[:, used[len(used) // 3 if unit is None else unit]] = 0
        return replace(part, down=replace(part.down, weight=weight))

    return replace(layer, mlp=replace(layer.mlp, experts=tuple(map(lose, layer.mlp.experts))))


def _routers(mutant: Callable[..., Mutant], experts: int, top: int) -> Iterator[Mutant]:
    def choose(
        count: int, *, normalise: bool = True, flip: bool = False, shift: int = 0, before: bool = False
    ) -> Callable[..., Any]:
        def route(step: Callable[..., Any], logits: Tensor, mlp: Mlp) -> tuple[Tensor, Tensor]:
            shares, chosen = torch.softmax(logits, -1).topk(count, -1)
            shares = shares / shares.sum(-1, keepdim=True) if normalise else shares
            return (chosen + shift) % experts, shares.flip(-1) if flip else shares

        return route

    yield (
        mutant(f"router: {top - 1} experts instead of {top}", route=choose(top - 1))
        if top > 1
        else mutant("router: none", route=choose(1, shift=1))
    )
    yield mutant(f"router: {top + 1} experts instead of {top}", route=choose(min(experts, top + 1)))
    yield mutant("router: all experts", route=choose(experts))
    yield mutant("router: shares not renormalised", route=choose(top, normalise=False))
    yield mutant("router: shares exchanged", route=choose(top, flip=True))
    yield mutant("router: experts shifted by one", route=choose(top, shift=1))
    yield mutant(
        "router: equal shares",
        route=lambda step, logits, mlp: (step(logits, mlp)[0], 0 * step(logits, mlp)[1] + 1 / top),
    )
    yield mutant("router: least likely experts", route=lambda step, logits, mlp: step(-logits, mlp))
    yield mutant("router: logits doubled", route=lambda step, logits, mlp: step(2 * logits, mlp))
    yield mutant(
        "router: sigmoid instead of softmax",
        route=lambda step, logits, mlp: (lambda s: (s.indices, s.values / s.values.sum(-1, keepdim=True)))(
            torch.sigmoid(logits).topk(top, -1)
        ),
    )
    yield mutant(
        "router: shares are logits",
        route=lambda step, logits, mlp: (lambda s: (s.indices, s.values))(logits.topk(top, -1)),
    )
    yield mutant(
        "router: experts by batch, not by token",
        route=lambda step, logits, mlp: step(logits.mean(0, keepdim=True).expand_as(logits), mlp),
    )


def _biases(decoder: StockDecoder) -> Iterator[Mutant]:
    """Every bias that the checkpoint stores, forgotten, one kind at a time, in all layers and in the last only."""

    def without(value: Any, path: tuple[str, ...]) -> Any:
        if len(path) == 1:
            return replace(value, **{path[0]: None})
        if isinstance(value, tuple):
            return tuple(without(part, path[1:]) if str(i) == path[0] else part for i, part in enumerate(value))
        return replace(value, **{path[0]: without(getattr(value, path[0]), path[1:])})

    last = len(decoder.layers) - 1
    for path in _paths(decoder.layers[0]):
        name = " ".join(path[:-1]).replace("_", " ")
        # The bias of a key adds the same number to all scores of a query, which softmax does not see, unless keys turn.
        harmless = path == ("attention", "k", "bias") and decoder.shape.rotary is None
        for where, only in (("", None), (" in the last layer", last)):
            make = each_layer(decoder, lambda layer, path=path: without(layer, path), only=only)
            yield Mutant(f"bias of {name} missing{where}", "biases", make, harmless)
    if decoder.final_norm.bias is not None:
        yield Mutant(
            "bias of the final norm missing",
            "biases",
            changed(decoder, final_norm=replace(decoder.final_norm, bias=None)),
        )


def _paths(value: Any, front: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in fields(value):
        part = getattr(value, field.name)
        if field.name == "bias" and part is not None:
            yield (*front, "bias")
        elif isinstance(part, tuple):
            for number, one in enumerate(part):
                yield from _paths(one, (*front, field.name, str(number)))
        elif is_dataclass(part) and not isinstance(part, type):
            yield from _paths(part, (*front, field.name))


def _wiring(decoder: StockDecoder) -> Iterator[Mutant]:
    mutant = _step(decoder, "wiring")
    count = len(decoder.layers)
    for depth in range(count):
        keep = tuple(layer for i, layer in enumerate(decoder.layers) if i != depth)
        yield Mutant(f"layer {depth} dropped", "wiring", changed(decoder, layers=keep))
        for part in ("attention", "mlp"):
            yield mutant(f"{part} of layer {depth} dropped", layer=_without(part, depth))
    yield Mutant("last layer twice", "wiring", changed(decoder, layers=(*decoder.layers, decoder.layers[-1])))
    if count > 1:
        swapped = (decoder.layers[1], decoder.layers[0], *decoder.layers[2:])
        yield Mutant("layers 0 and 1 exchanged", "wiring", changed(decoder, layers=swapped))
        yield Mutant("layers reversed", "wiring", changed(decoder, layers=decoder.layers[::-1]))
        yield Mutant("every layer the first", "wiring", changed(decoder, layers=(decoder.layers[0],) * count))
    for where in ("attention", "mlp"):
        yield mutant(
            f"residual missing around the {where}",
            add=lambda step, h, b, at, where=where: b if at == where else step(h, b, at),
        )
        yield mutant(
            f"residual doubled around the {where}",
            add=lambda step, h, b, at, where=where: 2 * h + b if at == where else step(h, b, at),
        )
        yield mutant(
            f"{where} subtracted", add=lambda step, h, b, at, where=where: h - b if at == where else step(h, b, at)
        )
    yield mutant("residual taken after the norm", layer=_normed_residual)
    yield mutant(
        "sequential instead of parallel residual"
        if decoder.shape.parallel
        else "parallel instead of sequential residual",
        parallel=lambda step, value: not value,
    )
    root = decoder.shape.hidden**0.5
    for name, factor in (
        ("times sqrt(hidden)", root),
        ("over sqrt(hidden)", 1 / root),
        ("times 1.5", 1.5),
        ("times 1.01", 1.01),
    ):
        yield mutant(f"embedding {name}", embedding_scale=lambda step, factor=factor: factor * step())
    if decoder.embedding_scale != 1.0:
        yield mutant("embedding not scaled", embedding_scale=lambda step: 1.0)
        yield mutant(
            "embedding scale in bfloat16",
            harmless=True,
            embedding_scale=lambda step: float(torch.tensor(step()).bfloat16()),
        )
    yield Mutant(
        "embedding rows shifted by one", "wiring", changed(decoder, embedding=np.roll(decoder.embedding, 1, 0))
    )
    if not decoder.shape.tied:
        yield Mutant("head tied to the embedding", "wiring", _tied(decoder))
        yield mutant("head rows shifted by one", head=lambda step, x: step(x).roll(1, -1))
    else:
        yield mutant("head not tied: rows shifted by one", head=lambda step, x: step(x).roll(1, -1))
    yield mutant("logits capped at 30 (softcap)", head=lambda step, x: 30 * torch.tanh(step(x) / 30))
    yield mutant("logits capped at 50 (softcap)", head=lambda step, x: 50 * torch.tanh(step(x) / 50))
    yield mutant("logits times 1.01", head=lambda step, x: 1.01 * step(x))
    yield mutant("logits over sqrt(hidden)", head=lambda step, x: step(x) / root)
    yield mutant("logits squashed by tanh", head=lambda step, x: torch.tanh(step(x)))
    yield mutant("residual times 1.01 per layer", layer=lambda step, h, *rest: 1.01 * step(h, *rest))
    yield mutant("residual clipped at 0.4", layer=lambda step, h, *rest: step(h, *rest).clamp(-0.4, 0.4))


def _tied(decoder: StockDecoder) -> Callable[[], Machine]:
    return changed(decoder, head=replace(decoder.head, weight=decoder.embedding))


def _without(part: str, depth: int) -> Callable[..., Tensor]:
    def layer(step: Callable[..., Tensor], h: Tensor, at: int, positions: Tensor, cache: Any) -> Tensor:
        machine = step.__self__  # type: ignore[attr-defined]
        if at != depth:
            return step(h, at, positions, cache)
        if part == "mlp":
            return machine.add(h, machine.attention_branch(h, at, positions, cache), "attention")
        return machine.add(h, machine.mlp_branch(h, at), "mlp")

    return layer


def _normed_residual(step: Callable[..., Tensor], h: Tensor, at: int, positions: Tensor, cache: Any) -> Tensor:
    machine = step.__self__  # type: ignore[attr-defined]
    own = machine.decoder.layers[at]
    normed = machine.maybe_norm(h, own.attention_norm or own.after_attention, "attention")
    after = machine.add(normed, machine.attention_branch(h, at, positions, cache), "attention")
    return machine.add(after, machine.mlp_branch(after, at), "mlp")


def _types(decoder: StockDecoder) -> Iterator[Mutant]:
    """Other number types: legitimate, so they must be survived."""
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        yield Mutant(f"everything in {name}", "precision", lambda dtype=dtype: Machine(decoder, dtype), harmless=True)
    mutant = _step(decoder, "precision")
    yield mutant(
        "residual in bfloat16", harmless=True, add=lambda step, h, b, at: step(h, b, at).bfloat16().to(h.dtype)
    )
    yield mutant(
        "norm output in float16", harmless=True, norm=lambda step, x, norm, at: step(x, norm, at).half().to(x.dtype)
    )
