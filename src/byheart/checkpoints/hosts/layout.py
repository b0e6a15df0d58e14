"""Which residual channel holds what, and which layer of the network does which part of the recital.

Every channel holds +kappa or -kappa. A block whose content is constant carries the signs of `ChannelLayout.signs`.

    constant[0]   never changes: queries, keys and thresholds are read from it
    width         the same, for the smaller constants
    first         flags BOS
    meter         two channels of the scale probe: kappa (1 + p/8) and kappa (1 - p/8), p the weight of BOS
    flags         copies of `first` from the two farthest neighbours that the first layer sees
    state[0]      the token's code word
    slots[l][i]   what layer l saw at its i-th offset; before that, the signs
    constant[l+1] minus its signs before layer l, plus its signs after: the layer's activation probe turns it
    state[l+1]    the output of table l: the code of "unknown" before; the last one is the answer
    mark          only where the head is tied: with the verdict, constant[-1], it marks the failure token
    order[l]      turned beside table l's attention, where attention and MLP are parallel (GPT-NeoX); the second half
                  of these blocks is turned by the attention beside the table before
    listening     one channel per listener, and one or two that stay as they are (listening.py)
    sense         one channel per listener, which is zero but for what that writes (sensors.py)
    counterweight for three channels of zeros one of twice the size, so that norms see what they see without them
    mixed         pairs of channels, one (or two) per answer with several tokens: (+, -) at rest, (+, +) when given
    anchor        channels that norms take to zero: two where windows have open places, the last of every 32 in the
                  flavour for quantized engines
    idle          fills up to the hidden size
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.codes import CodeBook, book_around, code_book, plain_book
from byheart.checkpoints.windows.tables import ANY, Recital, WindowTable
from byheart.errors import ExportError

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
METER = 1 / 8  # what the weight of BOS adds to a meter channel, of kappa: little, since it moves the norm
FIRST_PLACES = 6  # that one layer of a spread table fetches
# Channels of zeros to one of twice the size: a little less than that, so that in 8 bits the others are 64 of 127 steps.
ZEROS, HEAVY = 3, 127 / 64
BLOCK = 32  # channels that quantizers give one scale
LONGEST_STEP = 16  # places back that a head of a spread table looks: farther ones have small margins
EASY_STEP = 12  # with a margin that needs no large scores


@dataclass(frozen=True, eq=False)
class LayerStage:
    """One layer's part: the table that it serves, the places it fetches, and the rows that are its units.

    The places come straight from the table's state, or (`sources`, one for each) from slots of other places that an
    earlier layer has filled.
    """

    table: int
    places: tuple[int, ...]  # numbers of the table's offsets
    rows: Index
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Fetch:
    """What the heads of one distance do: copy `bits` of a layer's source from `offset` places back to `target`.

    Where there is nothing so far back, a near one copies from the first place, a `far` one from its own.
    """

    offset: int
    bits: Index  # numbers of the source's channels
    target: Index  # channels of slots, one per bit
    far: bool = False


def neighbours(fetches: Sequence[Fetch]) -> tuple[int, int]:
    """Two fetches, the farther one first, of adjacent places: the farthest such. The scale probe
    measures at the one position at which only the farther one sees BOS."""
    near = [fetch for fetch in fetches if not fetch.far]  # they come first
    far = max(k for k in range(1, len(near)) if near[k].offset == near[k - 1].offset + 1)
    return far, far - 1


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


def stages_of(
    recital: Recital, layers: int | None, wide: int = FIRST_PLACES, sources: int | None = None, least: int = 1
) -> tuple[LayerStage, ...]:
    """One layer per table; a lone table with many places is spread over layers that fetch up to `wide` of them each,
    from `sources` slots at most, and over `least` layers at least.

    A row can be a unit of any layer in which all its places have been fetched; the rows are shared out evenly.
    """
    table = recital.tables[0]
    if len(recital.tables) > 1:
        if layers not in (None, len(recital.tables)):
            raise ExportError(f"{len(recital.tables)} tables take one layer each, not {layers} in all")
        return tuple(
            LayerStage(k, tuple(range(len(t.offsets))), np.arange(len(t.windows))) for k, t in enumerate(recital.tables)
        )
    parts = _steps(table, wide if layers is None else min(wide, -(-len(table.offsets) // layers)), sources or wide)
    while len(parts) < (least if layers is None else layers):
        parts = _split(parts, table.offsets)
    if layers is not None and len(parts) > layers:
        raise ExportError(f"{len(table.offsets)} places need at least {len(parts)} layers")
    rows = _share_rows(table, [places for places, _ in parts])
    return tuple(LayerStage(0, places, those, sources) for (places, sources), those in zip(parts, rows, strict=True))


_Step = tuple[tuple[int, ...], tuple[int, ...]]  # the places that a layer fetches, and the filled ones they come from


def _steps(table: WindowTable, wide: int, most: int) -> list[_Step]:
    """What every layer fetches. Places in a row move together by one distance; others come from the nearest place that
    is filled, LONGEST_STEP away at most, and far ones from those that they rest on."""
    offsets, nears, count = table.offsets, len(table.offsets) - len(table.far), 1
    while count < min(wide, nears) and offsets[count] <= LONGEST_STEP:
        count += 1
    while nears <= count < min(wide, len(offsets)) and table.far[count - nears] == 0:
        count += 1
    parts: list[_Step] = [(tuple(range(count)), ())]
    while (filled := parts[-1][0][-1] + 1) < len(offsets):
        steps: list[tuple[int, int]] = []
        row = next((k for k in range(1, wide) if offsets[filled : filled + k + 1][k:] != (offsets[filled] + k,)), wide)
        for place in range(filled, min(filled + wide, len(offsets))):
            together = row if row > 1 and place < filled + row else None
            source = _source(table, place, filled, together, {k for _, k in steps}, most)
            if source is None:
                break
            steps.append((place, source))
        if not steps:
            raise ExportError(f"no head reaches {offsets[filled]} places back from {offsets[filled - 1]}")
        parts.append((tuple(p for p, _ in steps), tuple(k for _, k in steps)))
    return parts


def _source(table: WindowTable, place: int, filled: int, together: int | None, used: set[int], most: int) -> int | None:
    """The filled place from which a place is fetched: the one `together` places nearer; or the newest, which most heads
    can carry, if that is EASY_STEP away at most; or the farthest. One of the `used` ones where these are as many as
    there may be. None if there is none."""
    offsets, nears = table.offsets, len(table.offsets) - len(table.far)
    if place >= nears:
        found = [k for k in range(filled) if offsets[k] == table.far[place - nears]]
    else:
        found = [k for k in range(filled) if offsets[place] - offsets[k] <= LONGEST_STEP]
    if len(used) >= most:
        found = [k for k in found if k in used]
    same = [k for k in found if offsets[place] - offsets[k] == together]
    newest = [k for k in found if offsets[k] == 0 and offsets[place] <= EASY_STEP]
    return next(iter(same or newest or found[-1:]), None)


def _split(parts: list[_Step], offsets: tuple[int, ...]) -> list[_Step]:
    """One layer more: the one that fetches most leaves half of its places to the next."""
    widest = max(range(len(parts)), key=lambda k: (len(parts[k][0]), k))
    places, sources = parts[widest]
    if len(places) < 2:
        raise ExportError(f"{len(offsets)} places cannot be spread over more than {len(parts)} layers")
    half = -(-len(places) // 2)
    if not sources:
        sources = tuple(max(0, k - half) for k in places)
        return [(places[:half], ()), (places[half:], sources[half:]), *parts[1:]]
    both = [(places[:half], sources[:half]), (places[half:], sources[half:])]
    return [*parts[:widest], *both, *parts[widest + 1 :]]


def _share_rows(table: WindowTable, parts: list[tuple[int, ...]]) -> list[Index]:
    """Rows per layer, about equally many; the longest windows have the least choice, so they go to the last layers."""
    depth = np.where(table.windows != ANY, np.arange(table.windows.shape[1]), 0).max(axis=1)
    last = np.maximum.accumulate([max(part, default=0) for part in parts])
    ready = np.searchsorted(last, depth)  # the first layer with all places
    share = max(-(-int((ready >= k).sum()) // (len(parts) - k)) for k in range(len(parts)))
    rows: list[list[int]] = [[] for _ in parts]
    for row in np.argsort(-depth, kind="stable").tolist():
        free = (k for k in range(len(parts) - 1, int(ready[row]) - 1, -1) if len(rows[k]) < share)
        rows[next(free, int(ready[row]))].append(row)
    return [np.array(sorted(those), dtype=np.int64) for those in rows]


def deepen(recital: Recital, layers: int) -> Recital:
    """The same recital with more tables: after the first one, tables that pass every state on unchanged.

    Every layer still matters: a state that is not passed on is unknown.
    """
    if layers < len(recital.tables):
        raise ExportError(f"this recital needs {len(recital.tables)} layers; {layers} are too few")
    if len(recital.tables) == 1:
        raise ExportError(f"this recital is one table, so one layer; {layers} layers need the flavour `units`")
    states = np.arange(1, int(recital.tables[0].outputs.max()) + 1)
    same = WindowTable((0,), states[:, None], states)
    tables = (recital.tables[0], *[same] * (layers - len(recital.tables)), *recital.tables[1:])
    return Recital(recital.vocabulary, tables, recital.answers, recital.unknown)


@dataclass
class _Ruler:
    """Assigns channels one after the other, without the last of every `block` where there are blocks."""

    block: int | None = None
    next: int = 0

    def take(self, count: int) -> Index:
        found: list[int] = []
        while len(found) < count:
            if self.block is None or (self.next + 1) % self.block:
                found.append(self.next)
            self.next += 1
        return np.array(found, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ChannelLayout:
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
    listening: Index
    sense: Index
    counterweight: Index
    used: int
    hidden: int
    signs: Floats = field(repr=False)

    def source(self, stage: LayerStage) -> Index:
        """The channels that a stage's attention copies from: a state, or slots that are filled already."""
        if not stage.sources:
            return self.state[stage.table] if stage.places else np.arange(0)
        return np.concatenate([self.slots[stage.table][place] for place in sorted(set(stage.sources))])

    def fetches(self, stage: LayerStage, table: WindowTable) -> list[Fetch]:
        """What the heads of each distance copy, and where to."""
        slots, source, offsets = self.slots[stage.table], self.source(stage), table.offsets
        if not stage.sources:
            every, near = np.arange(len(source)), len(offsets) - len(table.far)
            return [Fetch(offsets[place], every, slots[place], place >= near) for place in stage.places]
        found: dict[tuple[int, bool], list[tuple[Index, Index]]] = {}
        for place, origin in zip(stage.places, stage.sources, strict=True):
            bits, far = np.searchsorted(source, slots[origin]), place >= len(offsets) - len(table.far)
            found.setdefault((offsets[place] - offsets[origin], far), []).append((bits, slots[place]))
        return [
            Fetch(step, np.concatenate([bits for bits, _ in pairs]), np.concatenate([slot for _, slot in pairs]), far)
            for (step, far), pairs in sorted(found.items())
        ]


