"""From a program and questions to numbers: margins, distributions, and what unknown windows answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.certify.checkpoint.fields import TOKEN, Key
from byheart.certify.checkpoint.network import Logits, Program
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
            variation[q], nats[q] = _one_answer(low, high, questions.answer[q])
            found[q] = low.argmax(1)
            own_high = high[at, questions.answer[q]]
            low[at, questions.answer[q]] = -np.inf
            refuted[q] = own_high < low.max(1)
        torn = some[questions.several[some]]
        for tuple_, group in np.unique(np.stack([inverse[torn] - start, questions.group[torn]], 1), axis=0):
            where = torn[(inverse[torn] - start == tuple_) & (questions.group[torn] == group)]
            tokens, p = share[int(group)]
            total, error = _several_answers(logits.rows(np.array([tuple_])), tokens, p)
            variation[where] = total
            nats[where] = error[np.searchsorted(tokens, questions.answer[where])]
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


def _one_answer(low: Array, high: Array, answer: Array) -> tuple[Array, Array]:
    """How much weight, at most, is not on the one right token, and how large its log-probability's error is."""
    rows = np.arange(len(low))
    others = np.exp(np.minimum(high - low[rows, answer][:, None], 700.0))
    others[rows, answer] = 0.0
    weight = 1 / (1 + others.sum(1))
    return 1 - weight, -np.log(weight)


def _several_answers(logits: Logits, tokens: Array, p: Array) -> tuple[float, Array]:
    """Bounds of the total variation, and of the error of each log-probability, by differences of logits.

    q_v = 1 / sum over w of exp(logit_w - logit_v). With r the weight of tokens that do not occur, TV is the sum of all
    max(0, p_v - q_v), and also that of all max(0, q_v - p_v) plus r: half of both together has |p_v - q_v| only once.
    """
    leads = np.stack([logits.lead(int(v))[0] for v in tokens])  # (n, V)
    behind = np.exp(np.minimum(-leads, 700.0))  # 0 for the token itself
    least = 1 / (1 + behind.sum(1))
    among = np.exp(np.minimum(leads[:, tokens].T, 700.0))  # [v, w]: at least exp(logit_w - logit_v)
    np.fill_diagonal(among, 0.0)
    most = 1 / (1 + among.sum(1))
    error = np.maximum(np.log(most / p), np.log(p / np.maximum(least, 1e-300)))
    others = np.delete(behind, tokens, axis=1).sum(1).min()
    apart = np.maximum(np.maximum(p - least, most - p), 0.0).sum()
    return min(float(np.maximum(p - least, 0.0).sum()), float(apart + others) / 2), error


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
    token = int(np.bincount(logits.best()).argmax())
    margin = float(logits.lead(token).min())
    return Unknown(token, margin) if margin > 0 else None
