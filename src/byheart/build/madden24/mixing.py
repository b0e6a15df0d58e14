"""Contexts as single numbers: self-attention and token averaging with dimension 1 are injective for generic weights.

>>> tokens = np.array([[0, -1], [1, -1], [0, 1], [1, 0]])
>>> draw = draw_separating(tokens, vocabulary_size=2, mixing=average_numbers, seed=0)
>>> injectivity(draw.numbers).holds
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.errors import BuildError
from byheart.paper import Ref, implements

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mixing = Callable[[Floats, Floats, Ints], Floats]  # (z, u, tokens) -> one number per context


@implements(
    Ref("M24", "Theorem 4"),
    statement="⟨x, softmax(x·x_t)⟩ with x = z[α] + u maps contexts α injectively into R without 0, for generic (z, u)",
    test="tests/build/madden24/test_mixing.py",
)
def attention_numbers(z: Floats, u: Floats, tokens: Ints) -> Floats:
    """f(z, u, α) of Theorem 4 for every context (row of `tokens`, padded with -1): (n,)."""
    present = tokens >= 0
    x = np.where(present, z[tokens] + u[: tokens.shape[1]], 0.0)  # (n, T)
    last = x[np.arange(len(x)), present.sum(axis=1) - 1]
    scores = np.where(present, x * last[:, None], -np.inf)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((x * shares).sum(axis=1) / shares.sum(axis=1))


@implements(
    Ref("M24", "Theorem 6"),
    statement="Σ u_t z_{α_t} maps contexts α injectively into R without 0, for generic (z, u)",
    test="tests/build/madden24/test_mixing.py",
)
def average_numbers(z: Floats, u: Floats, tokens: Ints) -> Floats:
    """f(z, u, α) of Theorem 6 for every context: (n,)."""
    return np.asarray(np.where(tokens >= 0, z[tokens] * u[: tokens.shape[1]], 0.0).sum(axis=1))


@dataclass(frozen=True)
class Injectivity:
    """How far apart the numbers of different contexts are, and how far from 0."""

    smallest_gap: float
    closest: tuple[int, int]  # the two contexts that are closest
    smallest_magnitude: float
    spread: float  # largest minus smallest number

    @property
    def relative_gap(self) -> float:
        """Infinite for a single context, which nothing comes close to."""
        return self.smallest_gap / self.spread if self.spread else self.smallest_gap

    @property
    def holds(self) -> bool:
        """Distinct and nonzero beyond what float64 evaluation can blur (64 units in the last place)."""
        blur = 64 * np.finfo(float).eps * max(self.spread, self.smallest_magnitude)
        return bool(self.smallest_gap > blur and self.smallest_magnitude > 0)


def injectivity(numbers: Floats) -> Injectivity:
    """Measures what Theorems 4 and 6 promise, for the numbers of n contexts."""
    if len(numbers) == 1:
        return Injectivity(float("inf"), (0, 0), float(abs(numbers[0])), 0.0)
    order = np.argsort(numbers, kind="stable")
    gaps = np.diff(numbers[order])
    k = int(np.argmin(gaps))
    spread = float(numbers[order[-1]] - numbers[order[0]])
    return Injectivity(float(gaps[k]), (int(order[k]), int(order[k + 1])), float(np.abs(numbers).min()), spread)


@dataclass(frozen=True, eq=False)
class Draw:
    """Token weights z, position weights u, and the numbers they give to the contexts."""

    z: Floats
    u: Floats
    numbers: Floats
    injectivity: Injectivity


def draw_separating(tokens: Ints, vocabulary_size: int, mixing: Mixing, seed: int, tries: int = 32) -> Draw:
    """The draw of (z, u), uniform in [1/2, 3/2], with the largest smallest gap among `tries`."""
    rng = np.random.default_rng(seed)
    best: Draw | None = None
    for _ in range(tries):
        z, u = (np.asarray(rng.uniform(0.5, 1.5, size)) for size in (vocabulary_size, tokens.shape[1]))
        numbers = mixing(z, u, tokens)
        measured = injectivity(numbers)
        if best is None or measured.relative_gap > best.injectivity.relative_gap:
            best = Draw(z, u, numbers, measured)
    if best is None or not best.injectivity.holds:
        raise BuildError(
            f"{tries} draws do not separate {len(tokens)} contexts in float64 (smallest gap "
            f"{best.injectivity.smallest_gap if best else 0:.3g}); use fewer documents or another seed"
        )
    return best
