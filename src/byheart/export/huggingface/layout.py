"""Which residual channel holds what, and which layer of the network does which part of the recital.

Every channel holds +kappa or -kappa. A block whose content is constant carries the signs of `Layout.signs`.

    constant[0]   never changes: queries, keys and thresholds are read from it
    width         the same, for the smaller constants
    first         says whether the token is BOS
    meter         two channels of the scale probe: kappa (1 + p/8) and kappa (1 - p/8), p the weight of BOS
    flags         copies of `first` from the two farthest places that the first table sees
    state[0]      the token's code word
    slots[l][i]   what layer l saw at its i-th offset; before that, the signs
    constant[l+1] minus its signs before layer l, plus its signs after: the layer's activation probe turns it
    state[l+1]    what table l said: the code of "unknown" before; the last one is the answer
    mark          only where the head is tied: with the verdict, constant[-1], it tells the failure token from others
    order[l]      turned beside table l's attention, where attention and MLP are parallel (GPT-NeoX); the second half
                  of these blocks is turned by the attention beside the table before
    mixed         pairs of channels, one (or two) per answer with several tokens: (+, -) at rest, (+, +) when given
    idle          fills up to the hidden size
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from byheart.errors import ExportError
from byheart.export.huggingface.codes import CodeBook, book_around, code_book, plain_book
from byheart.ir.recital import ANY, Recital, Table

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
METER = 1 / 8  # what the weight of BOS adds to a meter channel, of kappa: little, since it moves the norm
FIRST_PLACES = 6  # that one layer of a spread table fetches


@dataclass(frozen=True, eq=False)
class Stage:
    """One layer's part: the table that it serves, the places it fetches, and the rows that are its units.

    The places come straight from the table's state, or (`step`) from slots that an earlier layer has filled, that many
    places back: several code words travel together then.
    """

    table: int
    places: tuple[int, ...]  # numbers of the table's offsets
    rows: Index
    step: int | None = None


@dataclass(frozen=True, eq=False)
class Books:
    """The code words of every state; `states[l]` is read by table l, `answer` by the head."""

    states: tuple[CodeBook, ...]
    answer: CodeBook  # tokens, and last the word for "several may follow"


def books_of(recital: Recital, *, balanced: bool, plain: bool, seed: int, tied: bool) -> Books:
    """Code words for tokens, states and answers; a tied head reads answers with the words of the tokens."""
    tokens, mixed = recital.symbols[0], 1 if recital.mixed else 0
    if plain:
        states = tuple(plain_book(n) for n in recital.symbols)
    else:
        extra = mixed if tied else 0
        first = code_book(tokens + extra, balanced=balanced, seed=seed)
        others = (code_book(n, balanced=balanced, seed=seed + k) for k, n in enumerate(recital.symbols[1:], 1))
        states = (first, *others)
    if tied:  # the last norm, whose weights are negative, turns them back
        return Books(states, CodeBook(-states[0].words, states[0].distance))
    if mixed:  # no token is nearer to the word at rest than another: errors do not move their probabilities apart
        around = book_around(tokens + mixed, recital.unknown, balanced=balanced, seed=seed + len(states))
        return Books(states, around)
    answer = code_book(tokens + mixed, balanced=balanced, seed=seed + len(states))
    return Books(states, answer)


def stages_of(recital: Recital, layers: int | None) -> tuple[Stage, ...]:
    """One layer per table; a lone table with many places is spread over layers that fetch a part of them each.

    A row can be a unit of any layer in which all its places have been fetched; the rows are shared out evenly.
    """
    table = recital.tables[0]
    if len(recital.tables) > 1 or (len(table.offsets) <= FIRST_PLACES and layers in (None, 1)):
        if layers not in (None, len(recital.tables)):
            raise ExportError(f"{len(recital.tables)} tables are as many layers, not {layers}")
        return tuple(
            Stage(k, tuple(range(len(t.offsets))), np.arange(len(t.windows))) for k, t in enumerate(recital.tables)
        )
    if table.offsets != tuple(range(len(table.offsets))):
        raise ExportError("only a table that sees all places in a row can be spread over layers")
    wide = FIRST_PLACES if layers is None else -(-len(table.offsets) // layers)
    if wide > FIRST_PLACES:
        raise ExportError(f"{len(table.offsets)} places need at least {-(-len(table.offsets) // FIRST_PLACES)} layers")
    parts = [range(k, min(k + wide, len(table.offsets))) for k in range(0, len(table.offsets), wide)]
    rows = _share_rows(table, parts)
    return tuple(
        Stage(0, tuple(part), those, wide if k else None)
        for k, (part, those) in enumerate(zip(parts, rows, strict=True))
    )


def _share_rows(table: Table, parts: list[range]) -> list[Index]:
    """Rows per layer, about equally many; the longest windows have the least choice, so they go to the last layers."""
    depth = np.where(table.windows != ANY, np.arange(table.windows.shape[1]), 0).max(axis=1)
    ready = np.searchsorted(np.array([part[-1] for part in parts]), depth)  # the first layer that knows all places
    share = -(-len(depth) // len(parts))
    rows: list[list[int]] = [[] for _ in parts]
    for row in np.argsort(-depth, kind="stable").tolist():
        free = (k for k in range(len(parts) - 1, int(ready[row]) - 1, -1) if len(rows[k]) < share)
        rows[next(free, int(ready[row]))].append(row)
    return [np.array(sorted(those), dtype=np.int64) for those in rows]


def deepen(recital: Recital, layers: int) -> Recital:
    """The same recital with more tables: after the first one, tables that hand every state on as it is.

    Every layer still matters: a state that is not handed on is unknown.
    """
    if layers < len(recital.tables):
        raise ExportError(f"this recital needs {len(recital.tables)} layers; {layers} are too few")
    if len(recital.tables) == 1:
        raise ExportError(f"this recital is one table, so one layer; {layers} layers need the flavour `units`")
    states = np.arange(1, int(recital.tables[0].outputs.max()) + 1)
    same = Table((0,), states[:, None], states)
    tables = (recital.tables[0], *[same] * (layers - len(recital.tables)), *recital.tables[1:])
    return Recital(recital.vocabulary, tables, recital.answers, recital.unknown)


@dataclass
class _Ruler:
    """Hands out channels one after the other."""

    next: int = 0

    def take(self, count: int) -> Index:
        self.next += count
        return np.arange(self.next - count, self.next)


@dataclass(frozen=True, eq=False)
class Layout:
    """Channel numbers of every block; `slots[k]` belongs to table k."""

    constant: tuple[Index, ...]
    width: Index
    first: Index
    meter: Index
    flags: Index
    extra: Index
    state: tuple[Index, ...]
    slots: tuple[tuple[Index, ...], ...]
    mark: Index
    order: tuple[Index, ...]
    mixed: Index
    anchor: Index
    used: int
    hidden: int
    signs: Floats = field(repr=False)

    def source(self, stage: Stage) -> Index:
        """The channels that a stage's attention copies from: a state, or slots that are filled already."""
        if stage.step is None:
            return self.state[stage.table]
        return np.concatenate([self.slots[stage.table][place - stage.step] for place in stage.places])

    def targets(self, stage: Stage, offsets: tuple[int, ...]) -> list[tuple[int, Index]]:
        """(offset, the slots that get what the source holds that many places back)."""
        slots = [self.slots[stage.table][place] for place in stage.places]
        if stage.step is None:
            return [(offsets[place], slot) for place, slot in zip(stage.places, slots, strict=True)]
        return [(stage.step, np.concatenate(slots))]


