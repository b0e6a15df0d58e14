"""A bound as a value: a number with the theorem it comes from, its formula and what it assumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from byheart.notebook import card
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

    @property
    def sentence(self) -> str:
        """The bound in words.

        >>> Bound("bits", "lower", "total_bits", 1000, Ref("KS25", "Remark 4.4"), "N·log2 C").sentence
        'at least 1,000 total bits'
        """
        least = "at least" if self.kind == "lower" else "at most"
        return f"{least} {self.value:,} {self.quantity.replace('_', ' ')}{'' if self.proved else ' (not proved)'}"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        facts = [
            ("from", f"{self.name} ({self.ref})"),
            ("formula", self.formula),
            ("assumes", "; ".join(self.assumptions)),
        ]
        return card(self.sentence, facts)

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
