"""The token and sequence part of a native memory: the id of every context, and the layers that compute it.

A sequence is brought together by attention with zero scores, the snap, and the gated prefix sum.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from byheart.build.native.hashing import Ints
from byheart.build.native.layout import FloatType, Layout, Unit, dense_parameters, residual
from byheart.build.native.scramble import (
    Box,
    Scramble,
    boxes_of,
    centring,
    draw_scramble,
    fold_count,
    scramble_layers,
    scramble_scale,
    scrambled,
)
from byheart.build.native.tokens import Mixing, Sizing
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.encoder import Encoder
from byheart.exact import Number, dyadic
from byheart.ir.layers import Attention, Embedding, Head, Kind, Layer, Matrix, Pattern, Pool, Residual
from byheart.paper import Ref, implements
from byheart.theory.guarantees.native import own_weight, rounds


def mean_attention(
    width: int, pattern: Pattern, reads: Sequence[int], writes: Sequence[int], weight: Number
) -> Attention:
    """Softmax attention with W_K = W_Q = 0: channel writes[i] += weight · mean of channel reads[i]."""
    size = len(reads)
    value = Matrix.of([{channel: weight} for channel in reads], width)
    places = {channel: i for i, channel in enumerate(writes)}
    output = Matrix.of([{places[c]: 1} if c in places else {} for c in range(width)], size)
    nothing = Matrix.zero(1, width)
    return Attention(Kind.SOFTMAX, pattern, (Head(value, output, nothing, nothing),))


def attention_parameters(width: int, chains: int) -> int:
    """Entries of W_V, W_O (one row or column per chain) and W_K, W_Q (one row each)."""
    return 2 * width * chains + 2 * width


@implements(
    Ref("byheart", "snap"),
    statement="adding and subtracting 1.5·2^(mantissa-1) units rounds a float to its lattice and is 0 in exact numbers",
    test="tests/certify/any_order/test_any_order.py",
)
def snap_blocks(width: int, kind: FloatType, channels: Sequence[int], scale: int) -> list[Residual]:
    """Two blocks of nothing but a bias: floats near a multiple of 2^scale become that multiple."""
    much = dyadic(3, kind.mantissa - 2 + scale)
    return [residual(width, [], {channel: sign * much for channel in channels}) for sign in (1, -1)]


@implements(
    Ref("byheart", "prefix sum"),
    statement="k times the mean of k tokens is their sum: k's bits, known from the position, gate shifted copies of it",
    test="tests/build/native/test_native.py",
)
def prefix_sum_blocks(
    width: int, length: int, counter: int, means: Sequence[int], sums: Sequence[int], bound: int
) -> list[Residual]:
    """sums[i] += p·means[i] for the whole number p <= length in channel `counter`; both are cleared afterwards.

    With p < 2^(i+1): relu(a + B(p − 2^i)) − B·relu(p − 2^i) is a where p >= 2^i and 0 elsewhere (0 <= a < B = `bound`),
    and p −= 2^i·(relu(p − 2^i + 1) − relu(p − 2^i)) strips the bit.
    """
    blocks = []
    for i in range(length.bit_length() - 1, -1, -1):
        bit = 1 << i
        units = [
            Unit({mean: 1, counter: bound}, -bound * bit, {total: bit}) for mean, total in zip(means, sums, strict=True)
        ]
        above: dict[int, Number] = {total: -bit * bound for total in sums}
        units.append(Unit({counter: 1}, -bit, {**above, counter: bit}))
        units.append(Unit({counter: 1}, 1 - bit, {counter: -bit}))
        if i == 0:
            units += [Unit({mean: 1}, 0, {mean: -1}) for mean in means]
        blocks.append(residual(width, units))
    return blocks


CHUNK = 1 << 16  # rows at a time
# Symbols may go through the scrambler too, by their codes: it needs no entry for each of them. Small tables stay
# tables, which are quick to evaluate; a table beyond the largest size would be larger than the data.
FEW_TABLE_ROWS, MOST_TABLE_ROWS = 1 << 12, 1 << 21

Stages = list[tuple[str, Sequence[Layer]]]


class TokenMap(Protocol):
    """Random numbers for tokens: `numbers` (P, L) per point of the data; `layers` compute them into L channels."""

    @property
    def numbers(self) -> Ints: ...

    def layers(self, width: int, unit: int, counter: int | None) -> Stages:
        """Channel l = number·unit; channel `counter` = 1 + the token's position, if requested."""
        ...


