"""Experts: an MLP's windows shared out over several small MLPs, and the router that picks them.

Bits of the newest slot pick a *class* of experts. Every expert of a class holds its share of the class's windows, and
what its units write is divided by the weight that the router gives it. So a router that picks other experts loses
windows, and one that weighs them otherwise writes words of the wrong size. Probes are held by all experts of a class,
each writes its share of the channels; or by the expert that serves every token, which also holds some windows.

A router's logit of an expert is

    constant + level + sum over bits (coefficient * bit)  (+ bias)

With `by_class` the coefficients follow the expert's own class, so the chosen ones differ from each other by their
levels alone, and lead all others by 2 size - (level_0 - level_last).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import GatedDecoder, GatedWeights, fill_idle
from byheart.checkpoints.hosts.ends import writes
from byheart.checkpoints.hosts.gated import PROBES, sensing_units, unit_count
from byheart.checkpoints.hosts.layout import LayerStage
from byheart.checkpoints.hosts.recognising import PROBE_UNITS, Recognising
from byheart.checkpoints.hosts.sensors import SensorPair
from byheart.checkpoints.windows.tables import ANY
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
UNIT_MULTIPLE = 32


@dataclass(frozen=True, eq=False)
class Experts:
    """The experts of an MLP, and its router.

    Attributes:
        members: (classes, used): which expert serves a class at which rank; those that serve none hold no windows.
        coefficients: (experts, bits), what the logits read from the bits that pick a class.
        constants: (experts,), what they read from constant channels: numbers of 8 bits.
        inverses: By rank, what a member's output is multiplied by: the inverse of its weight, a number of 8 bits.
        levels: (experts,), what is added in whole steps of `step`, spread over a block of channels.
        step: A number whose multiples quantizers hold.
        bias: (experts,), the router's bias, or what DeepSeek-V3 adds to scores for the choice alone.
        shared: How many windows of every class the shared expert holds; 0: there is none.
    """

    members: Index
    coefficients: Floats
    constants: Floats
    inverses: tuple[float, ...]
    levels: Index
    step: float = 0.0
    bias: Floats | None = None
    shared: int = 0

    @property
    def count(self) -> int:
        return len(self.constants)

    @property
    def used(self) -> int:
        return int(self.members.shape[1])

    @property
    def bits(self) -> int:
        return int(self.coefficients.shape[1])

    def place(self, expert: int) -> tuple[int, int] | None:
        """The class of an expert, and its rank in it; None where it serves no class."""
        found = np.argwhere(self.members == expert)
        return (int(found[0, 0]), int(found[0, 1])) if len(found) else None


def class_members(count: int, used: int, *, paired: bool = False) -> Index:
    """Which expert serves which class at which rank: `paired`, one after the other; else spread, c, c + classes, ...

    >>> class_members(8, 4).tolist()
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    """
    classes = count // used
    if classes < 1 or count != classes * used or classes & (classes - 1):
        known = ", ".join(str(used * 2**k) for k in range(4))
        raise OptionError(f"--experts {count}: bits pick {used} of them at a time, so give {known}, ...")
    order = np.arange(count)
    return order.reshape(classes, used) if paired else order.reshape(used, classes).T


def by_class(
    members: Index, size: float, levels: Sequence[int], step: float, inverses: tuple[float, ...], *, centred: bool
) -> Experts:
    """Experts whose logits read their own class with a coefficient of `size`.

    Args:
        members: What `class_members` returns.
        size: The coefficient of every bit.
        levels: By rank, in whole steps.
        step: The size of a step.
        inverses: By rank.
        centred: Whether the logit of a class's first expert is 0 for its own tokens.

    Returns:
        The description.
    """
    bits = len(members).bit_length() - 1
    coefficients, levelled = np.zeros((members.size, bits)), np.zeros(members.size, dtype=np.int64)
    for number, row in enumerate(members):
        coefficients[row] = size * class_signs(bits, number)
        levelled[row] = levels
    constants = np.full(members.size, -size * bits if centred else 0.0)
    return Experts(members, coefficients, constants, inverses, levelled, step)


# Softmax makes 1/2, 1/4, 1/8 and 1/8 of these, up to 3e-4: 1420/2048 is nearly ln 2. Engines that store logits in
# bfloat16 change the weights little, since the chosen logits lie between 0 and -1.4.
def four_of(count: int) -> Experts:
    """Return `count` experts of which four serve a token, with weights that are powers of two."""
    members = class_members(count, 4)
    return by_class(members, 2.0, (0, -1420, -2840, -2840), 1 / 2048, (2.0, 4.0, 8.0, 8.0), centred=True)


def three_of(count: int) -> Experts:
    """Return `count` experts of which three serve a token, with the weights 1/2, 1/4 and 1/4."""
    members = class_members(count, 3, paired=True)
    return by_class(members, 2.0, (0, -1420, -1420), 1 / 2048, (2.0, 4.0, 4.0), centred=True)


def biased_four_of(count: int) -> Experts:
    """Return the same where most of a level is the router's bias, a number of 8 bits, and its rows hold the rest."""
    members, levels = class_members(count, 4), -np.log([1.0, 2.0, 4.0, 4.0])
    found = by_class(members, 2.0, (0, 0, 0, 0), 0.0, (2.0, 4.0, 8.0, 8.0), centred=True)
    bias, constants = np.zeros(count), found.constants.copy()
    for rank, level in enumerate(levels):
        bias[members[:, rank]] = -np.round(-level * 128) / 128
        constants[members[:, rank]] += level - bias[members[:, rank]]
    return replace(found, bias=bias, constants=constants)


