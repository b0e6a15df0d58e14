"""A number for every token, zero for most, whose sums separate multisets: the sequence ids of KS25.

Multisets of tokens are a sparse table of counts (Appendix A). The builder chooses a few tokens whose counts separate
all multisets and gives them positive integers such that different multisets have different sums.

The paper rounds a random direction and shifts it to make it positive. The shift adds |m|·shift to the sum of m, and
restrictions of different cardinality can then collide; docs/errata.md has the counterexample and the proof of the
repair. Repair: choose the weights token by token. At most one value of the next weight makes the sums of a pair of
multisets equal, so one of N(N-1)/2 + 1 values separates all pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from byheart.build.shared.projection import Constants, KeyLine, project
from byheart.errors import BuildError
from byheart.exact.number import Values
from byheart.paper import Ref, implements

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Multisets:
    """`size` multisets; token `token[i]` is `count[i]` times in multiset `row[i]`; sorted by row, then token."""

    size: int
    row: Index
    token: Index
    count: Index

    @staticmethod
    def of(index: Index) -> Multisets:
        """From one row of token numbers per multiset; negative numbers are absent tokens.

        >>> m = Multisets.of(np.array([[4, 2, 4], [2, -1, -1]]))
        >>> m.row.tolist(), m.token.tolist(), m.count.tolist()
        ([0, 0, 1], [2, 4, 2], [1, 2, 1])
        """
        present = index >= 0
        rows = np.broadcast_to(np.arange(len(index))[:, None], index.shape)[present]
        bound = int(index.max(initial=0)) + 1
        keys, counts = np.unique(rows * bound + index[present], return_counts=True)
        return Multisets(len(index), keys // bound, keys % bound, counts.astype(np.int64))

    @property
    def largest(self) -> int:
        """The largest cardinality."""
        return int(np.bincount(self.row, weights=self.count, minlength=1).max())

    def of_row(self, row: int) -> tuple[Index, Index]:
        """Tokens and counts of one multiset."""
        part = slice(self._row_starts[row], self._row_starts[row + 1])
        return self.token[part], self.count[part]

    def of_token(self, token: int) -> tuple[Index, Index]:
        """The multisets that have a token, and how often."""
        part = self._by_token[self._token_starts[token] : self._token_starts[token + 1]]
        return self.row[part], self.count[part]

    @cached_property
    def frequency(self) -> Index:
        """In how many multisets each token is."""
        return np.bincount(self.token, minlength=1).astype(np.int64)

    @cached_property
    def _row_starts(self) -> Index:
        return np.searchsorted(self.row, np.arange(self.size + 1))

    @cached_property
    def _by_token(self) -> Index:
        return np.argsort(self.token, kind="stable")

    @cached_property
    def _token_starts(self) -> Index:
        return np.concatenate([[0], np.cumsum(self.frequency)])


@implements(
    Ref("KS25", "Lemma B.1"),
    statement="N distinct multisets are distinguished by the counts of at most N - 1 of their elements "
    "(in the paper: N).",
    test="tests/build/ks25/test_sequence_ids.py",
)
def distinguishing_tokens(multisets: Multisets) -> tuple[int, ...]:
    """Tokens A, at most N - 1 (the paper: N), such that the counts of A are different in every two multisets.

    Classes of multisets that agree on A so far are refined: two members of a class differ in some token, which joins A
    and splits every class by its count. Each new token splits at least one class, so there are at most N - 1. Of the
    tokens that would do, the one that is in the most multisets is taken, because it splits the most. A token is
    looked at only where it occurs, so the total time is O(N·n).

    >>> import numpy as np
    >>> distinguishing_tokens(Multisets.of(np.array([[0, 1], [0, 2], [3, 3], [3, 1]])))
    (1, 0)
    """
    members: dict[int, dict[int, None]] = {0: dict.fromkeys(range(multisets.size))}  # ordered sets
    label = np.zeros(multisets.size, dtype=np.int64)
    waiting = [0]
    chosen: list[int] = []
    while waiting:
        current = members[waiting[-1]]
        if len(current) < 2:
            waiting.pop()
            continue
        token = _difference(multisets, *islice(current, 2))
        chosen.append(token)
        waiting += _split(multisets, token, label, members)
    return tuple(chosen)


def _difference(multisets: Multisets, one: int, other: int) -> int:
    """The most frequent token that two multisets have in different numbers."""
    counts: dict[int, int] = defaultdict(int)
    for row, sign in ((one, 1), (other, -1)):
        for token, count in zip(*(part.tolist() for part in multisets.of_row(row)), strict=True):
            counts[token] += sign * count
    differing = [token for token, count in counts.items() if count]
    if not differing:
        raise BuildError(f"multisets {one} and {other} are equal; give each only once")
    return max(differing, key=lambda token: (multisets.frequency[token], -token))


def _split(
    multisets: Multisets,
    token: int,
    label: np.ndarray[tuple[int], np.dtype[np.int64]],
    members: dict[int, dict[int, None]],
) -> list[int]:
    """Split every class by the count of `token`; returns the new classes."""
    parts: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, count in zip(*(part.tolist() for part in multisets.of_token(token)), strict=True):
        parts[int(label[row]), count].append(row)
    made = []
    for (old, _), rows in parts.items():
        if len(rows) == len(members[old]):
            continue  # all that is left of the class: it keeps its number
        new = len(members)
        members[new] = dict.fromkeys(rows)
        label[rows] = new
        for row in rows:
            del members[old][row]
        made.append(new)
    return made


# Random weights per limit. Tuned by hand: a larger limit costs bits, more draws cost time.
DRAWS = 12
PAIRS = 1 << 21  # forbidden values that are listed at once
LARGEST_TABLE = 1 << 26  # entries of a table of taken sums: 64 MB


def largest_weight(count: int) -> int:
    """N(N-1)/2 + 1: weights up to this are always enough (the paper: 4·N^3·sqrt(pi)).

    >>> largest_weight(1), largest_weight(300)
    (1, 44851)
    """
    return count * (count - 1) // 2 + 1


@implements(
    Ref("KS25", "Lemma B.2"),
    statement="Integers f(x) >= 1 for the elements of N distinct multisets exist whose sums are distinct; "
    "f(x) <= N(N-1)/2 + 1 by a repaired proof (docs/errata.md).",
    test="tests/build/ks25/test_separation_gap.py",
    partly="integers by search instead of Lemma G.1 and rounding; sums are 1 apart instead of √|S|",
)
def token_weights(
    multisets: Multisets, tokens: Sequence[int], constants: Constants, seed: int = 0
) -> tuple[tuple[int, ...], Index]:
    """A weight in [1, N(N-1)/2 + 1] for each of the tokens, and the sum of every multiset; all sums differ.

    `tokens` must distinguish the multisets. PAPER samples weights from the whole range and falls back on the greedy
    choice; MEASURED looks for the smallest sums, because they become keys.

    >>> m = Multisets.of(np.array([[0, -1], [1, 1], [1, 2]]))
    >>> weights, sums = token_weights(m, (0, 1), Constants.MEASURED)
    >>> weights, sums.tolist()
    ((1, 2), [1, 4, 2])
    """
    rng = np.random.default_rng(seed)
    top = largest_weight(multisets.size)
    if multisets.largest * top >= 1 << 62:
        raise BuildError(f"{multisets.size} multisets of up to {multisets.largest} tokens are too many for int64 sums")
    place = np.full(int(multisets.token.max(initial=0)) + 1, -1, dtype=np.int64)
    place[list(tokens)] = np.arange(len(tokens))
    kept = place[multisets.token] >= 0
    sparse = multisets.row[kept], place[multisets.token[kept]], multisets.count[kept]
    limits = [top] if constants is Constants.PAPER else _ladder(top)
    drawn = next(_drawn(multisets.size, len(tokens), sparse, [x for x in limits for _ in range(DRAWS)], rng), None)
    found = [] if drawn is None else [drawn]
    if drawn is None or constants is Constants.MEASURED:
        found.insert(0, _greedy(multisets, tokens, top, rng))
    best = min(found, key=lambda weights: int(_sums(multisets.size, sparse, weights).max()))
    return tuple(best.tolist()), _sums(multisets.size, sparse, best)


Sparse = tuple[Index, Index, Index]


def _sums(size: int, sparse: Sparse, weights: Index) -> Index:
    row, place, count = sparse
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, row, count * weights[place])
    return sums


def _distinct(values: Index) -> bool:
    """Whether no value occurs twice; sorting is several times as fast as the hash table of `np.unique`."""
    ordered = np.sort(values)
    return not bool((ordered[1:] == ordered[:-1]).any())


class _Taken:
    """Sums that are taken, ascending; as a table of bits where they are small enough for one."""

    def __init__(self, values: Index) -> None:
        self._values = values
        top = int(values.max(initial=-1))
        self._table = np.zeros(top + 1, dtype=bool) if top < LARGEST_TABLE else None
        if self._table is not None:
            self._table[values] = True

    def any(self, wanted: Index) -> bool:
        """Whether one of the wanted values is taken."""
        if self._table is None:
            at = np.minimum(np.searchsorted(self._values, wanted), len(self._values) - 1)
            return bool((self._values[at] == wanted).any())
        return bool(self._table[wanted[wanted < len(self._table)]].any())


def _drawn(size: int, tokens: int, sparse: Sparse, limits: Sequence[int], rng: np.random.Generator) -> Iterator[Index]:
    """Random weights up to each limit in turn that keep all sums apart."""
    for limit in limits:
        weights = rng.integers(1, limit, size=tokens, endpoint=True)
        if _distinct(_sums(size, sparse, weights)):
            yield weights


def _ladder(top: int) -> list[int]:
    limits, limit = [], 4
    while limit < top:
        limits.append(limit)
        limit += max(1, limit // 2)
    return [*limits, top]


def _greedy(multisets: Multisets, tokens: Sequence[int], top: int, rng: np.random.Generator) -> Index:
    """Token after token, the smallest weight that keeps apart whatever the tokens so far can keep apart."""
    sums = np.zeros(multisets.size, dtype=np.int64)
    weights = np.zeros(len(tokens), dtype=np.int64)
    for place, token in enumerate(tokens):
        rows, counts = multisets.of_token(token)
        weights[place] = _smallest_weight(sums, rows, counts, top, rng)
        sums[rows] += counts * weights[place]
    if not _distinct(sums):
        raise BuildError("the tokens do not distinguish the multisets; use distinguishing_tokens")
    return weights


def _smallest_weight(sums: Index, rows: Index, counts: Index, top: int, rng: np.random.Generator) -> int:
    """v such that sum + v·count is different wherever (sum, count) is."""
    without = np.ones(len(sums), dtype=bool)
    without[rows] = False
    having = np.array(sorted(set(zip(sums[rows].tolist(), counts.tolist(), strict=True))), dtype=np.int64)
    others = np.unique(sums[without])
    kinds = np.concatenate([having, np.stack([others, np.zeros_like(others)], axis=1)])  # (sum, count), to keep apart
    if len(having) * len(kinds) <= PAIRS:
        return _smallest_allowed(having, kinds, top)
    taken = _Taken(others)
    for limit in _ladder(top):
        for v in [*range(1, 9)] if limit == 4 else rng.integers(1, limit, size=DRAWS, endpoint=True).tolist():
            shifted = having[:, 0] + v * having[:, 1]
            if not taken.any(shifted) and _distinct(shifted):
                return int(v)
    raise BuildError(f"no weight up to {top} was found; try another seed")


def _smallest_allowed(having: Index, kinds: Index, top: int) -> int:
    """List the values that each pair forbids, and return the smallest allowed one."""
    rise = having[:, 1][:, None] - kinds[:, 1][None, :]
    ahead = kinds[:, 0][None, :] - having[:, 0][:, None]
    rising = rise > 0
    values, rests = np.divmod(ahead[rising], rise[rising])
    bad = values[(rests == 0) & (values >= 1) & (values <= top)]
    # So many values cannot forbid all of 1, …, len(bad) + 1: larger ones do not matter.
    forbidden = np.zeros(len(bad) + 2, dtype=bool)
    forbidden[bad[bad <= len(bad)]] = True
    return int(np.argmin(forbidden[1:])) + 1


@dataclass(frozen=True, eq=False)
class TokenCode:
    """The position of every point on the line, its label (0 for most), and the sum of every multiset's labels."""

    line: KeyLine
    labels: tuple[int, ...]
    sums: Index


