"""The stream of any row, layer by layer, and everything that must be finite on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from byheart.checkpoints.proof import decoder as d
from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import (
    POSITION,
    SMALLEST_SQUARE,
    TOKEN,
    Bounds,
    SymbolPart,
    constant,
    product_bounds,
)
from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.low_rank import adapted
from byheart.checkpoints.proof.padding.majorant import Majorant
from byheart.checkpoints.proof.padding.scaled import (
    FLAT,
    Pair,
    ScaledVector,
    channels_of,
    magnified,
    own_product,
    unscaled,
)
from byheart.checkpoints.proof.storage import Array, Storage, finite

CALM = 16.0  # units are loud whose bound is more than so many times that of the unit after them
LOUD = 8  # so many of them have a symbol each


class PaddingRows:
    """The stream of any row after each layer."""

    def __init__(self, reader: d.TensorReader, store: Storage, places: int) -> None:
        self.shape, self.store, self.places = reader.checkpoint.shape, store, places
        self.narrow = store.name == "float16"
        self._next = 1
        s, names = self.shape, reader.checkpoint.family
        tokens, positions = reader.embedding()
        tokens = tokens * s.embedding_scale * (np.sqrt(s.hidden) if s.root_scaled else 1.0)
        every, zero = np.arange(s.hidden), np.zeros(s.hidden)
        parts = [SymbolPart((TOKEN, 0), every, tokens, tokens)]
        self.centred = names.centred
        self._placed, self._own = positions is not None, True
        if positions is not None:  # also rows before position 0, which padding may have
            table = reader.tensor(f"{names.positions}.weight", s.positions + names.skipped, s.hidden)
            parts.append(SymbolPart((POSITION, 0), every, table, table))
        embedded = self._stored("the embedding", Bounds(zero, zero, tuple(parts)))
        # Rows that mix any rows, and rows without heads: an engine gives all rows that see nothing zeros, or none.
        self.streams = [embedded, embedded]
        self._pairs: list[list[Pair]] = [[], []]

    def layer(self, index: int, layer: d.Layer, mixed: Bounds | None = None) -> None:
        """Go through one layer.

        Args:
            index: its number.
            layer: its tensors.
            mixed: what a recurrent mixer adds to ordinary rows. Engines clear rows of padding before and after it.

        Raises:
            Undecided: a number may leave the range; the message names the place.
        """
        shape = self.shape.at(index)
        last = index == shape.layers - 1
        # What a row of the first layer scores itself is what ordinary rows do, unless positions are added.
        self._own = not last and (index > 0 or self._placed)
        if any(adapted(layer)):
            raise Undecided("padding: rows with an adapter that is not merged are not proved")
        kinds = [self._normed(unscaled(stream), layer.attention_norm) for stream in self.streams]
        none = constant(np.zeros(shape.hidden))
        if layer.mixer is not None:
            added = [none if mixed is None else self._renamed(mixed), none]
        else:
            self._pairs = [[], []]
            added = [self._attended(read, layer.attention, shape, kind) for kind, read in enumerate(kinds)]
            self._all_scores(shape)
            added[1] = none if layer.attention.o.bias is None else constant(layer.attention.o.bias)
        if not last:
            self.streams = [self._after(x, y, layer) for x, y in zip(self.streams, added, strict=True)]

    def _after(self, stream: Bounds, attended: Bounds, layer: d.Layer) -> Bounds:
        """The stream after a layer, whose heads or mixer added `attended`."""
        added = self._added(attended, layer.after_attention)
        between = stream if self.shape.parallel else self._stored("a sum of the stream", stream.add(added))
        moved = self._moved(self._normed(unscaled(between), layer.mlp_norm), layer.mlp)
        moved = self._added(moved, layer.after_mlp)
        terms = (added, moved) if self.shape.parallel else (moved,)
        return self._stored("a sum of the stream", between.add(*terms))

    def _fresh(self) -> int:
        self._next += 1
        return self._next

    def _renamed(self, field: Bounds) -> Bounds:
        """Parts of another row: symbols of their own."""
        parts = (replace(part, key=(self._fresh(), 0)) for part in field.parts)
        return Bounds(field.lo, field.hi, tuple(parts))

    def _stored(self, name: str, field: Bounds) -> Bounds:
        """A sum that is stored or kept, every partial sum of it too."""
        field = field.fold(FLAT * max((float(p.spread().max(initial=0.0)) for p in field.parts), default=0.0))
        if not self.narrow:
            field = constant(*field.hull())
        size = field.largest()
        finite(f"padding: {name}", size, self.store.largest)
        return field.widen(rounding.padding_stores(2, size, self.store))

    def _added(self, branch: Bounds, norm: d.Norm | None) -> Bounds:
        """A branch after its norm and its multiplier."""
        if norm is not None:
            branch = self._normed(unscaled(branch), norm).field()
        scale = self.shape.residual_scale
        return branch if scale == 1 else self._stored("a product with a multiplier", branch.times(scale, scale))

    def _normed(self, x: ScaledVector, norm: d.Norm | None) -> ScaledVector:
        """After a norm. A factor of all numbers only changes what its epsilon counts."""
        if norm is None:
            return x
        field, n = x.plain, x.plain.size
        if x.shift.any():
            field, x = x.field(), replace(x, factor=(1.0, 1.0))
        else:  # a factor of all numbers only changes what epsilon counts
            own = 0.0 if x.drift is None else np.abs(x.drift)
            field = field.widen(x.off / x.factor[0] + own)
        centre = field.mean() if norm.centred else None
        eps = norm.eps / x.factor[1] ** 2, norm.eps / x.factor[0] ** 2
        length, spread, drift = np.sqrt(n), 0.0, None
        least, most = field.energy() if centre is None else field.variance()
        finite(f"padding: {norm.name}: the squares", np.asarray(most) * x.factor[1] ** 2)
        least = max(least, 0.0)
        if centre is not None:
            spread = max(abs(centre[0]), abs(centre[1]))
            middle, half = (centre[0] + centre[1]) / 2, (centre[1] - centre[0]) / 2
            field, drift = Bounds(field.lo - middle, field.hi - middle, field.parts), np.full(n, half)
            # A variance in one pass may be too small by this: the length grows until epsilon stops it.
            error = float(rounding.padding_variance(n, float(((field.largest() + half) ** 2).sum()) / n, spread))
            length *= np.sqrt(max(1.0, error / eps[0]))
        if not least / n + eps[0] > SMALLEST_SQUARE:
            raise Undecided(f"padding: {norm.name} may divide by zero")
        mean = None if centre is None else np.asarray(spread)
        low = float(rounding.inverse_root(np.asarray(least), np.asarray(most), n, eps[1], mean)[0])
        high = float(rounding.inverse_root(np.asarray(least), np.asarray(least), n, eps[0], mean)[1])
        shift = np.zeros(n) if norm.bias is None else norm.bias
        length = float(length) * (1 + 2.0**-6)
        plain = field.times(norm.weight, norm.weight)
        found = ScaledVector(plain, (low, high), shift, np.zeros(n), length, norm.weight)
        found = replace(found, euclid=length * float(np.abs(norm.weight).max()) + float(np.linalg.norm(shift)))
        found = found if drift is None else replace(found, drift=drift * norm.weight)
        size = found.largest()
        finite(f"padding: {norm.name}: a normed value", size + np.abs(shift), self.store.largest)
        finite(f"padding: {norm.name}: a normed value", np.minimum(field.largest() * high, length), self.store.largest)
        # What is stored already, or times a weight of 1, is not rounded again.
        stores = 1 if (norm.weight == 1).all() and not shift.any() else 3
        return replace(found, off=rounding.padding_stores(stores, size, self.store))

    def _mapped(self, x: ScaledVector, layer: d.Linear, off: Array | None = None) -> ScaledVector:
        """weight x + bias; `off` replaces the roundings of this map."""
        weight, size = layer.weight, x.largest()
        shift = weight @ x.shift + (0.0 if layer.bias is None else layer.bias)
        total = np.abs(weight) @ size + (0.0 if layer.bias is None else np.abs(layer.bias))
        finite(f"padding: {layer.name}: a sum", total)
        if off is None:
            off = np.abs(weight) @ x.off + rounding.padding_sum((weight != 0).sum(1) + 1, total)
        length = x.length
        rows = None if x.weight is None else np.sqrt(((weight * x.weight) ** 2).sum(1))
        linear = d.Linear(layer.name, weight, None)
        drift = None if x.drift is None else weight @ x.drift
        found = ScaledVector(x.plain.matmul(linear, None, FLAT), x.factor, shift, off, length, rows, np.inf, drift)
        return replace(found, off=off + rounding.padding_stores(2, found.largest(), self.store))

    def _projected(self, x: ScaledVector, layer: d.Linear) -> ScaledVector:
        found = self._mapped(x, layer)
        finite(f"padding: {layer.name}: a value", found.largest(), self.store.largest)
        return found

    def _attended(self, x: ScaledVector, attention: d.StockAttention, shape: Shape, kind: int) -> Bounds:
        """What heads add, whatever they look at."""
        source = x
        if attention.latents is None:
            q, k = self._projected(x, attention.q), self._projected(x, attention.k)
            self._scores(q, k, attention, shape, kind)
        else:
            source = self._latent_scores(x, attention, attention.latents, shape, kind)
        v, o = self._projected(source, attention.v), attention.o
        size = v.largest()
        finite(f"padding: {attention.v.name}: a sum of values", self.places * size)
        slack = v.off + rounding.mixture_error(self.places, size, self.store)
        slack = slack + rounding.padding_stores(2, size, self.store)
        out, wide, total = constant(np.zeros(shape.hidden)), np.zeros(shape.hidden), np.zeros(shape.hidden)
        for head in range(shape.heads):
            group = head // (shape.heads // shape.kv_heads)
            columns, rows = (np.arange(i * shape.value_size, (i + 1) * shape.value_size) for i in (head, group))
            weight = o.weight[:, columns]
            if not weight.any():
                continue
            both = d.Linear(o.name, weight @ attention.v.weight[rows], None)
            if attention.gate is None:
                one = self._mapped(replace(source, off=0 * source.off), both, np.zeros(shape.hidden))
                bias = 0.0 if attention.v.bias is None else weight @ attention.v.bias[rows]
                out = out.add(self._renamed(replace(one, shift=one.shift + bias).field()))
            else:  # each value is weighed by itself
                low, high = (end[rows] for end in v.hull)
                ends = product_bounds(weight, np.minimum(low, 0.0), np.maximum(high, 0.0))
                out = out.add(constant(*ends))
            wide, total = wide + np.abs(weight) @ slack[rows], total + np.abs(weight) @ size[rows]
        if attention.gate is not None:
            self._projected(x, attention.gate)
        finite(f"padding: {o.name}: a sum", total)
        out = out.widen(wide + rounding.padding_sum((o.weight != 0).sum(1) + 1, total))
        return self._stored(o.name, out if o.bias is None else out.add(constant(o.bias)))

    def _latent_scores(
        self, x: ScaledVector, attention: d.StockAttention, latents: d.Latents, shape: Shape, kind: int
    ) -> ScaledVector:  # fmt: skip
        source = x
        if latents.q_down is not None:
            source = self._normed(self._projected(x, latents.q_down), latents.q_norm)
        read = self._normed(self._projected(x, latents.down), latents.norm)
        finite("padding: a sum of latents", self.places * read.largest())
        q, k = self._projected(source, attention.q), self._projected(read, attention.k)
        turned = self._projected(x, latents.k_turned)
        first = turned.plain.size
        rest = shape.head_dim - first
        for head in range(shape.heads):
            query = magnified(
                channels_of(q, np.arange(head * shape.head_dim, (head + 1) * shape.head_dim)), shape.rotary
            )
            keys = magnified(turned, shape.rotary), channels_of(k, np.arange(head * rest, (head + 1) * rest))
            halves = [channels_of(query, np.arange(first)), channels_of(query, np.arange(first, shape.head_dim))]
            own = sum(own_product(a, b) for a, b in zip(halves, keys, strict=True))
            size = np.concatenate([key.largest() for key in keys])
            inner = query.largest()[first:] @ np.abs(attention.k.weight[head * rest : (head + 1) * rest])
            finite(f"padding: {attention.k.name}", np.r_[inner, inner @ read.largest()], self.store.largest)
            self._pairs[kind].append(Pair(query.largest(), size, float(own), np.inf, np.inf))
        return read

    def _scores(self, q: ScaledVector, k: ScaledVector, attention: d.StockAttention, shape: Shape, kind: int) -> None:
        if attention.all_heads:
            q, k = self._normed(q, attention.q_norm), self._normed(k, attention.k_norm)
        for head in range(shape.heads):
            group = head // (shape.heads // shape.kv_heads)
            query, key = (
                channels_of(x, np.arange(i * shape.head_dim, (i + 1) * shape.head_dim))
                for x, i in ((q, head), (k, group))
            )
            if not attention.all_heads:
                query, key = self._normed(query, attention.q_norm), self._normed(key, attention.k_norm)
            query, key = magnified(query, shape.rotary), magnified(key, shape.rotary)
            own = own_product(query, key)
            self._pairs[kind].append(Pair(query.largest(), key.largest(), own, query.euclid, key.euclid))

    def _all_scores(self, shape: Shape) -> None:
        """Scores between rows of both kinds; only rows that mix have scores when all places are masked."""
        for head, (one, two) in enumerate(zip(*self._pairs, strict=True)):
            q, k = np.maximum(one.q, two.q), np.maximum(one.k, two.k)
            euclid = max(one.q_length, two.q_length) * max(one.k_length, two.k_length) * (1 + 2.0**-5)
            self._score(f"padding: head {head}", q, k, one.own, shape, euclid)

    def _score(self, name: str, q: Array, k: Array, own: float, shape: Shape, euclid: float) -> None:
        """Rotated queries and keys, and scores, are finite; in a fully masked row, that at distance 0 too."""
        half = 0 if shape.rotary is None else shape.rotary.dims // 2
        pairs = [np.hypot(s[:half], s[half : 2 * half]) for s in (q, k)]
        finite(f"{name}: a rotated query or key", np.concatenate(pairs), self.store.largest)
        total = float(pairs[0] @ pairs[1] + q[2 * half :] @ k[2 * half :])
        total = min(total, euclid)
        finite(f"{name}: a score", np.asarray(total), self.store.largest)
        room = self.store.largest * self.store.unit / 2
        least = shape.scale * own - rounding.masked_score(total * shape.scale, self.store)
        if self._own and not least > -room:
            raise Undecided(
                f"{name} scores {least:.4g} at distance 0; in a fully masked row {self.store.name} adds"
                f" {-self.store.largest:.5g}, which overflows below {-room:.4g}"
            )

    def _moved(self, x: ScaledVector, mlp: d.Mlp) -> Bounds:
        """What an MLP adds: of experts, any convex combination, times the router's factor."""
        if mlp.router is not None:
            self._projected(x, mlp.router)
        found = [self._expert(x, expert) for expert in mlp.experts]
        out = found[0]
        if mlp.router is not None:
            factor = self.shape.routing.factor * (1 + 2.0**-6)
            out = self._combined([one.times(factor, factor) for one in found])
            finite("padding: a weighed expert", out.largest(), self.store.largest)
        if mlp.shared is not None:
            lo, hi = self._expert(x, mlp.shared).hull()
            out = out.add(constant(np.minimum(lo, 0.0), np.maximum(hi, 0.0)))
            if mlp.shared_gate is not None:
                self._projected(x, mlp.shared_gate)
        return self._stored("what an MLP adds", out)

    def _combined(self, fields: list[Bounds]) -> Bounds:
        """Any convex combination of several, or of some of them and zero: so are their first parts, their second ..."""
        lo = np.minimum(np.min([f.lo for f in fields], axis=0), 0.0)
        hi = np.maximum(np.max([f.hi for f in fields], axis=0), 0.0)
        parts = []
        for group in zip_longest(*(f.parts for f in fields)):
            rows = [one for one in group if one is not None]
            channels = np.unique(np.concatenate([one.channels for one in rows]))
            tables = [(np.zeros((1, len(channels))),) * 2]
            for one in rows:
                low, high = np.zeros((len(one.lo), len(channels))), np.zeros((len(one.lo), len(channels)))
                at = np.searchsorted(channels, one.channels)
                low[:, at], high[:, at] = one.lo, one.hi
                tables.append((low, high))
            ends = (np.concatenate([table[end] for table in tables]) for end in (0, 1))
            parts.append(SymbolPart((self._fresh(), 0), channels, *ends))
        return Bounds(lo, hi, tuple(parts))

    def _expert(self, x: ScaledVector, expert: d.Expert) -> Bounds:
        store = self.store
        gate = self._projected(x, expert.gate)
        up = None if expert.up is None else self._projected(x, expert.up)
        bound = Majorant.of(expert, gate, up, lambda layer: self._mapped(x, layer), self.shape, store)
        weight = np.abs(expert.down.weight)
        top = np.maximum(bound.box(), replace(bound, negative=True).box())
        finite(f"padding: {expert.gate.name}: an activated unit", top, store.largest)
        total = weight @ top
        finite(f"padding: {expert.down.name}: a sum", total)
        lo, hi = -total, total
        part: tuple[SymbolPart, ...] = ()
        if self.narrow:
            lo, hi, part = self._written(expert, bound, top)
            total = np.minimum(total, Bounds(lo, hi, part).largest())
        slack = rounding.padding_sum(weight.shape[1], total) + rounding.padding_stores(2, total, store)
        out = Bounds(lo - slack, hi + slack, part)
        if expert.down.bias is not None:
            out = out.add(constant(expert.down.bias))
        finite(f"padding: {expert.down.name}: an output", out.largest(), store.largest)
        return out

    def _written(
        self, expert: d.Expert, bound: Majorant, top: Array
    ) -> tuple[Array, Array, tuple[SymbolPart, ...]]:  # fmt: skip
        """What units add: steady ones an interval each, loud ones a symbol each, all others together one symbol."""
        weight = expert.down.weight
        low, high = bound.products()
        steady = high - low <= top / 4
        lo, hi = product_bounds(weight[:, steady], low[steady], high[steady])
        order = np.argsort(-np.where(steady, 0.0, top))
        loud = order[:LOUD][top[order[:LOUD]] > CALM * top[order[min(LOUD, len(order) - 1)]]]
        calm = ~steady
        calm[loud] = False
        found = [self._one(weight[:, unit], float(low[unit]), float(high[unit])) for unit in loud]
        if not calm.any():
            return lo, hi, tuple(found)
        vectors, channels = weight[:, calm], np.flatnonzero(weight[:, calm].any(1))
        vectors = np.unique(vectors[channels].T, axis=0)
        for sign in (1.0, -1.0):
            one = replace(bound, negative=sign < 0)
            own = one.summed(np.abs(weight) * calm)
            share = float(one.summed(calm[None].astype(float))[0]) * (1 + 2.0**-10)
            rows = np.concatenate([np.zeros((1, len(channels))), sign * share * vectors])
            keep = np.abs(rows).max(0) <= 2 * own[channels]
            if self.centred:  # only whole vectors have a mean of zero
                keep[:] = keep.any()
            if keep.any():
                found.append(SymbolPart((self._fresh(), 0), channels[keep], rows[:, keep], rows[:, keep]))
            own[channels[keep]] = 0.0
            lo, hi = lo - own, hi + own
        return lo, hi, tuple(found)

    def _one(self, vector: Array, low: float, high: float) -> SymbolPart:
        """A vector times a number between two."""
        channels = np.flatnonzero(vector)
        rows = np.array([[low], [high]]) * vector[channels]
        return SymbolPart((self._fresh(), 0), channels, rows, rows)


def padding_gap(reader: d.TensorReader, store: Storage, places: int, mixed: Sequence[Bounds | None] = ()) -> str:
    """Why rows of padding are not shown to be finite; empty where they are.

    Args:
        reader: the tensors in the type.
        store: the type.
        places: the longest row.
        mixed: by layer, what a recurrent mixer adds to ordinary rows.
    """
    layers = reader.checkpoint.shape.layers
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            rows = PaddingRows(reader, store, places)
            for index in range(layers):
                try:
                    rows.layer(index, reader.layer(index), mixed[index] if mixed else None)
                except Undecided as reason:
                    raise Undecided(f"layer {index}: {reason}") from reason
    except Undecided as reason:
        return str(reason)
    return ""
