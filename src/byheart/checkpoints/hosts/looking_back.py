"""The attention of one layer: heads that copy the code words of earlier places into slots.

Queries and keys are read from `constant[0]`, which is the same everywhere, so a head's score depends on the distance
alone (rotary.py) and softmax is one-hot. A key-value head carries the bits of the state in its own order, and a
constant; the output matrix adds kappa (bit - sign) to a slot that held kappa times its sign.

All heads work: where there are more heads than places, several share a place and each copies a part of the bits.
One head may measure instead of copy: the scale probe gives BOS the score ln S and everything else 0, so the weight of
BOS, S/(S + t) at position t, shows by how much scores are multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts import listening
from byheart.checkpoints.hosts.capped import capped_wave
from byheart.checkpoints.hosts.description import AttentionWeights, Design, anchored, fill_idle
from byheart.checkpoints.hosts.layout import METER, ChannelLayout, Fetch, LayerStage, neighbours
from byheart.checkpoints.hosts.rotary import STORED, Wave, amplitude, frequencies, look_back
from byheart.checkpoints.hosts.sensors import LOUDEST, QUIET, SENSE, PositionWave, bos_key, sensing_frequencies
from byheart.checkpoints.windows.tables import WindowTable
from byheart.errors import ExportError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
CONSTANT_GAIN = 0.5  # the norm's weight of the constant channels: without it scores change fourfold
SPARE = 4  # dimensions of a value that carry no bits: the constant, BOS, the verdict, one idle
_LEFT_OUT = (3, 1, 2)  # key-value head g does without the frequencies of this number modulo 4


@dataclass(frozen=True, eq=False)
class HeadJob:
    """One head's work: a part of a fetch (by its number in the layer), namely these of its bits."""

    head: int
    fetch: int
    part: Index  # positions in the fetch's bits