def number_tokens(count: int, index: Index, constants: Constants, seed: int = 0) -> tuple[tuple[int, ...], Index]:
    """A label for each of `count` tokens, 0 for most, and the sum of every multiset's labels; the sums all differ.

    >>> import numpy as np
    >>> labels, sums = number_tokens(3, np.array([[0, 1], [0, 2], [1, 2]]), Constants.MEASURED)
    >>> labels, sums.tolist()
    ((2, 1, 0), [3, 2, 1])
    """
    multisets = Multisets.of(index)
    tokens = distinguishing_tokens(multisets)
    weights, sums = token_weights(multisets, tokens, constants, seed)
    labels = [0] * count
    for token, weight in zip(tokens, weights, strict=True):
        labels[token] = weight
    return tuple(labels), sums


@implements(
    Ref("KS25", "Lemma B.3"),
    statement="A network of width 12 that labels at most N - 1 tokens and is 0 on the others has different sums on "
    "N different multisets.",
    test="tests/build/ks25/test_sequence_ids.py",
)
def separate_multisets(
    points: Values, separation: Fraction, index: Index, constants: Constants, seed: int = 0
) -> TokenCode:
    """The token labels f of Lemma B.2 on the tokens A of Lemma B.1, and the line on which Lemma C.1 looks them up.

    Notation: index[i] are the points of multiset i (all different), phi = labels. The sums count every token as often
    as it occurs (the multiplicity that eq. (47) lacks). The network itself is the memorizer of `line` and `labels`.

    >>> import numpy as np
    >>> points = Values.of([[0], [1], [2]])
    >>> code = separate_multisets(points, Fraction(1), np.array([[0, 1], [0, 2], [1, 2]]), Constants.MEASURED)
    >>> code.line.floors, code.labels
    ((2, 4, 6), (2, 1, 0))
    """
    labels, sums = number_tokens(points.count, index, constants, seed)
    return TokenCode(project(points, separation, constants, seed), labels, sums)
