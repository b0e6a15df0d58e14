"""What a theorem promises, as data that the checker compares with what it measures."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from byheart.errors import FileFormatError
from byheart.ir.json_form import counts, expect, only, take, texts
from byheart.ir.size import Size
from byheart.paper import PAPERS, Ref


@dataclass(frozen=True)
class Claim:
    """A promise: a network of at most this width, depth, … memorizes the data.

    `bounds` maps a field of `Size` to the largest value the theorem allows, computed before anything is built from the
    construction's formula and the data, never from the network; empty where a construction promises no size.
    `formulas` says in words where each number comes from. `properties` names further promises that the checker must
    prove by its own means, such as "exact in any order: float64".
    """

    ref: Ref
    bounds: dict[str, int] = field(default_factory=dict)
    formulas: dict[str, str] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        strange = sorted(set(self.bounds) - SIZES)
        if strange:
            raise FileFormatError(f"a bound on {strange[0][:40]!r} is promised; sizes are {', '.join(sorted(SIZES))}")

    def broken_by(self, size: Size) -> list[str]:
        """Sentences for every bound that `size` exceeds; empty when the promise is kept."""
        measured = size.as_dict()
        return [
            f"{name} is {measured[name]:,}, more than the promised {bound:,}"
            for name, bound in self.bounds.items()
            if measured[name] > bound
        ]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "paper": self.ref.paper,
            "label": self.ref.label,
            "bounds": self.bounds,
            "formulas": self.formulas,
            "assumptions": list(self.assumptions),
            "properties": list(self.properties),
        }

    @staticmethod
    def from_dict(value: Any) -> Claim:
        """The claim that a file records: a statement to be compared with the theorem, nothing more."""
        only(value, "claim", "paper", "label", "bounds", "formulas", "assumptions", "properties")
        if take(value, "paper", str) not in PAPERS:
            raise FileFormatError(f"unknown paper {value['paper']!r}; a newer byheart may have written this file")
        return Claim(
            Ref(value["paper"], take(value, "label", str)),
            bounds=counts(value, "bounds"),
            formulas=texts(value, "formulas"),
            assumptions=tuple(expect(text, str) for text in take(value, "assumptions", list)),
            properties=tuple(expect(text, str) for text in take(value, "properties", list)),
        )


SIZES = {part.name for part in fields(Size)}