@dataclass(frozen=True)
class Heads:
    """How many heads there are, how many key-value heads serve them, and which do not copy: the one that measures the
    scale, and those that listen."""

    count: int
    groups: int
    dimension: int
    spare: int | None = None
    listeners: tuple[int, ...] = ()

    @property
    def per_group(self) -> int:
        return self.count // self.groups

    def jobs(self, fetches: Sequence[Fetch], bits: int) -> list[HeadJob]:
        """Which head copies what: neighbouring places are served by different key-value heads.

        Where a key-value head cannot carry all bits of the source, each carries its share of them.
        """
        free = [h for h in range(self.count) if h != self.spare and h not in self.listeners]
        if bits + SPARE <= self.dimension:
            order = sorted(free, key=lambda h: (h % self.per_group, h // self.per_group))
            return share(order, [(k, np.arange(len(fetch.bits))) for k, fetch in enumerate(fetches)])
        if -(-bits // self.groups) + SPARE > self.dimension:
            raise ExportError(
                f"code words of {bits} bits need more or larger key-value heads than {self.groups} of dimension "
                f"{self.dimension}"
            )
        found = []
        for group in range(self.groups):
            mine = self._carried(fetches, bits, group)
            parts = [(k, np.flatnonzero(np.isin(fetch.bits, mine))) for k, fetch in enumerate(fetches)]
            heads = [h for h in free if h // self.per_group == group]
            found += share(heads, [(k, part) for k, part in parts if len(part)])
        return found

    def _carried(self, fetches: Sequence[Fetch], bits: int, group: int) -> Index:
        """The bits of the source that key-value head `group` carries: its share of what is fetched by one distance
        where that is everything; otherwise whole slots, in the order of the distances that fetch them."""
        if any(len(fetch.bits) == bits for fetch in fetches):
            return np.array_split(np.arange(bits), self.groups)[group]
        order = list(dict.fromkeys(int(bit) for fetch in fetches for bit in fetch.bits))
        size = min(len(fetch.bits) for fetch in fetches)
        slots = -(-len(order) // size)
        ends = [min(-(-slots * (g + 1) // self.groups) * size, len(order)) for g in range(-1, self.groups)]
        mine = np.array(order[ends[group] : ends[group + 1]], dtype=np.int64)
        if len(mine) + SPARE > self.dimension:
            raise ExportError(f"{len(mine)} bits do not fit into a key-value head of dimension {self.dimension}")
        return mine


def share(heads: Sequence[int], work: Sequence[tuple[int, Index]]) -> list[HeadJob]:
    """Every head works: where there are more heads than fetches, several copy a part of the bits each."""
    if len(heads) < len(work):
        raise ExportError(f"{len(work)} places need {len(work)} heads, but only {len(heads)} are free; raise --heads")
    found = []
    for number, (fetch, bits) in enumerate(work):
        those = [h for k, h in enumerate(heads) if k % len(work) == number]
        parts = np.array_split(bits, len(those))
        found += [HeadJob(head, fetch, part) for head, part in zip(those, parts, strict=True)]
    return found


def listening_heads(kind: Heads, fetches: Sequence[Fetch], bits: int, depth: int) -> tuple[int, ...]:
    """The heads of a layer that need not copy, in the order in which they are written; the scale probe comes first."""
    order = list(range(kind.count))
    if depth % 2 == 0:
        lasts = [(group + 1) * kind.per_group - 1 for group in range(kind.groups)]
        order = [head for head in lasts if head != kind.spare]  # the scale probe's own key-value head comes last
        order += [head - 1 for head in lasts if head == kind.spare and kind.per_group > 1]
    chosen: tuple[int, ...] = ()
    for head in order:
        if head != kind.spare and _works(replace(kind, listeners=(*chosen, head)), fetches, bits):
            chosen = (*chosen, head)
    return tuple(sorted(chosen)) if kind.spare is None else (kind.spare, *sorted(chosen))


def _works(kind: Heads, fetches: Sequence[Fetch], bits: int) -> bool:
    """Whether the other heads can do all the copying, and every key-value head still copies something."""
    try:
        jobs = kind.jobs(fetches, bits)
    except ExportError:
        return False
    return len({job.head // kind.per_group for job in jobs}) == kind.groups


def least_heads(fits: Callable[[int], object], step: int) -> int:
    """The least multiple of `step` with which `fits` raises no ExportError."""
    for heads in range(step, 64 * step, step):
        try:
            fits(heads)
        except ExportError:
            continue
        return heads
    fits(64 * step)
    return 64 * step


@dataclass(frozen=True, eq=False)
class Erasure:
    """What the heads that look at the token itself also do where the head is tied to the embedding.

    There the answer block begins as the token's own word: it is replaced by the word of "unknown"; verdict and mark,
    which distinguish the failure token from all others, by minus and plus their signs.
    """

    block: Index
    rest: Floats  # +-1 per bit


def used_frequencies(head_dim: int, group: int) -> tuple[int, ...]:
    """The frequencies that key-value head `group` uses, so that groups cannot replace each other.

    The lowest one is left to the scale probe, which wants no rotation.
    """
    return tuple(f for f in range(head_dim // 2 - 1) if f == 0 or f % 4 != _LEFT_OUT[group % 3])


def unused_frequency(group: int) -> int:
    """One that key-value head `group` does without."""
    return _LEFT_OUT[group % 3]


@lru_cache(maxsize=256)
def far_margin(theta: float, offset: int, head_dim: int = 64, reach: int = 2048) -> float:
    """Return the share of its size by which a far head's score leads, in the least favourable architecture.

    Args:
        theta: The base of the rotary positions.
        offset: The distance at which the head looks.
        head_dim: Dimensions of a head; 32 of them turn in some architectures.
        reach: Positions.

    Example:
        >>> far_margin(1e4, 157) > 0.13 > 0.08 > far_margin(1e4, 150)
        True
    """
    some = [
        look_back(head_dim, theta, offset, reach, used=used_frequencies(head_dim, group), far=True)
        for group in range(len(_LEFT_OUT))
    ]
    return min(wave.gap for wave in (*some, look_back(min(32, head_dim), theta, offset, reach, far=True)))


RIPPLE, RIPPLE_PHASE = 0.02, 2.4  # nats per frequency in the probe's score; radians from one to the next


def favour(far: int) -> float:
    """S of the scale probe: BOS has the weight 3/4 at the position `far`."""
    return 3.0 * far


class LookingBack:
    """Writes the matrices of one attention layer; `gain` is the norm's weight of the bits."""

    def __init__(self, layout: ChannelLayout, stage: LayerStage, table: WindowTable, heads: Heads, design: Design,
                 gain: float, heard: Mapping[int, int] | None = None,
                 sensed: Mapping[int, int] | None = None, equal_keys: bool = False,
                 counted: int | None = None) -> None:  # fmt: skip
        self.layout, self.heads, self.design, self.gain = layout, heads, design, gain
        self.heard = {} if heard is None else heard  # channels that listeners write to
        self.sensed = {} if sensed is None else sensed  # and those to which they write the weight of BOS
        self.equal_keys = equal_keys  # all tokens' keys have one size
        self.counted = counted  # the channel that adds up what copying heads make of a constant
        self.source, self.fetches = layout.source(stage), layout.fetches(stage, table)
        self.jobs = heads.jobs(self.fetches, len(self.source))
        self.turning = design.turning  # the first dimensions of a head; the others stay zero
        hidden, d = layout.hidden, heads.dimension
        self.query, self.key = np.zeros((heads.count * d, hidden)), np.zeros((heads.groups * d, hidden))
        self.value, self.output = np.zeros((heads.groups * d, hidden)), np.zeros((hidden, heads.count * d))
        self.ones = layout.signs[layout.constant[0]] / (CONSTANT_GAIN * len(layout.constant[0]))  # reads 1
        self.small = layout.signs[layout.width] / (CONSTANT_GAIN * len(layout.width))  # reads 1 as well
        self.first = layout.signs[layout.first] / (gain * len(layout.first))  # reads 1 from BOS, -1 from others

    def write(self, *, erasure: Erasure | None = None) -> AttentionWeights:
        for group in range(self.heads.groups):
            self._write_group(group, erasure)
        if self.heads.spare is not None:
            self._write_probe()
        for head, channel in self.heard.items():
            self._listen(head, channel, erasure is not None)
        if self.counted is not None and erasure is None:
            for head in self.copying:
                constant = head * self.heads.dimension + self._carried(head // self.heads.per_group)
                share = SENSE * self.design.kappa / self.gain
                self.output[self.counted, [constant, constant + 2]] = share / 2, -share / 2
        if self.design.scaling is not None:  # scores gain the square of what cos and sin are multiplied by
            by_head = self.query.reshape(self.heads.count, self.heads.dimension, -1)
            by_head[:, : self.turning] /= self.design.scaling.magnitude**2
        column = int(self.layout.constant[0][0])
        query, key, value = (fill_idle(matrix, column) for matrix in (self.query, self.key, self.value))
        # A row of the output that writes nothing gets its tiny weight at a dimension that carries nothing.
        output, idle = fill_idle(self.output, self.heads.dimension - 1), np.array([self.heads.dimension - 1])
        if self.design.flavour == "plateau":
            query, key, value = (anchored(matrix, self.layout.anchor) for matrix in (query, key, value))
            output = anchored(output, idle)
        small = dict.fromkeys([*self.heard, *([] if self.heads.spare is None else [self.heads.spare])])
        return AttentionWeights(self._norm(), query, key, value, output, tuple(small))

    def _norm(self) -> Floats:
        norm = np.ones(self.layout.hidden)
        norm[self.layout.constant[0]] = norm[self.layout.width] = CONSTANT_GAIN
        norm[self.source] = norm[self.layout.first] = norm[self.layout.constant[-1]] = self.gain
        norm[self.layout.anchor] = 0.0
        return norm

    def _write_group(self, group: int, erasure: Erasure | None) -> None:
        d, layout = self.heads.dimension, self.layout
        mine = [job for job in self.jobs if job.head // self.heads.per_group == group]
        queried = dict.fromkeys(job.fetch for job in mine) or (0,)
        waves = {fetch: self._wave(self.fetches[fetch], group) for fetch in queried}
        half = self.turning // 2
        heard = list(used_frequencies(self.turning, group)) if self.heard else []
        sensing, others = self._sensing(group)
        if self.heard and not sensing and (self.heads.spare is None or group or self.turning < d):
            heard.append(half - 1)  # the lowest frequency is there for listeners, or for the scale probe
        keys, base = _key_sizes(list(waves.values()), heard), group * d
        self.key[base : base + half, layout.constant[0]] = np.outer(keys, self.ones)
        if sensing:
            half_key = bos_key(keys) / 2
            for rows, sign in ((sensing, 1.0), (others, -1.0), ((self._lowest,), 1.0)):
                for row in rows:
                    self.key[base + row, layout.first] = sign * half_key * self.first
                    self.key[base + row, layout.constant[0]] = half_key * self.ones
            if self.equal_keys:  # plus for BOS, minus for others
                self.key[base + self._lowest, layout.constant[0]] = 0.0
                self.key[base + self._lowest, layout.first] *= 2
        carried = np.roll(self._carried_bits(group), 5 * group)
        constant = len(carried)
        self.value[base + np.arange(constant), self.source[carried]] = 1.0
        self.value[base + constant, layout.width] = self.gain * self.small
        self.value[base + constant + 1, layout.first] = self.gain * self.first
        if erasure is not None:
            verdict = layout.constant[-1]
            self.value[base + constant + 2, verdict] = layout.signs[verdict] / len(verdict)
        elif self.sensed or self.counted is not None:
            # Minus the constant: caches in few bits may add the same number to every value.
            self.value[base + constant + 2, layout.width] = -self.gain * self.small
        for job in mine:
            self._write_job(job, waves[job.fetch], keys, carried, erasure)

    def _write_job(self, job: HeadJob, wave: Wave, keys: Floats, carried: Index, erasure: Erasure | None) -> None:
        d, layout, size = self.heads.dimension, self.layout, self.design.kappa / self.gain
        start, constant = job.head * d, job.head * d + len(carried)
        nats = amplitude(wave.gap, self.design.gap) if self.design.cap is None else 1 / wave.gap
        turned = np.concatenate([wave.cosine, -wave.sine]) * nats * math.sqrt(d)
        divisor = np.concatenate([keys, keys])
        turned = np.divide(turned, divisor, out=np.zeros(self.turning), where=divisor > 0)
        self.query[start : start + self.turning, layout.constant[0]] = np.outer(turned, self.ones)
        fetch = self.fetches[job.fetch]
        bits, slot = fetch.bits[job.part], fetch.target[job.part]
        where = start + np.array([int(np.flatnonzero(carried == bit)[0]) for bit in bits], dtype=np.int64)
        self.output[slot, where] = size
        self.output[slot, constant] = -size * layout.signs[slot]
        if erasure is not None and fetch.offset == 0:
            block = erasure.block[bits]
            self.output[block, where], self.output[block, constant] = -size, size * erasure.rest[bits]
            if 0 in bits:
                verdict = layout.constant[-1]
                self.output[verdict, constant] = self.output[verdict, constant + 2] = -size * layout.signs[verdict]
                mark = layout.mark
                self.output[mark, constant] = self.output[mark, constant + 2] = size * layout.signs[mark]

    def _wave(self, fetch: Fetch, group: int) -> Wave:
        design, used, d = self.design, used_frequencies(self.turning, group), self.turning
        trap = fetch.offset == design.trap and not fetch.far
        if design.cap is not None:
            return capped_wave(
                d, design.theta, fetch.offset, design.reach, design.cap, design.window, used, trap, fetch.far
            )
        return look_back(
            d, design.theta, fetch.offset, design.reach, design.window, used, trap, fetch.far, design.gap,
            design.own_slack * STORED, design.scaling,
        )  # fmt: skip

    def _listen(self, head: int, channel: int, erased: bool) -> None:
        """A head that averages over everything and writes to one channel; the scale probe has scores of its own."""
        d, block = self.heads.dimension, self.layout.constant[0]
        start, group = head * d, head // self.heads.per_group
        if head != self.heads.spare:
            keys = self._constant_keys(group)
            every = frequencies(self.turning, self.design.theta, self.design.scaling)
            quiet = QUIET if head in self.sensed else None
            wave = listening.wave(every, keys > 0, self.design.window, head, quiet)
            turned, divisor = np.concatenate([wave.cosine, -wave.sine]) * math.sqrt(d), np.concatenate([keys, keys])
            turned = np.divide(turned, divisor, out=np.zeros(self.turning), where=divisor > 0)
            lowest = self.turning // 2 - 1
            if self.design.cap is not None and keys[lowest] > 0:  # which hardly turns: scores where the cap bends
                turned[lowest] += listening.BENT * self.design.cap * math.sqrt(d) / keys[lowest]
            self.query[start : start + self.turning, block] = np.outer(turned, self.ones)
            if head in self.sensed:
                self._sense(head, wave, every, bos_key(keys))
        bits = listening.spread(head, self._carried(group))
        self.output[channel, start + bits] = listening.LOUDNESS * self.design.kappa / (self.gain * len(bits))
        if head in self.sensed:
            constant, share = start + self._carried(group), SENSE * self.design.kappa / self.gain
            self.output[self.sensed[head], constant + 1] = share
            if not erased:
                self.output[self.sensed[head], [constant, constant + 2]] = -share / 2

    @property
    def copying(self) -> tuple[int, ...]:
        """The heads that copy."""
        return tuple(dict.fromkeys(job.head for job in self.jobs))

    @property
    def _lowest(self) -> int:
        """The dimension at which rotation hardly moves a score, or does not."""
        return self.turning if self.turning < self.heads.dimension else self.heads.dimension // 2 - 1

    def _sensing(self, group: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The frequencies at which BOS has its own key, where a head of the group compares it with others; and
        those at which the others have one."""
        mine = [head for head in self.sensed if head != self.heads.spare and head // self.heads.per_group == group]
        if not mine:
            return (), ()
        return sensing_frequencies(unused_frequency(group), self.turning // 2, self.equal_keys)

    def _sense(self, head: int, heard: Wave, every: Floats, size: float) -> None:
        """Scores that distinguish BOS from other tokens, beside those of the head that listens."""
        d, group = self.heads.dimension, head // self.heads.per_group
        reach = min(self.design.reach, self.design.window or self.design.reach)
        scores = heard.scores(np.arange(float(reach)), every)
        sensor = self.layout.sense.tolist().index(self.sensed[head])
        found = PositionWave.of(every, self._sensing(group)[0], scores, head, reach, sensor)
        rows = np.concatenate([found.wave.cosine, -found.wave.sine])
        rows = np.append(rows, np.zeros(d - len(rows)))
        rows[self._lowest] += found.content / (2 if self.equal_keys else 1)
        if self._lowest < self.turning:  # the lowest frequency turns so little that only a large sine shows it
            rows[self._lowest + self.turning // 2] = LOUDEST if sensor % 2 else -LOUDEST
        start, block = head * d, self.layout.constant[0]
        self.query[start : start + d, block] += np.outer(rows * math.sqrt(d) / size, self.ones)

    def _constant_keys(self, group: int) -> Floats:
        """The constant part of a key, by frequency."""
        start, block = group * self.heads.dimension, self.layout.constant[0]
        rows = self.key[start : start + self.turning // 2, block]
        found = np.asarray(rows @ self.layout.signs[block] * CONSTANT_GAIN)
        sensing, others = self._sensing(group)
        if sensing:
            found[[*sensing, *others, *((self._lowest,) if self._lowest < len(found) else ())]] = 0.0
        return found

    def _write_probe(self) -> None:
        """The head `spare` of key-value head 0 weighs BOS; two flags record whether the farthest places see BOS."""
        layout, d, size = self.layout, self.heads.dimension, self.design.kappa / self.gain
        # BOS is found by content: where no rotation moves the score, or where it hardly does.
        lowest = self._lowest
        start = self.heads.spare * d if self.heads.spare is not None else 0
        content = self._write_ripple(start)
        if self._sensing(0)[0]:  # there BOS has a key already
            content /= bos_key(self._constant_keys(0)) * (2 if self.equal_keys else 1)
        else:
            self.key[lowest, layout.first] = self.first / 2  # 1/2 for BOS, -1/2 for others: all keys have one size
        self.query[start + lowest, layout.constant[0]] = content * math.sqrt(d) * self.ones
        constant = start + self._carried(0)
        signs = layout.signs[layout.meter] * np.where(np.arange(len(layout.meter)) // (len(layout.meter) // 2), -1, 1)
        self.output[layout.meter, constant] = self.output[layout.meter, constant + 1] = METER * size / 2 * signs
        for flag, place in zip(np.split(layout.flags, 2), neighbours(self.fetches), strict=True):
            job = next(job for job in self.jobs if job.fetch == place)
            constant = job.head * d + self._carried(job.head // self.heads.per_group)
            self.output[flag, constant] = self.output[flag, constant + 1] = size * layout.signs[flag]

    def _write_ripple(self, start: int) -> float:
        """A little of every frequency in the probe's score, so that the logit which shows the weight of BOS also shows
        the frequencies: softmax is not one-hot here. Returns what BOS needs to weigh 3/4 at the farthest place."""
        half, block, far = (
            self.turning // 2,
            self.layout.constant[0],
            self.fetches[neighbours(self.fetches)[0]].offset,
        )
        keys = self._constant_keys(0)
        phase, used = RIPPLE_PHASE * np.arange(half), keys > 0
        size = np.divide(RIPPLE * math.sqrt(self.heads.dimension), keys, out=np.zeros(half), where=used)
        wave = np.concatenate([size * np.cos(phase), size * np.sin(phase)])
        self.query[start : start + 2 * half, block] += np.outer(wave, self.ones)
        every = frequencies(2 * half, self.design.theta, self.design.scaling)
        turns = np.outer(np.arange(far + 1), every[used]) + phase[used]
        scores = RIPPLE * np.cos(turns).sum(axis=1)  # by distance
        return math.log(favour(1) * np.exp(scores[:far] - scores[far]).sum())

    def _carried(self, group: int) -> int:
        """How many bits key-value head `group` carries: its constant comes after them, then BOS."""
        return len(self._carried_bits(group))

    def _carried_bits(self, group: int) -> Index:
        mine = [job for job in self.jobs if job.head // self.heads.per_group == group]
        if (
            not mine
        ):  # where every head has its own keys, those of the scale probe copy nothing: what it hears is enough
            return np.arange(min(len(self.source), self.heads.dimension - SPARE))
        return np.unique(np.concatenate([self.fetches[job.fetch].bits[job.part] for job in mine]))


def _key_sizes(waves: list[Wave], heard: list[int]) -> Floats:
    """The key's size per frequency: the geometric middle of what its heads need, so that no query is large, and a
    little more where only listeners need it."""
    sizes = np.sqrt(np.sum([wave.sizes / wave.gap for wave in waves], axis=0))
    sizes[sizes < 1e-6] = 0.0
    sizes[heard] = np.maximum(sizes[heard], np.sqrt((sizes**2).mean()) / 4)
    return np.asarray(sizes * math.sqrt(len(sizes) / (sizes**2).sum()))
