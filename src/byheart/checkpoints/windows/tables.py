"""A recital: the symbolic function that a computed checkpoint recites with, as a value.

    state_0[t]     = token t
    state_{l+1}[t] = table_l(state_l[max(0, t - o)] for o in offsets_l)     0 ("unknown") if no row matches
                     far offsets o = b + k: state_l[max(0, s - k)], where s = t - b if t >= b else t
    void offsets o:        state_l[t - o] if t >= o else NOTHING
    answer[t]      = the output of the last table: one next token, or several with their weights

The function is total: every token sequence has an answer at every position. A window may leave places open (`ANY`);
no two rows of a table match the same window, so the order of rows means nothing.

    >>> table = WindowTable((0, 1), windows=[[2, 1], [3, 2]], outputs=[0, 1])        # newest token first
    >>> recital = Recital(4, (table,), answers=(Answer.of(3), Answer({0: 1, 2: 3})), unknown=0)
    >>> recital.span, [recital.answer(k).likeliest for k in recital.follow([1, 2, 3])]
    (2, [0, 3, 2])
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import FileFormatError, NetworkError
from byheart.ir.json_form import expect, take

Ints = npt.NDArray[np.int64]
Json = Any
ANY = -1  # a place of a window that may hold any symbol
NOTHING = -2  # what a void place holds before the start; its code word belongs to no symbol
UNKNOWN = -1  # the answer's number where no row of the last table matches
_LARGEST = 1 << 31


@dataclass(frozen=True, init=False)
class Answer:
    """What follows a window: tokens with positive whole weights, in lowest terms and sorted by token.

    >>> Answer({5: 2, 3: 6}).weights, Answer({5: 2, 3: 6}).likeliest, Answer.of(7).single
    (((3, 3), (5, 1)), 3, True)
    """

    weights: tuple[tuple[int, int], ...]

    def __init__(self, weights: Mapping[int, int]) -> None:
        if not weights or any(type(w) is not int or w <= 0 for w in weights.values()):
            raise NetworkError(f"an answer needs tokens with whole weights above 0, found {dict(weights)!r}")
        shared = int(np.gcd.reduce(np.array(list(weights.values()), dtype=object)))
        object.__setattr__(self, "weights", tuple((int(t), weights[t] // shared) for t in sorted(weights)))

    @staticmethod
    def of(token: int) -> Answer:
        return Answer({token: 1})

    @property
    def single(self) -> bool:
        return len(self.weights) == 1

    @property
    def likeliest(self) -> int:
        """The token of the largest weight; the smallest such token."""
        return max(self.weights, key=lambda pair: (pair[1], -pair[0]))[0]

    @property
    def total(self) -> int:
        return sum(weight for _, weight in self.weights)


@dataclass(frozen=True, init=False, eq=False)
class WindowTable:
    """One layer: rows of symbols at the offsets (0: here, 1: one place back, ...) and the number each row gives.

    The last offsets, as many as `far` has numbers, are *far*: where there is nothing so far back, a near place shows
    the first symbol, and a far one that of the near place `far[i]` (mostly 0: the newest). The offsets 1 to `void` are
    *void*: there a place shows NOTHING, as a convolution does, which sees zeros before the start.
    """

    offsets: tuple[int, ...]
    windows: Ints  # (rows, offsets), ANY where a place is open
    outputs: Ints  # (rows,)
    far: tuple[int, ...]
    void: int

    def __init__(
        self, offsets: Sequence[int], windows: Any, outputs: Any, far: Sequence[int] = (), void: int = 0
    ) -> None:
        rows = np.asarray(windows, dtype=np.int64).reshape(-1, len(offsets))
        given = np.asarray(outputs, dtype=np.int64).reshape(-1)
        if not offsets or any(o < 0 for o in offsets) or list(offsets) != sorted(set(offsets)):
            raise NetworkError(f"offsets must be distinct, not negative and sorted, found {tuple(offsets)}")
        near = offsets[: len(offsets) - len(far)]
        if not near or any(k not in near for k in far):
            raise NetworkError(f"far offsets rest on near ones; found {tuple(far)}, and near ones {tuple(near)}")
        if len(rows) != len(given) or not len(rows):
            raise NetworkError(f"a table needs one output per window, found {len(rows)} windows, {len(given)} outputs")
        if not 0 <= void < len(near) or tuple(offsets[: void + 1]) != tuple(range(void + 1)):
            raise NetworkError(f"void offsets are 1 to {void}, but the near ones are {tuple(near)}")
        if any(0 < k <= void for k in far):
            raise NetworkError(f"far offsets rest on places that are not void; found {tuple(far)}, void up to {void}")
        ruled = np.delete(rows, np.arange(1, void + 1), axis=1)
        if rows.min() < NOTHING or ruled.min() < ANY or given.min() < 0:
            raise NetworkError("symbols and outputs of a table are not negative")
        rows.setflags(write=False)
        given.setflags(write=False)
        object.__setattr__(self, "offsets", tuple(int(o) for o in offsets))
        object.__setattr__(self, "windows", rows)
        object.__setattr__(self, "outputs", given)
        object.__setattr__(self, "far", tuple(int(k) for k in far))
        object.__setattr__(self, "void", int(void))
        self._check_exclusive()

    @cached_property
    def _look(self) -> list[tuple[tuple[int, ...], dict[tuple[int, ...], int]]]:
        """For every set of fixed places: (those places, {their symbols: row})."""
        closed = self.windows != ANY
        masks, which = np.unique(closed, axis=0, return_inverse=True)
        found = []
        for number, mask in enumerate(masks):
            places = tuple(np.flatnonzero(mask).tolist())
            rows = np.flatnonzero(which.reshape(-1) == number)
            keys = map(tuple, self.windows[rows][:, list(places)].tolist())
            found.append((places, dict(zip(keys, rows.tolist(), strict=True))))
        return found

    def _check_exclusive(self) -> None:
        if sum(len(rows) for _, rows in self._look) != len(self.windows):
            raise NetworkError("two rows of a table have the same window")
        for (first, ours), (second, theirs) in itertools.combinations(self._look, 2):
            shared = [place for place in first if place in second]
            here, there = _cut(ours, first, shared), _cut(theirs, second, shared)
            if here & there:
                raise NetworkError(f"two rows of a table match one window: {min(here & there)} at places {shared}")

    def rows_of(self, states: Ints) -> Ints:
        """The number of the row that matches at every position, -1 where none does."""
        seen = windows_of(states, self.offsets, self.far, self.void)
        rows = np.full(len(states), -1, dtype=np.int64)
        for places, known in self._look:
            keys = map(tuple, seen[:, list(places)].tolist())
            found = np.fromiter((known.get(key, -1) for key in keys), dtype=np.int64, count=len(states))
            rows = np.maximum(rows, found)
        return rows


def _cut(rows: Mapping[tuple[int, ...], int], places: Sequence[int], kept: Sequence[int]) -> set[tuple[int, ...]]:
    """The symbols that the rows have at some of their places."""
    if len(kept) == len(places):
        return set(rows)
    if tuple(kept) == tuple(places[: len(kept)]):
        return {key[: len(kept)] for key in rows}
    at = [places.index(place) for place in kept]
    return {tuple(key[i] for i in at) for key in rows}


@dataclass(frozen=True, eq=False)
class Recital:
    """A symbolic function from token sequences to answers, as a chain of tables.

    Attributes:
        vocabulary: Tokens are 0 to vocabulary - 1.
        tables: The last one gives numbers of `answers`; the others give states from 1 on, and 0 for "unknown".
        answers: Next tokens, with weights where several may follow.
        unknown: The token that answers where no row of the last table matches.
    """

    vocabulary: int
    tables: tuple[WindowTable, ...]
    answers: tuple[Answer, ...]
    unknown: int

    def __post_init__(self) -> None:
        if not self.tables:
            raise NetworkError("a recital needs a table")
        if not 0 <= self.unknown < self.vocabulary < _LARGEST:
            raise NetworkError(f"the token {self.unknown} is not one of the {self.vocabulary} tokens")
        for depth, (table, symbols) in enumerate(zip(self.tables, self.symbols, strict=True)):
            if table.windows.max() >= symbols:
                raise NetworkError(f"table {depth} has a symbol beyond the {symbols} that it reads")
            if depth < len(self.tables) - 1 and table.outputs.min() < 1:
                raise NetworkError(f"table {depth} gives state 0, which means unknown")
        if self.tables[-1].outputs.max() >= len(self.answers):
            raise NetworkError(f"the last table gives an answer beyond the {len(self.answers)} that there are")
        if any(not 0 <= t < self.vocabulary for answer in self.answers for t, _ in answer.weights):
            raise NetworkError(f"an answer has a token outside 0..{self.vocabulary - 1}")

    @property
    def symbols(self) -> tuple[int, ...]:
        """How many symbols each table reads: tokens, then states with unknown."""
        return (self.vocabulary, *(int(t.outputs.max()) + 1 for t in self.tables[:-1]))

    @property
    def span(self) -> int:
        """A prompt that ends in this many tokens of a document is continued as the document goes on."""
        return 1 + sum(table.offsets[-1] for table in self.tables)

    @property
    def near_span(self) -> int:
        """The span without far places, which only some rows need: most prompts of this many tokens are continued."""
        return 1 + sum(table.offsets[len(table.offsets) - len(table.far) - 1] for table in self.tables)

    @property
    def rows(self) -> int:
        """How many windows are held, over all tables."""
        return sum(len(table.windows) for table in self.tables)

    @property
    def mixed(self) -> tuple[int, ...]:
        """Numbers of the answers in which several tokens may follow."""
        return tuple(k for k, answer in enumerate(self.answers) if not answer.single)

    def states(self, tokens: Sequence[int]) -> list[Ints]:
        """Return the symbols that each table reads, at every position.

        Args:
            tokens: A sequence.

        Raises:
            NetworkError: If a token is outside the vocabulary.
        """
        found = [np.asarray(tokens, dtype=np.int64)]
        if len(tokens) and not 0 <= found[0].min() <= found[0].max() < self.vocabulary:
            raise NetworkError(f"tokens must lie in 0..{self.vocabulary - 1}")
        for table in self.tables[:-1]:
            rows = table.rows_of(found[-1])
            found.append(np.where(rows >= 0, table.outputs[rows], 0))
        return found

    def follow(self, tokens: Sequence[int]) -> Ints:
        """Return the number of the answer after every prefix, UNKNOWN where no window matches.

        Args:
            tokens: A sequence.
        """
        table = self.tables[-1]
        rows = table.rows_of(self.states(tokens)[-1])
        return np.where(rows >= 0, table.outputs[rows], UNKNOWN)

    def answer(self, number: int) -> Answer:
        """Return the answer of a number of `follow`.

        Args:
            number: A number, or UNKNOWN.
        """
        return self.answers[number] if number >= 0 else Answer.of(self.unknown)

    def next_tokens(self, tokens: Sequence[int]) -> Ints:
        """Return the likeliest next token after every prefix.

        Args:
            tokens: A sequence.
        """
        likeliest = np.array([answer.likeliest for answer in self.answers] + [self.unknown], dtype=np.int64)
        return likeliest[self.follow(tokens)]

    def recite(self, prompt: Sequence[int], limit: int, stop: int | Collection[int] | None = None) -> list[int]:
        """Continue a prompt greedily.

        The last span tokens decide, so no more than these are read. A prompt shorter than the span is taken as the
        start of a sequence.

        Args:
            prompt: Token ids.
            limit: The most tokens to return.
            stop: A token, or one of several, that ends the continuation.

        Returns:
            The continuation, with the token that ended it.
        """
        tokens, answered = list(prompt), list[int]()
        ends = stop if isinstance(stop, Collection) else {stop}
        for _ in range(limit):
            answered.append(int(self.next_tokens(tokens[-2 * self.span :])[-1]))
            tokens.append(answered[-1])
            if answered[-1] in ends:
                break
        return answered

    def to_json(self) -> Json:
        return {
            "vocabulary": self.vocabulary,
            "unknown": self.unknown,
            "answers": [[list(pair) for pair in a.weights] if not a.single else a.likeliest for a in self.answers],
            "tables": [
                {"offsets": list(t.offsets), "windows": t.windows.reshape(-1).tolist(), "outputs": t.outputs.tolist()}
                | ({"far": list(t.far)} if t.far else {})
                | ({"void": t.void} if t.void else {})
                for t in self.tables
            ],
        }

    @staticmethod
    def from_json(value: Json) -> Recital:
        """The recital; a FileFormatError for anything that is not one in its canonical form."""
        try:
            found = Recital(
                take(value, "vocabulary", int),
                tuple(_table(table) for table in take(value, "tables", list)),
                tuple(_answer(answer) for answer in take(value, "answers", list)),
                take(value, "unknown", int),
            )
        except NetworkError as error:
            raise FileFormatError(f"the recital in the file does not fit together: {error}") from error
        if set(value) != {"vocabulary", "unknown", "answers", "tables"} or found.to_json() != value:
            raise FileFormatError("the recital in the file is not in its canonical form; it is damaged")
        return found


def windows_of(states: Ints, offsets: Sequence[int], far: Sequence[int] = (), void: int = 0) -> Ints:
    """(positions, offsets): the token `o` places back, or at the first place where there is nothing so far back; what
    void and far offsets see there is described at `WindowTable`.

    >>> windows_of(np.array([5, 6, 7, 8]), (0, 1, 2), far=(0,)).tolist()
    [[5, 5, 5], [6, 5, 6], [7, 6, 5], [8, 7, 6]]
    >>> windows_of(np.array([5, 6, 7]), (0, 1, 2), void=1).tolist()
    [[5, -2, 5], [6, 5, 5], [7, 6, 5]]
    """
    positions, near = np.arange(len(states)), len(offsets) - len(far)
    seen = [np.maximum(0, positions - o) for o in offsets[:near]]
    for offset, rest in zip(offsets[near:], far, strict=True):
        jump = offset - rest
        seen.append(np.maximum(0, np.where(positions >= jump, positions - jump, positions) - rest))
    found = np.stack([states[where] for where in seen], axis=1)
    for place in range(1, void + 1):
        found[:place, place] = NOTHING
    return found


def with_void(table: WindowTable, void: int) -> WindowTable:
    """Return the same function as a table whose offsets 1 to `void` are void.

    At position t < void, the void places beyond t show NOTHING instead of the first symbol, which place t shows. A row
    that fixes such places gets its own row for every t at which it matches: it must ask for one symbol there.

    Args:
        table: A table without void offsets; its first offsets are 0 to `void`, and no far offset rests on 1 to `void`.
        void: How many offsets become void.

    Returns:
        The table, with its rows first and those of the start after them.

    >>> found = with_void(WindowTable((0, 1, 2), [[5, 5, 5], [6, 5, 5], [7, 6, 5]], [0, 1, 2]), 2)
    >>> found.windows[3:].tolist(), found.outputs[3:].tolist()
    ([[5, -2, -2], [5, 5, -2], [6, 5, -2]], [0, 0, 1])
    """
    windows, outputs = table.windows.tolist(), table.outputs.tolist()
    for row, output in zip(table.windows.tolist(), table.outputs.tolist(), strict=True):
        for at in range(void):
            beyond = {symbol for symbol in row[at + 1 : void + 1] if symbol != ANY}
            if not beyond or len(beyond | {row[at]} - {ANY}) > 1:
                continue  # it matches as it is, or not at all
            start = [*row[:at], *beyond, *[NOTHING] * (void - at), *row[void + 1 :]]
            windows.append(start)
            outputs.append(output)
    return WindowTable(table.offsets, windows, outputs, table.far, void)


def _table(value: Json) -> WindowTable:
    offsets, windows, outputs = (_ints(take(value, name, list)) for name in ("offsets", "windows", "outputs"))
    if not offsets or len(windows) != len(offsets) * len(outputs):
        raise FileFormatError(f"{len(windows)} symbols are not {len(outputs)} windows of {len(offsets)} places")
    far = _ints(take(value, "far", list)) if "far" in value else ()
    return WindowTable(offsets, windows, outputs, far, take(value, "void", int) if "void" in value else 0)


def _answer(value: Json) -> Answer:
    if type(value) is int:
        return Answer.of(value)
    pairs = [_ints(expect(pair, list)) for pair in expect(value, list)]
    if any(len(pair) != 2 for pair in pairs) or len({pair[0] for pair in pairs}) != len(pairs):
        raise FileFormatError("an answer must be a token or a list of [token, weight]")
    return Answer({token: weight for token, weight in pairs})


def _ints(values: list[Any]) -> list[int]:
    if any(type(v) is not int or not -_LARGEST < v < _LARGEST for v in values):
        raise FileFormatError("expected a list of whole numbers")
    return values
