"""Fewer parameters than the theorem: shared outputs of low rank, and no neuron between contexts that behave alike.

Theorem 5 pays n·ω for the output matrix because distributions may be arbitrary. A corpus is not: most contexts have one
continuation. Here V = A·B with A (m, r) and B (r, ω): every context has only r coordinates, and the neurons are steps
along a line on which contexts with equal distributions are adjacent, so m is the number of steps, not of contexts:

    parameters = m·(2 + r) + ω·(1 + r) + T + 4        (attention, dimension 1)

    >>> from byheart.data import load
    >>> rows, follow = [["a", "cat"], ["a", "dog"], ["a", "dog"]], [["cat", "sat"], ["dog", "sat"], ["dog", "ran"]]
    >>> fit = smallest(load(rows, follow, task="causal", target="distribution").distributions)
    >>> fit.decoder.parameters < 40
    True

The order on the line with the fewest steps has tokens with common continuations beside each other: between two
neighbouring contexts with the same distribution no neuron is needed. If a context's position on the line is decided by
its last token first, the order of the tokens is free: a greedy chain puts tokens next to each other that share
distributions among the contexts they end.

    >>> tokens, classes = np.array([[0], [1], [2]]), np.array([7, 8, 7])     # contexts 0 and 2 behave alike
    >>> order = chain_tokens(tokens, classes, 3)
    >>> abs(order.tolist().index(0) - order.tolist().index(2))
    1

A and B come from low-rank logits, distributions of many contexts from few numbers each, by alternating Newton steps.
Softmax(h_i B) with h_i in R^r and B (r, ω) shared represents distribution i. For a fixed B the problem is convex in
every h_i alone; for fixed h it is convex in B, and the bound diag(p) - p pᵀ ≤ diag(p) of softmax's curvature decouples
the columns of B. So both steps are batches of r x r systems. A ridge on h that fades from sweep to sweep keeps the many
contexts with one continuation from running to infinity before the others have converged; without it the columns
freeze.

    >>> weights = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    >>> factors = factor_distributions(weights, rank=2, tolerance=1e-3, seed=0)
    >>> factors.gap < 1e-3
    True
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.build.madden24.fit import (
    DecoderFit,
    DecoderShape,
    Injectivity,
    MixerKind,
    check_size,
    chosen_floor,
    entropy_unit,
    injectivity,
    name,
    reader_on_line,
)
from byheart.build.madden24.neurons import solve_staircase, steps_between
from byheart.data.dataset.targets import Distributions
from byheart.errors import BuildError, OptionError
from byheart.ir.decoder import ContextReader, Decoder
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]

# Regularization of the first and the last sweep; it fades in between. Tuned by hand.
FIRST_RIDGE, LAST_RIDGE = 0.1, 1e-7
HOPELESS_RIDGE, HOPELESS_GAP = 5e-4, 40.0  # a gap of 40 times the tolerance at this ridge was never closed


@dataclass(frozen=True, eq=False)
class Factors:
    """Softmax(coordinates @ columns) approximates the distributions; `gap` is the loss above the entropy, in nats."""

    coordinates: Floats  # (R, r)
    columns: Floats  # (r, ω)
    gap: float
    sweeps: int


def factor_distributions(
    weights: Floats, rank: int, tolerance: float, seed: int, sweeps: int = 150, progress: Progress = SILENT
) -> Factors:
    """Factors of rank `rank`, improved until the gap is at most `tolerance` nats, or hopeless, or `sweeps` are done.

    `weights` (R, ω) holds each row's distribution times how often it occurs. More sweeps let the ridge fade more
    slowly, which finds better factors where few sweeps just miss the tolerance.
    """
    rng = np.random.default_rng(seed)
    total = weights.sum(axis=1)
    columns = rng.standard_normal((rank, weights.shape[1]))
    columns /= np.linalg.norm(columns, axis=0)
    state = _State(weights, total, 8.0 * (weights / total[:, None]) @ columns.T, columns)
    fade = (LAST_RIDGE / FIRST_RIDGE) ** (1 / sweeps)
    done = 0
    with progress.stage(f"factoring {len(weights)} distributions with rank {rank}", total=sweeps) as stage:
        while done < sweeps and state.gap > tolerance:
            ridge = FIRST_RIDGE * fade**done
            if ridge < HOPELESS_RIDGE and state.gap > HOPELESS_GAP * tolerance:
                break
            state.improve_rows(ridge)
            state.improve_columns()
            done += 1
            stage.advance()
    return Factors(state.coordinates, state.columns, state.gap, done)


class _State:
    """The running estimate: rows h (R, r), columns B (r, ω), their softmax and the loss of every row."""

    def __init__(self, weights: Floats, total: Floats, coordinates: Floats, columns: Floats) -> None:
        self.weights, self.total = weights, total
        self.coordinates, self.columns = coordinates, columns
        shares = weights[weights > 0] / np.broadcast_to(total[:, None], weights.shape)[weights > 0]
        self.entropy = -float(weights[weights > 0] @ np.log(shares))
        self.damping = 0.1  # of the columns' step
        self.softmax, self.loss = self._evaluate(coordinates, columns)

    @property
    def gap(self) -> float:
        return float(self.loss.sum()) - self.entropy

    def _evaluate(self, coordinates: Floats, columns: Floats) -> tuple[Floats, Floats]:
        """(softmax (R, ω), loss of each row)."""
        logits = coordinates @ columns
        own = np.einsum("rw,rw->r", self.weights, logits)
        top = logits.max(axis=1, keepdims=True)
        logits -= top
        np.exp(logits, out=logits)
        mass = logits.sum(axis=1, keepdims=True)
        logits /= mass
        return logits, self.total * (top + np.log(mass))[:, 0] - own

    def improve_rows(self, ridge: float) -> None:
        """One Newton step for every h_i on loss/weight + ridge/2·|h_i|², of bounded length; kept where it helps."""
        rank, omega = self.columns.shape
        h = self.coordinates
        gradient = (self.softmax - self.weights / self.total[:, None]) @ self.columns.T + ridge * h
        mean = self.softmax @ self.columns.T
        products = (self.columns[:, None, :] * self.columns[None, :, :]).reshape(rank * rank, omega)
        curvature = (self.softmax @ products.T).reshape(-1, rank, rank) - mean[:, :, None] * mean[:, None, :]
        step = np.linalg.solve(curvature + ridge * np.eye(rank), gradient[:, :, None])[:, :, 0]
        longest = 2 + 0.5 * np.linalg.norm(h, axis=1)
        step *= np.minimum(1, longest / np.maximum(np.linalg.norm(step, axis=1), 1e-300))[:, None]
        softmax, loss = self._evaluate(h - step, self.columns)
        before = self.loss / self.total + ridge / 2 * (h * h).sum(axis=1)
        after = loss / self.total + ridge / 2 * ((h - step) ** 2).sum(axis=1)
        better = after <= before
        self.coordinates = np.where(better[:, None], h - step, h)
        self.softmax = np.where(better[:, None], softmax, self.softmax)
        self.loss = np.where(better, loss, self.loss)

    def improve_columns(self) -> None:
        """One damped step for all columns of B, undone if the loss grows."""
        rank, omega = self.columns.shape
        expected = self.softmax * self.total[:, None]
        gradient = self.coordinates.T @ (expected - self.weights)  # (r, ω)
        products = (self.coordinates[:, :, None] * self.coordinates[:, None, :]).reshape(-1, rank * rank)
        curvature = (products.T @ expected).T.reshape(omega, rank, rank) + self.damping * np.eye(rank)
        step = np.linalg.solve(curvature, gradient.T[:, :, None])[:, :, 0].T
        softmax, loss = self._evaluate(self.coordinates, self.columns - step)
        if loss.sum() <= self.loss.sum():
            self.columns, self.softmax, self.loss = self.columns - step, softmax, loss
            self.damping = max(self.damping / 3, 1e-6)
        else:
            self.damping = min(self.damping * 4, 1e9)


Ints = npt.NDArray[np.int64]


def chain_tokens(tokens: Ints, classes: Ints, vocabulary_size: int) -> Ints:
    """A permutation of the vocabulary: each token is followed by the unused one that shares most with it.

    Sharing is the part of the next token's classes that the current one has too. Cost: O(contexts) plus, for each
    token, the tokens that share a class with it.
    """
    last = tokens[np.arange(len(tokens)), (tokens >= 0).sum(axis=1) - 1]
    has: dict[int, set[int]] = defaultdict(set)
    ends: dict[int, set[int]] = defaultdict(set)
    for token, which in zip(last.tolist(), classes.tolist(), strict=True):
        has[token].add(which)
        ends[which].add(token)
    waiting = sorted(has, key=lambda t: (-len(has[t]), t))
    order: list[int] = []
    used: set[int] = set()
    for start in waiting:
        current: int | None = start
        while current is not None and current not in used:
            order.append(current)
            used.add(current)
            for which in has[current]:
                ends[which].discard(current)
            current = _successor(current, has, ends)
    order.extend(t for t in range(vocabulary_size) if t not in used)
    return np.array(order, dtype=np.int64)


def _successor(current: int, has: dict[int, set[int]], ends: dict[int, set[int]]) -> int | None:
    candidates = {token for which in has[current] for token in ends[which]}
    return max(candidates, key=lambda t: (len(has[t] & has[current]) / len(has[t]), len(has[t]), -t), default=None)


def run_starts(ordered_classes: Ints) -> Ints:
    """Return the indices k ≥ 1 where the class differs from the previous one: a step is needed there."""
    return np.flatnonzero(np.diff(ordered_classes)) + 1


SAFE_GAP = 2.0**-36  # relative gap on the line that float64 evaluation separates with a reserve
SEARCH_SWEEPS = 300  # of one factorization in the search for the smallest rank, at effort 1
AIM = 0.9  # the factors aim at this part of the allowed gap


@dataclass(frozen=True, eq=False)
class ContextLine:
    """The reader, and the contexts in their order on the line."""

    reader: ContextReader
    order: Ints  # contexts from left to right
    numbers: Floats  # theirs, ascending
    steps: Ints  # indices where the distribution changes
    injectivity: Injectivity


def allowed_gap(contexts: Distributions, fraction: float) -> float:
    """The gap in nats that `fraction` allows: of the entropy, or per predicted token where the entropy is 0."""
    return fraction * entropy_unit(contexts)


def class_factors(
    contexts: Distributions, rank: int, fraction: float, seed: int, sweeps: int, progress: Progress
) -> Factors:
    """Coordinates for every distribution that occurs, and shared columns, aiming at `fraction` of the entropy."""
    if rank < 1:
        raise OptionError(f"rank={rank} must be at least 1")
    if rank >= full_rank(contexts):
        return _all_logits(contexts)
    check_size(int(contexts.classes.max()) + 1, contexts.vocabulary_size, "the distributions that occur")
    return factor_distributions(
        class_weights(contexts),
        rank,
        AIM * allowed_gap(contexts, fraction),
        seed,
        sweeps,
        progress,
    )


def full_rank(contexts: Distributions) -> int:
    """ω - 1, the full rank: every logit relative to the last token's has a separate dimension."""
    return max(1, contexts.vocabulary_size - 1)


