"""The proof that floats evaluate a network exactly, in every order of every sum.

Ranges and lattices are propagated through every dot product, in integers and fractions. A sum whose absolute terms
stay below 2^mantissa lattice units never rounds, whatever the order, the library or the number of threads. Where the
mean over n tokens rounds (1/n is no float), the error is bounded and must be snapped away before it does harm.

Assumed of the backend: IEEE sums, products and fused products in any order; softmax of n equal scores within three
roundings of 1/n (exactly 1/n when n is a power of two); no rewriting of (x + a) + b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from byheart.certify.any_order.block_ranges import residual_ranges, weighted_sum
from byheart.certify.any_order.input_facts import InputFacts, facts_of
from byheart.certify.any_order.lattice import (
    EMPTY,
    FORMATS,
    ZERO,
    Channel,
    Link,
    Tally,
    channel,
    common_unit,
    join,
    linear_lattice,
    log2,
)
from byheart.certify.any_order.table_ranges import Table, table_for, table_ranges
from byheart.certify.properties import prover
from byheart.data.dataset.dataset import Dataset
from byheart.errors import OptionError
from byheart.exact import Number, as_fraction, parts
from byheart.ir.attend import scores_matter
from byheart.ir.layers import Affine, Attention, Embedding, Head, Kind, Layer, Pattern, Pool, Residual
from byheart.ir.matrix import Row
from byheart.ir.network import Network
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

Stream = list[Channel]


@dataclass(frozen=True)
class AnyOrder:
    """Whether a network is exact in every order of evaluation, for every input that the facts allow.

    `bound` is the largest sum of absolute terms over its lattice, to be compared with 2^mantissa; `where` attains it.
    """

    dtype: str
    proved: bool
    bound: Fraction
    where: str
    reason: str

    @property
    def bits(self) -> float:
        """log2 of the bound, for people."""
        return log2(self.bound)

    def sentence(self) -> str:
        if not self.proved:
            return f"exactness in {self.dtype} is not shown: {self.reason}"
        allowed = FORMATS[self.dtype].mantissa
        return (
            f"every sum of absolute terms is at most 2^{self.bits:.2f} lattice units of 2^{allowed}"
            f" that {self.dtype} allows, attained at {self.where}; it holds for {self.reason}"
        )


class _Unsupported(Exception):
    """A layer for which this proof has no rule."""


@implements(
    Ref("byheart", "any-order exactness"),
    statement="if every sum of absolute terms stays below 2^mantissa lattice units, no evaluation order rounds",
    test="tests/certify/any_order/test_proof.py",
)
def prove_any_order(
    network: Network, facts: InputFacts, dtype: str = "float64", progress: Progress = SILENT
) -> AnyOrder:
    """The proof, from the layers and the facts about inputs alone; never refutes, only fails to show."""
    if dtype not in FORMATS:
        raise OptionError(f"dtype {dtype!r} is not one of {', '.join(FORMATS)}")
    tally = Tally(FORMATS[dtype])
    try:
        with progress.stage("proving exactness", total=len(network.layers)) as stage:
            walk = _Walk(tally, facts, any(a.pattern is Pattern.CAUSAL for a in network.attention_layers))
            for place, layer in enumerate(network.layers):
                walk.layer(_name(network, place), layer)
                stage.advance()
    except _Unsupported as reason:
        return AnyOrder(dtype, False, tally.worst, tally.worst_place, str(reason))
    left = max(c.error for stream in walk.streams for c in stream)
    if left:
        return AnyOrder(dtype, False, tally.worst, tally.worst_place, f"may round at {'; '.join(tally.rounded)}")
    return AnyOrder(dtype, True, tally.worst, tally.worst_place, _scope(facts))


@prover("exact in any order")
def prove_exact_in_any_order(network: Network, dataset: Dataset, dtype: str, progress: Progress) -> tuple[bool, str]:
    """The promise "exact in any order: float64" of a claim."""
    found = prove_any_order(network, facts_of(dataset.encoder, dataset.inputs), dtype, progress)
    return found.proved, found.sentence()


def _scope(facts: InputFacts) -> str:
    rows = f"every row of {'at most ' if facts.ragged else ''}{facts.length} tokens"
    return f"{rows} with numbers in the range and on the lattice of the inputs"


def _name(network: Network, place: int) -> str:
    first = 0
    for name, count in network.stages:
        if place < first + count:
            return f"layer {place} ({name} {place - first})"
        first += count
    return f"layer {place} ({type(network.layers[place]).__name__.lower()})"


class _Walk:
    """The state between layers: one stream for all places of a row, or one per place where they differ."""

    def __init__(self, tally: Tally, facts: InputFacts, causal: bool) -> None:
        self.tally, self.facts = tally, facts
        self.streams: list[Stream] = [list(facts.coordinates)]
        if causal and facts.positions:  # kept apart until attention: a causal mean depends on how many tokens it has
            self.streams = [list(facts.at(k)) for k in range(facts.length)]
        self.table: Table | None = None
        self.mixed = False  # whether tokens have met

    def layer(self, place: str, layer: Layer) -> None:
        if not isinstance(layer, Residual):
            self.table = None
        match layer:
            case Embedding():
                self.streams = [_looked_up(layer, stream) for stream in self.streams]
            case Affine():
                self._tokenwise(place, layer)
            case Residual():
                self._residual(place, layer)
            case Attention():
                self._attention(place, layer)
            case Pool():
                self._pool(place)
            case _:
                raise _Unsupported(f"{place}: no rule for {type(layer).__name__}")
        self.mixed = self.mixed or isinstance(layer, Attention | Pool)
        if self.mixed and all(not c.error for stream in self.streams for c in stream):
            self.streams = [self._anywhere()]

    def _anywhere(self) -> Stream:
        """What a token at any place can hold."""
        return [join(list(channels)) for channels in zip(*self.streams, strict=True)]

    def _tokenwise(self, place: str, layer: Affine) -> None:
        bias = layer.bias or (0,) * layer.width_out
        self.streams = [
            [
                _affine(self.tally, f"{place}, output {i}", row, b, layer.relu, stream)
                for i, (row, b) in enumerate(zip(layer.weight.rows, bias, strict=True))
            ]
            for stream in self.streams
        ]

    def _residual(self, place: str, layer: Residual) -> None:
        if len(self.streams) == 1:
            table = table_for(layer, self.streams[0], self.table)
            found = table and table_ranges(self.tally, place, layer, self.streams[0], table)
            if found:
                self.streams[0], self.table = found
                return
        written = {k for k, row in enumerate(layer.weight2.rows) if row or layer.bias2[k]}
        if self.table is not None and written & self.table.columns.keys():
            self.table = None
        self.streams = [residual_ranges(self.tally, place, layer, stream) for stream in self.streams]

    def _pool(self, place: str) -> None:
        n, stream = self.facts.length, self._anywhere()
        least = 1 if self.facts.ragged else n
        out = []
        for k, c in enumerate(stream):
            error = self.tally.error(f"{place}, channel {k}", n * c.largest, c.unit, n * c.error, n)
            low, high = min(n * c.low, least * c.low), max(n * c.high, least * c.high)
            out.append(channel(low, high, c.unit, error))
        self.streams = [out]

    def _attention(self, place: str, layer: Attention) -> None:
        if any(scores_matter(head) for head in layer.heads) or layer.kind is Kind.HARDMAX:
            raise _Unsupported(f"{place}: attention whose scores differ")
        if layer.pattern not in (Pattern.FULL, Pattern.CAUSAL):
            raise _Unsupported(f"{place}: attention over the {layer.pattern.value} pattern")
        n, causal = self.facts.length, layer.pattern is Pattern.CAUSAL
        if not causal:
            counts = list(range(1, n + 1)) if self.facts.ragged else [n]
            stream = self._anywhere()
            self.streams = [_plus(self.tally, place, stream, _means(self.tally, place, layer.heads, stream, counts))]
            return
        apart = self.streams if len(self.streams) > 1 else self.streams * n
        self.streams = []
        for k in range(n):
            seen = apart[0] if apart[0] is apart[-1] else [join(list(c)) for c in zip(*apart[: k + 1], strict=True)]
            means = _means(self.tally, place, layer.heads, seen, [k + 1])
            self.streams.append(_plus(self.tally, place, apart[k], means))


def _plus(tally: Tally, place: str, stream: Stream, added: Stream) -> Stream:
    return [
        _sum_of(tally, f"{place}, channel {c}", [old, new])
        for c, (old, new) in enumerate(zip(stream, added, strict=True))
    ]


def _affine(tally: Tally, place: str, row: Row, bias: Number, relu: bool, stream: Stream) -> Channel:
    found = weighted_sum(tally, place, row, bias, stream)
    return found.after_relu if relu else found.value


def _looked_up(layer: Embedding, stream: Stream) -> Stream:
    """The rows of the table that a token with these coordinates can reach."""
    ranges = [range(int(c.low), int(c.high) + 1) for c in stream]
    if len(ranges) != len(layer.strides):
        raise _Unsupported(f"the embedding takes {len(layer.strides)} numbers, a token has {len(ranges)}")
    ids = {sum(s * x for s, x in zip(layer.strides, numbers, strict=True)) for numbers in product(*ranges)}
    rows = [layer.table.rows[i] for i in ids if 0 <= i < layer.vocabulary]
    columns: list[list[Number]] = [[] for _ in range(layer.width_out)]
    for row in rows:
        for column, weight in row:
            columns[column].append(weight)
    return [_column(column, len(rows)) for column in columns]


def _column(weights: list[Number], rows: int) -> Channel:
    """The channel that holds any of these weights, or 0 where a row has none."""
    low, high = min(weights, default=0), max(weights, default=0)
    if len(weights) < rows:
        low, high = min(low, 0), max(high, 0)
    exponent = min((parts(w)[1] for w in weights), default=0)
    unit = Fraction(math.gcd(*(m << (e - exponent) for m, e in map(parts, weights))), 1 << -exponent)
    return channel(as_fraction(low), as_fraction(high), unit)


def _means(tally: Tally, place: str, heads: Sequence[Head], stream: Stream, counts: list[int]) -> Stream:
    """What the heads add to every channel: W_O times the mean of W_V z over `counts` tokens."""
    added: Stream = [EMPTY] * len(stream)
    for h, head in enumerate(heads):
        values = [
            weighted_sum(tally, f"{place}, value {h}.{i}", row, 0, stream).value
            for i, row in enumerate(head.value.rows)
        ]
        means = [
            join([_mean(tally, f"{place}, mean {h}.{i}", value, n) for n in counts]) for i, value in enumerate(values)
        ]
        out = [
            weighted_sum(tally, f"{place}, output {h}.{k}", row, 0, means).value
            for k, row in enumerate(head.output.rows)
        ]
        added = [_sum_of(tally, f"{place}, heads", [a, b]) if h else b for a, b in zip(added, out, strict=True)]
    return added


def _mean(tally: Tally, place: str, value: Channel, n: int) -> Channel:
    unit = value.unit / n
    if n & (n - 1) == 0:
        error = tally.error(place, value.largest, unit, value.error, n)
    else:  # weights within three roundings of 1/n, n products and sums: never exact unless everything is 0
        tally.rounds(f"{place}: a mean over {n} tokens")
        rounding = Fraction(n + 5, (1 << tally.format.mantissa) - n - 5)
        error = value.error + (value.largest + value.error) * rounding
    whole = Link(tally.new_name(), unit, Fraction(1))
    return channel(value.low, value.high, ZERO, error, value.never_negative, (whole,))


def _sum_of(tally: Tally, place: str, channels: list[Channel]) -> Channel:
    present = [c for c in channels if c.largest or c.error]
    if len(present) < 2:
        return present[0] if present else EMPTY
    unit = common_unit(*(c.unit for c in present))
    total, carried = sum((c.largest for c in present), ZERO), sum((c.error for c in present), ZERO)
    error = tally.error(place, total, unit, carried, len(present))
    low, high = sum((c.low for c in present), ZERO), sum((c.high for c in present), ZERO)
    rest, links = linear_lattice([(Fraction(1), c) for c in present], ZERO)
    return channel(low, high, rest, error, all(c.never_negative for c in present), links)
