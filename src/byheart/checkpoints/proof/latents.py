"""Latent attention (MLA): queries, keys and values that are read from short normed vectors.

    query  = W_Q norm(W_q h)        or W_Q h
    latent = norm(W_c h)
    key    = [rotated part of W_r h, the same for all heads; W_K latent]
    value  = W_V latent

*Norm of a latent.* A kept stream is x f, with one factor f per position, so the latent is W x f up to roundings and its
norm's factor is 1 / sqrt(f^2 mean((W x)^2) + eps). The product of both factors is 1 / sqrt(mean((W x)^2) + eps / f^2):
narrow, since f cancels but for epsilon. So the normed latent is again a vector times one factor (`Normed`), and values
are evaluated as those of plain attention are.

*Two forms.* Engines expand keys and values from the latents, or they absorb the projections: the query is multiplied by
W_K first, and W_V comes after the mixture of latents. Both compute the same sums in another order, with another tensor
stored in between; the proof holds for both.
"""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.proof import decoder as d
from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import Bounds, Normed, SymbolPart, merged
from byheart.checkpoints.proof.config import Shape
from byheart.checkpoints.proof.storage import Array, Storage, finite


def projected(
    n: Normed, attention: d.StockAttention, latents: d.Latents, shape: Shape, store: Storage
) -> tuple[Bounds, Bounds, Bounds, Normed]:
    """Queries, keys (the rotated part first, then the other one, head after head), values, and the normed latent."""
    source = n
    if latents.q_down is not None and latents.q_norm is not None:
        source = normed_latent(n, latents.q_down, latents.q_norm, store)
    read = normed_latent(n, latents.down, latents.norm, store)
    q, k, v = (x.whole.matmul(y, store) for x, y in ((source, attention.q), (read, attention.k), (read, attention.v)))
    turned = n.whole.matmul(latents.k_turned, store)
    rest = shape.head_dim - turned.size
    keys = _stacked([x for h in range(shape.heads) for x in (turned, k.rows(np.arange(h * rest, (h + 1) * rest)))])
    return q, keys, v, read


def normed_latent(n: Normed, down: d.Linear, norm: d.Norm, store: Storage) -> Normed:
    """A latent after its norm, in engines that keep normed streams or in those that store them."""
    if n.kept is None:
        return n.whole.matmul(down, store).norm(norm, store, stored=True)
    weight, size = down.weight, n.whole.largest()
    terms, total = ((weight != 0) & (size > 0)).sum(1), np.abs(weight) @ size
    finite(f"{down.name}: a sum", total, store.largest)
    plain = n.kept.matmul(d.Linear(down.name, weight, None), None)
    plain = plain.widen(rounding.kept_values(terms, total) / n.factor[0])
    offset = np.zeros(len(weight)) if down.bias is None else down.bias
    offset = offset if n.bias is None else offset + weight @ n.bias
    if offset.any():  # the factor is not one of the whole latent then
        shifted = plain.times(*n.factor).add(Bounds(offset, offset)).widen(rounding.offset_error(np.abs(offset)))
        return shifted.norm(norm, store, stored=False)
    ends = [plain.norm_factor(norm.eps / factor**2, None) for factor in n.factor]
    return _weighted(plain, norm, (min(low for low, _ in ends), max(high for _, high in ends)), store)


def _weighted(plain: Bounds, norm: d.Norm, factor: tuple[float, float], store: Storage) -> Normed:
    slack = np.where(plain.largest() > 0, rounding.norm_underflow(norm.weight, factor[0]), 0.0)
    kept = plain.widen(slack).store(None).times(norm.weight, norm.weight)
    whole = kept.times(*factor)
    finite(f"{norm.name}: a normed value", whole.largest(), store.largest)
    return Normed(whole, kept, factor, None)


def _stacked(fields: list[Bounds]) -> Bounds:
    """Several vectors as one."""
    starts = np.cumsum([0, *(field.size for field in fields)])
    parts = [
        SymbolPart(part.key, part.channels + start, part.lo, part.hi)
        for field, start in zip(fields, starts, strict=False)
        for part in field.parts
    ]
    lo, hi = (np.concatenate(ends) for ends in ([f.lo for f in fields], [f.hi for f in fields]))
    return Bounds(lo, hi, merged(parts))


def absorbed_size(
    query: Bounds, read: Normed, attention: d.StockAttention, shape: Shape, head: int, store: Storage
) -> float:
    """The error of a score in engines that multiply the query by W_K first; 0 without latents."""
    if attention.latents is None:
        return 0.0
    rest = len(attention.k.weight) // shape.kv_heads
    weight = np.abs(attention.k.weight[head * rest : (head + 1) * rest])
    inner = query.largest()[shape.head_dim - rest :] @ weight
    size = inner @ read.whole.largest()
    finite(f"{attention.k.name}: an absorbed query or score", np.r_[inner, size], store.largest)
    return float(rounding.absorbed_score(weight.shape[1] + rest, size, store))


def mixed_first(out: Bounds, latent: Bounds, projection: Array, places: int, store: Storage) -> Bounds:
    """A mixing head's output, also in engines that mix latents, store the mixture and project it then."""
    size = latent.largest()
    error = rounding.mixture_error(places, size, store) + rounding.absorbed_value(size, store)
    return out.widen(np.abs(projection) @ error)
