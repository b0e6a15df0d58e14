"""The whole network as a symbolic program with slack: what the tensors compute, for every input, in one number type.

`interpret` walks through the layers once, from the embedding up, and reads no document: a head becomes copies of
earlier symbols (`attention`), an MLP a table of windows (`mlp`), the stream stays one value of `Bounds`. The result
names the earlier symbols that each layer's table looks at, and gives the stream before the final norm; `Program.logits`
evaluates it for chosen symbols.

Invariant: for every input within reach and every engine of the error model, the true stream lies in the field. A layer
for which that cannot be shown raises `Undecided`; nothing is approximated without its slack. Cost: a few tables of
symbols by channels per layer, whatever the number of queries; each query then costs one row of the head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from byheart.checkpoints.proof import decoder as d
from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import (
    POSITION,
    SMALLEST_SQUARE,
    START,
    TOKEN,
    Bounds,
    Key,
    SymbolPart,
    either,
    lookback,
    magnitude,
    scaled,
    squares,
    stored_norm,
)
from byheart.checkpoints.proof.branches import added_by_branch, multiplied, read_by_branch, scaled_head
from byheart.checkpoints.proof.caps import capped
from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.copying import Copy, Reach
from byheart.checkpoints.proof.mlp import KnownWindows, apply, join
from byheart.checkpoints.proof.recurrent import mixed
from byheart.checkpoints.proof.storage import Array, Interval, Storage, finite, in_float32

HARDLY = 2.0**-7  # of the widest part of a channel: the effect of a part that is folded there


@dataclass(frozen=True)
class CheckpointProgram:
    """A checkpoint, understood: tables by signal, heads, and the last stream."""

    shape: Shape
    store: Storage
    reach: Reach
    tables: dict[int, KnownWindows]
    copies: tuple[tuple[Copy, ...], ...]
    stream: Bounds
    final_norm: d.Norm
    head: d.Linear
    stored: bool  # the last normed stream is stored in the type; else it is kept in float32
    mixed: tuple[Bounds | None, ...] = ()  # by layer, what a recurrent mixer adds

    @property
    def least_gap(self) -> float:
        return min((copy.gap for layer in self.copies for copy in layer), default=float("inf"))

    def lookback(self) -> dict[int, int]:
        """How far back each signal's symbol at a position depends on tokens."""
        back = {TOKEN: 0, POSITION: 0, START: 0}
        for signal in sorted(self.tables):
            back[signal] = max(
                (lookback(offset) + back[source] for source, offset in self.tables[signal].keys), default=0
            )
        return back

    def symbols(self, signal: int) -> int:
        """How many symbols a signal has."""
        return self.shape.vocabulary if signal == TOKEN else int(self.tables[signal].symbols.max(initial=0)) + 1

    @property
    def span(self) -> int:
        """A prompt that ends in this many known tokens is decided by them, whatever precedes them."""
        back = self.lookback()
        return 1 + max((lookback(part.key[1]) + back[part.key[0]] for part in self.parts), default=0)

    @property
    def parts(self) -> tuple[SymbolPart, ...]:
        """The parts of the stream on which logits depend."""
        return self._read()[0].parts

    def _read(self) -> tuple[Bounds, Bounds]:
        """The stream with parts that no logit reads folded away: (that, the stream)."""
        # A query has no position.
        stream = self.stream.without((START, POSITION))
        weight = self.final_norm.weight
        moved = np.abs(self.head.weight).max(0) * np.abs(weight)
        spread = np.zeros(self.stream.size)
        for part in stream.parts:
            spread[part.channels] = np.maximum(spread[part.channels], part.spread() * moved[part.channels])
        limit = 2.0**-8 * float(spread.max(initial=0.0))
        tolerance = np.divide(limit, moved, out=np.full_like(moved, np.inf), where=moved > 0)
        for part in stream.parts:  # the output of the last table must be certain: small weights hold small shares
            if part.key == (max(self.tables), 0):
                tolerance[part.channels[moved[part.channels] > 0]] = 0.0
        return stream.fold(tolerance), self.stream

    def logits(self, symbols: dict[Key, Array]) -> Logits:
        """Logits for given symbols of the parts that are read, one row per query."""
        count = len(next(iter(symbols.values())))
        read, stream = self._read()
        lo, hi = np.tile(read.lo, (count, 1)), np.tile(read.hi, (count, 1))
        for part in read.parts:
            rows = symbols[part.key]
            lo[:, part.channels] += part.lo[rows]
            hi[:, part.channels] += part.hi[rows]
        several = np.flatnonzero(stream.owners() > 1)
        low, high = self.store.maybe(lo[:, several], hi[:, several])
        lo[:, several], hi[:, several] = low, high
        shown = stream.owners() > 1
        for part in read.parts:
            shown[part.channels] = True
        rest = stream.rows(np.flatnonzero(~shown))
        least, most = _energies(lo[:, shown], hi[:, shown], rest)
        centre = _means(lo[:, shown], hi[:, shown], rest) if self.final_norm.centred else None
        return self._head(lo, hi, least, most, centre, *self._common(symbols, count))

    def _common(self, symbols: dict[Key, Array], count: int) -> tuple[Array, Array]:
        """The direction in which all channels of a query err together, and by how much; in float32 only, since a
        store in a narrower type moves every channel by itself."""
        direction, radius = np.zeros((count, self.stream.size)), np.zeros(count)
        key = (max(self.tables), 0)
        common = self.tables[key[0]].common
        if common is not None and key in symbols and self.store.name == "float32":
            direction[:, common.channels] = common.direction[symbols[key]]
            radius = common.radius[symbols[key]]
        return direction, radius

    def _head(
        self, lo: Array, hi: Array, least: Array, most: Array, centre: Interval | None, direction: Array, common: Array
    ) -> Logits:
        n, norm, weight = self.stream.size, self.final_norm, self.head.weight
        middle = None
        if centre is not None:  # sum (x - mean)^2 = sum x^2 - n mean^2
            middle = magnitude(*centre)
            smallest = np.where(centre[0] * centre[1] > 0, np.minimum(np.abs(centre[0]), np.abs(centre[1])), 0.0)
            least, most = rounding.widened(least - n * middle**2, most - n * smallest**2)
            if not self.stored:  # the mean is one number, which `Logits` subtracts: here only the rounding
                slack = rounding.centred_error(magnitude(lo, hi) + middle[:, None])
                lo, hi = lo - slack, hi + slack
            else:
                lo, hi = in_float32(lo - centre[1][:, None], hi - centre[0][:, None])
        finite("the squares inside the last norm", most)
        if not (least / n + norm.eps > SMALLEST_SQUARE).all():
            raise Undecided("the last norm may divide by zero")
        low, high = rounding.inverse_root(least, most, n, norm.eps, middle)
        unit = magnitude(lo, hi) * high[:, None]
        shifted = unit * np.abs(norm.weight) + (0.0 if norm.bias is None else np.abs(norm.bias))
        finite("the last normed stream", np.maximum(unit, shifted), self.store.largest)
        finite("a sum of the head", shifted @ np.abs(weight).T)
        factor, shift = (low, high), np.zeros(len(weight))
        mean, slope = (np.zeros(len(lo)), np.zeros(len(lo))), np.zeros(n)
        if not self.stored:  # all channels share the factor; each is rounded a few times
            lo, hi = scaled(lo, hi, norm.weight, norm.weight)
            direction = direction * norm.weight
            size = magnitude(lo, hi) * high[:, None] + (0.0 if norm.bias is None else np.abs(norm.bias))
            shift = shift if norm.bias is None else weight @ norm.bias
            if centre is not None:
                mean, slope = centre, norm.weight
        else:
            lo, hi = stored_norm(*scaled(lo, hi, low[:, None], high[:, None]), norm.weight, norm.bias, self.store)
            size = magnitude(lo, hi)
            factor = np.ones(len(lo)), np.ones(len(lo))
        radius = np.maximum((hi - lo) / 2 - common[:, None] * np.abs(direction), 0.0)
        radius = radius + rounding.own(magnitude(lo, hi))
        found = Logits(self, (lo + hi) / 2, radius, direction, common, factor, shift, mean, slope, np.zeros(1))
        total, absolute = size @ np.abs(weight).T, magnitude(*found._form(weight, shift))
        kept = not self.stored
        error = rounding.logit_sum((weight != 0).sum(1), total, absolute, n, kept)
        if self.head.adapter is not None:
            error = error + self.head.adapter.error(size)[0]
        return replace(found, error=error)


