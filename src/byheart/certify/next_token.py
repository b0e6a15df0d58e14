"""Certificates for decoders: a proved bound on the gap 𝓛 - 𝓗, and proved argmax labels, by enclosures.

First every context is enclosed with float64 balls; where these leave the question open, the widest contexts are redone
with arb balls, at 128 bits and then twice as many again and again, until the question is decided or the ceiling is met.
Labels that float64 balls leave open are redone in the same way. The checker sees the decoder's weights and the data,
nothing of how they were made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.certify.balls.arb import ArbBalls
from byheart.certify.balls.decoder import logit_balls
from byheart.certify.balls.floats import FloatBalls
from byheart.certify.certificate import Verdict
from byheart.data.dataset.targets import Distributions
from byheart.errors import DataError, OptionError
from byheart.exact.rigor import ball, flint, lower_float, precision, upper_float
from byheart.ir.decoder import Decoder
from byheart.progress import SILENT, Progress

Ints = npt.NDArray[np.int64]

Logits = Callable[[Ints, Ints, Any], Any]  # (row numbers, their tokens, kind of balls) -> enclosed logits

WORKING = 128  # bits of the sums over contexts
CHUNK = 512  # contexts at a time with float64 balls
FIRST, CEILING = 128, 1024  # bits of arb balls
WORK = 1 << 32  # products of arb balls, about five minutes: more are not begun
LABEL_WORK = 1 << 28  # the same for labels alone


@dataclass(frozen=True)
class DecoderCertificate:
    """What was proved about a decoder and its contexts. Only the checker makes one.

    The gap 𝓛 - 𝓗 in nats lies in [gap_lower, gap_upper]; `labels_proved` counts the contexts for which a most frequent
    next token provably has the highest logit, `labels_refuted` those for which another one provably has it. `tokens` is
    how many tokens are predicted: the weight of all contexts.
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
    labels_refuted: int = 0
    tokens: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "verdict": self.verdict.value}

    @property
    def label_verdict(self) -> Verdict:
        """Whether every context has its most frequent token as the highest logit, whatever the gap is."""
        if self.labels_proved == self.contexts:
            return Verdict.PROVED
        return Verdict.REFUTED if self.labels_refuted else Verdict.UNDECIDED


@dataclass
class _Row:
    """One context: the enclosure of its share of the gap, and its label: 1 proved, -1 refuted, 0 open."""

    gap: Any
    label: int


def certify_decoder(
    decoder: Decoder,
    contexts: Distributions,
    *,
    fraction: float = 0.01,
    ceiling: int = CEILING,
    progress: Progress = SILENT,
) -> DecoderCertificate:
    """A certificate for "the decoder's cross-entropy exceeds the entropy by at most `fraction` of the entropy".

    If the entropy is 0 (every context has one continuation), `fraction` counts in nats per predicted token instead.
    proved: the upper end of the enclosure keeps the bound; refuted: the lower end breaks it; undecided: neither.
    """
    if contexts.vocabulary_size != len(decoder.vocabulary):
        raise DataError(f"the contexts have {contexts.vocabulary_size} tokens, the decoder {len(decoder.vocabulary)}")
    logits = partial(_decoder_logits, decoder)
    return _certify(logits, decoder.parameters, contexts, fraction, ceiling, progress)


def certify_table(
    answers: Ints,
    coordinates: npt.NDArray[np.float64],
    columns: npt.NDArray[np.float64],
    contexts: Distributions,
    *,
    fraction: float = 0.01,
    progress: Progress = SILENT,
) -> DecoderCertificate:
    """The same for a memory with a table: context i has the logits coordinates[answers[i]] @ columns.

    `answers` must come from exact evaluation of the memory's network; the softmax after it is what is enclosed here.
    """
    if len(answers) != contexts.count or not ((answers >= 0) & (answers < len(coordinates))).all():
        raise DataError(f"{len(answers)} answers for {contexts.count} contexts, in a table of {len(coordinates)} rows")
    logits = partial(_table_logits, coordinates[answers], columns)
    return _certify(logits, columns.size, contexts, fraction, CEILING, progress)


def _decoder_logits(decoder: Decoder, rows: Ints, tokens: Ints, kind: Any) -> Any:
    return logit_balls(decoder, tokens, kind)


