"""Heads that look a fixed number of places back, by the rotation of queries and keys alone.

With a constant query and a constant key, rotary positions make a head's score a trigonometric polynomial of the
distance o between them: G(o) = sum_f a_f cos(theta_f o) + b_f sin(theta_f o). `look_back` chooses a and b of total
size 1 so that the wanted distance leads every other visible one by as much as possible.

The problem is a zero-sum game: one side mixes amplitudes, the other picks the distance where the margin is smallest.
Games are linear programs that start from a feasible corner, so a plain simplex method solves them: the tableau has a
row for each of the 2F signed amplitudes and a column for each distance, and about as many pivots as amplitudes.
It finds the optima of `scipy.optimize.linprog` (a test compares them) in a half to a tenth of its time (measured for
300 to 13,000 pairs), and fixtures need no SciPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.scaling import FrequencyScaling
from byheart.errors import ExportError

Floats = npt.NDArray[np.float64]
_PIVOTS = 20_000
# Engines hide a place by adding -65504 to its score in float16. A row that may see nothing, such as a row of padding,
# then consists of hidden places alone. A score below -16 overflows to minus infinity there. The row's own place has
# distance 0 in every engine, so a score of at least -OWN_PLACE nats at distance 0 keeps the row a number. STORED is
# what a score loses at most because queries and keys are stored in bfloat16, of its size.
OWN_PLACE, STORED = 15.0, 2.0**-8
# Positions in a table are rounded to 8 bits, up or down, in queries and in keys, and the norm scales both.
STORED_POSITIONS = 5 * STORED
# A score errs by ERROR of its size at most in bfloat16, where the margin allows it; else by PART of the margin.
ERROR, PART = 16 * 2.0**-8, 3 / 4
_LOWERED = 24  # how often a design that does not exist is tried again with a smaller error


@dataclass(frozen=True, eq=False)
class Wave:
    """Amplitudes per frequency of a head's score, of total size 1, and the margin `gap` that they guarantee."""

    cosine: Floats
    sine: Floats
    gap: float

    @property
    def sizes(self) -> Floats:
        return np.asarray(np.hypot(self.cosine, self.sine))

    def scores(self, distances: Sequence[int] | Floats, frequencies: Floats) -> Floats:
        angle = np.outer(np.asarray(distances, dtype=np.float64), frequencies)
        return np.asarray(np.cos(angle) @ self.cosine + np.sin(angle) @ self.sine)


