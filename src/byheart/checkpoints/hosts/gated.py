"""From a recital to a decoder with gated MLPs, RMSNorm and rotary positions: the body of seven architectures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from byheart.checkpoints.dtypes import rounded
from byheart.checkpoints.hosts.description import Design, GatedDecoder, SpecialTokens
from byheart.checkpoints.hosts.ends import embedding, head, tied_norm, writes
from byheart.checkpoints.hosts.layout import (
    FIRST_PLACES,
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
from byheart.checkpoints.hosts.recognising import GELU_PROBE, PROBE_UNITS, SILU_PROBE, Recognising
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
    but the last: its heads listen by content (unrotated.py), and its MLP holds half of the table's windows.
    """

    rooted: bool = False  # embeddings are multiplied by the root of the hidden size
    kinds: tuple[AttentionKind, ...] = (AttentionKind(),)
    unrotated: bool = False
    units: int = 0  # idle units that the architecture fills itself
    roomy: bool = False  # the hidden size grows until every listener has a channel
    # The attention norms' weights of the bits, in even and odd layers: a norm without its weight changes every score of
    # a window. A norm after the branch would hide that where they equal those of the constants.
    bit_gains: tuple[float, float] = (2.0, 0.5)
    free: bool = False  # config.json has head_dim, so the hidden size need not be heads * head_dim
    apart: bool = False  # it differs in the architecture's own checkpoints, and so it does here where `design.away`
    activation: str = "silu"

    @property
    def activation_probe(self) -> tuple[float, float]:
        return PROBES[self.activation]


def build_gated(recital: Recital, tokens: SpecialTokens, design: Design, demands: Demands = Demands()) -> GatedDecoder:  # noqa: B008  # frozen
    """All matrices of the decoder; an ExportError says which number of the shape is too small."""
    if design.activation not in (None, *PROBES):
        raise OptionError(f"activation {design.activation!r} is not one of {', '.join(PROBES)}")
    demands = replace(demands, activation=design.activation or demands.activation)
    if len(recital.tables) > 1 and design.layers is not None:
        recital = deepen(recital, design.layers)
    # Words of distance 1 where the windows are so long that better ones would make the stream very wide.
    plain = 16 * sum(len(table.offsets) for table in recital.tables) > PLAIN_ABOVE
    tied = design.tied and not recital.mixed
    design = replace(design, tied=tied)
    books = books_of(recital, balanced=False, plain=plain, seed=design.seed, tied=tied)
    kv_heads = design.kv_heads or 2
    probe = design.scale_probe and can_probe(recital)
    plans = []
    for wide in range(2, FIRST_PLACES + 1):
        stages = stages_of(recital, design.layers, wide, most_sources(books, kv_heads, design.head_dim))
        stages = without_positions(stages) if demands.unrotated else stages
        needed = heads_needed(recital, books, stages, kv_heads, replace(design, scale_probe=probe))
        layout, heads = _fit(recital, books, stages, replace(design, scale_probe=probe), needed, kv_heads, demands)
        cost = _cost(layout.hidden, kv_heads * design.head_dim, stages)
        plans.append((idle_layers(stages), cost, stages, layout, heads))
        if len(recital.tables) > 1:
            break
    _, _, stages, layout, heads = min(plans, key=lambda plan: plan[:2])
    if demands.rooted:
        design = replace(design, kappa=rooted_kappa(layout.hidden))
    design = replace(design, scale_probe=probe)
    designs = layer_designs(recital, layout, stages, design, demands.kinds, kv_heads)
    if all(kind.sliding for kind in demands.kinds):
        design = replace(design, window=designs[0].window, trap=designs[0].trap)
    return _write(recital, tokens, design, demands, books, stages, layout, heads, kv_heads, designs)


def layer_designs(
    recital: Recital, layout: ChannelLayout, stages: tuple[LayerStage, ...], design: Design,
    kinds: tuple[AttentionKind, ...], kv_heads: int,
) -> tuple[Design, ...]:  # fmt: skip
    """Return the design of every layer: layers of one kind share a rotary base, and a window if they slide."""
    used = [used_frequencies(design.head_dim, group) for group in range(kv_heads)]
    found = {}
    for number, kind in enumerate(kinds):
        theta = design.theta if kind.theta is None else kind.theta
        found[number] = replace(design, theta=theta)
        mine = [stage for depth, stage in enumerate(stages) if depth % len(kinds) == number]
        fetches = [fetch for stage in mine for fetch in layout.fetches(stage, recital.tables[stage.table])]
        if kind.sliding and fetches:
            near, far = ([fetch.offset for fetch in fetches if fetch.far is farther] for farther in (False, True))
            window, trap = sliding_window(design.head_dim, theta, near, max(far, default=0), used, design.scaling)
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


