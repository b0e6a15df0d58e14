"""The queries of the data: after which tokens, which token.

A document of tokens x_0 ... x_n asks, for every t < n: after x_0 ... x_t, the next token. The network sees only the
last `span` tokens (`Program.span`), so positions that agree on those (or on the whole prefix, while it is shorter)
are one query with several answers: an empirical distribution. The answer holds for every sequence that ends in the
window, whatever precedes it.

A program and queries give numbers: margins, distributions, and what unknown windows answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof.bounds import POSITION, TOKEN, Key, symbols_seen
from byheart.checkpoints.proof.mlp import KnownWindows
from byheart.checkpoints.proof.network import CheckpointProgram, Logits
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.units import ANY
from byheart.errors import DataError, OptionError

AMBIGUOUS = ("distribution", "first", "majority")


@dataclass(frozen=True)
class QueriedContexts:
    """Contexts of all documents in a row, and the symbols that the program gives them."""

    document: Array  # (Q,)
    position: Array  # (Q,) of the last token of the context
    answer: Array  # (Q,)
    group: Array  # (Q,) equal for contexts that the network cannot distinguish
    several: Array  # (Q,) the group has several answers
    judged: Array  # (Q,) whether the query counts, or only its weight in the distribution
    weight: Array  # (Q,) how often the document counts
    symbols: dict[Key, Array]  # (Q,) per key that the logits read


def ask(
    program: CheckpointProgram,
    documents: Sequence[Sequence[int]],
    copies: Sequence[int] | None = None,
    ambiguous: str = "distribution",
    only: Collection[int] | None = None,
) -> QueriedContexts:
    """All queries of some documents. The signals are computed as the program defines them, position by position.

    With `ambiguous` "first" or "majority", all contexts of a group have one answer: of the first document, or the
    likeliest. Documents that are not in `only` count in the distributions, but their own queries are marked.
    """
    if ambiguous not in AMBIGUOUS:
        raise OptionError(f"ambiguous {ambiguous!r} is not one of {', '.join(AMBIGUOUS)}")
    texts = [_tokens(program, document, i) for i, document in enumerate(documents)]
    sizes = [max(len(t) - 1, 0) for t in texts]
    tokens = np.concatenate([t[:-1] for t in texts] or [np.zeros(0, dtype=np.int64)])
    answer = np.concatenate([t[1:] for t in texts] or [np.zeros(0, dtype=np.int64)])
    begin = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    place = np.arange(len(tokens))
    signals: dict[int, Array] = {TOKEN: tokens}
    for signal in sorted(program.tables):
        table = program.tables[signal]
        window = np.stack(
            [symbols_seen(signals[s], program.symbols(s), place, begin, o) for s, o in table.keys]
            or [np.zeros(len(tokens), dtype=np.int64)],
            1,
        )
        signals[signal] = look_up(table, window)
    keys = [part.key for part in program.parts]
    symbols = {(s, o): symbols_seen(signals[s], program.symbols(s), place, begin, o) for s, o in keys if s != POSITION}
    group = _groups(tokens, begin, place, program.span)
    weight = np.repeat(np.ones(len(texts)) if copies is None else np.asarray(copies, dtype=np.float64), sizes)
    if len(weight) != len(tokens) or not (weight > 0).all():
        raise DataError(f"{len(documents)} documents need one positive number of copies each")
    if ambiguous != "distribution":
        answer = _chosen(answer, group, weight, ambiguous)
    several = _several(answer, group)
    document = np.repeat(np.arange(len(texts)), sizes)
    judged = np.ones(len(tokens), dtype=bool) if only is None else np.isin(document, list(only))
    return QueriedContexts(document, place - begin, answer, group, several, judged, weight, symbols)


def ask_rows(program: CheckpointProgram, rows: Sequence[Sequence[int]], answers: Sequence[int]) -> QueriedContexts:
    """One query per row of a classifier: after its last token, which label?"""
    every = ask(program, [[*row, row[-1]] for row in rows])  # the token at the end is never a query
    last = np.flatnonzero(np.r_[every.position[1:] == 0, True])
    answer = np.asarray(answers, dtype=np.int64)
    group, symbols = every.group[last], {key: values[last] for key, values in every.symbols.items()}
    several = _several(answer, group)
    return QueriedContexts(
        every.document[last], every.position[last], answer, group, several, every.judged[last], every.weight[last],
        symbols,
    )  # fmt: skip


def _several(answer: Array, group: Array) -> Array:
    low, high = np.full(group.max(initial=0) + 1, np.iinfo(np.int64).max), np.full(group.max(initial=0) + 1, -1)
    np.minimum.at(low, group, answer)
    np.maximum.at(high, group, answer)
    return np.asarray((low != high)[group])


def _chosen(answer: Array, group: Array, weight: Array, ambiguous: str) -> Array:
    """One answer per group. Ties go to the smaller token."""
    result = answer.copy()
    if ambiguous == "first":
        _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
        return np.asarray(answer[first][inverse.reshape(-1)])
    pairs, inverse = np.unique(np.stack([group, answer], 1), axis=0, return_inverse=True)
    total = np.bincount(inverse.reshape(-1), weight)
    order = np.lexsort((pairs[:, 1], -total, pairs[:, 0]))
    _, first = np.unique(pairs[order, 0], return_index=True)
    result = pairs[order[first], 1][np.searchsorted(pairs[order[first], 0], group)]
    return np.asarray(result)


def _tokens(program: CheckpointProgram, document: Sequence[int], index: int) -> Array:
    tokens = np.asarray(document, dtype=np.int64)
    if tokens.ndim != 1 or len(tokens) < 2:
        raise DataError(f"document {index} has {tokens.size} tokens; a query needs a token and the one after it")
    if tokens.min() < 0 or tokens.max() >= program.shape.vocabulary:
        raise DataError(
            f"document {index} has the token {int(tokens.max())}; the vocabulary has {program.shape.vocabulary}"
        )
    if np.isin(tokens[1:], list(program.reach.once)).any():
        raise DataError(
            f"document {index} has a token inside that the proof allows only at the start: {sorted(program.reach.once)}"
        )
    return tokens


def look_up(table: KnownWindows, window: Array) -> Array:
    """The symbol of every window: 0 for one that the table does not store."""
    result = np.zeros(len(window), dtype=np.int64)
    if not len(table.windows):
        return result
    masks, kind = np.unique(table.windows != ANY, axis=0, return_inverse=True)
    for index, mask in enumerate(masks):
        rows = np.flatnonzero(kind.reshape(-1) == index)
        known = table.windows[rows][:, mask]
        both = np.concatenate([known, window[:, mask]])
        _, inverse = (
            np.unique(both, axis=0, return_inverse=True) if mask.any() else (None, np.zeros(len(both), dtype=int))
        )
        inverse = inverse.reshape(-1)
        symbol = np.zeros(inverse.max() + 1, dtype=np.int64)
        symbol[inverse[: len(rows)]] = table.symbols[rows]
        found = symbol[inverse[len(rows) :]]
        result = np.where(found > 0, found, result)
    return result


def _groups(tokens: Array, begin: Array, place: Array, span: int) -> Array:
    """Numbers contexts by their last `span` tokens, or by the whole prefix while that is shorter; built up token by
    token.
    """
    group = np.zeros(len(tokens), dtype=np.int64)
    for back in range(span):
        inside = place - back >= begin
        token = np.where(inside, tokens[np.maximum(place - back, 0)], -1)
        pair = np.stack([group, token], 1)
        group = np.unique(pair, axis=0, return_inverse=True)[1].reshape(-1)
    return group


CHUNK = 1 << 22


@dataclass(frozen=True)
class ProvedAnswers:
    """`margin[q]`: by how many nats, at least, the correct token exceeds every other (queries with one answer; NaN
    elsewhere).
    `variation[q]`: total variation, at most, between the softmax and the empirical distribution of the query's
    group. `refuted[q]`: another token certainly beats the right one; `found[q]` is the token with the highest lower
    bound."""

    margin: Array
    variation: Array
    refuted: Array
    found: Array
    single: Array
    nats: Array  # largest error of a log-probability of a continuation that occurs


def answer(program: CheckpointProgram, queries: QueriedContexts) -> ProvedAnswers:
    count = len(queries.answer)
    keys = list(queries.symbols)
    stacked = np.stack([queries.symbols[k] for k in keys] or [np.zeros(count, dtype=np.int64)], 1)
    distinct, inverse = np.unique(stacked, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    share, single = _empirical(queries), ~queries.several
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
            np.stack([inverse[some] - start, queries.answer[some]], 1), axis=0, return_inverse=True
        )
        smallest = np.empty(len(pairs))
        for token in np.unique(pairs[:, 1]):
            rows = pairs[:, 1] == token
            smallest[rows] = logits.rows(pairs[rows, 0]).margin(int(token)).min(1)
        margin[some] = smallest[which.reshape(-1)]
        for q0 in range(0, len(some), step):
            q = some[q0 : q0 + step]
            low, high = lo[inverse[q] - start], hi[inverse[q] - start]
            at = np.arange(len(q))
            variation[q], nats[q] = _one_answer(low, high, queries.answer[q])
            found[q] = low.argmax(1)
            own_high = high[at, queries.answer[q]]
            low[at, queries.answer[q]] = -np.inf
            refuted[q] = own_high < low.max(1)
        torn = some[queries.several[some]]
        for tuple_, group in np.unique(np.stack([inverse[torn] - start, queries.group[torn]], 1), axis=0):
            where = torn[(inverse[torn] - start == tuple_) & (queries.group[torn] == group)]
            tokens, p = share[int(group)]
            total, error = _several_answers(logits.rows(np.array([tuple_])), tokens, p)
            variation[where] = total
            nats[where] = error[np.searchsorted(tokens, queries.answer[where])]
    return ProvedAnswers(np.where(single, margin, np.nan), variation, refuted & single, found, single, nats)


def _empirical(queries: QueriedContexts) -> dict[int, tuple[Array, Array]]:
    """Groups with several answers: the answers and their shares."""
    q = np.flatnonzero(queries.several)
    if not len(q):
        return {}
    pairs, inverse = np.unique(np.stack([queries.group[q], queries.answer[q]], 1), axis=0, return_inverse=True)
    total = np.bincount(inverse.reshape(-1), queries.weight[q])
    groups, start = np.unique(pairs[:, 0], return_index=True)
    ends = np.r_[start[1:], len(pairs)]
    return {int(g): (pairs[a:b, 1], total[a:b] / total[a:b].sum()) for g, a, b in zip(groups, start, ends, strict=True)}


def _one_answer(low: Array, high: Array, answer: Array) -> tuple[Array, Array]:
    """How much weight, at most, is not on the one correct token, and how large its log-probability's error is."""
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
    margins = np.stack([logits.margin(int(v))[0] for v in tokens])  # (n, V)
    behind = np.exp(np.minimum(-margins, 700.0))  # 0 for the token itself
    least = 1 / (1 + behind.sum(1))
    among = np.exp(np.minimum(margins[:, tokens].T, 700.0))  # [v, w]: at least exp(logit_w - logit_v)
    np.fill_diagonal(among, 0.0)
    most = 1 / (1 + among.sum(1))
    error = np.maximum(np.log(most / p), np.log(p / np.maximum(least, 1e-300)))
    others = np.delete(behind, tokens, axis=1).sum(1).min()
    apart = np.maximum(np.maximum(p - least, most - p), 0.0).sum()
    return min(float(np.maximum(p - least, 0.0).sum()), float(apart + others) / 2), error


@dataclass(frozen=True)
class UnknownAnswer:
    """The answer to windows that the last table does not store: this token, by at least this margin."""

    token: int
    margin: float


def unknown(program: CheckpointProgram) -> UnknownAnswer | None:
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
    margin = float(logits.margin(token).min())
    return UnknownAnswer(token, margin) if margin > 0 else None
