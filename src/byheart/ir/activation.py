"""The analytic activations of the decoder: value and derivative in float64, and the value on balls.

All four are real analytic everywhere and no polynomials, which is what Theorems 3, 5 and 7 of M24 ask for.

    >>> float(Activation.SIGMOID(np.array([0.0]))[0])
    0.5
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import MissingExtraError, OptionError
from byheart.exact.rigor import flint

Floats = npt.NDArray[np.float64]


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

    def derivative(self, x: Floats) -> Floats:
        match self:
            case Activation.TANH:
                return np.asarray(1.0 - np.tanh(x) ** 2)
            case Activation.ARCTAN:
                return np.asarray(1.0 / (1.0 + x * x))
            case Activation.SIGMOID:
                return np.asarray(0.25 * (1.0 - np.tanh(0.5 * x) ** 2))
            case Activation.GELU:
                density = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
                return np.asarray(0.5 * _erfc(-x / math.sqrt(2.0)) + x * density)

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