def frequencies(dimensions: int, theta: float, scaling: FrequencyScaling | None = None) -> Floats:
    """theta_f of the rotary embedding of this many dimensions."""
    plain = np.asarray(theta ** (-2.0 * np.arange(dimensions // 2) / dimensions))
    return plain if scaling is None else scaling.scale(plain, theta)


def duels(
    offset: int, reach: int, window: int | None = None, trap: bool = False, far: bool = False
) -> list[tuple[int, int]]:
    """Pairs (wanted, other) of distances: the score of the first must lead that of the second.

    At the start of a sequence, where `offset` places back there is nothing, the first token is the nearest thing to it:
    distance t must lead all shorter ones while t < offset. So scores rise with the distance, and margins fall with the
    offset. A `far` head looks at its own place there instead: distance 0 must lead all those below the offset.

    Two pairs are about engines that look too far: offset 0 would rather see the next token (a missing causal mask
    shows), and a head that is a `trap` would rather see the first place outside its sliding `window` (one that is too
    long shows).

    >>> duels(1, 3)
    [(1, 0), (1, 2), (1, 3)]
    >>> duels(3, 4, far=True)
    [(3, 0), (3, 1), (3, 2), (3, 4), (0, 1), (0, 2)]
    """
    farthest = reach if window is None else window - 1
    pairs = [(offset, o) for o in range(farthest + 1) if o != offset]
    pairs += [(0, o) for o in range(1, offset)] if far else [(t, o) for t in range(offset) for o in range(t)]
    if offset == 0:
        pairs.append((-1, 0))
    if window is not None and trap:
        pairs.append((window, offset))
    return pairs


def amplitude(gap: float, nats: float) -> float:
    """The size of a head's scores at which `nats` remain if each score errs by 8 units (2^-8) of it, as bfloat16 may.

    >>> round(amplitude(0.1, 20.0))
    533
    """
    return nats / (gap - min(ERROR, PART * gap))


@lru_cache(maxsize=512)
def look_back(
    dimensions: int,
    theta: float,
    offset: int,
    reach: int,
    window: int | None = None,
    used: tuple[int, ...] | None = None,
    trap: bool = False,
    far: bool = False,
    nats: float = 20.0,
    stored: float = STORED,
    scaling: FrequencyScaling | None = None,
) -> Wave:
    """The best wave for a head that reads `offset` places back, over the frequencies whose numbers are `used`.

    At the size that leaves `nats` between the wanted place and all others (see `amplitude`), the wave's score at
    distance 0 is at least -OWN_PLACE, also where it loses `stored` of its size.
    """
    every = frequencies(dimensions, theta, scaling)
    chosen = np.arange(len(every)) if used is None else np.array(used)
    wanted, other = np.array(duels(offset, reach, window, trap, far), dtype=np.float64).T
    margin = _waves(wanted, every[chosen]) - _waves(other, every[chosen])
    payoff = np.concatenate([margin, -margin], axis=1)
    mixed = best_mixture(payoff)
    gap, own = float((payoff @ mixed).min()), _waves(np.zeros(1), every[chosen])
    least = np.concatenate([own, -own], axis=1)[0] - stored
    if gap > 0 and float(least @ mixed) * amplitude(gap, nats) < -OWN_PLACE:
        mixed = _bounded(payoff, least, nats, min(ERROR, PART * gap))
    signed = mixed[: margin.shape[1]] - mixed[margin.shape[1] :]
    wide = np.zeros((2, len(every)))
    wide[:, chosen] = signed.reshape(2, -1)
    return Wave(wide[0], wide[1], float((margin @ signed).min()))


def _bounded(payoff: Floats, least: Floats, nats: float, error: float) -> Floats:
    """Weights of sum 1, as `best_mixture` gives, whose score at distance 0 is bounded.

    They are proportional to the smallest sizes a >= 0 with (payoff - error) @ a >= nats and least @ a >= -OWN_PLACE.
    Margins of long offsets are too small for such an error, so it is lowered until sizes exist: that costs margin in
    bfloat16 alone.
    """
    bounds = np.array([nats] * len(payoff) + [-OWN_PLACE])
    for _ in range(_LOWERED):
        try:
            sizes = least_sum(np.concatenate([payoff - error, least[None]]), bounds)
            weights = np.asarray(sizes / sizes.sum())
            if least @ weights * amplitude(float((payoff @ weights).min()), nats) >= -OWN_PLACE - 1e-6:
                return weights
        except ExportError:
            pass
        error *= 7 / 8
    raise ExportError("the scores of a head could not be designed; choose another rope_theta or shorter offsets")


def _waves(distances: Floats, chosen: Floats) -> Floats:
    angle = np.outer(distances, chosen)
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1)


def best_mixture(payoff: Floats) -> Floats:
    """Weights over the columns, of sum 1, that make the smallest entry of `payoff @ weights` as large as possible.

    >>> best_mixture(np.array([[1.0, 0.0], [0.0, 3.0]])).round(9).tolist()
    [0.75, 0.25]
    """
    positive = payoff - payoff.min() + 1.0
    prices = least_sum(positive, np.ones(len(positive)))
    return np.asarray(prices / prices.sum())


def least_sum(rows: Floats, bounds: Floats) -> Floats:
    """Numbers a >= 0 of the least sum with rows @ a >= bounds: the prices of the dual program, whose start is feasible.

    Raises:
        ExportError: No numbers satisfy all rows.

    >>> least_sum(np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([1.0, 4.0])).tolist()
    [1.0, 1.5]
    """
    count, columns = rows.shape
    # Maximise bounds @ w with rows.T @ w <= 1, w >= 0: w = 0 is feasible. The answer is read off the slacks' prices.
    tableau = np.zeros((columns + 1, count + columns + 1))
    tableau[:columns, :count] = rows.T
    tableau[:columns, count : count + columns] = np.eye(columns)
    tableau[:columns, -1] = 1.0
    tableau[-1, :count] = -bounds / np.abs(bounds).max()
    for _ in range(_PIVOTS):
        entering = int(tableau[-1, :-1].argmin())
        if tableau[-1, entering] > -1e-9:
            return np.asarray(np.maximum(tableau[-1, count : count + columns], 0.0) * np.abs(bounds).max())
        column = tableau[:columns, entering]
        ratios = np.full(columns, np.inf)
        np.divide(tableau[:columns, -1], column, out=ratios, where=column > 1e-9)
        leaving = int(ratios.argmin())
        if not np.isfinite(ratios[leaving]):
            break
        tableau[leaving] /= tableau[leaving, entering]
        factors = tableau[:, entering].copy()
        factors[leaving] = 0.0
        tableau -= np.outer(factors, tableau[leaving])
    raise ExportError("the scores of a head could not be designed; choose another rope_theta or shorter offsets")


def steady(rows: Floats) -> Floats:
    """Numbers of 8 bits near the given ones, rounded up or down so that all rows have nearly the same length.

    Rounded to nearest, the lengths of positions would differ, and with them the factor of every norm.

    >>> angle = np.arange(50.0)[:, None] * 0.9 ** np.arange(8)
    >>> lengths = (steady(np.concatenate([np.cos(angle), np.sin(angle)], axis=1)) ** 2).sum(1)
    >>> float(np.ptp(lengths)) < 0.004  # to nearest, 0.02
    True
    """
    mantissa, exponent = np.frexp(rows)
    steps = np.ldexp(1.0, exponent - 8)
    found, wanted = np.round(mantissa * 256) * steps, (rows**2).sum(1)
    line = np.arange(len(rows))
    for _ in range(rows.shape[1]):
        other = found + np.where(found < rows, steps, -steps)  # rounded the other way
        excess = (found**2).sum(1) - wanted
        moved = np.abs(excess[:, None] + other**2 - found**2)
        moved[(found == rows) | (np.abs(other - rows) >= steps)] = np.inf
        best = moved.argmin(1)
        better = moved[line, best] < np.abs(excess)
        if not better.any():
            break
        found[line[better], best[better]] = other[line[better], best[better]]
    return np.asarray(found)
