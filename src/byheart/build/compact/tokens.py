"""The front of a compact memory: from tokens to one integer id per context.

E_in makes an integer t of every token (for vectors a random exact projection). Folds with random offsets hash t to
phi(t), so that sums of phi tell multisets apart, which sums of t would not. Attention adds b times the sum over the
sequence (or the prefix) to every token: x = phi + b·sum. Nothing is trusted: all x of the data are computed and must
be distinct, else everything is drawn again, with more folds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from byheart.build.fold.block import StreamBlock, interpolate
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import BuildError
from byheart.exact import Number
from byheart.progress import Progress, Stage

DRAWS = 4  # per number of folds
MORE_DRAWS = 12  # where contexts are few: a fold less saves 4 parameters
SOME = 20_000  # contexts that are looked at first, or that are few
MANY = 200_000  # contexts from which only two are drawn
SURE_BITS = 10  # ids are at most this much shorter than 2·log2 M + 8
SHORT_DRAWS = 5  # per length, when ids are made short
SPREADS = (*range(2, 34, 2), 42, 66, 130)  # random bits multiplied to the token
THOROUGH = 10
GUARD = 4
CLOSE_BITS = 8
GROUP = 3  # parameters of a group
CHEAP_BIT = 1.0  # parameters per bit of an id, below which short ids save nothing
SAFE_BITS = 62
WORD = (1 << 64) - 1


@dataclass(frozen=True)
class TokenLine:
    """Tokens as distinct integers t = weights · vector + bias >= 0 below 2^bits."""

    weights: tuple[int, ...]
    bias: int
    values: tuple[int, ...]  # one per point of the data

    @property
    def bits(self) -> int:
        return max(1, max(self.values).bit_length())


@dataclass(frozen=True)
class TokenHash:
    """E_in (t -> scale·t + shift), blocks on one number, and what attention multiplies the mean by."""

    line: TokenLine
    scale: int
    shift: int
    blocks: tuple[StreamBlock, ...]
    factor: int  # b: times the sum over the tokens that are attended
    mean_factor: Number  # b·n or b·lcm(1..n): times their mean
    start: int | None  # stream of a token in front of every sequence, where a mean must tell a from aa
    draws: int

    @cached_property
    def input_weights(self) -> tuple[tuple[Number, ...], Number]:
        """Weights and bias of E_in."""
        return tuple(self.scale * w for w in self.line.weights), self.scale * self.line.bias + self.shift


def token_line(dataset: Dataset, rng: random.Random) -> TokenLine:
    """Symbols (with positions) are numbered; vectors are projected with random integer weights until all differ."""
    points = dataset.inputs.points
    columns = points.numerators
    if dataset.encoder.symbols is not None:
        weights = (1, len(dataset.encoder.symbols) + 1)[: points.width]
        return TokenLine(weights, 0, tuple((columns @ np.array(weights, dtype=object)).tolist()))
    for bits in range(2, 400):
        drawn = [rng.getrandbits(bits) - (1 << (bits - 1)) for _ in range(points.width)]
        values = (columns @ np.array(drawn, dtype=object)).tolist()
        if len(set(values)) == len(values):
            least = min(values)
            weights = tuple(a * points.denominator for a in drawn)
            return TokenLine(weights, -least, tuple(v - least for v in values))
    raise BuildError(f"{points.count} vectors were not separated by 400 projections; try another seed")


def hash_tokens(
    dataset: Dataset, *, shallow: bool, thorough: bool, bit_price: float, seed: int, progress: Progress
) -> tuple[TokenHash, list[int]]:
    """A hash of few parameters that gives all contexts different ids, and those ids.

    A fold costs 4 parameters, and every bit of an id costs the label memory `bit_price`: the first number of folds
    that tells the contexts apart is not always the best. Prefix means are fractions of small numbers: ids of short
    codes stand in clusters, which traps cannot tell apart, so for them codes stay long. `thorough` folds all levels, so
    that inputs off the data get ids of their own too, not only those of the data.
    """
    contexts = dataset.contexts
    line = token_line(dataset, random.Random(f"token line {seed}"))
    width = 2 * len(contexts).bit_length() + 6
    best: tuple[TokenHash, list[int]] | None = None
    tried = 0

    traps = bit_price < CHEAP_BIT and dataset.encoder.task is Task.CAUSAL

    def price(found: tuple[TokenHash, list[int]]) -> float:
        folds = sum(block.parameters for block in found[0].blocks)
        return folds + bit_price * max(found[1]).bit_length() + (GROUP * close_pairs(found[1]) if traps else 0)

    with progress.stage("hashing tokens") as stage:
        for draft in _drafts(line, width, shallow, thorough):
            if best is not None and draft.parameters(line) + bit_price * (width - SURE_BITS) >= price(best):
                break
            few = len(contexts) <= SOME and draft.folds > 0
            for draw in range(MORE_DRAWS if few else DRAWS if len(contexts) <= MANY else 2):
                tried += 1
                rng = random.Random(f"token folds {seed} {draft.folds} {draft.low} {draw}")
                low = draft.factor or dataset.n + 1
                found = _draw(
                    dataset, line, draft, rng, range(low, 2 * low if draft.factor else 8 * dataset.n + 1), tried
                )
                stage.advance()
                if found is not None:
                    found = found if thorough or traps else _shorter(dataset, line, draft, seed, stage, found)
                    best = min(best or found, found, key=price)
                    break
    if best is None:
        raise BuildError(
            f"{len(contexts)} contexts did not get different ids in {tried} draws of the token hash; try another seed"
        )
    return best


@dataclass(frozen=True)
class _Draft:
    """How many folds, and how many bits stay below them; or random values for all tokens, in one block."""

    folds: int
    low: int
    table: bool = False
    factor: int = 0  # where attention's factor is drawn from: from this to twice this

    def parameters(self, line: TokenLine) -> int:
        return 3 * len(line.values) + 1 if self.table else 4 * self.folds

    def blocks(self, line: TokenLine, rng: random.Random) -> tuple[int, tuple[StreamBlock, ...]]:
        """(scale, blocks)."""
        if self.table:
            order = sorted(line.values)
            return 1, interpolate(order, [rng.getrandbits(self.low) for _ in order])
        if not self.folds:
            return 1, ()
        top = self.low + self.folds
        offset = max(1, self.low - GUARD)
        places = [(1 << p) + rng.getrandbits(offset) for p in range(top - 1, self.low - 1, -1)]
        length = top - line.bits
        factor = rng.getrandbits(length) | 1 | (1 << (length - 1))  # all low bits random, not only the offsets'
        return factor, tuple(StreamBlock(((1, -place, -2),)) for place in places)


def _draw(
    dataset: Dataset, line: TokenLine, draft: _Draft, rng: random.Random, factors: Sequence[int], tried: int
) -> tuple[TokenHash, list[int]] | None:
    """One draw of a draft; None when two contexts get equal ids."""
    scale, blocks = draft.blocks(line, rng)
    factor = rng.choice(factors)
    codes = _codes(line, scale, 0, blocks)
    lowest = min(codes)
    if lowest < 0:  # the last fold's own bias lifts them
        blocks = (*blocks[:-1], replace(blocks[-1], shift=-lowest))
        codes = [code - lowest for code in codes]
    start = rng.getrandbits(draft.low + 1) if needs_start(dataset) else None
    ids = context_ids(dataset, codes, factor, start)
    if ids is None:
        return None
    return TokenHash(line, scale, 0, blocks, factor, mean_count(dataset) * factor, start, tried), ids


def _shorter(
    dataset: Dataset, line: TokenLine, draft: _Draft, seed: int, stage: Stage, found: tuple[TokenHash, list[int]]
) -> tuple[TokenHash, list[int]]:
    """The same number of folds with as few bits below them as still tell the contexts apart.

    Ids of b bits collide with probability about M^2/2^(b+1), so a few draws find 2·log2 M - 2 bits; every bit saves
    the walk two parameters, and the search is three times as fast where a group fits a word. Attention multiplies
    by 2 or 3 (with 1, exchanging two tokens could be no difference); few folds leave so few different sums that only
    longer factors tell contexts apart, which costs their length, so they come second.
    """
    if not draft.folds and not draft.table:
        return found
    least = max(4, 2 * len(dataset.contexts).bit_length() - 5 - mean_count(dataset).bit_length() // 2)
    if not draft.table:
        least = max(least, line.bits + 2 - draft.folds)
    for factors in ((2, 3), range(dataset.n + 1, 8 * dataset.n + 1)):
        for low in range(least, draft.low + 1):
            for draw in range(SHORT_DRAWS):
                rng = random.Random(f"shorter {seed} {draft.folds} {low} {draw}")
                shorter = _draw(dataset, line, replace(draft, low=low), rng, factors, found[0].draws)
                stage.advance()
                if shorter is not None:
                    return shorter if max(shorter[1]) < max(found[1]) else found
    return found


def close_pairs(ids: Sequence[int]) -> int:
    """Neighbours among the ids that are closer than random ids ever are: between them a group of traps must end.

    >>> close_pairs([0, 1 << 60, 1, 1 << 50]), close_pairs(range(100))
    (1, 0)
    """
    ordered = sorted(ids)
    least = (ordered[-1] - ordered[0]) >> (2 * len(ordered).bit_length() + CLOSE_BITS)
    return sum(after - before < least for before, after in pairwise(ordered))


def needs_start(dataset: Dataset) -> bool:
    """A prefix mean without positions cannot tell the prefix a from aa."""
    return dataset.encoder.task is Task.CAUSAL and not dataset.encoder.positions and dataset.n > 1


def mean_count(dataset: Dataset) -> int:
    """The number that makes sums of means: n, or a common multiple of all prefix lengths."""
    if dataset.encoder.task is Task.CAUSAL:
        return math.lcm(*range(1, dataset.n + 1 + needs_start(dataset)))
    return dataset.n


def _drafts(line: TokenLine, width: int, shallow: bool, thorough: bool) -> Iterator[_Draft]:
    """Cheapest first: no hash at all, then two more folds at a time, or random values."""
    if not thorough:  # a longer factor costs nothing but length
        for bits in range(1, min(line.bits, 24) + 4):
            yield _Draft(0, line.bits, factor=1 << bits)
    table = 3 * len(line.values) + 1
    for folds, spread in _sizes(line.bits, thorough):
        if shallow or (table <= 4 * folds and not thorough):
            yield _Draft(folds, width - 1, table=True)
        else:
            yield _Draft(folds, max(width + GUARD, 8 + line.bits + spread - folds))


def _sizes(bits: int, thorough: bool) -> Iterator[tuple[int, int]]:
    """(number of folds, random bits multiplied in) in ascending order of folds."""
    if not thorough:
        for folds in range(1, bits + SPREADS[0]):
            yield folds, SPREADS[0]
    for spread in SPREADS:
        if spread >= THOROUGH or not thorough:
            yield bits + spread, spread


def _codes(line: TokenLine, scale: int, shift: int, blocks: tuple[StreamBlock, ...]) -> list[int]:
    """phi of every point, before a lift."""
    places = [-int(block.units[0][1]) for block in blocks if len(block.units) == 1]  # type: ignore[arg-type]
    if len(places) == len(blocks):
        largest = scale * max(line.values) + abs(shift) + 2 * max(places, default=0)
        h = np.array(line.values, np.int64 if largest.bit_length() <= SAFE_BITS else object) * scale + shift
        for place in places:
            h = np.where(h > place, 2 * place - h, h)
        codes: list[int] = h.tolist()
        return codes
    (block,) = blocks
    rank = {t: i for i, t in enumerate(sorted(line.values))}
    values = _interpolated(block, sorted(line.values))
    return [values[rank[t]] for t in line.values]


def token_codes(token: TokenHash) -> list[int]:
    """phi of every point, as the blocks compute it."""
    codes = _codes(token.line, token.scale, token.shift, token.blocks)
    lift = int(token.blocks[-1].shift) if token.blocks and len(token.blocks[-1].units) == 1 else 0  # type: ignore[arg-type]
    return [code + lift for code in codes]


def _interpolated(block: StreamBlock, ordered: list[int]) -> list[int]:
    """A wide block on ascending inputs, its units taken in as their kinks are passed."""
    slope: Number = 1
    constant, k = block.shift, 0
    found = []
    kinks = list(block.units)
    for h in ordered:
        while k < len(kinks) and kinks[k][0] * h + kinks[k][1] > 0:
            w, b, out = kinks[k]
            slope, constant, k = slope + out * w, constant + out * b, k + 1
        found.append(int(slope * h + constant))  # type: ignore[arg-type]
    return found


def context_ids(dataset: Dataset, codes: list[int], factor: int, start: int | None) -> list[int] | None:
    """phi + factor·(sum, or lcm·prefix mean) for every context; None when two are equal."""
    biggest = (max(codes) + (start or 0)) * (mean_count(dataset) * factor + 1)
    # words that wrap around: equal numbers stay equal, so most draws are refused without long numbers
    if biggest.bit_length() <= SAFE_BITS:
        words = np.array([*codes, 0], dtype=np.int64).astype(np.uint64)
    else:
        words = np.array([*(code & WORD for code in codes), 0], dtype=np.uint64)
    for upto in (SOME, None) if len(dataset.contexts) > 2 * SOME else (None,):  # most of them by a part of the contexts
        quick = context_sums(dataset, words, factor, start, upto)
        ordered = np.sort(quick)
        if (ordered[1:] == ordered[:-1]).any():
            return None
    if biggest.bit_length() <= SAFE_BITS:
        ids: list[int] = quick.tolist()
        return ids
    found: list[int] = context_sums(dataset, np.array([*codes, 0], dtype=object), factor, start).tolist()
    return found if len(set(found)) == len(found) else None


def context_sums(dataset: Dataset, phi: Any, factor: int, start: int | None, upto: int | None = None) -> Any:
    """The ids in the arithmetic of `phi`, whose last entry stands for absent tokens; of the first `upto` contexts."""
    contexts = dataset.contexts
    kind = phi.dtype.type
    row, point, position = contexts.row[:upto], contexts.point[:upto], contexts.position[:upto]
    index = dataset.inputs.index[: int(row.max()) + 1]  # each row is added up once, however many contexts it has
    if dataset.encoder.task is Task.SET:
        return _row_sums(phi, index)[row]
    if dataset.encoder.task is not Task.CAUSAL:
        return phi[point] + _row_sums(phi, index)[row] * _number(factor, kind)
    sums = np.add.accumulate(phi[index], axis=1)[row, position]
    counts = position + 1 + (start is not None)
    times = mean_count(dataset) * factor
    shares = np.array([0, *(_number(times // k, kind) for k in range(1, int(counts.max()) + 1))], dtype=phi.dtype)
    return phi[point] + (sums + _number(start or 0, kind)) * shares[counts]


def _row_sums(phi: Any, index: Any) -> Any:
    """Sum of phi over each row, a column at a time: no table of all numbers at once."""
    total = phi[index[:, 0]]
    for column in range(1, index.shape[1]):
        total = total + phi[index[:, column]]
    return total


def _number(value: int, kind: Any) -> Any:
    return np.uint64(value & WORD) if kind is np.uint64 else value
