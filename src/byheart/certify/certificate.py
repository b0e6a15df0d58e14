"""The checker's verdict, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from byheart.errors import FileFormatError
from byheart.exact.number import from_float
from byheart.ir.json_form import counts, enum, number_from_json, number_to_json, only, optional, take, texts
from byheart.ir.size import Size, size_from_json
from byheart.notebook import card, tone_of


class Verdict(StrEnum):
    """The outcome of a check; a member equals its own text.

    >>> Verdict.PROVED == "proved", [verdict.value for verdict in Verdict]
    (True, ['proved', 'refuted', 'undecided'])
    """

    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Witness:
    """An input with an incorrect answer.

    Attributes:
        row: The row of the data.
        position: The token of the row, where every token has a label.
        expected: The class index of its label; -1 where the label is not a class.
        found: The class index of the answer; -1 for none.
    """

    row: int
    position: int | None
    expected: int
    found: int


@dataclass(frozen=True)
class Gap:
    """Where targets are distributions: how far the cross-entropy 𝓛 is above their entropy 𝓗, in nats, proved.

    Attributes:
        entropy: 𝓗.
        lower: A lower bound of 𝓛 - 𝓗.
        upper: An upper bound of it; None where it is not bounded.
        allowed: The largest gap that is accepted: `fraction` of 𝓗, or of one nat for each predicted token where 𝓗 = 0.
        fraction: The user's fraction.
        tokens: How many tokens are predicted.
        labels_proved: Contexts whose likeliest label provably has the highest logit.
        labels_refuted: Contexts whose likeliest label provably has not.
    """

    entropy: float
    lower: float
    upper: float | None
    allowed: float
    fraction: float
    tokens: float
    labels_proved: int
    labels_refuted: int

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return self.lower if self.upper is None else (self.lower + self.upper) / 2

    def summary(self) -> dict[str, Any]:
        """Return plain numbers for display."""
        gap = max(0.0, self.middle)
        return {
            "entropy": self.entropy,
            "cross_entropy": self.entropy + gap,
            "gap": gap,
            "relative_gap": gap / self.entropy if self.entropy else None,
            "gap_per_token": gap / self.tokens if self.tokens else None,
            "gap_proved": self.upper,
            "gap_allowed": self.allowed,
            "labels_proved": self.labels_proved,
            "labels_refuted": self.labels_refuted,
        }

    def as_dict(self) -> dict[str, Any]:
        """Ready for a file, which has no floats: each is the dyadic number that it is."""
        return {name: _exact(value) if isinstance(value, float) else value for name, value in vars(self).items()}

    @staticmethod
    def from_dict(value: Any) -> Gap:
        """Read the record of `as_dict`.

        Args:
            value: The field of a file.

        Raises:
            FileFormatError: It is not such a record.
        """
        only(value, "gap", *(part.name for part in fields(Gap)))
        return Gap(
            entropy=_float(value["entropy"]),
            lower=_float(value["lower"]),
            upper=optional(value, "upper", _float),
            allowed=_float(value["allowed"]),
            fraction=_float(value["fraction"]),
            tokens=_float(value["tokens"]),
            labels_proved=take(value, "labels_proved", int),
            labels_refuted=take(value, "labels_refuted", int),
        )


def _exact(value: float) -> int | str:
    return number_to_json(from_float(value))


def _float(value: Any) -> float:
    try:
        return float(number_from_json(value))
    except OverflowError:
        raise FileFormatError(f"{str(value)[:40]!r} is larger than any float64") from None


@dataclass(frozen=True)
class Certificate:
    """The checker's verdict and its scope. Only the checker makes one.

    Where targets are distributions, the verdict is about the `gap` of all rows together: proved, they all agree;
    refuted, those differ that have a context with more than its share of the gap.

    Attributes:
        verdict: `proved`, `refuted` or `undecided`.
        reason: One sentence.
        rows: All rows that were given.
        asked: Rows that were evaluated and compared with their labels.
        agree: Rows whose answers are their labels.
        differ: Rows with another answer; the rest of `asked` is undecided.
        labels: Labels that were compared.
        contexts: Distinct contexts among them.
        fingerprint: Of the evaluated rows.
        size: The measured sizes.
        guaranteed: The numbers that the theorem gives for this data, to be read beside `size`.
        guarantee: `kept`, `broken`, `none` (the construction guarantees nothing), or `not checked: …` with the reason.
        arithmetic: How the network was evaluated.
        left_out: Why other rows were skipped -> how many.
        witness: The first row that differs.
        proofs: Further properties that were proved, name -> sentence.
        gap: None for classes.
        remarks: Further remarks for the reader; not part of a file.

    >>> import byheart
    >>> found = byheart.memorize(["ab", "ba"], [0, 1], construction="ks25", progress=False).certificate
    >>> found.verdict, found.rows, found.agree
    (<Verdict.PROVED: 'proved'>, 2, 2)
    """

    verdict: Verdict
    reason: str
    rows: int
    asked: int
    agree: int
    differ: int
    labels: int
    contexts: int
    fingerprint: str
    size: Size
    guaranteed: dict[str, int]
    guarantee: str
    arithmetic: str
    left_out: dict[str, int] = field(default_factory=dict)
    witness: Witness | None = None
    proofs: dict[str, str] = field(default_factory=dict)
    gap: Gap | None = None
    remarks: tuple[str, ...] = ()

    @property
    def undecided(self) -> int:
        """Rows whose enclosures left more than one class."""
        return self.asked - self.agree - self.differ

    @property
    def count_words(self) -> str:
        """The scope in one line.

        >>> from byheart.memory import memorize
        >>> memorize(["a", "b"], [0, 1], construction="ks25", progress=False).certificate.count_words
        '2 rows, 2 evaluated, 2 agree, 0 differ, 0 skipped'
        """
        why = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
        unsure = f", {self.undecided:,} undecided" if self.undecided else ""
        return (
            f"{self.rows:,} row{'' if self.rows == 1 else 's'}, {self.asked:,} evaluated, {self.agree:,} agree, "
            f"{self.differ:,} differ{unsure}, {sum(self.left_out.values()):,} skipped{f' ({why})' if why else ''}"
        )

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        facts = [
            ("scope", self.count_words),
            ("guarantee", self.guarantee),
            ("arithmetic", self.arithmetic),
            ("remark", "; ".join(self.remarks)),
        ]
        return card(f"{self.verdict.value}: {self.reason}", [*facts, *self.proofs.items()], tone=tone_of(self.verdict))

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON, as a file stores it."""
        witness = None if self.witness is None else vars(self.witness).copy()
        plain = {name: getattr(self, name) for name in _STORED}
        gap = {} if self.gap is None else {"gap": self.gap.as_dict()}
        return {**plain, "verdict": self.verdict.value, "size": self.size.as_dict(), "witness": witness, **gap}

    @staticmethod
    def from_dict(value: Any) -> Certificate:
        """Read the certificate of a file: a record of an earlier proof, not a proof.

        Args:
            value: The field of a file.

        Raises:
            FileFormatError: It is not such a record.
        """
        gap = isinstance(value, Mapping) and "gap" in value  # a field of memories of distributions alone
        only(value, "certificate", *_STORED, *(("gap",) if gap else ()))
        return Certificate(
            verdict=enum(Verdict, value, "verdict"),
            reason=take(value, "reason", str),
            rows=take(value, "rows", int),
            asked=take(value, "asked", int),
            agree=take(value, "agree", int),
            differ=take(value, "differ", int),
            labels=take(value, "labels", int),
            contexts=take(value, "contexts", int),
            fingerprint=take(value, "fingerprint", str),
            size=size_from_json(take(value, "size", dict)),
            guaranteed=counts(value, "guaranteed"),
            guarantee=take(value, "guarantee", str),
            arithmetic=take(value, "arithmetic", str),
            left_out=counts(value, "left_out"),
            witness=optional(value, "witness", _witness),
            proofs=texts(value, "proofs"),
            gap=Gap.from_dict(value["gap"]) if gap else None,
        )


_STORED = tuple(part.name for part in fields(Certificate) if part.name not in ("remarks", "gap"))


def _witness(value: Any) -> Witness:
    only(value, "witness", "row", "position", "expected", "found")
    return Witness(
        take(value, "row", int),
        optional(value, "position", lambda position: take({"position": position}, "position", int)),
        take(value, "expected", int),
        take(value, "found", int),
    )
