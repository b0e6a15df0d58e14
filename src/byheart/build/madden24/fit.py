"""Shared parts of the decoder constructions: the requested shape, the target logits, the decoder with its numbers.

>>> name(MixerKind.ATTENTION), name(MixerKind.AVERAGE)
('madden24', 'madden24-average')

Contexts become single numbers, because self-attention and token averaging with dimension 1 are injective for generic
weights.

>>> tokens = np.array([[0, -1], [1, -1], [0, 1], [1, 0]])
>>> draw = draw_separating(tokens, vocabulary_size=2, mixing=average_numbers, seed=0)
>>> injectivity(draw.numbers).holds
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.targets import Distributions
from byheart.errors import BuildError, OptionError
from byheart.ir.decoder import Activation, AttentionHead, Average, ContextReader, Decoder, SelfAttention
from byheart.paper import Ref, implements

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mixing = Callable[[Floats, Floats, Ints], Floats]  # (z, u, tokens) -> one number per context


@implements(
    Ref("M24", "Theorem 4"),
    statement="⟨x, softmax(x·x_t)⟩ with x = z[α] + u maps contexts α injectively into R without 0, for generic (z, u)",
    test="tests/build/madden24/test_fit.py",
)
def attention_numbers(z: Floats, u: Floats, tokens: Ints) -> Floats:
    """f(z, u, α) of Theorem 4 for every context (row of `tokens`, padded with -1): (n,)."""
    present = tokens >= 0
    x = np.where(present, z[tokens] + u[: tokens.shape[1]], 0.0)  # (n, T)
    last = x[np.arange(len(x)), present.sum(axis=1) - 1]
    scores = np.where(present, x * last[:, None], -np.inf)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((x * shares).sum(axis=1) / shares.sum(axis=1))


@implements(
    Ref("M24", "Theorem 6"),
    statement="Σ u_t z_{α_t} maps contexts α injectively into R without 0, for generic (z, u)",
    test="tests/build/madden24/test_fit.py",
)
def average_numbers(z: Floats, u: Floats, tokens: Ints) -> Floats:
    """f(z, u, α) of Theorem 6 for every context: (n,)."""
    return np.asarray(np.where(tokens >= 0, z[tokens] * u[: tokens.shape[1]], 0.0).sum(axis=1))


@dataclass(frozen=True)
class Injectivity:
    """How far apart the numbers of different contexts are, and how far from 0."""

    smallest_gap: float
    closest: tuple[int, int]  # the two contexts that are closest
    smallest_magnitude: float
    spread: float  # largest minus smallest number

    @property
    def relative_gap(self) -> float:
        """Infinite for a single context, which nothing comes close to."""
        return self.smallest_gap / self.spread if self.spread else self.smallest_gap

    @property
    def holds(self) -> bool:
        """Whether numbers are distinct and nonzero beyond float64's error (64 units in the last place)."""
        blur = 64 * np.finfo(float).eps * max(self.spread, self.smallest_magnitude)
        return bool(self.smallest_gap > blur and self.smallest_magnitude > 0)


def injectivity(numbers: Floats) -> Injectivity:
    """Measures the guarantees of Theorems 4 and 6, for the numbers of n contexts."""
    if len(numbers) == 1:
        return Injectivity(float("inf"), (0, 0), float(abs(numbers[0])), 0.0)
    order = np.argsort(numbers, kind="stable")
    gaps = np.diff(numbers[order])
    k = int(np.argmin(gaps))
    spread = float(numbers[order[-1]] - numbers[order[0]])
    return Injectivity(float(gaps[k]), (int(order[k]), int(order[k + 1])), float(np.abs(numbers).min()), spread)


@dataclass(frozen=True, eq=False)
class Draw:
    """Token weights z, position weights u, and the numbers they give to the contexts."""

    z: Floats
    u: Floats
    numbers: Floats
    injectivity: Injectivity


