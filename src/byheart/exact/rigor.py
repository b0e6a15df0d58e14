"""The one door to python-flint's balls: precision as an argument, directed conversion to float64.

>>> with precision(128):
...     third = ball(1.0) / ball(3.0)
>>> lower_float(third) < 1 / 3 + 1e-16 and upper_float(third) > 1 / 3
True
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any

from byheart.errors import InexactError, MissingExtraError


def flint() -> Any:
    """The module python-flint, or a MissingExtraError with the line that installs it."""
    try:
        import flint as module
    except ImportError as error:
        raise MissingExtraError("rigorous ball arithmetic", "rigor") from error
    return module


def precision(bits: int) -> AbstractContextManager[None]:
    """Round balls (outwards) to this many bits inside the block."""
    context: AbstractContextManager[None] = flint().ctx.workprec(bits)
    return context


def ball(value: float | int) -> Any:
    """The ball of radius 0 around a finite float or an int: floats are exact dyadic numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InexactError(f"{value} is not a number that a ball can enclose")
    return flint().arb(value)


def upper_float(value: Any) -> float:
    """A float64 that is at least every number in the ball."""
    return math.nextafter(float(value.upper()), math.inf) if value.is_finite() else math.inf


def lower_float(value: Any) -> float:
    """A float64 that is at most every number in the ball."""
    return math.nextafter(float(value.lower()), -math.inf) if value.is_finite() else -math.inf


def magnitude(value: Any) -> float:
    """A float64 that is at least the absolute value of every number in the ball."""
    return math.nextafter(float(value.abs_upper()), math.inf) if value.is_finite() else math.inf