def _all_logits(contexts: Distributions) -> Factors:
    """Factors of full rank: the target logits themselves."""
    weights, floor = class_weights(contexts), chosen_floor(contexts)
    shares = weights / weights.sum(axis=1, keepdims=True)
    logits = np.log(np.where(shares > 0, shares / floor, 1.0))
    gap = float(weights.sum(axis=1) @ np.log1p((shares == 0).sum(axis=1) * floor))
    kept = full_rank(contexts)
    return Factors(logits[:, :kept] - logits[:, -1:], np.eye(contexts.vocabulary_size)[:kept], gap, 0)


def class_weights(contexts: Distributions) -> Floats:
    """The weights of all contexts with the same distribution, added up: (classes, ω)."""
    weights = np.zeros((int(contexts.classes.max()) + 1, contexts.vocabulary_size))
    np.add.at(weights, (contexts.classes[contexts.pair_context], contexts.pair_token), contexts.pair_weight)
    return weights


def assemble(
    contexts: Distributions,
    shape: DecoderShape,
    factors: Factors,
    seed: int,
    progress: Progress = SILENT,
) -> DecoderFit:
    """The decoder that maps every context to the coordinates of its class."""
    if not shape.activation.saturates:
        raise OptionError(
            f"steps need an activation that saturates, which {shape.activation.value} does not: "
            "take tanh, sigmoid or arctan"
        )
    if (shape.dimension or 1) != 1 or shape.heads != 1:
        raise OptionError("the low-rank decoder has dimension 1 and one head")
    line = lay_out(contexts, shape, seed)
    firsts = np.concatenate([[0], line.steps])
    neurons = steps_between(line.numbers, shape.activation, line.steps)
    with progress.stage(f"solving for {len(firsts)} steps"):
        targets = factors.coordinates[contexts.classes[line.order[firsts]]]
        numbers = line.numbers[firsts]
        solution = solve_staircase(lambda rows: neurons.features(numbers[rows]), targets, *shape.activation.step)
    decoder = Decoder(
        line.reader, neurons.weight[None, :].copy(), neurons.bias.copy(), shape.activation,
        (np.ascontiguousarray(solution.weights), factors.columns.copy()),
    )  # fmt: skip
    notes = (
        f"rank {len(factors.columns)}, {len(firsts)} steps for {contexts.count} contexts, {factors.sweeps} sweeps",
    )
    return DecoderFit(
        decoder,
        f"{name(shape.mixer)}-lowrank",
        solution.condition,
        solution.residual,
        line.injectivity.smallest_gap,
        None,
        None,
        notes,
    )


