"""What balls of either kind can do: one arithmetic for `FloatBalls` (fast) and `ArbBalls` (any precision).

An array of balls stands for all arrays of numbers inside them, and every operation gives balls that hold the results of
all of these. What is evaluated or compared with balls is written once, for this interface; more precision is another
kind of balls, not another program.

    >>> from byheart.certify.balls.floats import FloatBalls
    >>> logits = FloatBalls(np.array([[1.0, 3.0, 2.0], [1.0, 1.5, 1.4]]), np.full((2, 3), 0.25))
    >>> logits.highest().tolist()                                            # 1.5 and 1.4 cannot be told apart
    [1, -1]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from byheart.ir.decoder import Activation

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
        """Of each row: 1 if a chosen entry is the highest, -1 if another one is, 0 where the balls cannot tell."""
        return np.where(self.above(chosen), 1, np.where(self.above(~chosen), -1, 0))

    def highest(self) -> Ints:
        """The place of the highest entry of each row (n, k), -1 where the balls cannot tell."""
        middles = self.middles()
        best = middles.argmax(axis=1)
        return np.where(self.above(best[:, None] == np.arange(middles.shape[1])), best, -1)
