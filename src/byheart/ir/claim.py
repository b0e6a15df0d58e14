"""What a theorem promises, as data that the checker compares with what it measures."""

from __future__ import annotations

from dataclasses import dataclass, field

from byheart.ir.size import Size
from byheart.paper import Ref


@dataclass(frozen=True)
class Claim:
    """A promise: a network of at most this width, depth, … memorizes the data.

    `bounds` maps a field of `Size` to the largest value the theorem allows, computed from the theorem's formula
    and never from the network. `formulas` says in words where each number comes from. `properties` names further
    promises that the checker must prove by its own means, such as "exact in any order: float64".
    """

    ref: Ref
    bounds: dict[str, int] = field(default_factory=dict)
    formulas: dict[str, str] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()

    def broken_by(self, size: Size) -> list[str]:
        """Sentences for every bound that `size` exceeds; empty when the promise is kept."""
        measured = size.as_dict()
        return [
            f"{name} is {measured[name]}, more than the promised {bound}"
            for name, bound in self.bounds.items()
            if measured[name] > bound
        ]
