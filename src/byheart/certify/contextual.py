"""Whether a network is a contextual mapping on given sequences: KS25's Definition 4.1, decided by exact evaluation.

A token's context is the token with the multiset of its sequence. The network gives every token a number, its context
id, and is an (r, δ)-contextual mapping when

    1. no id is larger than r in absolute value,
    2. ids of different contexts are at least δ > 0 apart.

Equal contexts must have equal ids, too, which the definition leaves to the equivariance of its networks and a checker
should not. A second output, where there is one, is the sequence id: the same at every token of sequences with equal
multisets, and different otherwise.

Every token of every sequence is evaluated. Along the sorted line of ids only neighbours can be closest, so the cost is
the evaluation and one sort; all numbers are fractions, and nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from byheart.certify.certificate import Verdict
from byheart.certify.checker import arithmetic
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import DataError, MissingExtraError, NetworkError, NotRationalError
from byheart.ir.evaluate import outputs
from byheart.ir.network import Network
from byheart.ir.size import Size, measure
from byheart.notebook import card, tone_of
from byheart.paper import Ref, implements

Ids = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class ContextWitness:
    """The tokens that break a condition; one token alone where its id is too large.

    Attributes:
        row: The sequence of the token.
        position: Its position.
        id: Its context id.
        other_row: The sequence of the second token.
        other_position: Its position.
        other_id: Its context id.
    """

    row: int
    position: int
    id: Fraction
    other_row: int | None = None
    other_position: int | None = None
    other_id: Fraction | None = None


@dataclass(frozen=True)
class ContextCertificate:
    """The result of a check: if `proved`, the network is an (r, δ)-contextual mapping on these sequences.

    Attributes:
        verdict: `proved`, `refuted` or `undecided`.
        reason: One sentence.
        rows: Sequences.
        tokens: Tokens.
        contexts: Distinct contexts.
        multisets: Distinct multisets.
        r: The given bound of the ids, else the largest absolute id.
        delta: The given distance, else the smallest distance of different contexts (None for a single context).
        fingerprint: Of the sequences.
        size: The measured sizes.
        arithmetic: How the network was evaluated.
        witness: The tokens that break a condition.
        context_ids: The ids, sequence by sequence.
        sequence_ids: The ids of whole sequences, where the network has a second output.
    """

    verdict: Verdict
    reason: str
    rows: int
    tokens: int
    contexts: int
    multisets: int
    r: Fraction | None
    delta: Fraction | None
    fingerprint: str
    size: Size
    arithmetic: str
    witness: ContextWitness | None = None
    context_ids: Ids = field(default=(), repr=False)
    sequence_ids: tuple[Fraction, ...] = field(default=(), repr=False)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        scope = f"{self.rows:,} sequences, {self.tokens:,} tokens, {self.contexts:,} contexts"
        facts = [("scope", scope), ("arithmetic", self.arithmetic)]
        return card(f"{self.verdict.value}: {self.reason}", facts, tone=tone_of(self.verdict))

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON, without the ids; fractions as texts."""
        plain = {name: getattr(self, name) for name in ("reason", "rows", "tokens", "contexts", "multisets")}
        exact = {name: _text(getattr(self, name)) for name in ("r", "delta")}
        witness = None
        if self.witness is not None:
            witness = {n: _text(v) if isinstance(v, Fraction) else v for n, v in vars(self.witness).items()}
        return {
            "verdict": self.verdict.value,
            **plain,
            **exact,
            "fingerprint": self.fingerprint,
            "size": self.size.as_dict(),
            "arithmetic": self.arithmetic,
            "witness": witness,
        }