@dataclass(frozen=True, eq=False)
class SymbolTable:
    """A random number for every (symbol, position), or for every symbol."""

    table: Ints  # (rows, L)
    rows: Ints  # (P,) the table row of every point
    stride: int  # symbols + 1
    positions: bool

    @property
    def numbers(self) -> Ints:
        return np.asarray(self.table[self.rows])

    def layers(self, width: int, unit: int, counter: int | None) -> Stages:
        packed = []
        for row, numbers in enumerate(self.table.tolist()):
            cells = [(chain, number * unit) for chain, number in enumerate(numbers) if number]
            if counter is not None:
                cells.append((counter, 1 + row // self.stride))
            packed.append(tuple(cells))
        strides = (1, self.stride) if self.positions else (1,)
        return [("embedding", [Embedding(Matrix(tuple(packed), width), strides)])]


@dataclass(frozen=True, eq=False)
class VectorMap:
    """A random linear map and folds, one per chain."""

    scrambles: tuple[Scramble, ...]
    numbers: Ints
    position: int | None  # the coordinate that is the position

    def layers(self, width: int, unit: int, counter: int | None) -> Stages:
        entry, blocks = scramble_layers(width, self.scrambles, unit)
        if counter is not None and self.position is not None:
            rows = [dict(row) for row in entry.weight.rows]
            rows[counter] = {self.position: 1}
            bias = list(entry.bias or (0,) * width)
            bias[counter] = 1
            entry = type(entry)(Matrix.of(rows, entry.weight.columns), tuple(bias))
        return [("input map", [*centring(self.scrambles[0].boxes), entry]), ("token scrambler", blocks)]


def token_parameters(
    encoder: Encoder, boxes: tuple[Box, ...] | None, kind: FloatType, size: Sizing, layout: Layout
) -> int:
    """Dense parameters of the token map that will be sampled: an embedding table, or a map of vectors with folds."""
    if boxes is None:
        return _table_shape(encoder)[1] * layout.width
    scale = scramble_scale(kind.mantissa, size.table_bits)
    folds = fold_count(size.table_bits, scale)
    hidden = [layout.chains * (1 if (fold + 1) % scale else 2) for fold in range(folds)]
    centre = len(boxes) if any(box.far for box in boxes) else 0
    return centre + layout.width * (len(boxes) + 1) + sum(dense_parameters(layout.width, h) for h in hidden)


def draw_tokens(
    dataset: Dataset,
    boxes: tuple[Box, ...] | None,
    kind: FloatType,
    size: Sizing,
    chains: int,
    rng: random.Random,
) -> TokenMap:
    """Fresh random numbers for the tokens of this data set (and for every other possible token)."""
    encoder = dataset.encoder
    if boxes is not None:
        drawn = tuple(draw_scramble(rng, boxes, size.table_bits, kind.mantissa) for _ in range(chains))
        numbers = np.stack([scrambled(s, dataset.inputs.points) for s in drawn], axis=1)
        return VectorMap(drawn, numbers, encoder.dimension if encoder.positions else None)
    source = np.random.default_rng(rng.getrandbits(64))
    stride, height = _table_shape(encoder)
    table = source.integers(0, 1 << size.table_bits, (height, chains), dtype=np.int64)
    points = dataset.inputs.points.numerators
    rows = np.array([int(p[0]) + (stride * int(p[1]) if encoder.positions else 0) for p in points], dtype=np.int64)
    return SymbolTable(table, rows, stride, encoder.positions)


def token_maps(dataset: Dataset, objective: str) -> list[tuple[Box, ...] | None]:
    """Return the possible ways to number tokens: None for a table of symbols, else where the coordinates
    of vectors, or of codes and positions, lie."""
    encoder = dataset.encoder
    rows = _table_shape(encoder)[1] if encoder.symbols is not None else MOST_TABLE_ROWS + 1
    found: list[tuple[Box, ...] | None] = [] if rows > MOST_TABLE_ROWS else [None]
    if not found or (rows > FEW_TABLE_ROWS and objective == "size"):
        found.append(boxes_of(dataset.inputs.points, _extremes(encoder)))
    return found


def _table_shape(encoder: Encoder) -> tuple[int, int]:
    """(symbols and the padding, rows of a table with one for each of them, or for each at each position)."""
    stride = len(encoder.symbols or ()) + 1
    return stride, stride * (encoder.length if encoder.positions else 1)


def _extremes(encoder: Encoder) -> list[list[Number]]:
    """Tokens that can be queried although the data has none: padding, every symbol, at every position."""
    ends: list[list[Number]] = [] if encoder.pad_vector is None else [[*encoder.pad_vector]]
    if encoder.symbols is not None:
        ends = [[0], [len(encoder.symbols)]]
    places: tuple[tuple[int, ...], ...] = ((0,), (encoder.length - 1,)) if encoder.positions else ((),)
    return [[*end, *place] for end in ends for place in places]


def context_ids(dataset: Dataset, mixing: Mixing, size: Sizing, numbers: Ints) -> Ints:
    """Return the id of every context, (K, L): the result of `front_stages`' layers, in machine integers."""
    contexts, index = dataset.contexts, dataset.inputs.index
    ids = np.empty((len(contexts), numbers.shape[1]), dtype=np.int64)
    padded = np.concatenate([numbers * size.step, np.zeros((1, numbers.shape[1]), dtype=np.int64)])  # absent: last row
    beta = own_weight(mixing, dataset.encoder.positions)
    for start in range(0, len(contexts), CHUNK):
        part = slice(start, start + CHUNK)
        rows, places = index[contexts.row[part]], contexts.position[part]
        if mixing in (Mixing.PREFIX_SUM, Mixing.PREFIX_MEAN):
            rows = np.where(np.arange(rows.shape[1]) <= places[:, None], rows, -1)
        total = np.stack([padded[rows, chain].sum(axis=1) for chain in range(numbers.shape[1])], axis=1)
        if mixing is Mixing.POOL:
            ids[part] = total
            continue
        own = padded[index[contexts.row[part], places]]
        if mixing is Mixing.PREFIX_MEAN:
            ids[part] = own + total // (2 * (places + 1))[:, None]
        else:
            ids[part] = own + beta * total
    return ids


def front_stages(
    dataset: Dataset, kind: FloatType, mixing: Mixing, size: Sizing, layout: Layout, tokens: TokenMap
) -> Stages:
    """Layers from inputs to the stream (x_l·2^s, 0, …) at every token that is read."""
    width, length, unit = layout.width, dataset.encoder.length, 1 << size.scale
    chains = list(range(layout.chains))
    if mixing is Mixing.POOL:
        return [*tokens.layers(width, unit, None), ("pooling", [Pool(width)])]
    snap = snap_blocks(width, kind, chains, size.scale) if rounds(mixing, length) else []
    if mixing is Mixing.FULL:
        weight = length * own_weight(mixing, dataset.encoder.positions)
        mean = mean_attention(width, Pattern.FULL, chains, chains, weight)
        return [*tokens.layers(width, unit, None), ("attention", [mean]), *_named("snap", snap)]
    if mixing is Mixing.PREFIX_MEAN:
        mean = mean_attention(width, Pattern.CAUSAL, chains, chains, dyadic(1, -1))
        return [*tokens.layers(width, unit * size.step, None), ("attention", [mean]), *_named("snap", snap)]
    counter = layout.bucket_channel
    means = [layout.word_channel(0, 0) + chain for chain in chains]
    mean = mean_attention(width, Pattern.CAUSAL, chains, means, 1)
    gates = prefix_sum_blocks(width, length, counter, means, chains, unit << size.table_bits)
    return [*tokens.layers(width, unit, counter), ("attention", [mean]), ("prefix sum", gates), *_named("snap", snap)]


def _named(name: str, layers: Sequence[Layer]) -> Stages:
    return [(name, layers)] if layers else []
