"""From a recital to a decoder with LayerNorm, biases and an MLP without a gate: the body of GPT-2, OPT and GPT-NeoX.

Words and constants are balanced, so LayerNorm's mean is zero and it is RMSNorm. Each window has two units,
act(g) - act(g - 8) with g = 16 at the match: a plateau, so errors of the slots leave no trace.

Every bias carries a part that matters: half of what a slot loses comes from the attention's output bias, a state's rest
comes from the MLP's second bias, the second unit of a plateau needs its first one, and one unit watches the norm's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.codes import CodeBook
from byheart.checkpoints.hosts.description import Design, SpecialTokens, fill_idle
from byheart.checkpoints.hosts.ends import embedding, head, tied_norm, writes
from byheart.checkpoints.hosts.gated import can_probe, idle_layers, unit_count
from byheart.checkpoints.hosts.layout import (
    FIRST_PLACES,
    METER,
    Books,
    ChannelLayout,
    LayerStage,
    books_of,
    deepen,
    lay_out,
    stages_of,
)
from byheart.checkpoints.hosts.listening import DEEPEST, LOUDNESS, block_size
from byheart.checkpoints.hosts.looking_back import Heads, least_heads
from byheart.checkpoints.hosts.plain_attention import (
    PlainAttention,
    PlainDemands,
    PlainLookingBack,
    WeightAndBias,
    plain_jobs,
    plain_listeners,
)
from byheart.checkpoints.hosts.rotary import frequencies, steady
from byheart.checkpoints.windows.tables import ANY, Recital, WindowTable
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
UNIT_MULTIPLE = 32  # the blocks of quantized formats
_SHARP, _STEP = 16.0, 8.0
_SHARE = 0.25  # of a threshold that constants hold
_TOLERANCE, _SHARPNESS = 0.08, 1024.0
WATCH_UNITS = 4  # that see whether the slots of the attention beside them are still unwritten
QUIET_UNITS = 9  # that are never loud: probes of the activation, the norm and the scale, a listener, and an idle one
# (pre-activation, activation) of the probes: places where bfloat16 and float16 hold the activation to 1e-4, and where
# the cheap form x sigmoid(1.702 x) is a third larger. gelu's two forms differ by 1e-3 there.
GELU = (-123 / 64, -123 / 64 * 0.5 * math.erfc(123 / 64 / math.sqrt(2)))
GELU_TANH = (-125 / 64, -0.049556536391646894)
RELU = (1.0, 1.0)


@dataclass(frozen=True, eq=False)
class PlainMLP:
    norm: WeightAndBias
    first: WeightAndBias
    second: WeightAndBias
    rows: Index


@dataclass(frozen=True, eq=False)
class PlainDecoder:
    """A whole decoder; `positions` is (reach, hidden), zero where positions are rotary. Where attention and MLP are
    parallel, `order` has the MLPs of the attention layers, and `beside` is the attention beside the last table."""

    recital: Recital
    tokens: SpecialTokens
    design: Design
    layout: ChannelLayout
    stages: tuple[LayerStage, ...]
    embedding: Floats
    positions: Floats
    attention: tuple[PlainAttention, ...]
    beside: PlainAttention
    mlp: tuple[PlainMLP, ...]
    order: tuple[PlainMLP, ...]
    norm: WeightAndBias
    head: Floats
    heads: int
    margin: float  # of the correct token, as designed

    @property
    def hidden(self) -> int:
        return self.layout.hidden

    @property
    def units(self) -> int:
        return int(self.mlp[0].first.weight.shape[0])


class PlainRecognising:
    """Writes one MLP: two units per window, the probes, and the rest word of the state in the second bias."""

    def __init__(self, layout: ChannelLayout, stage: LayerStage, depth: int, table: WindowTable, book: CodeBook,
                 design: Design, gain: float, demands: PlainDemands) -> None:  # fmt: skip
        self.layout, self.stage, self.depth, self.design, self.gain = layout, stage, depth, design, gain
        self.demands, self.m = demands, 2.0 ** math.floor(math.log2(book.distance))
        windows = table.windows[stage.rows]
        closed = windows != ANY
        words = book.words[np.where(closed, windows, 0)].astype(np.float64) * closed[:, :, None]
        self.patterns = words.reshape(len(windows), words.shape[1] * words.shape[2])
        self.totals = closed.sum(axis=1) * float(book.bits)
        self.level = float(len(table.offsets) * book.bits) - self.m
        self.slots = np.concatenate(layout.slots[stage.table])
        # A part of the threshold is read from constants that must have been turned before: unturned they fire windows
        # that do not match. The rest is a bias, which has no error.
        self.sources = [layout.constant[depth]]
        if demands.parallel:
            stages = len(layout.constant) - 1
            helped = depth > 0 and len(layout.order) > stages
            self.sources += [layout.order[depth]] + ([layout.order[stages + depth]] if helped else [])
        self.shares = self._shares()

    def _shares(self) -> tuple[float, ...]:
        """How much of the threshold each block of constants holds: less where errors have grown."""
        if not self.demands.parallel or self.depth == 0:
            return (_SHARE,) * len(self.sources)
        part = _SHARE / (4 if len(self.layout.mixed) else 8)
        return (part,) + (part / 2,) * (len(self.sources) - 1)

    @property
    def quiet(self) -> int:
        """The first of the quiet units. They have their own block after those of the windows: 8-bit formats
        have one scale for a block, so a unit with output 16 leaves few digits for one with 0.2."""
        loud = 2 * len(self.patterns) + (WATCH_UNITS if self.demands.parallel else 0)
        return -(-loud // UNIT_MULTIPLE) * UNIT_MULTIPLE

    @property
    def units_needed(self) -> int:
        return self.quiet + QUIET_UNITS

    def norm(self) -> WeightAndBias:
        """A part of every threshold is read from constants."""
        norm = _watched_norm(self.layout)
        norm.weight[self.slots] = self.gain
        for block, held in zip(self.sources, self.shares, strict=True):
            norm.weight[block] = self.gain * held * self.level / len(block)
        return norm

    def write(
        self, units: int, written: Floats, rest: Floats, *, probe: bool, heard: int | None, beside: LayerStage | None
    ) -> PlainMLP:
        """`written` (hidden, rows) is what the unit of each row adds, `rest` (hidden,) what is always added.

        `heard` is the channel of the unit that listens; `beside` the stage whose slots the attention of this very layer
        fills.
        """
        count, hidden = len(self.patterns), self.layout.hidden
        first, bias, second = np.zeros((units, hidden)), np.zeros(units), np.zeros((units, hidden))
        size, held = _SHARP / (self.gain * self.m), self.level * sum(self.shares)
        for k in range(2):
            rows = slice(k * count, (k + 1) * count)
            first[rows, self.slots] = size * self.patterns
            for block in self.sources:
                first[rows, block] = -size * self.layout.signs[block]
            bias[rows] = -_SHARP / self.m * (self.totals - self.m - held) - k * _STEP
            second[rows] = written.T / (_STEP if k == 0 else -_STEP)
        turned = self.layout.constant[self.depth + 1]
        whole = 2 * self.design.kappa
        if not rest.any():  # no bias without a task: where no state has to be set to rest, it does half of the turn
            whole, rest = whole / 2, rest.copy()
            rest[turned] = whole * self.layout.signs[turned]
        quiet = self.quiet
        self._activation(bias, second, quiet, whole)
        _watch_norm(self.layout, first[quiet + 5], second[quiet + 5], turned, self.design.kappa)
        bias[quiet + 5] = -_STEP
        if probe:
            self._scale(first, bias, second, quiet + 3)
        if beside is not None:
            rows = slice(2 * count, 2 * count + WATCH_UNITS)
            self._see_unwritten(first[rows], bias[rows], second[rows], rest, beside)
        norm = self.norm()
        self._listen(norm, first, bias, second, quiet + 6, heard)
        column = int(self.layout.constant[0][0])
        out = WeightAndBias(fill_idle(np.ascontiguousarray(second.T), units - 1), rest)
        return PlainMLP(norm, WeightAndBias(fill_idle(first, column), bias), out, np.tile(self.stage.rows, 2))

    def _listen(
        self, norm: WeightAndBias, first: Floats, bias: Floats, second: Floats, unit: int, channel: int | None
    ) -> None:
        """A unit that is neither asleep nor on a plateau: the norm's weight and bias, the matrix, its bias and the
        activation all move its output. One half of its 1 comes from the constants, one from the bias; the width
        channels, which the norm's bias takes away, would add to it."""
        if channel is None:
            return
        layout, block = self.layout, self.layout.constant[0]
        first[unit, block] = layout.signs[block] / (2 * len(block) * norm.weight[block])
        first[unit, layout.width] = layout.signs[layout.width] / len(layout.width)
        bias[unit] = 0.5
        second[unit, channel] = LOUDNESS * self.design.kappa * layout.signs[channel]  # at rest two of them cancel

    def _activation(self, bias: Floats, second: Floats, unit: int, whole: float) -> None:
        turned = self.layout.constant[self.depth + 1]
        level, target = self.demands.probe[0], whole / self.demands.probe[1]
        for k, weight in zip((0, 1, 2, 7), probe_weights(target), strict=False):
            bias[unit + k], second[unit + k, turned] = level, weight * self.layout.signs[turned]
        if level > 0:  # relu: also a unit that must stay silent
            bias[unit + 2] = -1.0
            second[unit + 2, turned] = 8 * self.design.kappa * self.layout.signs[turned]

    def _scale(self, first: Floats, bias: Floats, second: Floats, unit: int) -> None:
        """As in recognising.py, with the thresholds in the bias."""
        layout, half = self.layout, len(self.layout.meter) // 2
        side = np.where(np.arange(2 * half) < half, 1.0, -1.0)
        far, near = np.split(layout.flags, 2)
        turned, step = layout.constant[self.depth + 1], _SHARPNESS / 64
        for k, sign in enumerate((1.0, -1.0)):
            first[unit + k, layout.meter] = sign * 127 * step * side * layout.signs[layout.meter]
            first[unit + k, far] = _SHARPNESS / len(far) * layout.signs[far]
            first[unit + k, near] = -_SHARPNESS / len(near) * layout.signs[near]
            bias[unit + k] = -(sign * 0.75 * 127 * step * half * 2 * METER + _SHARPNESS * (_TOLERANCE + 2.0))
            second[unit + k, turned] = -2 * self.design.kappa / 8 * layout.signs[turned]

    def _see_unwritten(self, first: Floats, bias: Floats, second: Floats, rest: Floats, stage: LayerStage) -> None:
        """What `watch` does, beside the windows of another stage: thresholds are biases."""
        layout, signs, share = self.layout, self.layout.signs, self.design.kappa
        block, turned = layout.order[self.depth + 1], layout.constant[self.depth + 1]
        slots = np.concatenate([layout.slots[stage.table][place] for place in stage.places])
        whole, size = float(len(slots)), _SHARP / (self.gain * self.m)
        for k, (step, change) in enumerate(zip((0.0, _STEP, 3 * _STEP), (1.0, -1.0, -1.0), strict=True)):
            first[k, slots], bias[k] = size * signs[slots], -_SHARP / self.m * (whole - self.m) - step
            second[k, block] = change / _STEP * share * signs[block]
        first[3, slots], bias[3] = -2 * _STEP / (self.gain * whole) * signs[slots], _STEP
        second[3, turned] = -self.design.kappa * signs[turned]
        rest[block] = share * signs[block]

    def watch(self, units: int, heard: int | None) -> PlainMLP:
        """The MLP beside the attention: it must see the slots, which that fills, still unwritten; it turns order[l]."""
        layout, hidden = self.layout, self.layout.hidden
        first, bias, second = np.zeros((units, hidden)), np.zeros(units), np.zeros((units, hidden))
        gain, signs, block, constant = 2.0, layout.signs, layout.order[self.depth], layout.constant[0]
        slots = np.concatenate([layout.slots[self.stage.table][place] for place in self.stage.places])
        whole, size = float(len(slots)), _SHARP / (2.0 * self.m)
        level = whole - self.m
        share = self.design.kappa  # of the turn: these units do one half of it, the second bias the other
        norm = _watched_norm(layout)
        norm.weight[slots], norm.weight[constant] = gain, gain * level / len(constant)
        for k in range(3):
            first[k, slots], first[k, constant] = size * signs[slots], -size * signs[constant]
            bias[k] = -(0.0, _STEP, 3 * _STEP)[k]
        _watch_norm(layout, first[3], second[3], block, self.design.kappa)
        bias[3] = -_STEP
        # And one that fires where the slots are written already: this MLP runs after the attention, not beside it.
        first[4, slots], bias[4] = -2 * _STEP / (gain * whole) * signs[slots], _STEP
        second[4, layout.constant[self.depth]] = -self.design.kappa * signs[layout.constant[self.depth]]
        for k, change in enumerate((1.0, -1.0, -1.0)):  # the third unit must stay silent
            second[k, block] = change / _STEP * share * signs[block]
        self._listen(norm, first, bias, second, UNIT_MULTIPLE, heard)
        rest = np.zeros(hidden)
        rest[block] = share * signs[block]
        column = int(layout.constant[0][0])
        out = WeightAndBias(fill_idle(np.ascontiguousarray(second.T), units - 1), rest)
        return PlainMLP(norm, WeightAndBias(fill_idle(first, column), bias), out, np.arange(0))


