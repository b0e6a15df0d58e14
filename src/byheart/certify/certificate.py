"""The checker's verdict, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from byheart.ir.json_form import enum, take
from byheart.ir.size import Size


class Verdict(StrEnum):
    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Witness:
    """A place where the network is wrong: class indices, `found` = -1 for no class at all."""

    row: int
    position: int | None
    expected: int
    found: int


@dataclass(frozen=True)
class Certificate:
    """What was checked, and what came out. Only the checker makes one.

    `promised` are the claim's bounds, to be read beside `size`; `arithmetic` says how the network was evaluated;
    `proofs` are further properties that were proved, name -> sentence.
    """

    verdict: Verdict
    reason: str
    rows: int
    labels: int
    contexts: int
    fingerprint: str
    size: Size
    promised: dict[str, int]
    arithmetic: str
    witness: Witness | None = None
    proofs: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        witness = None if self.witness is None else vars(self.witness).copy()
        return {**vars(self), "verdict": self.verdict.value, "size": self.size.as_dict(), "witness": witness}

    @staticmethod
    def from_dict(value: Any) -> Certificate:
        """The certificate that a file carries: a record of what was proved then, not a proof."""
        witness = value.get("witness") if isinstance(value, dict) else None
        sizes = take(value, "size", dict)
        return Certificate(
            verdict=enum(Verdict, value, "verdict"),
            reason=take(value, "reason", str),
            rows=take(value, "rows", int),
            labels=take(value, "labels", int),
            contexts=take(value, "contexts", int),
            fingerprint=take(value, "fingerprint", str),
            size=Size(**{name: take(sizes, name, int) for name in Size.__dataclass_fields__}),
            promised={name: take(value["promised"], name, int) for name in take(value, "promised", dict)},
            arithmetic=take(value, "arithmetic", str),
            witness=None if witness is None else _witness(witness),
            proofs={name: take(value["proofs"], name, str) for name in take(value, "proofs", dict)},
        )


def _witness(value: Any) -> Witness:
    position = value.get("position") if isinstance(value, dict) else None
    return Witness(
        take(value, "row", int),
        None if position is None else take(value, "position", int),
        take(value, "expected", int),
        take(value, "found", int),
    )
