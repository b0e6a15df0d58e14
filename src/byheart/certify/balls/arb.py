"""The arithmetic of balls: one interface for `FloatBalls` (fast) and `ArbBalls` (any precision).

An array of balls represents all arrays of numbers inside them, and every operation returns balls that contain the
results of all of these. Evaluations and comparisons with balls are written once, for this interface; more precision is
another kind of balls, not another program.

    >>> from byheart.certify.balls.floats import FloatBalls
    >>> logits = FloatBalls(np.array([[1.0, 3.0, 2.0], [1.0, 1.5, 1.4]]), np.full((2, 3), 0.25))
    >>> logits.highest().tolist()                                            # 1.5 and 1.4 cannot be distinguished
    [1, -1]

`ArbBalls` are arrays of arb balls, slower and with nothing to trust but arb.

>>> from byheart.exact.rigor import precision
>>> with precision(200):
...     third = ArbBalls.exact(np.array([1.0])) / ArbBalls.exact(np.array([3.0]))
>>> bool(third.radii()[0] < 1e-55)
True

`logit_balls` evaluates the network of M24, eq. (2), with enclosures of every number, in either kind of balls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from byheart.errors import NetworkError
from byheart.exact.rigor import flint, upper_float
from byheart.ir.decoder import Activation, Average, Decoder, SelfAttention
from byheart.ir.decoder_network import AnyDecoder, TableDecoder

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]
Self = TypeVar("Self", bound="Balls")


class Balls(ABC):
    """An array of balls; indices, axes and broadcasting are NumPy's."""

    @classmethod
    @abstractmethod
    def exact(cls: type[Self], values: Floats) -> Self:
        """Balls of radius 0 around floats."""

    @abstractmethod
    def __getitem__(self: Self, key: Any) -> Self: ...

    @abstractmethod
    def __add__(self: Self, other: Self) -> Self: ...

    @abstractmethod
    def __sub__(self: Self, other: Self) -> Self: ...

    @abstractmethod
    def __mul__(self: Self, other: Self) -> Self: ...

    @abstractmethod
    def __truediv__(self: Self, other: Self) -> Self: ...

    @abstractmethod
    def sum(self: Self, axis: int) -> Self: ...

    @abstractmethod
    def times(self: Self, matrix: Floats) -> Self:
        """The matrix product with exact float64 numbers."""

    @abstractmethod
    def exp(self: Self) -> Self: ...

    @abstractmethod
    def activated(self: Self, activation: Activation) -> Self:
        """activation(x), entry by entry."""

    @abstractmethod
    def middles(self) -> Floats:
        """Float64 numbers near the balls, for choices that need no proof."""

    @abstractmethod
    def as_arb(self) -> Objects:
        """The same balls as arb has them; nan where nothing is known."""

    @abstractmethod
    def above(self, chosen: Mask) -> Mask:
        """Of each row (n, k): is one of the chosen entries higher than all others, for all numbers in the balls?"""

    def compared(self, chosen: Mask) -> Ints:
        """Of each row: 1 if a chosen entry is the highest, -1 if another one is, 0 where the balls cannot decide."""
        return np.where(self.above(chosen), 1, np.where(self.above(~chosen), -1, 0))

    def highest(self) -> Ints:
        """Return the index of the highest entry of each row (n, k), -1 where the balls cannot decide."""
        middles = self.middles()
        best = middles.argmax(axis=1)
        return np.where(self.above(best[:, None] == np.arange(middles.shape[1])), best, -1)


