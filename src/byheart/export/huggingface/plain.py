"""From a recital to a decoder with LayerNorm, biases and an MLP without a gate: the body of GPT-2, OPT and GPT-NeoX.

Words and constants are balanced, so LayerNorm's mean is zero and it is RMSNorm. Each window has two units,
act(g) - act(g - 8) with g = 16 at the match: a plateau, so errors of the slots leave no trace.

Every bias carries a part that matters: half of what a slot loses comes from the attention's output bias, a state's rest
comes from the MLP's second bias, the second unit of a plateau needs its first one, and one unit watches the norm's.

GPT-2 and OPT have learned positions. Their table holds (cos, sin, -cos, -sin) of theta_f t, which queries rotate: a
head's score is the same trigonometric polynomial of the distance as with rotary positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.errors import ExportError, OptionError
from byheart.export.huggingface.codes import CodeBook
from byheart.export.huggingface.description import Design, Tokens, fill_idle
from byheart.export.huggingface.ends import embedding, head, tied_norm, writes
from byheart.export.huggingface.gated import can_probe
from byheart.export.huggingface.layout import METER, Books, Layout, Stage, books_of, deepen, lay_out, stages_of
from byheart.export.huggingface.looking_back import CONSTANT_GAIN, Heads, Job, amplitude, favour
from byheart.export.huggingface.rotary import Wave, frequencies, look_back
from byheart.ir.recital import ANY, Recital, Table

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
UNIT_MULTIPLE = 64
_SPARE = 5  # dimensions of a value that carry no bits: half of a constant, BOS, the verdict, a constant, one idle
_SHARP, _STEP = 16.0, 8.0
_SHARE = 0.25  # of a threshold that constants hold
_TOLERANCE, _SHARPNESS = 0.08, 1024.0
# (pre-activation, activation) of the probes: places where bfloat16 and float16 hold the activation to 1e-4, and where
# the cheap form x sigmoid(1.702 x) is a third larger. gelu's two forms differ by 1e-3 there.
GELU = (-123 / 64, -123 / 64 * 0.5 * math.erfc(123 / 64 / math.sqrt(2)))
GELU_TANH = (-125 / 64, -0.049556536391646894)
RELU = (1.0, 1.0)


@dataclass(frozen=True)
class PlainDemands:
    """What an architecture asks: its probe, learned or rotary positions, and whether MLP and attention are parallel."""

    probe: tuple[float, float]
    absolute: bool
    rotary: int = 32  # dimensions of a head that turn with the position
    parallel: bool = False


@dataclass(frozen=True, eq=False)
class Linear:
    weight: Floats
    bias: Floats


@dataclass(frozen=True, eq=False)
class PlainAttention:
    norm: Linear
    query: Linear
    key: Linear
    value: Linear
    output: Linear


@dataclass(frozen=True, eq=False)
class PlainMLP:
    norm: Linear
    first: Linear
    second: Linear
    rows: Index


@dataclass(frozen=True, eq=False)
class PlainDecoder:
    """A whole decoder; `positions` is (reach, hidden), zero where positions are rotary. `order` has the MLPs of the
    attention layers where attention and MLP are parallel."""

    recital: Recital
    tokens: Tokens
    design: Design
    layout: Layout
    stages: tuple[Stage, ...]
    embedding: Floats
    positions: Floats
    attention: tuple[PlainAttention, ...]
    mlp: tuple[PlainMLP, ...]
    order: tuple[PlainMLP, ...]
    norm: Linear
    head: Floats
    heads: int

    @property
    def hidden(self) -> int:
        return self.layout.hidden

    @property
    def units(self) -> int:
        return int(self.mlp[0].first.weight.shape[0])


class PlainLookingBack:
    """Writes one attention layer; every head has its own keys and values."""

    def __init__(self, layout: Layout, stage: Stage, offsets: tuple[int, ...], heads: Heads, design: Design,
                 gain: float, demands: PlainDemands) -> None:  # fmt: skip
        self.layout, self.heads, self.design, self.gain, self.demands = layout, heads, design, gain, demands
        self.source, targets = layout.source(stage), layout.targets(stage, offsets)
        self.offsets, self.targets = tuple(o for o, _ in targets), [target for _, target in targets]
        free = [h for h in range(heads.count) if h != heads.spare]
        self.jobs = heads._share(free, len(self.offsets), np.arange(len(self.source)))
        if max(len(job.bits) for job in self.jobs) + _SPARE > heads.dimension:
            raise ExportError(f"{len(self.offsets)} places of {len(self.source)} bits need more heads; raise --heads")
        size = heads.count * heads.dimension
        self.weight = {name: np.zeros((size, layout.hidden)) for name in ("query", "key", "value")}
        self.bias = {name: np.zeros(size) for name in ("query", "key", "value")}
        self.output, self.output_bias = np.zeros((layout.hidden, size)), np.zeros(layout.hidden)
        self.norm, self.norm_bias = np.ones(layout.hidden), np.zeros(layout.hidden)
        self.norm[layout.constant[0]] = self.norm[layout.width] = CONSTANT_GAIN
        self.norm[layout.extra] = CONSTANT_GAIN
        self.norm[self.source] = self.norm[layout.first] = self.norm[layout.constant[-1]] = gain
        # Half of a bit: with a whole one some values would be 0, and rounding snaps to any number but that.
        self.norm_bias[self.source] = gain / 2 * layout.signs[self.source]
        self.norm_bias[layout.extra] = np.where(np.arange(len(layout.extra)) % 4 < 2, 0.25, -0.25)
        self.ones = layout.signs[layout.constant[0]] / (CONSTANT_GAIN * len(layout.constant[0]))
        self.first = layout.signs[layout.first] / (gain * len(layout.first))

    def write(self, erased: tuple[Index, Floats] | None) -> PlainAttention:
        for job in self.jobs:
            self._write_job(job, erased)
        if self.heads.spare is not None:
            self._write_probe()
        column = int(self.layout.constant[0][0])
        parts = {n: Linear(fill_idle(self.weight[n], column), self.bias[n]) for n in ("query", "key", "value")}
        output = Linear(fill_idle(self.output, self.heads.dimension - 1), self.output_bias)
        return PlainAttention(Linear(self.norm, self.norm_bias), **parts, output=output)

    def _write_job(self, job: Job, erased: tuple[Index, Floats] | None) -> None:
        layout, size, start = self.layout, self.design.kappa / self.gain, job.head * self.heads.dimension
        self._scores(start, self._wave(self.offsets[job.place]))
        count, source, slot = len(job.bits), self.source[job.bits], self.targets[job.place][job.bits]
        rows = start + np.arange(count)
        self.weight["value"][rows, source] = 1.0
        self.bias["value"][rows] = -self.norm_bias[source]
        self.bias["value"][start + count], self.bias["value"][start + count + 3] = self.gain / 2, self.gain
        self.weight["value"][start + count + 1, layout.first] = self.gain * self.first
        # A slot held its signs: one half of them goes by the head's constant, the other by the output's bias.
        self.output[slot, rows] = size
        self.output[slot, start + count] = -size * layout.signs[slot]
        self.output_bias[slot] = -self.design.kappa / 2 * layout.signs[slot]
        if erased is not None and self.offsets[job.place] == 0:
            self._erase(job, start, count, rows, *erased)

    def _erase(self, job: Job, start: int, count: int, rows: Index, block: Index, rest: Floats) -> None:
        layout, size, verdict = self.layout, self.design.kappa / self.gain, self.layout.constant[-1]
        self.output[block[job.bits], rows] = -size
        self.output[block[job.bits], start + count + 3] = size * rest[job.bits]
        if 0 in job.bits:
            self.weight["value"][start + count + 2, verdict] = layout.signs[verdict] / len(verdict)
            self.output[verdict, start + count + 3] = -size * layout.signs[verdict]
            self.output[verdict, start + count + 2] = -size * layout.signs[verdict]
            self.output[layout.mark, start + count + 3] = size * layout.signs[layout.mark]
            self.output[layout.mark, start + count + 2] = size * layout.signs[layout.mark]

    def _wave(self, offset: int) -> Wave:
        return look_back(self.demands.rotary, self.design.theta, offset, self.design.reach)

    def _scores(self, start: int, wave: Wave) -> None:
        """Queries and keys of one head, from positions in the stream or for an engine that rotates them."""
        pairs, layout = self.demands.rotary // 2, self.layout
        key = np.sqrt(wave.sizes / wave.sizes.max())
        size = amplitude(wave.gap, self.design.gap) * math.sqrt(self.heads.dimension)
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

    def _write_probe(self) -> None:
        """The scale probe, at a dimension that does not turn."""
        layout, d, size = self.layout, self.heads.dimension, self.design.kappa / self.gain
        start, still = (self.heads.spare or 0) * d, self.demands.rotary
        self.weight["key"][start + still, layout.first] = self.first / 2
        scale = math.log(favour(self.offsets[-1])) * math.sqrt(d)
        self.weight["query"][start + still, layout.constant[0]] = scale * self.ones
        self.weight["value"][start, layout.first] = self.gain * self.first
        side = np.where(np.arange(len(layout.meter)) < len(layout.meter) // 2, 1.0, -1.0)
        self.output[layout.meter, start] = METER * size / 2 * side * layout.signs[layout.meter]
        self.output_bias[layout.meter] = METER * self.design.kappa / 2 * side * layout.signs[layout.meter]
        for flag, place in zip(np.split(layout.flags, 2), (-1, -2), strict=True):
            job = next(job for job in self.jobs if job.place == len(self.offsets) + place)
            where = job.head * d + len(job.bits)
            self.output[flag, where + 1] = size * layout.signs[flag]
            self.output_bias[flag] = self.design.kappa * layout.signs[flag]


class PlainRecognising:
    """Writes one MLP: two units per window, the probes, and the rest word of the state in the second bias."""

    def __init__(self, layout: Layout, stage: Stage, depth: int, table: Table, book: CodeBook, design: Design,
                 gain: float, demands: PlainDemands) -> None:  # fmt: skip
        self.layout, self.stage, self.depth, self.design, self.gain = layout, stage, depth, design, gain
        self.demands, self.m = demands, 2.0 ** math.floor(math.log2(book.distance))
        windows = table.windows[stage.rows]
        closed = windows != ANY
        words = book.words[np.where(closed, windows, 0)].astype(np.float64) * closed[:, :, None]
        self.patterns = words.reshape(len(windows), words.shape[1] * words.shape[2])
        self.totals = closed.sum(axis=1) * float(book.bits)
        self.level = float(len(table.offsets) * book.bits) - self.m
        self.slots = np.concatenate(layout.slots[stage.table])
        # A part of the threshold is read from constants that must have been turned before: unturned they wake windows
        # that do not match. The rest is a bias, which has no error.
        self.sources = [layout.constant[depth]]
        if demands.parallel:
            tables = len(layout.order) // 2
            self.sources += [layout.order[depth]] + ([layout.order[tables + depth]] if depth else [])
        self.shares = self._shares()

    def _shares(self) -> tuple[float, ...]:
        """How much of the threshold each block of constants holds: less where errors have grown."""
        if not self.demands.parallel or self.depth == 0:
            return (_SHARE,) * len(self.sources)
        part = _SHARE / (4 if len(self.layout.mixed) else 8)
        return (part,) + (part / 2,) * (len(self.sources) - 1)

    @property
    def units_needed(self) -> int:
        return 2 * len(self.patterns) + 8

    def norm(self) -> Linear:
        """A part of every threshold is read from constants."""
        norm = _watched_norm(self.layout)
        norm.weight[self.slots] = self.gain
        for block, share in zip(self.sources, self.shares, strict=True):
            norm.weight[block] = self.gain * share * self.level / len(block)
        return norm

    def write(self, units: int, written: Floats, rest: Floats, *, probe: bool) -> PlainMLP:
        """`written` (hidden, rows) is what the unit of each row adds, `rest` (hidden,) what is always added."""
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
        self._activation(bias, second, 2 * count)
        turned = self.layout.constant[self.depth + 1]
        _watch_norm(self.layout, first[2 * count + 5], second[2 * count + 5], turned, self.design.kappa)
        bias[2 * count + 5] = -_STEP
        if probe:
            self._scale(first, bias, second, 2 * count + 3)
        column = int(self.layout.constant[0][0])
        out = Linear(fill_idle(np.ascontiguousarray(second.T), units - 1), rest)
        return PlainMLP(self.norm(), Linear(fill_idle(first, column), bias), out, np.tile(self.stage.rows, 2))

    def _activation(self, bias: Floats, second: Floats, unit: int) -> None:
        turned = self.layout.constant[self.depth + 1]
        target = 2 * self.design.kappa / self.demands.probe[1]
        mantissa, exponent = math.frexp(target)
        high = math.ldexp(round(mantissa * 256) / 256, exponent)
        bias[unit] = bias[unit + 1] = self.demands.probe[0]
        second[unit, turned] = high * self.layout.signs[turned]
        second[unit + 1, turned] = (target - high) * self.layout.signs[turned]
        if self.demands.probe[0] > 0:  # relu: also a unit that must stay silent
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

    def watch(self, units: int) -> PlainMLP:
        """The MLP beside the attention: it must see the slots still unwritten, and turns order[l] then."""
        layout, hidden = self.layout, self.layout.hidden
        first, bias, second = np.zeros((units, hidden)), np.zeros(units), np.zeros((units, hidden))
        gain, signs, block, constant = 2.0, layout.signs, layout.order[self.depth], layout.constant[0]
        whole, size = float(len(self.slots)), _SHARP / (2.0 * self.m)
        level = whole - self.m
        share = self.design.kappa  # of the turn: these units do one half of it, the second bias the other
        norm = _watched_norm(layout)
        norm.weight[self.slots], norm.weight[constant] = gain, gain * level / len(constant)
        for k in range(3):
            first[k, self.slots], first[k, constant] = size * signs[self.slots], -size * signs[constant]
            bias[k] = -(0.0, _STEP, 3 * _STEP)[k]
        _watch_norm(layout, first[3], second[3], block, self.design.kappa)
        bias[3] = -_STEP
        # And one that wakes where the slots are written already: this MLP runs after the attention, not beside it.
        first[4, self.slots], bias[4] = -2 * _STEP / (gain * whole) * signs[self.slots], _STEP
        second[4, layout.constant[self.depth]] = -self.design.kappa * signs[layout.constant[self.depth]]
        for k, change in enumerate((1.0, -1.0, -1.0)):  # the third unit must stay silent
            second[k, block] = change / _STEP * share * signs[block]
        rest = np.zeros(hidden)
        rest[block] = share * signs[block]
        column = int(layout.constant[0][0])
        out = Linear(fill_idle(np.ascontiguousarray(second.T), units - 1), rest)
        return PlainMLP(norm, Linear(fill_idle(first, column), bias), out, np.arange(0))


def _watched_norm(layout: Layout) -> Linear:
    """A norm whose bias takes the `width` channels away."""
    norm = Linear(np.ones(layout.hidden), np.zeros(layout.hidden))
    norm.bias[layout.width] = -layout.signs[layout.width]
    return norm


def _watch_norm(layout: Layout, first: Floats, second: Floats, block: Index, kappa: float) -> None:
    """A unit that stays silent at -8 unless the `width` channels come through: then the norm's bias was forgotten."""
    first[layout.width] = 2 * _STEP / len(layout.width) * layout.signs[layout.width]
    second[block] = -127 / 128 * kappa * layout.signs[block]  # what turns the block, kappa/8, is then 16 steps of 127