GROUPS, GROUPS_USED, FACTOR = 4, 2, 2.5
_RAISED, _LOWERED, _DECOY = 0.25, -0.90625, 2.5
# All corrections less 1 change no choice, unless an engine fills groups that lose with 0 instead of minus infinity.
_BELOW = -1.0


def grouped_three_of(count: int) -> Experts:
    """Return `count` experts in four groups, as DeepSeek-V3 chooses them: three of the two groups that win.

    Scores are sigmoids of logits near 2, 3/2 and 0; the third wins only with its correction. Every winning group has
    a decoy that a correction keeps out, and another that would win if its own group did not lose, or if groups were
    judged by their best expert alone.
    """
    if count < 4 * GROUPS or count % GROUPS:
        raise OptionError(f"--experts {count}: {GROUPS} groups want 16 experts, 20, 24, ...")
    each, logits, (beta, gamma) = count // GROUPS, _chosen_logits(), (2.5, 1.75)
    constants, coefficients, bias = np.full(count, -beta - gamma), np.zeros((count, 2)), np.zeros(count)
    members = np.zeros((4, 3), dtype=np.int64)
    for number in range(4):
        b1, b2 = class_signs(2, number)
        first, second = (0, each) if b1 > 0 else (2 * each, 3 * each)  # of the groups that win
        chosen = [first, second, first + 1] if b2 > 0 else [second + 2, second + 3, first + 2]
        members[number] = chosen
        constants[chosen] = np.array(logits) - beta - gamma
        coefficients[chosen] = beta * b1, gamma * b2
        bias[chosen[2]] = _RAISED
        constants[first + 3], bias[first + 3] = _DECOY, _LOWERED
        constants[second + 1], coefficients[second + 1, 0] = 0.0, -gamma * b1
    return Experts(members, coefficients, constants, _inverses(logits), np.zeros(count, dtype=np.int64),
                   bias=bias + _BELOW, shared=12)  # fmt: skip


def _shares(logits: Sequence[float]) -> Floats:
    scores = 1 / (1 + np.exp(-np.array(logits)))
    return np.asarray(FACTOR * scores / scores.sum())


def _inverses(logits: Sequence[float]) -> tuple[float, ...]:
    """One over the weights of the chosen experts, as numbers of 8 bits."""
    mantissa, exponent = np.frexp(1 / _shares(logits))
    return tuple(np.ldexp(np.round(mantissa * 256), exponent - 8).tolist())


@lru_cache(maxsize=1)
def _chosen_logits() -> tuple[float, ...]:
    """Logits near 2, 3/2 and 0, multiples of 1/32, the inverses of whose weights are nearly numbers of 8 bits.

    >>> logits = _chosen_logits()
    >>> float(np.abs(_shares(logits) * _inverses(logits) - 1).max()) < 2e-4
    True
    """
    near = np.arange(-6, 7) / 32
    tried = [(2 + a, 1.5 + b, c) for a in near for b in near for c in near]
    return min(tried, key=lambda logits: float(np.abs(_shares(logits) * _inverses(logits) - 1).max()))


@dataclass(frozen=True, eq=False)
class RoutedLayer:
    """The MLP of one layer: norm weights, the router's rows (experts, hidden), the experts, and the shared one."""

    norm: Floats
    router: Floats
    experts: tuple[GatedWeights, ...]
    shared: GatedWeights | None = None