@implements(
    Ref("byheart", "last token first"),
    statement="with a skip connection, contexts lie on a line in the order of their last tokens, then by the mixer",
    test="tests/build/madden24/test_lowrank.py",
)
def lay_out(contexts: Distributions, shape: DecoderShape, seed: int, tries: int = 6) -> ContextLine:
    """x = z_last + small·mixer: the draw with the fewest steps among those that float64 keeps apart."""
    order = chain_tokens(contexts.tokens, contexts.classes, contexts.vocabulary_size)
    omega = contexts.vocabulary_size
    z = np.empty(omega)
    z[order] = 0.5 + np.arange(omega) / omega
    rng = np.random.default_rng(seed)
    best: ContextLine | None = None
    for attempt in range(tries):
        small = 2.0 ** -(10 - 2 * (attempt % 3)) / max(1.0, np.log2(omega) / 10)
        line = _line(contexts, replace(shape, skip=True), z, small, rng)
        if line.injectivity.relative_gap < SAFE_GAP:
            continue
        if best is None or len(line.steps) < len(best.steps):
            best = line
    if best is None:
        raise BuildError(
            f"no draw keeps {contexts.count} contexts apart in float64; use fewer documents or another seed"
        )
    return best


def _line(
    contexts: Distributions, shape: DecoderShape, z: Floats, small: float, rng: np.random.Generator
) -> ContextLine:
    longest = contexts.tokens.shape[1]
    if shape.mixer is MixerKind.AVERAGE:
        reader = reader_on_line(z, np.asarray(small * rng.uniform(0.5, 1.5, longest)), 1, shape)
    else:
        reader = reader_on_line(z, np.asarray(small / 16 * rng.uniform(-1.0, 1.0, longest)), 1, shape, output=small)
    numbers = reader.mixed(contexts.tokens)[:, 0]
    places = np.argsort(numbers, kind="stable")
    return ContextLine(reader, places, numbers[places], run_starts(contexts.classes[places]), injectivity(numbers))