def _table_logits(coordinates: Any, columns: Any, rows: Ints, tokens: Ints, kind: Any) -> Any:
    return kind.exact(coordinates[rows]).times(columns)


def _certify(
    logits: Logits, products: int, contexts: Distributions, fraction: float, ceiling: int, progress: Progress
) -> DecoderCertificate:
    """`products` is about how many products one context takes."""
    if not fraction > 0:
        raise OptionError(f"fraction={fraction}: the allowed gap must be positive")
    with precision(WORKING):
        entropies = [_entropy(contexts, pairs) for pairs in _pairs(contexts)]
        entropy = sum(entropies, flint().arb(0))
        deterministic = int(contexts.supports.max()) == 1
        tokens = sum((ball(w) for w in contexts.pair_weight.tolist()), flint().arb(0))
        allowed = (tokens if deterministic else entropy) * ball(fraction)
        rows = _float_rows(logits, contexts, entropies, progress)
        arithmetic, bits, stopped = ["float64 balls with proved rounding bounds"], FIRST, ""
        verdict, gap = _judge(rows, allowed)
        while verdict is Verdict.UNDECIDED and bits <= ceiling:
            chosen = _widest(rows, allowed, gap)
            if len(chosen) * products > WORK:
                stopped = f"; {len(chosen):,} contexts with {products:,} products each are too many for arb balls"
                break
            _redo(logits, contexts, entropies, rows, chosen, bits, progress)
            arithmetic[1:] = [f"{len(chosen)} contexts with arb balls of {bits} bits"]
            verdict, gap = _judge(rows, allowed)
            bits *= 2
        arithmetic += _open_labels(logits, products, contexts, entropies, rows, progress)
        labels = [row.label for row in rows]
        return DecoderCertificate(
            verdict=verdict,
            reason=_reason(verdict, gap, allowed, deterministic) + stopped,
            contexts=contexts.count,
            entropy=float(entropy),
            gap_lower=max(0.0, lower_float(gap)),
            gap_upper=upper_float(gap),
            allowed=lower_float(allowed),
            labels_proved=labels.count(1),
            arithmetic=", ".join(arithmetic),
            fingerprint=contexts.fingerprint,
            labels_refuted=labels.count(-1),
            tokens=float(tokens),
        )


def _reason(verdict: Verdict, gap: Any, allowed: Any, deterministic: bool) -> str:
    low, high, limit = lower_float(gap), upper_float(gap), lower_float(allowed)
    why = " (every context has one continuation, the entropy is 0: counted for each predicted token)"
    may = f"{limit:.6g} are allowed{why if deterministic else ''}"
    match verdict:
        case Verdict.PROVED:
            return f"the gap is at most {high:.6g} nats, {may}"
        case Verdict.REFUTED:
            return f"the gap is at least {low:.6g} nats, only {may}"
        case Verdict.UNDECIDED:
            return f"balls stay too wide: the gap lies between {low:.6g} and {high:.6g} nats, {may}"


def _judge(rows: list[_Row], allowed: Any) -> tuple[Verdict, Any]:
    gap = sum((row.gap for row in rows), flint().arb(0))
    if gap.is_finite() and gap <= allowed:
        return Verdict.PROVED, gap
    return (Verdict.REFUTED if gap.is_finite() and gap > allowed else Verdict.UNDECIDED), gap


def _widest(rows: list[_Row], allowed: Any, gap: Any) -> Ints:
    """The widest contexts without which the others are narrow enough to tell the gap from what is allowed."""
    widths = np.array([upper_float(row.gap.rad()) if row.gap.is_finite() else np.inf for row in rows])
    order = np.argsort(-widths, kind="stable")
    if not gap.is_finite():
        harmless = upper_float(allowed) * 2.0**-10 / len(rows)
        return order[: max(1, int((widths > harmless).sum()))]
    margin = abs(float((gap - allowed).mid())) / 2
    left = np.cumsum(widths[order][::-1])[::-1]  # what this and all narrower contexts add up to
    return order[: max(1, int((left > margin).sum()))]


def _open_labels(
    logits: Logits, products: int, contexts: Distributions, entropies: list[Any], rows: list[_Row], progress: Progress
) -> list[str]:
    """Decides labels that float64 balls left open, if there are not too many; says what was done."""
    done = []
    for bits in (FIRST, 2 * FIRST):
        chosen = np.array([i for i, row in enumerate(rows) if not row.label], dtype=np.int64)
        if not len(chosen) or len(chosen) * products > LABEL_WORK:
            break
        _redo(logits, contexts, entropies, rows, chosen, bits, progress, keep_gaps=True)
        done = [f"{len(chosen)} labels with arb balls of {bits} bits"]
    return done


