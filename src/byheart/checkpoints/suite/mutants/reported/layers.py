"""Reported faults of norms, matrices that were loaded or split wrongly, activations, experts, embedding and head."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.config import Shape
from byheart.checkpoints.proof.decoder import Expert, Layer, Linear, Mlp, Norm, StockAttention
from byheart.checkpoints.suite.machine import ACTIVATIONS, Machine, Tensor
from byheart.checkpoints.suite.mutants._base import Mutant, changed
from byheart.checkpoints.suite.mutants.reported._base import ALL, DECODING, EVERYWHERE, LAST, Watched, faults, stored

PRECISION = "precision"  # sums in a smaller type: no change of the mathematics, but none that an engine may make


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    yield from _norms(decoder)
    yield from _matrices(decoder)
    yield from _activations(decoder)
    yield from _experts(decoder)
    yield from _ends(decoder)


def _norms(decoder: StockDecoder) -> Iterator[Mutant]:
    family, centred = "norms", decoder.final_norm.centred
    padded = decoder.shape.hidden / (256 * (decoder.shape.hidden // 256 + 1))

    def twice(m: Watched, step: Any, x: Tensor, norm: Norm, where: str) -> Tensor:
        return step(step(x, norm, where), norm, where)

    for name, change in {
        "epsilon outside the root": lambda m, step, x, n, where: x.pow(2).mean(-1, keepdim=True).sqrt() + n.eps,
        "no epsilon": lambda m, step, x, n, where: x.pow(2).mean(-1, keepdim=True).sqrt(),
        "mean over a padded width": lambda m, step, x, n, where: step(x, n, where) * math.sqrt(padded),
    }.items():
        yield from faults(decoder, name, family, ALL, size=change)
    yield from faults(decoder, "1 added to weights", family, ALL, norm=_with(lambda w: w + 1))
    yield from faults(decoder, "applied twice", family, ALL, norm=twice)
    yield from faults(
        decoder, "squares in bfloat16", PRECISION, (EVERYWHERE, LAST),
        size=lambda m, step, x, n, where: step(x.to(torch.bfloat16), n, where).to(x),
    )  # fmt: skip
    if decoder.shape.root_scaled:  # Gemma and its successors store norm weights minus 1
        yield from faults(decoder, "1 not added to weights", family, ALL, norm=_with(lambda w: w - 1))
    if centred:
        n = decoder.shape.hidden
        yield from faults(
            decoder, "variance over n - 1", family, ALL,
            size=lambda m, step, x, norm, where: step(x * math.sqrt(n / (n - 1)), norm, where),
        )  # fmt: skip
        yield Mutant("final bias lost", family, changed(decoder, final_norm=replace(decoder.final_norm, bias=None)))
    last = decoder.layers[-1].mlp_norm or decoder.layers[-1].after_mlp
    yield Mutant("final norm has the last layer's weights", family, changed(decoder, final_norm=last))
    if decoder.layers[0].attention_norm is not None:
        yield from stored(
            decoder, "norms of a layer exchanged", family,
            lambda x: replace(x, attention_norm=x.mlp_norm, mlp_norm=x.attention_norm),
        )  # fmt: skip
        yield from _residuals(decoder)
    if decoder.layers[0].attention.q_norm is not None and not decoder.layers[0].attention.all_heads:
        yield from _head_norms(decoder)


def _with(change: Any) -> Any:
    def norm(m: Watched, step: Any, x: Tensor, norm: Norm, where: str) -> Tensor:
        # the bias is added back, so that only the weight differs
        weight = change(m.tensor(norm.weight)) / m.tensor(norm.weight)
        bias = 0 if norm.bias is None else m.tensor(norm.bias)
        return (step(x, norm, where) - bias) * torch.nan_to_num(weight, 1.0) + bias

    return norm


def _residuals(decoder: StockDecoder) -> Iterator[Mutant]:
    def kept(m: Watched, step: Any, x: Tensor, norm: Norm, where: str) -> Tensor:
        m.normed = step(x, norm, where)  # type: ignore[attr-defined]
        return m.normed  # type: ignore[attr-defined]

    def from_normed(m: Watched, step: Any, h: Tensor, branch: Tensor, where: str) -> Tensor:
        return step(m.normed if where == "mlp" else h, branch, where)  # type: ignore[attr-defined]

    def not_before(m: Watched, step: Any, x: Tensor, norm: Norm, where: str) -> Tensor:
        return x if where in ("attention", "mlp") else step(x, norm, where)

    def behind(m: Watched, step: Any, h: Tensor, branch: Tensor, where: str) -> Tensor:
        layer = decoder.layers[m.depth]
        norm = layer.attention_norm if where == "attention" else layer.mlp_norm
        return (
            m.maybe_norm(step(h, branch, where), None, where)
            if norm is None
            else Machine.norm(m, step(h, branch, where), norm, where)
        )

    yield from faults(decoder, "the residual is taken after the norm", "norms", ALL, norm=kept, add=from_normed)
    yield from faults(decoder, "norms after the sums", "norms", ALL, norm=not_before, add=behind)


def _head_norms(decoder: StockDecoder) -> Iterator[Mutant]:
    def over_all(m: Watched, step: Any, wide: Tensor, norm: Norm, where: str) -> Tensor:
        if where not in ("q", "k"):
            return step(wide, norm, where)
        return (wide.pow(2).mean((0, -1), keepdim=True) + norm.eps).sqrt()

    def later(m: Watched, step: Any, x: Tensor, norm: Norm, where: str) -> Tensor:
        return x if where in ("q", "k") else step(x, norm, where)

    def after_rotation(m: Watched, step: Any, x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        a = decoder.layers[m.depth].attention
        norm: Any = a.q_norm if which == "q" else a.k_norm
        return Machine.norm(m, step(x, cos, sin, which), norm, which)

    def of_keys(m: Watched, step: Any, x: Tensor, norm: Norm, where: str) -> Tensor:
        return step(x, decoder.layers[m.depth].attention.k_norm if where == "q" else norm, where)

    yield from faults(decoder, "one size for all heads", "norms", ALL, size=over_all)
    yield from faults(decoder, "head norms after the rotation", "norms", ALL, norm=later, rotate=after_rotation)
    yield from faults(decoder, "queries have the keys' norm", "norms", ALL, norm=of_keys)


def _on_attention(change: Any) -> Any:
    return lambda layer: replace(layer, attention=change(layer.attention))


def _on_mlp(change: Any) -> Any:
    """`change` is given the MLP, or every expert of it."""

    def changed_layer(layer: Layer) -> Layer:
        return replace(layer, mlp=replace(layer.mlp, experts=tuple(map(change, layer.mlp.experts))))

    return changed_layer


def _bias(linear: Linear, factor: float) -> Linear:
    return linear if linear.bias is None else replace(linear, bias=linear.bias * np.float32(factor))


def _columns(linear: Linear, zero: slice) -> Linear:
    weight = linear.weight.copy()
    weight[:, zero] = 0
    return replace(linear, weight=weight)


def _first_half_again(linear: Linear) -> Linear:
    def again(values: Any) -> Any:
        half = len(values) // 2
        return np.concatenate([values[:half], values[:half], values[2 * half :]])

    return replace(linear, weight=again(linear.weight), bias=None if linear.bias is None else again(linear.bias))


def _per_group(a: StockAttention, shape: Shape) -> StockAttention:
    """Rows of q, k and v in one matrix, read as if every group had its own q, k and v side by side."""

    def cut(parts: list[Any]) -> list[Any]:
        rows = np.concatenate(parts)
        each = rows.reshape(shape.kv_heads, shape.heads // shape.kv_heads + 2, shape.head_dim, *rows.shape[1:])
        found = [each[:, :-2], each[:, -2], each[:, -1]]
        return [np.ascontiguousarray(part.reshape(old.shape)) for part, old in zip(found, parts, strict=True)]

    linears = (a.q, a.k, a.v)
    weights = cut([x.weight for x in linears])
    biases = cut([x.bias for x in linears]) if all(x.bias is not None for x in linears) else [x.bias for x in linears]
    q, k, v = (replace(x, weight=w, bias=b) for x, w, b in zip(linears, weights, biases, strict=True))
    return replace(a, q=q, k=k, v=v)


def _two_ranks(expert: Any) -> Expert:
    """[gate of rank 0, up of rank 0, gate of rank 1, up of rank 1], cut in the middle."""
    half = len(expert.gate.weight) // 2
    rows = [np.concatenate([expert.gate.weight[part], expert.up.weight[part]]) for part in _halves(half)]
    return replace(expert, gate=replace(expert.gate, weight=rows[0]), up=replace(expert.up, weight=rows[1]))


def _halves(half: int) -> tuple[slice, slice]:
    return slice(half), slice(half, None)


def _flipped(linear: Linear) -> Linear:
    weight = linear.weight.copy()
    weight[:, :32] = weight[:, 31::-1]
    return replace(linear, weight=weight)


def _matrices(decoder: StockDecoder) -> Iterator[Mutant]:
    family, first = "wiring", decoder.layers[0]
    half = first.attention.o.weight.shape[1] // 2
    if first.attention.o.bias is not None:
        for times, name in ((2, "added by both ranks"), (0, "lost")):
            yield from stored(decoder, f"bias of the attention's output {name}", family,
                              _on_attention(lambda a, t=times: replace(a, o=_bias(a.o, t))))  # fmt: skip
            yield from stored(decoder, f"bias of the MLP's output {name}", family,
                              _on_mlp(lambda mlp, t=times: replace(mlp, down=_bias(mlp.down, t))))  # fmt: skip
    yield from stored(decoder, "q, v, k instead of q, k, v", family, _on_attention(lambda a: replace(a, k=a.v, v=a.k)))
    yield from stored(decoder, "q, k, v per group", family, _on_attention(lambda a: _per_group(a, decoder.shape)))
    yield from stored(decoder, "rank 1 has rank 0's queries", family,
                      _on_attention(lambda a: replace(a, q=_first_half_again(a.q))))  # fmt: skip
    yield from stored(decoder, "attention of rank 0 alone", family,
                      _on_attention(lambda a: replace(a, o=_columns(a.o, slice(half, None)))))  # fmt: skip
    if first.attention.o.weight.shape[0] == first.attention.o.weight.shape[1]:
        yield from stored(decoder, "output matrix transposed", family,
                          _on_attention(lambda a: replace(a, o=replace(a.o, weight=a.o.weight.T.copy()))))  # fmt: skip
    for name, change in {
        "MLP of rank 0 alone": lambda d: _columns(d, slice(d.weight.shape[1] // 2, None)),
        "last 64 units lost": lambda d: _columns(d, slice(-64, None)),
        "32 units in reverse order": _flipped,
    }.items():
        yield from stored(decoder, name, family, _on_mlp(lambda mlp, c=change: replace(mlp, down=c(mlp.down))))
    yield from stored(decoder, "rank 1 has rank 0's units", family, _on_mlp(_same_units))
    if first.mlp.experts[0].up is not None:
        yield from stored(decoder, "gate and up of two ranks", family, _on_mlp(_two_ranks))
    if first.attention.k.bias is not None and decoder.shape.rotary is not None:
        yield from _late_bias(decoder)
    for kind in (torch.bfloat16, torch.float16):
        yield from faults(decoder, f"sums in {str(kind)[6:]}", PRECISION, (EVERYWHERE, LAST), linear=_summed(kind))


def _same_units(expert: Expert) -> Expert:
    up = None if expert.up is None else _first_half_again(expert.up)
    return replace(expert, gate=_first_half_again(expert.gate), up=up)


def _late_bias(decoder: StockDecoder) -> Iterator[Mutant]:
    def without(m: Watched, step: Any, x: Tensor, linear: Linear) -> Tensor:
        return step(x, replace(linear, bias=None) if linear is decoder.layers[m.depth].attention.k else linear)

    def with_it(m: Watched, step: Any, x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        a, turned = decoder.layers[m.depth].attention, step(x, cos, sin, which)
        return turned + m.tensor(a.k.bias).reshape(m.shape.kv_heads, 1, -1) if which == "k" else turned

    yield from faults(decoder, "bias of keys after the rotation", "wiring", ALL, linear=without, rotate=with_it)


def _summed(kind: torch.dtype) -> Any:
    def linear(m: Watched, step: Any, x: Tensor, linear: Linear) -> Tensor:
        total = None
        weight = m.tensor(linear.weight)
        for at in range(0, x.shape[-1], 32):
            part = (x[..., at : at + 32] @ weight[:, at : at + 32].T).to(kind)
            total = part if total is None else total + part
        out = total.to(x.dtype)  # type: ignore[union-attr]
        return out if linear.bias is None else out + m.tensor(linear.bias)

    return linear


def _activations(decoder: StockDecoder) -> Iterator[Mutant]:
    family, kind = "mlp", decoder.shape.activation
    others: dict[str, Any] = {
        "x sigmoid(1.702 x)": lambda m, step, x, k: x * torch.sigmoid(1.702 * x),
        "gates capped at 7": lambda m, step, x, k: step(x.clamp(max=7), k),
        "gates capped at 1": lambda m, step, x, k: step(x.clamp(max=1), k),
        "hard swish": lambda m, step, x, k: F.hardswish(x),
    }
    for other in ACTIVATIONS:
        if other != kind:
            others[f"{other} instead of {kind}"] = lambda m, step, x, k, o=other: ACTIVATIONS[o](x)
    for name, change in others.items():
        yield from faults(decoder, name, family, ALL, activate=change)
    if decoder.layers[0].mlp.experts[0].up is not None:
        for most in (7, 1):
            yield from faults(decoder, f"up capped at {most}", family, ALL, expert=_capped(most))


def _capped(most: float) -> Any:
    def expert(m: Watched, step: Any, x: Tensor, part: Any) -> Tensor:
        gate = m.activate(m.linear(x, part.gate), m.shape.activation)
        return m.linear(gate * m.linear(x, part.up).clamp(-most, most), part.down)

    return expert


def _experts(decoder: StockDecoder) -> Iterator[Mutant]:
    if decoder.layers[0].mlp.router is None:
        return

    def shares_of(change: Any) -> Any:
        def route(m: Watched, step: Any, logits: Tensor, mlp: Mlp) -> Any:
            chosen, shares = step(logits, mlp)
            return chosen, change(logits, chosen, shares)

        return route

    def capacity(logits: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        most = math.ceil(1.25 * chosen.numel() / logits.shape[-1])
        counts = torch.stack([(chosen == e).flatten().cumsum(0) for e in range(logits.shape[-1])])
        return shares * (counts.reshape(-1, *chosen.shape).gather(0, chosen[None])[0] <= most)

    def first_too(m: Watched, step: Any, x: Tensor, mlp: Mlp) -> Tensor:
        return step(x, mlp) + m.expert(x, mlp.experts[0])

    def on_inputs(m: Watched, step: Any, x: Tensor, mlp: Any) -> Tensor:
        chosen, shares = m.route(m.linear(x, mlp.router), mlp)
        parts = [(shares * (chosen == e)).sum(-1, keepdim=True) for e in range(len(mlp.experts))]
        return sum(m.expert(x * share, expert) for share, expert in zip(parts, mlp.experts, strict=True))

    for name, change in {
        "shares not normalised": lambda lo, c, s: torch.softmax(lo, -1).gather(-1, c),
        "shares by sigmoid": lambda lo, c, s: torch.sigmoid(lo).gather(-1, c),
        "shares by normalised sigmoid": lambda lo, c, s: F.normalize(torch.sigmoid(lo).gather(-1, c), p=1, dim=-1),
        "logits as shares": lambda lo, c, s: lo.gather(-1, c),
        "both experts have the first share": lambda lo, c, s: s[..., :1].expand_as(s),
        "shares squared": lambda lo, c, s: s**2,
        "experts of rank 1 write nothing": lambda lo, c, s: s * (c < lo.shape[-1] // 2),
    }.items():
        yield from faults(decoder, name, "experts", ALL, route=shares_of(change))
    yield from faults(
        decoder, "capacity of 1.25 times the average", "experts", (EVERYWHERE, LAST), route=shares_of(capacity)
    )  # one token alone never exceeds it
    yield from faults(decoder, "the first expert is shared", "experts", ALL, mlp=first_too)
    yield from faults(decoder, "shares on the inputs", "experts", ALL, mlp=on_inputs)

    def swapped(layer: Layer) -> Layer:
        last: Any = layer.mlp.experts[-1]
        other = replace(last, gate=last.up, up=last.gate)
        return replace(layer, mlp=replace(layer.mlp, experts=(*layer.mlp.experts[:-1], other)))

    yield from stored(decoder, "gate and up of the last expert exchanged", "experts", swapped)


def _ends(decoder: StockDecoder) -> Iterator[Mutant]:
    family, half = "wiring", decoder.shape.vocabulary // 2
    root = math.sqrt(decoder.shape.hidden)
    scale = (lambda m, step: 1.0) if decoder.embedding_scale != 1 else (lambda m, step: root)
    yield from faults(decoder, "embedding's scale the other way", family, (EVERYWHERE, DECODING), embedding_scale=scale)
    for name, change in {
        "logits capped at 30": lambda m, step, x: 30 * torch.tanh(step(x) / 30),
        "logits divided by the root of the width": lambda m, step, x: step(x) / root,
        "second half of the logits one too far": lambda m, step, x: torch.cat(
            [step(x)[..., :half], step(x)[..., half:].roll(1, -1)], -1
        ),
    }.items():
        yield from faults(decoder, name, family, (EVERYWHERE, DECODING), head=change)
    small = torch.bfloat16
    yield from faults(
        decoder, "logits in bfloat16", PRECISION, head=lambda m, step, x: step(x.to(small).to(x)).to(small)
    )
    shard = decoder.embedding.copy()
    shard[half:] = 0
    yield Mutant("second half of the embedding lost", family, changed(decoder, embedding=shard))
    yield from faults(
        decoder, "logits one position late", family, (EVERYWHERE,),
        run=lambda m, step, ids, cache=None, padding=0: step(ids, cache, padding).roll(int(len(ids) > 1), 0),
    )  # fmt: skip
    yield from faults(decoder, "repetition penalty of 1.1", family, run=_penalty)


def _penalty(m: Watched, step: Any, ids: Any, cache: Any = None, padding: int = 0) -> Tensor:
    if cache is None or not len(cache):
        m.seen_ids = []  # type: ignore[attr-defined]
    m.seen_ids += list(ids)  # type: ignore[attr-defined]
    logits = step(ids, cache, padding).clone()
    seen = torch.tensor(sorted(set(m.seen_ids)))  # type: ignore[attr-defined]
    row = logits[-1, seen]
    logits[-1, seen] = torch.where(row > 0, row / 1.1, row * 1.1)
    return logits