@dataclass(frozen=True)
class Logits:
    """Logits of some queries: factor * weight (middle + e direction - mean slope +- radius) + shift, with one e up to
    `common`, one mean and one factor per query. Differences are better known than the logits, since all of these are
    shared."""

    program: CheckpointProgram
    middle: Array  # (Q, hidden)
    radius: Array  # (Q, hidden)
    direction: Array  # (Q, hidden)
    common: Array  # (Q,)
    factor: Interval  # (Q,)
    shift: Array  # (vocabulary,)
    mean: Interval  # (Q,) that LayerNorm subtracts
    slope: Array  # (hidden,)
    error: Array  # (Q, vocabulary) of the sums

    def rows(self, index: Array) -> Logits:
        factor, mean = ((x[0][index], x[1][index]) for x in (self.factor, self.mean))
        middle, radius, direction, common = (x[index] for x in (self.middle, self.radius, self.direction, self.common))
        return Logits(
            self.program, middle, radius, direction, common, factor, self.shift, mean, self.slope, self.error[index]
        )

    def _form(self, weight: Array, shift: Array) -> Interval:
        """Bounds of factor * weight x + shift."""
        centre = self.middle @ weight.T
        spread = self.radius @ np.abs(weight).T + self.common[:, None] * np.abs(self.direction @ weight.T)
        tilt = weight @ self.slope
        ends = np.outer(self.mean[0], tilt), np.outer(self.mean[1], tilt)
        low, high = centre - spread - np.maximum(*ends), centre + spread - np.minimum(*ends)
        lo, hi = scaled(low, high, self.factor[0][:, None], self.factor[1][:, None])
        return lo + shift, hi + shift

    def bounds(self) -> Interval:
        lo, hi = self._form(self.program.head.weight, self.shift)
        largest = self.program.store.largest / max(1.0, self.program.shape.logit_scale)
        finite("a logit", magnitude(lo, hi) + self.error, largest)
        stored = self.program.store.maybe(lo - self.error, hi + self.error)
        cap = self.program.shape.logit_cap
        return stored if cap is None else capped(stored, cap, self.program.store)

    def best(self) -> Array:
        return (self.middle @ self.program.head.weight.T + self.shift).argmax(1)

    def margin(self, token: int) -> Array:
        """By how much a token is ahead of each token, at least (Q, vocabulary); infinite for itself."""
        weight, store = self.program.head.weight, self.program.store
        lo, hi = self.bounds()
        size = magnitude(lo, hi)
        if self.program.shape.logit_cap is not None:  # what two logits share is lost in the cap
            gap = lo[:, [token]] - hi
            gap[:, token] = np.inf
            return np.asarray(gap)
        gap = self._form(weight[token] - weight, self.shift[token] - self.shift)[0]
        gap = gap - self.error - self.error[:, [token]]
        gap = gap - rounding.logit_store(size, size[:, [token]], store)
        gap = np.maximum(gap, lo[:, [token]] - hi)
        gap[:, token] = np.inf
        return np.asarray(gap)


