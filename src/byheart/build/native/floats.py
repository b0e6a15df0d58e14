"""The float types that networks run in, as numbers.

>>> FLOAT64.mantissa, FLOAT32.mantissa
(53, 24)
"""

from __future__ import annotations

from dataclasses import dataclass

from byheart.errors import OptionError


@dataclass(frozen=True)
class FloatType:
    """A binary float type: integers up to 2^mantissa are exact."""

    name: str
    mantissa: int

    @property
    def longest_word(self) -> int:
        """The most scan levels of one word: Kw with Kw + G + 2 <= mantissa, so that a fold never rounds."""
        levels = 2
        while levels + 1 + guard_bits(levels + 1) + 2 <= self.mantissa:
            levels += 1
        return levels


def guard_bits(levels: int) -> int:
    """G: room below a word's bits for the sum of `levels` hash bits and its sign.

    >>> guard_bits(44)
    7
    """
    return levels.bit_length() + 1


FLOAT64 = FloatType("float64", 53)
FLOAT32 = FloatType("float32", 24)


def float_type(name: str) -> FloatType:
    """The type called `name`."""
    for kind in (FLOAT64, FLOAT32):
        if kind.name == name:
            return kind
    raise OptionError(f"dtype {name!r} is not one of float64, float32")
