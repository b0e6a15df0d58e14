"""The one-layer decoder-only Transformer of M24, eq. (2), as a value with float64 weights.

Every weight is a float64, hence an exact dyadic number: a certificate holds for exactly these weights.
Matrices are stored so that rows multiply from the left: a context's vector x (d,) becomes activation(x @ hidden +
bias).

    >>> reader = ContextReader(np.array([[1.0], [2.0]]), Average(np.array([1.0, 0.5])))
    >>> reader.mixed(np.array([[0, 1], [1, -1]])).tolist()          # 1·z_a + 0.5·z_b, and z_b alone
    [[2.0], [2.0]]
    >>> small = Decoder(reader, np.array([[1.0, -1.0]]), np.zeros(2), Activation.TANH, (np.eye(2),))
    >>> small.parameters, small.length
    (12, 2)

Its activations have a value and a derivative in float64, and a value on balls. All four are real analytic everywhere
and not polynomials, as Theorems 3, 5 and 7 of M24 require.

    >>> float(Activation.SIGMOID(np.array([0.0]))[0])
    0.5
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from byheart.errors import DataError, MissingExtraError, NetworkError, OptionError
from byheart.exact.rigor import flint


class Activation(StrEnum):
    """The activation between the two matrices of the feed-forward layer."""

    TANH = "tanh"
    GELU = "gelu"  # x·Φ(x) with the exact normal distribution, not its tanh approximation
    ARCTAN = "arctan"
    SIGMOID = "sigmoid"

    @staticmethod
    def named(name: str) -> Activation:
        try:
            return Activation(name)
        except ValueError:
            raise OptionError(f"unknown activation {name!r}; known: {', '.join(Activation)}") from None

    @property
    def saturates(self) -> bool:
        """Whether it tends to a constant on both sides, so that a steep neuron is a step."""
        return self is not Activation.GELU

    @property
    def step(self) -> tuple[float, float]:
        """(lowest, highest) limit of a saturating activation."""
        limits = {
            Activation.TANH: (-1.0, 1.0),
            Activation.SIGMOID: (0.0, 1.0),
            Activation.ARCTAN: (-math.pi / 2, math.pi / 2),
        }
        if self not in limits:
            raise OptionError(f"{self.value} has no limits on both sides")
        return limits[self]

    @property
    def radius(self) -> float:
        """How far its series at 0 converges: the distance to the nearest singularity among the complex numbers.

        >>> Activation.ARCTAN.radius, Activation.GELU.radius        # 1 + x² vanishes at i; x·Φ(x) is entire
        (1.0, inf)
        """
        return {Activation.TANH: math.pi / 2, Activation.SIGMOID: math.pi, Activation.ARCTAN: 1.0}.get(self, math.inf)

    def __call__(self, x: Floats) -> Floats:
        match self:
            case Activation.TANH:
                return np.tanh(x)
            case Activation.ARCTAN:
                return np.arctan(x)
            case Activation.SIGMOID:
                return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))
            case Activation.GELU:
                return np.asarray(0.5 * x * _erfc(-x / math.sqrt(2.0)))

    def ball(self, x: Any) -> Any:
        """The activation on one arb ball."""
        match self:
            case Activation.TANH:
                return x.tanh()
            case Activation.ARCTAN:
                return x.atan()
            case Activation.SIGMOID:
                return ((x / 2).tanh() + 1) / 2
            case Activation.GELU:
                return x * (-x / flint().arb(2).sqrt()).erfc() / 2


def _erfc(x: Floats) -> Floats:
    try:
        from scipy.special import erfc
    except ImportError as error:
        raise MissingExtraError("the GELU activation", "decoder") from error
    return np.asarray(erfc(x))


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AttentionHead:
    """One head of eq. (2): W_{1,r} (keys), W_{2,r} (query), W_{3,r} (values)."""

    key: Floats  # (d, d_r)
    query: Floats  # (d, d_r)
    value: Floats  # (d, d_0)


@dataclass(frozen=True, eq=False)
class SelfAttention:
    """Softmax attention of the last token over the whole context, after adding positions."""

    positions: Floats  # (T, d): U
    heads: tuple[AttentionHead, ...]
    output: Floats  # (m_0·d_0, d): W_0

    @property
    def matrices(self) -> tuple[Floats, ...]:
        return (self.positions, self.output, *(m for h in self.heads for m in (h.key, h.query, h.value)))


@dataclass(frozen=True, eq=False)
class Average:
    """Token averaging (Theorem 6): the sum of the embedded tokens, weighted by position."""

    positions: Floats  # (T,): u

    @property
    def matrices(self) -> tuple[Floats, ...]:
        return (self.positions,)


Mixer: TypeAlias = SelfAttention | Average


@dataclass(frozen=True, eq=False)
class ContextReader:
    """The embedding and the mixer: contexts -> vectors in R^d.

    `skip` adds the last token's embedded vector to the mixer's output (the remark below eq. (2)).
    """

    embedding: Floats  # (ω, d)
    mixer: Mixer
    skip: bool = False

    def __post_init__(self) -> None:
        if self.embedding.ndim != 2 or not _mixer_fits(self.mixer, self.embedding.shape[1]):
            raise NetworkError(f"the mixer does not fit an embedding of shape {self.embedding.shape}")

    @property
    def matrices(self) -> tuple[Floats, ...]:
        return (self.embedding, *self.mixer.matrices)

    @property
    def dimension(self) -> int:
        return int(self.embedding.shape[1])

    @property
    def kind(self) -> str:
        return "average" if isinstance(self.mixer, Average) else "attention"

    @property
    def length(self) -> int:
        """T: the longest context."""
        return len(self.mixer.positions)

    def mixed(self, tokens: Ints) -> Floats:
        """One vector for each context (row of tokens, padded with -1 at the end): (n, d)."""
        present = self._present(tokens)
        embedded = np.where(present[:, :, None], self.embedding[tokens], 0.0)  # (n, T, d)
        last = present.sum(axis=1) - 1
        rows = np.arange(len(tokens))
        if isinstance(self.mixer, Average):
            plain = embedded
            out = np.einsum("ntd,t->nd", embedded, self.mixer.positions[: tokens.shape[1]])
        else:
            plain = np.where(present[:, :, None], embedded + self.mixer.positions[: tokens.shape[1]], 0.0)
            out = _attend(self.mixer, plain, present, plain[rows, last])
        return np.asarray(out + plain[rows, last] if self.skip else out)

    def _present(self, tokens: Ints) -> npt.NDArray[np.bool_]:
        size = len(self.embedding)
        if tokens.ndim != 2 or tokens.shape[1] > self.length:
            raise DataError(
                f"contexts of shape {tokens.shape}: this decoder reads contexts of at most {self.length} tokens"
            )
        present = tokens >= 0
        if not present[:, 0].all() or (present[:, 1:] & ~present[:, :-1]).any() or tokens.max() >= size:
            raise DataError(f"contexts hold tokens in [0, {size}), padded with -1 at the end, none empty")
        return np.asarray(present)


@dataclass(frozen=True, eq=False)
class Decoder:
    """h(α) = Vᵀ ψ(Wᵀ mix(α) + b) and softmax after it; V = output[0] @ output[1] @ …, stored as its factors.

    Tokens are numbers from 0 to ω - 1; `DecoderNetwork` and its memory define their meaning.
    """

    reader: ContextReader
    hidden: Floats  # (d, m)
    bias: Floats  # (m,)
    activation: Activation
    output: tuple[Floats, ...]  # V (m, ω), or factors (m, r), (r, ω)

    def __post_init__(self) -> None:
        if any(m.dtype != np.float64 or not np.isfinite(m).all() for m in self.matrices):
            raise NetworkError("the weights of a decoder are finite float64 numbers")
        omega, d = self.reader.embedding.shape
        widths = [self.hidden.shape[1], *(factor.shape[1] for factor in self.output)]
        fits = self.hidden.ndim == 2 and self.hidden.shape[0] == d and self.bias.shape == (widths[0],)
        fits = fits and bool(self.output) and [f.shape[0] for f in self.output] == widths[:-1] and widths[-1] == omega
        if not fits:
            raise NetworkError(f"the matrices of a decoder with {omega} tokens and dimension {d} do not fit together")
        for matrix in self.matrices:
            matrix.setflags(write=False)

    @property
    def matrices(self) -> tuple[Floats, ...]:
        return (*self.reader.matrices, self.hidden, self.bias, *self.output)

    @property
    def kind(self) -> str:
        """The layer that distinguishes contexts: attention or average."""
        return self.reader.kind

    @property
    def identity(self) -> tuple[object, ...]:
        """Everything but the matrices."""
        return (self.activation, self.reader.skip, self.reader.kind, len(self.output))

    @property
    def vocabulary_size(self) -> int:
        """ω: how many tokens there are."""
        return len(self.reader.embedding)

    @property
    def parameters(self) -> int:
        """Every entry of every matrix: eq. (3)'s count when V is stored whole."""
        return sum(matrix.size for matrix in self.matrices)

    @property
    def length(self) -> int:
        """T: the longest context."""
        return self.reader.length

    @property
    def neurons(self) -> int:
        return int(self.hidden.shape[1])

    def features(self, tokens: Ints) -> Floats:
        """The neurons' outputs: (n, m)."""
        return self.activation(self.reader.mixed(tokens) @ self.hidden + self.bias)

    def logits(self, tokens: Ints) -> Floats:
        """(n, ω), before the softmax."""
        values = self.features(tokens)
        for factor in self.output:
            values = values @ factor
        return values

    def log_probabilities(self, tokens: Ints, chunk: int = 4096) -> Floats:
        """log softmax of the logits: (n, ω)."""
        with np.errstate(over="ignore", invalid="ignore"):  # weights of a file may be of any size
            parts = [log_softmax(self.logits(tokens[k : k + chunk])) for k in range(0, len(tokens), chunk)]
        return np.concatenate(parts)


def log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _mixer_fits(mixer: Mixer, d: int) -> bool:
    if isinstance(mixer, Average):
        return mixer.positions.ndim == 1
    if mixer.positions.ndim != 2 or mixer.positions.shape[1] != d or not mixer.heads:
        return False
    heads = all(h.key.shape == h.query.shape and h.key.shape[0] == d and h.value.shape[0] == d for h in mixer.heads)
    return heads and mixer.output.shape == (sum(h.value.shape[1] for h in mixer.heads), d)


def _attend(mixer: SelfAttention, plain: Floats, present: npt.NDArray[np.bool_], last: Floats) -> Floats:
    gathered = []
    for head in mixer.heads:
        scores = np.einsum("ntr,nr->nt", plain @ head.key, last @ head.query)
        scores = np.where(present, scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        gathered.append(np.einsum("nt,ntd->nd", shares, plain) @ head.value)
    return np.asarray(np.concatenate(gathered, axis=1) @ mixer.output)