def heads_needed(recital: Recital, books: Books, stages: tuple[LayerStage, ...], kv_heads: int, design: Design) -> int:
    """The least number of heads, a multiple of the key-value heads."""
    layout = lay_out(recital, books, stages, multiple=1, parts=design.parts, tied=design.tied)

    def fits(heads: int) -> None:
        for depth, stage in enumerate(stages):
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

    def lay(hidden: int | None = None, listening: int = 0) -> ChannelLayout:
        return lay_out(
            recital, books, stages, multiple=1, hidden=hidden, parts=design.parts, tied=design.tied,
            anchor=bool((recital.tables[-1].windows == ANY).any()), blocks=design.flavour == "plateau",
            listening=listening,
        )  # fmt: skip

    used = lay().used
    step = kv_heads * design.head_dim
    heads = design.heads or max(needed, -(-max(used, design.hidden or 0) // step) * kv_heads)
    hidden = design.hidden or heads * design.head_dim
    if demands.apart and design.away and design.hidden is None and design.heads is None:
        # Some loaders refuse a hidden size that is not a multiple of the heads; twice as many heads always divide it.
        heads = next(more for more in range(heads + kv_heads, 2 * heads + 1, kv_heads) if hidden % more == 0)
    if not demands.free and hidden != heads * design.head_dim:
        raise OptionError(f"--hidden-size {hidden} is not heads * head_dim = {heads} * {design.head_dim}")
    if hidden < used:
        raise OptionError(f"--hidden-size {hidden}: this recital needs at least {used} channels")
    layout = lay(hidden)
    most = sum(len(those) for those in _listeners(recital, layout, stages, heads, kv_heads, design))
    if demands.roomy and design.hidden is None and design.heads is None and used + block_size(most) > hidden:
        heads += kv_heads
        layout = lay(heads * design.head_dim)
        most = sum(len(those) for those in _listeners(recital, layout, stages, heads, kv_heads, design))
    return lay(layout.hidden, min(block_size(most), (layout.hidden - used) // 2 * 2)), heads


def unit_count(needed: int, design: Design) -> int:
    """The units of a layer: as many as needed, or as many as were asked for.

    Raises:
        OptionError: Fewer were asked for than are needed.
    """
    if design.units is not None and design.units < needed:
        raise OptionError(f"--intermediate-size {design.units}: this recital needs at least {needed} units per layer")
    return design.units or needed


def _listeners(
    recital: Recital, layout: ChannelLayout, stages: tuple[LayerStage, ...], heads: int, kv_heads: int, design: Design
) -> list[tuple[int, ...]]:
    """The heads of every layer that listen."""
    found: list[tuple[int, ...]] = []
    for depth, stage in enumerate(stages):
        if not stage.places:
            found.append(tuple(range(heads)))
            continue
        spare = heads // kv_heads - 1 if design.scale_probe and depth == 0 else None
        fetches, kind = (
            layout.fetches(stage, recital.tables[stage.table]),
            Heads(heads, kv_heads, design.head_dim, spare),
        )
        found.append(listening_heads(kind, fetches, len(layout.source(stage)), depth))
    return found if design.scale_probe and not recital.mixed and len(stages) <= DEEPEST else [()] * len(stages)


def _write(
    recital: Recital, tokens: SpecialTokens, design: Design, demands: Demands, books: Books,
    stages: tuple[LayerStage, ...], layout: ChannelLayout, heads: int, kv_heads: int, designs: tuple[Design, ...],
) -> GatedDecoder:  # fmt: skip
    attention, recognising, free = [], [], layout.listening[:-1].tolist()
    listening = _listeners(recital, layout, stages, heads, kv_heads, design)
    for depth, stage in enumerate(stages):
        bits, slots = demands.bit_gains[depth % 2], (0.5, 2.0)[depth % 2]
        spare = heads // kv_heads - 1 if design.scale_probe and depth == 0 else None
        erasure = None
        if design.tied and depth == 0:
            erasure = Erasure(layout.state[-1], books.answer.words[recital.unknown].astype(float))
        table = recital.tables[stage.table]
        heard = dict(zip(listening[depth], free, strict=False))  # those for which there is a channel
        free = free[len(heard) :]
        if stage.places:
            kind = Heads(heads, kv_heads, design.head_dim, spare, tuple(head for head in heard if head != spare))
            look = LookingBack(layout, stage, table, kind, designs[depth], bits, heard)
            attention.append(look.write(erasure=erasure))
        else:
            kind = Heads(heads, kv_heads, design.head_dim)
            attention.append(listen_by_content(layout, kind, design, bits, tuple(heard.values())))
        book = books.states[stage.table]
        recognising.append(Recognising(layout, stage, depth, table, book, design, slots, demands.activation_probe))
    most = max(part.window_units for part in recognising) + PROBE_UNITS + demands.units
    units = unit_count(-(-most // UNIT_MULTIPLE) * UNIT_MULTIPLE, design)
    mlp = []
    for depth, (stage, part) in enumerate(zip(stages, recognising, strict=True)):
        far = recital.tables[0].offsets[-1] if design.scale_probe and depth == 0 else None
        mlp.append(part.write(units, writes(recital, books, layout, stage, design.kappa), probe_far=far))
    embed = embedding(recital, books, layout, tokens, design)
    if design.tied:
        stored = embed / (math.sqrt(layout.hidden) if demands.rooted else 1)
        norm, lm_head = tied_norm(layout, design, stored), stored
    else:
        norm, lm_head = head(recital, books, layout, tokens, design)
    if units > 1 << 22:
        raise ExportError(f"{units:,} units per layer; memorize a shorter text or raise --layers")
    return GatedDecoder(
        recital, tokens, design, books, layout, stages, embed, tuple(attention), tuple(mlp), norm, lm_head, heads,
        kv_heads, designs,
    )  # fmt: skip