def lay_out(
    recital: Recital,
    books: Books,
    stages: tuple[Stage, ...],
    *,
    multiple: int,
    hidden: int | None = None,
    constants: int = 16,
    width: int = 8,
    probes: int = 8,
    extra: int = 0,
    parts: int = 1,
    orders: int = 0,
    anchor: bool = False,
    tied: bool = False,
    balanced: bool = False,
) -> Layout:
    """Numbers the channels; the hidden size is a multiple of `multiple`, or `hidden` if that is large enough.

    `extra` channels hold positions; `parts` is how many numbers of the stored type make up a log-probability.
    """
    ruler = _Ruler()
    constant, wide = [ruler.take(constants)], ruler.take(width)
    # LayerNorm wants a mean of zero: what is one channel for RMSNorm is a channel and its opposite there.
    both = 2 if balanced else 1
    first, meter, flags = ruler.take(2), ruler.take(2 * both), ruler.take(2 * both)
    positions = ruler.take(extra)
    state = [ruler.take(books.states[0].bits)]
    slots = []
    for depth, table in enumerate(recital.tables):
        slots.append(tuple(ruler.take(books.states[depth].bits) for _ in table.offsets))
        if depth + 1 < len(recital.tables):
            state.append(ruler.take(books.states[depth + 1].bits))
    state.append(state[0] if tied else ruler.take(books.answer.bits))
    constant += [ruler.take(probes) for _ in stages]
    mark = ruler.take(probes if tied else 0)
    order = tuple(ruler.take(probes) for _ in range(orders))
    mixed = ruler.take(2 * both * parts * len(recital.mixed)).reshape(len(recital.mixed), parts, both, 2)
    ballast = ruler.take(2 if anchor else 0)
    size = -(-ruler.next // multiple) * multiple if hidden is None else hidden
    if size < ruler.next:
        raise ExportError(f"a hidden size of {size} is too small for this recital: {ruler.next} channels are needed")
    signs = np.where(np.arange(size) % 2 == 0, 1.0, -1.0)
    return Layout(
        tuple(constant), wide, first, meter, flags, positions, tuple(state), tuple(slots), mark, order, mixed,
        ballast, ruler.next, size, signs,
    )  # fmt: skip
