"""The proof that floats evaluate a network exactly, in every order of every sum.

The invariant. After every layer, each channel of a token's stream has a `Channel`: the exact value lies in [low, high]
and on a lattice, the float is finite and at most `error` away from it, for every input that the facts allow. error = 0
means that the float *is* the exact value. The proof succeeds if every output has error 0 and is read exactly.

Conditions under which each layer keeps the invariant (`lattice.py` has the two lemmas about float sums):

* every weight and bias is a normal number of the float type (or 0): a weight that is read from a channel of zeros too;
* Affine, Residual: every dot product is one sum of products, bounded in all orders at once by its sum of absolute
  terms. A block adds h + W2 relu(W1 h + b1) + b2 as one flat sum per channel. relu does not enlarge an error;
* a block that adds only a bias to a channel is one addition: near 1.5·2^(mantissa−1) units it *snaps* a float that is
  less than half a unit off onto the lattice. x − relu(x) of a float that is never negative is exactly 0;
* Attention with zero scores is a mean. For n a power of two the weights 1/n are exact and it is a sum; otherwise the
  error of n + 5 roundings is carried. Engines may multiply first or add first, so that both must stay in range. The
  own stream and the outputs of *all* heads are one flat sum: (z + a) + b and z + (a + b) round differently. Keys and
  queries must be finite even where they are multiplied by 0, and so must the streams of absent tokens;
* Pool is a flat sum over at most n tokens, and the last layer that sees more than one token;
* Embedding: every id that the facts allow has a row; the channel covers the entries of these rows;
* readout: subtracting the offset must be exact, and the number of classes a float, because engines compare with it.

Nothing else has a rule: hardmax, scores that differ, star patterns, global tokens, thresholds, Flatten end the proof.

Assumed of the engine: IEEE 754 sums, products and fused products of the float type (or a wider accumulator), rounded to
nearest, in any order; subnormals all kept or all flushed; softmax of n equal scores within three roundings of 1/n
(exactly 1/n when n is a power of two); layers one after another, so that (x + a) + b in two layers is not rewritten as
x + (a + b).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import NoReturn

from byheart.certify.any_order.lattice import (
    EMPTY,
    FORMATS,
    ZERO,
    Channel,
    FloatFormat,
    InputFacts,
    Link,
    NotShown,
    Tally,
    channel,
    common_unit,
    facts_of,
    join,
    log2,
    power_of_two_part,
)
from byheart.certify.any_order.ranges import ValueTable, linear, residual_ranges, table_for, table_ranges, weighted_sum
from byheart.certify.properties import prover
from byheart.data.dataset.dataset import Dataset
from byheart.errors import OptionError
from byheart.exact import Number, as_fraction, parts
from byheart.exact.budget import meter
from byheart.ir.attend import scores_matter
from byheart.ir.layers import Affine, Attention, Embedding, Kind, Layer, Pattern, Pool, Residual, Row
from byheart.ir.network import Decode, Network, Readout
from byheart.ir.walk import LayerWalk
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

Stream = list[Channel]
TERM = 50_000  # units of work for one term of a sum, which is added up in fractions: some 60 microseconds

ASSUMED = (
    "IEEE 754 sums, products and fused products of the type or a wider accumulator, rounded to nearest, in any order; "
    "subnormals kept everywhere or flushed everywhere; "
    "softmax of n equal scores within three roundings of 1/n, exactly 1/n when n is a power of two; "
    "no rewriting of (x + a) + b across layers; no reduced precision such as TF32"
)


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
        """Return log2 of the bound, for messages."""
        return log2(self.bound)

    def sentence(self) -> str:
        if not self.proved:
            return f"exactness in {self.dtype} is not shown: {self.reason}"
        allowed = FORMATS[self.dtype].mantissa
        return (
            f"every sum of absolute terms is at most 2^{self.bits:.2f} lattice units of 2^{allowed}"
            f" that {self.dtype} allows, attained at {self.where}; it holds for {self.reason}"
        )


@implements(
    Ref("byheart", "any-order exactness"),
    statement="if every sum of absolute terms stays below 2^mantissa lattice units, no evaluation order rounds",
    test="tests/certify/any_order/test_any_order.py",
)
def prove_any_order(
    network: Network, facts: InputFacts, dtype: str = "float64", progress: Progress = SILENT
) -> AnyOrder:
    """The proof, from the layers and the facts about inputs alone; never refutes, only fails to show."""
    if dtype not in FORMATS:
        raise OptionError(f"dtype {dtype!r} is not one of {', '.join(FORMATS)}")
    tally = Tally(FORMATS[dtype])
    try:
        if network.width_in != len(facts.coordinates):
            raise NotShown(f"the network reads {network.width_in} numbers, a token has {len(facts.coordinates)}")
        _weights_fit(network, tally.format)
        _absent_stays_finite(network, facts, tally.format)
        with progress.stage("proving exactness", total=len(network.layers)) as stage:
            walk = LatticeWalk(network, facts, tally)
            for place, layer in enumerate(network.layers):
                walk.layer(_name(network, place), layer)
                stage.advance()
        if any(c.error for stream in walk.streams for c in stream):
            raise NotShown(f"may round at {'; '.join(tally.rounded)}")
        for stream in walk.streams:
            _read_exactly(tally, network.readout, stream)
    except NotShown as reason:
        return AnyOrder(dtype, False, tally.worst, tally.worst_place, str(reason))
    return AnyOrder(dtype, True, tally.worst, tally.worst_place, _scope(facts))


@prover("exact in any order")
def prove_exact_in_any_order(network: Network, dataset: Dataset, dtype: str, progress: Progress) -> tuple[bool, str]:
    """The guarantee "exact in any order: float64" of a claim."""
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


def _weights_fit(network: Network, form: FloatFormat) -> None:
    for place, layer in enumerate(network.layers):
        for weight in layer.weights():
            if not form.holds(weight):
                bits = parts(weight)[0].bit_length()
                raise NotShown(f"layer {place} has a weight of {bits} bits that {form.name} cannot represent")


def _absent_stays_finite(network: Network, facts: InputFacts, form: FloatFormat) -> None:
    """Absent tokens reach the last attention layer, times 0; their numbers there and before must be finite."""
    mixers = [i for i, layer in enumerate(network.layers) if isinstance(layer, Attention)]
    if facts.absent is None or not mixers or isinstance(network.layers[0], Embedding):
        return  # engines look up row 0 for an absent token, which is a token like any other
    walk = LatticeWalk(network, facts.with_absent(), Tally(form))
    for place, layer in enumerate(network.layers[: mixers[-1] + 1]):
        walk.layer(f"{_name(network, place)}, with absent tokens", layer)


def _read_exactly(tally: Tally, readout: Readout, outputs: Stream) -> None:
    """Engines subtract the offset and compare with the number of classes, in floats."""
    if readout.decode is not Decode.VALUE:
        return
    for number in (readout.offset, readout.classes):
        if not tally.format.holds(number):
            raise NotShown(f"the readout compares with {number}, which {tally.format.name} does not hold")
    (value,), offset = outputs, abs(Fraction(readout.offset))
    if offset and not tally.fits(power_of_two_part(common_unit(value.unit, offset)), value.largest + offset):
        raise NotShown(f"subtracting the readout's offset {readout.offset} may round")


def _spend(terms: int) -> None:
    """A hostile file can claim long rows: the work of the proof is counted like evaluation."""
    found = meter()
    if found is not None:
        found.spend(TERM * terms)


class LatticeWalk(LayerWalk[None]):
    """The domain of lattices: one stream of channels for all positions, or one per position where they differ."""

    def __init__(self, network: Network, facts: InputFacts, tally: Tally) -> None:
        self.tally, self.facts = tally, facts
        places: list[Sequence[Channel]] = [facts.coordinates]
        causal = any(a.pattern is Pattern.CAUSAL for a in network.attention_layers)
        if causal and facts.positions:  # kept apart until attention: a causal mean depends on how many tokens it has
            _spend(facts.length)
            places = [facts.at(k) for k in range(facts.length)]
        if isinstance(network.layers[0], Embedding):  # ids are whole numbers for every engine, never floats
            self.streams: list[Stream] = [list(stream) for stream in places]
        else:
            self.streams = [[_as_float(tally, i, c) for i, c in enumerate(stream)] for stream in places]
        self.table: ValueTable | None = None
        self.mixed = False  # whether tokens have met
        self.pooled = False  # whether one token is left
        self.place = ""  # the name of the layer that is applied, for messages

    def layer(self, place: str, layer: Layer) -> None:
        """Apply a layer, and put the positions together again where they no longer differ."""
        self.place = place
        if not isinstance(layer, Residual):
            self.table = None
        if self.pooled and isinstance(layer, Attention | Pool):
            raise NotShown(f"{place}: no rule for {type(layer).__name__} after pooling")
        if not isinstance(layer, Embedding):  # which spends for the rows that it can reach
            _spend(len(self.streams) * (layer.width_out + sum(1 for _ in layer.weights())))
        self.apply(layer)
        self.mixed = self.mixed or isinstance(layer, Attention | Pool)
        if self.mixed and all(not c.error for stream in self.streams for c in stream):
            self.streams = [self._anywhere()]

    def refuse(self, layer: Layer) -> NoReturn:
        raise NotShown(f"{self.place}: no rule for {type(layer).__name__}")

    def embedding(self, layer: Embedding) -> None:
        self.streams = [_looked_up(layer, stream) for stream in self.streams]

    def _anywhere(self) -> Stream:
        """Return the channels of a token at any position."""
        return [join(list(channels)) for channels in zip(*self.streams, strict=True)]

    def affine(self, layer: Affine) -> None:
        place, bias = self.place, layer.bias or (0,) * layer.width_out
        self.streams = [
            [
                _affine(self.tally, f"{place}, output {i}", row, b, layer.relu, stream)
                for i, (row, b) in enumerate(zip(layer.weight.rows, bias, strict=True))
            ]
            for stream in self.streams
        ]

    def residual(self, layer: Residual) -> None:
        place = self.place
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

    def pool(self, layer: Pool) -> None:
        place, n, stream = self.place, self.facts.length, self._anywhere()
        least = 1 if self.facts.ragged else n
        out = []
        for k, c in enumerate(stream):
            error = self.tally.error(f"{place}, channel {k}", n * c.largest, c.unit, n * c.error, n)
            low, high = min(n * c.low, least * c.low), max(n * c.high, least * c.high)
            out.append(channel(low, high, c.unit, error))
        self.streams, self.pooled = [out], True

    def attention(self, layer: Attention) -> None:
        place = self.place
        if any(scores_matter(head) for head in layer.heads) or layer.kind is Kind.HARDMAX:
            raise NotShown(f"{place}: attention whose scores differ")
        if layer.pattern not in (Pattern.FULL, Pattern.CAUSAL):
            raise NotShown(f"{place}: attention over the {layer.pattern.value} pattern")
        n, causal = self.facts.length, layer.pattern is Pattern.CAUSAL
        if not causal:
            counts = range(1, n + 1) if self.facts.ragged else range(n, n + 1)
            _spend(len(counts) * sum(len(head.value.rows) for head in layer.heads))
            stream = self._anywhere()
            self.streams = [_attended(self.tally, place, layer, stream, stream, counts)]
            return
        apart = self.streams if len(self.streams) > 1 else self.streams * n
        each = layer.width_out + sum(1 for _ in layer.weights())  # of every position, and joined with all before it
        _spend(n * each + (n * n * layer.width_out if len(self.streams) > 1 else 0))
        self.streams = []
        for k in range(n):
            seen = apart[0] if apart[0] is apart[-1] else [join(list(c)) for c in zip(*apart[: k + 1], strict=True)]
            self.streams.append(_attended(self.tally, place, layer, apart[k], seen, [k + 1]))


def _as_float(tally: Tally, place: int, given: Channel) -> Channel:
    """Return a coordinate of the input in the float type: exact, or rounded once."""
    step = power_of_two_part(given.unit)
    if not given.largest or tally.fits(step, given.largest):
        return given
    error = tally.rounding(f"coordinate {place} of the input", given.largest, ZERO, 1)
    tally.rounds(f"coordinate {place} of the input: {tally.format.name} cannot represent its numbers")
    return channel(given.low, given.high, given.rest, error)


def _affine(tally: Tally, place: str, row: Row, bias: Number, relu: bool, stream: Stream) -> Channel:
    found = weighted_sum(tally, place, row, bias, stream)
    return found.after_relu if relu else found.value


def _looked_up(layer: Embedding, stream: Stream) -> Stream:
    """The rows of the table that a token with these coordinates can reach."""
    if any(c.low.denominator != 1 or c.unit.denominator != 1 for c in stream):
        raise NotShown("the embedding reads whole numbers, a token may have others")
    first = sum(s * int(c.low) for s, c in zip(layer.strides, stream, strict=True))
    last = sum(s * int(c.high) for s, c in zip(layer.strides, stream, strict=True))
    if first < 0 or last >= layer.vocabulary:
        raise NotShown(f"token ids go from {first} to {last}, the table has {layer.vocabulary} rows")
    ranges = [range(s * int(c.low), s * int(c.high) + 1, s) for s, c in zip(layer.strides, stream, strict=True) if s]
    _spend(math.prod(map(len, ranges)))
    ids = {sum(numbers) for numbers in product(*ranges)}
    columns: list[list[Number]] = [[] for _ in range(layer.width_out)]
    for i in ids:
        for column, weight in layer.table.rows[i]:
            columns[column].append(weight)
    return [_column(column, len(ids)) for column in columns]


def _column(weights: list[Number], rows: int) -> Channel:
    """Return the channel that covers these weights, and 0 where a row has none."""
    low, high = min(weights, default=0), max(weights, default=0)
    if len(weights) < rows:
        low, high = min(low, 0), max(high, 0)
    exponent = min((parts(w)[1] for w in weights), default=0)
    unit = Fraction(math.gcd(*(m << (e - exponent) for m, e in map(parts, weights))), 1 << -exponent)
    return channel(as_fraction(low), as_fraction(high), unit)


def _attended(tally: Tally, place: str, layer: Attention, own: Stream, seen: Stream, counts: Sequence[int]) -> Stream:
    """Return own + the heads' outputs, W_O times the mean of W_V z over `counts` tokens like `seen`: one flat sum."""
    terms: list[list[tuple[Fraction, Channel]]] = [[] for _ in own]
    for h, head in enumerate(layer.heads):
        for name, scores in (("key", head.key), ("query", head.query)):
            for row in scores.rows if scores is not None else ():
                weighted_sum(tally, f"{place}, {name} {h}", row, 0, seen)  # finite, though multiplied by 0
        values = [weighted_sum(tally, f"{place}, value {h}.{i}", row, 0, seen) for i, row in enumerate(head.value.rows)]
        means = [
            join([_mean(tally, f"{place}, mean {h}.{i}", value.value, n) for n in counts])
            for i, value in enumerate(values)
        ]
        for k, row in enumerate(head.output.rows):
            terms[k] += [(as_fraction(w), means[i]) for i, w in row]
    return [
        linear(tally, f"{place}, channel {k}", [(Fraction(1), old), *new]) if new else old
        for k, (old, new) in enumerate(zip(own, terms, strict=True))
    ]


def _mean(tally: Tally, place: str, value: Channel, n: int) -> Channel:
    """The mean of n numbers like `value`, whether an engine divides first or adds first."""
    if not value.largest and not value.error:
        return EMPTY
    unit = value.unit / n
    if n & (n - 1) == 0:
        error = tally.error(place, value.largest, unit, value.error, n)
    else:  # weights within three roundings of 1/n, n products and sums: never exact unless everything is 0
        tally.rounds(f"{place}: a mean over {n} tokens")
        error = tally.rounding(place, value.largest, value.error, n + 5)
    tally.finite(place, 2 * n * (value.largest + value.error))
    whole = Link(tally.new_name(), unit, Fraction(1))
    return channel(value.low, value.high, ZERO, error, value.never_negative, (whole,))
