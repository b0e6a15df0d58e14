"""Evaluation of a network on a batch of sequences, without rounding.

Equal tokens are evaluated once: the state is a table of distinct streams (`points`) and which of them each token has
(`index`). Layers that act on single tokens change the table; attention and pooling look at whole sequences and make a
new table of the distinct results. Rows are handled in chunks, so memory does not grow with their number.

The invariant: `points[index[row, k]]` is the exact stream of token k of that row. All streams share one denominator,
so that equal streams are equal integers, and looking them up in a dictionary finds them. A network therefore costs what
its *distinct* streams cost: ω tokens before the first attention and one stream per context after it, not N·n. The last
attention is computed only at the tokens that are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from byheart.errors import NetworkError
from byheart.exact import Number, engine
from byheart.exact.number import Integers, Values
from byheart.exact.reference import Block, Map, Step
from byheart.ir.attend import Index, gather, linear_image, scores_matter, shares
from byheart.ir.layers import (
    Affine,
    Attention,
    Embedding,
    Flatten,
    GlobalToken,
    Layer,
    Place,
    Pool,
    Residual,
    SequenceLayer,
    Threshold,
)
from byheart.ir.network import ABSENT, Decode, Inputs, Network, Read, Readout
from byheart.ir.walk import LayerWalk
from byheart.progress import SILENT, Progress

CHUNK = 1 << 17  # sequences at a time


@dataclass(frozen=True, eq=False)
class State:
    """Distinct streams and their indices (-1: absent, or not requested).

    `lengths` counts the tokens of each row; `hub` is the position of a global token among them, if there is one.
    """

    points: Values
    index: Index
    lengths: Index
    hub: Place | None = None


class ExactWalk(LayerWalk[None]):
    """The domain of exact numbers: `state` holds the streams. Layers on single tokens are collected, and run together.

    Args:
        state: The streams before the first layer.
        read: Which tokens are read.
        progress: Where to show progress.
    """

    def __init__(self, state: State, read: Read, progress: Progress = SILENT) -> None:
        self.state, self.read, self.progress = state, read, progress
        self.steps: list[Step] = []

    def run(self, layers: Sequence[Layer]) -> State:
        """Apply the layers and return the streams of the tokens that are read."""
        self.over(layers)
        self.settle("answering")
        return State(self.state.points, read_index(self.read, self.state), self.state.lengths)

    def settle(self, name: str = "reading tokens") -> None:
        """Run the collected steps."""
        if self.steps:
            self.move(engine.run(self.steps, self.state.points, self.progress, name))
            self.steps = []

    def move(self, points: Values) -> None:
        """Replace the table of streams."""
        self.state = replace(self.state, points=points)

    def embedding(self, layer: Embedding) -> None:
        self.move(_embed(layer, self.state.points))

    def affine(self, layer: Affine) -> None:
        bias = layer.bias if layer.bias is not None else (0,) * layer.width_out
        self.steps.append(Map(layer.weight.rows, bias, layer.relu))

    def residual(self, layer: Residual) -> None:
        self.steps.append(Block(layer.weight1.rows, layer.bias1, layer.weight2.rows, layer.bias2))

    def threshold(self, layer: Threshold) -> None:
        self.steps.append(Map(layer.weight.rows, layer.bias, False))
        self.settle()
        self.move(Values(np.where(self.state.points.numerators >= 0, 1, 0).astype(object)))

    def global_token(self, layer: GlobalToken) -> None:
        self.settle()
        self.state = append_token(layer, self.state)

    def pool(self, layer: Pool) -> None:
        self.settle()
        self.state = pooled(self.state)

    def flatten(self, layer: Flatten) -> None:
        self.settle()
        self.state = flattened(layer, self.state)

    def attention(self, layer: Attention) -> None:
        self.settle()
        self.state = attended(layer, self.state, self.wanted())

    def wanted(self) -> npt.NDArray[np.bool_] | None:
        """Return which tokens need the output of this layer; None for all."""
        return read_mask(self.read, self.state) if self.last else None


def outputs(network: Network, inputs: Inputs, progress: Progress = SILENT) -> State:
    """The raw outputs: distinct output vectors, and which of them each read token has.

    `index` is (N, 1) when the network is read at the last or pooled token, else (N, n).
    """
    return _joined(list(_parts(network, inputs, progress)))


def _parts(network: Network, inputs: Inputs, progress: Progress) -> Iterator[State]:
    """The outputs of some rows after the other."""
    if inputs.points.width != network.width_in:
        raise NetworkError(f"the network reads {network.width_in} numbers per token, not {inputs.points.width}")
    network = _without_idle_attention(network)
    layers = network.layers
    first = next((i for i, layer in enumerate(layers) if isinstance(layer, SequenceLayer)), len(layers))
    points = tokenwise(layers[:first], inputs.points, progress)
    for start in range(0, max(1, len(inputs.index)), CHUNK):
        index = inputs.index[start : start + CHUNK]
        state = State(points, index, (index >= 0).sum(axis=1))
        yield ExactWalk(state, network.read, progress).run(layers[first:])


def tokenwise(layers: Sequence[Layer], points: Values, progress: Progress = SILENT) -> Values:
    """Evaluate layers that act on single tokens, on a table of streams."""
    nothing = np.zeros((0, 0), dtype=np.int64)
    walk = ExactWalk(State(points, nothing, nothing.sum(axis=1)), Read.EACH, progress)
    walk.over(layers)
    walk.settle()
    return walk.state.points


def _without_idle_attention(network: Network) -> Network:
    """The network without attention that adds zero, so that tokens before any that does more are evaluated once."""
    kept = tuple(layer for layer in network.layers if not (isinstance(layer, Attention) and layer.idle))
    return network if len(kept) == len(network.layers) or not kept else replace(network, layers=kept, stages=())


def answers(network: Network, inputs: Inputs, progress: Progress = SILENT) -> Index:
    """Class indices, -1 where the output is not a class: (N,) or, when every token is read, (N, n).

    Of every chunk of rows only its classes are kept: outputs are long numbers.
    """
    found = np.concatenate(
        [
            np.append(decode(network.readout, state.points), ABSENT)[state.index]
            for state in _parts(network, inputs, progress)
        ]
    )
    return found if network.read is Read.EACH else found[:, 0]


def decode(readout: Readout, values: Values) -> Index:
    """The class index of every output vector, -1 for none."""
    if readout.decode is Decode.VALUE:
        found = [_class_of_value(x, values.denominator, readout) for x in values.numerators[:, 0]]
        return np.array(found, dtype=np.int64)
    return _largest(values.numerators)


def _class_of_value(numerator: int, denominator: int, readout: Readout) -> int:
    value, rest = divmod(numerator, denominator)
    inside = rest == 0 and readout.offset <= value < readout.offset + readout.classes
    return value - readout.offset if inside else ABSENT


def _largest(logits: Integers) -> Index:
    """Return the index of each row's largest number, -1 for a tie: column by column, for all rows at once.

    >>> _largest(np.array([[3, 1, 2], [0, 5, 5]], dtype=object)).tolist()
    [0, -1]
    """
    best = logits[:, 0]
    place = np.zeros(len(logits), dtype=np.int64)
    for column in range(1, logits.shape[1]):
        other = logits[:, column]
        more = np.asarray(other > best, dtype=bool)
        place[np.asarray(other == best, dtype=bool)] = ABSENT
        place[more] = column
        best = np.where(more, other, best)
    return place


def outside_table(network: Network, points: Values) -> list[int]:
    """Which points have no row in the embedding table that the network begins with: it has no answer for them."""
    layer = network.layers[0]
    if not isinstance(layer, Embedding) or points.width != layer.width_in:
        return []
    return [k for k, (token, rest) in enumerate(token_ids(layer, points)) if rest or not 0 <= token < layer.vocabulary]


def token_ids(layer: Embedding, points: Values) -> Iterator[tuple[int, int]]:
    """Return the id of every point, and the remainder where it is not a whole number."""
    for numbers in points.numerators:
        yield divmod(sum(a * number for a, number in zip(layer.strides, numbers, strict=True)), points.denominator)


def _embed(layer: Embedding, points: Values) -> Values:
    rows = []
    for token, rest in token_ids(layer, points):
        if rest or not 0 <= token < layer.vocabulary:
            name = token + Fraction(rest, points.denominator)
            raise NetworkError(f"token id {name} is not in [0, {layer.vocabulary})")
        row: list[Number] = [0] * layer.width_out
        for column, weight in layer.table.rows[token]:
            row[column] = weight
        rows.append(row)
    return Values.of_numbers(rows)


def read_mask(read: Read, state: State) -> npt.NDArray[np.bool_]:
    """True where a token's output is requested."""
    stop = (state.lengths - (state.hub is Place.END))[:, None]
    columns = np.arange(state.index.shape[1])[None, :]
    each = (columns < stop) & (columns >= (state.hub is Place.START))
    return np.asarray(each if read is Read.EACH else columns == stop - 1)


