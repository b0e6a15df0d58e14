"""What a proof about a written checkpoint says, as a value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from byheart.certify.certificate import Verdict
from byheart.checkpoints.proof.storage import ERROR_MODEL
from byheart.notebook import card, tone_of


@dataclass(frozen=True)
class MarginWitness:
    """A question that is answered wrongly, or not provably right: by document and position of the context's last
    token.
    """

    document: int
    position: int
    expected: int
    found: int
    margin: float


@dataclass(frozen=True)
class TypeResult:
    """The proof in one number type. `margin` is the least lead of the right token in nats; `variation` the largest
    total variation between the network's distribution and the data's; `nats` the largest error of a log-probability;
    `gap` the least lead of the place that a head reads. `unknown` is what all windows answer that are not memorized,
    if one token wins for all of them."""

    type: str
    weights: str
    verdict: Verdict
    reason: str
    margin: float | None = None
    variation: float | None = None
    nats: float | None = None
    gap: float | None = None
    agree: int = 0
    unknown: int | None = None
    unknown_margin: float | None = None
    seconds: float = 0.0
    witness: MarginWitness | None = None


@dataclass(frozen=True)
class MarginCertificate:
    """What was proved about a folder: for every input sequence up to `reach` tokens that ends in a memorized window
    of `span` tokens (or is a memorized beginning), the right token wins, in every engine of the error model. Only the
    checker makes one.

    `once`: tokens that the quantified sequences have at position 0 or nowhere (empty: all sequences).
    """

    verdict: Verdict
    reason: str
    architecture: str
    asked: int  # positions of the data
    windows: int  # distinct questions among them
    ambiguous: int  # of these, with several answers
    reach: int
    span: int
    once: tuple[int, ...]
    fingerprint: str  # SHA-256 of config.json and model.safetensors
    types: tuple[TypeResult, ...]
    error_model: tuple[str, ...] = field(default=ERROR_MODEL)

    @property
    def margin(self) -> float | None:
        """The least proved margin over all types; None unless everything is proved."""
        found = [t.margin for t in self.types if t.margin is not None]
        return min(found) if self.verdict is Verdict.PROVED and found else None

    @property
    def agree(self) -> int:
        return min((t.agree for t in self.types), default=0)

    @property
    def witness(self) -> MarginWitness | None:
        return next((t.witness for t in self.types if t.witness is not None), None)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "margin": self.margin, "agree": self.agree}

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        head, *more = self.lines()
        return card(head, [], columns=("",), rows=[(line.strip(),) for line in more], tone=tone_of(self.verdict))

    def lines(self) -> list[str]:
        """A summary for people."""
        head = f"{self.verdict}: {self.reason}"
        over = f"every sequence of up to {self.reach} tokens"
        if self.once:
            over += f" in which token {', '.join(map(str, self.once))} occurs at the start or nowhere"
        found = [
            head,
            f"  {self.architecture}; {self.asked} positions, {self.windows} distinct windows of {self.span} tokens,"
            f" {self.ambiguous} with several answers",
            f"  for {over}",
        ]
        for t in self.types:
            found.append(
                f"  {t.type}{'' if t.weights == 'type' else ' with ' + t.weights + ' weights'}: {_type_line(t)}"
            )
        return [*found, "  engines: " + "; ".join(self.error_model)]


def _type_line(t: TypeResult) -> str:
    if t.verdict is not Verdict.PROVED:
        return f"{t.verdict}: {t.reason}"
    said = [] if t.margin is None else [f"margin >= {t.margin:.2f} nats"]
    said += [] if t.variation is None else [f"total variation <= {t.variation:.1e}"]
    said += [] if t.gap is None else [f"attention gap >= {t.gap:.1f} nats"]
    if t.unknown is not None and t.unknown_margin is not None:
        said.append(f"unknown windows answer token {t.unknown} by {t.unknown_margin:.2f} nats")
    return ", ".join(said)
