"""The questions that data asks: after which tokens, which token.

A document of tokens x_0 ... x_n asks, for every t < n: after x_0 ... x_t, the next token. The network sees only the
last `span` tokens (`Program.span`), so positions that agree on those (or on the whole prefix, while it is shorter)
are one question with several answers: an empirical distribution. The answer holds for every sequence that ends in the
window, whatever stands before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from byheart.certify.checkpoint.fields import POSITION, TOKEN, Key
from byheart.certify.checkpoint.network import Program
from byheart.certify.checkpoint.storage import Array
from byheart.certify.checkpoint.units import ANY
from byheart.certify.checkpoint.windows import Table
from byheart.errors import DataError, OptionError

AMBIGUOUS = ("distribution", "first", "majority")


@dataclass(frozen=True)
class Questions:
    """Contexts of all documents in a row, and the symbols that the program gives them."""

    document: Array  # (Q,)
    position: Array  # (Q,) of the last token of the context
    answer: Array  # (Q,)
    group: Array  # (Q,) equal for contexts that the network cannot tell apart
    several: Array  # (Q,) the group has several answers
    judged: Array  # (Q,) whether the question counts, or only its weight in the distribution
    weight: Array  # (Q,) how often the document counts
    symbols: dict[Key, Array]  # (Q,) per key that the logits read


def ask(
    program: Program,
    documents: Sequence[Sequence[int]],
    copies: Sequence[int] | None = None,
    ambiguous: str = "distribution",
    only: Collection[int] | None = None,
) -> Questions:
    """All questions of some documents. The signals are computed as the program defines them, position by position.

    With `ambiguous` "first" or "majority", all contexts of a group have one answer: of the first document, or the
    likeliest. Documents that are not in `only` count in the distributions, but their own questions are marked.
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
            [signals[s][np.maximum(begin, place - o)] for s, o in table.keys]
            or [np.zeros(len(tokens), dtype=np.int64)],
            1,
        )
        signals[signal] = look_up(table, window)
    keys = [part.key for part in program.parts]
    symbols = {key: signals[key[0]][np.maximum(begin, place - key[1])] for key in keys if key[0] != POSITION}
    group = _groups(tokens, begin, place, program.span)
    weight = np.repeat(np.ones(len(texts)) if copies is None else np.asarray(copies, dtype=np.float64), sizes)
    if len(weight) != len(tokens) or not (weight > 0).all():
        raise DataError(f"{len(documents)} documents need as many copies, all positive")
    if ambiguous != "distribution":
        answer = _chosen(answer, group, weight, ambiguous)
    several = _several(answer, group)
    document = np.repeat(np.arange(len(texts)), sizes)
    judged = np.ones(len(tokens), dtype=bool) if only is None else np.isin(document, list(only))
    return Questions(document, place - begin, answer, group, several, judged, weight, symbols)


def ask_rows(program: Program, rows: Sequence[Sequence[int]], answers: Sequence[int]) -> Questions:
    """One question per row of a classifier: after its last token, which label?"""
    every = ask(program, [[*row, row[-1]] for row in rows])  # the token at the end is never asked
    last = np.flatnonzero(np.r_[every.position[1:] == 0, True])
    answer = np.asarray(answers, dtype=np.int64)
    group, symbols = every.group[last], {key: values[last] for key, values in every.symbols.items()}
    several = _several(answer, group)
    return Questions(
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


def _tokens(program: Program, document: Sequence[int], index: int) -> Array:
    tokens = np.asarray(document, dtype=np.int64)
    if tokens.ndim != 1 or len(tokens) < 2:
        raise DataError(f"document {index} has {tokens.size} tokens; a question needs a token and the one after it")
    if tokens.min() < 0 or tokens.max() >= program.shape.vocabulary:
        raise DataError(
            f"document {index} has the token {int(tokens.max())}; the vocabulary has {program.shape.vocabulary}"
        )
    if np.isin(tokens[1:], list(program.reach.once)).any():
        raise DataError(
            f"document {index} has a token inside that the proof allows only at the start: {sorted(program.reach.once)}"
        )
    return tokens


def look_up(table: Table, window: Array) -> Array:
    """The symbol of every window: 0 for one that the table does not know."""
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