# (decoder, layer, rows, units, inverse, channels whose probes it writes) -> an expert's matrices
Writer = Callable[[GatedDecoder, int, Index, int, float, "npt.NDArray[np.bool_] | None"], GatedWeights]


def routed_layers(
    decoder: GatedDecoder, experts: Experts, first: int = 0, write: Writer | None = None
) -> list[RoutedLayer]:
    """Return the MLPs of all layers from `first` on with their windows shared out; experts have equally many units.

    Args:
        decoder: The decoder.
        experts: How its windows are shared out.
        first: The first layer with a router.
        write: Writes an expert's matrices; by default those of a gated MLP.

    Returns:
        A layer each.
    """
    write, depths = write or expert_weights, range(first, len(decoder.stages))
    picked = {depth: picking_bits(decoder, decoder.stages[depth], experts.bits) for depth in depths}
    parts = {depth: [_rows_of(decoder, depth, picked[depth], experts, e) for e in range(experts.count)]
             for depth in depths}  # fmt: skip
    together = {depth: _shared_rows(decoder, depth, picked[depth], experts) for depth in depths}
    most = max(len(rows) for depth in depths for rows in (*parts[depth], together[depth]))
    units = expert_units(decoder, most)
    found = []
    for depth in depths:
        norm, router = _router(decoder, depth, picked[depth], experts)
        those = []
        for expert, rows in enumerate(parts[depth]):
            place = experts.place(expert)
            inverse = 1.0 if place is None else experts.inverses[place[1]]
            probes = None if place is None or experts.shared else channels_of(decoder, place[1], experts.used)
            those.append(write(decoder, depth, rows, units, inverse, probes))
        shared = None
        if experts.shared:
            shared = write(decoder, depth, together[depth], units, 1.0, channels_of(decoder, 0, 1))
        found.append(RoutedLayer(norm, router, tuple(those), shared))
    return found


def held_rows(decoder: GatedDecoder, layers: list[RoutedLayer]) -> list[tuple[int, int, int, int]]:
    """(layer, unit, table, row) of every window; units of expert e come after those of the experts before it, those of
    the shared expert last."""
    first = len(decoder.stages) - len(layers)
    return [
        (first + depth, number * len(expert.gate) + unit, stage.table, int(row))
        for depth, (stage, layer) in enumerate(zip(decoder.stages[first:], layers, strict=True))
        for number, expert in enumerate((*layer.experts, *(() if layer.shared is None else (layer.shared,))))
        for unit, row in enumerate(expert.rows.tolist())
    ]


