"""Experts: an MLP's windows shared out over several small MLPs, and the router that picks them.

Bits of the newest slot pick a *class* of experts. Every expert of a class holds its share of the class's windows, and
what its units write is divided by the weight that the router gives it. So a router that picks other experts loses
windows, and one that weighs them otherwise writes words of the wrong size. Probes are held by all experts of a class:
each writes its share of the channels.

The router's logit of expert (class c, rank k) is, for a token whose bits are those of class b,

    bits * size * (agreeing bits - differing bits) (- bits * size, if `centred`)  + level_k

so the chosen ones differ from each other by their levels alone, and lead all others by 2 size - (level_0 - level_last).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import GatedDecoder, GatedWeights, fill_idle
from byheart.checkpoints.hosts.ends import writes
from byheart.checkpoints.hosts.gated import PROBES, unit_count
from byheart.checkpoints.hosts.layout import LayerStage
from byheart.checkpoints.hosts.recognising import PROBE_UNITS, Recognising
from byheart.checkpoints.windows.tables import ANY
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
UNIT_MULTIPLE = 32


@dataclass(frozen=True)
class Experts:
    """How many experts an MLP has and how its router weighs the chosen ones.

    `levels` are the router's logits of a class's experts, in whole steps of `step` nats; `inverses` those of the
    weights that softmax makes of them, as numbers of 8 bits. `paired` numbers the experts of a class one after the
    other; otherwise they are spread: c, c + classes, c + 2 classes, ...
    """

    count: int
    levels: tuple[int, ...]
    step: float
    inverses: tuple[float, ...]
    bit_size: float
    centred: bool = False
    paired: bool = False

    def __post_init__(self) -> None:
        classes = self.count // self.used
        if classes < 1 or self.count != classes * self.used or classes & (classes - 1):
            known = ", ".join(str(self.used * 2**k) for k in range(4))
            raise OptionError(f"--experts {self.count}: bits pick {self.used} of them at a time, so give {known}, ...")

    @property
    def used(self) -> int:
        return len(self.levels)

    @property
    def bits(self) -> int:
        return (self.count // self.used).bit_length() - 1

    def place(self, expert: int) -> tuple[int, int]:
        """The class of an expert, and its rank in it."""
        classes = self.count // self.used
        return divmod(expert, self.used) if self.paired else (expert % classes, expert // classes)


# Softmax makes 1/2, 1/4, 1/8 and 1/8 of these, up to 3e-4: 1420/2048 is nearly ln 2. Engines that store logits in
# bfloat16 change the weights little, since the chosen logits lie between 0 and -1.4.
def four_of(count: int) -> Experts:
    """Return `count` experts of which four serve a token, with weights that are powers of two."""
    return Experts(count, (0, -1420, -2840, -2840), 1 / 2048, (2.0, 4.0, 8.0, 8.0), 2.0, centred=True)


@dataclass(frozen=True, eq=False)
class RoutedLayer:
    """The MLP of one layer: norm weights, the router's rows (experts, hidden), and the experts."""

    norm: Floats
    router: Floats
    experts: tuple[GatedWeights, ...]


def routed_layers(decoder: GatedDecoder, experts: Experts) -> list[RoutedLayer]:
    """Return the MLPs of all layers with their windows shared out; all experts have the same number of units."""
    picked = [picking_bits(decoder, stage, experts.bits) for stage in decoder.stages]
    parts = [
        [_rows_of(decoder, stage, where, experts, expert) for expert in range(experts.count)]
        for stage, where in zip(decoder.stages, picked, strict=True)
    ]
    units = expert_units(decoder, max(len(rows) for those in parts for rows in those))
    found = []
    for depth, where in enumerate(picked):
        norm, router = _router(decoder, depth, where, experts)
        ranks = [experts.place(expert)[1] for expert in range(experts.count)]
        those = [
            expert_weights(
                decoder, depth, rows, units, experts.inverses[rank], channels_of(decoder, rank, experts.used)
            )
            for rows, rank in zip(parts[depth], ranks, strict=True)
        ]
        found.append(RoutedLayer(norm, router, tuple(those)))
    return found


def held_rows(decoder: GatedDecoder, layers: list[RoutedLayer]) -> list[tuple[int, int, int, int]]:
    """(layer, unit, table, row) of every window; units of expert e come after those of the experts before it."""
    return [
        (depth, number * len(expert.gate) + unit, stage.table, int(row))
        for depth, (stage, layer) in enumerate(zip(decoder.stages, layers, strict=True))
        for number, expert in enumerate(layer.experts)
        for unit, row in enumerate(expert.rows.tolist())
    ]


def expert_units(decoder: GatedDecoder, rows: int) -> int:
    """The units of an expert that holds at most so many windows."""
    needed = rows * (2 if decoder.design.flavour == "plateau" else 1) + PROBE_UNITS
    return unit_count(-(-needed // UNIT_MULTIPLE) * UNIT_MULTIPLE, decoder.design)


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


def _rows_of(decoder: GatedDecoder, stage: LayerStage, where: Index, experts: Experts, expert: int) -> Index:
    number, rank = experts.place(expert)
    return rows_of_class(decoder, stage, where, number)[rank :: experts.used]


def _router(decoder: GatedDecoder, depth: int, where: Index, experts: Experts) -> tuple[Floats, Floats]:
    """The MLP's norm and the router's rows. Levels are whole steps, spread over a block, so that 8-bit weights hold
    them without any error. They are read from the block that this layer will turn, whose weight in the norm nobody
    else needs."""
    layout, stage = decoder.layout, decoder.stages[depth]
    slot, block = layout.slots[stage.table][0][where], layout.constant[depth + 1]
    norm = decoder.mlp[depth].norm.copy()
    norm[block] = gain = float(norm[slot[0]]) if len(slot) else 1.0
    one = layout.signs[layout.width] / (norm[layout.width[0]] * len(layout.width))  # reads 1
    router = np.zeros((experts.count, layout.hidden))
    for expert in range(experts.count):
        number, rank = experts.place(expert)
        level = abs(experts.levels[rank])
        # Even numbers where a step is too fine for 8 bits.
        unit = 2 if level > 255 * len(block) else 1
        whole = level // unit
        shares = np.full(len(block), whole // len(block)) + (np.arange(len(block)) < whole % len(block))
        sign = -1.0 if experts.levels[rank] > 0 else 1.0  # the block holds minus its signs
        router[expert, slot] = experts.bit_size / gain * class_signs(len(where), number)
        router[expert, block] = sign * experts.step / gain * unit * shares * layout.signs[block]
        if experts.centred:
            router[expert, layout.width] = -experts.bit_size * len(where) * one
    return norm, router


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
    found = part.write(units, writes(recital, decoder.books, layout, own, design.kappa), probe_far=far)
    down = found.down * inverse
    down[:, part.window_units :][~written if written is not None else slice(None)] = 0.0
    return GatedWeights(found.norm, found.gate, found.up, fill_idle(down, units - 1), found.rows)
