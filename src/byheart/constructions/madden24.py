"""The one-layer decoder in closed form: embed, mix to distinct vectors, place neurons between them, solve for V.

M24 names the algorithm (sample, scale, solve) and leaves the numbers open: a random draw is singular in float64 from a
few dozen contexts on. Here the neurons are placed with the contexts in view, so that the system is well-conditioned.

    >>> from byheart.data.documents import Corpus
    >>> corpus = Corpus.of_texts(["a cat sat", "a dog sat", "a dog ran"])
    >>> fit = closed_form(corpus.contexts(), corpus.vocabulary)
    >>> fit.decoder.neurons, fit.condition < 10, fit.residual < 1e-12
    (3, True, True)
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from byheart.constructions.decoder_fit import FLOOR, Fit, Shape, line_reader, name, space_reader, target_logits
from byheart.data.documents import Contexts
from byheart.errors import OptionError
from byheart.gadgets.decoder_directions import own_directions
from byheart.gadgets.decoder_mixing import injectivity
from byheart.gadgets.decoder_solve import solve
from byheart.gadgets.decoder_steps import steps_between
from byheart.ir.decoder import Decoder, Reader
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]

DIMENSION = 32  # of the space in which neurons look in their contexts' directions


class Features(StrEnum):
    """Where the neurons stand."""

    STEPS = "steps"  # on a line, between neighbouring contexts
    DIRECTIONS = "directions"  # in R^d, one in the direction of each context
    RANDOM = "random"  # the paper's draw: instructive, and singular in float64 beyond a few dozen contexts

    @staticmethod
    def named(text: str) -> Features:
        try:
            return Features(text)
        except ValueError:
            raise OptionError(f"unknown features {text!r}; known: {', '.join(Features)}") from None


@implements(
    Ref("M24", "Theorem 5"),
    statement="a one-layer decoder with m neurons interpolates any next-token distributions of m contexts",
    test="tests/decoder/test_closed_form.py",
)
@implements(
    Ref("M24", "Theorem 7"),
    statement="so does the decoder with token averaging in place of self-attention",
    test="tests/decoder/test_closed_form.py",
)
def closed_form(
    contexts: Contexts,
    vocabulary: tuple[str, ...],
    shape: Shape = Shape(),  # noqa: B008  # frozen
    *,
    features: Features | None = None,
    floor: float = FLOOR,
    factored: bool = False,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Fit:
    """A decoder with one neuron for each context whose distributions are the given ones, zeros replaced by `floor`.

    `factored` stores V as (m, s)·(s, ω), where s tokens follow anywhere: fewer numbers when s is much smaller than ω.

    Notation: contexts.count = n = m, V = decoder.output[0], (z, u) are drawn from `seed`.
    Cost: one n x n factorization, O(n³ + n²ω). Departs from the proof in the choice of w and b only: the proof takes
    any generic w near 0 and b = η, this places the neurons where the condition number stays of order n.
    """
    chosen = features or (Features.STEPS if shape.activation.saturates else Features.DIRECTIONS)
    with progress.stage(f"placing {contexts.count} neurons"):
        reader, hidden, bias = _neurons(contexts, shape, chosen, seed)
    follow = np.unique(contexts.pair_token) if factored else None
    targets, excess = target_logits(contexts, floor, follow)
    mixed = reader.mixed(contexts.tokens)
    with progress.stage("solving for the output matrix"):
        solution = solve(shape.activation(mixed @ hidden + bias), targets)
    output: tuple[Floats, ...] = (np.ascontiguousarray(solution.weights),)
    if follow is not None:
        places = np.zeros((len(follow), len(vocabulary)))
        places[np.arange(len(follow)), follow] = 1.0
        output = (*output, places)
    decoder = Decoder(vocabulary, reader, hidden, bias, shape.activation, output)
    gap = _smallest_distance(mixed)
    return Fit(decoder, name(shape.mixer), solution.condition, solution.residual, gap, floor, excess)


def _neurons(contexts: Contexts, shape: Shape, features: Features, seed: int) -> tuple[Reader, Floats, Floats]:
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