def _pairs(contexts: Distributions) -> list[slice]:
    """Which pairs belong to each context."""
    edges = np.searchsorted(contexts.pair_context, np.arange(contexts.count + 1)).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _entropy(contexts: Distributions, pairs: slice) -> Any:
    """Σ w·log(c/w) of one context, c the sum of its weights: 0 for a single continuation."""
    weights = [ball(w) for w in contexts.pair_weight[pairs].tolist()]
    if len(weights) == 1:
        return flint().arb(0)
    total = sum(weights, flint().arb(0))
    return sum((w * (total / w).log() for w in weights), flint().arb(0))


def _groups(contexts: Distributions, rows: Ints, chunk: int) -> Iterator[tuple[Ints, Ints]]:
    """(row numbers, tokens without padding), contexts of one length together."""
    for length in np.unique(contexts.lengths[rows]):
        same = rows[contexts.lengths[rows] == length]
        for start in range(0, len(same), chunk):
            part = same[start : start + chunk]
            yield part, contexts.tokens[part, :length]


def _float_rows(source: Logits, contexts: Distributions, entropies: list[Any], progress: Progress) -> list[_Row]:
    rows: list[_Row] = [_Row(flint().arb(0), 0)] * contexts.count
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


def _gap(contexts: Distributions, pairs: slice, log_mass: Any, own: list[Any], entropy: Any) -> Any:
    """Σ w·(log Σ exp(logits) - logit) - entropy of one context."""
    weights = contexts.pair_weight[pairs].tolist()
    return sum((ball(w) * (log_mass - x) for w, x in zip(weights, own, strict=True)), -entropy)


def _label_by_floats(
    contexts: Distributions, pairs: slice, mid: npt.NDArray[np.float64], rad: npt.NDArray[np.float64]
) -> int:
    """1 if a most frequent token has a higher logit than every other token, for all numbers in the balls; -1 if not."""
    best = np.zeros(len(mid), dtype=bool)
    best[_most_frequent(contexts, pairs)] = True
    low, high = np.nextafter(mid - rad, -np.inf), np.nextafter(mid + rad, np.inf)
    if best.all() or low[best].max() > high[~best].max():
        return 1
    return -1 if low[~best].max() > high[best].max() else 0


def _most_frequent(contexts: Distributions, pairs: slice) -> Ints:
    weights = contexts.pair_weight[pairs]
    return np.asarray(contexts.pair_token[pairs][weights == weights.max()])


def _redo(
    source: Logits,
    contexts: Distributions,
    entropies: list[Any],
    rows: list[_Row],
    chosen: Ints,
    bits: int,
    progress: Progress,
    keep_gaps: bool = False,
) -> None:
    """Replaces the enclosures of the chosen contexts by arb balls of `bits` bits; `keep_gaps` redoes only labels."""
    pairs = _pairs(contexts)
    with progress.stage(f"enclosing with {bits} bits", total=len(chosen)) as stage, precision(bits):
        for part, tokens in _groups(contexts, chosen, 64):
            logits = source(part, tokens, ArbBalls).entries
            for k, i in enumerate(part.tolist()):
                row = _arb_row(contexts, pairs[i], logits[k], entropies[i])
                rows[i] = _Row(rows[i].gap, row.label) if keep_gaps else row
            stage.advance(len(part))


def _arb_row(contexts: Distributions, pairs: slice, logits: Any, entropy: Any) -> _Row:
    top = max(float(x.mid()) for x in logits)
    log_mass = sum(((x - top).exp() for x in logits), flint().arb(0)).log() + top
    own = [logits[t] for t in contexts.pair_token[pairs].tolist()]
    frequent = set(_most_frequent(contexts, pairs).tolist())
    best = [logits[t] for t in frequent]
    others = [x for t, x in enumerate(logits) if t not in frequent]
    proved = any(all(x > other for other in others) for x in best)
    refuted = not proved and any(all(other > x for x in best) for other in others)
    return _Row(_gap(contexts, pairs, log_mass, own, entropy), proved - refuted)