def expert_units(decoder: GatedDecoder, rows: int) -> int:
    """The units of an expert that holds at most so many windows."""
    needed = rows * (2 if decoder.design.flavour == "plateau" else 1) + PROBE_UNITS + 2 * len(_pairs(decoder))
    return unit_count(-(-needed // UNIT_MULTIPLE) * UNIT_MULTIPLE, decoder.design)


def _pairs(decoder: GatedDecoder) -> tuple[SensorPair, ...]:
    """The sensors of a decoder, without the alarm's tokens."""
    channels = decoder.layout.sense.tolist()
    return tuple(SensorPair(low, high, channels.index(at)) for low, high, at in decoder.sensors if at >= 0)


def channels_of(decoder: GatedDecoder, rank: int, used: int) -> npt.NDArray[np.bool_]:
    """The channels whose probes an expert of this rank writes."""
    return np.asarray(np.arange(decoder.hidden) % used == rank)


def newest_words(decoder: GatedDecoder, stage: LayerStage) -> npt.NDArray[np.int8]:
    """The words of the newest symbols (rows, bits)."""
    newest = decoder.recital.tables[stage.table].windows[stage.rows][:, 0]
    if (newest == ANY).any():
        raise OptionError("experts need windows that fix the newest token")
    return decoder.books.states[stage.table].words[newest]


def picking_bits(decoder: GatedDecoder, stage: LayerStage, bits: int) -> Index:
    """The bits that pick the class: those that halve the windows best."""
    return np.argsort(np.abs(newest_words(decoder, stage).sum(axis=0, dtype=np.int64)), kind="stable")[:bits]


def class_signs(bits: int, number: int) -> Floats:
    return np.array([1.0 if number >> k & 1 else -1.0 for k in range(bits)])


def rows_of_class(decoder: GatedDecoder, stage: LayerStage, where: Index, number: int) -> Index:
    """The rows whose newest symbol has the bits of a class."""
    chosen = (newest_words(decoder, stage)[:, where] == class_signs(len(where), number)).all(axis=1)
    return np.asarray(stage.rows[chosen])


def _rows_of(decoder: GatedDecoder, depth: int, where: Index, experts: Experts, expert: int) -> Index:
    place = experts.place(expert)
    if place is None:
        return np.zeros(0, dtype=np.int64)
    rows = rows_of_class(decoder, decoder.stages[depth], where, place[0])
    return rows[experts.shared :][place[1] :: experts.used]


def _shared_rows(decoder: GatedDecoder, depth: int, where: Index, experts: Experts) -> Index:
    stage = decoder.stages[depth]
    classes = [rows_of_class(decoder, stage, where, number)[: experts.shared] for number in range(len(experts.members))]
    return np.concatenate(classes)


def _router(decoder: GatedDecoder, depth: int, where: Index, experts: Experts) -> tuple[Floats, Floats]:
    """The MLP's norm and the router's rows. Levels are whole steps, spread over a block, so that 8-bit weights hold
    them without any error. They are read from the block that this layer will turn, whose weight in the norm no one
    else needs."""
    layout, stage = decoder.layout, decoder.stages[depth]
    slot, block = layout.slots[stage.table][0][where], layout.constant[depth + 1]
    norm = decoder.mlp[depth].norm.copy()
    norm[block] = gain = float(norm[slot[0]]) if len(slot) else 1.0
    router = np.zeros((experts.count, layout.hidden))
    router[:, slot] = experts.coefficients / gain
    router += np.outer(experts.constants, reads_one(decoder, depth))
    for expert in np.flatnonzero(experts.levels).tolist():
        level = abs(int(experts.levels[expert]))
        # Even numbers where a step is too fine for 8 bits.
        unit = 2 if level > 255 * len(block) else 1
        whole = level // unit
        shares = np.full(len(block), whole // len(block)) + (np.arange(len(block)) < whole % len(block))
        sign = -1.0 if experts.levels[expert] > 0 else 1.0  # the block holds minus its signs
        router[expert, block] = sign * experts.step / gain * unit * shares * layout.signs[block]
    return norm, router


def reads_one(decoder: GatedDecoder, depth: int) -> Floats:
    """A row that reads 1 from the `width` channels of a layer's MLP (hidden,)."""
    layout, norm = decoder.layout, decoder.mlp[depth].norm
    row = np.zeros(layout.hidden)
    row[layout.width] = layout.signs[layout.width] / (norm[layout.width[0]] * len(layout.width))
    return row


def expert_weights(
    decoder: GatedDecoder, depth: int, rows: Index, units: int, inverse: float, written: npt.NDArray[np.bool_] | None
) -> GatedWeights:
    """The window units of some rows, times the inverse of the expert's weight, and probes.

    Args:
        decoder: The decoder whose MLP is shared out.
        depth: The layer.
        rows: Rows of the layer's table.
        units: Units of the expert.
        inverse: What its output is multiplied by, because the router's weight divides it again.
        written: The channels whose probes it writes; None: it has no probes.

    Returns:
        The expert's matrices.
    """
    recital, layout, design, stage = decoder.recital, decoder.layout, decoder.design, decoder.stages[depth]
    own = replace(stage, rows=rows)
    gain = 0.5 if depth % 2 == 0 else 2.0
    book = decoder.books.states[stage.table]
    probe = PROBES[design.activation or "silu"]
    table = recital.tables[stage.table]
    part = Recognising(layout, own, depth, table, book, design, gain, probe)
    # Thresholds are read through the norm, which all experts share, so all of them have the layer's level.
    whole = Recognising(layout, stage, depth, table, book, design, gain, probe)
    part.level, part.anchored = whole.level, whole.anchored
    far = recital.tables[0].offsets[-1] if design.scale_probe and depth == 0 else None
    pairs, extra = _pairs(decoder), None
    if pairs and written is not None and depth == len(decoder.stages) - 1:
        extra = sensing_units(part, recital, decoder.books, pairs)
    found = part.write(units, writes(recital, decoder.books, layout, own, design.kappa), probe_far=far, extra=extra)
    down = found.down * inverse
    down[:, part.window_units :][~written if written is not None else slice(None)] = 0.0
    return GatedWeights(found.norm, found.gate, found.up, fill_idle(down, units - 1), found.rows)
