"""The one-layer decoder in closed form: embed, mix to distinct vectors, place neurons between them, solve for V.

M24 names the algorithm (sample, scale, solve) and leaves the numbers open: a random draw is singular in float64 for a
handful of contexts. Here the neurons are placed with the contexts in view, so that the system is well-conditioned.

    >>> from byheart.data.dataset.documents import Corpus
    >>> corpus = Corpus.of_texts(["a cat sat", "a dog sat", "a dog ran"])
    >>> fit = closed_form(corpus.contexts())
    >>> fit.decoder.neurons, fit.condition < 10, fit.residual < 1e-12
    (3, True, True)
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from byheart.build.madden24.directions import own_directions
from byheart.build.madden24.fit import (
    Fit,
    Shape,
    check_size,
    chosen_floor,
    line_direction,
    line_reader,
    name,
    space_reader,
    target_logits,
)
from byheart.build.madden24.mixing import injectivity
from byheart.build.madden24.solve import solve
from byheart.build.madden24.staircase import solve_staircase
from byheart.build.madden24.steps import steps_between
from byheart.data.dataset.targets import Distributions
from byheart.errors import BuildError, OptionError
from byheart.ir.decoder import Decoder, Reader
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]

DIMENSION = 32  # of the space in which neurons look in their contexts' directions
LARGER = (3 * DIMENSION, 8 * DIMENSION)  # tried if that is too small
ACCURATE = 1e8  # a condition number from which on other features are tried, if any are left


class Features(StrEnum):
    """Where the neurons stand."""

    STEPS = "steps"  # on a line, between neighbouring contexts
    DIRECTIONS = "directions"  # in R^d, one in the direction of each context
    RANDOM = "random"  # the paper's draw: instructive, and singular in float64 for more than a few contexts

    @staticmethod
    def named(text: str) -> Features:
        try:
            return Features(text)
        except ValueError:
            raise OptionError(f"unknown features {text!r}; known: {', '.join(Features)}") from None


@implements(
    Ref("M24", "Theorem 5"),
    statement="a one-layer decoder with m neurons interpolates any next-token distributions of m contexts",
    test="tests/build/madden24/test_construction.py",
)
@implements(
    Ref("M24", "Theorem 7"),
    statement="so does the decoder with token averaging in place of self-attention",
    test="tests/build/madden24/test_construction.py",
)
def closed_form(
    contexts: Distributions,
    shape: Shape = Shape(),  # noqa: B008  # frozen
    *,
    features: Features | None = None,
    floor: float | None = None,
    factored: bool = False,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Fit:
    """A decoder with one neuron for each context whose distributions are the given ones, zeros replaced by `floor`.

    Notation: contexts.count = n = m, V = decoder.output[0], (z, u) are drawn from `seed`. Without a `floor` it is set
    such that zeros cost at most 10^-5 of the entropy. `factored` stores V as (m, s)·(s, ω), where s tokens follow
    anywhere: fewer numbers when s is much smaller than ω.
    Cost: O(n²ω) for steps, O(n³ + n²ω) for directions. Departs from the proof in the choice of w and b only: the proof
    takes any generic w near 0 and b = η, this places the neurons where the condition number stays of order n.
    """
    follow = np.unique(contexts.pair_token) if factored else None
    columns = contexts.vocabulary_size if follow is None else len(follow)
    check_size(contexts.count, columns, "the output matrix V")
    floor = chosen_floor(contexts) if floor is None else floor
    best: Fit | None = None
    failure: BuildError | None = None
    for features_, dimension in _attempts(contexts, shape, features):
        try:
            tried = replace(shape, dimension=dimension)
            fit = _fit(contexts, tried, features_, floor, follow, seed, progress)
        except BuildError as error:
            failure = failure or error
            continue
        if best is None or fit.condition < best.condition:
            best = fit
        if fit.condition < ACCURATE:
            break
    if best is None:
        raise failure or BuildError("no features were tried")
    return best


def _attempts(contexts: Distributions, shape: Shape, features: Features | None) -> list[tuple[Features, int | None]]:
    """What is tried in turn until the system is well-conditioned: more dimensions, then a line, if nothing is fixed.

    The mixed vectors lie in the span of ω token and T position vectors: more dimensions than these show nothing new.
    """
    if features is not None:
        return [(features, shape.dimension)]
    if shape.activation.saturates:
        return [(Features.STEPS, shape.dimension)]
    span = contexts.vocabulary_size + contexts.tokens.shape[1]
    dimensions = [shape.dimension] if shape.dimension else [DIMENSION, *(d for d in LARGER if d // 3 < span)]
    return [*((Features.DIRECTIONS, d) for d in dimensions), (Features.STEPS, shape.dimension)]


def _fit(
    contexts: Distributions,
    shape: Shape,
    features: Features,
    floor: float,
    follow: npt.NDArray[np.int64] | None,
    seed: int,
    progress: Progress,
) -> Fit:
    staircase = features is Features.STEPS and shape.activation.saturates
    if not staircase:
        check_size(contexts.count, contexts.count, "the matrix of features")
    with progress.stage(f"placing {contexts.count} neurons"):
        reader, hidden, bias = _neurons(contexts, shape, features, seed)
    targets, excess = target_logits(contexts, floor, follow)
    mixed = reader.mixed(contexts.tokens)
    with progress.stage("solving for the output matrix"):
        if staircase:
            order = np.argsort(mixed @ line_direction(mixed.shape[1]), kind="stable")
            low, high = shape.activation.step
            solution = solve_staircase(
                lambda rows: shape.activation(mixed[order[rows]] @ hidden + bias), targets[order], low, high
            )
        else:
            solution = solve(shape.activation(mixed @ hidden + bias), targets)
    output: tuple[Floats, ...] = (np.ascontiguousarray(solution.weights),)
    if follow is not None:
        places = np.zeros((len(follow), contexts.vocabulary_size))
        places[np.arange(len(follow)), follow] = 1.0
        output = (*output, places)
    decoder = Decoder(reader, hidden, bias, shape.activation, output)
    gap = _smallest_distance(mixed)
    return Fit(decoder, name(shape.mixer), solution.condition, solution.residual, gap, floor, excess)


def _neurons(contexts: Distributions, shape: Shape, features: Features, seed: int) -> tuple[Reader, Floats, Floats]:
    """The reader, W (d, n) and b (n,)."""
    if features is Features.DIRECTIONS:
        reader = space_reader(contexts, shape, shape.dimension or DIMENSION, seed)
        weight, bias = own_directions(reader.mixed(contexts.tokens), shape.activation)
        return reader, weight, bias
    reader, direction, _ = line_reader(contexts, shape, seed)
    numbers = reader.mixed(contexts.tokens) @ direction
    if features is Features.RANDOM:
        weight = np.random.default_rng(seed).standard_normal(contexts.count) / np.abs(numbers).max()
        return reader, np.outer(direction, weight), np.ones(contexts.count)
    neurons = steps_between(np.sort(numbers), shape.activation)
    return reader, np.outer(direction, neurons.weight), neurons.bias


def _smallest_distance(mixed: Floats) -> float:
    """The smallest gap of Theorems 4 and 6, along the first axis that shows one (all axes are equal on a line)."""
    return max(injectivity(column).smallest_gap for column in mixed.T)