def _energies(lo: Array, hi: Array, rest: Bounds) -> Interval:
    """Sum of squares per query: of the channels shown here, and of all others over all inputs."""
    other = rest.energy() if rest.size else (0.0, 0.0)
    low, high = squares(lo, hi)
    return rounding.widened(low.sum(1) + other[0], high.sum(1) + other[1])


def _means(lo: Array, hi: Array, rest: Bounds) -> Interval:
    """The mean per query, as float32 computes it."""
    n = lo.shape[1] + rest.size
    other = rest.mean() if rest.size else (0.0, 0.0)
    error = rounding.mean_error(n, magnitude(lo, hi).sum(1) + rest.largest().sum())
    return (lo.sum(1) + other[0] * rest.size - error) / n, (hi.sum(1) + other[1] * rest.size + error) / n


def interpret(
    checkpoint: d.StoredCheckpoint, store: Storage, reach: Reach, weights: str = "type", *, stored: bool
) -> CheckpointProgram:
    """The program of a checkpoint in one type, in engines that store normed streams or in those that do not;
    `Undecided` names the layer where it is not understood.
    """
    reader, shape = checkpoint.reader(store, weights), checkpoint.shape
    if reach.length > shape.positions:
        raise Undecided(f"a reach of {reach.length} is beyond the {shape.positions} positions of config.json")
    stream = _embedded(reader, store, reach)
    tables: dict[int, KnownWindows] = {}
    copies, mixers = [], []
    for index in range(shape.layers):
        try:
            layer = reader.layer(index)
            normed = read_by_branch(stream, layer.attention_norm, store, stored)
            attended, found = mixed(normed, layer, shape.at(index), reach, store)
            mixers.append(None if layer.mixer is None else attended)
            attended = added_by_branch(attended, layer.after_attention, shape.residual_scale, store, stored)
            if shape.parallel:
                if layer.after_mlp is not None or shape.residual_scale != 1:
                    raise Undecided("branches side by side with a norm after them or a multiplier")
                other = read_by_branch(stream, layer.mlp_norm, store, stored)
                moved, table = apply(other, layer.mlp, shape, reach.once, store, index + 1)
                stream, moved, table = _joined(stream, moved, table, tables, index + 1)
                stream = _three(stream, attended, moved, store)
            else:
                stream = _light(_light(stream.add(attended)).store(store))
                normed = read_by_branch(stream, layer.mlp_norm, store, stored)
                moved, table = apply(normed, layer.mlp, shape, reach.once, store, index + 1)
                moved = added_by_branch(moved, layer.after_mlp, shape.residual_scale, store, stored)
                stream, moved, table = _joined(stream, moved, table, tables, index + 1)
                stream = _light(stream.add(moved)).store(store)  # what was erased is folded before it is rounded
            stream = _light(stream)
        except Undecided as reason:
            raise type(reason)(f"layer {index}: {reason}") from reason
        tables[index + 1] = table
        copies.append(tuple(found))
    head = scaled_head(reader.head(), shape.logit_scale)
    stored = stored and store.name != "float32"
    return CheckpointProgram(shape, store, reach, tables, tuple(copies), stream, reader.final_norm(), head, stored,
                             tuple(mixers))  # fmt: skip


