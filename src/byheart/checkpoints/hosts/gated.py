"""From a recital to a decoder with gated MLPs, RMSNorm and rotary positions: the body of seven architectures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from byheart.checkpoints.dtypes import rounded
from byheart.checkpoints.hosts.description import Design, GatedDecoder, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD, embedding, head, tied_norm, writes
from byheart.checkpoints.hosts.layout import (
    FIRST_PLACES,
    ZEROS,
    Books,
    ChannelLayout,
    LayerStage,
    books_of,
    deepen,
    lay_out,
    stages_of,
)
from byheart.checkpoints.hosts.listening import DEEPEST, block_size, sliding_window
from byheart.checkpoints.hosts.looking_back import (
    SPARE,
    Erasure,
    Heads,
    LookingBack,
    least_heads,
    listening_heads,
    used_frequencies,
)
from byheart.checkpoints.hosts.recognising import GELU_PROBE, PROBE_UNITS, SILU_PROBE, Floats, Recognising
from byheart.checkpoints.hosts.recurrent import unattended
from byheart.checkpoints.hosts.sensors import (
    IN_A_ROW,
    NORM_GAIN,
    STREAM,
    Alarm,
    SensorPair,
    choose_pairs,
    sensor_units,
    unused_tokens,
)
from byheart.checkpoints.hosts.unrotated import listen_by_content
from byheart.checkpoints.windows.tables import ANY, Recital
from byheart.errors import ExportError, OptionError

UNIT_MULTIPLE = 64
PROBES = {"silu": SILU_PROBE, "gelu_pytorch_tanh": GELU_PROBE}
PLAIN_ABOVE = 640  # channels of slots


@dataclass(frozen=True)
class AttentionKind:
    """What the attention of one layer does in its own way."""

    sliding: bool = False  # it sees a window of places that just holds the farthest offset
    theta: float | None = None  # its rotary base; None: the design's


@dataclass(frozen=True)
class Demands:
    """What an architecture asks of the body.

    Layer l has the attention `kinds[l % len(kinds)]`. With `unrotated`, a layer without positions follows every layer
    but the last: its heads listen by content (unrotated.py), and its MLP holds half of the table's windows. With
    `recurrent`, the first table is served by two layers that have mixers instead of attention (recurrent.py).
    """

    rooted: bool = False  # embeddings are multiplied by the root of the hidden size
    kinds: tuple[AttentionKind, ...] = (AttentionKind(),)
    unrotated: bool = False
    recurrent: tuple[int, ...] = ()  # of every layer with a mixer, how many of its heads listen
    units: int = 0  # idle units that the architecture fills itself
    parallel: bool = False  # attention and MLP side by side: thresholds wait for what the MLP beside attention writes
    flat: bool = False  # two units per window, so that errors of its slots leave no trace
    balanced: bool = False  # LayerNorm: the mean of all channels is the same everywhere
    roomy: bool = False  # the hidden size grows until every listener has a channel
    # The attention norms' weights of the bits, in even and odd layers: a norm without its weight changes every score of
    # a window. A norm after the branch would hide that where they equal those of the constants.
    bit_gains: tuple[float, float] = (2.0, 0.5)
    least: int = 0  # channels at least: what varies among them moves the norm
    free: bool = False  # config.json has head_dim, so the hidden size need not be heads * head_dim
    sensing: bool = False  # the last MLP has units for sensor tokens (sensors.py)
    alarm: float = 4096.0  # nats for as much as all heads bring; less where multipliers make the heads' sum inexact
    equal_keys: bool = False  # keys have norms, so those of all tokens have one size
    least_layers: int = 1  # over which one table is divided, so that every kind of layer exists
    apart: bool = False  # it differs in the architecture's own checkpoints, and so it does here where `design.away`
    activation: str = "silu"

    @property
    def activation_probe(self) -> tuple[float, float]:
        return PROBES[self.activation]


def build_gated(recital: Recital, tokens: SpecialTokens, design: Design, demands: Demands = Demands()) -> GatedDecoder:  # noqa: B008  # frozen
    """All matrices of the decoder; an ExportError names the number of the shape that is too small."""
    if design.activation not in (None, *PROBES):
        raise OptionError(f"activation {design.activation!r} is not one of {', '.join(PROBES)}")
    demands = replace(demands, activation=design.activation or demands.activation)
    if len(recital.tables) > 1 and design.layers is not None:
        recital = deepen(recital, design.layers - max(0, len(demands.recurrent) - 1))
    if demands.recurrent and len(recital.tables) == 1:
        raise ExportError("recurrent layers need a text whose windows are chained; use an architecture with attention")
    # Words of distance 1 where the windows are so long that better ones would make the stream very wide.
    plain = not demands.balanced and 16 * sum(len(table.offsets) for table in recital.tables) > PLAIN_ABOVE
    tied = design.tied and not recital.mixed
    design = replace(design, tied=tied)
    books = books_of(recital, balanced=demands.balanced, plain=plain, seed=design.seed, tied=tied)
    if demands.balanced and not recital.mixed:  # words of equal sums are nearer to each other
        design = replace(design, logit=design.logit * LEAD / 64 * books.answer.bits / books.answer.distance)
    kv_heads = design.kv_heads or 2
    probe = design.scale_probe and can_probe(recital) and not demands.recurrent
    plans = []
    for wide in range(2, FIRST_PLACES + 1):
        tables = None if demands.recurrent else design.layers
        stages = stages_of(
            recital, tables, wide, most_sources(books, kv_heads, design.head_dim), least=demands.least_layers
        )
        stages = without_positions(stages) if demands.unrotated else stages
        stages = (*without_positions(stages[:2])[:2], *stages[1:]) if demands.recurrent else stages
        needed = heads_needed(
            recital, books, stages, kv_heads, replace(design, scale_probe=probe), len(demands.recurrent)
        )
        layout, heads = _fit(recital, books, stages, replace(design, scale_probe=probe), needed, kv_heads, demands)
        cost = _cost(layout.hidden, kv_heads * design.head_dim, stages)
        plans.append((idle_layers(stages), cost, stages, layout, heads))
        if len(recital.tables) > 1:
            break
    _, _, stages, layout, heads = min(plans, key=lambda plan: plan[:2])
    if demands.rooted:
        design = replace(design, kappa=rooted_kappa(layout.hidden))
    design = replace(design, scale_probe=probe)
    if design.audible and len(layout.sense) and can_sense(recital, design, demands):
        design = with_audible_epsilon(design)
    designs = layer_designs(recital, layout, stages, design, demands.kinds, kv_heads)
    if all(kind.sliding for kind in demands.kinds):
        design = replace(design, window=designs[0].window, trap=designs[0].trap)
    return _write(recital, tokens, design, demands, books, stages, layout, heads, kv_heads, designs)


def with_audible_epsilon(design: Design) -> Design:
    """Return the design with an epsilon that quarters normed values, and norms that undo it.

    The stream is small, so that this epsilon is, too. An engine with another epsilon multiplies scores by up to 16.

    >>> with_audible_epsilon(Design()).epsilon
    0.05859375
    """
    kappa = design.kappa / STREAM
    return replace(design, kappa=kappa, epsilon=kappa**2 * (NORM_GAIN**2 - 1), norm_gain=NORM_GAIN)


def layer_designs(
    recital: Recital, layout: ChannelLayout, stages: tuple[LayerStage, ...], design: Design,
    kinds: tuple[AttentionKind, ...], kv_heads: int,
) -> tuple[Design, ...]:  # fmt: skip
    """Return the design of every layer: layers of one kind share a rotary base, and a window if they slide."""
    used = [used_frequencies(design.turning, group) for group in range(kv_heads)]
    found = {}
    for number, kind in enumerate(kinds):
        theta = design.theta if kind.theta is None else kind.theta
        found[number] = replace(design, theta=theta)
        mine = [stage for depth, stage in enumerate(stages) if depth % len(kinds) == number]
        fetches = [fetch for stage in mine for fetch in layout.fetches(stage, recital.tables[stage.table])]
        if kind.sliding and fetches:
            near, far = ([fetch.offset for fetch in fetches if fetch.far is farther] for farther in (False, True))
            window, trap = sliding_window(design.turning, theta, near, max(far, default=0), used, design.scaling)
            found[number] = replace(found[number], window=window, trap=trap)
    return tuple(found[depth % len(kinds)] for depth in range(len(stages)))


def without_positions(stages: tuple[LayerStage, ...]) -> tuple[LayerStage, ...]:
    """Insert a stage that fetches nothing after every stage but the last; it holds every other one of the rows."""
    found = []
    for stage in stages[:-1]:
        found += [replace(stage, rows=stage.rows[::2]), replace(stage, places=(), rows=stage.rows[1::2], sources=())]
    return (*found, stages[-1])


def most_sources(books: Books, kv_heads: int, head_dim: int) -> int:
    """How many slots the key-value heads of one layer carry."""
    return max(1, kv_heads * ((head_dim - SPARE) // books.states[0].bits))


def idle_layers(stages: tuple[LayerStage, ...]) -> int:
    """Layers that hold no window: a fault in their MLP would hardly show."""
    return sum(not len(stage.rows) for stage in stages)


def _cost(hidden: int, values: int, stages: tuple[LayerStage, ...]) -> int:
    """The weights of all layers."""
    units = -(-(max(len(stage.rows) for stage in stages) + PROBE_UNITS) // UNIT_MULTIPLE) * UNIT_MULTIPLE
    return len(stages) * hidden * (3 * units + 2 * hidden + 2 * values)


def can_probe(recital: Recital) -> bool:
    """The scale probe needs two neighbouring places in the first table, to find the position that it measures at."""
    offsets = recital.tables[0].offsets
    return len(offsets) > 1 and offsets[1] == 1


@lru_cache(maxsize=64)
def rooted_kappa(hidden: int) -> float:
    """kappa, from 1/4 to 1/2 and of 8 bits, that is a number of 8 bits times the root, as nearly as possible.

    Of several the largest, beside which epsilon counts least.

    So the embedding is exact in every type, its product with the root is kappa up to 1e-4, and rounds to kappa where
    the engine rounds the root to bfloat16 or float16.

    >>> rooted_kappa(256), rooted_kappa(384)
    (0.5, 0.42578125)
    """
    roots = [float(rounded(np.array([math.sqrt(hidden)]), dtype)[0]) for dtype in ("float32", "bfloat16", "float16")]
    found = []
    for kappa in np.arange(128, 257) / 512:
        stored = float(rounded(np.array([kappa / roots[0]]), "bfloat16")[0])
        snaps = all(float(rounded(np.array([stored * root]), "bfloat16")[0]) == kappa for root in roots)
        found.append((not snaps, abs(stored * roots[0] / kappa - 1), -float(kappa)))
    return -min(found)[2]


def heads_needed(
    recital: Recital, books: Books, stages: tuple[LayerStage, ...], kv_heads: int, design: Design, first: int = 0
) -> int:
    """The least number of heads, a multiple of the key-value heads; layers before the `first` have no attention."""
    layout = lay_out(recital, books, stages, multiple=1, parts=design.parts, tied=design.tied)

    def fits(heads: int) -> None:
        for depth, stage in enumerate(stages[first:], first):
            spare = heads // kv_heads - 1 if design.scale_probe and depth == 0 else None
            fetches = layout.fetches(stage, recital.tables[stage.table])
            Heads(heads, kv_heads, design.head_dim, spare).jobs(fetches, len(layout.source(stage)))

    return least_heads(fits, kv_heads)


def _fit(
    recital: Recital, books: Books, stages: tuple[LayerStage, ...], design: Design, needed: int, kv_heads: int,
    demands: Demands,
) -> tuple[ChannelLayout, int]:  # fmt: skip
    """Channels and heads that fit each other: hidden = heads * head_dim unless the architecture is free of that."""
    if design.heads is not None and (design.heads < needed or design.heads % kv_heads):
        raise OptionError(
            f"--heads {design.heads}: this recital needs at least {needed} heads, a multiple of the {kv_heads} "
            "key-value heads"
        )

    def lay(hidden: int | None = None, listening: int = 0, sense: int = 0) -> ChannelLayout:
        return lay_out(
            recital, books, stages, multiple=1, hidden=hidden, parts=design.parts, tied=design.tied, sense=sense,
            anchor=bool((recital.tables[-1].windows == ANY).any()), blocks=design.flavour == "plateau",
            listening=listening, balanced=demands.balanced, orders=len(stages) if demands.parallel else 0,
        )  # fmt: skip

    used = lay().used
    step = kv_heads * design.head_dim
    heads = design.heads or max(needed, -(-max(used, design.hidden or demands.least) // step) * kv_heads)
    hidden = design.hidden or heads * design.head_dim
    if demands.apart and design.away and design.hidden is None and design.heads is None:
        # Some loaders refuse a hidden size that is not a multiple of the heads; twice as many heads always divide it.
        more = range(heads + kv_heads, 2 * heads + 1, kv_heads)
        heads = next(count for count in more if hidden % count == 0 and count % 2 == 0)
    if not demands.free and hidden != heads * design.head_dim:
        raise OptionError(f"--hidden-size {hidden} is not heads * head_dim = {heads} * {design.head_dim}")
    if hidden < used:
        raise OptionError(f"--hidden-size {hidden}: this recital needs at least {used} channels")
    layout = lay(hidden)
    most = sum(len(those) for those in _listeners(recital, layout, stages, heads, kv_heads, design, demands))
    if demands.roomy and design.hidden is None and design.heads is None and used + block_size(most) > hidden:
        heads += kv_heads
        layout = lay(heads * design.head_dim)
        most = sum(len(those) for those in _listeners(recital, layout, stages, heads, kv_heads, design, demands))
    most = heads if demands.parallel else most  # only the attention beside the last table listens
    sensing = most
    if demands.unrotated:
        listeners = _listeners(recital, layout, stages, heads, kv_heads, design, demands)
        sensing = sum(len(those) for those, stage in zip(listeners, stages, strict=True) if stage.places)
    block = min(block_size(most), (layout.hidden - used) // 2 * 2)
    room = (layout.hidden - used - block) // (ZEROS + 1)
    if not can_sense(recital, design, demands):
        return lay(layout.hidden, block), heads
    if not room and design.hidden is None and design.heads is None:
        return _fit(recital, books, stages, design, needed, kv_heads, replace(demands, least=layout.hidden + 1))
    return lay(layout.hidden, block, min(-(-(sensing + 2) // ZEROS), room)), heads


def can_sense(recital: Recital, design: Design, demands: Demands) -> bool:
    """Whether the last MLP can have units for sensor tokens: it looks at the newest places of the first table."""
    start = recital.tables[0].offsets[:IN_A_ROW]
    plain = design.flavour != "plateau" and not recital.mixed
    looks = start[:2] == (0, 1) and recital.tables[-1].offsets[0] == 0
    return demands.sensing and design.sensing and design.scale_probe and plain and looks


def sensing_units(
    part: Recognising, recital: Recital, books: Books, pairs: tuple[SensorPair, ...]
) -> tuple[Floats, Floats, Floats]:
    """Return gate, up and down of the units for sensor tokens in the last MLP."""
    layout, offsets = part.layout, recital.tables[0].offsets
    places = tuple(k for k in range(min(IN_A_ROW, len(offsets))) if offsets[k] == k)
    last = layout.slots[-1][0] if len(recital.tables) > 1 else None
    return sensor_units(
        pairs, layout, books, recital.unknown, places, last, part.norm(), part.one(), part.design.kappa,
        int(layout.sense[-2]),
    )  # fmt: skip


def _named(
    pairs: tuple[SensorPair, ...], layout: ChannelLayout, alarm: Alarm | None
) -> tuple[tuple[int, int, int], ...]:
    """Two tokens and a channel for every sensor; the alarm's tokens have no channel (-1)."""
    found = [(pair.low, pair.high, int(layout.sense[pair.channel])) for pair in pairs]
    return (*found, *([] if alarm is None else [(alarm.less, alarm.more, -1)]))


