"""Evaluation of a network in float64 or float32: many rows at a time, as an inference engine would.

Floats round, so an answer found here alone proves nothing. Where the checker has shown that no order of evaluation
rounds (`certify/any_order`), float evaluation *is* exact evaluation, and a hundred times as fast as long integers. To
be one of the engines that the proof speaks of, this one computes layer after layer, every sum in the one float type,
and a mean as a sum divided by its count.

The stream of a batch is an array (width, rows). Blocks become a flat program of sums, which a compiled kernel runs on
128 rows at a time, so that all of its registers stay in the nearest cache. Where all units of blocks in a row read one
channel, and that channel holds small whole numbers (such as a bucket number), the blocks are evaluated once per number.

>>> from byheart.ir.layers import Affine
>>> from byheart.ir.layers import Matrix
>>> from byheart.ir.network import Decode, Readout
>>> double = Network((Affine(Matrix.of([{0: 2}], 1)),), Read.LAST, Readout(Decode.VALUE, 10))
>>> answers_in_floats(double, Inputs(Values.of([[1], [4], [6]]), np.array([[0], [1], [2]]))).tolist()
[2, 8, -1]
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from byheart.errors import NetworkError
from byheart.exact import Number
from byheart.exact.number import Values
from byheart.ir.attend import Index, scores_matter
from byheart.ir.evaluate import token_ids
from byheart.ir.float_kernel import kernel
from byheart.ir.layers import (
    Affine,
    Attention,
    Embedding,
    Kind,
    Layer,
    Matrix,
    Pattern,
    Pool,
    Residual,
    Row,
)
from byheart.ir.network import ABSENT, Decode, Inputs, Network, Read, Readout
from byheart.ir.walk import LayerWalk
from byheart.progress import SILENT, Progress

LANES = 128  # rows that the kernel carries through all layers together
CHUNK = 1 << 15  # rows per thread at a time
WIDE = 32  # units from which blocks that read one channel are evaluated per value of it
MOST_VALUES, WORTH = 1 << 16, 4  # of a table, and per row that uses it
Floats = npt.NDArray[Any]
Stage = Callable[[Floats], Floats]  # changes (width, rows) in place, or returns a new array


class FloatWalk(LayerWalk[None]):
    """The domain of floats: layers before the one that looks at sequences, that one, and the layers after it.

    Stages are compiled from `front` and `after` once the float type is known (`_stages`).
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.table: Embedding | None = None
        self.front: list[Layer] = []
        self.mixer: Attention | Pool | None = None
        self.after: list[Layer] = []
        self.over(layers)

    def embedding(self, layer: Embedding) -> None:
        self.table = layer

    def affine(self, layer: Affine) -> None:
        (self.front if self.mixer is None else self.after).append(layer)

    def residual(self, layer: Residual) -> None:
        (self.front if self.mixer is None else self.after).append(layer)

    def pool(self, layer: Pool) -> None:
        self._mix(layer)

    def attention(self, layer: Attention) -> None:
        if not _is_mean(layer):
            self.refuse(layer)
        self._mix(layer)

    def _mix(self, layer: Attention | Pool) -> None:
        if self.mixer is not None:
            self.refuse(layer)
        self.mixer = layer

    def refuse(self, layer: Layer) -> NoReturn:
        raise NetworkError("float evaluation has no rule for a layer of this network; evaluate it exactly")


def evaluates(network: Network) -> bool:
    """Whether this engine has a rule for every layer: one mean or sum over the tokens at most, the rest token by token.

    >>> from byheart.ir.network import Decode, Readout
    >>> evaluates(Network((Pool(1),), Read.POOLED, Readout(Decode.VALUE, 2)))
    True
    """
    try:
        FloatWalk(network.layers)
    except NetworkError:
        return False
    return True


def _is_mean(layer: Attention) -> bool:
    return (
        layer.kind is not Kind.HARDMAX
        and layer.pattern in (Pattern.FULL, Pattern.CAUSAL)
        and not any(scores_matter(head) for head in layer.heads)
    )


def answers_in_floats(network: Network, inputs: Inputs, dtype: str = "float64", progress: Progress = SILENT) -> Index:
    """Class indices as `ir.evaluate.answers` gives them, computed in floats; -1 where the output is not a class."""
    kind, plan = np.dtype(dtype), FloatWalk(network.layers)
    tokens = _points(plan.table, inputs.points, kind)
    for stage in _stages(plan.front, kind):
        tokens = stage(tokens)
    after = _stages(plan.after, kind)
    found = np.full((len(inputs.index), inputs.index.shape[1] if network.read is Read.EACH else 1), ABSENT)

    def part(start: int) -> None:
        stream, place = _mixed(plan.mixer, network.read, tokens, inputs.index[start : start + CHUNK])
        for stage in after:
            stream = stage(stream)
        found[start : start + CHUNK][place] = _classes(network.readout, stream)

    starts = range(0, len(inputs.index), CHUNK)
    workers = min(os.cpu_count() or 1, max(1, len(starts)))
    with progress.stage("answering", total=len(starts)) as work, ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(part, starts):
            work.advance()
    return found if network.read is Read.EACH else found[:, 0]


