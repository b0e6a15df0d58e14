"""Scaled rotary positions: `rope_parameters` of the types linear, llama3 and yarn, read strictly.

The formulas are those of Transformers' `modeling_rope_utils`. Fields that would change them (mscale, attention_factor,
truncate, ...) are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from byheart.errors import ByheartError

Array: TypeAlias = Any


class UnknownRope(ByheartError):
    """A scaling whose formula the proof does not know."""


FIELDS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
}


@dataclass(frozen=True)
class RopeScaling:
    """One scaling: `kind` and its numbers (0 where the kind has none)."""

    kind: str
    factor: float
    original: int = 0
    low: float = 0.0
    high: float = 0.0

    @property
    def gain(self) -> float:
        """The factor of cosines and sines."""
        return 0.1 * math.log(self.factor) + 1.0 if self.kind == "yarn" and self.factor > 1 else 1.0

    @property
    def uncertainty(self) -> float:
        """How many times the error of a plain frequency a scaled one has.

        Where two frequencies are blended, float32 rounds the blend's share, by at most 8 units. The share is that of
        the larger frequency, which is `factor` times the smaller one. Llama 3's share is a difference divided by
        `high - low`, which magnifies the rounding of `original / wave`.
        """
        steep = self.high / (self.high - self.low) if self.kind == "llama3" else 1.0
        return 8.0 * self.factor * steep

    def uncertainties(self, base: Array, theta: float, dims: int) -> Array:
        """Return the same per frequency: only blended ones have it, others are kept or divided once.

        >>> RopeScaling("linear", 4.0).uncertainties(np.array([1.0, 0.5]), 1e4, 4).tolist()
        [2.0, 2.0]
        """
        found = self.apply(base, theta, dims)
        plain = (found == base) | (found == base / self.factor)
        if self.kind == "llama3":
            # Near an end of the blend, float32 may be on its other side.
            turns = self.original * base / (2 * math.pi)
            plain &= ~np.isclose(turns, self.low, rtol=2.0**-16) & ~np.isclose(turns, self.high, rtol=2.0**-16)
        return np.where(plain, 2.0, self.uncertainty)

    def apply(self, base: Array, theta: float, dims: int) -> Array:
        """Return the scaled frequencies.

        >>> RopeScaling("linear", 4.0).apply(np.array([1.0, 0.5]), 1e4, 4).tolist()
        [0.25, 0.125]
        """
        if self.kind == "linear":
            return base / self.factor
        if self.kind == "llama3":
            wave = 2 * math.pi / base
            smooth = (self.original / wave - self.low) / (self.high - self.low)
            mixed = (1 - smooth) * base / self.factor + smooth * base
            slow = np.where(wave > self.original / self.low, base / self.factor, mixed)
            return np.where(wave < self.original / self.high, base, slow)
        turns = [dims * math.log(self.original / (n * 2 * math.pi)) / (2 * math.log(theta)) for n in (32, 1)]
        low, high = max(math.floor(turns[0]), 0), min(math.ceil(turns[1]), dims - 1)
        if high < low:
            raise UnknownRope(f"yarn with original_max_position_embeddings {self.original}: engines blend differently")
        ramp = np.clip((np.arange(len(base)) - low) / max(high - low, 0.001), 0, 1)
        return base / self.factor * ramp + base * (1 - ramp)


def read_scaling(fields: Mapping[str, Any]) -> RopeScaling | None:
    """Return the scaling that `rope_parameters` (without theta and share) describe; None for plain ropes.

    Raises:
        UnknownRope: a type, a field or a value that the formulas do not cover.
    """
    kind = fields.get("rope_type", fields.get("type", "default"))
    if fields.get("type", kind) != kind:
        raise UnknownRope(f"rope_parameters name two types, {kind!r} and {fields['type']!r}")
    given = {name: value for name, value in fields.items() if name not in ("rope_type", "type")}
    if kind == "default" and not given:
        return None
    if kind not in FIELDS:
        raise UnknownRope(f"rope_parameters {sorted(given)} of type {kind!r}; the proof knows {', '.join(FIELDS)}")
    if set(given) != set(FIELDS[kind]):
        raise UnknownRope(f"rope_parameters of type {kind!r} have {sorted(given)}; the proof knows {FIELDS[kind]}")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise UnknownRope(f"rope_parameters: {name} = {value!r} is not a positive number")
    original = given.get("original_max_position_embeddings", 0)
    scaling = RopeScaling(
        kind, float(given["factor"]), int(original), float(given.get("low_freq_factor", 0.0)),
        float(given.get("high_freq_factor", 0.0)),
    )  # fmt: skip
    if scaling.factor < 1 or original != int(original) or (kind == "llama3" and not scaling.low < scaling.high):
        raise UnknownRope(f"rope_parameters of type {kind!r} with {given}")
    return scaling