def _text(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


@implements(
    Ref("KS25", "Definition 4.1"),
    statement="decided for a network and given sequences: every token is evaluated, equal contexts have equal ids, "
    "different ones are at least δ apart, no id is larger than r; and the same of sequence ids",
    test="tests/certify/test_contextual.py",
)
def certify_contexts(
    network: Network, dataset: Dataset, *, r: Fraction | None = None, delta: Fraction | None = None
) -> ContextCertificate:
    """Decide whether a network is an (r, δ)-contextual mapping on the data set's sequences.

    Args:
        network: The network.
        dataset: Sequences with the task seq-to-seq, so that every token has a context.
        r: The largest absolute id that is allowed; None measures it.
        delta: The smallest distance of different contexts that is allowed; None measures it.

    Returns:
        The certificate; `undecided` where the network has attention whose weights are not rational.

    Raises:
        DataError: The data set has another task.
    """
    if dataset.encoder.task is not Task.SEQ_TO_SEQ:
        raise DataError(f"the data set has the task {dataset.encoder.task}; every token needs a context: seq-to-seq")
    evaluated, facts = None, _Finding(Verdict.UNDECIDED, "")
    try:
        evaluated = _evaluate(network, dataset)
    except (NotRationalError, MissingExtraError) as error:
        facts = _Finding(Verdict.UNDECIDED, str(error))
    except (NetworkError, DataError) as error:
        facts = _Finding(Verdict.REFUTED, f"the network cannot answer these sequences: {error}")
    if evaluated is not None:
        facts = _decide(evaluated, r, delta)
        r = evaluated.largest if r is None else r
        delta = facts.distance if delta is None else delta
    return ContextCertificate(
        verdict=facts.verdict,
        reason=facts.reason,
        rows=dataset.N,
        tokens=int((dataset.contexts.of_label >= 0).sum()),
        contexts=len(dataset.contexts),
        multisets=dataset.contexts.multisets,
        r=r,
        delta=delta,
        fingerprint=dataset.fingerprint,
        size=measure(network),
        arithmetic=arithmetic(network),
        witness=facts.witness,
        context_ids=() if evaluated is None else evaluated.by_row(0),
        sequence_ids=() if evaluated is None or evaluated.width < 2 else tuple(row[0] for row in evaluated.by_row(1)),
    )


@dataclass(frozen=True)
class _EvaluatedToken:
    """One evaluated token: its position, its context, and the network's outputs."""

    row: int
    position: int
    context: int
    multiset: int
    outputs: tuple[Fraction, ...]


@dataclass(frozen=True, eq=False)
class _Answers:
    tokens: list[_EvaluatedToken]  # row after row
    rows: int
    width: int

    @property
    def largest(self) -> Fraction:
        return max(abs(token.outputs[0]) for token in self.tokens)

    def by_row(self, output: int) -> Ids:
        rows: list[list[Fraction]] = [[] for _ in range(self.rows)]
        for token in self.tokens:
            rows[token.row].append(token.outputs[output])
        return tuple(map(tuple, rows))


@dataclass(frozen=True)
class _Finding:
    verdict: Verdict
    reason: str
    witness: ContextWitness | None = None
    distance: Fraction | None = None


def _evaluate(network: Network, dataset: Dataset) -> _Answers:
    """The network's outputs at every token; a shorter row is padded, and its padding has no context."""
    state, contexts = outputs(network, dataset.inputs), dataset.contexts
    if state.index.shape != contexts.of_label.shape:
        raise NetworkError(f"it answers {state.index.shape}, the tokens are {contexts.of_label.shape}")
    answers = [tuple(map(Fraction, state.points.row(point))) for point in range(state.points.count)]
    if not answers[0]:
        raise NetworkError("it has no output, and an id is its first one")
    tokens = []
    for row, names in enumerate(contexts.of_label):
        places = np.flatnonzero(names >= 0).tolist()
        tokens += [
            _EvaluatedToken(
                row, position, int(names[k]), int(contexts.multiset[names[k]]), answers[state.index[row, k]]
            )
            for position, k in enumerate(places)
        ]
    return _Answers(tokens, dataset.N, len(answers[0]))


def _decide(evaluated: _Answers, r: Fraction | None, delta: Fraction | None) -> _Finding:
    found = _distinguished(evaluated.tokens, 0, "context", "contexts")
    if found.verdict is Verdict.PROVED and evaluated.width > 1:
        of_sequences = _distinguished(evaluated.tokens, 1, "multiset", "multisets")
        if of_sequences.verdict is not Verdict.PROVED:
            found = of_sequences
    if found.verdict is not Verdict.PROVED:
        return found
    largest = max(evaluated.tokens, key=lambda token: abs(token.outputs[0]))
    if r is not None and abs(largest.outputs[0]) > r:
        reason = f"the id of {_place(largest)} is larger than r"
        return _Finding(Verdict.REFUTED, reason, _witness(largest), found.distance)
    if delta is not None and found.distance is not None and found.distance < delta:
        one, other = _closest(evaluated.tokens)
        reason = f"{_place(one)} and {_place(other)} are different contexts whose ids are less than δ apart"
        return _Finding(Verdict.REFUTED, reason, _witness(one, other), found.distance)
    if delta is not None and delta <= 0:
        return _Finding(Verdict.REFUTED, "δ is not positive, and an (r, δ)-contextual mapping has δ > 0")
    count = len(evaluated.tokens)
    reason = (
        f"every token was evaluated in exact arithmetic ({count:,}): equal contexts have equal ids, different ones not"
    )
    return _Finding(Verdict.PROVED, reason, distance=found.distance)


def _distinguished(tokens: list[_EvaluatedToken], output: int, kind: str, others: str) -> _Finding:
    """Whether tokens have equal outputs where their contexts (multisets) are equal, and only there."""
    of_kind: dict[int, _EvaluatedToken] = {}
    of_id: dict[Fraction, _EvaluatedToken] = {}
    word = "id" if output == 0 else "sequence id"
    for token in tokens:
        name, id = getattr(token, kind), token.outputs[output]
        same = of_kind.setdefault(name, token)
        if same.outputs[output] != id:
            reason = f"{_place(same)} and {_place(token)} have one {kind} but different {word}s"
            return _Finding(Verdict.REFUTED, reason, _witness(same, token, output))
        first = of_id.setdefault(id, token)
        if getattr(first, kind) != name:
            reason = f"{_place(first)} and {_place(token)} have different {others} but the same {word}"
            return _Finding(Verdict.REFUTED, reason, _witness(first, token, output))
    line = sorted(of_id)
    return _Finding(Verdict.PROVED, "", distance=min((b - a for a, b in pairwise(line)), default=None))


def _closest(tokens: list[_EvaluatedToken]) -> tuple[_EvaluatedToken, _EvaluatedToken]:
    of_id = {token.outputs[0]: token for token in reversed(tokens)}
    one, other = min(pairwise(sorted(of_id)), key=lambda pair: pair[1] - pair[0])
    return of_id[one], of_id[other]


def _place(token: _EvaluatedToken) -> str:
    return f"row {token.row}, position {token.position}"


def _witness(one: _EvaluatedToken, other: _EvaluatedToken | None = None, output: int = 0) -> ContextWitness:
    if other is None:
        return ContextWitness(one.row, one.position, one.outputs[output])
    return ContextWitness(one.row, one.position, one.outputs[output], other.row, other.position, other.outputs[output])
