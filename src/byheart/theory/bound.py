"""A bound as a value: a number with the theorem it comes from, its formula and what it assumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from byheart.paper import Ref

Kind = Literal["lower", "upper"]
Quantity = Literal["parameters", "total_bits", "width", "depth", "max_bits", "points"]


@dataclass(frozen=True)
class Bound:
    """`quantity` is at least (lower) or at most (upper) `value`.

    `points` counts sequences that an architecture can shatter. `proved` is False for orders of growth with constant 1,
    reconstructions of constants that a paper does not print, and estimates.
    """

    name: str
    kind: Kind
    quantity: Quantity
    value: int
    ref: Ref
    formula: str
    assumptions: tuple[str, ...] = ()
    proved: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "quantity": self.quantity,
            "value": self.value,
            "theorem": str(self.ref),
            "formula": self.formula,
            "assumptions": list(self.assumptions),
            "proved": self.proved,
        }
