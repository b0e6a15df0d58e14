"""The attention of one layer without key-value groups, with biases: GPT-2, OPT, GPT-NeoX.

GPT-2 and OPT have learned positions. Their table holds (cos, sin, -cos, -sin) of theta_f t, which queries rotate: a
head's score is the same trigonometric polynomial of the distance as with rotary positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts import listening
from byheart.checkpoints.hosts.description import Design, fill_idle
from byheart.checkpoints.hosts.layout import METER, ChannelLayout, Fetch, LayerStage, neighbours
from byheart.checkpoints.hosts.looking_back import CONSTANT_GAIN, HeadJob, Heads, favour, share
from byheart.checkpoints.hosts.rotary import STORED, STORED_POSITIONS, Wave, amplitude, frequencies, look_back
from byheart.checkpoints.windows.tables import WindowTable
from byheart.errors import ExportError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
SPARE = 5  # dimensions of a value that carry no bits: half of a constant, BOS, the verdict, a constant, one idle


@dataclass(frozen=True)
class PlainDemands:
    """What an architecture asks: its probe, learned or rotary positions, and whether MLP and attention are parallel."""

    probe: tuple[float, float]
    absolute: bool
    rotary: int = 32  # dimensions of a head that turn with the position
    parallel: bool = False


@dataclass(frozen=True, eq=False)
class WeightAndBias:
    weight: Floats
    bias: Floats


@dataclass(frozen=True, eq=False)
class PlainAttention:
    norm: WeightAndBias
    query: WeightAndBias
    key: WeightAndBias
    value: WeightAndBias
    output: WeightAndBias


def plain_jobs(fetches: Sequence[Fetch], heads: Heads) -> list[HeadJob]:
    """Which head copies what; each has keys and values of its own."""
    free = [h for h in range(heads.count) if h != heads.spare and h not in heads.listeners]
    if not fetches:
        return []
    jobs = share(free, [(k, np.arange(len(fetch.bits))) for k, fetch in enumerate(fetches)])
    if max(len(job.part) for job in jobs) + SPARE > heads.dimension:
        raise ExportError(f"{len(fetches)} distances need more than {heads.count} heads; raise --heads")
    return jobs


def plain_listeners(fetches: Sequence[Fetch], kind: Heads) -> tuple[int, ...]:
    """The heads that need not copy, the scale probe first."""
    chosen: tuple[int, ...] = ()
    for head in reversed([h for h in range(kind.count) if h != kind.spare]):
        try:
            plain_jobs(fetches, replace(kind, listeners=(*chosen, head)))
        except ExportError:
            continue
        chosen = (*chosen, head)
    return chosen if kind.spare is None else (kind.spare, *chosen)


class PlainLookingBack:
    """Writes one attention layer; every head has its own keys and values."""

    def __init__(self, layout: ChannelLayout, stage: LayerStage, table: WindowTable, heads: Heads, design: Design,
                 gain: float, demands: PlainDemands, heard: Mapping[int, int]) -> None:  # fmt: skip
        self.layout, self.heads, self.design, self.gain, self.demands = layout, heads, design, gain, demands
        self.source, self.fetches = layout.source(stage), layout.fetches(stage, table)
        if not len(self.source):  # nothing to copy: a layer that only listens
            self.source = layout.state[stage.table]
        self.jobs, self.heard = plain_jobs(self.fetches, heads), heard
        size = heads.count * heads.dimension
        self.weight = {name: np.zeros((size, layout.hidden)) for name in ("query", "key", "value")}
        self.bias = {name: np.zeros(size) for name in ("query", "key", "value")}
        self.output, self.output_bias = np.zeros((layout.hidden, size)), np.zeros(layout.hidden)
        self.norm, self.norm_bias = np.ones(layout.hidden), np.zeros(layout.hidden)
        self.norm[layout.constant[0]] = self.norm[layout.width] = CONSTANT_GAIN
        self.norm[layout.extra] = CONSTANT_GAIN
        self.norm[self.source] = self.norm[layout.first] = self.norm[layout.constant[-1]] = gain
        # Three eighths of a bit: with a whole one some values would be 0, to which rounding does not snap; just below a
        # half, where the numbers of a type are closer together, it snaps from half as far only.
        self.norm_bias[self.source] = 3 * gain / 8 * layout.signs[self.source]
        self.norm_bias[layout.extra] = np.where(np.arange(len(layout.extra)) % 4 < 2, 0.25, -0.25)
        self.ones = layout.signs[layout.constant[0]] / (CONSTANT_GAIN * len(layout.constant[0]))
        self.first = layout.signs[layout.first] / (gain * len(layout.first))

    def write(self, erased: tuple[Index, Floats] | None) -> PlainAttention:
        for job in self.jobs:
            self._write_job(job, erased)
        if self.heads.spare is not None:
            self._write_probe()
        for head, channel in self.heard.items():
            self._listen(head, channel)
        column = int(self.layout.constant[0][0])
        parts = {n: WeightAndBias(fill_idle(self.weight[n], column), self.bias[n]) for n in ("query", "key", "value")}
        output = WeightAndBias(fill_idle(self.output, self.heads.dimension - 1), self.output_bias)
        return PlainAttention(WeightAndBias(self.norm, self.norm_bias), **parts, output=output)

    def _write_job(self, job: HeadJob, erased: tuple[Index, Floats] | None) -> None:
        layout, size, start = self.layout, self.design.kappa / self.gain, job.head * self.heads.dimension
        fetch = self.fetches[job.fetch]
        wave = self._wave(fetch)
        self._scores(start, wave, amplitude(wave.gap, self.design.gap))
        bits, slot = fetch.bits[job.part], fetch.target[job.part]
        count, source = len(bits), self.source[bits]
        rows = start + np.arange(count)
        self.weight["value"][rows, source] = 1.0
        self.bias["value"][rows] = -self.norm_bias[source]
        self.bias["value"][start + count], self.bias["value"][start + count + 3] = self.gain / 2, self.gain
        self.weight["value"][start + count + 1, layout.first] = self.gain * self.first
        # A slot held its signs: one half of them goes by the head's constant, the other by the output's bias.
        self.output[slot, rows] = size
        self.output[slot, start + count] = -size * layout.signs[slot]
        self.output_bias[slot] = -self.design.kappa / 2 * layout.signs[slot]
        if erased is not None and fetch.offset == 0:
            self._erase(bits, start, rows, *erased)

    def _erase(self, bits: Index, start: int, rows: Index, block: Index, rest: Floats) -> None:
        layout, size, verdict = self.layout, self.design.kappa / self.gain, self.layout.constant[-1]
        count = len(bits)
        self.output[block[bits], rows] = -size
        self.output[block[bits], start + count + 3] = size * rest[bits]
        if 0 in bits:
            self.weight["value"][start + count + 2, verdict] = layout.signs[verdict] / len(verdict)
            self.output[verdict, start + count + 3] = -size * layout.signs[verdict]
            self.output[verdict, start + count + 2] = -size * layout.signs[verdict]
            self.output[layout.mark, start + count + 3] = size * layout.signs[layout.mark]
            self.output[layout.mark, start + count + 2] = size * layout.signs[layout.mark]

    def _wave(self, fetch: Fetch) -> Wave:
        design, stored = self.design, STORED_POSITIONS if self.demands.absolute else STORED
        return look_back(
            self.demands.rotary, design.theta, fetch.offset, design.reach, far=fetch.far, nats=design.gap, stored=stored
        )

    def _scores(self, start: int, wave: Wave, nats: float) -> None:
        """Queries and keys of one head, from positions in the stream or for an engine that rotates them."""
        pairs, layout = self.demands.rotary // 2, self.layout
        key = np.sqrt(wave.sizes / wave.sizes.max())
        size = nats * math.sqrt(self.heads.dimension)
        a, b = (np.divide(size * w, key, out=np.zeros(pairs), where=key > 0) for w in (wave.cosine, wave.sine))
        even, odd = start + np.arange(pairs), start + pairs + np.arange(pairs)
        if not self.demands.absolute:  # every other frequency is a bias, the rest is read from the constants
            for name, rows, values in (("query", even, a), ("query", odd, -b), ("key", even, key)):
                self.bias[name][rows[::2]] = values[::2]
                self.weight[name][np.ix_(rows[1::2], layout.constant[0])] = np.outer(values[1::2], self.ones)
            return
        cos, sin, minus_cos, minus_sin = (layout.extra[i::4] for i in range(4))
        read = 1 / (math.sqrt(8.0) * CONSTANT_GAIN)  # a channel and its opposite hold +-sqrt(2) cos
        entries = (
            ("query", even, cos, minus_cos, a), ("query", even, sin, minus_sin, b),
            ("query", odd, sin, minus_sin, a), ("query", odd, minus_cos, cos, b),
            ("key", even, cos, minus_cos, key), ("key", odd, sin, minus_sin, key),
        )  # fmt: skip
        for name, rows, plus, minus, values in entries:
            self.weight[name][rows, plus] += read * values
            self.weight[name][rows, minus] -= read * values
        # The norm adds a constant to the positions, which the biases of queries and keys take away again.
        for name in ("query", "key"):
            rows = np.concatenate([even, odd])
            self.bias[name][rows] = -self.weight[name][rows] @ self.norm_bias

    def _listen(self, head: int, channel: int) -> None:
        """A head that averages over everything and writes to one channel; the scale probe has scores of its own, and
        its first value is used. The output's bias moves the channel, too."""
        start, size = head * self.heads.dimension, listening.LOUDNESS * self.design.kappa
        if head != self.heads.spare:
            every = frequencies(self.demands.rotary, self.design.theta)
            self._scores(start, listening.wave(every, every > 0, self.design.window, head), 1.0)
        bits = listening.spread(head, len(self.source))
        rows, source = start + 1 + np.arange(len(bits)), self.source[bits]
        self.weight["value"][rows, source] = 1.0
        self.bias["value"][rows] = -self.norm_bias[source]
        self.output[channel, rows] = size / (self.gain * len(bits))
        self.output_bias[channel] = size / 2 * self.layout.signs[channel]  # at rest two of them cancel

    def _write_probe(self) -> None:
        """The scale probe, at a dimension that does not turn."""
        layout, d, size = self.layout, self.heads.dimension, self.design.kappa / self.gain
        start, still = (self.heads.spare or 0) * d, self.demands.rotary
        self.weight["key"][start + still, layout.first] = self.first / 2
        scale = math.log(favour(self.fetches[neighbours(self.fetches)[0]].offset)) * math.sqrt(d)
        self.weight["query"][start + still, layout.constant[0]] = scale * self.ones
        self.weight["value"][start, layout.first] = self.gain * self.first
        side = np.where(np.arange(len(layout.meter)) < len(layout.meter) // 2, 1.0, -1.0)
        self.output[layout.meter, start] = METER * size / 2 * side * layout.signs[layout.meter]
        self.output_bias[layout.meter] = METER * self.design.kappa / 2 * side * layout.signs[layout.meter]
        for flag, place in zip(np.split(layout.flags, 2), neighbours(self.fetches), strict=True):
            job = next(job for job in self.jobs if job.fetch == place)
            where = job.head * d + len(job.part)
            self.output[flag, where + 1] = size * layout.signs[flag]
            self.output_bias[flag] = self.design.kappa * layout.signs[flag]
