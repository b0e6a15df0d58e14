"""Certificates for decoders: a proved bound on the gap 𝓛 - 𝓗, and proved argmax labels, by enclosures.

First every context is enclosed with float64 balls; where these leave the question open, the widest contexts are redone
with arb balls, at 128 bits and then twice as many again and again, until the question is decided or the ceiling is met.
The checker sees the decoder's weights and the data, nothing of how they were made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.certify.balls import ArbBalls
from byheart.certify.certificate import Verdict
from byheart.certify.decoder_balls import logit_balls
from byheart.certify.float_balls import FloatBalls
from byheart.data.documents import Contexts
from byheart.errors import DataError, OptionError
from byheart.exact.rigor import ball, flint, lower_float, precision, upper_float
from byheart.ir.decoder import Decoder
from byheart.progress import SILENT, Progress

Ints = npt.NDArray[np.int64]

Logits = Callable[[Ints, Ints, Any], Any]  # (row numbers, their tokens, kind of balls) -> enclosed logits

WORKING = 128  # bits of the sums over contexts
CHUNK = 512  # contexts at a time with float64 balls
FIRST, CEILING = 128, 1024  # bits of arb balls


@dataclass(frozen=True)
class DecoderCertificate:
    """What was proved about a decoder and its contexts. Only the checker makes one.

    The gap 𝓛 - 𝓗 in nats lies in [gap_lower, gap_upper]; `labels_proved` counts the contexts for which a most frequent
    next token provably has the highest logit.
    """

    verdict: Verdict
    reason: str
    contexts: int
    entropy: float
    gap_lower: float
    gap_upper: float
    allowed: float
    labels_proved: int
    arithmetic: str
    fingerprint: str

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "verdict": self.verdict.value}


@dataclass
class _Row:
    """One context: the enclosure of its share of the gap, and whether its label is proved."""

    gap: Any
    label: bool


def certify_decoder(
    decoder: Decoder, contexts: Contexts, *, fraction: float = 0.01, ceiling: int = CEILING, progress: Progress = SILENT
) -> DecoderCertificate:
    """A certificate for "the decoder's cross-entropy exceeds the entropy by at most `fraction` of the entropy".

    If the entropy is 0 (every context has one continuation), `fraction` counts in nats per predicted token instead.
    proved: the upper end of the enclosure keeps the bound; refuted: the lower end breaks it; undecided: neither.
    """
    if contexts.vocabulary_size != len(decoder.vocabulary):
        raise DataError(f"the contexts have {contexts.vocabulary_size} tokens, the decoder {len(decoder.vocabulary)}")
    logits = partial(_decoder_logits, decoder)
    return _certify(logits, contexts, fraction, ceiling, progress)


def certify_table(
    answers: Ints,
    coordinates: npt.NDArray[np.float64],
    columns: npt.NDArray[np.float64],
    contexts: Contexts,
    *,
    fraction: float = 0.01,
    progress: Progress = SILENT,
) -> DecoderCertificate:
    """The same for a memory with a table: context i has the logits coordinates[answers[i]] @ columns.

    `answers` must come from exact evaluation of the memory's network; the softmax behind it is what is enclosed here.
    """
    if len(answers) != contexts.count or not ((answers >= 0) & (answers < len(coordinates))).all():
        raise DataError(f"{len(answers)} answers for {contexts.count} contexts, in a table of {len(coordinates)} rows")
    logits = partial(_table_logits, coordinates[answers], columns)
    return _certify(logits, contexts, fraction, CEILING, progress)


def _decoder_logits(decoder: Decoder, rows: Ints, tokens: Ints, kind: Any) -> Any:
    return logit_balls(decoder, tokens, kind)


def _table_logits(coordinates: Any, columns: Any, rows: Ints, tokens: Ints, kind: Any) -> Any:
    return kind.exact(coordinates[rows]).times(columns)


def _certify(
    logits: Logits, contexts: Contexts, fraction: float, ceiling: int, progress: Progress
) -> DecoderCertificate:
    if not fraction > 0:
        raise OptionError(f"fraction={fraction}: the allowed gap must be positive")
    with precision(WORKING):
        entropies = [_entropy(contexts, pairs) for pairs in _pairs(contexts)]
        entropy = sum(entropies, flint().arb(0))
        deterministic = int(contexts.supports.max()) == 1
        unit = sum((ball(w) for w in contexts.pair_weight.tolist()), flint().arb(0)) if deterministic else entropy
        allowed = unit * ball(fraction)
        rows = _float_rows(logits, contexts, entropies, progress)
        arithmetic, verdict, gap = "float64 balls with proved rounding bounds", *_judge(rows, allowed)
        bits = FIRST
        while verdict is Verdict.UNDECIDED and bits <= ceiling:
            redone = _redo(logits, contexts, entropies, rows, allowed, bits, progress)
            arithmetic = f"float64 balls, {redone} contexts with arb balls of {bits} bits"
            verdict, gap = _judge(rows, allowed)
            bits *= 2
        return DecoderCertificate(
            verdict=verdict,
            reason=_reason(verdict, gap, allowed),
            contexts=contexts.count,
            entropy=float(entropy),
            gap_lower=max(0.0, lower_float(gap)),
            gap_upper=upper_float(gap),
            allowed=lower_float(allowed),
            labels_proved=sum(row.label for row in rows),
            arithmetic=arithmetic,
            fingerprint=contexts.fingerprint,
        )


def _reason(verdict: Verdict, gap: Any, allowed: Any) -> str:
    low, high, limit = lower_float(gap), upper_float(gap), lower_float(allowed)
    match verdict:
        case Verdict.PROVED:
            return f"the gap is at most {high:.6g} nats, {limit:.6g} are allowed"
        case Verdict.REFUTED:
            return f"the gap is at least {low:.6g} nats, only {limit:.6g} are allowed"
        case Verdict.UNDECIDED:
            return f"balls stay too wide: the gap lies between {low:.6g} and {high:.6g} nats, {limit:.6g} are allowed"


def _judge(rows: list[_Row], allowed: Any) -> tuple[Verdict, Any]:
    gap = sum((row.gap for row in rows), flint().arb(0))
    if gap.is_finite() and gap <= allowed:
        return Verdict.PROVED, gap
    return (Verdict.REFUTED if gap.is_finite() and gap > allowed else Verdict.UNDECIDED), gap


def _pairs(contexts: Contexts) -> list[slice]:
    """Which pairs belong to each context."""
    edges = np.searchsorted(contexts.pair_context, np.arange(contexts.count + 1)).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _entropy(contexts: Contexts, pairs: slice) -> Any:
    """Σ w·log(c/w) of one context, c the sum of its weights: 0 for a single continuation."""
    weights = [ball(w) for w in contexts.pair_weight[pairs].tolist()]
    if len(weights) == 1:
        return flint().arb(0)
    total = sum(weights, flint().arb(0))
    return sum((w * (total / w).log() for w in weights), flint().arb(0))


def _groups(contexts: Contexts, rows: Ints, chunk: int) -> Iterator[tuple[Ints, Ints]]:
    """(row numbers, tokens without padding), contexts of one length together."""
    for length in np.unique(contexts.lengths[rows]):
        same = rows[contexts.lengths[rows] == length]
        for start in range(0, len(same), chunk):
            part = same[start : start + chunk]
            yield part, contexts.tokens[part, :length]


def _float_rows(source: Logits, contexts: Contexts, entropies: list[Any], progress: Progress) -> list[_Row]:
    rows: list[_Row] = [_Row(flint().arb(0), False)] * contexts.count
    pairs = _pairs(contexts)
    arb = flint().arb
    with progress.stage("enclosing contexts", total=contexts.count) as stage:
        for part, tokens in _groups(contexts, np.arange(contexts.count), CHUNK):
            logits = source(part, tokens, FloatBalls)
            top = logits.mid.max(axis=1)
            mass = (logits - FloatBalls.exact(top[:, None])).exp().sum(axis=1)
            for k, i in enumerate(part.tolist()):
                log_mass = _ball(arb, mass.mid[k], mass.rad[k]).log() + ball(float(top[k]))
                own = [_ball(arb, logits.mid[k, t], logits.rad[k, t]) for t in contexts.pair_token[pairs[i]].tolist()]
                label = _label_by_floats(contexts, pairs[i], logits.mid[k], logits.rad[k])
                rows[i] = _Row(_gap(contexts, pairs[i], log_mass, own, entropies[i]), label)
            stage.advance(len(part))
    return rows


def _ball(arb: Any, mid: float, rad: float) -> Any:
    return arb(float(mid), float(rad)) if np.isfinite(rad) else arb.nan()


def _gap(contexts: Contexts, pairs: slice, log_mass: Any, own: list[Any], entropy: Any) -> Any:
    """Σ w·(log Σ exp(logits) - logit) - entropy of one context."""
    weights = contexts.pair_weight[pairs].tolist()
    return sum((ball(w) * (log_mass - x) for w, x in zip(weights, own, strict=True)), -entropy)


def _label_by_floats(
    contexts: Contexts, pairs: slice, mid: npt.NDArray[np.float64], rad: npt.NDArray[np.float64]
) -> bool:
    """Whether a most frequent token has a higher logit than every other token, for all numbers in the balls."""
    best = _most_frequent(contexts, pairs)
    low = np.nextafter(mid[best] - rad[best], -np.inf).max()
    high = np.nextafter(mid + rad, np.inf)
    high[best] = -np.inf
    return bool(low > high.max())


def _most_frequent(contexts: Contexts, pairs: slice) -> Ints:
    weights = contexts.pair_weight[pairs]
    return np.asarray(contexts.pair_token[pairs][weights == weights.max()])


def _redo(
    source: Logits,
    contexts: Contexts,
    entropies: list[Any],
    rows: list[_Row],
    allowed: Any,
    bits: int,
    progress: Progress,
) -> int:
    """Replaces the enclosures of the widest contexts by arb balls of `bits` bits; returns how many were redone."""
    pairs = _pairs(contexts)
    widths = np.array([upper_float(row.gap.rad()) if row.gap.is_finite() else np.inf for row in rows])
    order = np.argsort(-widths, kind="stable")
    harmless = upper_float(allowed) * 2.0**-10 / contexts.count  # rows this narrow cannot decide anything
    chosen = order[widths[order] > harmless] if (widths > harmless).any() else order
    with progress.stage(f"enclosing with {bits} bits", total=len(chosen)) as stage, precision(bits):
        for part, tokens in _groups(contexts, chosen, 64):
            logits = source(part, tokens, ArbBalls).entries
            for k, i in enumerate(part.tolist()):
                rows[i] = _arb_row(contexts, pairs[i], logits[k], entropies[i])
            stage.advance(len(part))
    return len(chosen)


def _arb_row(contexts: Contexts, pairs: slice, logits: Any, entropy: Any) -> _Row:
    top = max(float(x.mid()) for x in logits)
    log_mass = sum(((x - top).exp() for x in logits), flint().arb(0)).log() + top
    own = [logits[t] for t in contexts.pair_token[pairs].tolist()]
    best = _most_frequent(contexts, pairs).tolist()
    others = [x for t, x in enumerate(logits) if t not in set(best)]
    label = any(all(logits[t] > x for x in others) for t in best)
    return _Row(_gap(contexts, pairs, log_mass, own, entropy), label)