def build_plain(recital: Recital, tokens: Tokens, design: Design, demands: PlainDemands) -> PlainDecoder:
    """All matrices of the decoder; an ExportError says which number of the shape is too small."""
    if len(recital.tables) > 1 and design.layers is not None:
        recital = deepen(recital, design.layers // (2 if demands.parallel else 1))
    stages = stages_of(recital, None if len(recital.tables) > 1 else design.layers)
    design = replace(
        design, tied=design.tied and not recital.mixed, scale_probe=design.scale_probe and can_probe(recital)
    )
    books = books_of(recital, balanced=True, plain=False, seed=design.seed, tied=design.tied)
    # The right token's lead is to be 32 or 80 nats, whatever the code: these networks lose more of it to rounding.
    # Log-probabilities want smaller logits.
    lead = 32.0 if not demands.parallel else 48.0 if recital.mixed else 80.0
    design = replace(design, logit=lead / 2 * books.answer.bits / books.answer.distance)
    layout, heads = _fit(recital, books, stages, design, demands)
    return _write(recital, tokens, design, demands, books, stages, layout, heads)


def _fit(
    recital: Recital, books: Books, stages: tuple[Stage, ...], design: Design, demands: PlainDemands
) -> tuple[Layout, int]:
    def lay(hidden: int | None = None) -> Layout:
        return lay_out(
            recital, books, stages, multiple=1, hidden=hidden, parts=design.parts, tied=design.tied, balanced=True,
            extra=2 * demands.rotary if demands.absolute else 0, orders=2 * len(stages) if demands.parallel else 0,
        )  # fmt: skip

    room = design.head_dim - _SPARE
    needed = max(
        (len(stage.places) if stage.step is None else 1) * -(-len(lay().source(stage)) // room) for stage in stages
    ) + (1 if design.scale_probe else 0)
    heads = design.heads or max(needed, -(-max(lay().used, design.hidden or 0) // design.head_dim))
    if heads < needed:
        raise OptionError(f"--heads {heads}: this recital needs at least {needed} heads")
    if design.hidden is not None and design.hidden != heads * design.head_dim:
        raise OptionError(f"--hidden-size {design.hidden} is not heads * head_dim = {heads} * {design.head_dim}")
    if design.kv_heads not in (None, heads):
        raise OptionError(f"--kv-heads {design.kv_heads}: here each of {heads} heads has its own keys and values")
    return lay(heads * design.head_dim), heads


def _write(
    recital: Recital, tokens: Tokens, design: Design, demands: PlainDemands, books: Books, stages: tuple[Stage, ...],
    layout: Layout, heads: int,
) -> PlainDecoder:  # fmt: skip
    rests = [books.states[k].words[0] for k in range(1, len(recital.tables))] + [books.answer.words[recital.unknown]]
    attention, recognising = [], []
    for depth, stage in enumerate(stages):
        bits, slots = (2.0, 0.5) if depth % 2 == 0 else (0.5, 2.0)
        spare = heads - 1 if design.scale_probe and depth == 0 else None
        table, kind = recital.tables[stage.table], Heads(heads, heads, design.head_dim, spare)
        look = PlainLookingBack(layout, stage, table.offsets, kind, design, bits, demands)
        erased = (layout.state[-1], -rests[-1].astype(np.float64)) if design.tied and depth == 0 else None
        attention.append(look.write(erased))
        book = books.states[stage.table]
        recognising.append(PlainRecognising(layout, stage, depth, table, book, design, slots, demands))
    units = -(-max(part.units_needed for part in recognising) // UNIT_MULTIPLE) * UNIT_MULTIPLE
    mlp = []
    for depth, (stage, part) in enumerate(zip(stages, recognising, strict=True)):
        rest = np.zeros(layout.hidden)
        if stage.table < len(recital.tables) - 1 or depth == len(stages) - 1:
            rest[layout.state[stage.table + 1]] = 2 * design.kappa * rests[stage.table]
        written = writes(recital, books, layout, stage, design.kappa)
        mlp.append(part.write(units, written, rest, probe=design.scale_probe and depth == 0))
    embed = embedding(recital, books, layout, tokens, design)
    for block in layout.state[1 : None if not design.tied else -1]:
        embed[:, block] *= -1
    positions = np.zeros((design.reach, layout.hidden))
    if demands.absolute:
        embed[:, layout.extra] = 0.0
        angle = np.outer(np.arange(design.reach), frequencies(demands.rotary, design.theta))
        for i, wave in enumerate((np.cos(angle), np.sin(angle), -np.cos(angle), -np.sin(angle))):
            positions[:, layout.extra[i::4]] = design.kappa * math.sqrt(2.0) * wave
    norm, lm_head = _last(recital, books, layout, tokens, design, embed)
    order = tuple(part.watch(units) for part in recognising) if demands.parallel else ()
    return PlainDecoder(
        recital, tokens, design, layout, stages, embed, positions, tuple(attention), tuple(mlp), order, norm, lm_head,
        heads,
    )  # fmt: skip


def _last(
    recital: Recital, books: Books, layout: Layout, tokens: Tokens, design: Design, embed: Floats
) -> tuple[Linear, Floats]:
    """The last norm and the head. The norm's bias cancels something that would make the failure token win."""
    bias = np.zeros(layout.hidden)
    if design.tied:
        weight = tied_norm(layout, design, embed)
        verdict = layout.constant[-1]
        weight[verdict] /= 2
        bias[verdict] = weight[verdict] * layout.signs[verdict]
        return Linear(weight, bias), embed
    weight, lm_head = head(recital, books, layout, tokens, design, strict=2.0)
    width = layout.width
    bias[width] = -weight[width] * layout.signs[width]
    lm_head[tokens.failure, width] = 4 * design.logit / len(width) * layout.signs[width]
    return Linear(weight, bias), lm_head
