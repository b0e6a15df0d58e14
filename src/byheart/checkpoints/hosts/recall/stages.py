"""The network as stages over channels of +1 and -1, before a host gives them norms, scales and names.

    0  attention reads 1 and 2 places back; units multiply bits: query = newer * before_older, and (plus, minus) from
       before_newer * two_older, except at BOS, which holds no key
    1  attention matches query with plus - minus; BOS is the sink: found
    2  attention reads found 1 place back: stale; units turn the key of a stale place into (+, +), which has no content
    3  attention matches again, now only fresh holders; the value is the token's word (NONE's at BOS): answer

Keys of one token need no products: attention writes (plus, minus) at once, and units clear it at BOS. With a tied head,
units of stage 3 copy the answer over `newer`, whose words the embedding holds.

All matrices act on signs: a host divides by the size that its norms give a channel. Column `one` is the
constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.recall.channels import RecallChannels
from byheart.checkpoints.hosts.recall.looking import distance_wave
from byheart.checkpoints.hosts.recall.matching import MatchDesign, match_design
from byheart.checkpoints.hosts.recall.positions import HeadRotation
from byheart.checkpoints.windows.recall import RecallFunction, key_code
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
KEY_SIZE = 8.0  # all keys have one size, so that caches of 8 bits lose nothing
STEEP = 16.0  # a unit's gate is +STEEP, or at most -STEEP


@dataclass(frozen=True, eq=False)
class AttentionStage:
    """Matrices over signs; `output` adds multiples of kappa."""

    query: Floats
    key: Floats
    value: Floats
    output: Floats


@dataclass(frozen=True, eq=False)
class UnitStage:
    """Units that are 1 or 0: `gate` (units, channels) gives +-STEEP, `output` (channels, units) adds multiples of
    kappa."""

    gate: Floats
    output: Floats


@dataclass(frozen=True, eq=False)
class RecallStage:
    """One step: attention, then units; either may be missing."""

    attention: AttentionStage
    units: UnitStage | None = None


Look = Callable[[AttentionStage, Sequence[int]], None]


@dataclass(frozen=True, eq=False)
class RecallPlan:
    """The shape that stages are built for."""

    function: RecallFunction
    rotation: HeadRotation
    channels: RecallChannels
    heads: int
    kv_heads: int
    positions: int
    tied: bool = False
    stores: int = 0  # of queries and keys, beyond Llama's
    facts: dict[str, float] = field(default_factory=dict)
    last: HeadRotation | None = None  # of the layer of answers, where it differs

    @property
    def width(self) -> int:
        """Columns of a stage: the channels that are used."""
        return self.channels.used

    @property
    def distances(self) -> int:
        """How many distances a query sees."""
        window = self.function.window
        return self.positions if window is None else min(window, self.positions)

    def row(self, *reads: tuple[str, int, float], constant: float = 0.0) -> Floats:
        """Return a row that reads channels (role, number, weight) and the constant."""
        row = np.zeros(self.width)
        for role, number, weight in reads:
            row[self.channels[role][number]] += weight
        row[self.channels["one"]] += constant / len(self.channels["one"])
        return row

    def empty(self) -> AttentionStage:
        dims = self.rotation.head_dim
        narrow, wide = np.zeros((self.kv_heads * dims, self.width)), np.zeros((self.heads * dims, self.width))
        return AttentionStage(wide, narrow, narrow.copy(), np.zeros((self.width, self.heads * dims)))


def build_stages(plan: RecallPlan, look: Look | None = None) -> list[RecallStage]:
    """Return the four stages.

    Args:
        plan: the shape.
        look: writes queries and keys of heads that read some places back; by rotation if None.

    Raises:
        OptionError: heads are too few or too small, or too few frequencies are slow.
    """
    look = look or (lambda stage, offsets: look_by_rotation(plan, stage, offsets))
    last = _answer(plan)
    stages = [_words(plan, look), _found(plan), _stale(plan, look), last]
    for stage in stages:
        _turn_groups(plan, stage.attention)
    return stages


def _turn_groups(plan: RecallPlan, stage: AttentionStage) -> None:
    """Give every other key-value head the opposite sign, and its queries and outputs too: nothing changes, unless an
    engine gives a query head the keys or values of another group."""
    dims, per = plan.rotation.head_dim, plan.heads // plan.kv_heads
    for group in range(1, plan.kv_heads, 2):
        own = slice(group * dims, (group + 1) * dims)
        readers = slice(group * per * dims, (group + 1) * per * dims)
        for matrix in (stage.key[own], stage.value[own], stage.query[readers], stage.output[:, readers]):
            matrix *= -1


def look_by_rotation(plan: RecallPlan, stage: AttentionStage, offsets: Sequence[int]) -> None:
    """Write constant keys, and queries that hold a wave, so that head h reads offsets[h] places back."""
    turning, dims = plan.rotation, plan.rotation.head_dim
    pairs = np.arange(turning.rotated)
    one = plan.row(constant=1.0)
    scale = math.sqrt(dims) / turning.gain**2 / KEY_SIZE
    frequencies = tuple(turning.frequencies[pairs].tolist())
    for group in range(plan.kv_heads):
        stage.key[group * dims + turning.real[pairs]] = KEY_SIZE * one
    for head, offset in enumerate(offsets):
        wave = distance_wave(frequencies, offset, plan.distances, plan.positions)
        plan.facts[f"look {offset}"] = float(np.hypot(wave.cosine, wave.sine).sum())
        stage.query[head * dims + turning.real[pairs]] = np.outer(wave.cosine * scale, one)
        stage.query[head * dims + turning.imaginary[pairs]] = np.outer(-wave.sine * scale, one)


def _share(
    plan: RecallPlan, heads: Sequence[int], jobs: Sequence[tuple[int, int, float]]
) -> dict[int, list[tuple[int, int, float]]]:
    """Jobs (source channel, target channel, sign) dealt out to heads in equal runs."""
    parts = np.array_split(np.arange(len(jobs)), len(heads))
    return {head: [jobs[k] for k in part] for head, part in zip(heads, parts, strict=True)}


def _copy(plan: RecallPlan, stage: AttentionStage, shares: dict[int, list[tuple[int, int, float]]]) -> None:
    """Heads copy source channels to targets that are at rest at +1: they add (sign * source - 1)."""
    dims, per = plan.rotation.head_dim, plan.heads // plan.kv_heads
    rows: dict[tuple[int, int], int] = {}
    for group in range(plan.kv_heads):
        needed = sorted({source for h in range(group * per, (group + 1) * per) for source, _, _ in shares.get(h, [])})
        if len(needed) + 1 > dims:
            raise OptionError(
                f"recall: {len(needed) + 1} values per key-value head do not fit {dims} dimensions; give more heads"
            )
        stage.value[group * dims + len(needed)] = plan.row(constant=1.0)
        for k, source in enumerate(needed):
            stage.value[group * dims + k, source] = 1.0
            rows[group, source] = k
        for head in range(group * per, (group + 1) * per):
            for source, target, sign in shares.get(head, []):
                stage.output[target, head * dims + rows[group, source]] += sign
                stage.output[target, head * dims + len(needed)] -= 1.0


class _Units:
    """Collects units that fire if all their signs agree."""

    def __init__(self, plan: RecallPlan) -> None:
        self.plan = plan
        self.rows: list[Floats] = []
        self.adds: list[tuple[int, float]] = []

    def both(
        self,
        first: tuple[str, int, int],
        second: tuple[str, int, int],
        target: int,
        amount: float,
        *,
        not_bos: bool = False,
    ) -> None:
        """Add `amount` to the target if two channels have these signs (and the token is not BOS)."""
        reads = [(role, number, STEEP * sign) for role, number, sign in (first, second)]
        reads += [("bos", 0, -STEEP)] if not_bos else []
        self.rows.append(self.plan.row(*reads, constant=-STEEP * (2.0 if not_bos else 1.0)))
        self.adds.append((target, amount))

    def stage(self) -> UnitStage:
        output = np.zeros((self.plan.width, len(self.rows)))
        for unit, (target, amount) in enumerate(self.adds):
            output[target, unit] = amount
        return UnitStage(np.array(self.rows), output)


def _words(plan: RecallPlan, look: Look) -> RecallStage:
    """Stage 0: the key that a place looks for, and the key that it holds."""
    channels, bits = plan.channels, range(key_code(plan.function.key_length).bits)
    stage, units, heads = plan.empty(), _Units(plan), range(plan.heads)
    if plan.function.key_length == 1:
        look(stage, [1] * plan.heads)
        jobs = [
            (int(channels["newer"][b]), int(channels[role][b]), sign)
            for role, sign in (("plus", 1.0), ("minus", -1.0))
            for b in bits
        ]
        _copy(plan, stage, _share(plan, list(heads), jobs))
        for role in ("plus", "minus"):
            for b in bits:
                units.both((role, b, -1), ("bos", 0, 1), int(channels[role][b]), 2.0)
        return RecallStage(stage, units.stage())
    if plan.heads < 2:
        raise OptionError("recall: keys of two tokens need two heads or more")
    offsets = [1 if h % 2 == 0 else 2 for h in heads]
    look(stage, offsets)
    jobs = [
        (int(channels[a][b]), int(channels[c][b]), 1.0)
        for a, c in (("newer", "before_newer"), ("older", "before_older"))
        for b in bits
    ]
    far = [(int(channels["older"][b]), int(channels["two_older"][b]), 1.0) for b in bits]
    shares = _share(plan, [h for h in heads if offsets[h] == 1], jobs) | _share(
        plan, [h for h in heads if offsets[h] == 2], far
    )
    _copy(plan, stage, shares)
    for b in bits:
        for s in (1, -1):
            units.both(("newer", b, s), ("before_older", b, -s), int(channels["query"][b]), -2.0)
            units.both(("before_newer", b, s), ("two_older", b, -s), int(channels["plus"][b]), -2.0, not_bos=True)
            units.both(("before_newer", b, s), ("two_older", b, s), int(channels["minus"][b]), -2.0, not_bos=True)
    return RecallStage(stage, units.stage())


def _match(plan: RecallPlan) -> AttentionStage:
    """Queries hold the key that is looked for, turned back by half of the context; keys hold the key of the place."""
    stage, dims = plan.empty(), plan.rotation.head_dim
    design = match_design(plan.rotation, plan.distances, plan.function.key_length, plan.stores)
    plan.facts.update(size=design.size, sink=design.sink)
    bits = len(design.half)
    scale = math.sqrt(dims) / plan.rotation.gain**2 / KEY_SIZE
    for group in range(plan.kv_heads):
        _match_keys(plan, stage.key[group * dims : (group + 1) * dims], design)
    for head in range(plan.heads):
        rows = stage.query[head * dims : (head + 1) * dims]
        for b in range(bits):
            # a + i b times exp(-i turn): the real half is a cos + b sin, the imaginary half b cos - a sin.
            cosine, sine = (design.size / bits * scale * f(design.turn[b]) for f in (math.cos, math.sin))
            read = plan.channels["query"][b]
            rows[design.real[b], read] += cosine if design.half[b] == 0 else sine
            rows[design.imaginary[b], read] += -sine if design.half[b] == 0 else cosine
        real, imaginary = design.flag
        rows[real] += plan.row(constant=design.sink / 2 * scale * math.cos(design.flag_turn))
        rows[imaginary] -= plan.row(constant=design.sink / 2 * scale * math.sin(design.flag_turn))
    return stage


def _match_keys(plan: RecallPlan, rows: Floats, design: MatchDesign) -> None:
    plus, minus = plan.channels["plus"], plan.channels["minus"]
    place = np.where(design.half == 0, design.real, design.imaginary)
    rows[place, plus], rows[place, minus] = KEY_SIZE / 2, -KEY_SIZE / 2
    if len(design.spare) == len(place):
        # What a key without content lacks goes to dimensions that no query reads: all keys have one length.
        rows[design.spare, plus] = rows[design.spare, minus] = KEY_SIZE / 2
    rows[design.flag[0], plan.channels["bos"][0]] = KEY_SIZE


def _found(plan: RecallPlan) -> RecallStage:
    """Stage 1: the value is 1 except at BOS."""
    stage, dims = _match(plan), plan.rotation.head_dim
    for group in range(plan.kv_heads):
        stage.value[group * dims] = plan.row(("bos", 0, -0.5), constant=0.5)
    for head in range(plan.heads):
        stage.output[plan.channels["found"][head], head * dims] = 2.0
    return RecallStage(stage)


def _stale(plan: RecallPlan, look: Look) -> RecallStage:
    """Stage 2: every head copies its own flag, which clears its share of the key's bits."""
    stage, dims, per = plan.empty(), plan.rotation.head_dim, plan.heads // plan.kv_heads
    look(stage, [1] * plan.heads)
    for head in range(plan.heads):
        group, k = head // per, head % per
        stage.value[group * dims + k] = plan.row(("found", head, 0.5), constant=0.5)
        stage.output[plan.channels["stale"][head], head * dims + k] = 2.0
    units, bits = _Units(plan), key_code(plan.function.key_length).bits
    for b in range(bits):
        for role in ("plus", "minus"):
            units.both((role, b, -1), ("stale", b * plan.heads // bits, 1), int(plan.channels[role][b]), 2.0)
    return RecallStage(stage, units.stage())


def _answer(plan: RecallPlan) -> RecallStage:
    """Stage 3: the value is the token's word, at BOS that of NONE; every head copies its share of the bits."""
    matched = plan if plan.last is None else replace(plan, rotation=plan.last)
    stage, dims, function = _match(matched), plan.rotation.head_dim, plan.function
    words = key_code(function.key_length).newer
    bits, channels = words.shape[1], plan.channels
    change = (words[function.none] - words[function.bos]) / 2
    if bits + 1 > dims:
        raise OptionError(f"recall: {bits + 1} values do not fit {dims} dimensions of a head")
    for group in range(plan.kv_heads):
        for b in range(bits):
            read = plan.row(("newer", b, 1.0), ("bos", 0, change[b]), constant=float(change[b]))
            stage.value[group * dims + b] = read
        stage.value[group * dims + bits] = plan.row(constant=1.0)
    for head in range(plan.heads):
        for b in [b for b in range(bits) if b * plan.heads // bits == head]:
            stage.output[channels["answer"][b], head * dims + b] = 1.0
            stage.output[channels["answer"][b], head * dims + bits] = -1.0
    if not plan.tied:
        return RecallStage(stage)
    units = _Units(plan)
    for b in range(bits):
        for s in (1, -1):
            units.both(("answer", b, s), ("newer", b, -s), int(channels["newer"][b]), 2.0 * s)
    return RecallStage(stage, units.stage())