def _embedded(reader: d.TensorReader, store: Storage, reach: Reach) -> Bounds:
    shape = reader.checkpoint.shape
    tokens, positions = reader.embedding()
    if shape.root_scaled:
        lo, hi = _times_root(tokens, shape.hidden, store)
    else:
        lo, hi = tokens, tokens
    every = np.arange(shape.hidden)
    parts = [SymbolPart((TOKEN, 0), every, lo, hi)]
    if positions is not None:
        table = positions[: reach.length]
        parts.append(SymbolPart((POSITION, 0), every, table, table))
    zero = np.zeros(shape.hidden)
    embedded = multiplied(Bounds(zero, zero, tuple(parts)), shape.embedding_scale, store)
    return _light(embedded).store(store)


def _times_root(tokens: Array, hidden: int, store: Storage) -> Interval:
    """Gemma's embeddings times the root of the hidden size: in float32 and then stored or not, or both factors and the
    product in the type."""
    root = np.full(1, np.sqrt(hidden))
    kept = store.maybe(*scaled(tokens, tokens, *in_float32(root, root)))
    stored = store.rounded(*scaled(tokens, tokens, *store.rounded(root, root)))
    return np.minimum(kept[0], stored[0]), np.maximum(kept[1], stored[1])


def _light(field: Bounds) -> Bounds:
    """Channels on which a part is the same for all symbols leave the part; so do channels on which it differs hardly,
    compared with another part: with one owner, stores and norms are exact for each value."""
    widest, count = np.zeros(field.size), field.owners()
    for part in field.parts:
        widest[part.channels] = np.maximum(widest[part.channels], part.spread())
    return field.fold(np.where(count > 1, HARDLY * widest, 0.0))


def _joined(
    stream: Bounds, moved: Bounds, table: KnownWindows, tables: dict[int, KnownWindows], signal: int
) -> tuple[Bounds, Bounds, KnownWindows]:
    """When a table writes where an earlier one wrote, and at most one of the two fires, they become one signal."""
    own = next((p for p in moved.parts if p.key == (signal, 0)), None)
    for old in stream.parts:
        if own is None or old.key[0] not in tables or old.key[1] or not np.intersect1d(old.channels, own.channels).size:
            continue
        both = join(tables[old.key[0]], table)
        if both is None:
            continue
        first, second = len(old.lo), len(own.lo)
        rows = np.r_[np.arange(first), np.zeros(second - 1, dtype=int)]
        earlier = SymbolPart((signal, 0), old.channels, old.lo[rows], old.hi[rows])
        rows = np.r_[np.zeros(first, dtype=int), np.arange(1, second)]
        later = SymbolPart((signal, 0), own.channels, own.lo[rows], own.hi[rows])
        stream = Bounds(stream.lo, stream.hi, tuple(earlier if p is old else p for p in stream.parts))
        moved = Bounds(moved.lo, moved.hi, tuple(later if p is own else p for p in moved.parts))
        return stream, moved, both
    return stream, moved, table


def _three(stream: Bounds, attended: Bounds, moved: Bounds, store: Storage) -> Bounds:
    """Parallel residual: three terms in any order, each sum of two stored or not."""
    orders = ((stream, attended, moved), (stream, moved, attended), (attended, moved, stream))
    return either(*(_light(_light(a.add(b)).store(store).add(c)).store(store) for a, b, c in orders))