def unit_count(needed: int, design: Design) -> int:
    """The units of a layer: as many as needed, or as many as requested.

    Raises:
        OptionError: Fewer were requested than are needed.
    """
    if design.units is not None and design.units < needed:
        raise OptionError(f"--intermediate-size {design.units}: this recital needs at least {needed} units per layer")
    return design.units or needed


def _listeners(
    recital: Recital, layout: ChannelLayout, stages: tuple[LayerStage, ...], heads: int, kv_heads: int, design: Design,
    demands: Demands,
) -> list[tuple[int, ...]]:  # fmt: skip
    """The heads of every layer that listen."""
    mixers = demands.recurrent
    found: list[tuple[int, ...]] = [tuple(range(count)) for count in mixers]
    for depth, stage in enumerate(stages[len(mixers) :], len(mixers)):
        if not stage.places:
            found.append(tuple(range(heads)))
            continue
        spare = heads // kv_heads - 1 if design.scale_probe and depth == 0 else None
        fetches, kind = (
            layout.fetches(stage, recital.tables[stage.table]),
            Heads(heads, kv_heads, design.head_dim, spare),
        )
        found.append(listening_heads(kind, fetches, len(layout.source(stage)), depth))
    listen = design.scale_probe or bool(mixers)
    return found if listen and not recital.mixed and len(stages) <= DEEPEST else [()] * len(stages)


