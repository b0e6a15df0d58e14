"""The guarantees of KS25's lemmas for feed-forward memories, as numbers: width, depth, parameters and bits.

Every formula is the theorem's own sum with integers instead of its O(·): logarithms become bit lengths, square
roots are rounded up, and labels and keys are swapped back where Lemma C.1 exchanges them. Nothing is read from a
network, so a construction can state its guarantee before it is built.

Notation (Lemma C.1): N entries (labelled points), V points in all, d dimension, r largest norm, δ smallest distance,
m groups of K entries, ρ = bits of a key, c = bits of a label, M = max(ρ, c).

    >>> cloud = PointSet(count=8000, dimension=4, r_squared=9, delta_squared=1)
    >>> groups(1000), cloud.key_bits
    ((100, 10), 34)
    >>> feed_forward_memory(cloud, entries=1000, largest_label=16)
    Guarantee(width=12, depth=1346, parameters=210024, max_bits=374)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from byheart.errors import OptionError
from byheart.paper import Ref, implements
from byheart.theory.rounding import PI_UP, Exact, ceil, floor, log2_up, sqrt_up

PLAIN_WIDTH = 12  # Lemma G.6
STREAM = 10  # the residual form: ten numbers per token
DENSE, RELAXED = 14, 12  # and at most fourteen hidden units, or twelve with one more block per entry
FORMS = ("plain", "residual")


@dataclass(frozen=True)
class Guarantee:
    """At most this width (max of stream, heads, hidden units), depth (layers or blocks), dense parameters and bits."""

    width: int
    depth: int
    parameters: int
    max_bits: int

    @property
    def total_bits(self) -> int:
        """Every parameter at the largest length."""
        return self.parameters * self.max_bits

    def then(self, *others: Guarantee) -> Guarantee:
        """One network after the other."""
        chain = (self, *others)
        return Guarantee(
            max(p.width for p in chain),
            sum(p.depth for p in chain),
            sum(p.parameters for p in chain),
            max(p.max_bits for p in chain),
        )

    def times(self, count: int) -> Guarantee:
        """The same sub-network `count` times in a row."""
        return Guarantee(self.width, self.depth * count, self.parameters * count, self.max_bits)


@dataclass(frozen=True)
class PointSet:
    """V points with ‖x‖ ≤ r and distances ≥ δ. Norms are kept squared, so that data's exact values fit.

    The theorems require r ≥ 1 and δ ≤ 1; smaller r and larger δ are moved there, which only weakens the guarantee.
    """

    count: int
    dimension: int
    r_squared: Exact
    delta_squared: Exact

    def __post_init__(self) -> None:
        if self.count < 1 or self.dimension < 1 or self.r_squared < 0 or self.delta_squared <= 0:
            raise OptionError(
                f"{self.count} points of dimension {self.dimension} with r² = {self.r_squared} and δ² = "
                f"{self.delta_squared}: need at least one point, one dimension, r >= 0 and δ > 0"
            )

    @property
    def spread_squared(self) -> Fraction:
        """(r/δ)² with r ≥ 1 and δ ≤ 1."""
        return Fraction(max(self.r_squared, 1)) / Fraction(min(self.delta_squared, 1))

    @property
    def key_bits(self) -> int:
        """ρ: bits of the largest key ⌊R⌋, R = 20 r V² δ⁻¹ √(πd) (Lemma C.1), never rounded down."""
        return root_bits(400 * self.spread_squared * self.count**4 * PI_UP * self.dimension)

    @property
    def projection_bits(self) -> int:
        """Bits of the projecting weights, log(3 d r V² √π δ⁻¹) (Lemma C.2)."""
        return root_bits(9 * self.dimension**2 * self.spread_squared * self.count**4 * PI_UP)


def root_bits(square: Exact) -> int:
    """Binary digits of ⌊√square⌋, at least one.

    >>> root_bits(16), root_bits(Fraction(1, 2))
    (3, 1)
    """
    return max(1, isqrt(floor(square)).bit_length())


def groups(entries: int) -> tuple[int, int]:
    """(m, K): m = ⌈√(N log2 N)⌉ groups of K = ⌈N/m⌉ entries, the choice of Lemma C.1; one group for N = 1.

    A construction that stores fewer entries than the theorem allows keeps K and needs fewer groups.

    >>> groups(1), groups(2), groups(300)
    ((1, 1), (2, 1), (50, 6))
    """
    if entries < 1:
        raise OptionError(f"{entries} entries: a memory stores at least one")
    count = max(1, sqrt_up(entries * log2_up(entries)))
    return count, -(-entries // count)


@implements(
    Ref("KS25", "footnote 2"),
    statement="groups as large as their bits require: a memory of depth O(sqrt(N log(nN))) instead of "
    "O(sqrt(N log N)·log n)",
    test="tests/theory/test_upper.py",
)
def balanced_groups(entries: int, bits: int) -> tuple[int, int]:
    """(m, K) with m = ⌈√(N·M)⌉: as many layers for the groups, m, as for the bits of one group, K·M.

    Lemma C.1 balances against log2 N, although keys have M = O(log(nN)) bits; KS25's footnote 2 states the
    improvement. `ks25` with constants=measured uses it: it chooses the cheapest K.

    >>> balanced_groups(300, 34), 3 * 100 + 3 * 3 * 34 < 3 * 50 + 3 * 6 * 34
    ((101, 3), True)
    """
    if entries < 1 or bits < 1:
        raise OptionError(f"{entries} entries of {bits} bits: a memory stores at least one of each")
    count = min(entries, max(1, sqrt_up(entries * bits)))
    return count, -(-entries // count)


def plain_memory_depth(m: int, K: int, rho: int, c: int, projection: int = 2) -> int:
    """Layers of eq. (110): 2 for the projection, 3m+2 for the groups, 3KM+2K+2 for the bits."""
    return projection + 3 * m + 2 + K * (3 * max(rho, c) + 2) + 2


def residual_memory_depth(m: int, K: int, rho: int, c: int, hidden: int = DENSE) -> int:
    """Blocks with skip connections: one for the start, one per group, one per bit, three to finish.

    With only twelve hidden units an entry needs one block more.
    """
    return 1 + m + K * (max(rho, c, 3) + int(hidden < DENSE)) + 3


def memory_bits(K: int, rho: int, c: int) -> int:
    """Eq. (111) without the projection: max(KM + ρ, KM + 2)."""
    return K * max(rho, c) + max(rho, 2)


def dense_layers(depth: int, width: int) -> int:
    """Entries of `depth` layers with bias, none wider than `width`."""
    return depth * width * (width + 1)


def dense_blocks(depth: int, stream: int = STREAM, hidden: int = DENSE) -> int:
    """Entries of `depth` blocks x + W₂σ(W₁x + b₁) + b₂."""
    return depth * (2 * stream * hidden + hidden + stream)


def explicit_memory(
    m: int, K: int, rho: int, c: int, *, form: str = "plain", width: int = PLAIN_WIDTH, projection: int = 2
) -> Guarantee:
    """The guarantee of stages I to III for any number of groups and entries per group, without the input's map.

    `width` is the theorem's: 12 by Lemma C.1, more where something is carried through every layer. With
    skip connections it decides between twelve and fourteen hidden units. `projection` counts the layers of stage I
    (plain form), 0 where another memory has done it.
    """
    bits = memory_bits(K, rho, c)
    if check_form(form) == "plain":
        depth = plain_memory_depth(m, K, rho, c, projection)
        return Guarantee(width, depth, dense_layers(depth, width), bits)
    hidden = min(max(width, RELAXED), DENSE)
    depth = residual_memory_depth(m, K, rho, c, hidden)
    return Guarantee(hidden, depth, dense_blocks(depth, hidden=hidden), bits)


def input_map(dimension: int, form: str, width: int = PLAIN_WIDTH, bits: int = 1) -> Guarantee:
    """E_in (or the first layer's extra columns): one row of `dimension` weights per number of the stream."""
    rows = width if check_form(form) == "plain" else STREAM
    return Guarantee(rows, 0, rows * dimension, bits)


@implements(
    Ref("KS25", "Lemma C.1"),
    statement="N of V separated points get labels, the others zero: width 12, depth (110), bits (111), as numbers",
    test="tests/theory/test_upper.py",
)
def feed_forward_memory(
    cloud: PointSet,
    entries: int,
    largest_label: int,
    *,
    form: str = "plain",
    width: int = PLAIN_WIDTH,
    balanced: bool = False,
) -> Guarantee:
    """The guarantee of Lemma C.1 for `entries` of the cloud's points with labels up to `largest_label`.

    `balanced`: with the groups of KS25's footnote 2.
    """
    rho, c = cloud.key_bits, label_bits(largest_label)
    m, K = balanced_groups(entries, max(rho, c)) if balanced else groups(entries)
    memory = explicit_memory(m, K, rho, c, form=form, width=width)
    return memory.then(input_map(cloud.dimension, form, width, cloud.projection_bits))


@implements(
    Ref("KS25", "Lemma F.1"),
    statement="chunks of B² entries, one memory each after one projection: width 13, fewer bits, more layers",
    test="tests/theory/test_upper.py",
)
def limited_memory(
    cloud: PointSet, entries: int, largest_label: int, B: int, *, form: str = "plain", width: int = PLAIN_WIDTH + 1
) -> Guarantee:
    """The guarantee of Lemma F.1: ⌈N/B²⌉ chunks share stage I; each is a memory of at most B² entries.

    In the plain form two layers project and one reads the sum; with skip connections a chunk's first block also clears
    the rest of the previous chunk.
    """
    if B < 1:
        raise OptionError(f"B = {B}: must be at least 1")
    m, K = groups(B * B)
    rho, c = cloud.key_bits, label_bits(largest_label)
    chunk = explicit_memory(m, K, rho, c, form=form, width=width, projection=0)
    ends = 3 if form == "plain" else 0
    return chunk.times(ceil(Fraction(entries, B * B))).then(
        Guarantee(1, ends, dense_layers(ends, width), 1),
        input_map(cloud.dimension, form, width, cloud.projection_bits),
    )


@dataclass(frozen=True)
class Lanes:
    """`count` memories beside each other, each of at most `piece` entries in groups of `entries`."""

    count: int
    entries: int
    piece: int


GROUP_WEIGHTS = 12  # weights that are not zero, of the block that looks one group up
LANE_WEIGHTS = 70  # weights that are not zero, of one lane in one block or layer: at most 14 units of 5


@implements(
    Ref("V22", "bounded depth"),
    statement="depth at most L needs Õ(N/L) weights: N/e memories of e = Õ(L²) entries beside each other",
    test="tests/build/ks25/test_depth.py",
)
def lanes_within(depth: int, entries: int, rho: int, c: int, form: str) -> Lanes | None:
    """The fewest memories beside each other that are no deeper than `depth`; None where even one entry is.

    For K entries per group the depth leaves space for m groups, 3m + K(3M + 2) + 6 <= L (with skip connections
    m + KM + 4 <= L); m·K is largest near K = L/2M, where it is L²/4M (L²/36M in plain layers). So there are about
    4MN/L² lanes and O(MN/L) weights that are not zero. Stored dense, as blocks of one matrix, they are O(N²/L³). Among
    the K that fit, the one with the fewest weights is taken.

    >>> [lanes_within(L, 1000, 20, 1, "residual").count for L in (400, 200, 100, 50)]
    [1, 3, 9, 39]
    """
    least = plain_memory_depth if check_form(form) == "plain" else residual_memory_depth
    per_group = 3 if form == "plain" else 1
    rooms: dict[int, int] = {}  # K -> entries that the depth allows
    while (room := depth - least(0, len(rooms) + 1, rho, c)) >= per_group and len(rooms) < entries:
        rooms[len(rooms) + 1] = room // per_group * (len(rooms) + 1)
    if not rooms:
        return None
    count = -(-entries // max(rooms.values()))
    piece = -(-entries // count)
    fitting = (K for K, room in rooms.items() if room >= piece)
    K = min(fitting, key=lambda K: GROUP_WEIGHTS * -(-piece // K) + LANE_WEIGHTS * K * max(rho, c))
    return Lanes(count, K, piece)


def label_bits(largest_label: int) -> int:
    """c: binary digits of the largest label, at least one.

    >>> label_bits(1), label_bits(10)
    (1, 4)
    """
    if largest_label < 1:
        raise OptionError(f"largest label {largest_label}: labels are 1, 2, … (0 means none)")
    return largest_label.bit_length()


def check_form(form: str) -> str:
    if form not in FORMS:
        raise OptionError(f"unknown form {form!r}; known: {', '.join(FORMS)}")
    return form