def read_index(read: Read, state: State) -> Index:
    if read is Read.POOLED:
        return state.index
    mask = read_mask(read, state)
    if read is Read.LAST:
        return state.index[mask][:, None]
    kept = np.where(mask, state.index, ABSENT)
    if state.hub is None:
        return kept
    return kept[:, 1:] if state.hub is Place.START else kept[:, :-1]


def append_token(layer: GlobalToken, state: State) -> State:
    hub = Values.of_numbers([layer.stream])
    points, (old, new) = _common([state.points, hub])
    index = np.full((len(state.index), state.index.shape[1] + 1), ABSENT, dtype=np.int64)
    if layer.place is Place.START:
        index[:, 1:], index[:, 0] = state.index, len(old)
    else:
        index[:, :-1] = state.index
        index[np.arange(len(index)), state.lengths] = len(old)
    return State(Values(np.concatenate([old, new]), points), index, state.lengths + 1, layer.place)


def pooled(state: State) -> State:
    columns = [gather(state.points.numerators[:, c], state.index).sum(axis=1) for c in range(state.points.width)]
    index, rows = _distinct([column.tolist() for column in columns])
    return State(Values.of(rows, state.points.denominator), index[:, None], np.ones_like(index))


def flattened(layer: Flatten, state: State) -> State:
    short = np.flatnonzero(state.lengths != layer.tokens)
    if short.size:
        row = int(short[0])
        raise NetworkError(f"the network reads {layer.tokens} tokens at once, but row {row} has {state.lengths[row]}")
    rows, where = np.unique(state.index[:, : layer.tokens], axis=0, return_inverse=True)
    numerators = state.points.numerators[rows].reshape(len(rows), layer.width_out)
    index = np.asarray(where, dtype=np.int64).reshape(-1, 1)
    return State(Values(numerators, state.points.denominator), index, np.ones(len(index), dtype=np.int64))