def draw_separating(tokens: Ints, vocabulary_size: int, mixing: Mixing, seed: int, tries: int = 32) -> Draw:
    """The draw of (z, u), uniform in [1/2, 3/2], with the largest smallest gap among `tries`."""
    rng = np.random.default_rng(seed)
    best: Draw | None = None
    for _ in range(tries):
        z, u = (np.asarray(rng.uniform(0.5, 1.5, size)) for size in (vocabulary_size, tokens.shape[1]))
        numbers = mixing(z, u, tokens)
        measured = injectivity(numbers)
        if best is None or measured.relative_gap > best.injectivity.relative_gap:
            best = Draw(z, u, numbers, measured)
    if best is None or not best.injectivity.holds:
        raise BuildError(
            f"{tries} draws do not separate {len(tokens)} contexts in float64 (smallest gap "
            f"{best.injectivity.smallest_gap if best else 0:.3g}); use fewer documents or another seed"
        )
    return best


FLOOR = 2.0**-30  # the largest share of a token that never follows, relative to all that do
# The smallest probability that zeros are given: floats hold its logarithm with all digits.
LEAST_FLOOR = 2.0**-200
FLOOR_SHARE = 1e-5  # of the entropy that all zeros together may cost, if the floor is free
LARGEST = 1 << 29  # numbers in a matrix in memory: 4 GiB


class MixerKind(StrEnum):
    ATTENTION = "attention"  # Theorem 5
    AVERAGE = "average"  # Theorem 7

    @staticmethod
    def named(text: str) -> MixerKind:
        try:
            return MixerKind(text)
        except ValueError:
            raise OptionError(f"unknown mixer {text!r}; known: {', '.join(MixerKind)}") from None


def name(mixer: MixerKind) -> str:
    """The construction's name."""
    return "madden24" if mixer is MixerKind.ATTENTION else "madden24-average"


@dataclass(frozen=True)
class DecoderShape:
    """The requested architecture; `dimension=None` lets the construction choose."""

    mixer: MixerKind = MixerKind.ATTENTION
    activation: Activation = Activation.TANH
    dimension: int | None = None
    heads: int = 1
    skip: bool = False

    def __post_init__(self) -> None:
        if (self.dimension is not None and self.dimension < 1) or self.heads < 1:
            raise OptionError(f"dimension={self.dimension}, heads={self.heads}: both must be at least 1")
        if self.mixer is MixerKind.AVERAGE and self.heads != 1:
            raise OptionError("token averaging has no heads; leave heads at 1 or use the attention mixer")


