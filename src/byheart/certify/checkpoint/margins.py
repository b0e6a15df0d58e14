"""From a program and questions to numbers: margins, distributions, and what unknown windows answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.certify.checkpoint.fields import TOKEN, Key
from byheart.certify.checkpoint.network import Program
from byheart.certify.checkpoint.questions import Questions
from byheart.certify.checkpoint.storage import Array

CHUNK = 1 << 22


@dataclass(frozen=True)
class Answers:
    """`margin[q]`: by how many nats, at least, the right token beats every other (questions with one answer; NaN
    elsewhere).
    `variation[q]`: total variation, at most, between the softmax and the empirical distribution of the question's
    group. `refuted[q]`: another token certainly beats the right one; `found[q]` is the token with the highest lower
    bound."""

    margin: Array
    variation: Array
    refuted: Array
    found: Array
    single: Array
    nats: Array  # largest error of a log-probability of a continuation that occurs


def answer(program: Program, questions: Questions) -> Answers:
    count = len(questions.answer)
    keys = list(questions.symbols)
    stacked = np.stack([questions.symbols[k] for k in keys] or [np.zeros(count, dtype=np.int64)], 1)
    distinct, inverse = np.unique(stacked, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    share, single = _empirical(questions), ~questions.several
    margin, variation = np.full(count, np.nan), np.full(count, np.nan)
    refuted, found, nats = np.zeros(count, dtype=bool), np.zeros(count, dtype=np.int64), np.full(count, np.nan)
    step = max(1, CHUNK // max(program.shape.hidden, program.shape.vocabulary))
    order = np.argsort(inverse, kind="stable")
    for start in range(0, len(distinct), step):
        block = distinct[start : start + step]
        logits = program.logits({key: block[:, i] for i, key in enumerate(keys)} or {(TOKEN, 0): block[:, 0]})
        lo, hi = logits.bounds()
        left, right = np.searchsorted(inverse[order], [start, start + len(block)])
        some = order[left:right]
        pairs, which = np.unique(
            np.stack([inverse[some] - start, questions.answer[some]], 1), axis=0, return_inverse=True
        )
        lead = np.empty(len(pairs))
        for token in np.unique(pairs[:, 1]):
            rows = pairs[:, 1] == token
            lead[rows] = logits.rows(pairs[rows, 0]).lead(int(token)).min(1)
        margin[some] = lead[which.reshape(-1)]
        for q0 in range(0, len(some), step):
            q = some[q0 : q0 + step]
            low, high = lo[inverse[q] - start], hi[inverse[q] - start]
            at = np.arange(len(q))
            variation[q], nats[q] = _variation(low, high, share, questions.group[q], questions.answer[q])
            found[q] = low.argmax(1)
            own_high = high[at, questions.answer[q]]
            low[at, questions.answer[q]] = -np.inf
            refuted[q] = own_high < low.max(1)
    return Answers(np.where(single, margin, np.nan), variation, refuted & single, found, single, nats)


def _empirical(questions: Questions) -> dict[int, tuple[Array, Array]]:
    """Groups with several answers: the answers and their shares."""
    q = np.flatnonzero(questions.several)
    if not len(q):
        return {}
    pairs, inverse = np.unique(np.stack([questions.group[q], questions.answer[q]], 1), axis=0, return_inverse=True)
    total = np.bincount(inverse.reshape(-1), questions.weight[q])
    groups, start = np.unique(pairs[:, 0], return_index=True)
    ends = np.r_[start[1:], len(pairs)]
    return {int(g): (pairs[a:b, 1], total[a:b] / total[a:b].sum()) for g, a, b in zip(groups, start, ends, strict=True)}


def _variation(
    low: Array, high: Array, share: dict[int, tuple[Array, Array]], group: Array, answer: Array
) -> tuple[Array, Array]:
    """Bounds of the total variation: with w_v in exp[low, high], q_v = w_v / sum w; TV = sum over v of max(0, p_v -
    q_v).
    """
    top = high.max(1, keepdims=True)
    small, large = np.exp(low - top), np.exp(high - top)
    least = small / (small + (large.sum(1, keepdims=True) - large))  # q_v at least
    most = large / (large + (small.sum(1, keepdims=True) - small))
    rows = np.arange(len(low))
    result = 1 - least[rows, answer]
    nats = -np.log(np.maximum(least[rows, answer], 1e-300))
    for i in np.flatnonzero(np.isin(group, np.array(sorted(share), dtype=np.int64))):
        tokens, p = share[int(group[i])]
        # TV = sum of max(0, p - q) over the tokens that occur
        result[i] = np.maximum(p - least[i, tokens], 0.0).sum()
        own = p[tokens == answer[i]][0]
        nats[i] = max(np.log(most[i, answer[i]] / own), np.log(own / max(least[i, answer[i]], 1e-300)))
    return result, nats


@dataclass(frozen=True)
class Unknown:
    """What windows that the last table does not know answer: this token, by at least this margin."""

    token: int
    margin: float


def unknown(program: Program) -> Unknown | None:
    """The answer when no unit of the last table fires, for every such input; None if no token wins for all of them."""
    last = max(program.tables)
    keys: list[Key] = [p.key for p in program.parts]
    sizes = {p.key: len(p.lo) for p in program.parts}
    others = [k for k in keys if k[0] != last]
    if len(others) > 1 or (last, 0) not in keys:
        return None
    symbols = np.arange(sizes[others[0]]) if others else np.zeros(1, dtype=np.int64)
    chosen: dict[Key, Array] = {(last, 0): np.zeros(len(symbols), dtype=np.int64)}
    if others:
        chosen[others[0]] = symbols
    logits = program.logits(chosen)
    token = int(np.bincount(logits.centre.argmax(1), minlength=logits.centre.shape[1]).argmax())
    margin = float(logits.lead(token).min())
    return Unknown(token, margin) if margin > 0 else None
