"""The hash chain: folding an integer around an odd modulus yields one pseudo-random bit after another.

A chain keeps z = 2^e' · x with 0 <= x < M. Step i has the threshold θ = M·2^e and η = 2^e, e = s − i: with
r± = relu(z − θ ± η), z ← z − r₊ − r₋ folds z around θ and (r₊ − r₋)/(2η) is the bit [z > θ]. z/η is even and M odd,
so z is never nearer to θ than η. After s steps z is multiplied by 2^s and e starts again. Up to sign, step i
holds 2^i·x mod M: distinct ids never meet.

Why not multiply and take the remainder: a network has only sums and ReLUs. Folding at θ is a remainder up to sign, and
doubling is done by halving θ and η instead of doubling z, so that a step costs two units and no channel; only every
s-th step must rescale, with a third unit. η keeps the kink between two values that z can take, so that both units are
exact and their difference is exactly 0 or 2η.

    >>> chain = Chain(modulus=13, scale=2)
    >>> [(f.threshold, f.margin, f.rescale) for f in (chain.fold(0), chain.fold(1), chain.fold(2))]
    [(26, 2, 0), (13, 1, 2), (26, 2, 0)]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byheart.build.native.block import Unit
from byheart.errors import BuildError
from byheart.exact import Number, dyadic


@dataclass(frozen=True)
class Fold:
    """One step: threshold θ, margin η, and the power of two that z is multiplied with afterwards."""

    threshold: int
    margin: int
    rescale: int


@dataclass(frozen=True)
class Chain:
    """z starts as x·2^scale with 0 <= x < modulus, an odd number."""

    modulus: int
    scale: int

    def __post_init__(self) -> None:
        if self.modulus % 2 == 0 or self.modulus < 3 or self.scale < 1:
            raise BuildError(f"a hash chain needs an odd modulus and room to shift, not {self.modulus}, {self.scale}")

    def fold(self, step: int) -> Fold:
        """Step number `step`, counted from 0."""
        exponent = self.scale - 1 - step % self.scale
        return Fold(self.modulus << exponent, 1 << exponent, self.scale if exponent == 0 else 0)


def chain_scale(mantissa: int, modulus_bits: int) -> int:
    """The most shift that keeps a rescaling step exact: 4·M·2^s over the lattice 2 is at most 2^mantissa."""
    return mantissa - 1 - modulus_bits


def fold_units(fold: Fold, channel: int, bit: Mapping[int, int]) -> list[Unit]:
    """The units of one step on `channel`; the bit is added to the channels of `bit` with these weights."""
    scale = 1 << fold.rescale
    margin = fold.margin.bit_length()  # 1/(2η) = 2^-margin
    plus: dict[int, Number] = {c: dyadic(w, -margin) for c, w in bit.items()}
    minus: dict[int, Number] = {c: dyadic(-w, -margin) for c, w in bit.items()}
    units = [
        Unit({channel: 1}, fold.margin - fold.threshold, {**plus, channel: -scale}),
        Unit({channel: 1}, -fold.margin - fold.threshold, {**minus, channel: -scale}),
    ]
    if fold.rescale:
        units.append(Unit({channel: 1}, 0, {channel: scale - 1}))
    return units
