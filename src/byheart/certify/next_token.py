"""Proofs about decoders by enclosures: a bound on the gap 𝓛 - 𝓗, and the token with the highest logit.

First every context is enclosed with float64 balls; where these do not decide, the widest contexts are redone
with arb balls, at 128 bits and then with doubled precision, until they decide or the ceiling is reached.
Labels that float64 balls leave open are redone in the same way. The checker sees the decoder's weights and the data,
not the builder.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.certify.balls.arb import ArbBalls, Balls, logit_balls
from byheart.certify.balls.floats import FloatBalls
from byheart.certify.certificate import Verdict
from byheart.data.dataset.targets import Distributions
from byheart.errors import DataError, OptionError
from byheart.exact.budget import meter
from byheart.exact.rigor import ball, flint, lower_float, precision, upper_float
from byheart.ir.decoder_network import AnyDecoder
from byheart.progress import SILENT, Progress, Stage

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Logits = Callable[[Ints, Ints, type[Balls]], Balls]  # (row numbers, their tokens, kind) -> enclosed logits

WORKING = 128  # bits of the sums over contexts
CHUNK, ARB_CHUNK = 512, 64  # contexts at a time with float64 balls, with arb balls
FIRST, CEILING = 128, 1024  # bits of arb balls
WORK = 1 << 32  # products of arb balls, about five minutes: more are not begun
LABEL_WORK = 1 << 28  # the same for labels alone
FLOATS = "float64 balls with proved rounding bounds"


@dataclass(frozen=True, eq=False)
class GapProof:
    """A proof about a decoder and its contexts; the checker turns it into a certificate.

    The gap 𝓛 - 𝓗 in nats lies in [gap_lower, gap_upper]; `labels_proved` counts the contexts for which a most frequent
    next token provably has the highest logit, `labels_refuted` those for which another one provably has it; `labels`
    has 1, -1 or (open) 0 for each. `tokens` is how many tokens are predicted: the weight of all contexts. `beyond`
    states which contexts provably exceed their weight's share of the allowed gap.
    """

    verdict: Verdict
    reason: str
    contexts: int
    entropy: float
    gap_lower: float
    gap_upper: float
    allowed: float
    labels: Ints
    beyond: npt.NDArray[np.bool_]
    arithmetic: str
    tokens: float

    @property
    def labels_proved(self) -> int:
        return int((self.labels == 1).sum())

    @property
    def labels_refuted(self) -> int:
        return int((self.labels == -1).sum())


@dataclass
class _Row:
    """One context: the enclosure of its share of the gap, and its label: 1 proved, -1 refuted, 0 open."""

    gap: Any
    label: int


def prove_gap(
    decoder: AnyDecoder,
    contexts: Distributions,
    *,
    fraction: float = 0.01,
    ceiling: int = CEILING,
    progress: Progress = SILENT,
) -> GapProof:
    """A proof for "the decoder's cross-entropy exceeds the entropy by at most `fraction` of the entropy".

    If the entropy is 0 (every context has one continuation), `fraction` counts in nats per predicted token instead.
    proved: the upper end of the enclosure keeps the bound; refuted: the lower end breaks it; undecided: neither.
    """
    if contexts.vocabulary_size != decoder.vocabulary_size:
        raise DataError(f"the contexts have {contexts.vocabulary_size} tokens, the decoder {decoder.vocabulary_size}")
    logits = partial(_decoder_logits, decoder)
    return _certify(logits, decoder.parameters, contexts, fraction, ceiling, progress)


def decided_tokens(decoder: AnyDecoder, tokens: Ints, progress: Progress = SILENT) -> tuple[Ints, str]:
    """The token with the highest logit of each context (M, T), -1 where balls cannot decide, and how it was found."""
    _spend(len(tokens), decoder.parameters)
    found = np.full(len(tokens), -1, dtype=np.int64)
    with progress.stage("enclosing contexts", total=len(tokens)) as stage:
        for part, group in _groups(tokens, np.arange(len(tokens)), CHUNK):
            found[part] = logit_balls(decoder, group, FloatBalls).highest()
            stage.advance(len(part))
    how = FLOATS
    for bits in (FIRST, 2 * FIRST):
        chosen = np.flatnonzero(found < 0)
        if not len(chosen) or len(chosen) * decoder.parameters > LABEL_WORK:
            break
        with progress.stage(f"enclosing with {bits} bits", total=len(chosen)), precision(bits):
            for part, group in _groups(tokens, chosen, ARB_CHUNK):
                found[part] = logit_balls(decoder, group, ArbBalls).highest()
        how = f"{FLOATS}, {len(chosen)} contexts with arb balls of {bits} bits"
    return found, how


def _spend(contexts: int, products: int) -> None:
    """Count the work, where an untrusted file has a budget."""
    limit = meter()
    if limit is not None:
        limit.spend(contexts * products)


def _decoder_logits(decoder: AnyDecoder, rows: Ints, tokens: Ints, kind: type[Balls]) -> Balls:
    return logit_balls(decoder, tokens, kind)


def _certify(
    logits: Logits, products: int, contexts: Distributions, fraction: float, ceiling: int, progress: Progress
) -> GapProof:
    """`products` is about the number of products of one context."""
    if not fraction > 0:
        raise OptionError(f"fraction={fraction}: the allowed gap must be positive")
    _spend(contexts.count, products)
    with precision(WORKING):
        entropies = [_entropy(contexts, pairs) for pairs in _pairs(contexts)]
        entropy = sum(entropies, flint().arb(0))
        deterministic = int(contexts.supports.max()) == 1
        tokens = sum((ball(w) for w in contexts.pair_weight.tolist()), flint().arb(0))
        allowed = (tokens if deterministic else entropy) * ball(fraction)
        rows = _float_rows(logits, contexts, entropies, progress)
        arithmetic, bits, stopped = [FLOATS], FIRST, ""
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
        return GapProof(
            verdict=verdict,
            reason=_reason(verdict, gap, allowed, deterministic) + stopped,
            contexts=contexts.count,
            entropy=float(entropy),
            gap_lower=max(0.0, lower_float(gap)),
            gap_upper=upper_float(gap),
            allowed=lower_float(allowed),
            labels=np.array([row.label for row in rows], dtype=np.int64),
            beyond=_beyond(rows, contexts, upper_float(allowed / tokens)),
            arithmetic=", ".join(arithmetic),
            tokens=float(tokens),
        )


def _beyond(rows: list[_Row], contexts: Distributions, share: float) -> npt.NDArray[np.bool_]:
    """Contexts whose own gap is above `share` nats per predicted token, for all numbers in its ball."""
    least = np.array([lower_float(row.gap) if row.gap.is_finite() else 0.0 for row in rows])
    return np.asarray(least > np.nextafter(share * contexts.weights, np.inf))


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
    """The widest contexts without which the others are narrow enough to compare the gap with the allowed one."""
    widths = np.array([upper_float(row.gap.rad()) if row.gap.is_finite() else np.inf for row in rows])
    order = np.argsort(-widths, kind="stable")
    if not gap.is_finite():
        harmless = upper_float(allowed) * 2.0**-10 / len(rows)
        return order[: max(1, int((widths > harmless).sum()))]
    margin = abs(float((gap - allowed).mid())) / 2
    left = np.cumsum(widths[order][::-1])[::-1]  # the sum over this and all narrower contexts
    return order[: max(1, int((left > margin).sum()))]


def _open_labels(
    logits: Logits, products: int, contexts: Distributions, entropies: list[Any], rows: list[_Row], progress: Progress
) -> list[str]:
    """Decides labels that float64 balls left open, if there are not too many; returns the method."""
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


def _groups(tokens: Ints, rows: Ints, chunk: int) -> Iterator[tuple[Ints, Ints]]:
    """(row numbers, tokens without padding), contexts of one length together."""
    lengths = (tokens[rows] >= 0).sum(axis=1)
    for length in np.unique(lengths):
        same = rows[lengths == length]
        for start in range(0, len(same), chunk):
            part = same[start : start + chunk]
            yield part, tokens[part, :length]


def _enclose(
    source: Logits,
    kind: type[Balls],
    contexts: Distributions,
    entropies: list[Any],
    rows: list[_Row],
    chosen: Ints,
    chunk: int,
    stage: Stage,
) -> None:
    """Put the enclosures of the chosen contexts in their rows: log Σ exp(logits), the own logits, the label."""
    pairs = _pairs(contexts)
    for part, tokens in _groups(contexts.tokens, chosen, chunk):
        logits = source(part, tokens, kind)
        top = np.nan_to_num(logits.middles().max(axis=1))  # exponents relative to about the highest logit stay small
        with np.errstate(all="ignore"):  # an overflow is an infinite radius
            mass = (logits - kind.exact(top[:, None])).exp().sum(axis=1).as_arb()
        frequent = np.zeros((len(part), contexts.vocabulary_size), dtype=bool)
        for k, i in enumerate(part.tolist()):
            frequent[k, _most_frequent(contexts, pairs[i])] = True
        labels = logits.compared(frequent)
        for k, i in enumerate(part.tolist()):
            own = logits[k, contexts.pair_token[pairs[i]]].as_arb().tolist()
            log_mass = mass[k].log() + ball(float(top[k]))
            rows[i] = _Row(_gap(contexts, pairs[i], log_mass, own, entropies[i]), int(labels[k]))
        stage.advance(len(part))


def _gap(contexts: Distributions, pairs: slice, log_mass: Any, own: list[Any], entropy: Any) -> Any:
    """Σ w·(log Σ exp(logits) - logit) - entropy of one context."""
    weights = contexts.pair_weight[pairs].tolist()
    return sum((ball(w) * (log_mass - x) for w, x in zip(weights, own, strict=True)), -entropy)


def _most_frequent(contexts: Distributions, pairs: slice) -> Ints:
    weights = contexts.pair_weight[pairs]
    return np.asarray(contexts.pair_token[pairs][weights == weights.max()])


def _float_rows(source: Logits, contexts: Distributions, entropies: list[Any], progress: Progress) -> list[_Row]:
    rows: list[_Row] = [_Row(flint().arb(0), 0)] * contexts.count
    with progress.stage("enclosing contexts", total=contexts.count) as stage:
        everything = np.arange(contexts.count)
        _enclose(source, FloatBalls, contexts, entropies, rows, everything, CHUNK, stage)
    return rows


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
    """Replace the enclosures of the chosen contexts by arb balls of `bits` bits; `keep_gaps` redoes only labels."""
    before = [rows[i].gap for i in chosen.tolist()]
    with progress.stage(f"enclosing with {bits} bits", total=len(chosen)) as stage, precision(bits):
        _enclose(source, ArbBalls, contexts, entropies, rows, chosen, ARB_CHUNK, stage)
    if keep_gaps:
        for i, gap in zip(chosen.tolist(), before, strict=True):
            rows[i] = _Row(gap, rows[i].label)
