"""Scores by content: which frequencies carry the bits of a key, and how large queries must be.

Bits 2j and 2j + 1 of a key are the real and imaginary half of one frequency theta. A query is turned back by half of
the context, so that over all distances the angle phi stays within theta n / 2. Per unit of size, a pair of bits
without a difference scores cos phi, with one difference at most |sin phi|, with two -cos phi. So bits need
frequencies that hardly turn within the context; how many there are depends on the rope, the head size and the
context.

One more frequency carries the flag of BOS: -sink/2 for ordinary keys, +sink/2 for BOS, whose key has no content. With
m the least score of a match per unit of size A, o the greatest score of another key, c the least cosine of the flag, a
relative error r of every score, and g = ln n + slack nats that must remain:

    match over sink:  (m - r) A - (1 + r) sink >= g
    sink over others: (c - r) sink - (o + r) A >= g
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.recall.positions import HeadRotation
from byheart.checkpoints.windows.recall import key_code
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
# A rotated pair errs by 2u (|a| + |b|) for its products and u |(a, b)| for its sums, at most (2 sqrt 2 + 1) u of its
# length; query and key are both rotated, the query is stored before, and a score is stored before and after scaling.
# The last two terms cover channel errors and the checker's grid of distances.
RELATIVE_ERROR = (2 * (2 * math.sqrt(2) + 1) + 1 + 2) * 2.0**-8 + 0.004
SLACK = 10.0  # nats beyond ln n: all other places together weigh e^-10
LARGEST = 2000.0  # nats: beyond, float16 would overflow in the sum of products
TRIES = 6  # orders of the bits that are tried


@dataclass(frozen=True, eq=False)
class MatchDesign:
    """Where key bits and the flag go, and the sizes of scores in nats."""

    real: npt.NDArray[np.int64]  # dimension of bit b's frequency's real half
    imaginary: npt.NDArray[np.int64]
    half: npt.NDArray[np.int64]  # 0: bit b is stored in the real half, 1: in the imaginary half
    turn: Floats  # angle by which bit b's query is turned back
    flag: tuple[int, int]  # dimensions of the flag's frequency
    flag_turn: float
    spare: npt.NDArray[np.int64]  # dimensions that no query reads, one per bit
    size: float
    sink: float


@lru_cache(maxsize=32)
def _design(
    frequencies: tuple[float, ...], distances: int, key_length: int, stores: int
) -> tuple[float, list[int], int, list[int]]:
    """(size, numbers of the frequencies of the bits, number of the flag's, order of the bits): the smallest size."""
    theta, code = np.array(frequencies), key_code(key_length)
    pairs, centre = code.bits // 2, (distances - 1) / 2
    slow = np.argsort(theta, kind="stable")
    best: tuple[float, list[int], int, list[int]] = (math.inf, [], 0, [])
    if len(slow) < pairs + 1:
        return best
    differences = code.differences()
    for flag in (0, pairs):
        used = np.delete(slow[: pairs + 1], flag)
        angle = theta[used] * centre
        least = float(np.cos(min(theta[slow[flag]] * centre, math.pi)))
        rng = np.random.default_rng(0)
        if angle.max() > math.pi / 2:
            continue
        cosine, sine = np.cos(angle), np.sin(angle)
        for attempt in range(TRIES):
            order = np.arange(code.bits) if attempt == 0 else rng.permutation(code.bits)
            number = differences[:, order[0::2]].astype(np.int8) + differences[:, order[1::2]]
            one, two = (number == 1).astype(np.float32), (number == 2).astype(np.float32)
            others = (cosine.sum() - one @ (cosine - sine) - two @ (2 * cosine)).max() / pairs
            straight = 1.0 - float((one.sum(1) + 2 * two.sum(1)).min()) / pairs  # where nothing is turned
            size, _ = _sizes(float(cosine.mean()), max(float(others), straight), least, distances, stores)
            if size < best[0]:
                best = (size, used.tolist(), int(slow[flag]), order.tolist())
    return best


def _sizes(match: float, other: float, flag: float, distances: int, stores: int) -> tuple[float, float]:
    """The least size and sink that keep ln n + SLACK nats; infinite if no size does."""
    r, least = RELATIVE_ERROR + stores * 2.0**-8, math.log(distances) + SLACK
    if flag - r <= 0:
        return math.inf, math.inf
    ratio = (1 + r) / (flag - r)
    room = (match - r) - ratio * (other + r)
    size = least * (1 + ratio) / room if room > 0 else math.inf
    return size, (least + (other + r) * size) / (flag - r)


def match_design(rotation: HeadRotation, distances: int, key_length: int, stores: int = 0) -> MatchDesign:
    """Return the design of a head that finds a key by its content.

    Args:
        rotation: how the head's dimensions turn.
        distances: how many distances a query sees.
        key_length: tokens of a key.
        stores: how often a query or key is stored beyond Llama's: head norms store twice more.

    Raises:
        OptionError: too few slow frequencies.
    """
    theta, code = rotation.frequencies, key_code(key_length)
    size, used, flag, order = _design(tuple(theta.tolist()), distances, key_length, stores)
    if not size <= LARGEST:
        raise OptionError(f"too few slow frequencies: {slow_count(rotation, distances)} of {code.bits // 2 + 1}")
    pair = np.empty(code.bits, dtype=np.int64)
    half = np.empty(code.bits, dtype=np.int64)
    pair[order], half[order] = np.repeat(used, 2), np.tile([0, 1], code.bits // 2)
    centre = (distances - 1) / 2
    angle = theta[used] * centre
    least = float(np.cos(theta[flag] * centre))
    differences = code.differences()[:, order]
    number = differences[:, 0::2].astype(np.int64) + differences[:, 1::2]
    cosine, sine = np.cos(angle), np.sin(angle)
    others = cosine.sum() - (number == 1) @ (cosine - sine) - (number == 2) @ (2 * cosine)
    other = max(float(others.max()), len(used) - float(number.sum(1).min())) / len(used)
    size, sink = _sizes(float(cosine.mean()), other, least, distances, stores)
    busy = {int(d) for f in (*used, flag) for d in (rotation.real[f], rotation.imaginary[f])}
    spare = np.array([d for d in range(rotation.head_dim) if d not in busy], dtype=np.int64)
    return MatchDesign(
        rotation.real[pair], rotation.imaginary[pair], half, theta[pair] * centre,
        (int(rotation.real[flag]), int(rotation.imaginary[flag])), float(theta[flag] * centre), spare[: code.bits],
        size, sink,
    )  # fmt: skip


def slow_count(rotation: HeadRotation, distances: int) -> int:
    """Return how many frequencies turn by one radian or less within the context."""
    return int((rotation.frequencies * distances <= 1).sum())


def feasible(rotation: HeadRotation, distances: int, key_length: int, stores: int = 0) -> bool:
    """Return whether keys of this length can be found over this many distances."""
    return _design(tuple(rotation.frequencies.tolist()), distances, key_length, stores)[0] <= LARGEST
