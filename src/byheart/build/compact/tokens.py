"""The front of a compact memory: from tokens to one integer id per context.

E_in makes an integer t of every token (for vectors a random exact projection). Blocks make codes phi(t) of it, so that
sums of phi distinguish multisets, which sums of t often would not (`codes`). Attention adds b times the sum over the
sequence (or the prefix) to every token: x = phi + b·sum. Nothing is trusted: all x of the data are computed and must
be distinct, else everything is sampled again, with more blocks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from byheart.build.compact.codes import SAFE_BITS, Draft, TokenLine, drafts, token_line
from byheart.build.fold.block import StreamBlock
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import BuildError
from byheart.exact import Number
from byheart.progress import Progress, Stage

DRAWS = 4  # per number of folds
MORE_DRAWS = 12  # where contexts are few: a fold less saves 4 parameters
BEND_DRAWS = 24  # bends are placed at random, and few of them must be placed well
SOME = 20_000  # contexts that are looked at first, or that are few
MANY = 200_000  # contexts from which only two are sampled
SURE_BITS = 10  # ids are at most this much shorter than 2·log2 M + 8
SHORT_DRAWS = 5  # per length, when ids are shortened
# Random ids are hardly ever closer than range / (count² · 2^this). Tuned by hand.
CLOSE_BITS = 8
GROUP = 3  # parameters of a group
CHEAP_BIT = 1.0  # parameters per bit of an id, below which short ids save nothing
# All bits of a 64-bit word.
WORD = (1 << 64) - 1
ODD = 0x9E3779B97F4A7C15  # a word that spreads
SUSPECTS = 1_000  # contexts with equal last words that are compared in full before all are


@dataclass(frozen=True)
class TokenHash:
    """E_in (t -> scale·t), blocks on one number, and the factor of the mean in attention."""

    line: TokenLine
    scale: int
    blocks: tuple[StreamBlock, ...]
    codes: Any  # phi of every point
    factor: int  # b: times the sum over the tokens that are attended
    mean_factor: Number  # b·n or b·lcm(1..n): times their mean
    start: int | None  # stream of a token before every sequence, where a mean must distinguish a from aa
    draws: int

    @cached_property
    def input_weights(self) -> tuple[tuple[Number, ...], Number]:
        """Weights and bias of E_in."""
        return tuple(self.scale * w for w in self.line.weights), self.scale * self.line.bias


def hash_tokens(
    dataset: Dataset, *, shallow: bool, thorough: bool, bit_price: float, seed: int, progress: Progress
) -> tuple[TokenHash, list[int]]:
    """A hash of few parameters that gives all contexts different ids, and those ids.

    A bend or fold costs 4 parameters, and every bit of an id costs the label memory `bit_price`: the first number of
    them that distinguishes the contexts is not always the best. Prefix means are fractions of small numbers: ids of
    short codes form clusters that traps cannot separate, so for them codes stay long. `thorough` folds all levels, so
    that inputs outside the data get distinct ids too, not only those of the data.
    """
    contexts = dataset.contexts
    line = token_line(dataset, random.Random(f"token line {seed}"))
    width = 2 * len(contexts).bit_length() + 6
    best: tuple[TokenHash, list[int]] | None = None
    tried = 0
    causal = dataset.encoder.task is Task.CAUSAL
    traps = bit_price < CHEAP_BIT and causal
    hopeless = not causal and line.bits <= SAFE_BITS // 2 and not _distinguished(dataset, line.values)

    def price(found: tuple[TokenHash, list[int]]) -> float:
        folds = sum(block.parameters for block in found[0].blocks)
        return folds + bit_price * max(found[1]).bit_length() + (GROUP * close_pairs(found[1]) if traps else 0)

    with progress.stage("hashing tokens") as stage:
        for draft in drafts(line, width, shallow=shallow, thorough=thorough, bends=not causal):
            if hopeless and draft.kind == "plain":
                continue
            if best is not None:
                room = price(best) - draft.parameters(line)
                if bit_price * (width - SURE_BITS) >= room:
                    break
                if bit_price * draft.least_bits(line) >= room:
                    continue
            for draw in range(_draws(draft, len(contexts))):
                tried += 1
                kind = "bends" if draft.kind == "bends" else "folds"
                rng = random.Random(f"token {kind} {seed} {draft.count} {draft.low} {draw}")
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


def _draws(draft: Draft, contexts: int) -> int:
    if contexts > MANY:
        return 2
    if contexts > SOME or draft.kind == "plain":
        return DRAWS
    return BEND_DRAWS if draft.kind == "bends" else MORE_DRAWS


def _distinguished(dataset: Dataset, values: Any) -> bool:
    """Whether a token's own number and the sum over its row distinguish all contexts: then some factor does."""
    phi = np.append(values, 0).astype(np.uint64)
    own = context_sums(dataset, phi, 0, None)
    keys = np.sort(own + context_sums(dataset, phi, 1, None) * np.uint64(ODD))
    return not (keys[1:] == keys[:-1]).any()