def head_size(shape: DecoderShape, dimension: int) -> int:
    """d_0 = d_1 of each head where all matrices are sampled: the heads share the dimension."""
    return max(1, dimension // shape.heads)


@dataclass(frozen=True, eq=False)
class DecoderFit:
    """A decoder and the numbers of its construction.

    `condition` and `residual` belong to the linear system for V; `smallest_gap` is the distance of the two contexts
    that the mixer leaves closest (Theorems 4 and 6). `floor_excess` is the cost of zero probabilities in nats: a model
    that meets the target logits exactly has the gap 𝓛 - 𝓗 = floor_excess. None where there is no such number.
    """

    decoder: Decoder
    construction: str
    condition: float
    residual: float | None
    smallest_gap: float
    floor: float | None
    floor_excess: float | None
    notes: tuple[str, ...] = ()

    @property
    def largest_weight(self) -> float:
        return max(float(np.abs(matrix).max()) for matrix in self.decoder.matrices if matrix.size)

    @property
    def output_norm(self) -> float:
        """Frobenius norm of V (of its largest factor)."""
        return max(float(np.linalg.norm(factor)) for factor in self.decoder.output)

    def numbers(self) -> dict[str, Any]:
        """Describe the origin of the number; None where there is none."""
        return {
            "condition_number": self.condition if math.isfinite(self.condition) else None,
            "residual": self.residual,
            "smallest_gap": self.smallest_gap if math.isfinite(self.smallest_gap) else None,  # one context: no gap
            "floor": self.floor,
            "floor_excess": self.floor_excess,
            "largest_weight": self.largest_weight,
            "output_norm": self.output_norm,
        }


def entropy_unit(contexts: Distributions) -> float:
    """Return the unit of a relative gap: the entropy, or one nat for each predicted token where the entropy is 0."""
    return float(contexts.weights.sum()) if int(contexts.supports.max()) == 1 else contexts.entropy


def chosen_floor(contexts: Distributions) -> float:
    """2^-30, or less where that would cost more than 10^-5 of the entropy."""
    zeros = float(contexts.weights @ (contexts.vocabulary_size - contexts.supports))
    return max(LEAST_FLOOR, min(FLOOR, FLOOR_SHARE * entropy_unit(contexts) / max(zeros, 1.0)))


def check_size(rows: int, columns: int, what: str) -> None:
    """An OptionError with a remedy before the memory runs out."""
    if rows * columns > LARGEST:
        raise OptionError(
            f"{what}: a matrix of {rows:,} x {columns:,} numbers takes {rows * columns / 2**27:.0f} GiB; take fewer "
            "documents (--max-rows), a shorter --max-length, or --option objective=low-rank"
        )


def target_logits(contexts: Distributions, floor: float, columns: Ints | None = None) -> tuple[Floats, float]:
    """Return logits (n, ω) whose softmax is π with `floor` instead of every zero, and the resulting loss.

    `columns` (sorted) skips tokens that never follow: their logits are 0 everywhere.

    The logits are log(π / floor) where a token follows and 0 where it never does. Softmax divides by 1 + z·floor, z the
    number of zeros, so the cross-entropy exceeds the entropy by exactly Σ c_i·log(1 + z_i·floor).
    """
    if not 0 < floor < 1:
        raise OptionError(f"floor={floor}: the substitute for probability 0 must lie between 0 and 1, for example 1e-9")
    width = contexts.vocabulary_size if columns is None else len(columns)
    places = contexts.pair_token if columns is None else np.searchsorted(columns, contexts.pair_token)
    logits = np.zeros((contexts.count, width))
    logits[contexts.pair_context, places] = np.log(contexts.probabilities / floor)
    zeros = contexts.vocabulary_size - contexts.supports
    return logits, math.fsum((contexts.weights * np.log1p(zeros * floor)).tolist())


def line_reader(contexts: Distributions, shape: DecoderShape, seed: int) -> tuple[ContextReader, Floats, Draw]:
    """Theorem 5's reduction to one number per context: all matrices are multiples of the ones matrix.

    Returns the reader, the direction (d,) along which its vectors lie, and the draw of (z, u).
    """
    d = shape.dimension or 1
    draw = draw_separating(contexts.tokens, contexts.vocabulary_size, _mixing(shape), seed)
    return reader_on_line(draw.z, draw.u, d, shape), line_direction(d), draw


def line_direction(d: int) -> Floats:
    """The unit vector along which a line's vectors lie: all coordinates are equal."""
    return np.full(d, 1 / math.sqrt(d))


def reader_on_line(z: Floats, u: Floats, d: int, shape: DecoderShape, output: float = 1.0) -> ContextReader:
    """The reader in dimension d whose vectors are f(z, u, α)·1/√d; `output` scales the attention's output."""
    embedding = np.outer(z, np.full(d, 1 / math.sqrt(d)))
    if shape.mixer is MixerKind.AVERAGE:
        return ContextReader(embedding, Average(u.copy()), shape.skip)
    ones = np.full((d, 1), 1 / math.sqrt(d))
    heads = tuple(AttentionHead(ones.copy(), ones.copy(), ones.copy()) for _ in range(shape.heads))
    mixer = SelfAttention(
        np.outer(u, np.full(d, 1 / math.sqrt(d))),
        heads,
        np.full((shape.heads, d), output / (shape.heads * math.sqrt(d))),
    )
    return ContextReader(embedding, mixer, shape.skip)


def _mixing(shape: DecoderShape) -> Mixing:
    plain = attention_numbers if shape.mixer is MixerKind.ATTENTION else average_numbers
    if not shape.skip:
        return plain

    def with_skip(z: Floats, u: Floats, tokens: Ints) -> Floats:
        last = (tokens >= 0).sum(axis=1) - 1
        own = z[tokens[np.arange(len(tokens)), last]]
        return np.asarray(plain(z, u, tokens) + own + (u[last] if shape.mixer is MixerKind.ATTENTION else 0.0))

    return with_skip


def space_reader(contexts: Distributions, shape: DecoderShape, dimension: int, seed: int) -> ContextReader:
    """Random embeddings in R^d; attention scores stay near 0 so that every token of a context is seen."""
    rng = np.random.default_rng(seed)
    longest = contexts.tokens.shape[1]
    embedding = rng.standard_normal((contexts.vocabulary_size, dimension))
    if shape.mixer is MixerKind.AVERAGE:
        signs = rng.choice([-1.0, 1.0], longest)
        return ContextReader(embedding, Average(rng.uniform(0.5, 1.5, longest) * signs), shape.skip)
    positions = rng.standard_normal((longest, dimension))
    parts = np.array_split(np.arange(dimension), shape.heads)
    heads = []
    for part in parts:
        size = max(1, len(part))
        key, query = (rng.standard_normal((dimension, dimension)) / math.sqrt(dimension) for _ in range(2))
        value = np.zeros((dimension, size))
        value[part, np.arange(len(part))] = 1.0
        heads.append(AttentionHead(key, query * (0.3 / dimension), value))
    output = np.zeros((sum(head.value.shape[1] for head in heads), dimension))
    row = 0
    for part, head in zip(parts, heads, strict=True):
        output[row + np.arange(len(part)), part] = 1.0
        row += head.value.shape[1]
    return ContextReader(embedding, SelfAttention(positions, tuple(heads), output), shape.skip)


def sampled_reader(
    contexts: Distributions, shape: DecoderShape, dimension: int, rng: np.random.Generator
) -> ContextReader:
    """Every matrix of the reader sampled from a normal distribution: step 1 of the algorithm that Theorem 5 suggests.

    Any continuous distribution will do in exact arithmetic. In float64 its spread matters: entries of variance 1/d in
    the attention, and 1/(d·d_1) in the query, keep the scores of order one. With larger ones softmax looks at one token
    alone, and contexts that differ elsewhere get the same vector.
    """
    longest, head = contexts.tokens.shape[1], head_size(shape, dimension)
    embedding = rng.standard_normal((contexts.vocabulary_size, dimension))
    if shape.mixer is MixerKind.AVERAGE:
        return ContextReader(embedding, Average(rng.standard_normal((longest,))), shape.skip)
    positions = rng.standard_normal((longest, dimension))
    heads = tuple(
        AttentionHead(
            key=rng.standard_normal((dimension, head)) / math.sqrt(dimension),
            query=rng.standard_normal((dimension, head)) / math.sqrt(dimension * head),
            value=rng.standard_normal((dimension, head)) / math.sqrt(dimension),
        )
        for _ in range(shape.heads)
    )
    output = rng.standard_normal((shape.heads * head, dimension)) / math.sqrt(shape.heads * head)
    return ContextReader(embedding, SelfAttention(positions, heads, output), shape.skip)


def sampled_neurons(
    mixed: Floats, neurons: int, activation: Activation, scaled: bool, rng: np.random.Generator
) -> tuple[Floats, Floats, float]:
    """(W (d, m), b (m,), ε): W and b sampled; with `scaled`, ε·W replaces W, ε as large as step 2 allows.

    Step 2 requires that every entry of ε·Wᵀh + b lie where the series of ψ at 0 converges. b is sampled from the middle
    half of that interval, and ε is then as large as it may be. For GELU the interval is the whole line and ε = 1.
    """
    weight, radius = rng.standard_normal((mixed.shape[1], neurons)), activation.radius
    if not scaled or math.isinf(radius):
        return weight, rng.standard_normal(neurons), 1.0
    bias = rng.uniform(-radius / 2, radius / 2, neurons)
    largest = float(np.abs(mixed @ weight).max())
    epsilon = min(1.0, 0.499 * radius / largest) if largest else 1.0
    return epsilon * weight, bias, epsilon
