"""The guarantees of KS25's constructions, with the paper's constants and with constants measured on the data.

constants=paper: the theorem's numbers for N, n, d, C, r and δ, from `byheart.theory.theorems`.

constants=measured: the same sums, with facts of the data instead of the theorem's worst case. A `Part` is a memory
of some entries, with keys of ρ bits and labels of c bits; facts that are known before building bound all three:

- distinct multisets and contexts instead of N and nN;
- points on a grid of s₁ × … × s_d go to a line by mixed radix, with keys up to 2·∏ s_j + 2 (below Lemma C.2's R);
- ids are sums of n token labels, so where every context has its own multiset, keys are at most 2·n·C_φ + 2.

m groups of K entries then give the theorem's depth (110) and bits (111); K is the one with the fewest parameters. The
builder may find shorter keys and divide them otherwise, but stays below every number of the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from math import isqrt
from typing import Any

from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.exact.number import Values
from byheart.ir.size import Claim
from byheart.paper import Ref
from byheart.theory import theorems
from byheart.theory.guarantees import choice, guarantees
from byheart.theory.theorems import (
    LIMITED_WIDTH,
    PLAIN_STREAM,
    TRANSFORMER_WIDTH,
    Setting,
    attention_layer,
    output_map,
    worst_case,
)
from byheart.theory.upper import (
    LANE_WEIGHTS,
    PLAIN_WIDTH,
    STREAM,
    Guarantee,
    Lanes,
    PointSet,
    dense_blocks,
    dense_layers,
    explicit_memory,
    groups,
    input_map,
    label_bits,
    lanes_within,
)

ONE = Fraction(1)
SHAPES = ("fitted", "uniform")  # of ks25: each block as it needs to be, or all as eq. (4) has them
LONGEST_GRID = 60  # bits of a grid's size up to which the builder tries mixed radix
SHORTEST = 3  # key bits below which the residual scan does not go
MEASURED_FORMULAS = {
    "width": "the theorem's width",
    "depth": "the theorem's sum, eq. (110), with bounds from the data on entries, key bits rho and label bits c, and "
    "the number K of entries per group that costs least",
    "parameters": "depth times a dense layer or block of the guaranteed width, plus the input and output maps",
    "max_bits": "eq. (111) with the same K, rho and c: K·max(rho, c) + rho, or the projection's bits (Lemma C.2, or "
    "twice the length of the largest key)",
}
PAPER_FORMULAS = {
    "width": "the theorem's width",
    "depth": "eq. (110) for each memory: 2 + (3m + 2) + (3K·max(rho, c) + 2K + 2), m = ⌈sqrt(N log N)⌉, K = ⌈N/m⌉ "
    "(with skip connections 1 + m + K·max(rho, c) + 3), plus the attention layers",
    "parameters": "depth times a dense layer or block of the guaranteed width, plus the input and output maps",
    "max_bits": "eq. (111): K·max(rho, c) + rho, or the projection's bits",
}
LIMITED_FORMULAS = {
    "depth": "Lemma F.1 for each memory: ⌈N/B²⌉ pieces of eq. (110) with N replaced by B² and one projection, plus 1",
    "max_bits": "eq. (111) with N replaced by B²: K·max(rho, c) + rho, K = ⌈B²/⌈B·sqrt(2 log B)⌉⌉",
}

EMBEDDING_FORMULAS = {
    "parameters": "a table of omega rows, and depth times a dense layer or block of the guaranteed width",
    "depth": "the averaging layer and eq. (110) for one memory, with R = 200·sqrt(3)·n^2·N^5·omega·pi",
}


@dataclass(frozen=True)
class Part:
    """One memory: at most this many entries, with keys below 2^key_bits and labels below 2^label_bits."""

    entries: int
    key_bits: int
    label_bits: int

    def guarantee(self, form: str, width: int, projection: int = 2, piece: int | None = None) -> Guarantee:
        """Eq. (110) and (111) with the K that costs least; `piece`: K is that of Lemma C.1 for this many entries."""
        entries = self.entries if piece is None else min(self.entries, piece)
        K = cheapest(entries, self.key_bits, self.label_bits, form, width) if piece is None else groups(piece)[1]
        m = -(-entries // K)
        return explicit_memory(m, K, self.key_bits, self.label_bits, form=form, width=width, projection=projection)

    @property
    def line_bits(self) -> int:
        """Weights of the line of the keys: at most twice as long as the largest key."""
        return 2 * self.key_bits


def cheapest(entries: int, key_bits: int, label_bits: int, form: str, width: int) -> int:
    """K, the entries per group with the fewest parameters in m = ⌈entries / K⌉ groups.

    >>> cheapest(2000, 30, 4, "residual", 14)
    8
    """

    def cost(K: int) -> int:
        return explicit_memory(-(-entries // K), K, key_bits, label_bits, form=form, width=width).parameters

    return min(range(1, 2 + 4 * isqrt(max(1, entries))), key=cost)


def setting_of(dataset: Dataset) -> Setting:
    """The numbers that the theorems are about; r >= 1 and delta <= 1 are seen to by `PointSet`."""
    found = dataset.separation
    return worst_case(
        dataset.N,
        dataset.n,
        dataset.d,
        dataset.C,
        r_squared=found.r_squared,
        delta_squared=found.delta_squared or ONE,
        every_token=dataset.encoder.task is Task.SEQ_TO_SEQ,
    )


def grid_key_bits(points: Values) -> int | None:
    """ρ where the points lie on a small grid: keys by mixed radix are at most 2·∏ s_j + 2. None where they do not.

    >>> grid_key_bits(Values.of([[0, 0], [0, 1], [1, 0]]))
    4
    """
    lowest = points.numerators.min(axis=0)
    offsets = points.numerators - lowest
    common = math.gcd(*offsets.ravel().tolist())
    unit = common & -common or 1
    sizes = [int(high) // unit + 1 for high in offsets.max(axis=0)]
    product = math.prod(sizes)
    if product.bit_length() > LONGEST_GRID:
        return None
    bits = (2 * product + 2).bit_length()
    scale = 2 * product * max(1, -(-points.denominator // unit))  # no weight is longer, nor the bias than `shift`
    shift = sum(scale * abs(int(low)) for low in lowest) // points.denominator + 2
    return bits if max(scale, shift).bit_length() <= 2 * bits else None


def line_key_bits(points: Values, cloud: PointSet) -> int:
    """ρ of points on a line: Lemma C.2's, or the grid's where that is shorter."""
    return min(cloud.key_bits, grid_key_bits(points) or cloud.key_bits)


def token_part(dataset: Dataset, form: str) -> Part:
    """The memory of token labels: at most one token for each distinct multiset, labels by the repaired Lemma B.2."""
    found, points = dataset.separation, dataset.inputs.points
    cloud = PointSet(points.count, dataset.d, found.r_squared, found.delta_squared or ONE)
    multisets = dataset.contexts.multisets
    labels = label_bits(theorems.token_labels(multisets))
    return _part(min(multisets, points.count), line_key_bits(points, cloud), labels, form)


def context_part(dataset: Dataset, form: str) -> Part:
    """The memory of labels: one entry per context, keys from ids, or from (x, id) where several share a multiset."""
    contexts = dataset.contexts
    ids = dataset.n * theorems.token_labels(contexts.multisets)
    if contexts.multisets == len(contexts):
        key_bits = _integer_key_bits(ids, len(contexts))
    else:
        x = 1 << token_part(dataset, form).key_bits
        key_bits = PointSet(len(contexts), 2, x**2 + ids**2, 1).key_bits
    return _part(len(contexts), key_bits, label_bits(dataset.C), form)


def _integer_key_bits(largest: int, count: int) -> int:
    """ρ of different integers from 0 to `largest`."""
    if largest.bit_length() < LONGEST_GRID:
        return (2 * largest + 4).bit_length()
    return PointSet(count, 1, largest**2, 1).key_bits


def _part(entries: int, key_bits: int, labels: int, form: str) -> Part:
    shortest = SHORTEST if form == "residual" else 2
    return Part(max(1, entries), max(key_bits, shortest), labels)


def measured(dataset: Dataset, form: str, width: int, mixing: Guarantee | None, piece: int | None = None) -> Guarantee:
    """Both memories, the maps around them, and attention (None for deep sets, whose sum has no parameters)."""
    setting = setting_of(dataset)
    token, label = token_part(dataset, form), context_part(dataset, form)
    points = replace(setting, points=dataset.inputs.points.count).tokens
    maps = [
        input_map(setting.d, form, width, max(points.projection_bits, token.line_bits)),
        input_map(setting.attended.dimension, form, width, max(setting.attended.projection_bits, label.line_bits)),
        output_map(width),
    ]
    middle = [] if mixing is None else [mixing]
    return _pieces(token, form, width, piece).then(*middle, _pieces(label, form, width, piece), *maps)


def _pieces(part: Part, form: str, width: int, piece: int | None) -> Guarantee:
    """One memory, or Lemma F.1's pieces of this many entries that share one projection."""
    if piece is None:
        return part.guarantee(form, width)
    ends = 3 if form == "plain" else 0
    chunk = part.guarantee(form, width, 0, piece)
    return chunk.times(-(-part.entries // piece)).then(Guarantee(1, ends, dense_layers(ends, width), 1))


def star_guarantee(n: int, form: str) -> Guarantee:
    """Two attention layers and the stream of the global token."""
    width = PLAIN_STREAM if form == "plain" else STREAM
    return attention_layer(n, form, layers=2).then(Guarantee(width, 0, width, (2 * n + 4).bit_length()))


def star_connections(n: int) -> int:
    """Pairs (query, key) of both layers of the star: (n + n + 1) + (2n + 1).

    >>> star_connections(10)
    42
    """
    return 4 * n + 2


def _style(options: Mapping[str, Any]) -> tuple[str, bool]:
    """(form, whether the constants are the paper's)."""
    choice(options, "attention", "uniform", "softmax", "hardmax")
    return choice(options, "form", "residual", "plain"), choice(options, "constants", "measured", "paper") == "paper"


def _claim(ref: Ref, found: Guarantee, paper: bool, width: int | None = None, **changed: Any) -> Claim:
    bounds = {
        "width": found.width if width is None else width,
        "depth": found.depth,
        "parameters": found.parameters,
        "max_bits": found.max_bits,
    }
    words = dict(PAPER_FORMULAS if paper else MEASURED_FORMULAS)
    return replace(Claim(ref, bounds, words), **changed)


def _task(dataset: Dataset, *tasks: Task) -> Task:
    if dataset.encoder.task not in tasks:
        raise OptionError(f"nothing is guaranteed for the task {dataset.encoder.task}")
    return dataset.encoder.task


@guarantees("ks25")
def ks25(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Theorem B.1, or Corollary 4.1 for one label per token."""
    form, paper = _style(options)
    s, every = setting_of(dataset), _task(dataset, Task.NEXT_TOKEN, Task.SEQ_TO_SEQ) is Task.SEQ_TO_SEQ
    if paper:
        found = theorems.transformer(s, form)
    else:
        found = measured(dataset, form, TRANSFORMER_WIDTH, attention_layer(s.n, form))
    uniform, mapped = choice(options, "shape", *SHAPES) == "uniform", choice(options, "input_map", True, False)
    ref, depth = Ref("KS25", "Corollary 4.1" if every else "Theorem B.1"), bounded_by(options, paper)
    if depth is not None and depth < found.depth:
        return _bounded(ref, dataset, depth, form)
    if mapped and not uniform:
        return _claim(ref, found, paper)
    claim = _claim(ref, in_other_shape(found, s.d, uniform, mapped), paper)
    formulas = {**claim.formulas, "parameters": SHAPE_FORMULA}
    if not uniform:
        return replace(claim, formulas=formulas)
    L = claim.bounds["depth"] // 2
    return replace(claim, bounds={**claim.bounds, "blocks": L}, formulas={**formulas, **UNIFORM_FORMULAS})


Need = tuple[int, int, int]  # entries, key bits, label bits


def shared_depth(depth: int, token: Need, label: Need, form: str, attention: int = 1) -> tuple[Lanes, Lanes] | None:
    """How many lanes each of the two memories has when both and attention are no deeper than `depth`; None if too deep.

    >>> shared_depth(300, (50, 12, 10), (1000, 20, 1), "residual")
    (Lanes(count=1, entries=2, piece=50), Lanes(count=2, entries=3, piece=500))
    """
    best: tuple[int, int, Lanes, Lanes] | None = None
    for first in range(1, depth - 1):
        lanes = lanes_within(first, *token, form)
        rest = lanes_within(depth - attention - first, *label, form)
        if lanes is None or rest is None:
            continue
        cost = (max(lanes.count, rest.count), lanes.count + rest.count)
        if best is None or cost < best[:2]:
            best = (*cost, lanes, rest)
    return None if best is None else best[2:]


def least_depth(need: Need, form: str) -> int:
    """The fewest layers or blocks in which one entry can be looked up.

    >>> least_depth((1000, 20, 1), "residual"), lanes_within(24, 1000, 20, 1, "residual")
    (25, None)
    """
    return next(depth for depth in count(1) if lanes_within(depth, *need, form) is not None)


def too_shallow(depth: int, what: str, least: int) -> OptionError:
    return OptionError(
        f"depth={depth}: {what} may need {least} layers for a single entry (a few less once they are built); "
        f"the least that can be guaranteed is depth={least}"
    )


def lanes_guarantee(depth: int, lanes: int, d: int, form: str, bits: int, attention: int = 1) -> dict[str, int]:
    """Return the bounds of a network of this depth with so many lanes; `bits` are those of the projection."""
    stream = STREAM + (STREAM - 2) * (lanes - 1)
    width = TRANSFORMER_WIDTH * lanes
    maps = max(stream, width) * (d + 4 * theorems.HEAD * attention + 2 + (attention > 1))  # two share a global token
    layers = dense_layers(depth, width) if form == "plain" else dense_blocks(depth, stream, width)
    weights = LANE_WEIGHTS * lanes * depth + d + 20 * lanes
    return {"width": width, "depth": depth, "parameters": layers + maps, "nonzero": weights, "max_bits": depth + bits}


LANE_FORMULAS = {
    "width": "14 per lane",
    "depth": "as requested",
    "parameters": "depth times a dense layer or block of all lanes, plus the maps: O(N²/L³)",
    "nonzero": "V22's Õ(N/L): at most 70 weights per lane and layer or block, about 4MN/L² lanes (plain: 36MN/L²)",
    "max_bits": "a word has at most as many bits as the depth, and a key more; or the projection's bits",
}


def _bounded(ref: Ref, dataset: Dataset, depth: int, form: str, attention: int = 1) -> Claim:
    token, label = token_part(dataset, form), context_part(dataset, form)
    needs = [(part.entries, part.key_bits, part.label_bits) for part in (token, label)]
    found = shared_depth(depth, needs[0], needs[1], form, attention)
    # keys of the data may be shorter than guaranteed: where the guaranteed ones are too deep, a lane for each entry
    lanes = max(lanes.count for lanes in found) if found else max(token.entries, label.entries)
    s = replace(setting_of(dataset), points=dataset.inputs.points.count)
    bits = max(s.tokens.projection_bits, s.attended.projection_bits, token.line_bits, label.line_bits)
    return Claim(ref, lanes_guarantee(depth, lanes, s.d, form, bits, attention), dict(LANE_FORMULAS))


NO_PAPER_DEPTH = "constants=paper has the theorem's one memory with its number of groups, and so its depth"


def bounded_by(options: Mapping[str, Any], paper: bool) -> int | None:
    """The option `depth`: a bound on the depth, or none."""
    depth = options.get("depth")
    if depth is not None and (type(depth) is not int or depth < 1 or paper):
        raise OptionError(f"depth={depth!r}: give a number of layers, with constants=measured ({NO_PAPER_DEPTH})")
    return depth


UNIFORM_FORMULAS = {
    "depth": "2L layers: an attention layer and a feed-forward layer in each of L blocks",
    "blocks": "L, KS25's depth (Section 3.2): the guaranteed depth of the blocks in other shapes",
}
SHAPE_FORMULA = "eq. (4), md + L(4msH + 2mq + q + m) + m, m = 10 (without E_in m = d), s = H = 1, q = 14, L blocks"


def in_other_shape(found: Guarantee, d: int, uniform: bool, mapped: bool) -> Guarantee:
    """The guarantee of `ks25` for eq. (4)'s shape, or without E_in (Remark 3.1): then one more block on a stream of d.

    >>> in_other_shape(Guarantee(14, 101, 31000, 40), d=4, uniform=True, mapped=True)
    Guarantee(width=14, depth=200, parameters=34450, max_bits=40)
    """
    m, blocks = (STREAM, found.depth - 1) if mapped else (d, found.depth)
    heads = blocks if uniform else 1  # the averaging layer shares the block after it
    parameters = (m * d if mapped else 0) + dense_blocks(blocks, m) + heads * 4 * m + m
    return Guarantee(max(found.width, m), blocks + heads, parameters, found.max_bits + (not mapped))


@guarantees("ks25-sparse")
def ks25_sparse(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Remark 4.5: two attention layers over a star."""
    form, paper = _style(options)
    s = setting_of(dataset)
    _task(dataset, Task.NEXT_TOKEN, Task.SEQ_TO_SEQ)
    star = star_guarantee(s.n, form)
    found = theorems.sparse(s, form) if paper else measured(dataset, form, TRANSFORMER_WIDTH, star)
    ref, depth, properties = (
        Ref("KS25", "Remark 4.5"),
        bounded_by(options, paper),
        (f"connections: {star_connections(dataset.n)}",),
    )
    if depth is not None and depth < found.depth:
        return replace(_bounded(ref, dataset, depth, form, attention=2), properties=properties)
    return _claim(ref, found, paper, properties=properties)


def token_id_count(dataset: Dataset) -> int:
    """omega: how many token ids there are, the padding among them; with positions on, symbol and position together."""
    codes = len(dataset.encoder.symbols or ()) + 1
    return codes * (dataset.encoder.length if dataset.encoder.positions else 1)


def id_part(dataset: Dataset, form: str, omega: int) -> Part:
    """The label memory after a table of token ids: as `context_part`, with x below omega."""
    contexts = dataset.contexts
    ids = dataset.n * theorems.token_labels(contexts.multisets)
    if contexts.multisets == len(contexts):
        key_bits = _integer_key_bits(ids, len(contexts))
    else:
        key_bits = PointSet(len(contexts), 2, omega**2 + ids**2, 1).key_bits
    return _part(len(contexts), key_bits, label_bits(dataset.C), form)


@guarantees("ks25-embedding")
def ks25_embedding(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Theorem E.1: a table of omega rows, attention, one memory."""
    form, paper = _style(options)
    s, omega = setting_of(dataset), token_id_count(dataset)
    _task(dataset, Task.NEXT_TOKEN, Task.SEQ_TO_SEQ)
    if dataset.encoder.symbols is None:
        raise OptionError("a table of token ids needs symbols")
    if paper:
        found = theorems.with_embedding(s, omega, form)
    else:
        stream = PLAIN_STREAM if form == "plain" else STREAM
        part = id_part(dataset, form, omega)
        bits = max(theorems.token_labels(s.N).bit_length(), omega.bit_length())
        entrance = input_map(3, form, TRANSFORMER_WIDTH, max(s.attended.projection_bits, part.line_bits))
        memory = part.guarantee(form, TRANSFORMER_WIDTH).then(entrance, output_map(TRANSFORMER_WIDTH))
        found = Guarantee(stream, 0, stream * omega, bits).then(attention_layer(s.n, form), memory)
    claim = _claim(Ref("KS25", "Theorem E.1"), found, paper, TRANSFORMER_WIDTH)
    return replace(claim, formulas={**claim.formulas, **EMBEDDING_FORMULAS}) if paper else claim


@guarantees("ks25-sets")
def ks25_sets(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Theorem D.1; the blocks of width 12 take one more per entry than those of width 14."""
    form, paper = _style(options)
    s = setting_of(dataset)
    _task(dataset, Task.SET)
    if paper:
        found = theorems.deep_set(s, form)
        more = 0 if form == "plain" else 2 * groups(s.N)[1]
        found = Guarantee(found.width, found.depth + more, found.parameters + dense_blocks(more), found.max_bits)
    else:
        found = measured(dataset, form, PLAIN_WIDTH, None)
    return _claim(Ref("KS25", "Theorem D.1"), found, paper, PLAIN_WIDTH)


@guarantees("ks25-limited")
def ks25_limited(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Theorem F.1 for the B that was chosen; a requested limit on bits is guaranteed, too."""
    form, paper = _style(options)
    s, B, most = setting_of(dataset), options.get("bits_parameter"), options.get("max_bits")
    _task(dataset, Task.NEXT_TOKEN)
    if type(B) is not int or not 1 <= B <= isqrt(s.N) or not isinstance(most, int | None):
        raise OptionError(f"bits_parameter={B!r} and max_bits={most!r} are not recorded by ks25-limited")
    if paper:
        found = theorems.limited_bits(s, B, form)
    else:
        found = measured(dataset, form, LIMITED_WIDTH, attention_layer(s.n, form), piece=B * B)
    claim = _claim(Ref("KS25", "Theorem F.1"), found, paper, LIMITED_WIDTH)
    if paper:
        claim = replace(claim, formulas={**claim.formulas, **LIMITED_FORMULAS})
    if most is not None and most < claim.bounds["max_bits"]:
        claim = replace(
            claim,
            bounds={**claim.bounds, "max_bits": most},
            formulas={**claim.formulas, "max_bits": "the requested largest length"},
        )
    return claim