@dataclass(frozen=True, eq=False)
class ArbBalls(Balls):
    """An object array of arb balls; operations round outwards to the precision in force."""

    entries: Objects

    @classmethod
    def exact(cls, values: npt.ArrayLike) -> ArbBalls:
        """Balls of radius 0 around floats or ints."""
        arb = flint().arb
        source = np.asarray(values)
        entries = np.empty(source.shape, dtype=object)
        entries.ravel()[:] = [arb(value) for value in source.ravel().tolist()]
        return ArbBalls(entries)

    def __getitem__(self, key: Any) -> ArbBalls:
        return ArbBalls(np.asarray(self.entries[key]))

    def __add__(self, other: ArbBalls) -> ArbBalls:
        return ArbBalls(self.entries + other.entries)

    def __sub__(self, other: ArbBalls) -> ArbBalls:
        return ArbBalls(self.entries - other.entries)

    def __mul__(self, other: ArbBalls) -> ArbBalls:
        return ArbBalls(self.entries * other.entries)

    def __truediv__(self, other: ArbBalls) -> ArbBalls:
        return ArbBalls(self.entries / other.entries)

    def sum(self, axis: int) -> ArbBalls:
        return ArbBalls(np.asarray(self.entries.sum(axis=axis)))

    def times(self, matrix: Floats) -> ArbBalls:
        """The matrix product with exact float64 numbers, by arb's own matrices."""
        rows, inner = self.entries.reshape(-1, self.entries.shape[-1]).shape
        left = flint().arb_mat(rows, inner, self.entries.ravel().tolist())
        right = flint().arb_mat(*matrix.shape, matrix.ravel().tolist())
        product = np.empty(rows * matrix.shape[1], dtype=object)
        product[:] = (left * right).entries()
        return ArbBalls(product.reshape(*self.entries.shape[:-1], matrix.shape[1]))

    def exp(self) -> ArbBalls:
        return ArbBalls(_each(self.entries, lambda x: x.exp()))

    def activated(self, activation: Activation) -> ArbBalls:
        return ArbBalls(_each(self.entries, activation.ball))

    def middles(self) -> Floats:
        return np.asarray(_each(self.entries, lambda x: float(x.mid())), dtype=np.float64)

    def as_arb(self) -> Objects:
        return self.entries

    def above(self, chosen: Mask) -> Mask:
        """Compare with arb itself: ends that are rounded to float64 decide fewer cases."""
        return np.array([_above(row[mask], row[~mask]) for row, mask in zip(self.entries, chosen, strict=True)])

    def radii(self) -> Floats:
        return np.asarray(_each(self.entries, lambda x: upper_float(x.rad())), dtype=np.float64)


def _above(ours: Objects, others: Objects) -> bool:
    return any(all(x > y for y in others) for x in ours)


def _each(entries: Objects, function: Callable[[Any], Any]) -> Objects:
    out = np.empty(entries.shape, dtype=object)
    out.ravel()[:] = [function(entry) for entry in entries.ravel()]
    return out


B = TypeVar("B", bound=Balls)


def logit_balls(decoder: AnyDecoder, tokens: Ints, kind: type[B]) -> B:
    """Enclosures of the logits (n, ω) of contexts of one length τ: tokens is (n, τ), without padding.

    Weights of a file may be so large that float64 overflows; such a ball has an infinite radius, so no warning.
    """
    with np.errstate(all="ignore"):
        if isinstance(decoder, TableDecoder):  # which row it is, is exact
            return kind.exact(decoder.named(tokens)).times(decoder.columns)
        return output_balls(decoder, mixed_balls(decoder, tokens, kind))


def output_balls(decoder: Decoder, mixed: B) -> B:
    """Enclosures of the logits from enclosures of the mixed vectors."""
    kind = type(mixed)
    values = (mixed.times(decoder.hidden) + kind.exact(decoder.bias[None, :])).activated(decoder.activation)
    for factor in decoder.output:
        values = values.times(factor)
    return values


def mixed_balls(decoder: Decoder, tokens: Ints, kind: type[B]) -> B:
    """Return enclosures of the reader's output for contexts of one length: (n, d)."""
    reader = decoder.reader
    length = tokens.shape[1]
    plain = kind.exact(reader.embedding[tokens])  # (n, τ, d)
    if isinstance(reader.mixer, Average):
        mixed = (plain * kind.exact(reader.mixer.positions[None, :length, None])).sum(axis=1)
    else:
        plain = plain + kind.exact(reader.mixer.positions[None, :length, :])
        mixed = _attended(reader.mixer, plain)
    return mixed + plain[:, -1, :] if reader.skip else mixed


def _attended(mixer: SelfAttention, plain: B) -> B:
    """Every head's softmax, with exponents relative to about the highest score, which keeps them small."""
    gathered: B | None = None
    row = 0
    for head in mixer.heads:
        keys, query = plain.times(head.key), plain[:, -1, :].times(head.query)
        scores = (keys * query[:, None, :]).sum(axis=2)  # (n, τ)
        # subtracting the same number from all scores changes no softmax
        highest = type(plain).exact(np.nan_to_num(scores.middles().max(axis=1))[:, None])
        shares = (scores - highest).exp()
        mean = (plain * shares[:, :, None]).sum(axis=1) / shares.sum(axis=1)[:, None]
        size = head.value.shape[1]
        part = mean.times(head.value).times(mixer.output[row : row + size])
        gathered = part if gathered is None else gathered + part
        row += size
    if gathered is None:
        raise NetworkError("attention needs a head")
    return gathered
