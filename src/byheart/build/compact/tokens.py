"""The front of a compact memory: from tokens to one integer id per context.

E_in makes an integer t of every token (for vectors a random exact projection). Folds with random offsets hash t to
phi(t), so that sums of phi tell multisets apart, which sums of t would not. Attention adds b times the sum over the
sequence (or the prefix) to every token: x = phi + b·sum. Nothing is trusted: all x of the data are computed and must
be distinct, else everything is drawn again, with more folds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from byheart.build.fold.block import Block
from byheart.build.fold.interpolation import interpolate
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import BuildError
from byheart.exact import Number
from byheart.progress import Progress

DRAWS = 2  # per number of folds
SPREADS = (*range(2, 34, 2), 42, 66, 130)  # random bits multiplied to the token
THOROUGH = 10
GUARD = 4
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
    blocks: tuple[Block, ...]
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
    dataset: Dataset, *, shallow: bool, thorough: bool, seed: int, progress: Progress
) -> tuple[TokenHash, list[int]]:
    """The first hash, in order of size, that gives all contexts different ids, and those ids.

    `thorough` folds all levels, so that inputs off the data get ids of their own too, not only those of the data.
    """
    contexts = dataset.contexts
    rng = random.Random(f"token line {seed}")
    line = token_line(dataset, rng)
    width = 2 * len(contexts).bit_length() + 6
    tried = 0
    with progress.stage("hashing tokens") as stage:
        for scale, shift, blocks in _candidates(line, width, shallow, thorough, seed):
            tried += 1
            rng = random.Random(f"factor {seed} {tried}")
            factor = rng.randrange(dataset.n + 1, 8 * dataset.n + 1)
            codes = _codes(line, scale, shift, blocks)
            if min(codes) < 0:  # the last fold's own bias lifts them
                blocks = (*blocks[:-1], replace(blocks[-1], shift=-min(codes)))
                lowest = min(codes)
                codes = [code - lowest for code in codes]
            start = rng.getrandbits(width) if needs_start(dataset) else None
            ids = context_ids(dataset, codes, factor, start)
            stage.advance()
            if ids is not None:
                times = mean_count(dataset) * factor
                return TokenHash(line, scale, shift, blocks, factor, times, start, tried), ids
    raise BuildError(
        f"{len(contexts)} contexts did not get different ids in {tried} draws of the token hash; try another seed"
    )


def needs_start(dataset: Dataset) -> bool:
    """A prefix mean without positions cannot tell the prefix a from aa."""
    return dataset.encoder.task is Task.CAUSAL and not dataset.encoder.positions and dataset.n > 1


def mean_count(dataset: Dataset) -> int:
    """The number that makes sums of means: n, or a common multiple of all prefix lengths."""
    if dataset.encoder.task is Task.CAUSAL:
        return math.lcm(*range(1, dataset.n + 1 + needs_start(dataset)))
    return dataset.n


def _candidates(
    line: TokenLine, width: int, shallow: bool, thorough: bool, seed: int
) -> Iterator[tuple[int, int, tuple[Block, ...]]]:
    """(scale, shift, blocks), cheapest first: no hash at all, then two more folds at a time, or random values."""
    if not thorough:
        yield 1, 0, ()
    points = len(line.values)
    table = 3 * points + 1
    for folds, spread in _sizes(line.bits, thorough):
        for draw in range(DRAWS):
            rng = random.Random(f"token folds {seed} {folds} {spread} {draw}")
            if shallow or (table <= 4 * folds and not thorough):
                order = sorted(line.values)
                yield 1, 0, interpolate(order, [rng.getrandbits(width - 1) for _ in order])
                continue
            bits = line.bits + spread
            low = max(width + GUARD, 8 + bits - folds)  # bits that stay below the folds
            top = low + folds
            places = [(1 << p) + rng.getrandbits(low - GUARD) for p in range(top - 1, low - 1, -1)]
            length = top - line.bits
            factor = rng.getrandbits(length) | 1 | (1 << (length - 1))  # all low bits random, not only the offsets'
            yield factor, 0, tuple(Block(((1, -place, -2),)) for place in places)


def _sizes(bits: int, thorough: bool) -> Iterator[tuple[int, int]]:
    """(number of folds, random bits multiplied in) in ascending order of folds."""
    if not thorough:
        for folds in range(2, bits + SPREADS[0], 2):
            yield folds, SPREADS[0]
    for spread in SPREADS:
        if spread >= THOROUGH or not thorough:
            yield bits + spread, spread


def _codes(line: TokenLine, scale: int, shift: int, blocks: tuple[Block, ...]) -> list[int]:
    """phi of every point, before a lift."""
    found = []
    places = [-int(block.units[0][1]) for block in blocks if len(block.units) == 1]  # type: ignore[arg-type]
    if len(places) == len(blocks):
        for t in line.values:
            h = scale * t + shift
            for place in places:
                if h > place:
                    h = 2 * place - h
            found.append(h)
        return found
    (block,) = blocks
    rank = {t: i for i, t in enumerate(sorted(line.values))}
    values = _interpolated(block, sorted(line.values))
    return [values[rank[t]] for t in line.values]


def token_codes(token: TokenHash) -> list[int]:
    """phi of every point, as the blocks compute it."""
    codes = _codes(token.line, token.scale, token.shift, token.blocks)
    lift = int(token.blocks[-1].shift) if token.blocks and len(token.blocks[-1].units) == 1 else 0  # type: ignore[arg-type]
    return [code + lift for code in codes]


def _interpolated(block: Block, ordered: list[int]) -> list[int]:
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
    if biggest.bit_length() > SAFE_BITS:
        # words that wrap around: equal numbers stay equal, so most draws are refused without long numbers
        wrapped = [code & WORD for code in codes]
        quick = context_sums(dataset, np.array([*wrapped, 0], dtype=np.uint64), factor, start)
        if len(np.unique(quick)) < len(quick):
            return None
    kind = np.int64 if biggest.bit_length() <= SAFE_BITS else object
    found: list[int] = context_sums(dataset, np.array([*codes, 0], dtype=kind), factor, start).tolist()
    return found if len(set(found)) == len(found) else None


def context_sums(dataset: Dataset, phi: Any, factor: int, start: int | None) -> Any:
    """The ids in the arithmetic of `phi`, whose last entry stands for absent tokens."""
    contexts = dataset.contexts
    kind = phi.dtype.type
    index = dataset.inputs.index[contexts.row]
    if dataset.encoder.task is Task.SET:
        return _row_sums(phi, index)
    if dataset.encoder.task is not Task.CAUSAL:
        return phi[contexts.point] + _row_sums(phi, index) * _number(factor, kind)
    prefix = np.where(np.arange(index.shape[1]) <= contexts.position[:, None], index, -1)
    counts = contexts.position + 1 + (start is not None)
    times = mean_count(dataset) * factor
    shares = np.array([0, *(_number(times // k, kind) for k in range(1, int(counts.max()) + 1))], dtype=phi.dtype)
    return phi[contexts.point] + (_row_sums(phi, prefix) + _number(start or 0, kind)) * shares[counts]


def _row_sums(phi: Any, index: Any) -> Any:
    """Sum of phi over each row, a column at a time: no table of all numbers at once."""
    total = phi[index[:, 0]]
    for column in range(1, index.shape[1]):
        total = total + phi[index[:, column]]
    return total


def _number(value: int, kind: Any) -> Any:
    return np.uint64(value & WORD) if kind is np.uint64 else value