def probe_weights(target: float) -> tuple[float, ...]:
    """Weights of up to four units that add up to `target`, short numbers all but the last. The first three are whole
    steps, the largest 127 of them, and add up to a little more, by which bfloat16 rounds to the right number: symmetric
    8-bit weights hold them exactly, and lose only the last.

    >>> probe_weights(-20.25), probe_weights(1.0)
    ((-7.9375, -7.9375, -4.375, 0.0), (1.0,))
    """
    if math.frexp(target)[0] == 0.5:
        return (target,)
    size = abs(target)
    step = 2.0 ** math.floor(math.log2(size / 254))
    parts = np.array([127.0, 127.0, math.ceil(size / step) - 254.0]) * step * math.copysign(1.0, target)
    return (*parts.tolist(), target - float(parts.sum()))


def _watched_norm(layout: ChannelLayout) -> WeightAndBias:
    """A norm whose bias takes the `width` channels away."""
    norm = WeightAndBias(np.ones(layout.hidden), np.zeros(layout.hidden))
    norm.bias[layout.width] = -layout.signs[layout.width]
    return norm


def _watch_norm(layout: ChannelLayout, first: Floats, second: Floats, block: Index, kappa: float) -> None:
    """A unit that stays silent at -8 unless the `width` channels come through: then the norm's bias was forgotten."""
    first[layout.width] = 2 * _STEP / len(layout.width) * layout.signs[layout.width]
    second[block] = -127 / 128 * kappa * layout.signs[block]  # what turns the block, kappa/8, is then 16 steps of 127


