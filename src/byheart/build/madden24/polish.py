"""Fewer neurons than contexts: start in closed form, then polish every weight by L-BFGS.

The closed form with m < n neurons is a least-squares fit of the target logits. All its weights (embedding, positions,
attention, both layers) then descend the cross-entropy together, which is what the paper trains with Adam.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from byheart.build.madden24.directions import own_directions
from byheart.build.madden24.fit import Fit, Shape, name, space_reader, target_logits
from byheart.build.madden24.gradient import CrossEntropy, flatten, unflatten
from byheart.build.madden24.lowrank import allowed_gap
from byheart.build.madden24.mixing import injectivity
from byheart.build.madden24.solve import scipy_linalg, solve
from byheart.data.dataset.targets import Distributions
from byheart.errors import MissingExtraError, OptionError
from byheart.ir.decoder import Decoder
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

START_FLOOR = 3e-2  # gentle target logits to start from: steep ones saturate the neurons


class Start(StrEnum):
    """Where the neurons stand before polishing."""

    DIRECTIONS = "directions"  # one in the direction of each of m chosen contexts
    RANDOM = "random"


RIDGES = {Start.DIRECTIONS: 0.1, Start.RANDOM: 1e-3}  # relative to the mean square of a neuron
STARTS = (Start.DIRECTIONS, Start.RANDOM, Start.RANDOM)  # L-BFGS may get stuck: further starts follow
PIVOTED = 1200  # contexts up to which neurons are chosen by pivoted QR


def few_neurons(
    contexts: Distributions,
    shape: Shape,
    neurons: int,
    *,
    fraction: float = 0.01,
    iterations: int = 800,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Fit:
    """A decoder with `neurons` ≤ n neurons, polished until its gap is below 0.9·`fraction` of the entropy.

    Several starts are tried; if none gets there, the best is returned and the certificate will say so.
    """
    if not 1 <= neurons <= contexts.count:
        raise OptionError(f"neurons={neurons}: polishing takes 1 to {contexts.count} (the number of contexts)")
    target = 0.9 * allowed_gap(contexts, fraction)
    fits: list[tuple[float, Fit]] = []
    for attempt, style in enumerate(STARTS):
        start, condition = _start(contexts, shape, neurons, style, seed + attempt)
        decoder, used = polish(start, contexts, target=target, iterations=iterations, progress=progress)
        gap = contexts.cross_entropy(decoder.log_probabilities(contexts.tokens)) - contexts.entropy
        notes = (f"{neurons} neurons, start {attempt + 1} ({style.value}) polished by {used} steps of L-BFGS",)
        closest = max(injectivity(column).smallest_gap for column in decoder.reader.mixed(contexts.tokens).T)
        fit = Fit(decoder, f"{name(shape.mixer)}-polished", condition, None, closest, None, None, notes)
        fits.append((gap, fit))
        if gap <= target:
            break
    return min(fits, key=lambda found: found[0])[1]


def _start(contexts: Distributions, shape: Shape, neurons: int, style: Start, seed: int) -> tuple[Decoder, float]:
    """The closed form by ridge regression onto gentle target logits, and the condition number of its features."""
    reader = space_reader(contexts, shape, shape.dimension or 16, seed)
    points = reader.mixed(contexts.tokens)
    if style is Start.DIRECTIONS:
        weight, bias = own_directions(points, shape.activation, _chosen(points, contexts, shape, neurons))
    else:
        weight, bias = _random_layer(points, neurons, seed)
    targets, _ = target_logits(contexts, START_FLOOR)
    features = shape.activation(points @ weight + bias)
    ridge = math.sqrt(RIDGES[style] * float((features * features).sum()) / neurons)
    solution = solve(
        np.vstack([features, ridge * np.eye(neurons)]), np.vstack([targets, np.zeros((neurons, targets.shape[1]))])
    )
    decoder = Decoder(reader, weight, bias, shape.activation, (np.ascontiguousarray(solution.weights),))
    return decoder, solution.condition


def _random_layer(points: Floats, neurons: int, seed: int) -> tuple[Floats, Floats]:
    """Gaussian neurons whose arguments have standard deviation 2 on the contexts."""
    rng = np.random.default_rng(seed)
    dimension = points.shape[1]
    weight = rng.standard_normal((dimension, neurons)) * (2 / math.sqrt(dimension) / max(float(points.std()), 1e-9))
    return weight, rng.standard_normal(neurons) - points.mean(axis=0) @ weight


def _chosen(points: Floats, contexts: Distributions, shape: Shape, neurons: int) -> Ints:
    """The contexts that get a neuron: the most independent features if affordable, else the heaviest contexts."""
    if neurons == contexts.count:
        return np.arange(neurons)
    if contexts.count > PIVOTED:
        return np.sort(np.argsort(-contexts.weights, kind="stable")[:neurons])
    weight, bias = own_directions(points, shape.activation)
    linalg = scipy_linalg("choosing neurons by pivoted QR")
    _, order = linalg.qr(shape.activation(points @ weight + bias), mode="r", pivoting=True)
    return np.sort(np.asarray(order[:neurons], dtype=np.int64))


class _Reached(Exception):  # no error: ends the minimizer
    def __init__(self, flat: Floats) -> None:
        self.flat = flat


def polish(
    decoder: Decoder, contexts: Distributions, *, target: float, iterations: int = 2000, progress: Progress = SILENT
) -> tuple[Decoder, int]:
    """The decoder after L-BFGS on all weights, and the steps taken; stops once the gap is at most `target` nats."""
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise MissingExtraError("polishing a decoder", "decoder") from error
    objective = CrossEntropy.of(decoder, contexts)
    steps = 0
    with progress.stage("polishing all weights", total=iterations) as stage:

        def evaluate(flat: Floats) -> tuple[float, Floats]:
            loss, gradient = objective.value_and_gradient(flat)
            if loss - contexts.entropy <= target:
                raise _Reached(flat.copy())
            return loss, gradient

        def count(_: Floats) -> None:
            nonlocal steps
            steps += 1
            stage.advance()

        options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-9}
        try:
            flat = minimize(evaluate, flatten(decoder), jac=True, method="L-BFGS-B", callback=count, options=options).x
        except _Reached as reached:
            flat = reached.flat
    return unflatten(decoder, flat), steps