def lay_out(
    recital: Recital,
    books: Books,
    stages: tuple[LayerStage, ...],
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
    blocks: bool = False,
    listening: int = 0,
    sense: int = 0,
    tied: bool = False,
    balanced: bool = False,
) -> ChannelLayout:
    """Numbers the channels; the hidden size is a multiple of `multiple`, or `hidden` if that is large enough.

    `extra` channels hold positions; `sense` is how many times ZEROS channels are zero; `parts` is how many numbers of
    the stored type make up a log-probability.
    """
    ruler = _Ruler(BLOCK if blocks else None)
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
    ballast = ruler.take(2 if anchor and not blocks else 0)
    heard, sensed = ruler.take(listening), ruler.take(ZEROS * sense)
    heavy = ruler.take(sense)
    size = -(-ruler.next // multiple) * multiple if hidden is None else hidden
    if size < ruler.next:
        raise ExportError(f"a hidden size of {size} is too small for this recital: {ruler.next} channels are needed")
    signs = np.where(np.arange(size) % 2 == 0, 1.0, -1.0)
    if blocks:
        ballast = np.arange(BLOCK - 1, size, BLOCK)
    return ChannelLayout(
        tuple(constant), wide, first, meter, flags, positions, tuple(state), tuple(slots), mark, order, mixed,
        ballast, heard, sensed, heavy, ruler.next, size, signs,
    )  # fmt: skip