def plain_margin(recital: Recital, demands: PlainDemands) -> float:
    """The correct token's margin in nats, whatever the code: rounding costs these networks more than gated ones.
    Log-probabilities want smaller logits, and weights of the head that are short numbers (multiples of 12 do that)."""
    return 24.0 if recital.mixed else 80.0 if demands.parallel else 48.0


def build_plain(recital: Recital, tokens: SpecialTokens, design: Design, demands: PlainDemands) -> PlainDecoder:
    """All matrices of the decoder; an ExportError names the number of the shape that is too small."""
    if len(recital.tables) > 1 and design.layers is not None:
        recital = deepen(recital, design.layers // (2 if demands.parallel else 1))
    design = replace(
        design, tied=design.tied and not recital.mixed, scale_probe=design.scale_probe and can_probe(recital)
    )
    books = books_of(recital, balanced=True, plain=False, seed=design.seed, tied=design.tied)
    design = replace(design, logit=plain_margin(recital, demands) / 2 * books.answer.bits / books.answer.distance)
    plans = []
    for wide in range(2, FIRST_PLACES + 1):
        layers = design.layers if len(recital.tables) == 1 else None
        stages = stages_of(recital, layers if not demands.parallel or layers is None else layers - 1, wide)
        layout, heads = _fit(recital, books, stages, design, demands)
        units = 2 * max(len(stage.rows) for stage in stages)
        cost = (len(stages) + demands.parallel) * layout.hidden * (units + 2 * layout.hidden)
        plans.append((idle_layers(stages), cost, stages, layout, heads))
        if len(recital.tables) > 1:
            break
    _, _, stages, layout, heads = min(plans, key=lambda plan: plan[:2])
    return _write(recital, tokens, design, demands, books, stages, layout, heads)


def _fit(
    recital: Recital, books: Books, stages: tuple[LayerStage, ...], design: Design, demands: PlainDemands
) -> tuple[ChannelLayout, int]:
    def lay(hidden: int | None = None, listening: int = 0) -> ChannelLayout:
        return lay_out(
            recital, books, stages, multiple=1, hidden=hidden, parts=design.parts, tied=design.tied, balanced=True,
            extra=2 * demands.rotary if demands.absolute else 0, listening=listening,
            orders=len(stages) * (0 if not demands.parallel else 1 if len(recital.tables) == 1 else 2),
        )  # fmt: skip

    layout = lay()

    def fits(heads: int) -> None:
        for depth, stage in enumerate(stages):
            spare = heads - 1 if design.scale_probe and depth == 0 else None
            fetches = layout.fetches(stage, recital.tables[stage.table])
            plain_jobs(fetches, Heads(heads, heads, design.head_dim, spare))

    step = 2 if design.away else 1
    needed = least_heads(fits, step)
    heads = design.heads or max(needed, -(-max(layout.used, design.hidden or 0) // (step * design.head_dim)) * step)
    if heads < needed:
        raise OptionError(f"--heads {heads}: this recital needs at least {needed} heads")
    if design.hidden is not None and design.hidden != heads * design.head_dim:
        raise OptionError(f"--hidden-size {design.hidden} is not heads * head_dim = {heads} * {design.head_dim}")
    if design.kv_heads not in (None, heads):
        raise OptionError(f"--kv-heads {design.kv_heads}: here each of {heads} heads has its own keys and values")
    whole = lay(heads * design.head_dim)
    most = sum(len(those) for those in _listeners(recital, whole, stages, heads, design, demands))
    most += (2 if demands.parallel else 1) * len(stages) if most else 0  # a unit of every MLP listens, too
    return lay(whole.hidden, min(block_size(most), (whole.hidden - layout.used) // 2 * 2)), heads


def _listeners(
    recital: Recital,
    layout: ChannelLayout,
    stages: tuple[LayerStage, ...],
    heads: int,
    design: Design,
    demands: PlainDemands,
) -> list[tuple[int, ...]]:
    """The heads of every stage that listen, and last those of the layer beside the last table."""
    found = []
    for depth, stage in enumerate(stages):
        spare = heads - 1 if design.scale_probe and depth == 0 else None
        fetches = layout.fetches(stage, recital.tables[stage.table])
        kind = Heads(heads, heads, design.head_dim, spare)
        found.append(plain_listeners(fetches, kind))
    found.append(tuple(range(heads)) if demands.parallel else ())
    return found if design.scale_probe and not recital.mixed and len(stages) <= DEEPEST else [()] * len(found)


def _write(
    recital: Recital, tokens: SpecialTokens, design: Design, demands: PlainDemands, books: Books,
    stages: tuple[LayerStage, ...], layout: ChannelLayout, heads: int,
) -> PlainDecoder:  # fmt: skip
    rests = [books.states[k].words[0] for k in range(1, len(recital.tables))] + [books.answer.words[recital.unknown]]
    attention, recognising, free = [], [], layout.listening[:-1].tolist()
    listening = _listeners(recital, layout, stages, heads, design, demands)
    for depth, stage in enumerate(stages):
        bits, slots = (2.0, 0.5) if depth % 2 == 0 else (0.5, 2.0)
        spare = heads - 1 if design.scale_probe and depth == 0 else None
        heard = dict(zip(listening[depth], free, strict=False))  # those for which there is a channel
        free = free[len(heard) :]
        kind = Heads(heads, heads, design.head_dim, spare, tuple(head for head in heard if head != spare))
        table = recital.tables[stage.table]
        look = PlainLookingBack(layout, stage, table, kind, design, bits, demands, heard)
        erased = (layout.state[-1], -rests[-1].astype(np.float64)) if design.tied and depth == 0 else None
        attention.append(look.write(erased))
        book = books.states[stage.table]
        recognising.append(PlainRecognising(layout, stage, depth, table, book, design, slots, demands))
    last = dict(zip(listening[-1], free, strict=False))
    idle, kind = LayerStage(stages[-1].table, (), np.arange(0)), Heads(heads, heads, design.head_dim, None, tuple(last))
    beside = PlainLookingBack(layout, idle, recital.tables[-1], kind, design, 2.0, demands, last).write(None)
    free = free[len(last) :]
    units = unit_count(-(-max(part.units_needed for part in recognising) // UNIT_MULTIPLE) * UNIT_MULTIPLE, design)
    mlp = []
    for depth, (stage, part) in enumerate(zip(stages, recognising, strict=True)):
        rest = np.zeros(layout.hidden)
        writing = [k for k, other in enumerate(stages) if other.table == stage.table and len(other.rows)]
        if depth == writing[0]:
            # Where the first rows of a table write: from then on every channel has the size kappa again.
            rest[layout.state[stage.table + 1]] = 2 * design.kappa * rests[stage.table]
        written = writes(recital, books, layout, stage, design.kappa)
        heard_by = free[depth] if depth < len(free) else None
        # The windows of one table run beside the attention of the next stage, which does not wait for their answers.
        along = demands.parallel and len(recital.tables) == 1 and stage is not stages[-1]
        probe, following = design.scale_probe and depth == 0, stages[depth + 1] if along else None
        mlp.append(part.write(units, written, rest, probe=probe, heard=heard_by, beside=following))
    free = [*free[len(stages) :], *[None] * len(stages)]
    embed = embedding(recital, books, layout, tokens, design)
    for block in layout.state[1 : None if not design.tied else -1]:
        embed[:, block] *= -1
    positions = np.zeros((design.reach, layout.hidden))
    if demands.absolute:
        embed[:, layout.extra] = 0.0
        angle = np.outer(np.arange(design.reach), frequencies(demands.rotary, design.theta))
        waves = steady(design.kappa * math.sqrt(2.0) * np.concatenate([np.cos(angle), np.sin(angle)], axis=1))
        cosine, sine = np.split(waves, 2, axis=1)
        for i, wave in enumerate((cosine, sine, -cosine, -sine)):
            positions[:, layout.extra[i::4]] = wave
    norm, lm_head = _last(recital, books, layout, tokens, design, embed)
    watching = zip(recognising, free, strict=False) if demands.parallel else ()
    order = tuple(part.watch(units, heard) for part, heard in watching)
    return PlainDecoder(
        recital, tokens, design, layout, stages, embed, positions, tuple(attention), beside, tuple(mlp), order, norm,
        lm_head, heads, plain_margin(recital, demands),
    )  # fmt: skip


def _last(
    recital: Recital, books: Books, layout: ChannelLayout, tokens: SpecialTokens, design: Design, embed: Floats
) -> tuple[WeightAndBias, Floats]:
    """The last norm and the head. The norm's bias cancels something that would make the failure token win."""
    bias = np.zeros(layout.hidden)
    if design.tied:
        weight = tied_norm(layout, design, embed)
        verdict = layout.constant[-1]
        weight[verdict] /= 2
        bias[verdict] = weight[verdict] * layout.signs[verdict]
        return WeightAndBias(weight, bias), embed
    weight, lm_head = head(recital, books, layout, tokens, design, strict=2.0)
    width = layout.width
    bias[width] = -weight[width] * layout.signs[width]
    lm_head[tokens.failure, width] = 4 * design.logit / len(width) * layout.signs[width]
    return WeightAndBias(weight, bias), lm_head
