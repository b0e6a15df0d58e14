"""Fewer neurons than contexts: start in closed form, then polish every weight by L-BFGS.

The closed form with m < n neurons is a least-squares fit of the target logits. All its weights (embedding, positions,
attention, both layers) then descend the cross-entropy together, which is what the paper trains with Adam.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.constructions.decoder_fit import Fit, Shape, name, space_reader, target_logits
from byheart.constructions.madden24_lowrank import allowed_gap
from byheart.data.documents import Contexts
from byheart.errors import MissingExtraError, OptionError
from byheart.gadgets.decoder_directions import own_directions
from byheart.gadgets.decoder_gradient import CrossEntropy, flatten, unflatten
from byheart.gadgets.decoder_solve import scipy_linalg, solve
from byheart.ir.decoder import Decoder
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

START_FLOOR = 3e-2  # gentle target logits to start from: steep ones saturate the neurons
PIVOTED = 1200  # contexts up to which neurons are chosen by pivoted QR


def few_neurons(
    contexts: Contexts,
    vocabulary: tuple[str, ...],
    shape: Shape,
    neurons: int,
    *,
    fraction: float = 0.01,
    iterations: int = 2000,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Fit:
    """A decoder with `neurons` < n neurons, polished until its gap is below 0.9·`fraction` of the entropy, or no further."""
    if not 1 <= neurons <= contexts.count:
        raise OptionError(f"neurons={neurons}: polishing takes 1 to {contexts.count} (the number of contexts)")
    reader = space_reader(contexts, shape, shape.dimension or 16, seed)
    points = reader.mixed(contexts.tokens)
    weight, bias = own_directions(points, shape.activation, _chosen(points, contexts, shape, neurons))
    targets, _ = target_logits(contexts, START_FLOOR)
    solution = solve(shape.activation(points @ weight + bias), targets)
    start = Decoder(vocabulary, reader, weight, bias, shape.activation, (np.ascontiguousarray(solution.weights),))
    decoder, used = polish(start, contexts, target=0.9 * allowed_gap(contexts, fraction), iterations=iterations, progress=progress)
    notes = (f"{neurons} neurons, polished by {used} steps of L-BFGS",)
    return Fit(decoder, f"{name(shape.mixer)}-polished", solution.condition, solution.residual, 0.0, 0.0, 0.0, notes)


def _chosen(points: Floats, contexts: Contexts, shape: Shape, neurons: int) -> Ints:
    """The contexts that get a neuron: the most independent features if that is affordable, else the heaviest contexts."""
    if neurons == contexts.count:
        return np.arange(neurons)
    if contexts.count > PIVOTED:
        return np.sort(np.argsort(-contexts.weights, kind="stable")[:neurons])
    weight, bias = own_directions(points, shape.activation)
    linalg = scipy_linalg("choosing neurons by pivoted QR")
    _, order = linalg.qr(shape.activation(points @ weight + bias), mode="r", pivoting=True)
    return np.sort(np.asarray(order[:neurons], dtype=np.int64))


class _Reached(Exception):  # noqa: N818  # no error: ends the minimizer
    def __init__(self, flat: Floats) -> None:
        self.flat = flat


def polish(
    decoder: Decoder, contexts: Contexts, *, target: float, iterations: int = 2000, progress: Progress = SILENT
) -> tuple[Decoder, int]:
    """The decoder after L-BFGS on all weights, and the steps taken; stops once the gap is at most `target` nats."""
    try:
        from scipy.optimize import minimize  # type: ignore[import-untyped]  # scipy ships no types
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