def _draw(
    dataset: Dataset, line: TokenLine, draft: Draft, rng: random.Random, factors: Sequence[int], tried: int
) -> tuple[TokenHash, list[int]] | None:
    """One draw of a draft; None when two contexts get equal ids."""
    codes = draft.draw(line, rng)
    factor = rng.choice(factors)
    start = rng.getrandbits(draft.low + 1) if needs_start(dataset) else None
    ids = context_ids(dataset, codes.values, factor, start)
    if ids is None:
        return None
    times = mean_count(dataset) * factor
    return TokenHash(line, codes.scale, codes.blocks, codes.values, factor, times, start, tried), ids


def _shorter(
    dataset: Dataset, line: TokenLine, draft: Draft, seed: int, stage: Stage, found: tuple[TokenHash, list[int]]
) -> tuple[TokenHash, list[int]]:
    """The same number of bends or folds with codes as short as still distinguish the contexts.

    Ids of b bits collide with probability about M^2/2^(b+1), so a few draws find 2·log2 M - 2 bits; every bit saves
    the walk two parameters, and the search is three times as fast where a group fits a word. Attention multiplies
    by 2 or 3 (with 1, exchanging two tokens could be no difference); few folds leave so few different sums that only
    longer factors distinguish contexts, which costs their length, so they come second.
    """
    if draft.kind == "plain":
        return found
    least = max(4, 2 * len(dataset.contexts).bit_length() - 5 - mean_count(dataset).bit_length() // 2)
    if draft.kind == "folds":
        least = max(least, line.bits + 2 - draft.count)
    if draft.kind == "bends":
        least = max(2, (least - line.bits) // draft.count)
    extras = range(draft.count if draft.kind == "bends" else 1)
    lengths = [(low, extra) for low in range(least, draft.low + 1) for extra in extras]
    for factors in ((2, 3), range(dataset.n + 1, 8 * dataset.n + 1)):
        for low, extra in lengths:
            for draw in range(SHORT_DRAWS):
                rng = random.Random(f"shorter {seed} {draft.count} {low} {draw}" + f" {extra}" * (extra > 0))
                shorter = _draw(dataset, line, replace(draft, low=low, extra=extra), rng, factors, found[0].draws)
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
    """A prefix mean without positions cannot distinguish the prefix a from aa."""
    return dataset.encoder.task is Task.CAUSAL and not dataset.encoder.positions and dataset.n > 1


def mean_count(dataset: Dataset) -> int:
    """The number that makes sums of means: n, or a common multiple of all prefix lengths."""
    if dataset.encoder.task is Task.CAUSAL:
        return math.lcm(*range(1, dataset.n + 1 + needs_start(dataset)))
    return dataset.n


def context_ids(dataset: Dataset, codes: Any, factor: int, start: int | None) -> list[int] | None:
    """phi + factor·(sum, or lcm·prefix mean) for every context; None when two are equal.

    Words that wrap around come first: equal numbers stay equal, so most draws are refused without long numbers. Long
    numbers that differ may be equal as words (powers of two), so some of those are compared in full.
    """
    biggest = (int(codes.max()) + (start or 0)) * (mean_count(dataset) * factor + 1)
    short = biggest.bit_length() <= SAFE_BITS
    phi = np.append(codes, 0)
    words = (phi if phi.dtype != object else np.bitwise_and(phi, WORD)).astype(np.uint64)
    for upto in (SOME, None) if len(dataset.contexts) > 2 * SOME else (None,):  # most of them by a part of the contexts
        quick = context_sums(dataset, words, factor, start, slice(upto))
        ordered = np.sort(quick)
        equal = ordered[1:] == ordered[:-1]
        if equal.any():
            if short:
                return None
            suspects = np.flatnonzero(np.isin(quick, ordered[1:][equal][:SUSPECTS]))[:SUSPECTS]
            some = context_sums(dataset, phi.astype(object), factor, start, suspects).tolist()
            if len(set(some)) < len(some):
                return None
    found: list[int]
    if short:
        found = quick.tolist()
        return found
    found = context_sums(dataset, phi.astype(object), factor, start).tolist()
    return found if len(set(found)) == len(found) else None


def context_sums(dataset: Dataset, phi: Any, factor: int, start: int | None, which: Any = slice(None)) -> Any:
    """The ids in the arithmetic of `phi`, whose last entry represents absent tokens; of the contexts `which`."""
    contexts = dataset.contexts
    kind = phi.dtype.type
    row, point, position = contexts.row[which], contexts.point[which], contexts.position[which]
    rows, row = _used(row)  # each row is added up once, however many contexts it has
    index = dataset.inputs.index[rows]
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


def _used(row: Any) -> tuple[Any, Any]:
    """(rows that contexts are of, for every context its index among them); all rows up to the last where most are."""
    last = int(row.max()) + 1
    if last <= 2 * len(row):
        return slice(last), row
    rows, places = np.unique(row, return_inverse=True)
    return rows, places.reshape(-1)
