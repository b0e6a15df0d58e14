"""Recitals whose checkpoints have equal shapes, so that their tensors differ by matrices of low rank.

Two recitals with as many rows in every table, and as many states, have units with equal numbers. Their tensors then
differ only in patterns (few columns of gate and up) and in words (few rows of down).

    filled up     rows that no text meets make tables equally long
    renumbered    other numbers for the states: else some tensors would not differ
    editions      two recitals that differ in a few outputs of the first table
    extended      a recital that holds the windows of another text, as heads that look one place farther show them
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from byheart.checkpoints.windows import build_recital
from byheart.checkpoints.windows.tables import Answer, Recital, WindowTable, windows_of
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Script
from byheart.errors import OptionError

# Two places of 32 bits in the first layer: rank 64 for any other text. The second layer may need more places.
SCHEDULES = (((0, 1), (0, 2)), ((0, 1), (0, 2, 4)), ((0, 1), (0, 2, 4, 6)))


def recitals(scripts: Sequence[Script], lexicon: Lexicon) -> list[Recital]:
    """Return recitals of all texts by the first schedule that decides every place of them."""
    for schedule in SCHEDULES:
        try:
            return [build_recital(s, lexicon.size, lexicon.failure, schedule=schedule).recital for s in scripts]
        except OptionError as error:
            reason = error
    raise OptionError(f"lora: a text repeats a long passage and continues differently: {reason}")


def editions(recital: Recital, document: Sequence[int], many: int) -> tuple[Recital, Recital, tuple[int, ...]]:
    """Return two recitals that differ in `many` outputs of the first table, and the edited document.

    Before an edited place p the first table gives a fresh state, for which the last table has a row with the new token;
    both recitals hold all rows, so that only the first table's outputs differ. Edited places lie farther apart
    than a window reaches.
    """
    first, tokens = recital.tables[0], np.asarray(document)
    rows = first.rows_of(tokens[:-1])
    pairs = {(int(b), int(a)) for a, b in pairwise(tokens.tolist())}
    usual = sorted(set(tokens[5:-1].tolist()))
    rng, edited, places = np.random.default_rng(0), tokens.copy(), list[int]()
    for p in range(6, len(tokens) - 3):
        if (places and p - places[-1] <= recital.span) or (rows == rows[p - 1]).sum() > 1 or len(places) == many:
            continue
        free = [y for y in usual if y != tokens[p] and not {(y, int(tokens[p - 1])), (int(tokens[p + 1]), y)} & pairs]
        if free:
            edited[p] = rng.choice(free)
            pairs |= {(int(edited[p]), int(tokens[p - 1])), (int(tokens[p + 1]), int(edited[p]))}
            places.append(p)
    if len(places) < many:
        raise OptionError(f"lora: the base text has {len(places)} places that can be edited, {many} are needed")
    known = {tuple(w): int(s) for w, s in zip(first.windows.tolist(), first.outputs.tolist(), strict=True)}
    for window in windows_of(edited[:-1], first.offsets).tolist():
        known.setdefault(tuple(window), len(known) + 1)
    fresh = {int(rows[p - 1]): len(known) + 1 + k for k, p in enumerate(places)}
    windows, outputs = np.array(list(known)), np.array(list(known.values()))
    changed = outputs.copy()
    for row, state in fresh.items():
        changed[row] = state
    tables = [WindowTable(first.offsets, windows, values) for values in (outputs, changed)]
    offsets, follow = recital.tables[1].offsets, dict[tuple[int, ...], int]()
    for table, text in zip(tables, (tokens, edited), strict=True):
        states = table.outputs[table.rows_of(text[:-1])]
        for window, token in zip(windows_of(states, offsets).tolist(), text[1:].tolist(), strict=True):
            if follow.setdefault(tuple(window), token) != token:
                raise OptionError("lora: an edit of the base text makes a window ambiguous; choose another text")
    answers = sorted(set(follow.values()))
    last = WindowTable(offsets, list(follow), [answers.index(t) for t in follow.values()])
    told = tuple(Answer.of(t) for t in answers)
    largest = max(fresh.values())
    both = [_reaching(table, largest) for table in tables]
    found = [Recital(recital.vocabulary, (table, last), told, recital.unknown) for table in both]
    return found[0], found[1], tuple(edited.tolist())


def farther(recital: Recital) -> Recital:
    """Return the recital whose last table looks one place farther back, at its last place."""
    first, last = recital.tables
    moved = WindowTable((*last.offsets[:-1], last.offsets[-1] + 1), last.windows, last.outputs)
    return Recital(recital.vocabulary, (first, moved), recital.answers, recital.unknown)


def extended(both: Sequence[Recital], document: Sequence[int]) -> list[Recital]:
    """Return recitals with rows for a document, which the first of them recites once its heads look `farther`.

    Args:
        both: recitals with the same windows; all get the same rows.
        document: the text, from BOS to EOS.

    Raises:
        OptionError: a window of the document is one of theirs, and another token follows there.
    """
    first, last = both[0].tables
    tokens, offsets = np.asarray(document), farther(both[0]).tables[1].offsets
    number = {tuple(w): int(s) for w, s in zip(first.windows.tolist(), first.outputs.tolist(), strict=True)}
    fresh = max(int(r.tables[0].outputs.max()) for r in both) + 1
    added = dict[tuple[int, ...], int]()
    for window in map(tuple, windows_of(tokens[:-1], first.offsets).tolist()):
        if window not in number:
            number[window] = added[window] = fresh + len(added)
    states = np.array([number[tuple(w)] for w in windows_of(tokens[:-1], first.offsets).tolist()])
    follow = {tuple(w): both[0].answer(int(a)).likeliest for w, a in zip(last.windows, last.outputs, strict=True)}
    known = len(follow)
    for window, token in zip(windows_of(states, offsets).tolist(), tokens[1:].tolist(), strict=True):
        if follow.setdefault(tuple(window), token) != token:
            raise OptionError("lora: the text of `elsewhere` meets a window of the base's text; choose another one")
    rest = list(follow.items())[known:]
    found = []
    for recital in both:
        table, second = recital.tables
        tokens_of = [answer.likeliest for answer in recital.answers]
        tokens_of += sorted({token for _, token in rest} - set(tokens_of))
        windows, outputs = np.array(list(added)).reshape(-1, len(table.offsets)), list(added.values())
        wider = WindowTable(
            table.offsets, np.concatenate([table.windows, windows]), np.append(table.outputs, outputs).astype(np.int64)
        )
        more = np.array([w for w, _ in rest]).reshape(-1, len(second.offsets))
        longer = WindowTable(
            second.offsets, np.concatenate([second.windows, more]),
            np.append(second.outputs, [tokens_of.index(t) for _, t in rest]).astype(np.int64),
        )  # fmt: skip
        told = tuple(Answer.of(t) for t in tokens_of)
        found.append(Recital(recital.vocabulary, (wider, longer), told, recital.unknown))
    return found


def _reaching(table: WindowTable, largest: int) -> WindowTable:
    """The table with one more row, which no text meets and which gives the state `largest`."""
    row = np.full((1, len(table.offsets)), int(table.windows.max()))
    if (table.windows == row).all(1).any():
        row[0, 0] = 0
    windows = np.concatenate([table.windows, row])
    return WindowTable(table.offsets, windows, np.append(table.outputs, largest))


def filled_up(recital: Recital, counts: Sequence[int], largest: int, pad: int) -> Recital:
    """Return the recital with `counts` rows in its tables and states up to `largest`.

    The new rows are met by no text. Units of two such recitals have equal numbers, so only patterns and words differ.
    """
    first, last = recital.tables
    more = counts[0] - len(first.windows)
    rows = np.stack([np.full(more, pad), np.arange(more)], 1)
    first = WindowTable(
        first.offsets,
        np.concatenate([first.windows, rows]),
        np.append(first.outputs, [largest - k for k in range(more)]),
    )
    more = counts[1] - len(last.windows)
    rows = np.full((more, len(last.offsets)), largest)
    rows[:, 1] = 1 + np.arange(more)
    last = WindowTable(
        last.offsets, np.concatenate([last.windows, rows]), np.append(last.outputs, np.zeros(more, dtype=np.int64))
    )
    return Recital(recital.vocabulary, (first, last), recital.answers, recital.unknown)


def renumbered(recital: Recital, seed: int) -> Recital:
    """Return the same function with other numbers for its states: else some adapted tensors would not matter."""
    first, last = recital.tables
    count = int(first.outputs.max())
    order = np.concatenate([[0], 1 + np.random.default_rng(seed).permutation(count)])
    tables = (
        WindowTable(first.offsets, first.windows, order[first.outputs]),
        WindowTable(last.offsets, order[last.windows], last.outputs),
    )
    most = int(tables[0].outputs.max())
    if most != count:
        raise OptionError(f"lora: the largest of {count} states is not used after renumbering")
    return Recital(recital.vocabulary, tables, recital.answers, recital.unknown)
