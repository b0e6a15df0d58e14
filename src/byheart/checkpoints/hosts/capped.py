"""Heads that look back under a cap: Gemma 2 squashes scores by cap * tanh(score / cap).

A cap keeps order, but not distances: leads that a large amplitude would make end at the cap. So a head's scores are
designed as a ladder of capped scores, STEP nats from one rung to the next: the wanted distance on top, everything that
may not win below, and under it the shorter distances in turn, since at the start of a sequence each of them must lead
those below it. The smallest amplitudes that do so are a linear program.

A ladder of three rungs fits under a cap of 50, so near offsets go up to LONGEST. The lowest rung is distance 0, whose
score must not fall below -16, errors included: in float16, a row of padding then overflows (rotary.py). A far head
shows its own place where there is nothing so far back, so three rungs are enough for any distance: shorter ones, its
own place, the wanted one. Its rungs lie where the cap bends, which makes errors smaller as well: bfloat16 keeps 7 nats
or more at the distances of windows/far.py.

Cost: programs of 4 F columns and as many rows as there are distances, some dozens per offset; cached.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.rotary import Wave, frequencies, least_sum
from byheart.errors import ExportError

Floats = npt.NDArray[np.float64]
LONGEST = 2
STEPS = (36.0, 24.0, 20.0)  # nats between rungs after the cap: the first with which a ladder fits
_TRAP = 8.0  # nats by which the place after a window would win
_ROOM = 1.0  # below the cap: what a tanh next to 1 still distinguishes
_OWN = -11.0  # the least score of distance 0
_LOWEST = (-10.0, -8.0, -4.0, 0.0)  # of the first rung's upper end
_RUNG, _SPREAD = 41.5, 4.0  # of far heads: the two rungs beside distance 0, and the room that it has
_WIDE = (4.0, 0.0, 8.0)  # of the rungs between: some room makes amplitudes smaller


@lru_cache(maxsize=128)
def capped_wave(
    dimensions: int, theta: float, offset: int, reach: int, cap: float, window: int | None = None,
    used: tuple[int, ...] | None = None, trap: bool = False, far: bool = False,
) -> Wave:  # fmt: skip
    """The wave whose scores, at the size 1 / gap, win every duel by STEPS after the cap.

    Args:
        dimensions: Of a head; all of them turn.
        theta: The rotary base.
        offset: The distance that wins.
        reach: Positions.
        cap: Of scores.
        window: How many places the head sees; None: all.
        used: Numbers of the frequencies of the key.
        trap: The first place after the window would win.
        far: Where there is nothing so far back, distance 0 wins.

    Raises:
        ExportError: No ladder fits under the cap.

    >>> wave = capped_wave(64, 10000.0, 1, 128, 50.0)
    >>> scores = 50 * np.tanh(wave.scores(range(64), frequencies(64, 10000.0)) / wave.gap / 50)
    >>> bool(scores[1] - max(scores[0], scores[2:].max()) > 19)
    True
    """
    every = frequencies(dimensions, theta)
    chosen = np.arange(len(every)) if used is None else np.array(used)
    if offset > LONGEST and not far:
        raise ExportError(f"a cap of {cap:g} leaves no place for heads that look {offset} places back")
    last = reach if window is None else window - 1
    for step in STEPS[:1] if far else STEPS:
        found = [
            sizes
            for ladder in (_FAR if far else _ladders(offset, step, trap and window is not None, cap))
            if (sizes := _sizes(every[chosen], ladder, offset, last, cap)) is not None
        ]
        if found:
            sizes = min(found, key=lambda one: float(np.abs(one).sum()))
            wide = np.zeros((2, len(every)))
            wide[:, chosen] = (sizes / np.abs(sizes).sum()).reshape(2, -1)
            return Wave(wide[0], wide[1], 1 / float(np.abs(sizes).sum()))
    raise ExportError(f"no scores of a head that looks {offset} places back fit under a cap of {cap:g}")


Ladder = tuple[list[tuple[float, float]], float, tuple[int, float] | None]
# Distance 0 in the middle: it wins where there is nothing so far back, and is far from overflowing.
_FAR: tuple[Ladder, ...] = (([(-_SPREAD, _SPREAD), (_RUNG, _RUNG)], 0.0, None),)


def _ladders(offset: int, step: float, trap: bool, cap: float) -> Iterator[Ladder]:
    """Rungs (least, most) of the distances 0 to `offset`; the most that others reach; a place that must win, and how.

    Offset 0 would rather see the next token: a causal mask that is missing shows.
    """
    for top in (step / 2, step / 2 + 4, 0.0, 4.0) if not offset else _LOWEST:
        for wide in _WIDE if offset > 1 else (0.0,):
            rungs = [(top if not offset else _OWN, top)]
            for distance in range(1, offset + 1):
                least = rungs[-1][1] + step
                rungs.append((least, least + (wide if distance < offset else 0.0)))
            others = rungs[-2][1] if offset else top - step
            over = (-1 if not offset else None, rungs[-1][1] + step)
            above = over if not offset else None
            if trap and offset:
                above = (0, rungs[-1][1] + _TRAP)  # the place is filled in by `_sizes`
            largest = max(rungs[-1][1], above[1] if above else 0.0, abs(others))
            if largest <= cap - _ROOM:
                yield rungs, others, above  # type: ignore[misc]


def _sizes(turning: Floats, ladder: Ladder, offset: int, farthest: int, cap: float) -> Floats | None:
    """The smallest signed amplitudes, cosines first, whose capped scores form a ladder; None where none do."""
    rungs, others, above = ladder
    rows, bounds = [], []

    def demand(distance: float, sign: float, capped: float) -> None:
        row = sign * np.concatenate([np.cos(distance * turning), np.sin(distance * turning)])
        rows.append(np.concatenate([row, -row]))
        bounds.append(sign * cap * math.atanh(capped / cap))

    # A far head's two rungs are its own place and the wanted one.
    places = range(offset + 1) if len(rungs) == offset + 1 else (0, offset)
    for distance, (least, most) in zip(places, rungs, strict=True):
        demand(distance, 1.0, least)
        if distance < offset or above is not None:
            demand(distance, -1.0, most)
    for distance in (d for d in range(1, farthest + 1) if d not in places):
        demand(distance, -1.0, others if distance > offset else -rungs[-1][0])
    if above is not None:
        demand(-1 if not offset else farthest + 1, 1.0, above[1])
    try:
        found = least_sum(np.array(rows), np.array(bounds))
    except ExportError:
        return None
    half = found.reshape(2, -1)
    return np.asarray(half[0] - half[1])
