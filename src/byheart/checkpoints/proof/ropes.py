"""ScaledVector rotary positions: `rope_parameters` of the types linear, llama3, yarn and longrope, read strictly.

The formulas are those of Transformers' `modeling_rope_utils`. Fields that would change them (attention_factor, ...) are
refused by name. Yarn's further fields (beta_fast, truncate, mscale, ...) are read where the engines support them.

*Longrope* has two lists of divisors: for texts within the original positions, and for longer ones. An engine changes
from one to the other in the middle of a text, or takes one for all texts, so proofs end at the original positions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from byheart.errors import ByheartError

Array: TypeAlias = Any


class UnknownRope(ByheartError):
    """A scaling whose formula the proof does not support."""


FIELDS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
}
TURNS = ("beta_fast", "beta_slow")  # further fields of yarn, with which values engines agree
TRUNCATE = "truncate"
MSCALES = ("mscale", "mscale_all_dim")


@dataclass(frozen=True)
class RopeScaling:
    """One scaling: `kind` and its numbers (0 where the kind has none).

    `turns` are yarn's beta_fast and beta_slow, `truncated` is whether the ends of its ramp are whole numbers, and
    `mscales` are mscale and mscale_all_dim.
    """

    kind: str
    factor: float
    original: int = 0
    low: float = 0.0
    high: float = 0.0
    divisors: tuple[float, ...] = ()  # of longrope, within the original positions
    beyond: tuple[float, ...] = ()  # of longrope, in longer texts
    turns: tuple[float, float] = (32.0, 1.0)
    truncated: bool = True
    mscales: tuple[float, float] | None = None

    @property
    def gain(self) -> float:
        """The factor of cosines and sines."""
        if self.kind == "longrope" and self.factor > 1:
            return math.sqrt(1 + math.log(self.factor) / math.log(self.original))
        if self.kind != "yarn":
            return 1.0
        return self._magnitude(1.0) if self.mscales is None else self._magnitude(self.mscales[0]) / self.score_gain

    @property
    def score_gain(self) -> float:
        """What families with `mscale_all_dim` multiply queries and keys by, beside the rotation."""
        return 1.0 if self.mscales is None else self._magnitude(self.mscales[1])

    def _magnitude(self, mscale: float) -> float:
        return 0.1 * mscale * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    @property
    def uncertainty(self) -> float:
        """How many times the error of a plain frequency a scaled one has.

        Where two frequencies are blended, float32 rounds the blend's share, by at most 8 units. The share is that of
        the larger frequency, which is `factor` times the smaller one. Llama 3's share is a difference divided by
        `high - low`, which magnifies the rounding of `original / wave`.
        """
        if self.kind == "longrope":  # a divisor and a product in float32
            return 2.0
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
        if self.kind == "longrope":
            if {len(self.divisors), len(self.beyond)} != {len(base)}:
                raise UnknownRope(f"rope_parameters: longrope needs {len(base)} numbers in each list")
            return np.asarray(base / np.array(self.divisors))
        if self.kind == "llama3":
            wave = 2 * math.pi / base
            smooth = (self.original / wave - self.low) / (self.high - self.low)
            mixed = (1 - smooth) * base / self.factor + smooth * base
            slow = np.where(wave > self.original / self.low, base / self.factor, mixed)
            return np.where(wave < self.original / self.high, base, slow)
        ends = [dims * math.log(self.original / (n * 2 * math.pi)) / (2 * math.log(theta)) for n in self.turns]
        first, last = (math.floor(ends[0]), math.ceil(ends[1])) if self.truncated else ends
        low, high = max(first, 0), min(last, dims - 1)
        # A ramp between fractions that is steep would magnify their rounding.
        if high < low or (not self.truncated and high - low < 1):
            raise UnknownRope(f"yarn with original_max_position_embeddings {self.original}: engines blend differently")
        ramp = np.clip((np.arange(len(base)) - low) / max(high - low, 0.001), 0, 1)
        return base / self.factor * ramp + base * (1 - ramp)


def read_scaling(fields: Mapping[str, Any], more: Collection[str] = ()) -> RopeScaling | None:
    """Return the scaling that `rope_parameters` (without theta and share) describe; None for plain ropes.

    Args:
        fields: The object of config.json.
        more: Fields of yarn that this family reads beside the usual ones.

    Raises:
        UnknownRope: a type, a field or a value that the formulas do not cover.
    """
    kind = fields.get("rope_type", fields.get("type", "default"))
    if fields.get("type", kind) != kind:
        raise UnknownRope(f"rope_parameters name two types, {kind!r} and {fields['type']!r}")
    given = {name: value for name, value in fields.items() if name not in ("rope_type", "type")}
    if kind == "default" and not given:
        return None
    if not isinstance(kind, str) or kind not in FIELDS:
        raise UnknownRope(f"rope_parameters {sorted(given)} of type {kind!r}; the proof supports {', '.join(FIELDS)}")
    yarn = {name: given.pop(name) for name in more if name in given} if kind == "yarn" else {}
    if set(given) != set(FIELDS[kind]):
        raise UnknownRope(f"rope_parameters of type {kind!r} have {sorted(given)}; the proof supports {FIELDS[kind]}")
    if kind == "longrope":
        return _longrope(given)
    truncated = yarn.pop(TRUNCATE, True)
    if not isinstance(truncated, bool):
        raise UnknownRope(f"rope_parameters: {TRUNCATE} = {truncated!r} is not true or false")
    for name, value in (given | yarn).items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise UnknownRope(f"rope_parameters: {name} = {value!r} is not a positive number")
    if len(set(MSCALES) & set(yarn)) == 1:
        raise UnknownRope(f"rope_parameters: engines differ where only one of {' and '.join(MSCALES)} is stated")
    original = given.get("original_max_position_embeddings", 0)
    scaling = RopeScaling(
        kind, float(given["factor"]), int(original), float(given.get("low_freq_factor", 0.0)),
        float(given.get("high_freq_factor", 0.0)),
        turns=(float(yarn.get(TURNS[0], 32.0)), float(yarn.get(TURNS[1], 1.0))), truncated=truncated,
        mscales=(float(yarn[MSCALES[0]]), float(yarn[MSCALES[1]])) if MSCALES[0] in yarn else None,
    )  # fmt: skip
    if scaling.turns[0] <= scaling.turns[1]:
        raise UnknownRope(f"rope_parameters: {TURNS[0]} and {TURNS[1]} are {scaling.turns}")
    if scaling.factor < 1 or original != int(original) or (kind == "llama3" and not scaling.low < scaling.high):
        raise UnknownRope(f"rope_parameters of type {kind!r} with {given}")
    return scaling


LEAST_DIVISOR, LARGEST_DIVISOR = 2.0**-6, 2.0**20


def _longrope(given: Mapping[str, Any]) -> RopeScaling:
    """Longrope as its fields state it; its factor is `positions / original`, which the caller computes."""
    lists = []
    for name in ("short_factor", "long_factor"):
        values = given[name]
        fine = isinstance(values, list) and all(type(x) in (int, float) for x in values)
        if not fine or not all(LEAST_DIVISOR <= x <= LARGEST_DIVISOR for x in values):
            raise UnknownRope(f"rope_parameters: {name} is not a list of numbers from {LEAST_DIVISOR} to 2^20")
        lists.append(tuple(float(x) for x in values))
    original = given["original_max_position_embeddings"]
    if type(original) is not int or original < 2:
        raise UnknownRope(f"rope_parameters: original_max_position_embeddings = {original!r} is not an integer above 1")
    return RopeScaling("longrope", 1.0, original, divisors=lists[0], beyond=lists[1])