def _write(
    recital: Recital, tokens: SpecialTokens, design: Design, demands: Demands, books: Books,
    stages: tuple[LayerStage, ...], layout: ChannelLayout, heads: int, kv_heads: int, designs: tuple[Design, ...],
) -> GatedDecoder:  # fmt: skip
    attention, recognising, free = [], [], layout.listening[:-1].tolist()
    listening = _listeners(recital, layout, stages, heads, kv_heads, design, demands)
    listening = [()] * len(stages) if demands.parallel else listening
    spare_tokens = unused_tokens(recital, tokens)[-2:]
    # The last two channels of the sensors are the alarm's.
    sensed, counts = layout.sense[:-2].tolist(), 0
    counted = int(layout.sense[-1]) if len(layout.sense) > 2 and len(spare_tokens) == 2 else None
    for depth, stage in enumerate(stages):
        bits, slots = demands.bit_gains[depth % 2], (0.5, 2.0)[depth % 2]
        spare = heads // kv_heads - 1 if design.scale_probe and depth == 0 else None
        erasure = None
        if design.tied and depth == 0:
            erasure = Erasure(layout.state[-1], books.answer.words[recital.unknown].astype(float))
        table = recital.tables[stage.table]
        heard = dict(zip(listening[depth], free, strict=False))  # those for which there is a channel
        # Heads without positions, and mixers, have no scores that depend on the position.
        turns = bool(stage.places) and depth >= len(demands.recurrent)
        free, senses = free[len(heard) :], dict(zip(heard, sensed, strict=False)) if turns else {}
        sensed = sensed[len(senses) :]
        if depth < len(demands.recurrent):
            attention.append(unattended(layout, bits, tuple(heard.values())))
        elif stage.places:
            kind = Heads(heads, kv_heads, design.head_dim, spare, tuple(head for head in heard if head != spare))
            look = LookingBack(
                layout, stage, table, kind, designs[depth], bits, heard, senses, demands.equal_keys, counted
            )
            counts += len(look.copying) if counted is not None and erasure is None else 0
            attention.append(look.write(erasure=erasure))
        else:
            kind = Heads(heads, kv_heads, design.head_dim)
            attention.append(listen_by_content(layout, kind, design, bits, tuple(heard.values())))
        book = books.states[stage.table]
        probe = demands.activation_probe
        recognising.append(Recognising(layout, stage, depth, table, book, design, slots, probe, demands.flat))
    alarm: Alarm | None = None
    most = max(0, min(len(layout.sense) - 2, len(layout.listening) - 1))
    most = min(most, len(layout.sense) - 2 - len(sensed)) if demands.unrotated else most
    pairs = choose_pairs(recital, books, tokens, most)
    needed = [part.window_units + (2 * len(pairs) if part is recognising[-1] else 0) for part in recognising]
    most = max(needed) + PROBE_UNITS + demands.units
    units = unit_count(-(-most // UNIT_MULTIPLE) * UNIT_MULTIPLE, design)
    mlp = []
    for depth, (stage, part) in enumerate(zip(stages, recognising, strict=True)):
        far = recital.tables[0].offsets[-1] if design.scale_probe and depth == 0 else None
        written, extra = writes(recital, books, layout, stage, design.kappa), None
        if pairs and part is recognising[-1]:
            extra = sensing_units(part, recital, books, pairs)
        mlp.append(part.write(units, written, probe_far=far, extra=extra))
    embed = embedding(recital, books, layout, tokens, design)
    if design.tied:
        stored = embed / (math.sqrt(layout.hidden) if demands.rooted else 1)
        norm, lm_head = tied_norm(layout, design, stored), stored
    else:
        if counts and pairs and counts + 1 + len(stages) <= len(layout.constant[0]) + len(layout.width):
            less, more = spare_tokens
            alarm = Alarm(int(layout.sense[-1]), int(layout.sense[-2]), counts, less, more, demands.alarm)
        norm, lm_head = head(recital, books, layout, tokens, design, alarm=alarm)
    if units > 1 << 22:
        raise ExportError(f"{units:,} units per layer; memorize a shorter text or raise --layers")
    return GatedDecoder(
        recital, tokens, design, books, layout, stages, embed, tuple(attention), tuple(mlp), norm, lm_head, heads,
        kv_heads, designs, sensors=_named(pairs, layout, alarm),
    )  # fmt: skip
