"""The result of a proof about a written checkpoint, as a value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from byheart.certify.certificate import Verdict
from byheart.checkpoints.proof.storage import ERROR_MODEL
from byheart.notebook import card, tone_of


@dataclass(frozen=True)
class MarginWitness:
    """A query that is answered incorrectly, or not provably correctly.

    Attributes:
        document: The document's number.
        position: The position of the context's last token.
        expected: The correct token.
        found: The token that the network may return.
        margin: The proved margin of the correct token in nats; negative if it certainly loses.
    """

    document: int
    position: int
    expected: int
    found: int
    margin: float


@dataclass(frozen=True)
class TypeResult:
    """The proof in one number type.

    Attributes:
        type: `float32`, `bfloat16` or `float16`.
        weights: `type`, or the integers that the weights are rounded to first.
        verdict: `proved`, `refuted` or `undecided`.
        reason: One sentence; it names the place where a proof fails.
        margin: The least margin of the correct token in nats.
        variation: The largest total variation between the network's distribution and the data's.
        nats: The largest error of a log-probability.
        gap: The least margin of the place that a head reads.
        agree: How many queries are proved.
        unknown: The token that all windows outside the data answer, if one token wins for all of them.
        unknown_margin: Its least margin.
        seconds: Time of the proof.
        witness: The worst query that is not proved.
        padding: Why rows of padding are not shown to be finite, and with them batches that are padded; empty if they
            are, None if that was not examined (adapters).
    """

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
    padding: str | None = None


@dataclass(frozen=True)
class MarginCertificate:
    """What is proved about a folder; only the checker makes one.

    For every input sequence up to `reach` tokens that ends in a memorized window of `span` tokens (or is a memorized
    beginning), the correct token wins, in every engine of the error model.

    Attributes:
        verdict: `proved`, `refuted` or `undecided`.
        reason: One sentence; it names the place where a proof fails.
        architecture: The `model_type` of config.json.
        asked: Positions of the data.
        windows: Distinct windows among them.
        ambiguous: Windows with several continuations.
        reach: The longest sequence that is quantified over.
        span: How many tokens decide an answer.
        once: Tokens that these sequences have at position 0 or nowhere; empty if all sequences are covered.
        fingerprint: SHA-256 of config.json and the tensors.
        types: One result per type.
        error_model: The engines that are covered, in sentences.
        scope: The inputs that are covered, where they are not all sequences.
    """

    verdict: Verdict
    reason: str
    architecture: str
    asked: int  # positions of the data
    windows: int  # distinct queries among them
    ambiguous: int  # of these, with several answers
    reach: int
    span: int
    once: tuple[int, ...]
    fingerprint: str  # SHA-256 of config.json and model.safetensors
    types: tuple[TypeResult, ...]
    error_model: tuple[str, ...] = field(default=ERROR_MODEL)
    scope: str = ""  # the inputs that are quantified over, where they are not all sequences

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
        """Return all fields, ready for JSON."""
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
        windows = f"{self.windows} distinct windows of {self.span} tokens, {self.ambiguous} with several answers"
        found = [
            head,
            f"  {self.architecture}; {self.asked} positions" + ("" if self.scope else f", {windows}"),
            f"  for {self.scope or over}",
        ]
        for t in self.types:
            found.append(
                f"  {t.type}{'' if t.weights == 'type' else ' with ' + t.weights + ' weights'}: {_type_line(t)}"
            )
        return [*found, "  engines: " + "; ".join(self.error_model)]


def _type_line(t: TypeResult) -> str:
    if t.verdict is not Verdict.PROVED:
        return f"{t.verdict}: {t.reason}"
    parts = [] if t.margin is None else [f"margin >= {t.margin:.2f} nats"]
    parts += [] if t.variation is None else [f"total variation <= {t.variation:.1e}"]
    parts += [] if t.gap is None else [f"attention gap >= {t.gap:.1f} nats"]
    if t.unknown is not None and t.unknown_margin is not None:
        parts.append(f"unknown windows answer token {t.unknown} by {t.unknown_margin:.2f} nats")
    return ", ".join([*parts, *padding_line(t)])


def padding_line(t: TypeResult) -> list[str]:
    """What a summary states about padded batches."""
    if t.padding is None:
        return []
    return ["also in padded batches" if not t.padding else f"padded batches are not proved ({t.padding})"]