def _points(layer: Embedding | None, points: Values, kind: np.dtype[Any]) -> Floats:
    """The distinct tokens as floats: rows of the embedding table, or the numbers themselves, each rounded once."""
    if layer is None:
        numbers = [[_float(Fraction(x, points.denominator)) for x in row] for row in points.numerators.tolist()]
        return np.array(numbers, dtype=kind).reshape(points.count, points.width).T.copy()
    table = np.zeros((layer.width_out, points.count), dtype=kind)
    for k, (token, rest) in enumerate(token_ids(layer, points)):
        if rest or not 0 <= token < layer.vocabulary:
            raise NetworkError(f"token id {token} is not in [0, {layer.vocabulary})")
        for column, weight in layer.table.rows[token]:
            table[column, k] = _float(weight)
    return table


def _float(number: Number | Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        raise NetworkError("a number of the network is larger than any float64") from None


def _mixed(mixer: Attention | Pool | None, read: Read, tokens: Floats, index: Index) -> tuple[Floats, Any]:
    """The streams (width, tokens that are read) after the mean or sum, and where their answers belong."""
    present = index >= 0
    lengths = present.sum(axis=1)
    if isinstance(mixer, Pool):
        return _seen(tokens, index).sum(axis=2), (slice(None), 0)
    columns = np.arange(index.shape[1])[None, :]
    mask = present if read is Read.EACH else columns == lengths[:, None] - 1
    place = mask if read is Read.EACH else (np.flatnonzero(lengths), 0)  # an empty row has no last token
    stream = tokens[:, index[mask]]
    for head in mixer.heads if mixer is not None else ():
        values = _seen(_product(head.value, tokens), index)
        if mixer is not None and mixer.pattern is Pattern.CAUSAL:
            total = np.cumsum(values, axis=2, dtype=values.dtype)
            means = total[:, mask] / (np.broadcast_to(columns, mask.shape)[mask] + 1).astype(values.dtype)
        else:
            total = values.sum(axis=2) / np.maximum(lengths, 1).astype(values.dtype)
            means = total[:, np.nonzero(mask)[0]]
        for channel, row in enumerate(head.output.rows):
            for column, weight in row:
                stream[channel] += values.dtype.type(_float(weight)) * means[column]
    return stream, place


def _seen(tokens: Floats, index: Index) -> Floats:
    """Return (width, rows, n), 0 at absent positions."""
    wider = np.concatenate([tokens, np.zeros((len(tokens), 1), dtype=tokens.dtype)], axis=1)
    return np.asarray(wider[:, index])  # ABSENT is -1: the zeros


def _product(matrix: Matrix, tokens: Floats) -> Floats:
    out = np.zeros((len(matrix.rows), tokens.shape[1]), dtype=tokens.dtype)
    for i, row in enumerate(matrix.rows):
        for j, weight in row:
            out[i] += tokens.dtype.type(_float(weight)) * tokens[j]
    return out


def _classes(readout: Readout, outputs: Floats) -> Index:
    if readout.decode is Decode.VALUE:
        value = outputs[0] - outputs.dtype.type(_float(readout.offset))
        inside = (value >= 0) & (value < readout.classes) & (np.floor(value) == value)
        return np.where(inside, np.where(inside, value, 0).astype(np.int64), ABSENT)
    best = outputs.max(axis=0)
    alone = (outputs == best).sum(axis=0) == 1
    return np.where(alone, outputs.argmax(axis=0), ABSENT)


def _stages(layers: Sequence[Layer], kind: np.dtype[Any]) -> list[Stage]:
    """Run of blocks as one program each; runs of blocks that read one channel alone by a table of its values."""
    stages: list[Stage] = []
    for channel, run in groupby(layers, _one_channel):
        blocks = list(run)
        program = _Program(blocks[0].width_in)
        program.over(blocks)
        directly = program.stage(kind)
        wide = channel is not None and sum(layer.hidden for layer in blocks if isinstance(layer, Residual)) >= WIDE
        stages.append(_Lookup.of(blocks, channel, directly) if wide else directly)
    return stages


def _one_channel(layer: Layer) -> int | None:
    """The one channel that all units of a block read."""
    if not isinstance(layer, Residual):
        return None
    columns = {column for row in layer.weight1.rows for column, _ in row}
    return columns.pop() if len(columns) == 1 else None


@dataclass(eq=False)
class _Lookup:
    """Blocks in a row that read one channel and nothing else, such as a selector with a unit for each of its numbers.

    Their effect on a row depends on that channel's number alone, as long as the other channels that they change hold
    zeros before. So every number is evaluated once, block after block as a row would be, and rows take its values: the
    same sums, done once for equal rows. Where the numbers are not small and whole, or something prevents it,
    every row is evaluated separately.
    """

    channel: int
    changed: tuple[int, ...]  # channels that the blocks add to
    directly: Stage
    table: Floats | None = None
    lock: Any = field(default_factory=threading.Lock)

    @staticmethod
    def of(blocks: Sequence[Layer], channel: int | None, directly: Stage) -> Stage:
        changed = {
            k
            for layer in blocks
            if isinstance(layer, Residual)
            for k, row in enumerate(layer.weight2.rows)
            if row or layer.bias2[k]
        }
        return _Lookup(channel or 0, tuple(sorted(changed)), directly)

    def __call__(self, stream: Floats) -> Floats:
        read = stream[self.channel]
        most = min(MOST_VALUES, WORTH * read.size)
        whole = read.size and read.min() >= 0 and read.max() < most and np.array_equal(np.floor(read), read)
        if not whole or any(stream[k].any() for k in self.changed if k != self.channel):
            return self.directly(stream)
        which = read.astype(np.int64)
        table = self._values(int(which.max()) + 1, stream)
        for k in self.changed:
            stream[k] = table[k][which]
        return stream

    def _values(self, count: int, stream: Floats) -> Floats:
        """Apply the blocks to the numbers below `count`, and zeros; cached for the next rows."""
        with self.lock:
            if self.table is None or self.table.shape[1] < count:
                count = 1 << (count - 1).bit_length()
                numbers = np.zeros((len(stream), count), dtype=stream.dtype)
                numbers[self.channel] = np.arange(count)
                self.table = self.directly(numbers)
            return self.table


@dataclass
class _Program(LayerWalk[None]):
    """Blocks and maps as sums over registers: the first `width` hold the stream, the others hidden units."""

    width: int
    registers: int = 0
    target: list[int] = field(default_factory=list)
    adds: list[bool] = field(default_factory=list)  # onto the register's value
    relu: list[bool] = field(default_factory=list)
    bias: list[float] = field(default_factory=list)
    terms: list[int] = field(default_factory=lambda: [0])
    source: list[int] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.width_in = self.registers = self.width

    def emit(self, target: int, row: Row, shift: int, bias: Number, *, relu: bool = False, adds: bool = False) -> None:
        self.registers = max(self.registers, target + 1)
        self.target.append(target)
        self.adds.append(adds)
        self.relu.append(relu)
        self.bias.append(_float(bias))
        self.source += [column + shift for column, _ in row]
        self.weight += [_float(weight) for _, weight in row]
        self.terms.append(len(self.source))

    def residual(self, layer: Residual) -> None:
        first = self.width
        for unit, (row, bias) in enumerate(zip(layer.weight1.rows, layer.bias1, strict=True)):
            self.emit(first + unit, row, 0, bias, relu=True)
        for channel, (row, bias) in enumerate(zip(layer.weight2.rows, layer.bias2, strict=True)):
            if row or bias:
                self.emit(channel, row, first, bias, adds=True)

    def affine(self, layer: Affine) -> None:
        biases = layer.bias if layer.bias is not None else (0,) * layer.width_out
        first = max(self.width, layer.width_out)
        for unit, (row, bias) in enumerate(zip(layer.weight.rows, biases, strict=True)):
            self.emit(first + unit, row, 0, bias, relu=layer.relu)
        for channel in range(layer.width_out):
            self.emit(channel, ((channel, 1),), first, 0)
        self.width = layer.width_out

    def stage(self, kind: np.dtype[Any]) -> Stage:
        if not self.target:
            return lambda stream: stream
        program = (
            np.array(self.target),
            np.array(self.adds),
            np.array(self.relu),
            np.array(self.bias, dtype=kind),
            np.array(self.terms),
            np.array(self.source, dtype=np.int64),
            np.array(self.weight, dtype=kind),
        )
        registers, width = self.registers, self.width

        def stage(stream: Floats) -> Floats:
            out = np.empty((width, stream.shape[1]), dtype=kind)
            run = kernel()
            run(stream, out, np.zeros((registers, LANES), dtype=kind), *program)
            return out

        return stage