def smallest(
    contexts: Distributions,
    shape: DecoderShape = DecoderShape(),  # noqa: B008  # frozen
    *,
    fraction: float = 0.01,
    effort: int = 1,
    seed: int = 0,
    progress: Progress = SILENT,
) -> DecoderFit:
    """The low-rank decoder of the lowest rank that reaches a gap below `fraction` of the entropy."""
    factors = smallest_factors(contexts, fraction, effort, seed, progress)
    return assemble(contexts, shape, factors, seed, progress)


def smallest_factors(
    contexts: Distributions, fraction: float, effort: int, seed: int, progress: Progress = SILENT
) -> Factors:
    """Factors of the lowest rank that reaches a gap below `fraction` of the entropy.

    Doubles the rank from 2 until the factors reach their aim, then halves the interval. Effort e runs e times the
    sweeps, and min(e, 4) draws, for each rank; that finds smaller ranks.
    """
    if effort < 1:
        raise OptionError(f"effort={effort} must be at least 1")
    found: dict[int, Factors] = {}

    def reaches(rank: int) -> bool:
        for draw in range(min(effort, 4)):
            factors = class_factors(contexts, rank, fraction, seed + draw, SEARCH_SWEEPS * effort, progress)
            if factors.gap <= 0.95 * allowed_gap(contexts, fraction):
                found[rank] = factors
                return True
        return False

    low, high = (1, 2) if full_rank(contexts) > 1 else (0, 1)
    while not reaches(high):
        if high >= full_rank(contexts):
            raise BuildError(
                f"zeros alone cost more than {fraction} of the entropy; allow a larger gap than {fraction:g}"
            )
        low, high = high, min(2 * high, full_rank(contexts))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return found[high]