def attended(layer: Attention, state: State, wanted: npt.NDArray[np.bool_] | None = None) -> State:
    """z + sum over heads of sum / count, for the wanted tokens (all present ones if None)."""
    mask = state.index >= 0 if wanted is None else wanted
    own = state.index[mask]
    columns: list[list[int]] = [own.tolist()]
    pieces: list[tuple[int, int, int]] = []  # (channel, column of sums, column of counts)
    denominators = []
    for head in layer.heads:
        vectors = linear_image(head.output, linear_image(head.value, state.points))
        scores = None
        if scores_matter(head) and head.key is not None and head.query is not None:
            scores = linear_image(head.key, state.points), linear_image(head.query, state.points)
        share = shares(layer, head, vectors, scores, state.index)
        counts = len(columns) + len(share.channels)
        pieces += [(c, len(columns) + i, counts) for i, c in enumerate(share.channels)]
        columns += [sums[mask].tolist() for sums in share.sums] + [share.counts[mask].tolist()]
        denominators += [vectors.denominator] * len(share.channels)
    where, rows = _distinct(columns)
    values = _added(state.points, rows, pieces, denominators)
    index = np.full_like(state.index, ABSENT)
    index[mask] = where
    return State(values, index, state.lengths, state.hub)


def _added(points: Values, rows: list[tuple[int, ...]], pieces: list[tuple[int, int, int]], dens: list[int]) -> Values:
    """The new streams: row = (own point, sums and counts …)."""
    # Means over different numbers of tokens have different denominators: one common multiple holds all of them.
    counts = math.lcm(*{row[k] for row in rows for _, _, k in pieces}) if pieces else 1
    whole = math.lcm(points.denominator, *(den * counts for den in dens))
    numerators = points.numerators[np.array([row[0] for row in rows], dtype=np.int64)] * (whole // points.denominator)
    for (channel, s, k), den in zip(pieces, dens, strict=True):
        numerators[:, channel] += np.array([row[s] * (whole // (den * row[k])) for row in rows], dtype=object)
    # In lowest terms again: without this the numbers would grow with every layer, and equal streams would differ.
    common = math.gcd(whole, *numerators.ravel().tolist()) if whole > 1 else 1
    return Values(numerators // common if common > 1 else numerators, whole // common)


def _distinct(columns: list[list[int]]) -> tuple[Index, list[tuple[int, ...]]]:
    """Which distinct row each row is, and the distinct rows."""
    table: dict[tuple[int, ...], int] = {}
    where = [table.setdefault(row, len(table)) for row in zip(*columns, strict=True)]
    return np.array(where, dtype=np.int64), list(table)


def _common(tables: Sequence[Values]) -> tuple[int, list[Integers]]:
    """One denominator for all tables, and their numerators over it."""
    whole = math.lcm(*(t.denominator for t in tables))
    return whole, [t.numerators * (whole // t.denominator) for t in tables]


def _joined(parts: list[State]) -> State:
    if len(parts) == 1:
        return parts[0]
    whole, tables = _common([part.points for part in parts])
    starts = np.cumsum([0, *(len(table) for table in tables)])
    index = [np.where(p.index >= 0, p.index + s, ABSENT) for p, s in zip(parts, starts, strict=False)]
    lengths = np.concatenate([part.lengths for part in parts])
    return State(Values(np.concatenate(tables), whole), np.concatenate(index), lengths)
